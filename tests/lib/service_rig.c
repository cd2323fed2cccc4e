#include "tests/lib/service_rig.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

const struct scheduler_config service_rig_shared = {.max_sequences = 8,
                                                    .prefill_rows = 64,
                                                    .max_context = 200,
                                                    .n_pages = 80,
                                                    .queue_max = 300,
                                                    .depth = 1,
                                                    .step_us = SERVICE_STEP_US,
                                                    .cost = {.base_ns = 2000000, .row_ns = 200000},
                                                    .prefix_cache = true,
                                                    .prefix_cache_permille = 500};

/* Steps take what the cost says. */
void service_rig_open(struct simulation *sim, const struct scheduler_config *cfg, uint32_t n_jobs,
                      uint64_t seed)
{
    sim_open(sim, cfg, n_jobs, seed);
    fake_device_script.step_us = 2000;
    fake_device_script.row_us = SERVICE_ROW_US;
}

void service_rig_open_shared(struct simulation *sim, const struct service_case *c, uint32_t n_jobs,
                             uint64_t seed)
{
    struct scheduler_config cfg = service_rig_shared;

    cfg.depth = c->depth;
    cfg.age_up_us = c->age_up_us;
    service_rig_open(sim, &cfg, n_jobs, seed);
    sim->priority = c->priority;
}

struct sim_job *service_rig_submit(struct simulation *sim, uint64_t tenant, uint32_t n_prompt,
                                   uint32_t max_tokens)
{
    struct sim_job *j = sim_job(sim);
    enum status status;

    assert(j != NULL);
    j->sequence.tenant = tenant;
    j->sequence.priority = sim->priority;
    j->sequence.max_tokens = max_tokens;
    sim_prompt(j, n_prompt, 0, 0);
    if (!sim_submit(j, &status))
        assert(!"there is room in the queue");
    return j;
}

struct sim_job *service_rig_submit_choice(struct simulation *sim, struct sim_job *leader,
                                          uint32_t max_tokens)
{
    struct sim_job *j = sim_job(sim);
    enum status status;

    assert(leader->n_ends == 0 && leader->n_tokens == leader->n_prompt);
    if (j == NULL)
        return NULL;
    j->sequence.tenant = leader->sequence.tenant;
    j->sequence.priority = leader->sequence.priority;
    j->sequence.max_tokens = max_tokens;
    j->sequence.leader = &leader->sequence;
    j->n_prompt = j->n_tokens = leader->n_prompt;
    memcpy(j->tokens, leader->tokens, leader->n_prompt * sizeof j->tokens[0]);
    if (!sim_submit(j, &status))
        assert(!"there is room in the queue");
    return j;
}

uint32_t service_rig_live(const struct simulation *sim, uint64_t tenant)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < sim->n_jobs; i++)
        n += sim->jobs[i].is_live && sim->jobs[i].sequence.tenant == tenant;
    return n;
}

void service_rig_close(struct simulation *sim)
{
    for (uint32_t i = 0; i < sim->n_jobs; i++)
        if (sim->jobs[i].is_live)
            scheduler_cancel(sim->scheduler, &sim->jobs[i].sequence, ST_CANCELLED, 0);
    sim_run_all(sim);
    sim_close(sim);
}

int64_t service_rig_balance(const struct scheduler_config *cfg)
{
    const int64_t slots = cfg->max_sequences, limit = cfg->max_context;

    return (2 * slots + 1) * limit + cfg->depth * (2 * slots + cfg->prefill_rows);
}

/* Steps that a prompt takes at half of what a step's time leaves beside a full batch of decodes and
 * the champion's page; then the step in which it came and the one before a preemption, each of
 * which may pass its time by the page that its first prompt always gets. */
int64_t service_rig_first_token_us(uint32_t n_prompt)
{
    int64_t rows = (SERVICE_STEP_US - 2000) / SERVICE_ROW_US - service_rig_shared.max_sequences -
                   KV_PAGE_TOKENS;
    int64_t half = rows / 2, steps = (n_prompt + half - 1) / half;

    return steps * SERVICE_STEP_US + 2 * (SERVICE_STEP_US + KV_PAGE_TOKENS * SERVICE_ROW_US);
}
