#include "engine/core/cache_key.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "base/size.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static size_t openssl_allocations;

static void *count_malloc(size_t n, const char *file, int line)
{
    (void)file;
    (void)line;
    openssl_allocations++;
    return malloc(n);
}

static void *count_realloc(void *p, size_t n, const char *file, int line)
{
    (void)file;
    (void)line;
    openssl_allocations++;
    return realloc(p, n);
}

static void plain_free(void *p, const char *file, int line)
{
    (void)file;
    (void)line;
    free(p);
}

static void fill(uint8_t out[CACHE_HASH_BYTES], uint8_t first)
{
    for (int i = 0; i < CACHE_HASH_BYTES; i++)
        out[i] = (uint8_t)(first + i);
}

static struct cache_domain plain_domain(void)
{
    struct cache_domain d = {.revision = "rev-1", .kv_type = 1, .mode = 0};

    fill(d.salt, 0);
    return d;
}

static struct cache_domain adapter_domain(void)
{
    struct cache_domain d = plain_domain();

    d.has_adapter = true;
    d.adapter_scale = 0.5f;
    d.kv_type = 2;
    d.mode = 1;
    fill(d.adapter, 160);
    return d;
}

static struct cache_key key_of(const struct cache_domain *d, const struct cache_key *parent,
                               const int32_t *ids)
{
    struct cache_key key;

    cache_key_of(d, parent, ids, &key);
    return key;
}

static bool equal(const struct cache_key *a, const struct cache_key *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* The expected keys were made by this, from the layout that cache_key.h describes:
 *
 *   python3 - <<'END'
 *   import hashlib, struct
 *   def key(salt, revision, adapter, scale, kv, mode, parent, ids):
 *       f = [b'sluice kv page 1', salt, revision, adapter, scale, struct.pack('<I', kv),
 *            struct.pack('<I', mode), parent, struct.pack('<16i', *ids)]
 *       return hashlib.sha256(b''.join(struct.pack('<Q', len(x)) + x for x in f)).digest()
 *   salt = bytes(range(32))
 *   first = key(salt, b'rev-1', b'', b'', 1, 0, b'', range(16))
 *   second = key(salt, b'rev-1', bytes(range(160, 192)), struct.pack('<f', 0.5), 2, 1, first,
 *                [70000 * i - 5 for i in range(16)])
 *   print(first.hex(), second.hex())
 *   END
 */
static void test_keys_are_those_of_the_described_layout(void **state)
{
    static const char *const expected[] = {
        "2b72a6c8d650a6a1973d2399176a59c2eaeffab3779a7ce8a5bf14b1520e1b4a",
        "414c4f8ac5b4c5e8068b2885ed849cf7c670760011cba3a2ae652cae9b034b84",
    };
    struct cache_domain plain = plain_domain(), adapted = adapter_domain();
    int32_t ids[2][KV_PAGE_TOKENS];
    struct cache_key keys[2];
    char hex[2 * CACHE_HASH_BYTES + 1];

    (void)state;
    for (int i = 0; i < KV_PAGE_TOKENS; i++) {
        ids[0][i] = i;
        ids[1][i] = 70000 * i - 5;
    }
    keys[0] = key_of(&plain, NULL, ids[0]);
    keys[1] = key_of(&adapted, &keys[0], ids[1]);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < CACHE_HASH_BYTES; i++)
            snprintf(hex + (size_t)i * 2, 3, "%02x", keys[k].bytes[i]);
        assert_string_equal(hex, expected[k]);
    }
}

static void test_the_same_input_gives_the_same_key_again(void **state)
{
    struct cache_domain d = adapter_domain();
    int32_t ids[KV_PAGE_TOKENS] = {1, 2, 3};
    struct cache_key a = key_of(&d, NULL, ids), b;

    (void)state;
    cache_key_of(&d, &a, ids, &b);
    assert_false(equal(&a, &b));
    b = key_of(&d, NULL, ids);
    assert_true(equal(&a, &b));
}

static void test_a_key_allocates_nothing(void **state)
{
    struct cache_domain d = adapter_domain();
    int32_t ids[KV_PAGE_TOKENS] = {0};
    size_t before = openssl_allocations;
    struct cache_key key = key_of(&d, NULL, ids);

    (void)state;
    key = key_of(&d, &key, ids);
    assert_int_equal(openssl_allocations, before);
}

static void test_the_parent_may_be_written_over(void **state)
{
    struct cache_domain d = plain_domain();
    int32_t ids[KV_PAGE_TOKENS] = {9};
    struct cache_key first = key_of(&d, NULL, ids), second = key_of(&d, &first, ids);

    (void)state;
    cache_key_of(&d, &first, ids, &first);
    assert_true(equal(&first, &second));
}

static void test_without_an_adapter_its_fields_are_not_read(void **state)
{
    struct cache_domain a = plain_domain(), b = plain_domain();
    int32_t ids[KV_PAGE_TOKENS] = {0};
    struct cache_key key_a, key_b;

    (void)state;
    fill(b.adapter, 7);
    b.adapter_scale = 3;
    key_a = key_of(&a, NULL, ids);
    key_b = key_of(&b, NULL, ids);
    assert_true(equal(&key_a, &key_b));
}

/* One input: everything that is hashed. */
struct input {
    struct cache_domain domain;
    char revision[24];
    bool has_parent;
    struct cache_key parent;
    int32_t ids[KV_PAGE_TOKENS];
};

static struct cache_key key_of_input(struct input *in)
{
    in->domain.revision = in->revision;
    return key_of(&in->domain, in->has_parent ? &in->parent : NULL, in->ids);
}

static void flip(void *bytes, size_t n)
{
    size_t bit = (size_t)rand() % (n * 8);

    ((uint8_t *)bytes)[bit / 8] ^= (uint8_t)(1u << (bit % 8));
}

enum { FIELDS = 10 };

/* Changes the smallest part of one field. */
static void change(struct input *in, int field)
{
    struct cache_domain *d = &in->domain;
    size_t n = strlen(in->revision);

    switch (field) {
    case 0:
        flip(d->salt, sizeof d->salt);
        break;
    case 1:
        in->revision[(size_t)rand() % n] ^= 1;
        break;
    case 2:
        in->revision[n - 1] = '\0';
        break;
    case 3:
        d->has_adapter = !d->has_adapter;
        break;
    case 4:
        flip(d->adapter, sizeof d->adapter);
        break;
    case 5:
        flip(&d->adapter_scale, sizeof d->adapter_scale);
        break;
    case 6:
        flip(&d->kv_type, sizeof d->kv_type);
        break;
    case 7:
        flip(&d->mode, sizeof d->mode);
        break;
    case 8:
        in->has_parent = !in->has_parent;
        break;
    default:
        flip(in->ids, sizeof in->ids);
    }
}

static struct input random_input(void)
{
    struct input in = {.domain = adapter_domain(), .has_parent = true};

    for (size_t i = 0; i < 12; i++)
        in.revision[i] = (char)('a' + 2 * (rand() % 12)); /* even letters: ^ 1 is never a NUL */
    for (int i = 0; i < CACHE_HASH_BYTES; i++) {
        in.domain.salt[i] = (uint8_t)rand();
        in.domain.adapter[i] = (uint8_t)rand();
        in.parent.bytes[i] = (uint8_t)rand();
    }
    for (int i = 0; i < KV_PAGE_TOKENS; i++)
        in.ids[i] = rand();
    return in;
}

/* vllm#3264 (the adapter was no part of the key), and every other field likewise. */
static void test_a_change_of_any_field_changes_the_key(void **state)
{
    (void)state;
    srand(4);
    for (int round = 0; round < 200; round++) {
        struct input base = random_input();
        struct cache_key keys[FIELDS + 2];

        keys[FIELDS] = key_of_input(&base);
        for (int f = 0; f < FIELDS; f++) {
            struct input changed = base;

            change(&changed, f);
            keys[f] = key_of_input(&changed);
        }
        flip(base.parent.bytes, sizeof base.parent.bytes);
        keys[FIELDS + 1] = key_of_input(&base);
        for (size_t i = 0; i < COUNT_OF(keys); i++)
            for (size_t j = 0; j < i; j++)
                assert_false(equal(&keys[i], &keys[j]));
    }
}

/* vllm#44701: one value given as an adapter's name or as a salt made one key. */
static void test_salt_and_adapter_do_not_stand_for_each_other(void **state)
{
    struct cache_domain a = adapter_domain(), b = adapter_domain();
    int32_t ids[KV_PAGE_TOKENS] = {0};
    struct cache_key key_a, key_b;

    (void)state;
    memcpy(b.salt, a.adapter, sizeof b.salt);
    memcpy(b.adapter, a.salt, sizeof b.adapter);
    key_a = key_of(&a, NULL, ids);
    key_b = key_of(&b, NULL, ids);
    assert_false(equal(&key_a, &key_b));
}

/* The bytes of all fields one after the other, without lengths; returns how many. */
static size_t concatenate(const struct cache_domain *d, const struct cache_key *parent,
                          uint8_t out[256])
{
    size_t n = strlen(d->revision);

    memcpy(out, d->revision, n);
    if (d->has_adapter) {
        memcpy(out + n, d->adapter, sizeof d->adapter);
        n += sizeof d->adapter;
        memcpy(out + n, &d->adapter_scale, 4);
        n += 4;
    }
    memcpy(out + n, &d->kv_type, 4);
    memcpy(out + n + 4, &d->mode, 4);
    n += 8;
    if (parent != NULL)
        memcpy(out + n, parent, sizeof *parent);
    return n + (parent != NULL ? sizeof *parent : 0);
}

/* Both inputs differ in framing only: what is hashed is the same but for the lengths. */
static void assert_told_apart(const struct cache_domain *a, const struct cache_key *parent_a,
                              const struct cache_domain *b, const struct cache_key *parent_b)
{
    int32_t ids[KV_PAGE_TOKENS] = {5};
    uint8_t bytes_a[256], bytes_b[256];
    struct cache_key key_a = key_of(a, parent_a, ids), key_b = key_of(b, parent_b, ids);
    size_t n = concatenate(a, parent_a, bytes_a);

    assert_int_equal(concatenate(b, parent_b, bytes_b), n);
    assert_memory_equal(bytes_a, bytes_b, n);
    assert_false(equal(&key_a, &key_b));
}

/* 44 bytes without a NUL, which the tests below cut in different ways. */
static const char cut_text[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQR";

static void test_a_revision_cannot_end_like_an_adapter(void **state)
{
    struct cache_domain named = plain_domain(), adapted = plain_domain();
    char revision[64];

    (void)state;
    snprintf(revision, sizeof revision, "rev-1%.36s", cut_text);
    named.revision = revision;
    adapted.has_adapter = true;
    memcpy(adapted.adapter, cut_text, 32);
    memcpy(&adapted.adapter_scale, cut_text + 32, 4);
    assert_told_apart(&named, NULL, &adapted, NULL);
}

static void test_a_parent_cannot_stand_for_an_adapter(void **state)
{
    struct cache_domain followed = plain_domain(), adapted = plain_domain();
    struct cache_key parent;
    char revision[64];

    (void)state;
    snprintf(revision, sizeof revision, "rev-1%.4s", cut_text);
    followed.revision = revision;
    memcpy(&followed.kv_type, cut_text + 4, 4);
    memcpy(&followed.mode, cut_text + 8, 4);
    memcpy(parent.bytes, cut_text + 12, 32);
    adapted.has_adapter = true;
    memcpy(adapted.adapter, cut_text, 32);
    memcpy(&adapted.adapter_scale, cut_text + 32, 4);
    memcpy(&adapted.kv_type, cut_text + 36, 4);
    memcpy(&adapted.mode, cut_text + 40, 4);
    assert_told_apart(&followed, &parent, &adapted, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_are_those_of_the_described_layout),
        cmocka_unit_test(test_the_same_input_gives_the_same_key_again),
        cmocka_unit_test(test_a_key_allocates_nothing),
        cmocka_unit_test(test_the_parent_may_be_written_over),
        cmocka_unit_test(test_without_an_adapter_its_fields_are_not_read),
        cmocka_unit_test(test_a_change_of_any_field_changes_the_key),
        cmocka_unit_test(test_salt_and_adapter_do_not_stand_for_each_other),
        cmocka_unit_test(test_a_revision_cannot_end_like_an_adapter),
        cmocka_unit_test(test_a_parent_cannot_stand_for_an_adapter),
    };

    /* Refused once the library has allocated anything. */
    if (CRYPTO_set_mem_functions(count_malloc, count_realloc, plain_free) != 1)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
