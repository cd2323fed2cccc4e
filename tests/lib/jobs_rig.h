/* Jobs over a real scheduler and a real connection; the test is the device, and says what each
 * choice samples. For unit tests: failures are cmocka's. */
#ifndef TESTS_LIB_JOBS_RIG_H
#define TESTS_LIB_JOBS_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "engine/core/jobs.h"
#include "tests/lib/gguf_build.h"

#define JOBS_RIG_CHOICES 4
#define JOBS_RIG_BYTE(c) (TINY_BYTE0 + (unsigned char)(c))
#define JOBS_RIG_ROWS    64
#define JOBS_RIG_PROMPT  4 /* tokens of its requests' prompt */

struct jobs_heard {
    struct buf text, spelled; /* spelled: bytes of the tokens whose samples came */
    uint32_t n_entries, n_samples;
    enum engine_finish finish;
};

struct jobs_rig {
    struct buf file;
    struct gguf *gguf;
    struct tokenizer *tokenizer;
    struct scheduler *scheduler;
    struct jobs jobs;
    struct conn conn;
    int fd; /* the gateway's */
    int64_t now_us;
    /* What choices sample: the bytes of a text, or ids; then dots. */
    const char *says[JOBS_RIG_CHOICES];
    const int32_t *ids[JOBS_RIG_CHOICES];
    size_t n_ids[JOBS_RIG_CHOICES];
    enum status bad_status; /* of samples of bad_choice from bad_at on; ST_OK: none */
    uint32_t bad_choice, bad_at;
    bool fails; /* the device, in the next step */
    /* What the gateway heard. */
    struct buf in;
    struct jobs_heard heard[JOBS_RIG_CHOICES];
    uint32_t n_finals, prompt_tokens, output_tokens, n_steps;
    size_t longest_frame;
    uint32_t n_prompt_samples;
    int32_t prompt_ids[JOBS_RIG_ROWS]; /* of the first of them */
    struct wire_final end;
};

extern const int32_t jobs_rig_prompt[JOBS_RIG_PROMPT]; /* a, b, c, d */

void jobs_rig_open(struct jobs_rig *r, uint32_t max_sequences, uint32_t queue_max);
/* With room for all, and a request whose first choice samples a text, or `n` ids. */
void jobs_rig_open_saying(struct jobs_rig *r, const struct wire_submit *v, const char *text);
void jobs_rig_open_sampling(struct jobs_rig *r, const struct wire_submit *v, const int32_t *ids,
                            size_t n);
/* Every test ends here: no job, page or sequence is left. */
void jobs_rig_close(struct jobs_rig *r);

/* The gateway's frames; job 1 of tenant 1. */
struct wire_submit jobs_rig_request(uint32_t n_choices, uint32_t max_tokens);
void jobs_rig_submit(struct jobs_rig *r, const struct wire_submit *v);
void jobs_rig_cancel(struct jobs_rig *r, uint64_t job);

/* Hears the frames that are there. */
void jobs_rig_listen(struct jobs_rig *r);
/* One step and its frames; false: there was nothing to do. */
bool jobs_rig_turn(struct jobs_rig *r);
void jobs_rig_run(struct jobs_rig *r);

const struct jobs_heard *jobs_rig_text_is(struct jobs_rig *r, uint32_t choice, const char *want);
/* The bytes of the sent tokens are the text. */
void jobs_rig_spells(struct jobs_rig *r, uint32_t choice, const char *want);

#endif
