#include "engine/core/lru_heap.h"

#include <stdlib.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { N_NODES = 64, N_HEAPS = 3 };

/* Which heap a node is in, -1: none; the lowest key is looked for among all. */
struct model {
    int heap[N_NODES];
    uint64_t key[N_NODES];
};

static uint32_t lowest(const struct model *m, int heap)
{
    uint32_t best = LRU_HEAP_NONE;

    for (uint32_t i = 0; i < N_NODES; i++)
        if (m->heap[i] == heap && (best == LRU_HEAP_NONE || m->key[i] < m->key[best]))
            best = i;
    return best;
}

static void test_the_first_is_the_lowest_after_any_insert_and_removal(void **state)
{
    struct lru_heap_node nodes[N_NODES];
    uint32_t roots[N_HEAPS] = {LRU_HEAP_NONE, LRU_HEAP_NONE, LRU_HEAP_NONE};
    struct model m;

    (void)state;
    srand(5);
    for (int i = 0; i < N_NODES; i++)
        m.heap[i] = -1;
    for (uint64_t i = 0; i < 50000; i++) {
        uint32_t node = (uint32_t)rand() % N_NODES;

        if (m.heap[node] == -1) {
            m.heap[node] = rand() % N_HEAPS;
            m.key[node] = ((uint64_t)rand() << 20) + i; /* all different */
            lru_heap_insert(nodes, &roots[m.heap[node]], node, m.key[node]);
        } else {
            lru_heap_remove(nodes, &roots[m.heap[node]], node);
            m.heap[node] = -1;
        }
        for (int h = 0; h < N_HEAPS; h++)
            assert_int_equal(roots[h], lowest(&m, h));
    }
}

static void test_nodes_leave_in_order(void **state)
{
    struct lru_heap_node nodes[N_NODES];
    uint32_t root = LRU_HEAP_NONE;

    (void)state;
    for (uint32_t i = 0; i < N_NODES; i++) /* 37 and 64 have no common factor: each key once */
        lru_heap_insert(nodes, &root, i, i * 37 % N_NODES);
    for (uint64_t key = 0; key < N_NODES; key++) {
        assert_int_equal(nodes[root].key, key);
        lru_heap_remove(nodes, &root, root);
    }
    assert_int_equal(root, LRU_HEAP_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_is_the_lowest_after_any_insert_and_removal),
        cmocka_unit_test(test_nodes_leave_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
