/* What is asked about requests of an earlier gateway, and what engines tell of themselves, while a
 * model changes its revision. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/log.h"
#include "engine/engine.h"
#include "tests/lib/swap_rig.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define N 3

struct asker {
    struct engine_claimed requests[N];
    struct engine_claim claim;
    int n_answers[N];
    bool is_known[N];
    size_t n_settled;
};

static void on_settled(void *arg, size_t i, const struct engine_usage *usage)
{
    struct asker *a = arg;

    assert_true(i < N && a->requests[i].is_settled);
    a->n_answers[i]++;
    a->is_known[i] = usage != NULL;
    a->n_settled++;
}

static void begin_claim(struct swap_rig *r, struct asker *a)
{
    memset(a, 0, sizeof *a);
    for (size_t i = 0; i < N; i++)
        a->requests[i].id.bytes[0] = (uint8_t)(i + 1);
    a->claim = (struct engine_claim){
        .model = r->model, .requests = a->requests, .n = N, .arg = a, .on_settled = on_settled};
    engine_claim(r->links[0], &a->claim);
}

/* An engine of files[0] was asked, and another one of files[1] has taken over. */
static void open_asked_and_changed(struct swap_rig *r, struct asker *a)
{
    swap_rig_open(r);
    swap_rig_play(r, 0, 0);
    swap_rig_await(r, swap_rig_serves);
    begin_claim(r, a);
    while (r->engines[0].n_claims == 0)
        swap_rig_turn(r);
    assert_int_equal(r->engines[0].claimed.n, N);
    swap_rig_hand_over(r, 0, 1, 1);
    swap_rig_await(r, swap_rig_has_file_1);
}

static void await_settled(struct swap_rig *r, const struct asker *a, size_t n)
{
    while (a->n_settled < n)
        swap_rig_turn(r);
}

static void the_old_engine_stays_until_it_has_answered(void **state)
{
    struct asker a;
    struct swap_rig r;

    (void)state;
    open_asked_and_changed(&r, &a);
    played_engine_settle(&r.engines[0], &a.requests[0].id, true);
    played_engine_settle(&r.engines[0], &a.requests[2].id, true);
    await_settled(&r, &a, 2);
    assert_int_equal(played_engine_n_open(&r.engines[0]), SWAP_LOOPS);
    assert_int_equal(swap_rig_n_revisions(&r), 2);
    played_engine_settle(&r.engines[0], &a.requests[1].id, true);
    await_settled(&r, &a, N);
    while (played_engine_n_open(&r.engines[0]) > 0)
        swap_rig_turn(&r);
    swap_rig_await(&r, swap_rig_is_settled);
    assert_int_equal(r.engines[1].n_claims, 0);
    for (size_t i = 0; i < N; i++)
        assert_true(a.n_answers[i] == 1 && a.is_known[i]);
    engine_unclaim(r.links[0], &a.claim);
    swap_rig_close(&r);
}

static void what_a_dead_old_engine_left_open_is_asked_of_the_new_one(void **state)
{
    struct asker a;
    struct swap_rig r;

    (void)state;
    open_asked_and_changed(&r, &a);
    played_engine_settle(&r.engines[0], &a.requests[1].id, true);
    await_settled(&r, &a, 1);
    played_engine_close(&r.engines[0]);
    while (r.engines[1].n_claims == 0)
        swap_rig_turn(&r);
    assert_int_equal(r.engines[1].claimed.n, N - 1);
    played_engine_settle(&r.engines[1], &a.requests[0].id, true);
    played_engine_settle(&r.engines[1], &a.requests[1].id, false); /* it is answered */
    played_engine_settle(&r.engines[1], &a.requests[2].id, false);
    await_settled(&r, &a, N);
    swap_rig_await(&r, swap_rig_is_settled);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(a.n_answers[i], 1);
    assert_true(a.is_known[0] && a.is_known[1] && !a.is_known[2]);
    swap_rig_close(&r);
}

static void a_claim_that_is_taken_back_lets_the_old_engine_go(void **state)
{
    struct asker a;
    struct swap_rig r;

    (void)state;
    open_asked_and_changed(&r, &a);
    engine_unclaim(r.links[0], &a.claim);
    while (played_engine_n_open(&r.engines[0]) > 0)
        swap_rig_turn(&r);
    swap_rig_await(&r, swap_rig_is_settled);
    assert_int_equal(a.n_settled, 0);
    swap_rig_close(&r);
}

/* Whoever had the request hears that it may forget it. */
static void a_release_reaches_old_and_new(void **state)
{
    struct asker a;
    struct swap_rig r;

    (void)state;
    open_asked_and_changed(&r, &a);
    engine_release(r.links[0], r.model, &a.requests[0].id);
    while (r.engines[0].n_released == 0 || r.engines[1].n_released == 0)
        swap_rig_turn(&r);
    engine_unclaim(r.links[0], &a.claim);
    swap_rig_close(&r);
}

static void a_claim_waits_for_the_first_revision(void **state)
{
    struct asker a;
    struct swap_rig r;

    (void)state;
    swap_rig_open_without(&r);
    swap_rig_play(&r, 0, 0);
    begin_claim(&r, &a);
    for (int i = 0; i < 10; i++)
        swap_rig_turn(&r);
    assert_int_equal(a.n_settled, 0);
    swap_rig_set_file(&r, r.files[0]);
    swap_rig_hold(&r, false);
    while (r.engines[0].n_claims == 0)
        swap_rig_turn(&r);
    assert_int_equal(r.engines[0].claimed.n, N);
    for (size_t i = 0; i < N; i++)
        played_engine_settle(&r.engines[0], &a.requests[i].id, i == 1);
    await_settled(&r, &a, N);
    for (size_t i = 0; i < N; i++)
        assert_true(a.n_answers[i] == 1 && a.is_known[i] == (i == 1));
    swap_rig_close(&r);
}

/* It was too long for who asked; the revision that comes then is asked nothing. */
static void a_claim_that_waits_can_be_taken_back(void **state)
{
    struct asker a;
    struct swap_rig r;

    (void)state;
    swap_rig_open_without(&r);
    swap_rig_play(&r, 0, 0);
    begin_claim(&r, &a);
    engine_unclaim(r.links[0], &a.claim);
    swap_rig_set_file(&r, r.files[0]);
    swap_rig_hold(&r, false);
    swap_rig_await(&r, swap_rig_has_file_0);
    for (int i = 0; i < 10; i++)
        swap_rig_turn(&r);
    assert_int_equal(r.engines[0].n_claims, 0);
    assert_int_equal(a.n_settled, 0);
    swap_rig_close(&r);
}

static void stats_have_both_engines_work_and_the_new_ones_counters(void **state)
{
    const struct wire_stats of_old = {.running = 3,
                                      .waiting = 2,
                                      .pages_used = 5,
                                      .pages_total = 10,
                                      .output_tokens = 1000,
                                      .last_step_age_ms = -1},
                            of_new = {.running = 1,
                                      .waiting = 4,
                                      .pages_used = 7,
                                      .pages_total = 20,
                                      .output_tokens = 9,
                                      .last_step_age_ms = -1};
    struct engine_stats st;
    struct asker a;
    struct swap_rig r;

    (void)state;
    open_asked_and_changed(&r, &a);
    played_engine_tell_stats(&r.engines[0], &of_old);
    played_engine_tell_stats(&r.engines[1], &of_new);
    do {
        swap_rig_turn(&r);
        engine_stats(r.engine, &st);
    } while (st.running != 4);
    assert_int_equal(st.waiting, 6);
    assert_int_equal(st.pid, 1);
    assert_int_equal(st.pages_used, 7);
    assert_int_equal(st.pages_total, 20);
    assert_int_equal(st.output_tokens, 9);
    engine_unclaim(r.links[0], &a.claim);
    swap_rig_await(&r, swap_rig_is_settled);
    engine_stats(r.engine, &st);
    assert_true(st.connected && st.running == 1 && st.waiting == 4);
    swap_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_old_engine_stays_until_it_has_answered),
        cmocka_unit_test(what_a_dead_old_engine_left_open_is_asked_of_the_new_one),
        cmocka_unit_test(a_claim_that_is_taken_back_lets_the_old_engine_go),
        cmocka_unit_test(a_release_reaches_old_and_new),
        cmocka_unit_test(a_claim_waits_for_the_first_revision),
        cmocka_unit_test(a_claim_that_waits_can_be_taken_back),
        cmocka_unit_test(stats_have_both_engines_work_and_the_new_ones_counters),
    };

    log_init("test", LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
