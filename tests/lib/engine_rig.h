/* An engine process on a thread of this test, on the tiny model and a device of choice, and the
 * gateway's side of it on a poll loop: everything real but the fork. Failures abort the test. */
#ifndef TESTS_LIB_ENGINE_RIG_H
#define TESTS_LIB_ENGINE_RIG_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "engine/core/engine_process.h"
#include "engine/engine.h"

#define RIG_SILENCE_MS   30000 /* of the gateway's side */
#define RIG_LOAD_WAIT_MS 60000

struct engine_rig {
    char dir[64], model_path[96], socket_path[96];
    struct engine_process_config cfg; /* may be changed before engine_rig_start */
    struct engine_process *process;
    pthread_t thread;
    struct loop *loop;
    struct engine *engine;
    struct engine_link *link;
    const struct engine_model *model;
    const struct engine_revision *revision; /* held until engine_rig_close */
    uint64_t output_tokens;                 /* of all jobs that ended since engine_rig_start */
};

/* The gateway's side, connecting by itself; no engine process yet. */
void engine_rig_open(struct engine_rig *r, const struct device_ops *device);
void engine_rig_close(struct engine_rig *r);

void engine_rig_start(struct engine_rig *r);
/* Tells it to stop and waits until it has. */
void engine_rig_stop(struct engine_rig *r);
void engine_rig_tell_stop(struct engine_rig *r);
void engine_rig_join(struct engine_rig *r);
void engine_rig_await_ready(struct engine_rig *r);
/* Turns the loop until check(arg); aborts after 20 seconds. */
void engine_rig_await(struct engine_rig *r, bool (*check)(void *arg), void *arg);
/* Until the engine reports no jobs and all its pages free, after the jobs that ended. */
void engine_rig_await_idle(struct engine_rig *r);

#define RIG_CHOICES_MAX 8

struct rig_choice {
    struct buf text;
    struct buf spelled; /* bytes of the tokens whose samples came */
    uint32_t n_samples, n_tops;
    enum engine_finish finish; /* as a delta said */
};

struct rig_job {
    struct engine_rig *rig;
    struct engine_job *job;
    struct rig_choice choices[RIG_CHOICES_MAX];
    uint32_t n_prompt_samples;
    struct token_logprob prompt_samples[128]; /* the first of them */
    uint32_t n_prompt_tops;
    uint32_t n_frames;
    uint32_t cancel_after;     /* frames; 0: never */
    struct engine_usage usage; /* of the last on_delta */
    struct engine_end end;
    int n_ends;
};
/* prompt: token ids; fills the request's callbacks. */
enum status rig_job_submit(struct engine_rig *r, struct rig_job *j, struct engine_submit *s);
void rig_job_await(struct engine_rig *r, struct rig_job *j);
void rig_job_dispose(struct rig_job *j);

#endif
