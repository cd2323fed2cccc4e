/* A backend that plays a script: for tests of what stands above engine.h. No engine process, no
 * model's mathematics; a job gives one text a turn of the loop. */
#ifndef ENGINE_BACKEND_FAKE_H
#define ENGINE_BACKEND_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/backend/backend.h"

/* Give its address as engine_config.backend_arg; it outlives the links. Read at each event, so a
 * test may change it in between, on the loop's thread. */
struct fake_script {
    bool is_ready;             /* else submit answers ST_UNAVAILABLE */
    enum status submit_status; /* other than ST_OK: what submit answers */
    const char *const *texts;  /* one output token each; "" is a token without text */
    size_t n_texts;
    bool stalls;               /* after the texts nothing comes until cancel or link_close */
    enum status end_status;    /* after the texts */
    enum engine_finish finish; /* with ST_OK; LENGTH where max_tokens came first */
    /* What happened, over all links. */
    uint32_t n_submitted, n_cancelled, n_ended;
    uint32_t last_n_prompt, last_max_tokens;
    uint64_t last_seed;
};

extern const struct backend_ops fake_backend_ops;

#endif
