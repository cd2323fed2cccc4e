#include "engine/core/logprob_queue.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum status logprob_queue_init(struct logprob_queue *q, uint32_t held_bytes_max, uint32_t tops_max)
{
    assert(held_bytes_max < UINT32_MAX && tops_max <= TOP_LOGPROBS_MAX);
    *q = (struct logprob_queue){.cap = held_bytes_max + 1, .tops_max = tops_max};
    q->samples = calloc(q->cap, sizeof q->samples[0]);
    /* One more, so that no tops are an array as well. */
    q->tops = calloc((size_t)q->cap * tops_max + 1, sizeof q->tops[0]);
    if (q->samples != NULL && q->tops != NULL)
        return ST_OK;
    logprob_queue_dispose(q);
    return ST_NO_MEMORY;
}

void logprob_queue_dispose(struct logprob_queue *q)
{
    free(q->samples);
    free(q->tops);
    *q = (struct logprob_queue){0};
}

void logprob_queue_push(struct logprob_queue *q, const struct token_sample *t, uint64_t end)
{
    uint32_t i = (q->first + q->n) % q->cap;
    uint32_t n_tops = t->n_tops < q->tops_max ? t->n_tops : q->tops_max;

    assert(q->n < q->cap);
    q->samples[i] =
        (struct queued_sample){.end = end, .id = t->id, .logprob = t->logprob, .n_tops = n_tops};
    if (n_tops > 0)
        memcpy(q->tops + (size_t)i * q->tops_max, t->tops, n_tops * sizeof t->tops[0]);
    q->n++;
}

uint32_t logprob_queue_take(struct logprob_queue *q, uint64_t released, struct token_sample *out)
{
    uint32_t n = 0;

    while (q->n > 0 && q->samples[q->first].end <= released) {
        const struct queued_sample *s = &q->samples[q->first];

        out[n++] = (struct token_sample){.id = s->id,
                                         .logprob = s->logprob,
                                         .tops = q->tops + (size_t)q->first * q->tops_max,
                                         .n_tops = s->n_tops};
        q->first = (q->first + 1) % q->cap;
        q->n--;
    }
    return n;
}
