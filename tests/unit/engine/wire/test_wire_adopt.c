/* The frames of version 3: adoption and watching. */
#include "engine/wire/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include "base/size.h"

#include <cmocka.h>

static struct buf frame;

static int setup(void **state)
{
    (void)state;
    buf_init(&frame);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    buf_dispose(&frame);
    return 0;
}

static struct wire_frame scanned(enum wire_type type)
{
    struct wire_frame f;
    size_t used;

    assert_int_equal(wire_scan(frame.data, frame.len, &f, &used), WIRE_SCAN_FRAME);
    assert_int_equal(used, frame.len);
    assert_int_equal(f.type, type);
    return f;
}

static struct wire_requests requests(uint32_t n)
{
    struct wire_requests r = {.n = n};

    for (uint32_t i = 0; i < n; i++)
        memset(r.ids[i].bytes, (int)(i + 1), sizeof r.ids[i].bytes);
    return r;
}

static void test_lists_of_requests_come_back_as_they_were(void **state)
{
    static const uint32_t counts[] = {1, 2, WIRE_CLAIM_MAX};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        struct wire_requests in = requests(counts[i]), out;
        struct wire_frame f;

        buf_clear(&frame);
        wire_put_claim(&frame, &in);
        f = scanned(WIRE_CLAIM);
        assert_int_equal(wire_get_claim(&f, &out), ST_OK);
        assert_int_equal(out.n, in.n);
        assert_memory_equal(out.ids, in.ids, in.n * sizeof in.ids[0]);
        buf_clear(&frame);
        wire_put_release(&frame, &in);
        f = scanned(WIRE_RELEASE);
        assert_int_equal(wire_get_release(&f, &out), ST_OK);
        assert_memory_equal(out.ids, in.ids, in.n * sizeof in.ids[0]);
    }
}

static void test_a_list_of_another_length_than_it_says_is_refused(void **state)
{
    static const uint32_t said[] = {0, 1, 3, WIRE_CLAIM_MAX + 1, UINT32_MAX};
    struct wire_requests in = requests(2), out;
    struct wire_frame f;

    (void)state;
    wire_put_claim(&frame, &in);
    f = scanned(WIRE_CLAIM);
    for (size_t i = 0; i < COUNT_OF(said); i++) {
        memcpy(frame.data + WIRE_HEADER_BYTES, &said[i], sizeof said[i]);
        assert_int_equal(wire_get_claim(&f, &out), ST_CORRUPT);
        assert_int_equal(wire_get_release(&f, &out), ST_CORRUPT);
    }
}

static void test_an_end_comes_back_as_it_was(void **state)
{
    struct wire_settled in = {.request = {{7, 8, 9}},
                              .is_known = true,
                              .prompt_tokens = 100,
                              .cached_tokens = 64,
                              .output_tokens = 5},
                        out;
    struct wire_frame f;

    (void)state;
    wire_put_settled(&frame, &in);
    f = scanned(WIRE_SETTLED);
    assert_int_equal(wire_get_settled(&f, &out), ST_OK);
    assert_true(id_equal(&out.request, &in.request));
    assert_true(out.is_known);
    assert_int_equal(out.prompt_tokens, 100);
    assert_int_equal(out.cached_tokens, 64);
    assert_int_equal(out.output_tokens, 5);
    f.len--;
    assert_int_equal(wire_get_settled(&f, &out), ST_CORRUPT);
}

static void test_an_end_that_contradicts_itself_is_refused(void **state)
{
    static const struct wire_settled wrong[] = {
        {.is_known = true, .prompt_tokens = 1, .cached_tokens = 2},
        {.is_known = false, .prompt_tokens = 1},
        {.is_known = false, .output_tokens = 1},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        struct wire_settled out;
        struct wire_frame f;

        buf_clear(&frame);
        wire_put_settled(&frame, &wrong[i]);
        f = scanned(WIRE_SETTLED);
        assert_int_equal(wire_get_settled(&f, &out), ST_CORRUPT);
    }
}

static void test_a_frame_without_a_body_has_none(void **state)
{
    static const enum wire_type bare[] = {WIRE_MONITOR, WIRE_HANDOVER, WIRE_WAKE, WIRE_SLEEP};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(bare); i++) {
        struct wire_frame f;

        buf_clear(&frame);
        wire_put_bare(&frame, bare[i]);
        f = scanned(bare[i]);
        assert_int_equal(wire_get_bare(&f), ST_OK);
        f.len = 1;
        assert_int_equal(wire_get_bare(&f), ST_CORRUPT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lists_of_requests_come_back_as_they_were, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_list_of_another_length_than_it_says_is_refused,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_end_comes_back_as_it_was, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_end_that_contradicts_itself_is_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_a_frame_without_a_body_has_none, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
