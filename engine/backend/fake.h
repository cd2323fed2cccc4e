/* A backend that plays a script: for tests of what stands above engine.h. No engine process, no
 * model's mathematics; a job gives one text a turn of the loop, of its choices by turns: the first
 * text of each, then the second of each. A choice's last text comes with its finish, as an engine's
 * does; one without any text has a delta for its finish alone. */
#ifndef ENGINE_BACKEND_FAKE_H
#define ENGINE_BACKEND_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/backend/backend.h"

/* What a choice says instead of the script's texts. */
struct fake_choice {
    const char *const *texts;
    size_t n_texts;
    enum engine_finish finish;
};

/* Give its address as engine_config.backend_arg; it outlives the links. Read at each event, so a
 * test may change it in between, on the loop's thread. */
struct fake_script {
    bool is_ready;             /* else submit answers ST_UNAVAILABLE */
    enum status submit_status; /* other than ST_OK: what submit answers */
    const char *const *texts;  /* one output token each; "" is a token without text */
    size_t n_texts;
    bool stalls;               /* after the texts nothing comes until cancel or link_close */
    enum status end_status;    /* after the texts */
    enum engine_finish finish; /* with ST_OK; NONE: STOP; LENGTH where max_tokens came first */
    uint32_t retry_after_ms;   /* of an end with ST_OVERLOADED or ST_TIMEOUT */
    const struct fake_choice *choices; /* of the first n_choices choices; the others say `texts` */
    size_t n_choices;
    /* With want_logprobs, the i-th text of every choice comes with the i-th sample, as long as
     * there are some. Of its tops as many come as the request wants. */
    const struct token_sample *samples;
    size_t n_samples;
    /* With want_prompt_logprobs, before everything else. */
    const struct token_sample *prompt_samples;
    size_t n_prompt_samples;
    /* How the first n_settled requests of a claim ended; the others are not known. */
    const struct engine_usage *settled;
    size_t n_settled;
    bool ignores_claims; /* they are never answered */
    /* NULL, or sees what was asked for while its pointers are good. */
    void (*on_submit)(void *arg, const struct engine_submit *s);
    void *arg;
    /* What happened, over all links. */
    uint32_t n_submitted, n_cancelled, n_ended, n_unclaimed, n_released;
    uint32_t last_n_prompt, last_max_tokens;
    uint64_t last_seed;
};

extern const struct backend_ops fake_backend_ops;

#endif
