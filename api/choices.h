/* The choices of an answer while it is made: each one's text and log-probabilities, from the
 * engine's deltas.
 *
 * An answer that is sent whole collects them here; a streamed one empties a choice after each
 * chunk. The prompt's own text and log-probabilities (echo) are kept once and go before each
 * choice's. Bounded in all, since a request of a few bytes can ask for gigabytes of
 * log-probabilities. Pure; one thread at a time. */
#ifndef API_CHOICES_H
#define API_CHOICES_H

#include "api/shape_logprobs.h"
#include "api/speller.h"

/* Of one answer: what is collected of it, and of a streamed one the prompt in every choice. */
#define ANSWER_BYTES_MAX ((size_t)32 << 20)

struct choice {
    struct buf text;
    struct shape_logprobs logprobs;
    struct speller speller; /* after the prompt's echo and its own tokens so far */
    bool has_tokens;
    char first;                /* byte of its text; NUL: none yet */
    enum engine_finish finish; /* not NONE: it has ended */
    bool is_closed;            /* streamed: its finish chunk went out */
};

struct choices_config {
    enum endpoint endpoint;
    uint32_t n;
    bool want_logprobs;
    bool is_streamed;
    struct token_source source;
    /* Echo: the prompt, as the request has it (text) or by its tokens (text NULL). NULL ids: no
     * echo. Borrowed for the call. */
    const int32_t *prompt;
    uint32_t n_prompt;
    const char *text;
    size_t text_len;
};

struct choices {
    struct choices_config config; /* without what it borrows */
    struct choice *list;
    uint32_t n_ended;
    struct buf echo;              /* the prompt's text; "" without echo */
    bool is_spelled;              /* the echo: from ids, so that their bytes are all its bytes */
    size_t echo_at;               /* of a text: up to where its tokens are known */
    struct shape_logprobs prompt; /* with echo and want_logprobs */
    struct speller echo_speller;  /* up to there */
    size_t bytes; /* what counts towards ANSWER_BYTES_MAX: echo as JSON, output as text */
    size_t held;  /* bytes in memory */
    struct buf scratch;
};

/* ST_NO_MEMORY; ST_TOO_LARGE: the prompt in every choice, with the least that its log-probabilities
 * take, is more than an answer may hold. Dispose of it also then. */
MUST_CHECK enum status choices_init(struct choices *c, const struct choices_config *cfg);
void choices_dispose(struct choices *c); /* zeros are fine */
/* Gives back all texts and log-probabilities: there will be no answer. */
void choices_drop(struct choices *c);

/* What a delta says: text and tokens appended to its choice, or the prompt's. ST_TOO_LARGE: more
 * than ANSWER_BYTES_MAX are collected; ST_NO_MEMORY. The delta's choice is below n. */
MUST_CHECK enum status choices_add(struct choices *c, const struct engine_delta *d);
/* Streamed: its text and log-probabilities went out. */
void choices_clear(struct choices *c, struct choice *one);
/* NULL where none are wanted. */
const struct shape_logprobs *choice_logprobs(const struct choices *c, const struct choice *one);
const struct shape_logprobs *choices_prompt_logprobs(const struct choices *c);

#endif
