/* A cursor over bytes from outside never leaves them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/reader.h"
#include "base/size.h"
#include "tests/lib/splitmix64.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static void test_scalars_are_little_endian(void **state)
{
    static const uint8_t bytes[] = {0x01, 0x03, 0x02, 0x07, 0x06, 0x05, 0x04, 0x0F,
                                    0x0E, 0x0D, 0x0C, 0x0B, 0x0A, 0x09, 0x88};
    struct reader r;

    (void)state;
    reader_init(&r, bytes, sizeof bytes);
    assert_int_equal(reader_u8(&r), 0x01);
    assert_int_equal(reader_u16(&r), 0x0203);
    assert_int_equal(reader_u32(&r), 0x04050607);
    assert_true(reader_u64(&r) == 0x88090A0B0C0D0E0Fu);
    assert_int_equal(reader_left(&r), 0);
    assert_false(r.failed);
}

static void test_floats_keep_their_bits(void **state)
{
    static const uint8_t bytes[] = {0, 0, 0x80, 0xBF, 1, 0, 0,    0,
                                    0, 0, 0x80, 0x7F, 1, 0, 0xC0, 0xFF};
    struct reader r;

    (void)state;
    reader_init(&r, bytes, sizeof bytes);
    assert_true(reader_f32(&r) == -1.0f);
    assert_true(reader_f32(&r) == 0x1p-149f);
    assert_true(reader_f32(&r) == INFINITY);
    assert_true(isnan(reader_f32(&r)));
    assert_false(r.failed);
}

static void test_after_a_failed_read_nothing_is_read(void **state)
{
    static const uint8_t bytes[] = {1, 2, 3};
    struct reader r;

    (void)state;
    reader_init(&r, bytes, sizeof bytes);
    assert_int_equal(reader_u32(&r), 0);
    assert_true(r.failed);
    /* These would fit. */
    assert_int_equal(reader_u8(&r), 0);
    assert_int_equal(reader_u16(&r), 0);
    assert_null(reader_bytes(&r, 1));
    assert_null(reader_bytes(&r, 0));
    assert_true(reader_f32(&r) == 0);
}

static void test_no_length_wraps_around(void **state)
{
    static const uint8_t bytes[8] = {0};

    (void)state;
    for (size_t n = SIZE_MAX; n > SIZE_MAX - 16; n--) {
        struct reader r;

        reader_init(&r, bytes, sizeof bytes);
        (void)reader_u8(&r);
        assert_null(reader_bytes(&r, n));
        assert_true(r.failed);
    }
}

static void test_no_bytes_have_an_end_too(void **state)
{
    struct reader r;

    (void)state;
    reader_init(&r, NULL, 0);
    (void)reader_bytes(&r, 0);
    assert_false(r.failed);
    assert_int_equal(reader_u8(&r), 0);
    assert_true(r.failed);
}

static void test_bytes_are_borrowed_not_copied(void **state)
{
    static const uint8_t bytes[] = {1, 2, 3, 4};
    struct reader r;

    (void)state;
    reader_init(&r, bytes, sizeof bytes);
    assert_ptr_equal(reader_bytes(&r, 3), bytes);
    assert_ptr_equal(reader_bytes(&r, 1), bytes + 3);
    assert_null(reader_bytes(&r, 1));
}

/* One of the five scalars, into its bits; its size is added to *size. */
static uint64_t read_one(struct reader *r, uint64_t kind, size_t *size)
{
    float f;
    uint32_t bits;

    switch (kind) {
    case 0:
        *size += 1;
        return reader_u8(r);
    case 1:
        *size += 2;
        return reader_u16(r);
    case 2:
        *size += 4;
        return reader_u32(r);
    case 3:
        *size += 8;
        return reader_u64(r);
    default:
        *size += 4;
        f = reader_f32(r);
        memcpy(&bits, &f, sizeof bits);
        return bits;
    }
}

static void write_one(struct buf *b, uint64_t kind, uint64_t v)
{
    switch (kind) {
    case 0:
        buf_put_u8(b, (uint8_t)v);
        break;
    case 1:
        buf_put_u16(b, (uint16_t)v);
        break;
    case 3:
        buf_put_u64(b, v);
        break;
    default:
        buf_put_u32(b, (uint32_t)v);
    }
}

/* Rows of scalars, cut anywhere: each is read as written as long as it lies before the cut. */
static void test_what_a_buffer_wrote_is_read_up_to_the_cut(void **state)
{
    static const uint64_t mask[] = {0xFF, 0xFFFF, 0xFFFFFFFF, UINT64_MAX, 0x7FFFFFFF};
    uint64_t seed = 1;
    struct buf b;

    (void)state;
    buf_init(&b);
    for (int round = 0; round < 5000; round++) {
        uint64_t kinds[12], values[12];
        size_t cut, at = 0;
        struct reader r;
        char *copy;

        buf_clear(&b);
        for (size_t i = 0; i < COUNT_OF(kinds); i++) {
            kinds[i] = splitmix64(&seed) % 5;
            values[i] = splitmix64(&seed) & mask[kinds[i]];
            /* A signalling NaN may become a quiet one on its way through a register. */
            if (kinds[i] == 4)
                values[i] %= 0x7F800000;
            write_one(&b, kinds[i], values[i]);
        }
        cut = splitmix64(&seed) % (b.len + 1);
        /* In memory of just that size, so that a sanitizer sees a read past the cut. */
        copy = malloc(cut + (cut == 0));
        assert_non_null(copy);
        memcpy(copy, b.data, cut);
        reader_init(&r, copy, cut);
        for (size_t i = 0; i < COUNT_OF(kinds); i++) {
            const uint64_t v = read_one(&r, kinds[i], &at);

            assert_true(v == (at <= cut ? values[i] : 0));
            assert_int_equal(r.failed, at > cut);
        }
        free(copy);
    }
    buf_dispose(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars_are_little_endian),
        cmocka_unit_test(test_floats_keep_their_bits),
        cmocka_unit_test(test_after_a_failed_read_nothing_is_read),
        cmocka_unit_test(test_no_length_wraps_around),
        cmocka_unit_test(test_no_bytes_have_an_end_too),
        cmocka_unit_test(test_bytes_are_borrowed_not_copied),
        cmocka_unit_test(test_what_a_buffer_wrote_is_read_up_to_the_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
