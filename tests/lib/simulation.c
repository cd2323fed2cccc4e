#include "tests/lib/simulation.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define N_WORDS ((FAKE_DEVICE_VOCAB + 31) / 32)
/* Turns in which the oldest may stand still: a step in flight that carries nothing of it, and the
 * one that has to be done before somebody gives way to it. */
#define STALL_MAX 4

static struct sim_job *job_of(struct sequence *s)
{
    return (struct sim_job *)s;
}

/* ---- what a request gives alone ---- */

/* A third of the vocabulary, another one at every output. */
static void fill_mask(const struct sim_job *j, uint32_t output_index, uint32_t *bits)
{
    for (uint32_t id = 0; id < FAKE_DEVICE_VOCAB; id++)
        if ((id + output_index + j->sequence.sampling.seed) % 3 == 0)
            bits[id / 32] |= 1u << id % 32;
}

static int32_t expected_token(const struct sim_job *j)
{
    uint32_t index = j->n_tokens - j->n_prompt, bits[N_WORDS] = {0};
    int32_t id = fake_device_pick_adapted(j->tokens, j->n_tokens, j->sequence.adapter,
                                          j->sequence.sampling.seed, index, FAKE_DEVICE_VOCAB);

    if (!j->sequence.masked)
        return id;
    fill_mask(j, index, bits);
    return fake_device_allowed(id, bits, FAKE_DEVICE_VOCAB);
}

static bool on_token(void *arg, struct sequence *s, const struct token_sample *t, bool last)
{
    struct sim_job *j = job_of(s);
    struct simulation *sim = arg;

    assert(j->n_ends == 0 && j->n_tokens < SIM_TOKENS_MAX);
    assert(t->id == expected_token(j));
    if (j->n_tokens == j->n_prompt)
        j->first_token_us = sim_now_us(sim);
    j->tokens[j->n_tokens++] = t->id;
    assert(s->n_tokens == j->n_tokens && last == (s->n_tokens == s->limit));
    return j->stops && t->id % SIM_STOP_EVERY == 0;
}

static void on_score(void *arg, struct sequence *s, uint32_t position, const struct token_sample *t)
{
    struct sim_job *j = job_of(s);

    (void)arg;
    assert(j->n_ends == 0 && j->n_tokens == j->n_prompt);
    assert(position == ++j->n_scores && position < j->n_prompt);
    assert(t->id == j->tokens[position]);
    assert(t->logprob == fake_device_score(j->tokens, position, j->tokens[position]));
}

static void on_mask(void *arg, struct sequence *s, uint32_t *bits)
{
    struct sim_job *j = job_of(s);

    (void)arg;
    assert(s->masked && j->n_ends == 0);
    /* The token before it is known, and it is asked once for each. */
    assert(j->n_masks == j->n_tokens - j->n_prompt);
    j->n_masks++;
    if (j->starves_after > 0 && j->n_tokens - j->n_prompt >= j->starves_after)
        return;
    fill_mask(j, j->n_tokens - j->n_prompt, bits);
}

static void check_end(const struct sim_job *j)
{
    const struct sequence *s = &j->sequence;
    bool stopped =
        j->stops && j->n_tokens > j->n_prompt && j->tokens[j->n_tokens - 1] % SIM_STOP_EVERY == 0;

    assert(s->cached_tokens < j->n_prompt);
    assert(memcmp(s->tokens, j->tokens, j->n_tokens * sizeof j->tokens[0]) == 0);
    if (j->status != ST_OK)
        return;
    assert(s->prefilled);
    assert(j->finish == (stopped ? ENGINE_FINISH_STOP : ENGINE_FINISH_LENGTH));
    assert(stopped || j->n_tokens == s->limit);
    assert(!s->sampling.want_prompt_logprobs || j->n_scores == j->n_prompt - 1);
    assert(!s->sampling.want_prompt_logprobs || s->cached_tokens == 0);
}

static void on_end(void *arg, struct sequence *s, enum status status, enum engine_finish finish)
{
    struct sim_job *j = job_of(s);
    struct simulation *sim = arg;

    assert(j->n_ends == 0);
    j->n_ends++;
    j->status = status;
    j->finish = finish;
    sim->n_ended++;
    sim->n_cached_tokens += s->cached_tokens;
    check_end(j);
}

static void on_release(void *arg, struct sequence *s)
{
    struct sim_job *j = job_of(s);

    (void)arg;
    assert(j->n_ends == 1 && j->is_live);
    j->is_live = false;
}

static const struct scheduler_events events = {.on_token = on_token,
                                               .on_score = on_score,
                                               .on_mask = on_mask,
                                               .on_end = on_end,
                                               .on_release = on_release};

/* ---- life ---- */

static void count_rows(struct simulation *sim, const struct scheduled_entry *e)
{
    struct sim_job *j = job_of(e->sequence);
    uint32_t first = e->n_end - e->n_rows;

    sim->n_rows += e->n_rows;
    if (j->n_computed > first)
        sim->n_again += j->n_computed < e->n_end ? j->n_computed - first : e->n_rows;
    j->n_computed = j->n_computed > e->n_end ? j->n_computed : e->n_end;
}

/* The step that the device completes is the scheduler's oldest. */
static void on_step(void *arg, const struct device_step *step)
{
    struct simulation *sim = arg;
    const struct scheduled_step *t = scheduler_oldest(sim->scheduler);

    assert(&t->step == step);
    for (uint32_t i = 0; i < t->n_entries; i++) {
        const struct scheduled_entry *e = &t->entries[i];
        uint32_t sampled = e->n_end > e->sequence->n_prompt ? 1 : 2;

        sim->work[e->sequence->tenant] += e->n_rows + (e->samples ? sampled : 0);
        count_rows(sim, e);
    }
}

static void make_domains(struct simulation *sim)
{
    for (uint32_t t = 0; t < SIM_TENANTS; t++)
        for (uint32_t a = 0; a < SIM_ADAPTERS; a++) {
            struct cache_domain *d = &sim->domains[t][a];

            *d = (struct cache_domain){.revision = "r", .has_adapter = a > 0};
            d->salt[0] = (uint8_t)(t + 1);
            d->adapter[0] = (uint8_t)a;
        }
}

void sim_open(struct simulation *sim, const struct scheduler_config *cfg, uint32_t n_jobs,
              uint64_t seed)
{
    const struct device_config device = {.max_rows = scheduler_max_rows(cfg),
                                         .max_sequences = cfg->max_sequences,
                                         .max_context = cfg->max_context,
                                         .n_pages = cfg->n_pages};
    const struct stepper_limits limits = {.max_rows = scheduler_max_rows(cfg),
                                          .max_sequences = cfg->max_sequences,
                                          .n_vocab = FAKE_DEVICE_VOCAB};
    enum status s;

    assert(cfg->max_context <= SIM_TOKENS_MAX);
    *sim = (struct simulation){.cfg = *cfg, .n_jobs = n_jobs, .random = seed};
    fake_device_script =
        (struct fake_device_script){.step_us = 10000, .on_step = on_step, .arg = sim};
    sim->jobs = calloc(n_jobs, sizeof sim->jobs[0]);
    assert(sim->jobs != NULL);
    make_domains(sim);
    s = fake_device_ops.open(&device, &sim->device, NULL);
    assert(s == ST_OK);
    s = scheduler_new(cfg, &events, sim, &sim->scheduler);
    assert(s == ST_OK);
    s = stepper_init(&sim->stepper, sim->scheduler, sim->device, &limits);
    assert(s == ST_OK);
    sim->stepper.now_us = fake_device_now_us;
    sim->stepper.clock_arg = sim->device;
}

void sim_close(struct simulation *sim)
{
    struct scheduler_stats st;

    scheduler_stats(sim->scheduler, &st);
    assert(st.running == 0 && st.waiting == 0 && st.pages_used == 0);
    assert(scheduler_check(sim->scheduler) == NULL);
    for (uint32_t i = 0; i < sim->n_jobs; i++)
        assert(!sim->jobs[i].is_live);
    stepper_dispose(&sim->stepper);
    scheduler_free(sim->scheduler);
    sim->device->ops->close(sim->device);
    free(sim->jobs);
    fake_device_script = (struct fake_device_script){0};
}

uint32_t sim_random(struct simulation *sim, uint32_t below)
{
    sim->random = sim->random * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(sim->random >> 33) % below;
}

int64_t sim_now_us(const struct simulation *sim)
{
    return fake_device_now_us(sim->device);
}

/* ---- requests ---- */

struct sim_job *sim_job(struct simulation *sim)
{
    for (uint32_t i = 0; i < sim->n_jobs; i++) {
        struct sim_job *j = &sim->jobs[i];

        if (j->is_live)
            continue;
        *j = (struct sim_job){.sim = sim, .sequence = {.weight = 1000, .max_tokens = 1}};
        j->sequence.sampling.seed = 1 + sim_random(sim, 1000000);
        return j;
    }
    return NULL;
}

void sim_prompt(struct sim_job *j, uint32_t n, uint32_t n_common, uint32_t variant)
{
    assert(n > 0 && n <= SIM_TOKENS_MAX);
    j->n_prompt = j->n_tokens = n;
    for (uint32_t i = 0; i < n; i++)
        j->tokens[i] = i < n_common ? (int32_t)((i * 7 + variant * 13) % FAKE_DEVICE_VOCAB)
                                    : (int32_t)sim_random(j->sim, FAKE_DEVICE_VOCAB);
}

bool sim_submit(struct sim_job *j, enum status *status)
{
    struct simulation *sim = j->sim;

    j->sequence.cache = &sim->domains[j->sequence.tenant][j->sequence.adapter];
    *status =
        scheduler_submit(sim->scheduler, &j->sequence, j->tokens, j->n_prompt, sim_now_us(sim));
    j->is_live = *status == ST_OK;
    return j->is_live;
}

/* ---- turns ---- */

static uint32_t level_of(const struct simulation *sim, const struct sequence *q)
{
    int64_t waited = sim_now_us(sim) - q->waiting_since_us, lifts;

    if (q->state == SEQUENCE_RUNNING)
        return q->level;
    lifts = sim->cfg.age_up_us > 0 ? waited / sim->cfg.age_up_us : 0;
    return lifts >= q->priority ? 0 : q->priority - (uint32_t)lifts;
}

static const struct sim_job *find_champion(const struct simulation *sim)
{
    const struct sim_job *best = NULL;
    uint32_t best_level = PRIORITY_CLASSES;

    for (uint32_t i = 0; i < sim->n_jobs; i++) {
        const struct sim_job *j = &sim->jobs[i];
        const struct sequence *q = &j->sequence;
        uint32_t level;

        if (!j->is_live || q->held || q->age == UINT64_MAX || q->state == SEQUENCE_ENDED)
            continue;
        level = level_of(sim, q);
        if (best != NULL &&
            (level > best_level || (level == best_level && q->age > best->sequence.age)))
            continue;
        best = j;
        best_level = level;
    }
    return best;
}

/* The oldest of the best class computes or gets tokens, whatever happens around it. It may give way
 * to one of a better class that came, or to one that aged and ended within the turn. */
static void check_champion(struct simulation *sim)
{
    const struct sim_job *c = find_champion(sim);
    uint64_t progress = c != NULL ? c->sequence.n_tokens * 1000ull + c->sequence.n_computed : 0;

    if (c == NULL || c->sequence.arrival != sim->champion_arrival ||
        progress > sim->champion_progress || sim->n_ended != sim->champion_n_ended) {
        sim->champion_stall = 0;
    } else if (!sim->may_fail) {
        assert(progress == sim->champion_progress || c->sequence.priority > 0);
        assert(++sim->champion_stall <= STALL_MAX);
    }
    sim->champion_arrival = c != NULL ? c->sequence.arrival : 0;
    sim->champion_progress = progress;
    sim->champion_n_ended = sim->n_ended;
}

bool sim_turn(struct simulation *sim)
{
    bool did = stepper_turn(&sim->stepper);
    const char *wrong = scheduler_check(sim->scheduler);

    assert(wrong == NULL);
    check_champion(sim);
    return did;
}

void sim_run_all(struct simulation *sim)
{
    for (int i = 0; sim_turn(sim); i++)
        assert(i < 1000000);
}
