/* What sequences find in the prefix cache, and what they leave there. */
#include "tests/lib/scheduler_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/log.h"

/* A first request, and one of the same prompt when it is done: what the second found cached. */
static uint32_t cached_of_second(bool prefix_cache, bool want_scores)
{
    const struct cache_domain domain = {.salt = {1}, .revision = "r"};
    struct scheduler_config cfg = scheduler_rig_roomy;
    struct rig_sequence *first, *second;
    uint32_t cached;
    struct scheduler_rig r;

    cfg.prefix_cache = prefix_cache;
    cfg.prefix_cache_permille = 1000;
    scheduler_rig_open(&r, &cfg);
    r.jobs[0].sequence.cache = &domain;
    first = scheduler_rig_submit(&r, 48, 4, 1);
    scheduler_rig_run(&r);
    r.jobs[1].sequence.sampling.want_prompt_logprobs = want_scores;
    second = scheduler_rig_submit_like(&r, first, NULL);
    scheduler_rig_run(&r);
    cached = second->sequence.cached_tokens;
    scheduler_rig_check(&r, second);
    scheduler_rig_close(&r);
    return cached;
}

static void test_a_prompt_is_found_up_to_its_last_token(void **state)
{
    (void)state;
    assert_int_equal(cached_of_second(true, false), 32); /* the third page holds the last token */
    assert_int_equal(cached_of_second(false, false), 0);
    assert_int_equal(cached_of_second(true, true), 0);
}

static void test_without_the_cache_choices_share_and_others_do_not(void **state)
{
    const struct cache_domain domain = {.salt = {1}, .revision = "r"};
    struct rig_sequence *leader, *choice, *other;
    struct scheduler_rig r;

    (void)state;
    scheduler_rig_open(&r, &scheduler_rig_roomy);
    r.jobs[0].sequence.cache = &domain;
    leader = scheduler_rig_submit(&r, 48, 20, 1);
    choice = scheduler_rig_submit_like(&r, leader, &leader->sequence);
    other = scheduler_rig_submit_like(&r, leader, NULL);
    scheduler_rig_run(&r);
    assert_int_equal(choice->sequence.cached_tokens, 32);
    assert_int_equal(other->sequence.cached_tokens, 0);
    scheduler_rig_close(&r);
}

static void assert_no_page_in_common(const struct sequence *a, const struct sequence *b)
{
    assert_true(a->n_pages > 0 && b->n_pages > 0);
    for (uint32_t i = 0; i < a->n_pages; i++)
        for (uint32_t k = 0; k < b->n_pages; k++)
            assert_int_not_equal(a->pages[i], b->pages[k]);
}

static void test_without_the_cache_choices_of_two_tenants_share_nothing(void **state)
{
    const struct cache_domain domains[2] = {{.salt = {1}, .revision = "r"},
                                            {.salt = {2}, .revision = "r"}};
    struct rig_sequence *leader, *choice, *others_leader, *others_choice, of_other;
    struct scheduler_rig r;

    (void)state;
    scheduler_rig_open(&r, &scheduler_rig_roomy);
    r.jobs[0].sequence.cache = &domains[0];
    leader = scheduler_rig_submit(&r, 48, 40, 1);
    choice = scheduler_rig_submit_like(&r, leader, &leader->sequence);
    while (choice->n_output == 0)
        assert_true(stepper_turn(&r.stepper));
    of_other = *leader;
    of_other.sequence.tenant = 2;
    of_other.sequence.cache = &domains[1];
    others_leader = scheduler_rig_submit_like(&r, &of_other, NULL);
    others_choice = scheduler_rig_submit_like(&r, &of_other, &others_leader->sequence);
    while (others_choice->n_output == 0)
        assert_true(stepper_turn(&r.stepper));
    assert_int_equal(others_leader->sequence.cached_tokens, 0);
    assert_int_equal(others_choice->sequence.cached_tokens, 32);
    assert_no_page_in_common(&leader->sequence, &others_leader->sequence);
    assert_no_page_in_common(&choice->sequence, &others_choice->sequence);
    scheduler_rig_run(&r);
    scheduler_rig_close(&r);
}

/* Pages are there for others as soon as the step that filled them is done. */
static void cancelled_in_its_prompt(uint32_t depth)
{
    const struct cache_domain domain = {.salt = {1}, .revision = "r"};
    struct scheduler_config cfg = scheduler_rig_roomy;
    struct rig_sequence *first, *second;
    struct scheduler_rig r;

    cfg.depth = depth;
    cfg.prefill_rows = KV_PAGE_TOKENS;
    cfg.prefix_cache = true;
    cfg.prefix_cache_permille = 1000;
    scheduler_rig_open(&r, &cfg);
    r.jobs[0].sequence.cache = &domain;
    first = scheduler_rig_submit(&r, 60, 4, 1);
    while (first->sequence.n_computed < 48)
        assert_true(stepper_turn(&r.stepper));
    assert_true(!first->sequence.prefilled);
    scheduler_cancel(r.scheduler, &first->sequence, ST_CANCELLED, 0);
    scheduler_rig_run(&r);
    second = scheduler_rig_submit_like(&r, first, NULL);
    scheduler_rig_run(&r);
    assert_in_range(second->sequence.cached_tokens, 32, 48);
    scheduler_rig_check(&r, second);
    scheduler_rig_close(&r);
}

static void test_one_cancelled_in_its_prompt_leaves_its_full_pages(void **state)
{
    (void)state;
    cancelled_in_its_prompt(1);
    cancelled_in_its_prompt(2);
}

/* A page of one that turned bad may hold what made it so, and the weights that computed it computed
 * the others' as well. */
static void after_nan(const struct cache_domain *good, const struct cache_domain *bad,
                      uint32_t cached)
{
    struct scheduler_config cfg = scheduler_rig_roomy;
    struct rig_sequence *first, *second;
    struct scheduler_rig r;

    cfg.prefix_cache = true;
    cfg.prefix_cache_permille = 1000;
    scheduler_rig_open(&r, &cfg);
    r.jobs[0].sequence.cache = good;
    first = scheduler_rig_submit(&r, 48, 4, 1);
    scheduler_rig_run(&r);
    r.jobs[1].sequence.cache = bad;
    fake_device_script.nan_seed = 2; /* the rig's seeds count from 1 */
    fake_device_script.nan_after = 1;
    scheduler_rig_submit(&r, 20, 10, 1);
    scheduler_rig_run(&r);
    assert_int_equal(r.jobs[1].status, ST_INTERNAL);
    second = scheduler_rig_submit_like(&r, first, NULL);
    scheduler_rig_run(&r);
    assert_int_equal(second->sequence.cached_tokens, cached);
    scheduler_rig_close(&r);
}

static void test_nan_forgets_what_the_same_weights_computed(void **state)
{
    const struct cache_domain base = {.salt = {1}, .revision = "r"};
    const struct cache_domain adapted = {
        .salt = {1}, .revision = "r", .adapter = {7}, .has_adapter = true};

    (void)state;
    after_nan(&base, &base, 0);
    after_nan(&adapted, &adapted, 0);
    after_nan(&adapted, &base, 0);
    after_nan(&base, &adapted, 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_prompt_is_found_up_to_its_last_token),
        cmocka_unit_test(test_without_the_cache_choices_share_and_others_do_not),
        cmocka_unit_test(test_without_the_cache_choices_of_two_tenants_share_nothing),
        cmocka_unit_test(test_one_cancelled_in_its_prompt_leaves_its_full_pages),
        cmocka_unit_test(test_nan_forgets_what_the_same_weights_computed),
    };

    log_init("test", LOG_ERROR + 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
