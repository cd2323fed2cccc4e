/* How a request wants its tokens chosen, and what it wants to know of their probabilities. Values
 * only: shared by the gateway, the frames and the engine process. */
#ifndef ENGINE_SAMPLING_H
#define ENGINE_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

#define TOP_LOGPROBS_MAX 20   /* as OpenAI */
#define LOGIT_BIAS_MAX   1024 /* entries; OpenAI's is 300 */
#define STOP_IDS_MAX     64   /* stop_token_ids of a request */

struct logit_bias {
    int32_t id;
    float bias; /* finite */
};

/* Order: bias, min_tokens, penalties, temperature, top_k, top_p, min_p. A member of 0 is off,
 * unless it says otherwise. Lists are borrowed. */
struct sampling {
    float temperature; /* 0: greedy; [0, 2] */
    float top_p;       /* (0, 1]; 1: off */
    int32_t top_k;     /* 0: off */
    float min_p;       /* [0, 1]: of the most probable token's probability */
    /* Hugging Face's: of each id in prompt or output, once: divides a positive logit, multiplies a
     * negative one. (0, 2]; 0 or 1: off. */
    float repetition_penalty;
    /* OpenAI's, over the output: subtracted per occurrence, and once. [-2, 2] */
    float frequency_penalty, presence_penalty;
    uint32_t min_tokens; /* so many outputs are none of `end_ids` */
    uint64_t seed;
    uint32_t choice; /* choice index */
    const struct logit_bias *bias;
    uint32_t n_bias; /* <= LOGIT_BIAS_MAX, ids distinct */
    const int32_t *end_ids;
    uint32_t n_end_ids;
    bool want_logprobs;        /* of the chosen token */
    uint32_t top_logprobs;     /* with want_logprobs: of the most probable ones beside it; at most
                                  TOP_LOGPROBS_MAX */
    bool want_prompt_logprobs; /* of every prompt token but the first, by what precedes it */
};

/* Log-softmax of the raw logits, before bias, penalties and temperature. */
struct token_logprob {
    int32_t id;
    float logprob;
};

/* One token and its probabilities. */
struct token_sample {
    int32_t id;
    float logprob;                    /* with want_logprobs */
    const struct token_logprob *tops; /* descending, ties by ascending id; borrowed */
    uint32_t n_tops;
};

#endif
