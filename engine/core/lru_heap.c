#include "engine/core/lru_heap.h"

/* Two roots become one; either may be none. */
static uint32_t merge(struct lru_heap_node *nodes, uint32_t a, uint32_t b)
{
    if (a == LRU_HEAP_NONE)
        return b;
    if (b == LRU_HEAP_NONE)
        return a;
    if (nodes[b].key < nodes[a].key) {
        uint32_t swapped = a;

        a = b;
        b = swapped;
    }
    nodes[b].prev = a;
    nodes[b].next = nodes[a].child;
    if (nodes[a].child != LRU_HEAP_NONE)
        nodes[nodes[a].child].prev = b;
    nodes[a].child = b;
    return a;
}

/* Siblings become one heap: in pairs from the left, then the pairs from the right, which is what
 * makes it logarithmic. The pairs wait on a stack through `next`. */
static uint32_t merge_siblings(struct lru_heap_node *nodes, uint32_t first)
{
    uint32_t pairs = LRU_HEAP_NONE, root = LRU_HEAP_NONE;

    while (first != LRU_HEAP_NONE) {
        uint32_t second = nodes[first].next, pair;
        uint32_t rest = second == LRU_HEAP_NONE ? LRU_HEAP_NONE : nodes[second].next;

        pair = merge(nodes, first, second);
        nodes[pair].next = pairs;
        pairs = pair;
        first = rest;
    }
    while (pairs != LRU_HEAP_NONE) {
        uint32_t rest = nodes[pairs].next;

        root = merge(nodes, root, pairs);
        pairs = rest;
    }
    if (root != LRU_HEAP_NONE)
        nodes[root].prev = nodes[root].next = LRU_HEAP_NONE;
    return root;
}

static void cut(struct lru_heap_node *nodes, uint32_t node)
{
    uint32_t prev = nodes[node].prev, next = nodes[node].next;

    if (nodes[prev].child == node)
        nodes[prev].child = next;
    else
        nodes[prev].next = next;
    if (next != LRU_HEAP_NONE)
        nodes[next].prev = prev;
}

void lru_heap_insert(struct lru_heap_node *nodes, uint32_t *root, uint32_t node, uint64_t key)
{
    nodes[node] = (struct lru_heap_node){
        .key = key, .child = LRU_HEAP_NONE, .next = LRU_HEAP_NONE, .prev = LRU_HEAP_NONE};
    *root = merge(nodes, *root, node);
}

void lru_heap_remove(struct lru_heap_node *nodes, uint32_t *root, uint32_t node)
{
    uint32_t below = merge_siblings(nodes, nodes[node].child);

    if (*root == node) {
        *root = below;
        return;
    }
    cut(nodes, node);
    *root = merge(nodes, *root, below);
}
