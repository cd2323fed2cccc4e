#include "tests/lib/fake_device.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define UNWRITTEN  (-1)
#define TICKETS    3 /* two in flight and the one before */
#define PAGE_BYTES (KV_PAGE_TOKENS * sizeof(int32_t))

struct fake_ticket {
    uint64_t number;
    const struct device_step *step;
    int32_t *ids; /* by row */
};

struct fake_device {
    struct device super;
    struct device_config cfg;
    uint32_t n_vocab;
    int32_t *kv;          /* (n_pages, KV_PAGE_TOKENS) */
    uint64_t *page_taken; /* number of the last step that used the page */
    struct sampling *slots;
    int32_t *gathered; /* (max_context) */
    struct fake_ticket tickets[TICKETS];
    uint64_t n_submitted, n_completed, n_submit_calls, ticket_rows;
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

int32_t fake_device_pick(const int32_t *tokens, uint32_t n, uint64_t seed, uint32_t output_index,
                         uint32_t n_vocab)
{
    uint64_t h = mix(mix(1, seed), output_index);

    for (uint32_t i = 0; i < n; i++)
        h = mix(h, (uint64_t)tokens[i]);
    return (int32_t)(h % n_vocab);
}

float fake_device_logprob(int32_t id)
{
    return -(float)(id + 1) / 16;
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
    f->page_taken = array(f->cfg.n_pages, sizeof f->page_taken[0]);
    f->slots = array(cfg->max_sequences, sizeof f->slots[0]);
    f->gathered = array(cfg->max_context + 1, sizeof f->gathered[0]);
    for (int i = 0; i < TICKETS; i++)
        f->tickets[i].ids = array(cfg->max_rows, sizeof f->tickets[i].ids[0]);
    memset(f->kv, 0xFF, f->cfg.n_pages * PAGE_BYTES);
    *out = &f->super;
    return ST_OK;
}

static void fake_close(struct device *d)
{
    struct fake_device *f = self(d);

    for (int i = 0; i < TICKETS; i++)
        free(f->tickets[i].ids);
    free(f->kv);
    free(f->page_taken);
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
    assert(slot < self(d)->cfg.max_sequences);
    (void)tokens;
    (void)n_prompt;
    (void)n_tokens;
    self(d)->slots[slot] = *s;
    return ST_OK;
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
    *ticket = t->number;
    return ST_OK;
}

/* No page belongs to two sequences of one step. */
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
            assert(f->page_taken[page] != t->number);
            f->page_taken[page] = t->number;
        }
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

static void fill_logprobs(const struct sampling *s, struct step_result *out,
                          struct token_logprob *tops)
{
    if (!s->want_logprobs && !s->want_prompt_logprobs)
        return;
    out->logprob = fake_device_logprob(out->id);
    out->n_tops = s->top_logprobs;
    for (uint32_t i = 0; i < s->top_logprobs; i++)
        tops[i] =
            (struct token_logprob){.id = (int32_t)i, .logprob = fake_device_logprob((int32_t)i)};
}

static void sample(struct fake_device *f, const struct fake_ticket *t, uint32_t r,
                   struct step_result *out, struct token_logprob *tops)
{
    const struct step_row *row = &t->step->rows[r];
    const struct step_sequence *q = &t->step->sequences[row->sequence];
    const struct sampling *s = &f->slots[q->slot];

    for (uint32_t p = 0; p <= row->position; p++) {
        f->gathered[p] = *kv_at(f, t->step, row->sequence, p);
        assert(f->gathered[p] != UNWRITTEN);
    }
    out->row = r;
    out->id = fake_device_pick(f->gathered, row->position + 1, s->seed + s->choice, q->output_index,
                               f->n_vocab);
    t->ids[r] = out->id;
    out->status = s->seed != 0 && s->seed == fake_device_script.nan_seed &&
                          s->choice == fake_device_script.nan_choice &&
                          q->output_index >= fake_device_script.nan_after
                      ? ST_INTERNAL
                      : ST_OK;
    fill_logprobs(s, out, tops);
}

static enum status fake_complete(struct device *d, uint64_t ticket, struct step_output *out)
{
    struct fake_device *f = self(d);
    struct fake_ticket *t = &f->tickets[ticket % TICKETS];

    assert(ticket == f->n_completed + 1 && t->number == ticket);
    if (fake_device_script.on_step != NULL)
        fake_device_script.on_step(fake_device_script.arg, t->step);
    f->n_completed++;
    check_pages(f, t);
    out->n = 0;
    for (uint32_t r = 0; r < t->step->n_rows; r++) {
        const struct step_row *row = &t->step->rows[r];

        assert(row->position < f->cfg.max_context);
        *kv_at(f, t->step, row->sequence, row->position) = input_id(f, t, row);
        if (row->want == ROW_SAMPLE) {
            sample(f, t, r, &out->results[out->n], out->tops + (size_t)out->n * TOP_LOGPROBS_MAX);
            out->n++;
        }
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
                                           .complete = fake_complete,
                                           .copy_pages = fake_copy_pages};
