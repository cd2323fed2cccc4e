#include "engine/cpu/cpu.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/cpu/forward.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/masks.h"
#include "engine/cpu/row_sampler.h"
#include "engine/cpu/threads.h"

/* A ticket may be submitted while the one before it is not yet complete. */
#define PENDING_MAX 2u

struct cpu_device {
    struct device super;
    struct pool *pool;
    struct forward forward;
    uint32_t max_rows, max_sequences, max_context;
    char description[64];
    struct row_sampler sampler;
    uint64_t last_submitted, last_completed;
    const struct device_step *pending[PENDING_MAX]; /* by ticket */
    struct masks masks[PENDING_MAX];                /* by ticket */
    int32_t *sampled[PENDING_MAX]; /* (max_rows) by ticket: ids by row, -1 where none */
    int32_t *ids;                  /* (max_rows): resolved inputs of the running step */
    uint32_t *wanted;              /* (max_rows): rows of the running step */
    uint32_t *logits_at;           /* (max_rows): row's place in forward.logits */
    bool have_logits;              /* of the last completed step */
};

static struct cpu_device *self(struct device *d)
{
    return CONTAINER_OF(d, struct cpu_device, super);
}

static const struct cpu_device *self_const(const struct device *d)
{
    return (const struct cpu_device *)(const void *)((const char *)d -
                                                     offsetof(struct cpu_device, super));
}

static unsigned n_threads_of(const struct device_config *cfg)
{
    return cfg->n_threads != 0 ? cfg->n_threads : pool_default_threads();
}

static enum status check_config(const struct device_config *cfg, struct reason *why)
{
    if (cfg->max_rows == 0 || cfg->max_sequences == 0 || cfg->max_context == 0)
        return fail(why, ST_INVALID, "a device needs at least one row, sequence and token");
    if (cfg->n_threads > POOL_THREADS_MAX)
        return fail(why, ST_INVALID, "%u compute threads: 1 to %d are possible", cfg->n_threads,
                    POOL_THREADS_MAX);
    if (kernels_for(cfg->isa) == NULL)
        return fail(why, ST_UNSUPPORTED,
                    "this machine has no \"%s\" kernels (auto, scalar, avx2, avx512)", cfg->isa);
    if (kv_kernels_of(kernels_for(cfg->isa), cfg) == NULL)
        return fail(why, ST_UNSUPPORTED, "mode exact keeps KV in F32 and has no other type");
    return ST_OK;
}

static enum status plan(const struct device_config *cfg, struct device_plan *out,
                        struct reason *why)
{
    enum status s = check_config(cfg, why);
    bool fast = cfg->mode == DEVICE_FAST;
    unsigned n_threads = n_threads_of(cfg);
    struct device_plan p;
    size_t pages;

    if (s != ST_OK)
        return s;
    p.kv_page_bytes = kv_page_bytes(&cfg->model->shape, kv_kernels_of(kernels_for(cfg->isa), cfg));
    pages = cfg->n_pages != 0 ? cfg->n_pages : cfg->kv_bytes / p.kv_page_bytes;
    if (pages == 0 || pages > UINT32_MAX)
        return fail(why, ST_INVALID, "%zu bytes of KV memory: one page takes %zu", cfg->kv_bytes,
                    p.kv_page_bytes);
    p.n_pages = (uint32_t)pages;
    p.weight_bytes = gguf_file_bytes(cfg->model->gguf) + weights_packed_bytes(cfg->model, fast);
    p.scratch_bytes = forward_scratch_bytes(cfg, n_threads) + row_sampler_bytes(cfg, n_threads) +
                      PENDING_MAX * masks_bytes(cfg->max_sequences, cfg->model->shape.n_vocab);
    *out = p;
    return ST_OK;
}

static void close_device(struct device *base)
{
    struct cpu_device *d;

    if (base == NULL)
        return;
    d = self(base);
    forward_close(&d->forward);
    row_sampler_dispose(&d->sampler);
    pool_close(d->pool);
    for (unsigned i = 0; i < PENDING_MAX; i++) {
        free(d->sampled[i]);
        masks_dispose(&d->masks[i]);
    }
    free(d->ids);
    free(d->wanted);
    free(d->logits_at);
    free(d);
}

static bool alloc_arrays(struct cpu_device *d, uint32_t n_vocab)
{
    size_t n = d->max_rows;

    d->ids = calloc(n, sizeof *d->ids);
    d->wanted = calloc(n, sizeof *d->wanted);
    d->logits_at = calloc(n, sizeof *d->logits_at);
    for (unsigned i = 0; i < PENDING_MAX; i++) {
        d->sampled[i] = calloc(n, sizeof *d->sampled[i]);
        if (d->sampled[i] == NULL || masks_init(&d->masks[i], d->max_sequences, n_vocab) != ST_OK)
            return false;
    }
    return d->ids != NULL && d->wanted != NULL && d->logits_at != NULL;
}

static enum status open_parts(struct cpu_device *d, const struct device_config *cfg,
                              struct reason *why)
{
    const struct kernels *kernels = kernels_for(cfg->isa);
    struct device_plan p = {0};
    enum status s = plan(cfg, &p, why);

    if (s == ST_OK)
        s = pool_open(n_threads_of(cfg), &d->pool, why);
    if (s != ST_OK)
        return s;
    d->max_rows = cfg->max_rows;
    d->max_sequences = cfg->max_sequences;
    d->max_context = cfg->max_context;
    if (!alloc_arrays(d, cfg->model->shape.n_vocab) ||
        row_sampler_init(&d->sampler, &d->forward, d->pool, cfg) != ST_OK)
        return fail(why, ST_NO_MEMORY, "no memory for a device of %u rows", cfg->max_rows);
    snprintf(d->description, sizeof d->description, "cpu %s %s%s %u thread%s", kernels->name,
             cfg->mode == DEVICE_FAST ? "fast" : "exact", cfg->kv_type == KV_Q8 ? " kv-q8" : "",
             pool_n_threads(d->pool), pool_n_threads(d->pool) == 1 ? "" : "s");
    return forward_open(&d->forward, cfg, kernels, d->pool, p.n_pages, why);
}

static enum status open_device(const struct device_config *cfg, struct device **out,
                               struct reason *why)
{
    struct cpu_device *d = calloc(1, sizeof *d);
    enum status s;

    if (d == NULL)
        return fail(why, ST_NO_MEMORY, "no memory for a device");
    d->super.ops = &cpu_device_ops;
    s = open_parts(d, cfg, why);
    if (s != ST_OK) {
        close_device(&d->super);
        return s;
    }
    *out = &d->super;
    return ST_OK;
}

static const char *describe(const struct device *base)
{
    return self_const(base)->description;
}

static enum status slot_set(struct device *base, uint32_t slot, const struct sampling *s,
                            const int32_t *tokens, uint32_t n_prompt, uint32_t n_tokens)
{
    return slots_set(&self(base)->sampler.slots, slot, s, tokens, n_prompt, n_tokens);
}

static bool sequence_fits(const struct cpu_device *d, const struct device_step *step,
                          const struct step_sequence *s)
{
    if (s->slot >= d->max_sequences || s->n_pages > step->n_pages ||
        s->first_page > step->n_pages - s->n_pages)
        return false;
    for (uint32_t i = 0; i < s->n_pages; i++)
        if (step->pages[s->first_page + i] >= d->forward.kv.n_pages)
            return false;
    return true;
}

static bool in_vocabulary(const struct cpu_device *d, int32_t id)
{
    return id >= 0 && (uint32_t)id < d->forward.model->shape.n_vocab;
}

/* A masked sequence samples one row at most: it has one mask. */
static bool want_fits(const struct cpu_device *d, const struct device_step *step, uint32_t i)
{
    const struct step_row *rows = step->rows;

    if (rows[i].want == ROW_SCORE)
        return in_vocabulary(d, rows[i].target);
    if (rows[i].want != ROW_SAMPLE || !step->sequences[rows[i].sequence].masked)
        return rows[i].want == ROW_NOTHING || rows[i].want == ROW_SAMPLE;
    for (uint32_t j = i; j > 0 && rows[j - 1].sequence == rows[i].sequence; j--)
        if (rows[j - 1].want == ROW_SAMPLE)
            return false;
    return true;
}

static bool row_fits(const struct cpu_device *d, const struct device_step *step, uint32_t i)
{
    const struct step_row *r = &step->rows[i];

    if (r->sequence >= step->n_sequences || r->position >= d->max_context ||
        r->position / KV_PAGE_TOKENS >= step->sequences[r->sequence].n_pages)
        return false;
    if (i > 0 && r->sequence == r[-1].sequence && r->position != r[-1].position + 1)
        return false;
    if (!want_fits(d, step, i))
        return false;
    if (r->ticket == ROW_LITERAL)
        return in_vocabulary(d, r->id);
    return r->ticket == d->last_submitted && r->id >= 0 && (uint32_t)r->id < d->max_rows;
}

static bool has_adapters(const struct device_step *step)
{
    for (uint32_t i = 0; i < step->n_sequences; i++)
        if (step->sequences[i].adapter != 0)
            return true;
    return false;
}

/* A step that doesn't fit is the scheduler's fault; it is refused before anything is written. */
static enum status submit(struct device *base, const struct device_step *step, uint64_t *ticket)
{
    struct cpu_device *d = self(base);

    if (d->last_submitted - d->last_completed >= PENDING_MAX)
        return ST_OVERLOADED;
    if (step->n_rows == 0 || step->n_rows > d->max_rows || step->n_sequences > d->max_sequences)
        return ST_INVALID;
    for (uint32_t i = 0; i < step->n_sequences; i++)
        if (!sequence_fits(d, step, &step->sequences[i]))
            return ST_INVALID;
    for (uint32_t i = 0; i < step->n_rows; i++)
        if (!row_fits(d, step, i))
            return ST_INVALID;
    if (has_adapters(step))
        return ST_UNSUPPORTED;
    d->have_logits = false;
    *ticket = ++d->last_submitted;
    masks_clear(&d->masks[*ticket % PENDING_MAX]);
    d->pending[*ticket % PENDING_MAX] = step;
    return ST_OK;
}

static bool is_pending(const struct cpu_device *d, uint64_t ticket)
{
    return ticket > d->last_completed && ticket <= d->last_submitted;
}

static enum status constrain(struct device *base, uint64_t ticket, const struct row_mask *masks,
                             uint32_t n)
{
    struct cpu_device *d = self(base);

    if (!is_pending(d, ticket))
        return ST_INVALID;
    return masks_add(&d->masks[ticket % PENDING_MAX], d->pending[ticket % PENDING_MAX], masks, n);
}

/* Input ids of the step. A row whose source failed gets -1 for its result and computes with some
 * valid id: its sequence fails, the others don't notice. */
static void resolve_ids(struct cpu_device *d, const struct device_step *step)
{
    for (uint32_t i = 0; i < step->n_rows; i++) {
        const struct step_row *r = &step->rows[i];

        d->ids[i] = r->ticket == ROW_LITERAL ? r->id : d->sampled[r->ticket % PENDING_MAX][r->id];
    }
}

static bool input_failed(const struct cpu_device *d, const struct device_step *step, uint32_t row)
{
    for (uint32_t i = row + 1; i > 0 && step->rows[i - 1].sequence == step->rows[row].sequence; i--)
        if (d->ids[i - 1] < 0)
            return true;
    return false;
}

static uint32_t list_results(struct cpu_device *d, const struct device_step *step,
                             struct step_result *out)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < step->n_rows; i++) {
        if (step->rows[i].want == ROW_NOTHING)
            continue;
        d->wanted[n] = i;
        out[n++] = (struct step_result){
            .row = i, .id = -1, .status = input_failed(d, step, i) ? ST_INTERNAL : ST_OK};
    }
    for (uint32_t i = 0; i < step->n_rows; i++)
        if (d->ids[i] < 0)
            d->ids[i] = 0;
    return n;
}

/* What later rows may name, and where `logits` finds a row's. */
static void keep_results(struct cpu_device *d, const struct device_step *step,
                         const struct step_output *output, int32_t *sampled)
{
    for (uint32_t i = 0; i < output->n; i++) {
        const struct step_result *r = &output->results[i];

        if (step->rows[r->row].want == ROW_SAMPLE && r->status == ST_OK)
            sampled[r->row] = r->id;
        d->logits_at[r->row] = i;
    }
    d->have_logits = step->want_logits;
}

/* A step whose masks didn't come is over too: rows that name its ids fail. */
static enum status complete(struct device *base, uint64_t ticket, struct step_output *output)
{
    struct cpu_device *d = self(base);
    int32_t *sampled = d->sampled[ticket % PENDING_MAX];
    const struct masks *masks = &d->masks[ticket % PENDING_MAX];
    const struct device_step *step;

    if (ticket != d->last_completed + 1 || ticket > d->last_submitted)
        return ST_INVALID;
    step = d->pending[ticket % PENDING_MAX];
    d->last_completed = ticket;
    for (uint32_t i = 0; i < d->max_rows; i++)
        sampled[i] = -1;
    if (!masks_are_complete(masks, step))
        return ST_INVALID;
    resolve_ids(d, step);
    output->n = list_results(d, step, output->results);
    forward_run(&d->forward, step, d->ids);
    row_sampler_run(&d->sampler, step, masks, d->wanted, output);
    keep_results(d, step, output, sampled);
    return ST_OK;
}

static const float *logits(const struct device *base, uint32_t row)
{
    const struct cpu_device *d = self_const(base);

    if (!d->have_logits || row >= d->max_rows)
        return NULL;
    return d->forward.logits.data + d->logits_at[row] * d->forward.logits.ld;
}

/* Repacks a matrix: with all of them at once a large model would take seconds to open. */
static bool warm(struct device *base)
{
    struct forward *f = &self(base)->forward;

    return f->fast && weights_repack(&f->weights, f->model, f->pool);
}

static enum status copy_pages(struct device *base, const uint32_t *from, const uint32_t *to,
                              uint32_t n)
{
    const struct kv *kv = &self(base)->forward.kv;

    for (uint32_t i = 0; i < n; i++)
        if (from[i] >= kv->n_pages || to[i] >= kv->n_pages || from[i] == to[i])
            return ST_INVALID;
    for (uint32_t i = 0; i < n; i++)
        memcpy(kv->memory + to[i] * kv->page_bytes, kv->memory + from[i] * kv->page_bytes,
               kv->page_bytes);
    return ST_OK;
}

const struct device_ops cpu_device_ops = {
    .name = "cpu",
    .plan = plan,
    .open = open_device,
    .close = close_device,
    .describe = describe,
    .slot_set = slot_set,
    .submit = submit,
    .constrain = constrain,
    .complete = complete,
    .logits = logits,
    .warm = warm,
    .copy_pages = copy_pages,
};
