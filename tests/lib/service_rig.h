/* What the tests of docs/scheduling.md's bounds share: a configuration, requests of tenants on the
 * simulated device, whose steps take what the cost says. */
#ifndef TESTS_LIB_SERVICE_RIG_H
#define TESTS_LIB_SERVICE_RIG_H

#include "tests/lib/simulation.h"

#define SERVICE_STEP_US 10000
#define SERVICE_ROW_US  200

extern const struct scheduler_config service_rig_shared;

void service_rig_open(struct simulation *sim, const struct scheduler_config *cfg, uint32_t n_jobs,
                      uint64_t seed);
/* Under what a bound is to hold. */
struct service_case {
    uint32_t depth; /* steps in flight */
    uint32_t priority;
    int64_t age_up_us;
};
/* service_rig_shared in that case; all that service_rig_submit submits is of its class. */
void service_rig_open_shared(struct simulation *sim, const struct service_case *c, uint32_t n_jobs,
                             uint64_t seed);
struct sim_job *service_rig_submit(struct simulation *sim, uint64_t tenant, uint32_t n_prompt,
                                   uint32_t max_tokens);
/* A further choice of the leader's prompt; the leader has not ended. NULL: all jobs are in use. */
struct sim_job *service_rig_submit_choice(struct simulation *sim, struct sim_job *leader,
                                          uint32_t max_tokens);
uint32_t service_rig_live(const struct simulation *sim, uint64_t tenant);
/* Cancels all that live, and closes. */
void service_rig_close(struct simulation *sim);
/* docs/scheduling.md: by what two backlogged tenants of equal weight may differ. */
int64_t service_rig_balance(const struct scheduler_config *cfg);
/* The same: how long a prompt within its tenant's share may wait for its first token under a flood,
 * with service_rig_shared. */
int64_t service_rig_first_token_us(uint32_t n_prompt);

#endif
