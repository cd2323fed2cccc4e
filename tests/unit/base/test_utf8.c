/* UTF-8 against the table of the Unicode Standard (chapter 3, table 3-7: well-formed sequences). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/size.h"
#include "base/utf8.h"
#include "tests/lib/splitmix64.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

/* The table as it is printed: a row per range of first bytes, then the ranges of those that follow.
 */
static const struct {
    int len;
    struct {
        uint8_t from, to;
    } bytes[4];
} well_formed[] = {
    {1, {{0x00, 0x7F}}},
    {2, {{0xC2, 0xDF}, {0x80, 0xBF}}},
    {3, {{0xE0, 0xE0}, {0xA0, 0xBF}, {0x80, 0xBF}}},
    {3, {{0xE1, 0xEC}, {0x80, 0xBF}, {0x80, 0xBF}}},
    {3, {{0xED, 0xED}, {0x80, 0x9F}, {0x80, 0xBF}}},
    {3, {{0xEE, 0xEF}, {0x80, 0xBF}, {0x80, 0xBF}}},
    {4, {{0xF0, 0xF0}, {0x90, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}}},
    {4, {{0xF1, 0xF3}, {0x80, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}}},
    {4, {{0xF4, 0xF4}, {0x80, 0x8F}, {0x80, 0xBF}, {0x80, 0xBF}}},
};

/* What utf8_decode shall say: a row that the bytes fill, or begin (-1), or neither (0). */
static int by_table(const uint8_t *s, size_t len)
{
    for (size_t row = 0; row < COUNT_OF(well_formed); row++) {
        const size_t n = (size_t)well_formed[row].len;
        size_t i = 0;

        while (i < n && i < len && s[i] >= well_formed[row].bytes[i].from &&
               s[i] <= well_formed[row].bytes[i].to)
            i++;
        if (i == n)
            return (int)n;
        if (i == len)
            return -1;
    }
    return 0;
}

/* The payload bits, by the definition of the encoding forms (table 3-6). */
static uint32_t code_point(const uint8_t *s, int len)
{
    switch (len) {
    case 1:
        return s[0];
    case 2:
        return (s[0] - 0xC0u) * 64 + (s[1] - 0x80u);
    case 3:
        return ((s[0] - 0xE0u) * 64 + (s[1] - 0x80u)) * 64 + (s[2] - 0x80u);
    default:
        return (((s[0] - 0xF0u) * 64 + (s[1] - 0x80u)) * 64 + (s[2] - 0x80u)) * 64 + (s[3] - 0x80u);
    }
}

static void assert_as_by_table(const uint8_t *s, size_t len)
{
    const int expected = by_table(s, len);
    uint32_t cp = 0xDEAD;

    if (utf8_decode((const char *)s, len, &cp) != expected ||
        cp != (expected > 0 ? code_point(s, expected) : 0xDEAD))
        fail_msg("%zu bytes: %02x %02x %02x %02x", len, s[0], s[1], s[2], s[3]);
}

static void test_every_beginning_is_judged_as_by_the_table(void **state)
{
    uint8_t s[4] = {0};

    (void)state;
    assert_as_by_table(s, 0);
    for (unsigned two = 0; two < 0x10000; two++) {
        s[0] = (uint8_t)(two >> 8);
        s[1] = (uint8_t)two;
        assert_as_by_table(s, 1);
        assert_as_by_table(s, 2);
    }
}

static void test_third_and_fourth_bytes_are_judged_at_their_edges(void **state)
{
    static const uint8_t edges[] = {0x00, 0x7F, 0x80, 0x81, 0x8F, 0x90, 0x9F,
                                    0xA0, 0xBE, 0xBF, 0xC0, 0xC2, 0xE0, 0xFF};

    (void)state;
    for (unsigned two = 0; two < 0x10000; two++)
        for (size_t a = 0; a < COUNT_OF(edges); a++)
            for (size_t b = 0; b < COUNT_OF(edges); b++) {
                const uint8_t s[4] = {(uint8_t)(two >> 8), (uint8_t)two, edges[a], edges[b]};

                assert_as_by_table(s, 3);
                assert_as_by_table(s, 4);
            }
}

static void test_every_code_point_comes_back(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        char out[5] = {0, 0, 0, 0, 'x'};
        uint32_t back;
        size_t n;

        if (cp == 0xD800)
            cp = 0xE000;
        n = utf8_encode(cp, out);
        if (utf8_decode(out, n, &back) != (int)n || back != cp || out[4] != 'x')
            fail_msg("U+%04X", cp);
    }
}

static void test_what_is_no_code_point_has_no_valid_bytes(void **state)
{
    (void)state;
    /* Surrogates, in UTF-8's scheme and as the pair that CESU-8 writes; five and six bytes. */
    assert_false(utf8_is_valid("\xED\xA0\x80", 3));
    assert_false(utf8_is_valid("\xED\xA0\xBD\xED\xB8\x80", 6));
    assert_false(utf8_is_valid("\xF8\x88\x80\x80\x80", 5));
    assert_false(utf8_is_valid("\xFC\x84\x80\x80\x80\x80", 6));
    assert_false(utf8_is_valid("\xF4\x90\x80\x80", 4));
    /* NUL, short and long. */
    assert_true(utf8_is_valid("a\0b", 3));
    assert_false(utf8_is_valid("\xC0\x80", 2));
    assert_true(utf8_is_valid("", 0));
}

/* Rows of valid characters, most of them damaged in a byte. */
static void test_a_text_is_valid_when_every_character_is(void **state)
{
    uint64_t seed = 1;
    int valid = 0;

    (void)state;
    for (int round = 0; round < 100000; round++) {
        char text[40];
        size_t len = 0, at = 0;
        int n = 1;

        while (len < 30) {
            uint32_t cp = (uint32_t)(splitmix64(&seed) % (0x80u << splitmix64(&seed) % 14));

            len += utf8_encode(cp >= 0xD800 && cp < 0xE000 ? 'a' : cp, text + len);
        }
        if (splitmix64(&seed) % 4 != 0)
            text[splitmix64(&seed) % len] = (char)splitmix64(&seed);
        len -= splitmix64(&seed) % 2;
        while (at < len && n > 0) {
            n = by_table((const uint8_t *)text + at, len - at);
            at += n > 0 ? (size_t)n : 0;
        }
        assert_int_equal(utf8_is_valid(text, len), n > 0);
        valid += n > 0;
    }
    assert_in_range(valid, 10000, 90000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_beginning_is_judged_as_by_the_table),
        cmocka_unit_test(test_third_and_fourth_bytes_are_judged_at_their_edges),
        cmocka_unit_test(test_every_code_point_comes_back),
        cmocka_unit_test(test_what_is_no_code_point_has_no_valid_bytes),
        cmocka_unit_test(test_a_text_is_valid_when_every_character_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
