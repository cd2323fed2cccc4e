#include "engine/core/logprob_queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/size.h"

static const struct token_logprob tops[] = {{1, -1.0f}, {2, -2.0f}, {3, -3.0f}};

static void push(struct logprob_queue *q, int32_t id, uint64_t end)
{
    const struct token_logprob own[] = {{id, -0.5f}, {id + 1, -1.5f}};
    const struct token_sample t = {.id = id, .logprob = -0.5f, .tops = own, .n_tops = 2};

    logprob_queue_push(q, &t, end);
}

static void test_samples_leave_in_order_when_their_last_byte_is_out(void **state)
{
    struct token_sample out[4];
    struct logprob_queue q;

    (void)state;
    assert_int_equal(logprob_queue_init(&q, 3, 2), ST_OK);
    push(&q, 10, 2);
    push(&q, 11, 3);
    push(&q, 12, 7);
    assert_int_equal(logprob_queue_take(&q, 1, out), 0);
    assert_int_equal(logprob_queue_take(&q, 6, out), 2);
    assert_true(out[0].id == 10 && out[1].id == 11);
    assert_int_equal(logprob_queue_take(&q, 6, out), 0);
    assert_int_equal(logprob_queue_take(&q, 7, out), 1);
    assert_int_equal(out[0].id, 12);
    logprob_queue_dispose(&q);
}

/* Full, half taken and filled again, so that it wraps around at every place. */
static void test_what_wraps_around_keeps_its_tops(void **state)
{
    struct token_sample out[4];
    struct logprob_queue q;
    uint64_t pushed = 0, taken = 0;

    (void)state;
    assert_int_equal(logprob_queue_init(&q, 3, 2), ST_OK);
    while (taken < 100) {
        while (pushed < taken + 4) {
            push(&q, (int32_t)pushed, pushed);
            pushed++;
        }
        assert_int_equal(logprob_queue_take(&q, taken + 2, out), 3);
        for (uint64_t i = 0; i < 3; i++, taken++) {
            assert_int_equal(out[i].id, taken);
            assert_int_equal(out[i].n_tops, 2);
            assert_int_equal(out[i].tops[0].id, taken);
            assert_int_equal(out[i].tops[1].id, taken + 1);
        }
    }
    logprob_queue_dispose(&q);
}

static void test_no_more_tops_are_kept_than_were_asked_for(void **state)
{
    const struct token_sample t = {.id = 1, .tops = tops, .n_tops = COUNT_OF(tops)};
    struct token_sample out[1];

    (void)state;
    for (uint32_t n = 0; n < 2; n++) {
        struct logprob_queue q;

        assert_int_equal(logprob_queue_init(&q, 0, n), ST_OK);
        logprob_queue_push(&q, &t, 1);
        assert_int_equal(logprob_queue_take(&q, 1, out), 1);
        assert_int_equal(out[0].n_tops, n);
        logprob_queue_dispose(&q);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples_leave_in_order_when_their_last_byte_is_out),
        cmocka_unit_test(test_what_wraps_around_keeps_its_tops),
        cmocka_unit_test(test_no_more_tops_are_kept_than_were_asked_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
