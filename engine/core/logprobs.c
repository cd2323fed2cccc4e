#include "engine/core/logprobs.h"

#include <math.h>
#include <string.h>

#include "engine/core/logits.h"
#include "engine/core/vec4.h"

typedef double v4d __attribute__((vector_size(32)));

/* log of the sum of e^(logit - max): each term in float, their sum in double. */
static double log_sum(const float *logits, uint32_t n, float max)
{
    v4d sums = {0, 0, 0, 0};
    double sum;
    uint32_t i;

    for (i = 0; i + 4 <= n; i += 4) {
        v4f v;

        memcpy(&v, logits + i, sizeof v);
        sums += __builtin_convertvector(vec4_exp_negative(v - vec4_splat(max)), v4d);
    }
    sum = sums[0] + sums[1] + sums[2] + sums[3];
    for (; i < n; i++)
        sum += (double)vec4_exp_negative(vec4_splat(logits[i] - max))[0];
    return log(sum);
}

enum status logprobs_init(struct logprobs *l, const float *logits, uint32_t n_vocab)
{
    uint32_t top;

    if (logits_top(logits, n_vocab, &top) != ST_OK)
        return ST_INTERNAL;
    *l = (struct logprobs){
        .logits = logits,
        .n_vocab = n_vocab,
        .log_total = (double)logits[top] + log_sum(logits, n_vocab, logits[top]),
    };
    return ST_OK;
}

float logprobs_at(const struct logprobs *l, int32_t id)
{
    return (float)((double)l->logits[id] - l->log_total);
}

uint32_t logprobs_tops(const struct logprobs *l, uint32_t n, struct token_logprob *out)
{
    uint32_t ids[TOP_LOGPROBS_MAX], i;

    n = n < TOP_LOGPROBS_MAX ? n : TOP_LOGPROBS_MAX;
    n = n < l->n_vocab ? n : l->n_vocab;
    logits_first(l->logits, l->n_vocab, ids, n);
    for (i = 0; i < n && l->logits[ids[i]] > -INFINITY; i++)
        out[i] = (struct token_logprob){.id = (int32_t)ids[i],
                                        .logprob = logprobs_at(l, (int32_t)ids[i])};
    return i;
}
