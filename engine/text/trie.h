/* Token texts by their beginnings: a trie whose edges lie in one hash table. Immutable once made;
 * any thread may read it. */
#ifndef ENGINE_TEXT_TRIE_H
#define ENGINE_TEXT_TRIE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define TRIE_ROOT 0

struct trie_edge;

struct trie {
    struct trie_edge *edges; /* open addressing, at most half full */
    size_t mask;
    int32_t *ids; /* by node: the token that ends there; -1: none */
    uint32_t n_nodes;
};

/* For texts of at most `bytes` bytes together. ST_TOO_LARGE: over the limit of nodes. */
MUST_CHECK enum status trie_init(struct trie *t, size_t bytes);
void trie_dispose(struct trie *t);
/* len > 0; a text that is there already gets the new id. */
void trie_add(struct trie *t, const char *text, size_t len, int32_t id);
/* The node that a byte leads to; TRIE_ROOT: none. */
uint32_t trie_step(const struct trie *t, uint32_t node, unsigned char byte);
/* The longest text that `text` begins with, from `node` on: its id and length; -1: none. */
int32_t trie_longest(const struct trie *t, uint32_t node, const char *text, size_t len,
                     size_t *match_len);

#endif
