#include "engine/core/adjust.h"

#include <float.h>
#include <math.h>
#include <stddef.h>

static bool repeats_cost(const struct sampling *s)
{
    return s->repetition_penalty > 0 && s->repetition_penalty != 1;
}

bool sampling_has_penalties(const struct sampling *s)
{
    return repeats_cost(s) || s->frequency_penalty != 0 || s->presence_penalty != 0;
}

static bool forbids_ends(const struct adjustment *a)
{
    return a->output_index < a->sampling->min_tokens && a->sampling->n_end_ids > 0;
}

bool adjust_is_needed(const struct adjustment *a)
{
    return a->sampling->n_bias > 0 || forbids_ends(a) || a->mask != NULL || a->history != NULL;
}

/* A comparison that NaN and +infinity don't pass. */
static bool is_sound(float logit)
{
    return logit < INFINITY;
}

static float bounded(float logit)
{
    return logit < FLT_MAX ? logit : FLT_MAX;
}

static void add_bias(const struct sampling *s, float *logits)
{
    for (uint32_t i = 0; i < s->n_bias; i++) {
        float *l = &logits[s->bias[i].id];

        if (is_sound(*l))
            *l = bounded(*l + s->bias[i].bias);
    }
}

static void forbid(float *logit)
{
    if (is_sound(*logit))
        *logit = -INFINITY;
}

static void apply_mask(const uint32_t *mask, float *logits, uint32_t n_vocab)
{
    for (uint32_t word = 0; word < (n_vocab + 31) / 32; word++) {
        uint32_t first = word * 32, n = n_vocab - first < 32 ? n_vocab - first : 32;

        if (mask[word] == UINT32_MAX)
            continue;
        for (uint32_t bit = 0; bit < n; bit++)
            if ((mask[word] >> bit & 1) == 0)
                forbid(&logits[first + bit]);
    }
}

static float penalized(const struct sampling *s, const struct history_entry *e, float logit)
{
    if (repeats_cost(s))
        logit = logit > 0 ? logit / s->repetition_penalty : logit * s->repetition_penalty;
    if (e->n_output > 0)
        logit -= s->frequency_penalty * (float)e->n_output + s->presence_penalty;
    return bounded(logit);
}

void adjust_logits(const struct adjustment *a, float *logits, uint32_t n_vocab)
{
    const struct sampling *s = a->sampling;

    add_bias(s, logits);
    if (forbids_ends(a))
        for (uint32_t i = 0; i < s->n_end_ids; i++)
            forbid(&logits[s->end_ids[i]]);
    if (a->mask != NULL)
        apply_mask(a->mask, logits, n_vocab);
    for (uint32_t i = 0; a->history != NULL && i < a->history->n; i++) {
        const struct history_entry *e = &a->history->entries[i];

        if (is_sound(logits[e->id]))
            logits[e->id] = penalized(s, e, logits[e->id]);
    }
}
