/* The body of a completion request: JSON to checked values.
 *
 * One table lists every field that we know, with its type, range and whether we support it: an
 * unknown field is ignored, a bad value is an error that names its field, and a known field that we
 * don't support is an error unless its value is the neutral one (n: 1, tools: []). null counts as
 * absent. Pure (no H2O): unit tests and the fuzzer call it with bytes. One thread. */
#ifndef API_PARAMS_H
#define API_PARAMS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/errors.h"
#include "engine/engine.h"

#define STOP_STRINGS_MAX      4   /* as OpenAI */
#define STOP_STRING_BYTES_MAX 256 /* the engine's hold-back buffer per sequence */
#define MODEL_NAME_BYTES_MAX  95  /* fits the usage row's column */
/* `logprobs` of completions, as OpenAI; a chat's top_logprobs go up to TOP_LOGPROBS_MAX. */
#define COMPLETION_LOGPROBS_MAX 5
/* chat_template_kwargs: switches and short texts. A template's look-up of a name passes them all.
 */
#define TEMPLATE_KWARGS_MAX       64
#define TEMPLATE_KWARGS_BYTES_MAX 65536 /* as JSON */

enum endpoint { ENDPOINT_CHAT = 1, ENDPOINT_COMPLETIONS = 2 };

/* Bits of params.given: fields for which the model's own generation config may speak. */
enum {
    GIVEN_TEMPERATURE = 1,
    GIVEN_TOP_P = 2,
    GIVEN_TOP_K = 4,
    GIVEN_MIN_P = 8,
    GIVEN_REPETITION = 16,
};

struct params {
    json_t *doc;       /* owned: the request; strings below are borrowed from it */
    const char *model; /* at most MODEL_NAME_BYTES_MAX */
    bool stream, include_usage, ignore_eos, echo;
    bool is_flex;             /* of the lowest priority class */
    const char *service_tier; /* for the answer: "default" or "flex"; NULL: not asked for */
    unsigned given;           /* GIVEN_* */
    double temperature, top_p, min_p;
    double repetition_penalty, presence_penalty, frequency_penalty;
    int64_t top_k;         /* 0: off */
    int64_t n_choices;     /* 1 to ENGINE_CHOICES_MAX */
    int64_t best_of;       /* n_choices, or 0: absent */
    int64_t min_tokens;    /* <= max_tokens where that was given */
    int64_t max_tokens;    /* of each choice; -1: absent; 0 only with echo */
    const char *max_field; /* which of the two names was given */
    bool has_seed;
    int64_t seed;
    bool logprobs;
    int64_t top_logprobs;    /* 0 unless logprobs */
    struct logit_bias *bias; /* owned: ids distinct, >= 0; maybe past the vocabulary */
    uint32_t n_bias;
    int32_t stop_ids[STOP_IDS_MAX]; /* >= 0; maybe past the vocabulary */
    uint32_t n_stop_ids;
    struct engine_stop_string stops[STOP_STRINGS_MAX];
    size_t n_stops;
    enum engine_prompt_kind kind;
    /* CHAT: */
    json_t *messages;  /* owned: objects of role, content (a string or text parts), maybe name */
    json_t *documents; /* borrowed from doc: objects, for the chat template; NULL: none */
    json_t *template_kwargs; /* borrowed from doc: further variables of the template; NULL: none */
    /* Begin the answer's message, or go on in the last one. */
    bool add_generation_prompt, continue_final_message;
    const char *text; /* TEXT */
    size_t text_len;
    json_t *ids; /* IDS; borrowed from doc */
};

/* False: *e says why, *out holds nothing. True: dispose of *out. */
MUST_CHECK bool params_parse(enum endpoint endpoint, const char *body, size_t len,
                             struct params *out, struct api_error *e);
void params_dispose(struct params *p);

#endif
