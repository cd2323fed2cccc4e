#include "engine/cpu/slots.h"

#include <stdlib.h>

#include "base/id.h"
#include "base/size.h"
#include "engine/core/adjust.h"

enum status slots_init(struct slots *s, uint32_t n, uint32_t n_vocab, uint32_t max_context)
{
    *s = (struct slots){.n = n, .n_vocab = n_vocab, .max_context = max_context};
    random_bytes(&s->key, sizeof s->key);
    s->all = calloc(n, sizeof *s->all);
    return s->all != NULL ? ST_OK : ST_NO_MEMORY;
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

/* Makes room for n elements; what was in them is lost. */
static bool make_room(void **list, size_t *cap, size_t n, size_t size)
{
    void *grown;

    if (n <= *cap)
        return true;
    grown = calloc(n, size);
    if (grown == NULL)
        return false;
    free(*list);
    *list = grown;
    *cap = n;
    return true;
}

static enum status copy_bias(const struct slots *s, struct slot *q, const struct sampling *from)
{
    void *room = q->bias;
    bool ok = make_room(&room, &q->bias_cap, from->n_bias, sizeof *q->bias);

    q->bias = room;
    if (!ok)
        return ST_NO_MEMORY;
    for (uint32_t i = 0; i < from->n_bias; i++)
        if (in_vocabulary(s, from->bias[i].id))
            q->bias[q->sampling.n_bias++] = from->bias[i];
    q->sampling.bias = q->bias;
    return ST_OK;
}

static enum status copy_end_ids(const struct slots *s, struct slot *q, const struct sampling *from)
{
    void *room = q->end_ids;
    bool ok = make_room(&room, &q->end_ids_cap, from->n_end_ids, sizeof *q->end_ids);

    q->end_ids = room;
    if (!ok)
        return ST_NO_MEMORY;
    for (uint32_t i = 0; i < from->n_end_ids; i++)
        if (in_vocabulary(s, from->end_ids[i]))
            q->end_ids[q->sampling.n_end_ids++] = from->end_ids[i];
    q->sampling.end_ids = q->end_ids;
    return ST_OK;
}

/* A context's tokens, and the one that follows the last. */
static uint32_t most_distinct(const struct slots *s)
{
    return s->max_context < s->n_vocab ? s->max_context + 1 : s->n_vocab;
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
    enum status st = ST_OK;

    if (q->history.entries == NULL)
        st = history_init(&q->history, most_distinct(s), s->key);
    if (st != ST_OK)
        return st;
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
    st = copy_bias(s, q, sampling);
    if (st == ST_OK)
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
