#include "tests/lib/fake_device.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define UNWRITTEN  (-1)
#define TICKETS    3 /* two in flight and the one before */
#define PAGE_BYTES (KV_PAGE_TOKENS * sizeof(int32_t))
#define ID_BITS    24 /* of what a position holds: the token, and above it the adapter */

struct fake_ticket {
    uint64_t number;
    const struct device_step *step;
    int32_t *ids; /* by row */
    int64_t done_us;
    bool is_constrained;
    uint32_t *masks; /* (max_sequences, n_words), of the step's sequences */
};

/* A slot's sampling, and the tokens that the device knows of its sequence. */
struct fake_slot {
    struct sampling sampling;
    int32_t *tokens; /* (max_context + 1) */
    uint32_t n_tokens;
};

struct fake_device {
    struct device super;
    struct device_config cfg;
    uint32_t n_vocab;
    int32_t *kv;          /* (n_pages, KV_PAGE_TOKENS) */
    uint64_t *page_step;  /* number of the last step that named the page, */
    uint32_t *page_users; /* and how many of its sequences did */
    uint32_t n_words;
    struct fake_slot *slots;
    int32_t *gathered; /* (max_context) */
    struct fake_ticket tickets[TICKETS];
    uint64_t n_submitted, n_completed, n_submit_calls, ticket_rows, rows;
    int64_t now_us, busy_until_us;
};

struct fake_device_script fake_device_script;

static struct fake_device *self(struct device *d)
{
    return (struct fake_device *)d;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9E3779B97F4A7C15ull;
    return h ^ h >> 29;
}

static uint64_t hash_tokens(uint64_t h, const int32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        h = mix(h, (uint64_t)tokens[i]);
    return h;
}

int32_t fake_device_pick_adapted(const int32_t *tokens, uint32_t n, uint32_t adapter, uint64_t seed,
                                 uint32_t output_index, uint32_t n_vocab)
{
    uint64_t h = mix(mix(1 + adapter, seed), output_index);

    return (int32_t)(hash_tokens(h, tokens, n) % n_vocab);
}

int32_t fake_device_pick(const int32_t *tokens, uint32_t n, uint64_t seed, uint32_t output_index,
                         uint32_t n_vocab)
{
    return fake_device_pick_adapted(tokens, n, 0, seed, output_index, n_vocab);
}

int32_t fake_device_allowed(int32_t id, const uint32_t *bits, uint32_t n_vocab)
{
    for (uint32_t i = 0; i < n_vocab; i++) {
        uint32_t at = ((uint32_t)id + i) % n_vocab;

        if (bits[at / 32] >> at % 32 & 1)
            return (int32_t)at;
    }
    return -1;
}

float fake_device_score(const int32_t *tokens, uint32_t n, int32_t target)
{
    return -(float)(mix(hash_tokens(2, tokens, n), (uint64_t)target) % 1000) / 100;
}

uint64_t fake_device_rows(const struct device *d)
{
    return ((const struct fake_device *)d)->rows;
}

int64_t fake_device_now_us(void *device)
{
    return ((const struct fake_device *)device)->now_us;
}

void fake_device_set_time(struct device *d, int64_t us)
{
    self(d)->now_us = us;
}

uint64_t fake_device_ticket_rows(const struct device *d)
{
    return ((const struct fake_device *)d)->ticket_rows;
}

static enum status fake_plan(const struct device_config *cfg, struct device_plan *out,
                             struct reason *why)
{
    (void)why;
    *out = (struct device_plan){.kv_page_bytes = PAGE_BYTES};
    out->n_pages = cfg->n_pages != 0 ? cfg->n_pages : (uint32_t)(cfg->kv_bytes / PAGE_BYTES);
    return ST_OK;
}

static void *array(size_t n, size_t bytes)
{
    void *p = calloc(n, bytes);

    assert(p != NULL);
    return p;
}

static enum status fake_open(const struct device_config *cfg, struct device **out,
                             struct reason *why)
{
    struct fake_device *f = array(1, sizeof *f);
    struct device_plan resolved;
    enum status s = fake_plan(cfg, &resolved, why);

    assert(s == ST_OK);
    f->super.ops = &fake_device_ops;
    f->cfg = *cfg;
    f->cfg.n_pages = resolved.n_pages;
    f->n_vocab = cfg->model != NULL ? cfg->model->shape.n_vocab : FAKE_DEVICE_VOCAB;
    f->kv = array(f->cfg.n_pages, PAGE_BYTES);
    f->page_step = array(f->cfg.n_pages, sizeof f->page_step[0]);
    f->page_users = array(f->cfg.n_pages, sizeof f->page_users[0]);
    f->n_words = (f->n_vocab + 31) / 32;
    f->slots = array(cfg->max_sequences, sizeof f->slots[0]);
    for (uint32_t i = 0; i < cfg->max_sequences; i++)
        f->slots[i].tokens = array(cfg->max_context + 1, sizeof(int32_t));
    f->gathered = array(cfg->max_context + 1, sizeof f->gathered[0]);
    for (int i = 0; i < TICKETS; i++) {
        f->tickets[i].ids = array(cfg->max_rows, sizeof f->tickets[i].ids[0]);
        f->tickets[i].masks =
            array((size_t)cfg->max_sequences * f->n_words, sizeof f->tickets[i].masks[0]);
    }
    memset(f->kv, 0xFF, f->cfg.n_pages * PAGE_BYTES);
    *out = &f->super;
    return ST_OK;
}

static void fake_close(struct device *d)
{
    struct fake_device *f = self(d);

    for (int i = 0; i < TICKETS; i++) {
        free(f->tickets[i].ids);
        free(f->tickets[i].masks);
    }
    for (uint32_t i = 0; i < f->cfg.max_sequences; i++)
        free(f->slots[i].tokens);
    free(f->kv);
    free(f->page_step);
    free(f->page_users);
    free(f->slots);
    free(f->gathered);
    free(f);
}

static const char *fake_describe(const struct device *d)
{
    (void)d;
    return "fake";
}

static enum status fake_slot_set(struct device *d, uint32_t slot, const struct sampling *s,
                                 const int32_t *tokens, uint32_t n_prompt, uint32_t n_tokens)
{
    struct fake_slot *into = &self(d)->slots[slot];

    assert(slot < self(d)->cfg.max_sequences);
    assert(n_prompt <= n_tokens && n_tokens <= self(d)->cfg.max_context);
    if (s->seed != 0 && s->seed == fake_device_script.refuse_slot_seed)
        return ST_NO_MEMORY;
    into->sampling = *s;
    into->n_tokens = n_tokens;
    memcpy(into->tokens, tokens, n_tokens * sizeof tokens[0]);
    return ST_OK;
}

static int64_t duration_us(const struct device_step *step)
{
    const struct fake_device_script *c = &fake_device_script;
    int64_t us = c->step_us + step->n_rows * c->row_us, attended = 0;

    for (uint32_t i = 0; i < step->n_rows; i++) {
        attended += step->rows[i].position + 1;
        us += step->rows[i].want != ROW_NOTHING ? c->logits_us : 0;
    }
    return us + attended * c->attended_ns / 1000;
}

/* It runs behind what was submitted before. */
static void start(struct fake_device *f, struct fake_ticket *t)
{
    int64_t from = f->busy_until_us > f->now_us ? f->busy_until_us : f->now_us;

    f->busy_until_us = t->done_us = from + duration_us(t->step);
}

static enum status fake_submit(struct device *d, const struct device_step *step, uint64_t *ticket)
{
    struct fake_device *f = self(d);
    struct fake_ticket *t;

    f->n_submit_calls++;
    if (fake_device_script.fail_submit_every != 0 &&
        f->n_submit_calls % fake_device_script.fail_submit_every == 0)
        return ST_INTERNAL;
    assert(step->n_rows > 0 && step->n_rows <= f->cfg.max_rows);
    assert(step->n_sequences <= f->cfg.max_sequences);
    assert(f->n_submitted - f->n_completed < 2);
    f->n_submitted++;
    t = &f->tickets[f->n_submitted % TICKETS];
    t->number = f->n_submitted;
    t->step = step;
    t->is_constrained = false;
    start(f, t);
    *ticket = t->number;
    return ST_OK;
}

/* Sequences may share pages, but a page that one of them writes is its own. */
static void check_pages(struct fake_device *f, const struct fake_ticket *t)
{
    const struct device_step *step = t->step;

    for (uint32_t i = 0; i < step->n_sequences; i++) {
        const struct step_sequence *q = &step->sequences[i];

        assert(q->slot < f->cfg.max_sequences);
        assert(q->first_page + q->n_pages <= step->n_pages);
        for (uint32_t k = 0; k < q->n_pages; k++) {
            uint32_t page = step->pages[q->first_page + k];

            assert(page < f->cfg.n_pages);
            if (f->page_step[page] != t->number)
                f->page_users[page] = 0;
            f->page_step[page] = t->number;
            f->page_users[page]++;
        }
    }
    for (uint32_t i = 0; i < step->n_rows; i++) {
        const struct step_row *row = &step->rows[i];
        const struct step_sequence *q = &step->sequences[row->sequence];

        assert(row->position / KV_PAGE_TOKENS < q->n_pages);
        assert(f->page_users[step->pages[q->first_page + row->position / KV_PAGE_TOKENS]] == 1);
    }
}

static int32_t *kv_at(struct fake_device *f, const struct device_step *step, uint32_t sequence,
                      uint32_t position)
{
    const struct step_sequence *q = &step->sequences[sequence];
    uint32_t index = position / KV_PAGE_TOKENS;

    assert(index < q->n_pages);
    return f->kv + (size_t)step->pages[q->first_page + index] * KV_PAGE_TOKENS +
           position % KV_PAGE_TOKENS;
}

static int32_t input_id(struct fake_device *f, const struct fake_ticket *t,
                        const struct step_row *row)
{
    const struct fake_ticket *earlier;

    if (row->ticket == ROW_LITERAL)
        return row->id;
    earlier = &f->tickets[row->ticket % TICKETS];
    assert(row->ticket == t->number - 1 && earlier->number == row->ticket);
    f->ticket_rows++;
    return earlier->ids[row->id];
}

/* The tokens up to the row's, all computed with its sequence's adapter. */
static void gather(struct fake_device *f, const struct fake_ticket *t, const struct step_row *row)
{
    const struct step_sequence *q = &t->step->sequences[row->sequence];

    for (uint32_t p = 0; p <= row->position; p++) {
        int32_t v = *kv_at(f, t->step, row->sequence, p);

        assert(v != UNWRITTEN && (uint32_t)v >> ID_BITS == q->adapter);
        f->gathered[p] = v & ((1 << ID_BITS) - 1);
    }
}

static bool is_nan(const struct step_sequence *q, const struct sampling *s)
{
    return s->seed != 0 && s->seed == fake_device_script.nan_seed &&
           s->choice == fake_device_script.nan_choice &&
           q->output_index >= fake_device_script.nan_after;
}

/* Of what its mask allows. Where that is nothing, any id, for rows of the next step that name it.
 */
static enum status constrained(const struct fake_device *f, const struct fake_ticket *t,
                               uint32_t sequence, int32_t *id)
{
    int32_t allowed =
        fake_device_allowed(*id, t->masks + (size_t)sequence * f->n_words, f->n_vocab);

    assert(t->is_constrained);
    if (allowed < 0)
        return ST_NO_CHOICE;
    *id = allowed;
    return ST_OK;
}

static void sample(struct fake_device *f, const struct fake_ticket *t, uint32_t r,
                   struct step_result *out)
{
    const struct step_row *row = &t->step->rows[r];
    const struct step_sequence *q = &t->step->sequences[row->sequence];
    struct fake_slot *slot = &f->slots[q->slot];

    assert(slot->n_tokens == row->position + 1);
    assert(memcmp(slot->tokens, f->gathered, slot->n_tokens * sizeof slot->tokens[0]) == 0);
    out->id = fake_device_pick_adapted(f->gathered, row->position + 1, q->adapter,
                                       slot->sampling.seed + slot->sampling.choice, q->output_index,
                                       f->n_vocab);
    if (q->masked)
        out->status = constrained(f, t, row->sequence, &out->id);
    t->ids[r] = slot->tokens[slot->n_tokens] = out->id;
    slot->n_tokens++;
    if (is_nan(q, &slot->sampling))
        out->status = ST_INTERNAL;
}

/* Of the row that was gathered. */
static void fill_logprobs(const struct fake_device *f, uint32_t n_tokens, const struct sampling *s,
                          struct step_result *out, struct token_logprob *tops)
{
    if (!s->want_logprobs && !s->want_prompt_logprobs)
        return;
    out->logprob = fake_device_score(f->gathered, n_tokens, out->id);
    out->n_tops = s->top_logprobs;
    for (uint32_t i = 0; i < s->top_logprobs; i++)
        tops[i] = (struct token_logprob){
            .id = (int32_t)i, .logprob = fake_device_score(f->gathered, n_tokens, (int32_t)i)};
}

static void want(struct fake_device *f, const struct fake_ticket *t, uint32_t r,
                 struct step_result *out, struct token_logprob *tops)
{
    const struct step_row *row = &t->step->rows[r];

    gather(f, t, row);
    *out = (struct step_result){.row = r, .status = ST_OK};
    if (row->want == ROW_SAMPLE)
        sample(f, t, r, out);
    else
        out->id = row->target;
    fill_logprobs(f, row->position + 1, &f->slots[t->step->sequences[row->sequence].slot].sampling,
                  out, tops);
}

static enum status fake_constrain(struct device *d, uint64_t ticket, const struct row_mask *masks,
                                  uint32_t n)
{
    struct fake_device *f = self(d);
    struct fake_ticket *t = &f->tickets[ticket % TICKETS];
    uint32_t n_masked = 0;

    assert(t->number == ticket && ticket == f->n_completed + 1 && !t->is_constrained);
    for (uint32_t i = 0; i < t->step->n_sequences; i++)
        n_masked += t->step->sequences[i].masked;
    assert(n == n_masked);
    for (uint32_t i = 0; i < n; i++) {
        const struct step_row *row = &t->step->rows[masks[i].row];

        assert(row->want == ROW_SAMPLE && t->step->sequences[row->sequence].masked);
        memcpy(t->masks + (size_t)row->sequence * f->n_words, masks[i].bits,
               f->n_words * sizeof(uint32_t));
    }
    t->is_constrained = true;
    return ST_OK;
}

static enum status fake_complete(struct device *d, uint64_t ticket, struct step_output *out)
{
    struct fake_device *f = self(d);
    struct fake_ticket *t = &f->tickets[ticket % TICKETS];

    assert(ticket == f->n_completed + 1 && t->number == ticket);
    if (fake_device_script.on_step != NULL)
        fake_device_script.on_step(fake_device_script.arg, t->step);
    f->n_completed++;
    f->rows += t->step->n_rows;
    f->now_us = t->done_us > f->now_us ? t->done_us : f->now_us;
    check_pages(f, t);
    out->n = 0;
    for (uint32_t r = 0; r < t->step->n_rows; r++) {
        const struct step_row *row = &t->step->rows[r];

        assert(row->position < f->cfg.max_context);
        *kv_at(f, t->step, row->sequence, row->position) =
            input_id(f, t, row) | (int32_t)(t->step->sequences[row->sequence].adapter << ID_BITS);
        if (row->want == ROW_NOTHING)
            continue;
        want(f, t, r, &out->results[out->n], out->tops + (size_t)out->n * TOP_LOGPROBS_MAX);
        out->n++;
    }
    return fake_device_script.fail_complete_every != 0 &&
                   ticket % fake_device_script.fail_complete_every == 0
               ? ST_INTERNAL
               : ST_OK;
}

static enum status fake_copy_pages(struct device *d, const uint32_t *from, const uint32_t *to,
                                   uint32_t n)
{
    struct fake_device *f = self(d);

    for (uint32_t i = 0; i < n; i++)
        memcpy(f->kv + (size_t)to[i] * KV_PAGE_TOKENS, f->kv + (size_t)from[i] * KV_PAGE_TOKENS,
               PAGE_BYTES);
    return ST_OK;
}

const struct device_ops fake_device_ops = {.name = "fake",
                                           .plan = fake_plan,
                                           .open = fake_open,
                                           .close = fake_close,
                                           .describe = fake_describe,
                                           .slot_set = fake_slot_set,
                                           .submit = fake_submit,
                                           .constrain = fake_constrain,
                                           .complete = fake_complete,
                                           .copy_pages = fake_copy_pages};
