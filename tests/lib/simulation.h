/* The scheduler and the stepper on the fake device and its clock, with requests of many kinds, all
 * from one seed. Every token, score and mask is compared with what the fake device defines for the
 * request alone, as it comes; after every turn the scheduler's books are checked, and that the
 * oldest of the best class gets on. Failures are asserts. */
#ifndef TESTS_LIB_SIMULATION_H
#define TESTS_LIB_SIMULATION_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/core/scheduler.h"
#include "engine/core/stepper.h"
#include "tests/lib/fake_device.h"

#define SIM_TOKENS_MAX 256 /* of a request */
#define SIM_TENANTS    8
#define SIM_ADAPTERS   3  /* with 0: none */
#define SIM_STOP_EVERY 29 /* ids divisible by it end a request, where it stops at all */

struct sim_job {
    struct sequence sequence; /* first: the callbacks cast */
    struct simulation *sim;
    bool is_live; /* submitted, and its memory still the scheduler's */
    bool stops;
    uint32_t starves_after;         /* so many outputs its mask allows nothing more; 0: never */
    int32_t tokens[SIM_TOKENS_MAX]; /* prompt, and the output as it came */
    uint32_t n_prompt, n_tokens;
    uint32_t n_scores, n_masks;
    uint32_t n_computed; /* positions that steps have computed, at the most */
    int n_ends;
    enum status status;
    enum engine_finish finish;
    int64_t first_token_us;
};

struct simulation {
    struct scheduler_config cfg;
    struct scheduler *scheduler;
    struct device *device;
    struct stepper stepper;
    struct cache_domain domains[SIM_TENANTS][SIM_ADAPTERS];
    struct sim_job *jobs; /* (n_jobs) */
    uint32_t n_jobs;
    uint64_t random;
    uint64_t n_ended, n_cached_tokens;
    uint64_t n_rows, n_again;   /* computed, and of these what was computed before */
    uint64_t work[SIM_TENANTS]; /* done for each, as docs/scheduling.md counts it */
    /* The oldest of the best class at the last turn, how far it was, and since how many turns. */
    uint64_t champion_arrival, champion_progress, champion_n_ended;
    uint32_t champion_stall;
    uint32_t priority; /* of the requests that service_rig submits */
    bool may_fail;     /* the script has steps fail: progress is not looked at */
};

void sim_open(struct simulation *sim, const struct scheduler_config *cfg, uint32_t n_jobs,
              uint64_t seed);
/* All have ended; nothing is left. */
void sim_close(struct simulation *sim);

uint32_t sim_random(struct simulation *sim, uint32_t below);
int64_t sim_now_us(const struct simulation *sim);

/* A job that is not in use, emptied; NULL: all are. */
struct sim_job *sim_job(struct simulation *sim);
/* Fills a prompt that begins as one of the tenant's common beginnings. */
void sim_prompt(struct sim_job *j, uint32_t n, uint32_t n_common, uint32_t variant);
/* What the caller left of sequence is as a fresh job has it: tenant 0, ordinary weight, class 0.
 * False: the scheduler refused it with *status. */
bool sim_submit(struct sim_job *j, enum status *status);

/* False: nothing to do. */
bool sim_turn(struct simulation *sim);
void sim_run_all(struct simulation *sim);

#endif
