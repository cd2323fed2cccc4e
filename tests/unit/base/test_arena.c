/* What an arena hands out: aligned, zeroed, apart from one another, up to its limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/arena.h"
#include "base/size.h"
#include "tests/lib/splitmix64.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static void test_memory_is_aligned_zeroed_and_nobody_elses(void **state)
{
    struct {
        uint8_t *at;
        size_t len;
        uint8_t mark;
    } parts[500];
    uint64_t seed = 1;
    struct arena a;

    (void)state;
    arena_init(&a, 0);
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        /* Small ones, and now and then one over a block's size. */
        parts[i].len = splitmix64(&seed) % (i % 50 == 49 ? 40000 : 200);
        parts[i].mark = (uint8_t)(1 + i % 255);
        parts[i].at = arena_alloc(&a, parts[i].len);
        assert_non_null(parts[i].at);
        assert_int_equal((uintptr_t)parts[i].at % 16, 0);
        for (size_t k = 0; k < parts[i].len; k++)
            assert_int_equal(parts[i].at[k], 0);
        memset(parts[i].at, parts[i].mark, parts[i].len);
    }
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        for (size_t k = 0; k < parts[i].len; k++)
            assert_int_equal(parts[i].at[k], parts[i].mark);
    arena_dispose(&a);
}

static void test_its_limit_is_exact(void **state)
{
    struct arena a;

    (void)state;
    arena_init(&a, 64);
    assert_non_null(arena_alloc(&a, 48));
    assert_null(arena_alloc(&a, 17));
    /* What fits is still given. */
    assert_non_null(arena_alloc(&a, 16));
    assert_int_equal(a.used, 64);
    assert_null(arena_alloc(&a, 1));
    assert_null(arena_strndup(&a, "", 0));
    arena_dispose(&a);
}

static void test_a_limit_bounds_one_large_allocation_too(void **state)
{
    struct arena a;

    (void)state;
    arena_init(&a, 100000);
    assert_null(arena_alloc(&a, 100001));
    assert_non_null(arena_alloc(&a, 100000));
    arena_dispose(&a);
}

static void test_sizes_that_overflow_are_refused(void **state)
{
    struct arena a;

    (void)state;
    arena_init(&a, 0);
    for (size_t less = 0; less < 40; less++)
        assert_null(arena_alloc(&a, SIZE_MAX - less));
    assert_null(arena_array(&a, SIZE_MAX / 2, 3));
    assert_null(arena_array(&a, (size_t)1 << 32, (size_t)1 << 32));
    assert_null(arena_strndup(&a, "a", SIZE_MAX));
    assert_int_equal(a.used, 0);
    assert_non_null(arena_array(&a, 3, 5));
    arena_dispose(&a);
}

static void test_a_copied_text_ends_in_a_nul(void **state)
{
    struct arena a;
    char *s;

    (void)state;
    arena_init(&a, 0);
    s = arena_strndup(&a, "abcdef", 3);
    assert_string_equal(s, "abc");
    assert_string_equal(arena_strndup(&a, NULL, 0), "");
    /* A NUL within is a byte as any other. */
    s = arena_strndup(&a, "a\0b", 3);
    assert_memory_equal(s, "a\0b", 4);
    arena_dispose(&a);
}

static void test_a_disposed_one_begins_again_under_its_limit(void **state)
{
    struct arena a;

    (void)state;
    arena_init(&a, 32);
    arena_dispose(&a);
    for (int i = 0; i < 3; i++) {
        assert_non_null(arena_alloc(&a, 32));
        assert_null(arena_alloc(&a, 1));
        arena_dispose(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_is_aligned_zeroed_and_nobody_elses),
        cmocka_unit_test(test_its_limit_is_exact),
        cmocka_unit_test(test_a_limit_bounds_one_large_allocation_too),
        cmocka_unit_test(test_sizes_that_overflow_are_refused),
        cmocka_unit_test(test_a_copied_text_ends_in_a_nul),
        cmocka_unit_test(test_a_disposed_one_begins_again_under_its_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
