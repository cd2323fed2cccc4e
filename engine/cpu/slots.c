#include "engine/cpu/slots.h"

#include <stdlib.h>

#include "base/id.h"
#include "engine/core/adjust.h"

/* Stop ids of a request and end ids of a model, which are a handful. */
#define END_IDS_ROOM (4 * STOP_IDS_MAX)

/* A context's tokens, and the one that follows the last. */
static uint32_t most_distinct(uint32_t n_vocab, uint32_t max_context)
{
    return max_context < n_vocab ? max_context + 1 : n_vocab;
}

size_t slots_bytes(uint32_t n, uint32_t n_vocab, uint32_t max_context)
{
    const struct slot *q = NULL;

    return n * (sizeof *q + LOGIT_BIAS_MAX * sizeof *q->bias + END_IDS_ROOM * sizeof *q->end_ids +
                history_bytes(most_distinct(n_vocab, max_context)));
}

static enum status init_slot(struct slot *q, uint32_t n_distinct, uint64_t key)
{
    q->bias = calloc(LOGIT_BIAS_MAX, sizeof *q->bias);
    q->end_ids = calloc(END_IDS_ROOM, sizeof *q->end_ids);
    q->end_ids_cap = END_IDS_ROOM;
    if (q->bias == NULL || q->end_ids == NULL)
        return ST_NO_MEMORY;
    return history_init(&q->history, n_distinct, key);
}

enum status slots_init(struct slots *s, uint32_t n, uint32_t n_vocab, uint32_t max_context)
{
    enum status st = ST_OK;
    uint64_t key;

    *s = (struct slots){.n = n, .n_vocab = n_vocab, .max_context = max_context};
    random_bytes(&key, sizeof key);
    s->all = calloc(n, sizeof *s->all);
    if (s->all == NULL)
        return ST_NO_MEMORY;
    for (uint32_t i = 0; i < n && st == ST_OK; i++)
        st = init_slot(&s->all[i], most_distinct(n_vocab, max_context), key);
    return st;
}

void slots_dispose(struct slots *s)
{
    for (uint32_t i = 0; s->all != NULL && i < s->n; i++) {
        free(s->all[i].bias);
        free(s->all[i].end_ids);
        history_dispose(&s->all[i].history);
    }
    free(s->all);
    *s = (struct slots){0};
}

static bool in_vocabulary(const struct slots *s, int32_t id)
{
    return id >= 0 && (uint32_t)id < s->n_vocab;
}

static void copy_bias(const struct slots *s, struct slot *q, const struct sampling *from)
{
    for (uint32_t i = 0; i < from->n_bias; i++)
        if (in_vocabulary(s, from->bias[i].id))
            q->bias[q->sampling.n_bias++] = from->bias[i];
    q->sampling.bias = q->bias;
}

/* A list longer than the room is a strange model's: only then a slot grows. */
static enum status copy_end_ids(const struct slots *s, struct slot *q, const struct sampling *from)
{
    if (from->n_end_ids > q->end_ids_cap) {
        int32_t *grown = realloc(q->end_ids, from->n_end_ids * sizeof *grown);

        if (grown == NULL)
            return ST_NO_MEMORY;
        q->end_ids = grown;
        q->end_ids_cap = from->n_end_ids;
    }
    for (uint32_t i = 0; i < from->n_end_ids; i++)
        if (in_vocabulary(s, from->end_ids[i]))
            q->end_ids[q->sampling.n_end_ids++] = from->end_ids[i];
    q->sampling.end_ids = q->end_ids;
    return ST_OK;
}

static bool add_token(struct slots *s, struct slot *q, int32_t id, bool is_prompt)
{
    if (!in_vocabulary(s, id))
        return false;
    return is_prompt ? history_add_prompt(&q->history, id) : history_add_output(&q->history, id);
}

static enum status fill_history(struct slots *s, struct slot *q, const int32_t *tokens,
                                uint32_t n_prompt, uint32_t n_tokens)
{
    history_clear(&q->history);
    for (uint32_t i = 0; i < n_tokens; i++)
        if (!add_token(s, q, tokens[i], i < n_prompt))
            return ST_INVALID;
    q->has_penalties = true;
    return ST_OK;
}

enum status slots_set(struct slots *s, uint32_t slot, const struct sampling *sampling,
                      const int32_t *tokens, uint32_t n_prompt, uint32_t n_tokens)
{
    struct slot *q;
    enum status st;

    if (slot >= s->n)
        return ST_INVALID;
    q = &s->all[slot];
    q->has_penalties = false;
    q->sampling = (struct sampling){.top_p = 1};
    if (sampling->n_bias > LOGIT_BIAS_MAX || sampling->n_end_ids > s->n_vocab ||
        n_prompt > n_tokens || n_tokens > s->max_context)
        return ST_INVALID;
    q->sampling = *sampling;
    q->sampling.n_bias = q->sampling.n_end_ids = 0;
    copy_bias(s, q, sampling);
    st = copy_end_ids(s, q, sampling);
    if (st == ST_OK && sampling_has_penalties(sampling))
        st = fill_history(s, q, tokens, n_prompt, n_tokens);
    if (st != ST_OK)
        q->sampling = (struct sampling){.top_p = 1};
    return st;
}

bool slots_sampled(struct slots *s, uint32_t slot, int32_t id)
{
    struct slot *q = &s->all[slot];

    return !q->has_penalties || history_add_output(&q->history, id);
}
