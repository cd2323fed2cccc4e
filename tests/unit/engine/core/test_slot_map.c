#include "engine/core/slot_map.h"

#include <stdbool.h>
#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static bool holds(const struct slot_map *m, uint64_t hash, uint32_t value)
{
    uint32_t cursor = 0, found;
    bool seen = false;

    while ((found = slot_map_next(m, hash, &cursor)) != SLOT_MAP_NONE) {
        assert_false(found == value && seen);
        seen |= found == value;
    }
    return seen;
}

static void test_values_of_one_hash_are_all_found(void **state)
{
    struct slot_map m;

    (void)state;
    assert_int_equal(slot_map_init(&m, 8), ST_OK);
    for (uint32_t v = 0; v < 8; v++)
        slot_map_insert(&m, 7, v);
    for (uint32_t v = 0; v < 8; v++)
        assert_true(holds(&m, 7, v));
    assert_false(holds(&m, 6, 0));
    slot_map_dispose(&m);
}

/* Hashes that differ above the table's size fall into one slot and are told apart. */
static void test_only_the_whole_hash_counts(void **state)
{
    struct slot_map m;

    (void)state;
    assert_int_equal(slot_map_init(&m, 4), ST_OK);
    slot_map_insert(&m, 3, 0);
    slot_map_insert(&m, 3 + (UINT64_C(1) << 40), 1);
    assert_true(holds(&m, 3, 0));
    assert_false(holds(&m, 3, 1));
    assert_true(holds(&m, 3 + (UINT64_C(1) << 40), 1));
    slot_map_dispose(&m);
}

/* Full, with runs that wrap around its end: removal must not lose what comes after the gap. */
static void test_removal_loses_nothing_else(void **state)
{
    enum { N = 32 };
    uint64_t hashes[N] = {0};
    bool in[N] = {false};
    struct slot_map m;

    (void)state;
    srand(11);
    assert_int_equal(slot_map_init(&m, N), ST_OK);
    for (int i = 0; i < 20000; i++) {
        uint32_t v = (uint32_t)rand() % N;

        if (in[v]) {
            slot_map_remove(&m, v);
        } else {
            hashes[v] = 56 + (uint64_t)rand() % 16; /* of 64 slots: across the end */
            slot_map_insert(&m, hashes[v], v);
        }
        in[v] = !in[v];
        for (uint32_t w = 0; w < N; w++)
            assert_int_equal(holds(&m, hashes[w], w), in[w]);
    }
    slot_map_dispose(&m);
}

static void test_sizes_it_cannot_have_are_refused(void **state)
{
    struct slot_map m;

    (void)state;
    assert_int_equal(slot_map_init(&m, 0), ST_INVALID);
    assert_int_equal(slot_map_init(&m, (UINT32_C(1) << 30) + 1), ST_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_of_one_hash_are_all_found),
        cmocka_unit_test(test_only_the_whole_hash_counts),
        cmocka_unit_test(test_removal_loses_nothing_else),
        cmocka_unit_test(test_sizes_it_cannot_have_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
