/* The text of keys, and what is stored of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "auth/keys.h"
#include "base/id.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define PEPPER "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

static bool parses(const char *text, size_t len)
{
    const char *id, *secret;
    size_t id_len, secret_len;

    return key_parse(text, len, &id, &id_len, &secret, &secret_len);
}

static void test_a_fresh_key_parses_into_its_parts(void **state)
{
    char key[KEY_TEXT_BYTES], other[KEY_TEXT_BYTES];
    const char *id, *secret;
    size_t id_len, secret_len;

    (void)state;
    key_make(key);
    key_make(other);
    assert_string_not_equal(key, other);
    assert_int_equal(strlen(key), KEY_CHARS);
    assert_true(key_parse(key, strlen(key), &id, &id_len, &secret, &secret_len));
    assert_int_equal(id_len, KEY_PUBLIC_ID_CHARS);
    assert_int_equal(secret_len, KEY_SECRET_CHARS);
    assert_ptr_equal(id, key + strlen(KEY_PREFIX));
    assert_ptr_equal(secret, id + id_len + 1);
}

static void test_any_changed_character_is_a_typing_error(void **state)
{
    char key[KEY_TEXT_BYTES];

    (void)state;
    key_make(key);
    for (size_t i = 0; i < KEY_CHARS; i++) {
        char was = key[i];

        key[i] = was == 'x' ? 'y' : 'x';
        assert_false(parses(key, KEY_CHARS));
        key[i] = '\0';
        assert_false(parses(key, KEY_CHARS));
        key[i] = was;
    }
    assert_true(parses(key, KEY_CHARS));
}

static void test_other_lengths_are_refused(void **state)
{
    char key[KEY_TEXT_BYTES];

    (void)state;
    key_make(key);
    for (size_t len = 0; len < KEY_CHARS; len++) {
        char *exact = malloc(len + 1); /* so that a sanitizer sees any look past the end */

        assert_non_null(exact);
        memcpy(exact, key, len);
        assert_false(parses(exact, len));
        free(exact);
    }
    assert_false(parses(key, KEY_CHARS + 1));
}

static void test_the_mac_is_hmac_sha_256(void **state)
{
    /* RFC 4231, test case 2 */
    static const uint8_t expected[KEY_MAC_BYTES] = {0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e,
                                                    0x6a, 0x04, 0x24, 0x26, 0x08, 0x95, 0x75, 0xc7,
                                                    0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27, 0x39, 0x83,
                                                    0x9d, 0xec, 0x58, 0xb9, 0x64, 0xec, 0x38, 0x43};
    static const char text[] = "what do ya want for nothing?";
    uint8_t mac[KEY_MAC_BYTES];

    (void)state;
    key_mac("Jefe", text, strlen(text), mac);
    assert_true(key_mac_equal(mac, expected));
    mac[31] ^= 1;
    assert_false(key_mac_equal(mac, expected));
}

static void test_a_pepper_has_a_name_that_is_not_itself(void **state)
{
    char a[PEPPER_ID_CHARS + 1], b[PEPPER_ID_CHARS + 1];

    (void)state;
    key_pepper_id(PEPPER, a);
    key_pepper_id(PEPPER "00", b);
    assert_int_equal(strlen(a), PEPPER_ID_CHARS);
    assert_string_not_equal(a, b);
    assert_null(strstr(PEPPER, a));
}

static void test_peppers_are_hex_and_long(void **state)
{
    (void)state;
    assert_true(key_pepper_is_valid(PEPPER));
    assert_false(key_pepper_is_valid(""));
    assert_false(key_pepper_is_valid(PEPPER + 2));
    assert_false(key_pepper_is_valid(PEPPER "\n"));
    assert_false(key_pepper_is_valid("x" PEPPER));
}

/* python3 -c 'import hashlib, hmac; print(hmac.new(PEPPER, b"kv cache\0" +
 * (0x0102030405060708).to_bytes(8, "little"), hashlib.sha256).hexdigest())' */
static void test_a_cache_salt_is_an_hmac_of_the_tenant(void **state)
{
    uint8_t salt[CACHE_SALT_BYTES], other[CACHE_SALT_BYTES];
    char hex[2 * CACHE_SALT_BYTES + 1];

    (void)state;
    key_cache_salt(PEPPER, 0x0102030405060708, salt);
    hex_encode(salt, sizeof salt, hex);
    assert_string_equal(hex, "30aa75eeda70b7998c42355a37568e7afc8e7a334ff7c5cb1e72e6ac531bb923");
    key_cache_salt(PEPPER, 0x0102030405060709, other);
    assert_memory_not_equal(salt, other, sizeof salt);
    key_cache_salt("f" PEPPER, 0x0102030405060708, other);
    assert_memory_not_equal(salt, other, sizeof salt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_fresh_key_parses_into_its_parts),
        cmocka_unit_test(test_any_changed_character_is_a_typing_error),
        cmocka_unit_test(test_other_lengths_are_refused),
        cmocka_unit_test(test_the_mac_is_hmac_sha_256),
        cmocka_unit_test(test_a_pepper_has_a_name_that_is_not_itself),
        cmocka_unit_test(test_peppers_are_hex_and_long),
        cmocka_unit_test(test_a_cache_salt_is_an_hmac_of_the_tenant),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
