#include "engine/cpu/row_sampler.h"

#include <stdlib.h>
#include <string.h>

#include "engine/core/adjust.h"
#include "engine/core/logits.h"
#include "engine/core/logprobs.h"

enum status row_sampler_init(struct row_sampler *r, struct forward *forward, struct pool *pool,
                             const struct device_config *cfg)
{
    uint32_t n_vocab = cfg->model->shape.n_vocab;
    unsigned n_threads = pool_n_threads(pool);
    enum status s;

    *r = (struct row_sampler){.forward = forward, .pool = pool};
    s = slots_init(&r->slots, cfg->max_sequences, n_vocab, cfg->max_context);
    if (s != ST_OK)
        return s;
    r->rooms = calloc(n_threads, sizeof *r->rooms);
    if (r->rooms == NULL)
        return ST_NO_MEMORY;
    for (unsigned i = 0; i < n_threads; i++) {
        r->rooms[i].scratch = sampler_scratch_new(n_vocab);
        r->rooms[i].adjusted = calloc(n_vocab, sizeof *r->rooms[i].adjusted);
        if (r->rooms[i].scratch == NULL || r->rooms[i].adjusted == NULL)
            return ST_NO_MEMORY;
    }
    return ST_OK;
}

size_t row_sampler_bytes(const struct device_config *cfg, unsigned n_threads)
{
    uint32_t n_vocab = cfg->model->shape.n_vocab;
    size_t room = sampler_scratch_bytes(n_vocab) + n_vocab * sizeof(float);

    return slots_bytes(cfg->max_sequences, n_vocab, cfg->max_context) + n_threads * room;
}

void row_sampler_dispose(struct row_sampler *r)
{
    for (unsigned i = 0; r->rooms != NULL && i < pool_n_threads(r->pool); i++) {
        sampler_scratch_free(r->rooms[i].scratch);
        free(r->rooms[i].adjusted);
    }
    free(r->rooms);
    slots_dispose(&r->slots);
    *r = (struct row_sampler){0};
}

static const struct step_sequence *sequence_of(const struct row_sampler *r, uint32_t row)
{
    return &r->step->sequences[r->step->rows[row].sequence];
}

static enum status pick(struct row_sampler *r, uint32_t row, const float *logits,
                        const struct row_room *room, int32_t *id)
{
    const struct step_sequence *q = sequence_of(r, row);
    const struct slot *slot = &r->slots.all[q->slot];
    uint32_t n_vocab = r->slots.n_vocab;
    const struct adjustment a = {.sampling = &slot->sampling,
                                 .output_index = q->output_index,
                                 .history = slot->has_penalties ? &slot->history : NULL,
                                 .mask = masks_of(r->masks, r->step, r->step->rows[row].sequence)};

    /* The raw logits are still needed: log-probabilities and readers of `logits` are about them. */
    if (adjust_is_needed(&a)) {
        memcpy(room->adjusted, logits, n_vocab * sizeof *logits);
        adjust_logits(&a, room->adjusted, n_vocab);
        logits = room->adjusted;
    }
    return sampler_pick(&slot->sampling, q->output_index, logits, n_vocab, room->scratch, id);
}

/* Where nothing may be sampled that is the request's doing, unless the row came without a finite
 * logit from the model. */
static enum status blame(enum status picked, const float *logits, uint32_t n_vocab)
{
    uint32_t top;

    return picked == ST_NO_CHOICE && logits_top(logits, n_vocab, &top) != ST_OK ? ST_INTERNAL
                                                                                : picked;
}

static enum status take_logprobs(const struct row_sampler *r, const float *logits, uint32_t n_tops,
                                 struct step_result *result, struct token_logprob *tops)
{
    struct logprobs l;
    enum status s = logprobs_init(&l, logits, r->slots.n_vocab);

    if (s != ST_OK)
        return s;
    result->logprob = logprobs_at(&l, result->id);
    result->n_tops = logprobs_tops(&l, n_tops, tops);
    return ST_OK;
}

static void fill_result(void *arg, uint32_t i, unsigned thread)
{
    struct row_sampler *r = arg;
    uint32_t at = r->first_result + i;
    struct step_result *result = &r->output->results[at];
    const struct step_row *row = &r->step->rows[result->row];
    const struct sampling *s = &r->slots.all[sequence_of(r, result->row)->slot].sampling;
    const float *logits = row_of(&r->forward->logits, r->first_logits + i);
    int32_t id = row->target;

    if (result->status == ST_OK && row->want == ROW_SAMPLE)
        result->status =
            blame(pick(r, result->row, logits, &r->rooms[thread], &id), logits, r->slots.n_vocab);
    if (result->status != ST_OK)
        return;
    result->id = id;
    if (row->want == ROW_SCORE || s->want_logprobs)
        result->status = take_logprobs(r, logits, s->top_logprobs, result,
                                       r->output->tops + (size_t)at * TOP_LOGPROBS_MAX);
}

/* In the rows' order, after all threads are done. */
static void remember(struct row_sampler *r)
{
    for (uint32_t i = 0; i < r->output->n; i++) {
        struct step_result *result = &r->output->results[i];

        if (result->status == ST_OK && r->step->rows[result->row].want == ROW_SAMPLE &&
            !slots_sampled(&r->slots, sequence_of(r, result->row)->slot, result->id))
            result->status = ST_INTERNAL;
    }
}

/* Output passes of at most LOGIT_ROWS rows; they share the same place unless logits are kept. */
void row_sampler_run(struct row_sampler *r, const struct device_step *step,
                     const struct masks *masks, const uint32_t *rows, struct step_output *output)
{
    r->step = step;
    r->masks = masks;
    r->output = output;
    for (uint32_t at = 0; at < output->n; at += LOGIT_ROWS) {
        uint32_t n = output->n - at < LOGIT_ROWS ? output->n - at : LOGIT_ROWS;

        r->first_result = at;
        r->first_logits = step->want_logits ? at : 0;
        forward_logits(r->forward, rows + at, n, r->first_logits);
        pool_run(r->pool, fill_result, r, n);
    }
    remember(r);
}
