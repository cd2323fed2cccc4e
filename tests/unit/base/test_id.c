/* Identifiers: their layout (RFC 9562, section 5.7), their two spellings, and that they differ. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "base/size.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static void test_time_version_and_variant_stand_where_the_rfc_says(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        static const uint8_t time[] = {0x01, 0x7F, 0x22, 0xE2, 0x79, 0xB0};
        /* The time of the example in the appendix of RFC 9562. */
        const struct id id = id_new(0x017F22E279B0);

        assert_memory_equal(id.bytes, time, sizeof time);
        assert_int_equal(id.bytes[6] >> 4, 7);
        assert_int_equal(id.bytes[8] >> 6, 2);
    }
}

static void test_a_later_one_sorts_after_an_earlier_one(void **state)
{
    char before[ID_HEX_BYTES] = "", hex[ID_HEX_BYTES];

    (void)state;
    for (int64_t ms = 1; ms < (int64_t)1 << 47; ms = ms * 3 + 1) {
        const struct id id = id_new(ms);

        id_to_hex(&id, hex);
        assert_true(strcmp(before, hex) < 0);
        memcpy(before, hex, sizeof before);
    }
}

static void test_every_other_bit_is_random(void **state)
{
    uint8_t ones[16] = {0}, zeros[16] = {0};

    (void)state;
    /* A bit that is the same in 200 of them is not random. */
    for (int i = 0; i < 200; i++) {
        const struct id id = id_new(0);

        for (size_t k = 0; k < sizeof id.bytes; k++) {
            ones[k] |= id.bytes[k];
            zeros[k] |= (uint8_t)~id.bytes[k];
        }
    }
    for (size_t k = 6; k < sizeof ones; k++) {
        const uint8_t fixed = k == 6 ? 0xF0 : k == 8 ? 0xC0 : 0;

        assert_int_equal((ones[k] & zeros[k]) | fixed, 0xFF);
    }
}

static void test_two_of_one_millisecond_differ(void **state)
{
    struct id ids[300];

    (void)state;
    for (size_t i = 0; i < COUNT_OF(ids); i++) {
        ids[i] = id_new(1700000000000);
        for (size_t k = 0; k < i; k++)
            assert_false(id_equal(&ids[i], &ids[k]));
        assert_true(id_equal(&ids[i], &ids[i]));
    }
}

static void test_both_spellings_are_of_the_same_bytes(void **state)
{
    const struct id id = {{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x76, 0x77, 0x88, 0x99, 0xAA, 0xBB,
                           0xCC, 0xDD, 0xEE, 0xFF}};
    char hex[ID_HEX_BYTES], uuid[ID_UUID_BYTES];

    (void)state;
    id_to_hex(&id, hex);
    id_to_uuid(&id, uuid);
    assert_string_equal(hex, "0011223344557677"
                             "8899aabbccddeeff");
    assert_string_equal(uuid, "00112233-4455-7677-8899-aabbccddeeff");
}

static void test_hex_has_two_digits_for_every_byte(void **state)
{
    uint8_t all[256];
    char hex[2 * sizeof all + 1];

    (void)state;
    for (size_t i = 0; i < sizeof all; i++)
        all[i] = (uint8_t)i;
    hex_encode(all, sizeof all, hex);
    assert_int_equal(strlen(hex), 2 * sizeof all);
    for (size_t i = 0; i < sizeof all; i++) {
        char pair[3];

        snprintf(pair, sizeof pair, "%02x", (unsigned)i);
        assert_memory_equal(hex + 2 * i, pair, 2);
    }
    hex_encode("", 0, hex);
    assert_string_equal(hex, "");
}

static void test_random_bytes_fill_all_and_only_what_was_asked(void **state)
{
    uint8_t bytes[600] = {0}, seen[512] = {0};

    (void)state;
    /* Over 256 bytes the kernel may give fewer at once (getrandom(2)). */
    for (int i = 0; i < 10; i++) {
        random_bytes(bytes, sizeof seen);
        for (size_t k = 0; k < sizeof seen; k++)
            seen[k] |= bytes[k];
    }
    for (size_t k = 0; k < sizeof seen; k++)
        assert_int_not_equal(seen[k], 0);
    for (size_t k = sizeof seen; k < sizeof bytes; k++)
        assert_int_equal(bytes[k], 0);
    random_bytes(NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time_version_and_variant_stand_where_the_rfc_says),
        cmocka_unit_test(test_a_later_one_sorts_after_an_earlier_one),
        cmocka_unit_test(test_every_other_bit_is_random),
        cmocka_unit_test(test_two_of_one_millisecond_differ),
        cmocka_unit_test(test_both_spellings_are_of_the_same_bytes),
        cmocka_unit_test(test_hex_has_two_digits_for_every_byte),
        cmocka_unit_test(test_random_bytes_fill_all_and_only_what_was_asked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
