/* Who gives way to whom: the rules of docs/scheduling.md, one by one. */
#include "tests/lib/scheduler_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/log.h"

#define ORDINARY 1 /* the class between */

static void open_slots(struct scheduler_rig *r, uint32_t max_sequences)
{
    struct scheduler_config cfg = scheduler_rig_roomy;

    cfg.max_sequences = max_sequences;
    cfg.prefill_rows = 200;
    cfg.age_up_us = 2000000; /* the rig's requests come at 0, its clock begins at half of it */
    scheduler_rig_open(r, &cfg);
}

static struct rig_sequence *submit_class(struct scheduler_rig *r, uint32_t n_prompt,
                                         uint32_t max_tokens, uint64_t tenant, uint32_t class)
{
    r->jobs[r->n_jobs].sequence.priority = class;
    return scheduler_rig_submit(r, n_prompt, max_tokens, tenant);
}

static bool runs(const struct rig_sequence *j)
{
    return j->sequence.state == SEQUENCE_RUNNING;
}

static uint64_t preemptions(const struct scheduler_rig *r)
{
    struct scheduler_stats st;

    scheduler_stats(r->scheduler, &st);
    return st.preemptions;
}

static void turn(struct scheduler_rig *r, int n)
{
    while (n-- > 0)
        assert_true(stepper_turn(&r->stepper));
}

static void finish(struct scheduler_rig *r)
{
    scheduler_rig_run(r);
    for (uint32_t i = 0; i < r->n_jobs; i++) {
        assert_int_equal(r->jobs[i].status, ST_OK);
        scheduler_rig_check(r, &r->jobs[i]);
    }
    scheduler_rig_close(r);
}

/* ---- the balance of tenants ---- */

/* Its share of two places is none, so that only the lead counts: 4 tokens of work a step, of which
 * a third by weight, against twice the victim's positions and a page, by the same weight. */
static void test_a_lead_of_twice_what_is_wasted_takes_a_place(void **state)
{
    struct rig_sequence *victim, *late;
    uint32_t computed, n = 0;
    struct scheduler_rig r;

    (void)state;
    open_slots(&r, 2);
    r.jobs[0].sequence.weight = r.jobs[1].sequence.weight = 3000;
    scheduler_rig_submit(&r, 1, 75, 1);
    victim = scheduler_rig_submit(&r, 1, 75, 1);
    turn(&r, 5);
    computed = victim->sequence.n_computed;
    r.jobs[2].sequence.weight = 1000;
    late = scheduler_rig_submit(&r, 4, 5, 2);
    for (; !runs(late); n++)
        turn(&r, 1);
    assert_int_equal(victim->sequence.state, SEQUENCE_PREEMPTED);
    assert_in_range(n, computed + KV_PAGE_TOKENS - 1, computed + KV_PAGE_TOKENS + 3);
    finish(&r);
}

static void test_a_share_of_the_places_is_taken_at_once(void **state)
{
    struct rig_sequence *first, *second, *late;
    struct scheduler_rig r;

    (void)state;
    open_slots(&r, 2);
    first = scheduler_rig_submit(&r, 1, 60, 1);
    second = scheduler_rig_submit(&r, 1, 60, 1);
    turn(&r, 20);
    late = scheduler_rig_submit(&r, 4, 5, 2);
    turn(&r, 1);
    assert_true(runs(first) && runs(late));
    assert_int_equal(second->sequence.state, SEQUENCE_PREEMPTED);
    finish(&r);
}

/* It was served 62 before, the others 8. */
static void test_who_is_ahead_has_no_claim_on_its_share(void **state)
{
    struct rig_sequence *again;
    struct scheduler_rig r;

    (void)state;
    open_slots(&r, 2);
    scheduler_rig_submit(&r, 60, 1, 2);
    scheduler_rig_submit(&r, 1, 70, 1);
    scheduler_rig_submit(&r, 1, 70, 1);
    turn(&r, 2);
    again = scheduler_rig_submit(&r, 10, 5, 2);
    turn(&r, 10);
    assert_int_equal(again->sequence.state, SEQUENCE_WAITING);
    turn(&r, 12);
    assert_int_equal(preemptions(&r), 1);
    assert_int_equal(again->n_ends, 1);
    finish(&r);
}

/* One place was taken from a long request for a row of work: the next one has to be waited for. */
static void test_who_owes_for_a_place_takes_no_second_one(void **state)
{
    struct rig_sequence *victim, *late;
    struct scheduler_rig r;

    (void)state;
    open_slots(&r, 4);
    for (int i = 0; i < 4; i++)
        victim = scheduler_rig_submit(&r, 1, 70, 1);
    turn(&r, 30);
    late = scheduler_rig_submit(&r, 1, 1, 2);
    turn(&r, 1);
    assert_int_equal(late->n_ends, 1);
    assert_int_equal(victim->sequence.state, SEQUENCE_PREEMPTED);
    turn(&r, 3);
    late = scheduler_rig_submit(&r, 1, 1, 2);
    turn(&r, 3);
    assert_int_equal(late->sequence.state, SEQUENCE_WAITING);
    assert_int_equal(preemptions(&r), 1);
    finish(&r);
}

/* Its request is stopped and computed again, from the beginning, four times. */
static void test_what_is_computed_again_pays_for_nothing(void **state)
{
    struct rig_sequence *victim, *late, *second;
    struct scheduler_rig r;

    (void)state;
    open_slots(&r, 4);
    for (int i = 0; i < 4; i++)
        victim = submit_class(&r, 1, 75, 1, ORDINARY);
    turn(&r, 40);
    late = submit_class(&r, 12, 40, 2, ORDINARY);
    turn(&r, 1);
    assert_int_equal(victim->sequence.state, SEQUENCE_PREEMPTED);
    victim->sequence.held = true; /* it doesn't come back in between */
    for (int i = 0; i < 4; i++) {
        late->sequence.held = true;
        submit_class(&r, 1, 1, 3, 0);
        turn(&r, 1);
        assert_int_equal(late->sequence.state, SEQUENCE_PREEMPTED);
        late->sequence.held = false;
        turn(&r, 5);
        assert_true(runs(late));
    }
    second = submit_class(&r, 1, 1, 2, ORDINARY);
    turn(&r, 4);
    assert_int_equal(second->sequence.state, SEQUENCE_WAITING);
    assert_int_equal(preemptions(&r), 1 + 4);
    victim->sequence.held = false;
    finish(&r);
}

/* ---- classes ---- */

static void test_waiting_gives_a_place_in_the_queue_but_stops_nobody(void **state)
{
    struct rig_sequence *works, *waits;
    struct scheduler_rig r;

    (void)state;
    open_slots(&r, 1);
    works = submit_class(&r, 4, 20, 1, ORDINARY);
    turn(&r, 2);
    waits = submit_class(&r, 4, 5, 2, ORDINARY + 1);
    fake_device_set_time(r.device, 20000000);
    turn(&r, 2);
    assert_true(runs(works));
    scheduler_rig_run(&r);
    assert_int_equal(waits->sequence.level, 0);
    assert_int_equal(preemptions(&r), 0);
    finish(&r);
}

static void test_the_youngest_of_the_most_served_tenant_gives_way(void **state)
{
    struct rig_sequence *served[2], *others[2], *urgent;
    struct scheduler_rig r;

    (void)state;
    open_slots(&r, 4);
    for (int i = 0; i < 2; i++)
        served[i] = submit_class(&r, 60, 30, 3, ORDINARY);
    for (int i = 0; i < 2; i++)
        others[i] = submit_class(&r, 1, 30, 1, ORDINARY);
    turn(&r, 3);
    urgent = submit_class(&r, 4, 3, 2, 0);
    turn(&r, 1);
    assert_true(runs(urgent) && runs(served[0]) && runs(others[0]) && runs(others[1]));
    assert_int_equal(served[1]->sequence.state, SEQUENCE_PREEMPTED);
    finish(&r);
}

static void test_the_lowest_class_gives_way_first(void **state)
{
    struct rig_sequence *lowest, *ordinary;
    struct scheduler_rig r;

    (void)state;
    open_slots(&r, 2);
    lowest = submit_class(&r, 1, 30, 1, ORDINARY + 1);
    turn(&r, 1);
    ordinary = submit_class(&r, 1, 30, 1, ORDINARY);
    turn(&r, 3);
    submit_class(&r, 4, 3, 2, 0);
    turn(&r, 1);
    assert_true(runs(ordinary));
    assert_int_equal(lowest->sequence.state, SEQUENCE_PREEMPTED);
    assert_int_equal(preemptions(&r), 1); /* the other didn't go and take this one's place */
    finish(&r);
}

static void test_what_is_held_gives_way_before_all(void **state)
{
    struct rig_sequence *held, *other;
    struct scheduler_rig r;

    (void)state;
    open_slots(&r, 2);
    held = submit_class(&r, 1, 30, 1, ORDINARY);
    turn(&r, 1);
    other = submit_class(&r, 1, 30, 1, ORDINARY + 1);
    turn(&r, 3);
    held->sequence.held = true;
    submit_class(&r, 4, 3, 2, 0);
    turn(&r, 1);
    assert_true(runs(other));
    assert_int_equal(held->sequence.state, SEQUENCE_PREEMPTED);
    assert_int_equal(preemptions(&r), 1);
    held->sequence.held = false;
    finish(&r);
}

/* ---- growth ---- */

/* One page is spare. The second takes it first, then the third comes to the end of its own, and
 * last the first does. */
static void test_only_the_younger_gives_way_to_one_that_grows(void **state)
{
    const struct scheduler_config cfg = {.max_sequences = 4,
                                         .prefill_rows = 100,
                                         .max_context = 100,
                                         .n_pages = 7,
                                         .queue_max = 8,
                                         .depth = 1};
    struct rig_sequence *first, *second, *third;
    struct scheduler_rig r;

    (void)state;
    scheduler_rig_open(&r, &cfg);
    first = scheduler_rig_submit(&r, 17, 40, 1);
    second = scheduler_rig_submit(&r, 31, 40, 1);
    third = scheduler_rig_submit(&r, 28, 40, 1);
    turn(&r, 12);
    assert_true(runs(first) && runs(second) && runs(third));
    assert_int_equal(third->n_output, 5); /* its last place is filled by the fifth */
    turn(&r, 8);
    assert_true(runs(first) && runs(second));
    assert_int_equal(third->sequence.state, SEQUENCE_PREEMPTED);
    finish(&r);
}

/* ---- what has aged ---- */

/* Three of the lowest class have aged, two have the places: the better class has one of them, at
 * once and whoever came first; for another one it would have to pay for that first. */
static void test_a_better_class_takes_its_part_of_what_has_aged(void **state)
{
    struct rig_sequence *aged[3], *better, *second;
    struct scheduler_rig r;

    (void)state;
    open_slots(&r, 2);
    fake_device_set_time(r.device, 5000000);
    for (int i = 0; i < 3; i++)
        aged[i] = submit_class(&r, 4, 60, 1, 2);
    turn(&r, 20);
    assert_true(runs(aged[0]) && runs(aged[1]));
    assert_int_equal(aged[1]->sequence.level, 0);
    better = submit_class(&r, 4, 2, 2, 0);
    turn(&r, 1);
    assert_true(runs(aged[0]) && runs(better));
    while (better->n_ends == 0)
        turn(&r, 1);
    turn(&r, 1);
    assert_true(runs(aged[0]) && (runs(aged[1]) || runs(aged[2])));
    second = submit_class(&r, 4, 2, 2, 0);
    turn(&r, 3);
    assert_false(runs(second));
    finish(&r);
}

/* Pages for one of two: the ordinary one came first and ran before the other had aged. */
static void test_what_has_aged_does_not_stop_an_older_one_of_a_better_class(void **state)
{
    struct scheduler_config cfg = scheduler_rig_roomy;
    struct rig_sequence *ordinary, *aged;
    struct scheduler_rig r;

    (void)state;
    cfg.n_pages = 5;
    cfg.age_up_us = 10000000;
    scheduler_rig_open(&r, &cfg);
    ordinary = submit_class(&r, 20, 40, 1, ORDINARY);
    turn(&r, 4);
    fake_device_set_time(r.device, 25000000);
    aged = submit_class(&r, 14, 40, 2, 2); /* it came at 0 */
    turn(&r, 3);
    assert_true(runs(ordinary) && runs(aged));
    assert_int_equal(aged->sequence.level, 0);
    while (ordinary->n_ends == 0) {
        assert_int_equal(ordinary->sequence.state, SEQUENCE_RUNNING);
        turn(&r, 1);
    }
    assert_true(preemptions(&r) > 0);
    finish(&r);
}

/* ---- after a preemption ---- */

/* An ordinary request waits for a second, is preempted at 5 s, and gets its place back at this
 * time; what it counts as then. Deadlines are looked at as well, since another had one. */
static uint32_t level_after_waits(int64_t until_us)
{
    struct rig_sequence *ordinary;
    struct scheduler_rig r;
    uint32_t level;

    open_slots(&r, 1);
    r.jobs[0].sequence.queue_deadline_us = 3000000;
    ordinary = submit_class(&r, 4, 20, 1, ORDINARY);
    turn(&r, 3);
    fake_device_set_time(r.device, 5000000);
    r.jobs[1].sequence.queue_deadline_us = 5500000;
    submit_class(&r, 4, 3, 2, 0);
    turn(&r, 1);
    assert_int_equal(ordinary->sequence.state, SEQUENCE_PREEMPTED);
    fake_device_set_time(r.device, until_us);
    while (!runs(ordinary))
        turn(&r, 1);
    level = ordinary->sequence.level;
    finish(&r);
    return level;
}

static void test_a_preempted_one_has_no_deadline_and_its_waits_add_up(void **state)
{
    (void)state;
    assert_int_equal(level_after_waits(5700000), ORDINARY); /* what it ran for doesn't count */
    assert_int_equal(level_after_waits(6500000), ORDINARY - 1);
}

/* The first is the oldest, which always gets on. */
static void test_a_preempted_one_keeps_its_turn(void **state)
{
    struct rig_sequence *ordinary, *later;
    struct scheduler_rig r;

    (void)state;
    open_slots(&r, 2);
    submit_class(&r, 4, 40, 1, ORDINARY);
    ordinary = submit_class(&r, 4, 20, 1, ORDINARY);
    later = submit_class(&r, 4, 20, 1, ORDINARY);
    turn(&r, 3);
    submit_class(&r, 4, 3, 2, 0);
    turn(&r, 1);
    assert_int_equal(ordinary->sequence.state, SEQUENCE_PREEMPTED);
    turn(&r, 4);
    assert_true(runs(ordinary));
    assert_int_equal(later->sequence.state, SEQUENCE_WAITING);
    finish(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_lead_of_twice_what_is_wasted_takes_a_place),
        cmocka_unit_test(test_a_share_of_the_places_is_taken_at_once),
        cmocka_unit_test(test_who_is_ahead_has_no_claim_on_its_share),
        cmocka_unit_test(test_who_owes_for_a_place_takes_no_second_one),
        cmocka_unit_test(test_what_is_computed_again_pays_for_nothing),
        cmocka_unit_test(test_waiting_gives_a_place_in_the_queue_but_stops_nobody),
        cmocka_unit_test(test_the_youngest_of_the_most_served_tenant_gives_way),
        cmocka_unit_test(test_the_lowest_class_gives_way_first),
        cmocka_unit_test(test_what_is_held_gives_way_before_all),
        cmocka_unit_test(test_only_the_younger_gives_way_to_one_that_grows),
        cmocka_unit_test(test_a_better_class_takes_its_part_of_what_has_aged),
        cmocka_unit_test(test_what_has_aged_does_not_stop_an_older_one_of_a_better_class),
        cmocka_unit_test(test_a_preempted_one_has_no_deadline_and_its_waits_add_up),
        cmocka_unit_test(test_a_preempted_one_keeps_its_turn),
    };

    log_init("test", LOG_ERROR + 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
