/* One sequence of a batch fails, on the simulated device: the others don't notice, and nothing of
 * it is left. */
#include "tests/lib/simulation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/log.h"

static struct scheduler_config roomy(uint32_t depth)
{
    return (struct scheduler_config){.max_sequences = 4,
                                     .prefill_rows = 16,
                                     .max_context = 128,
                                     .n_pages = 64,
                                     .queue_max = 16,
                                     .depth = depth,
                                     .prefix_cache = true,
                                     .prefix_cache_permille = 1000};
}

static struct sim_job *fresh(struct simulation *sim, uint32_t n_prompt, uint32_t max_tokens)
{
    struct sim_job *j = sim_job(sim);

    assert_non_null(j);
    j->sequence.max_tokens = max_tokens;
    sim_prompt(j, n_prompt, n_prompt, 1);
    return j;
}

static struct sim_job *submit(struct simulation *sim, struct sim_job *j)
{
    enum status status;

    assert_true(sim_submit(j, &status));
    assert_int_equal(status, ST_OK);
    (void)sim;
    return j;
}

static void with_a_refused_slot(uint32_t depth, uint32_t n_before, uint32_t n_after)
{
    const struct scheduler_config cfg = roomy(depth);
    struct sim_job *good[3], *bad;
    uint32_t n = 0;
    struct simulation sim;

    sim_open(&sim, &cfg, 8, depth);
    while (n < n_before)
        good[n++] = submit(&sim, fresh(&sim, 3, 20));
    bad = fresh(&sim, 3, 20);
    fake_device_script.refuse_slot_seed = bad->sequence.sampling.seed;
    submit(&sim, bad);
    while (n < n_before + n_after)
        good[n++] = submit(&sim, fresh(&sim, 3, 20));
    sim_run_all(&sim);
    assert_int_equal(bad->status, ST_INTERNAL);
    assert_int_equal(bad->n_tokens, bad->n_prompt);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(good[i]->status, ST_OK);
    sim_close(&sim);
}

/* First, in the middle, last, and alone in its step. */
static void test_a_refused_slot_fails_its_sequence_alone(void **state)
{
    (void)state;
    for (uint32_t depth = 1; depth <= 2; depth++) {
        with_a_refused_slot(depth, 0, 2);
        with_a_refused_slot(depth, 1, 2);
        with_a_refused_slot(depth, 2, 0);
        with_a_refused_slot(depth, 0, 0);
    }
}

/* A damaged row would be free, counted, and forget what is cached. */
static void test_a_sequence_without_an_allowed_token_ends_alone(void **state)
{
    (void)state;
    for (uint32_t depth = 1; depth <= 2; depth++) {
        const struct scheduler_config cfg = roomy(depth);
        struct sim_job *good, *bad, *later;
        struct scheduler_stats st;
        struct simulation sim;

        sim_open(&sim, &cfg, 4, 3);
        good = submit(&sim, fresh(&sim, 20, 20));
        bad = fresh(&sim, 50, 20);
        bad->sequence.masked = true;
        bad->starves_after = 5;
        submit(&sim, bad);
        sim_run_all(&sim);
        assert_int_equal(bad->status, ST_NO_CHOICE);
        assert_int_equal(bad->n_tokens - bad->n_prompt, 5);
        assert_int_equal(good->status, ST_OK);
        later = submit(&sim, fresh(&sim, 50, 1));
        sim_run_all(&sim);
        assert_int_equal(later->sequence.cached_tokens, 48);
        scheduler_stats(sim.scheduler, &st);
        assert_int_equal(st.not_finite, 0);
        sim_close(&sim);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_refused_slot_fails_its_sequence_alone),
        cmocka_unit_test(test_a_sequence_without_an_allowed_token_ends_alone),
    };

    log_init("test", LOG_ERROR + 1); /* the failures are on purpose */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
