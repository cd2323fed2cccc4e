#include "tests/lib/scheduler_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

const struct scheduler_config scheduler_rig_roomy = {.max_sequences = 4,
                                                     .prefill_rows = 8,
                                                     .max_context = 128,
                                                     .n_pages = 64,
                                                     .queue_max = RIG_SEQUENCES,
                                                     .depth = 1};

static bool on_token(void *arg, struct sequence *s, const struct token_sample *t, bool last)
{
    struct rig_sequence *j = (struct rig_sequence *)s;

    (void)arg;
    assert_int_equal(j->n_ends, 0);
    assert_true(j->n_output < s->max_tokens);
    j->output[j->n_output++] = t->id;
    assert_int_equal(sequence_n_output(s), j->n_output);
    assert_true(!last || s->n_tokens == s->limit);
    return j->stops && t->id % RIG_STOP_EVERY == 0;
}

static void on_end(void *arg, struct sequence *s, enum status status, enum engine_finish finish)
{
    struct rig_sequence *j = (struct rig_sequence *)s;

    (void)arg;
    j->n_ends++;
    j->status = status;
    j->finish = finish;
    j->prefilled_at_end = s->prefilled;
}

static void on_release(void *arg, struct sequence *s)
{
    struct rig_sequence *j = (struct rig_sequence *)s;

    (void)arg;
    assert_int_equal(j->n_ends, 1);
    j->n_releases++;
}

static void on_score(void *arg, struct sequence *s, uint32_t position, const struct token_sample *t)
{
    (void)arg;
    assert_in_range(position, 1, s->n_prompt - 1);
    assert_int_equal(t->id, s->tokens[position]);
}

static const struct scheduler_events events = {
    .on_token = on_token, .on_score = on_score, .on_end = on_end, .on_release = on_release};

void scheduler_rig_open(struct scheduler_rig *r, const struct scheduler_config *cfg)
{
    struct device_config device = {.max_rows = scheduler_max_rows(cfg),
                                   .max_sequences = cfg->max_sequences,
                                   .max_context = cfg->max_context,
                                   .n_pages = cfg->n_pages};

    memset(r, 0, sizeof *r);
    memset(&fake_device_script, 0, sizeof fake_device_script);
    r->cfg = *cfg;
    r->random = 1;
    assert_int_equal(fake_device_ops.open(&device, &r->device, NULL), ST_OK);
    assert_int_equal(scheduler_new(cfg, &events, r, &r->scheduler), ST_OK);
    assert_int_equal(stepper_init(&r->stepper, r->scheduler, r->device,
                                  &(struct stepper_limits){.max_rows = scheduler_max_rows(cfg),
                                                           .max_sequences = cfg->max_sequences,
                                                           .n_vocab = FAKE_DEVICE_VOCAB}),
                     ST_OK);
    r->stepper.now_us = fake_device_now_us;
    r->stepper.clock_arg = r->device;
    fake_device_set_time(r->device, 1000000);
}

void scheduler_rig_close(struct scheduler_rig *r)
{
    struct scheduler_stats st;

    scheduler_stats(r->scheduler, &st);
    assert_int_equal(st.pages_used, 0);
    assert_int_equal(st.running + st.waiting, 0);
    for (uint32_t i = 0; i < r->n_jobs; i++) {
        assert_int_equal(r->jobs[i].n_ends, 1);
        assert_int_equal(r->jobs[i].n_releases, 1);
    }
    stepper_dispose(&r->stepper);
    scheduler_free(r->scheduler);
    r->device->ops->close(r->device);
}

uint32_t scheduler_rig_random(struct scheduler_rig *r, uint32_t n)
{
    r->random = r->random * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(r->random >> 33) % n;
}

struct rig_sequence *scheduler_rig_submit(struct scheduler_rig *r, uint32_t n_prompt,
                                          uint32_t max_tokens, uint64_t tenant)
{
    struct rig_sequence *j = &r->jobs[r->n_jobs];

    assert_true(r->n_jobs < RIG_SEQUENCES && n_prompt <= RIG_PROMPT_MAX);
    for (uint32_t i = 0; i < n_prompt; i++)
        j->prompt[i] = (int32_t)scheduler_rig_random(r, FAKE_DEVICE_VOCAB);
    j->n_prompt = n_prompt;
    j->sequence.tenant = tenant;
    j->sequence.max_tokens = max_tokens;
    j->sequence.sampling.seed = r->n_jobs + 1;
    assert_int_equal(scheduler_submit(r->scheduler, &j->sequence, j->prompt, n_prompt, 0), ST_OK);
    r->n_jobs++;
    return j;
}

void scheduler_rig_run(struct scheduler_rig *r)
{
    for (int i = 0; stepper_turn(&r->stepper); i++)
        assert_true(i < 100000);
}

/* What the job gives alone: the definition of the fake device, without any scheduler. */
static uint32_t alone(const struct scheduler_rig *r, const struct rig_sequence *j, int32_t *out,
                      enum engine_finish *finish)
{
    int32_t tokens[RIG_PROMPT_MAX + RIG_OUTPUT_MAX];
    uint32_t n = j->n_prompt, max = j->sequence.max_tokens, limit = r->cfg.n_pages * KV_PAGE_TOKENS;

    limit = limit < r->cfg.max_context ? limit : r->cfg.max_context;
    memcpy(tokens, j->prompt, n * sizeof tokens[0]);
    *finish = ENGINE_FINISH_LENGTH;
    for (uint32_t i = 0; i < max && n < limit; i++) {
        tokens[n] = fake_device_pick(tokens, n, j->sequence.sampling.seed, i, FAKE_DEVICE_VOCAB);
        out[i] = tokens[n++];
        if (j->stops && out[i] % RIG_STOP_EVERY == 0) {
            *finish = ENGINE_FINISH_STOP;
            break;
        }
    }
    return n - j->n_prompt;
}

void scheduler_rig_check(const struct scheduler_rig *r, const struct rig_sequence *j)
{
    int32_t expected[RIG_OUTPUT_MAX];
    enum engine_finish finish;
    uint32_t n = alone(r, j, expected, &finish);

    assert_true(j->n_output <= n);
    assert_memory_equal(j->output, expected, j->n_output * sizeof expected[0]);
    if (j->status != ST_OK)
        return;
    assert_int_equal(j->n_output, n);
    assert_int_equal(j->finish, finish);
    assert_true(j->prefilled_at_end);
}

struct rig_sequence *scheduler_rig_submit_like(struct scheduler_rig *r,
                                               const struct rig_sequence *like,
                                               struct sequence *leader)
{
    struct rig_sequence *j = &r->jobs[r->n_jobs];

    memcpy(j->prompt, like->prompt, sizeof j->prompt);
    j->n_prompt = like->n_prompt;
    j->sequence.max_tokens = like->sequence.max_tokens;
    j->sequence.tenant = like->sequence.tenant;
    j->sequence.cache = like->sequence.cache;
    j->sequence.sampling.seed = r->n_jobs + 1;
    j->sequence.leader = leader;
    assert_int_equal(scheduler_submit(r->scheduler, &j->sequence, j->prompt, j->n_prompt, 0),
                     ST_OK);
    r->n_jobs++;
    return j;
}
