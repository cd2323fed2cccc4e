/* What waits for clients: the bytes of all answers against their bound, and the chunks of one
 * stream. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "api/answers.h"
#include "api/event_queue.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

/* ---- all of them ---- */

static void the_largest_must_end_and_only_while_too_much_is_held(void **state)
{
    struct answers all = {.max = 100};
    struct answer_list l = {.all = &all};
    struct answer a = {0}, b = {0}, c = {0};

    (void)state;
    answers_hold(&l, &a, 30);
    answers_hold(&l, &b, 50);
    answers_hold(&l, &c, 20);
    assert_false(answers_are_full(&all));
    assert_null(answers_excess(&l));
    answers_hold(&l, &c, 21);
    assert_true(answers_are_full(&all));
    assert_ptr_equal(answers_excess(&l), &b);
    b.state = ANSWER_CUT; /* its bytes are still there, but nothing can be done */
    answers_hold(&l, &a, 40);
    assert_ptr_equal(answers_excess(&l), &a);
    answers_hold(&l, &b, 0);
    assert_null(answers_excess(&l));
    answers_hold(&l, &a, 0);
    answers_hold(&l, &c, 0);
    assert_int_equal(all.held, 0);
    assert_int_equal(all.n, 0);
    assert_null(l.first);
}

/* Whose loop it grows on is no matter: a small one is not ended for another loop's large one. */
static void the_largest_is_ended_on_its_own_loop(void **state)
{
    struct answers all = {.max = 100};
    struct answer_list here = {.all = &all}, there = {.all = &all};
    struct answer small[3] = {{0}}, large = {0};

    (void)state;
    for (size_t i = 0; i < 3; i++)
        answers_hold(&here, &small[i], 5);
    answers_hold(&there, &large, 90);
    assert_true(answers_are_full(&all));
    assert_null(answers_excess(&here));
    assert_ptr_equal(answers_excess(&there), &large);
}

static void a_list_lets_go_at_any_place(void **state)
{
    struct answers all = {.max = 10};
    struct answer_list l = {.all = &all};
    struct answer a[4] = {{0}};

    (void)state;
    for (size_t i = 0; i < 4; i++)
        answers_hold(&l, &a[i], 10 + i);
    answers_hold(&l, &a[1], 0);
    answers_hold(&l, &a[3], 0);
    assert_ptr_equal(answers_excess(&l), &a[2]);
    answers_hold(&l, &a[2], 0);
    assert_ptr_equal(l.first, &a[0]);
    answers_hold(&l, &a[0], 0);
    assert_null(l.first);
    assert_int_equal(all.held, 0);
}

/* ---- one stream ---- */

static void put_event(struct event_queue *q, char fill, size_t len)
{
    for (size_t i = 0; i < len; i++)
        buf_putc(&q->pending, fill);
    buf_puts(&q->pending, "\n\n");
}

static bool is_whole_events(const struct buf *b)
{
    return b->len >= 2 && memcmp(b->data + b->len - 2, "\n\n", 2) == 0;
}

static void a_stream_comes_out_as_it_went_in_by_whole_events(void **state)
{
    struct event_queue q;
    struct buf all, got;
    size_t n_chunks = 0;

    (void)state;
    event_queue_init(&q, (size_t)8 << 20);
    buf_init(&all);
    buf_init(&got);
    for (size_t i = 0; i < 900; i++)
        put_event(&q, (char)('a' + i % 26), i * 7 % 3001);
    put_event(&q, 'L', 3 * EVENT_CHUNK_BYTES); /* longer than a chunk */
    put_event(&q, 's', 1);
    buf_append(&all, q.pending.data, q.pending.len);
    while (event_queue_waiting(&q) > 0) {
        event_queue_take(&q);
        assert_true(is_whole_events(&q.sending));
        assert_true(q.sending.len <= EVENT_CHUNK_BYTES || q.sending.data[0] == 'L');
        buf_append(&got, q.sending.data, q.sending.len);
        assert_int_equal(event_queue_held(&q), all.len - got.len + q.sending.len);
        event_queue_sent(&q);
        n_chunks++;
    }
    assert_true(n_chunks > all.len / EVENT_CHUNK_BYTES - 4);
    assert_int_equal(got.len, all.len);
    assert_memory_equal(got.data, all.data, all.len);
    assert_int_equal(event_queue_held(&q), 0);
    event_queue_dispose(&q);
    buf_dispose(&all);
    buf_dispose(&got);
}

static void what_waits_can_be_dropped_and_another_event_follow(void **state)
{
    struct event_queue q;

    (void)state;
    event_queue_init(&q, (size_t)8 << 20);
    for (size_t i = 0; i < 100; i++)
        put_event(&q, 'x', 1500);
    event_queue_take(&q);
    event_queue_drop(&q);
    assert_int_equal(event_queue_waiting(&q), 0);
    assert_int_equal(event_queue_held(&q), q.sending.len);
    assert_true(is_whole_events(&q.sending) && q.sending.len <= EVENT_CHUNK_BYTES);
    put_event(&q, 'e', 5);
    event_queue_sent(&q);
    event_queue_take(&q);
    assert_int_equal(q.sending.len, 7);
    assert_memory_equal(q.sending.data, "eeeee\n\n", 7);
    event_queue_dispose(&q);
}

/* Bytes that were taken are none that wait. */
static void the_bound_is_of_what_waits(void **state)
{
    struct event_queue q;

    (void)state;
    event_queue_init(&q, 4 * EVENT_CHUNK_BYTES);
    for (size_t round = 0; round < 50; round++) {
        while (event_queue_waiting(&q) + 1002 <= 4 * EVENT_CHUNK_BYTES)
            put_event(&q, 'x', 1000);
        assert_false(q.pending.failed);
        event_queue_take(&q);
        event_queue_sent(&q);
    }
    for (size_t i = 0; i < 200; i++)
        put_event(&q, 'x', 1000);
    assert_true(q.pending.failed);
    event_queue_dispose(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_must_end_and_only_while_too_much_is_held),
        cmocka_unit_test(the_largest_is_ended_on_its_own_loop),
        cmocka_unit_test(a_list_lets_go_at_any_place),
        cmocka_unit_test(a_stream_comes_out_as_it_went_in_by_whole_events),
        cmocka_unit_test(what_waits_can_be_dropped_and_another_event_follow),
        cmocka_unit_test(the_bound_is_of_what_waits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
