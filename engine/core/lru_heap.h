/* Priority queues whose nodes lie in one array, so that a node moves between many queues without
 * memory of its own: pairing heaps (Fredman, Sedgewick, Sleator, Tarjan 1986; two passes). Insert
 * is O(1), removal of any node O(log n) amortized. The lowest key is first; keys are different. */
#ifndef ENGINE_CORE_LRU_HEAP_H
#define ENGINE_CORE_LRU_HEAP_H

#include <stdint.h>

#define LRU_HEAP_NONE UINT32_MAX

struct lru_heap_node {
    uint64_t key;
    uint32_t child; /* the first one */
    uint32_t next;  /* sibling */
    uint32_t prev;  /* sibling before it; of a first child its parent; of a root none */
};

/* *root: the first node's index, LRU_HEAP_NONE of an empty heap. The node is in no heap. */
void lru_heap_insert(struct lru_heap_node *nodes, uint32_t *root, uint32_t node, uint64_t key);
/* The node is in this heap. */
void lru_heap_remove(struct lru_heap_node *nodes, uint32_t *root, uint32_t node);

#endif
