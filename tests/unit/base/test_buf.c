/* A buffer that grows, its limit, and what a failed one still promises. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/size.h"
#include "tests/lib/splitmix64.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static void test_an_empty_one_is_an_empty_string(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b);
    assert_string_equal(buf_cstr(&b), "");
    buf_append(&b, NULL, 0);
    buf_consume(&b, 0);
    buf_puts(&b, "");
    assert_int_equal(b.len, 0);
    assert_false(b.failed);
    buf_dispose(&b);
    buf_dispose(&b);
}

/* Appends and consumes of random sizes, against an array that holds all that was appended. */
static void test_what_goes_in_comes_out_in_order(void **state)
{
    static char all[200000];
    uint64_t seed = 1;
    size_t from = 0, to = 0;
    struct buf b;

    (void)state;
    buf_init(&b);
    while (to < sizeof all - 300) {
        const size_t more = splitmix64(&seed) % 300;
        const size_t less = splitmix64(&seed) % 290;

        for (size_t i = 0; i < more; i++)
            all[to + i] = (char)splitmix64(&seed);
        buf_append(&b, all + to, more);
        to += more;
        from += less < to - from ? less : to - from;
        buf_consume(&b, less);
        assert_int_equal(b.len, to - from);
        assert_memory_equal(b.len > 0 ? b.data : "", all + from, b.len);
        /* The NUL has room and is no part of it. */
        assert_int_equal(buf_cstr(&b)[b.len], 0);
    }
    assert_false(b.failed);
    buf_dispose(&b);
}

static void test_its_limit_is_the_last_length_that_fits(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b);
    b.limit = 5;
    buf_puts(&b, "12345");
    assert_false(b.failed);
    assert_string_equal(buf_cstr(&b), "12345");
    buf_putc(&b, '6');
    assert_true(b.failed);
    buf_dispose(&b);
}

static void test_a_failed_one_takes_nothing_until_it_is_cleared(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b);
    b.limit = 4;
    buf_puts(&b, "ab");
    buf_printf(&b, "%d", 123);
    assert_true(b.failed);
    /* These would fit. */
    buf_putc(&b, 'c');
    buf_put_u8(&b, 'd');
    buf_printf(&b, "%c", 'e');
    assert_int_equal(b.len, 2);
    assert_string_equal(buf_cstr(&b), "");
    assert_false(buf_reserve(&b, 0));
    buf_clear(&b);
    buf_puts(&b, "1234");
    assert_string_equal(buf_cstr(&b), "1234");
    buf_putc(&b, '5');
    assert_true(b.failed);
    buf_dispose(&b);
}

static void test_a_size_that_overflows_is_refused(void **state)
{
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 1};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct buf b;

        buf_init(&b);
        buf_putc(&b, 'a');
        assert_false(buf_reserve(&b, sizes[i]));
        assert_true(b.failed);
        assert_int_equal(b.len, 1);
        buf_dispose(&b);
    }
}

static void test_room_that_was_made_stays_where_it_is(void **state)
{
    const char *at;
    struct buf b;

    (void)state;
    buf_init(&b);
    assert_true(buf_reserve(&b, 1000));
    at = b.data;
    for (int i = 0; i < 1000; i++)
        buf_putc(&b, 'x');
    assert_ptr_equal(buf_cstr(&b), at);
    /* Emptied, it keeps its memory. */
    buf_clear(&b);
    buf_printf(&b, "%1000s", "y");
    assert_ptr_equal(b.data, at);
    buf_dispose(&b);
}

static void test_text_of_a_format_is_whole_however_long(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b);
    buf_printf(&b, "%s", "");
    assert_int_equal(b.len, 0);
    for (int width = 1; width < 2000; width += 7) {
        buf_clear(&b);
        buf_printf(&b, "<%*d>", width, 5);
        assert_int_equal(b.len, width + 2);
        assert_string_equal(buf_cstr(&b) + width, "5>");
    }
    buf_dispose(&b);
}

static void test_consuming_more_than_there_is_empties_it(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b);
    buf_puts(&b, "abc");
    buf_consume(&b, 2);
    assert_string_equal(buf_cstr(&b), "c");
    buf_consume(&b, SIZE_MAX);
    assert_string_equal(buf_cstr(&b), "");
    buf_dispose(&b);
}

static void test_scalars_are_little_endian(void **state)
{
    static const uint8_t expected[] = {0x01, 0x03, 0x02, 0x07, 0x06, 0x05, 0x04, 0x0F,
                                       0x0E, 0x0D, 0x0C, 0x0B, 0x0A, 0x09, 0x08};
    struct buf b;

    (void)state;
    buf_init(&b);
    buf_put_u8(&b, 0x01);
    buf_put_u16(&b, 0x0203);
    buf_put_u32(&b, 0x04050607);
    buf_put_u64(&b, 0x08090A0B0C0D0E0Fu);
    assert_int_equal(b.len, sizeof expected);
    assert_memory_equal(b.data, expected, sizeof expected);
    buf_dispose(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_empty_one_is_an_empty_string),
        cmocka_unit_test(test_what_goes_in_comes_out_in_order),
        cmocka_unit_test(test_its_limit_is_the_last_length_that_fits),
        cmocka_unit_test(test_a_failed_one_takes_nothing_until_it_is_cleared),
        cmocka_unit_test(test_a_size_that_overflows_is_refused),
        cmocka_unit_test(test_room_that_was_made_stays_where_it_is),
        cmocka_unit_test(test_text_of_a_format_is_whole_however_long),
        cmocka_unit_test(test_consuming_more_than_there_is_empties_it),
        cmocka_unit_test(test_scalars_are_little_endian),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
