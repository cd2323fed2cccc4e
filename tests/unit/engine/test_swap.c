/* The change from one revision of a model to the next, while requests come and go: the gateway's
 * side with two loops, and engines played by hand. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"
#include "engine/engine.h"
#include "tests/lib/swap_rig.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

/* With an engine of files[0] that has greeted every loop. */
static void open_served(struct swap_rig *r)
{
    swap_rig_open(r);
    swap_rig_play(r, 0, 0);
    swap_rig_await(r, swap_rig_serves);
}

static bool first_has_two_jobs(struct swap_rig *r)
{
    return r->engines[0].n_jobs == 2;
}

static bool second_has_a_job(struct swap_rig *r)
{
    return r->engines[1].n_jobs == 1;
}

static bool first_has_no_links(struct swap_rig *r)
{
    return played_engine_n_open(&r->engines[0]) == 0;
}

static bool has_reloaded(struct swap_rig *r)
{
    return swap_rig_n_reloads(r) > 0;
}

/* ---- the change ---- */

static void old_requests_end_where_they_are_and_new_ones_go_to_the_new_engine(void **state)
{
    const struct engine_revision *before, *after;
    struct swap_job running, late, fresh;
    struct swap_rig r;

    (void)state;
    open_served(&r);
    before = engine_revision_get(r.model);
    assert_int_equal(swap_rig_submit(&r, 0, before, &running), ST_OK);
    swap_rig_hand_over(&r, 0, 1, 1);
    swap_rig_await(&r, swap_rig_has_file_1);
    after = engine_revision_get(r.model);
    assert_ptr_equal(after->model, before->model);
    assert_string_equal(before->hex, r.hex[0]);
    /* One that was admitted before and comes to its turn only now. */
    assert_true(engine_link_takes(r.links[1], before));
    assert_int_equal(swap_rig_submit(&r, 1, before, &late), ST_OK);
    assert_int_equal(swap_rig_submit(&r, 0, after, &fresh), ST_OK);
    swap_rig_await(&r, first_has_two_jobs);
    swap_rig_await(&r, second_has_a_job);
    played_engine_finish(&r.engines[0]);
    played_engine_finish(&r.engines[1]);
    while (running.n_ends + late.n_ends + fresh.n_ends < 3)
        swap_rig_turn(&r);
    assert_int_equal(running.end.status, ST_OK);
    assert_int_equal(late.end.status, ST_OK);
    assert_int_equal(fresh.end.status, ST_OK);
    assert_int_equal(played_engine_n_open(&r.engines[0]), SWAP_LOOPS);
    engine_revision_put(before);
    swap_rig_await(&r, first_has_no_links);
    swap_rig_await(&r, swap_rig_is_settled);
    assert_int_equal(played_engine_n_open(&r.engines[1]), SWAP_LOOPS);
    assert_int_equal(swap_rig_n_reloads(&r), 1);
    engine_revision_put(after);
    swap_rig_close(&r);
}

static void the_old_engine_serves_until_every_loop_has_the_new_one(void **state)
{
    const struct engine_revision *now;
    struct swap_rig r;

    (void)state;
    open_served(&r);
    swap_rig_set_file(&r, r.files[1]);
    swap_rig_play(&r, 1, 1);
    r.engines[1].greets_max = 1;
    played_engine_hand_over(&r.engines[0]);
    while (played_engine_n_open(&r.engines[1]) < SWAP_LOOPS)
        swap_rig_turn(&r);
    for (int i = 0; i < 10; i++)
        swap_rig_turn(&r);
    now = engine_revision_get(r.model);
    assert_string_equal(now->hex, r.hex[0]);
    assert_true(swap_rig_serves(&r));
    engine_revision_put(now);
    r.engines[1].greets_max = SWAP_LOOPS;
    swap_rig_await(&r, swap_rig_has_file_1);
    swap_rig_close(&r);
}

static bool second_serves_alone(struct swap_rig *r)
{
    return first_has_no_links(r) && swap_rig_serves(r) && swap_rig_is_settled(r);
}

static void an_engine_of_the_same_model_takes_over_as_well(void **state)
{
    const struct engine_revision *before, *after;
    struct swap_rig r;

    (void)state;
    open_served(&r);
    before = engine_revision_get(r.model);
    engine_revision_put(before);
    swap_rig_hand_over(&r, 0, 1, 0);
    swap_rig_await(&r, second_serves_alone);
    after = engine_revision_get(r.model);
    assert_string_equal(after->hex, r.hex[0]);
    assert_int_equal(played_engine_n_open(&r.engines[1]), SWAP_LOOPS);
    engine_revision_put(after);
    swap_rig_close(&r);
}

static bool third_serves_alone(struct swap_rig *r)
{
    return first_has_no_links(r) && played_engine_n_open(&r->engines[1]) == 0 &&
           swap_rig_has_file_0(r) && swap_rig_is_settled(r);
}

static void a_handover_amid_another_one_is_not_forgotten(void **state)
{
    struct swap_rig r;

    (void)state;
    open_served(&r);
    swap_rig_set_file(&r, r.files[1]);
    swap_rig_play(&r, 1, 1);
    r.engines[1].greets_max = 1;
    played_engine_hand_over(&r.engines[0]);
    while (played_engine_n_open(&r.engines[1]) < SWAP_LOOPS)
        swap_rig_turn(&r);
    swap_rig_hand_over(&r, 1, 2, 0);
    r.engines[1].greets_max = SWAP_LOOPS;
    swap_rig_await(&r, third_serves_alone);
    assert_int_equal(swap_rig_n_reloads(&r), 2);
    swap_rig_close(&r);
}

static bool has_changed(struct swap_rig *r, size_t from, size_t to, size_t which)
{
    return (which == 0 ? swap_rig_has_file_0(r) : swap_rig_has_file_1(r)) &&
           played_engine_n_open(&r->engines[from]) == 0 && swap_rig_is_settled(r) &&
           played_engine_n_open(&r->engines[to]) == SWAP_LOOPS;
}

static void a_hundred_changes_leave_one_revision(void **state)
{
    struct swap_rig r;
    struct swap_job j;

    (void)state;
    open_served(&r);
    for (size_t i = 0; i < 100; i++) {
        size_t from = i % 2, to = 1 - from, which = to;
        const struct engine_revision *held = engine_revision_get(r.model);

        assert_int_equal(swap_rig_submit(&r, i % SWAP_LOOPS, held, &j), ST_OK);
        swap_rig_hand_over(&r, from, to, which);
        while (r.engines[from].n_jobs < 1)
            swap_rig_turn(&r);
        played_engine_finish(&r.engines[from]);
        while (j.n_ends == 0)
            swap_rig_turn(&r);
        assert_int_equal(j.end.status, ST_OK);
        engine_revision_put(held);
        while (!has_changed(&r, from, to, which))
            swap_rig_turn(&r);
    }
    assert_int_equal(swap_rig_n_reloads(&r), 100);
    swap_rig_close(&r);
}

/* ---- without a handover ---- */

static void an_engine_that_comes_back_with_another_model_heals(void **state)
{
    struct swap_rig r;

    (void)state;
    open_served(&r);
    swap_rig_set_file(&r, r.files[1]);
    played_engine_close(&r.engines[0]);
    swap_rig_play(&r, 1, 1);
    swap_rig_await(&r, swap_rig_has_file_1);
    swap_rig_await(&r, swap_rig_is_settled);
    swap_rig_close(&r);
}

static bool is_back(struct swap_rig *r)
{
    return played_engine_n_open(&r->engines[2]) == SWAP_LOOPS && swap_rig_serves(r);
}

/* While the new file was being read, the old model came back: there is nothing to change, and
 * nothing to try again. */
static void an_engine_that_comes_back_as_it_was_ends_the_change(void **state)
{
    struct swap_rig r;

    (void)state;
    open_served(&r);
    swap_rig_hold(&r, true);
    played_engine_close(&r.engines[0]);
    swap_rig_play(&r, 1, 1);
    swap_rig_await(&r, has_reloaded);
    played_engine_close(&r.engines[1]);
    swap_rig_play(&r, 2, 0);
    swap_rig_await(&r, is_back);
    swap_rig_set_file(&r, r.files[1]);
    swap_rig_hold(&r, false);
    while (swap_rig_n_revisions(&r) < 2)
        swap_rig_turn(&r);
    swap_rig_await(&r, swap_rig_is_settled);
    assert_true(swap_rig_has_file_0(&r));
    assert_false(swap_rig_wants_change(&r));
    swap_rig_close(&r);
}

/* The new engine came, but the settings name the old file still: the old engine goes on. */
static void an_engine_of_another_model_than_the_file_gets_no_requests(void **state)
{
    const struct engine_revision *now;
    struct swap_job j;
    struct swap_rig r;

    (void)state;
    open_served(&r);
    swap_rig_play(&r, 1, 1);
    played_engine_hand_over(&r.engines[0]);
    swap_rig_await(&r, has_reloaded);
    while (r.engines[1].n_links == 0 || !swap_rig_is_settled(&r))
        swap_rig_turn(&r);
    now = engine_revision_get(r.model);
    assert_string_equal(now->hex, r.hex[0]);
    assert_int_equal(swap_rig_submit(&r, 0, now, &j), ST_OK);
    while (r.engines[0].n_jobs == 0)
        swap_rig_turn(&r);
    played_engine_finish(&r.engines[0]);
    while (j.n_ends == 0)
        swap_rig_turn(&r);
    assert_int_equal(j.end.status, ST_OK);
    engine_revision_put(now);
    swap_rig_set_file(&r, r.files[1]); /* tried again by itself */
    swap_rig_await(&r, swap_rig_has_file_1);
    swap_rig_close(&r);
}

static bool names_the_file(struct swap_rig *r)
{
    struct engine_stats st;

    engine_stats(r->engine, &st);
    return !st.connected && strstr(st.absence, "/nowhere/m.gguf") != NULL;
}

static void a_file_that_cannot_be_opened_is_named_and_tried_again(void **state)
{
    struct swap_rig r;

    (void)state;
    open_served(&r);
    swap_rig_play(&r, 1, 1);
    swap_rig_set_file(&r, "/nowhere/m.gguf");
    played_engine_hand_over(&r.engines[0]);
    swap_rig_await(&r, has_reloaded);
    assert_true(swap_rig_serves(&r));
    assert_int_equal(swap_rig_n_revisions(&r), 1);
    played_engine_close(&r.engines[0]);
    swap_rig_await(&r, names_the_file);
    swap_rig_set_file(&r, r.files[1]);
    swap_rig_await(&r, swap_rig_has_file_1);
    swap_rig_close(&r);
}

/* ---- the first revision ---- */

static void a_model_starts_without_a_file_that_cannot_be_opened(void **state)
{
    const struct engine_revision *now;
    struct engine_stats st;
    struct swap_job j;
    struct swap_rig r;

    (void)state;
    swap_rig_open_without(&r);
    swap_rig_play(&r, 0, 0);
    assert_false(swap_rig_has_revision(&r) || swap_rig_serves(&r));
    assert_true(names_the_file(&r));
    engine_stats_of(r.engine, r.model, &st);
    assert_true(st.last_step_age_ms == -1 && !st.stalled && !st.asleep);
    swap_rig_hold(&r, false);
    while (swap_rig_n_reloads(&r) < 2) /* tried again, in vain */
        swap_rig_turn(&r);
    assert_true(names_the_file(&r));
    swap_rig_set_file(&r, r.files[0]);
    swap_rig_await(&r, swap_rig_has_file_0);
    assert_true(swap_rig_is_settled(&r));
    assert_false(swap_rig_wants_change(&r));
    now = engine_revision_get(r.model);
    assert_int_equal(swap_rig_submit(&r, 1, now, &j), ST_OK);
    while (r.engines[0].n_jobs == 0)
        swap_rig_turn(&r);
    played_engine_finish(&r.engines[0]);
    while (j.n_ends == 0)
        swap_rig_turn(&r);
    assert_int_equal(j.end.status, ST_OK);
    engine_revision_put(now);
    swap_rig_close(&r);
}

/* As at the start: the engine may come at any time, and with another model. */
static void the_first_revision_waits_for_no_engine(void **state)
{
    struct swap_rig r;

    (void)state;
    swap_rig_open_without(&r);
    swap_rig_set_file(&r, r.files[0]);
    swap_rig_hold(&r, false);
    swap_rig_await(&r, swap_rig_has_revision);
    assert_false(swap_rig_serves(&r));
    swap_rig_set_file(&r, r.files[1]);
    swap_rig_play(&r, 1, 1);
    swap_rig_await(&r, swap_rig_has_file_1);
    swap_rig_close(&r);
}

static void links_may_close_while_the_first_revision_comes(void **state)
{
    (void)state;
    for (int turns = 0; turns < 12; turns++) {
        struct swap_rig r;

        swap_rig_open_without(&r);
        swap_rig_play(&r, 0, 0);
        swap_rig_set_file(&r, r.files[0]);
        if (turns % 2 == 0)
            swap_rig_hold(&r, false);
        for (int i = 0; i < turns; i++)
            swap_rig_turn(&r);
        swap_rig_close_links(&r);
        swap_rig_hold(&r, false);
        swap_rig_close(&r);
    }
}

/* ---- closing ---- */

static void links_may_close_at_any_moment_of_a_change(void **state)
{
    (void)state;
    for (int turns = 0; turns < 12; turns++) {
        struct swap_rig r;
        struct swap_job j;
        const struct engine_revision *held;

        open_served(&r);
        held = engine_revision_get(r.model);
        assert_int_equal(swap_rig_submit(&r, 0, held, &j), ST_OK);
        swap_rig_hand_over(&r, 0, 1, 1);
        for (int i = 0; i < turns; i++)
            swap_rig_turn(&r);
        swap_rig_close_links(&r);
        assert_int_equal(j.n_ends, 1);
        assert_int_equal(j.end.status, ST_UNAVAILABLE);
        engine_revision_put(held);
        swap_rig_close(&r);
    }
}

/* The loop that is left doesn't wait for the one that went. */
static void a_loop_may_leave_during_a_change(void **state)
{
    struct swap_rig r;

    (void)state;
    open_served(&r);
    swap_rig_set_file(&r, r.files[1]);
    swap_rig_play(&r, 1, 1);
    r.engines[1].greets_max = 0;
    played_engine_hand_over(&r.engines[0]);
    while (played_engine_n_open(&r.engines[1]) < SWAP_LOOPS)
        swap_rig_turn(&r);
    engine_link_close(r.links[1]);
    r.links[1] = NULL;
    r.engines[1].greets_max = PLAYED_LINKS_MAX;
    while (swap_rig_n_revisions(&r) > 1 || !engine_link_serves(r.links[0], r.model))
        swap_rig_turn(&r);
    assert_int_equal(engine_link_open(r.engine, r.loops[1], &r.links[1]), ST_OK);
    swap_rig_await(&r, swap_rig_has_file_1);
    swap_rig_close(&r);
}

/* ---- other threads ---- */

struct taker {
    const struct engine_model *model;
    atomic_bool stops;
    uint64_t n;
};

static void *take_and_put(void *arg)
{
    struct taker *t = arg;

    do {
        const struct engine_revision *r = engine_revision_get(t->model);
        char bytes[16];

        t->n += engine_token_bytes(r, 5, bytes, sizeof bytes);
        engine_revision_put(r);
    } while (!atomic_load(&t->stops));
    return NULL;
}

static void revisions_are_held_and_put_on_any_thread(void **state)
{
    struct taker takers[2] = {0};
    pthread_t threads[2];
    struct swap_rig r;

    (void)state;
    open_served(&r);
    for (size_t i = 0; i < COUNT_OF(takers); i++) {
        takers[i].model = r.model;
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_put, &takers[i]), 0);
    }
    for (size_t i = 0; i < 10; i++) {
        swap_rig_hand_over(&r, i % 2, 1 - i % 2, 1 - i % 2);
        while (!has_changed(&r, i % 2, 1 - i % 2, 1 - i % 2))
            swap_rig_turn(&r);
    }
    for (size_t i = 0; i < COUNT_OF(takers); i++) {
        atomic_store(&takers[i].stops, true);
        pthread_join(threads[i], NULL);
        assert_true(takers[i].n > 0);
    }
    swap_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(old_requests_end_where_they_are_and_new_ones_go_to_the_new_engine),
        cmocka_unit_test(the_old_engine_serves_until_every_loop_has_the_new_one),
        cmocka_unit_test(an_engine_of_the_same_model_takes_over_as_well),
        cmocka_unit_test(a_handover_amid_another_one_is_not_forgotten),
        cmocka_unit_test(a_hundred_changes_leave_one_revision),
        cmocka_unit_test(an_engine_that_comes_back_with_another_model_heals),
        cmocka_unit_test(an_engine_that_comes_back_as_it_was_ends_the_change),
        cmocka_unit_test(an_engine_of_another_model_than_the_file_gets_no_requests),
        cmocka_unit_test(a_file_that_cannot_be_opened_is_named_and_tried_again),
        cmocka_unit_test(a_model_starts_without_a_file_that_cannot_be_opened),
        cmocka_unit_test(the_first_revision_waits_for_no_engine),
        cmocka_unit_test(links_may_close_while_the_first_revision_comes),
        cmocka_unit_test(links_may_close_at_any_moment_of_a_change),
        cmocka_unit_test(a_loop_may_leave_during_a_change),
        cmocka_unit_test(revisions_are_held_and_put_on_any_thread),
    };

    log_init("test", LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
