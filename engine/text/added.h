/* Added tokens (control and user-defined): found in text before it is cut into pre-tokens, the
 * leftmost first and there the longest. A trie, immutable after added_init; any thread may read it.
 */
#ifndef ENGINE_TEXT_ADDED_H
#define ENGINE_TEXT_ADDED_H

#include "engine/text/vocab.h"

struct added_node;

struct added {
    const struct vocab *vocab; /* must outlive it */
    struct added_node *nodes;  /* node 0 is the root */
    int32_t first[256];        /* the root's children by byte; -1: none */
};

MUST_CHECK enum status added_init(struct added *a, const struct vocab *v, struct reason *why);
void added_dispose(struct added *a);

/* How many bytes of text there are before one that an added token could begin with. */
size_t added_skip(const struct added *a, const char *text, size_t len);
/* The longest added token that text begins with: id and length, or -1. User-defined ones may take
 * all of `len`, control ones only the first `control_len` bytes. */
int32_t added_match(const struct added *a, const char *text, size_t len, size_t control_len,
                    size_t *match_len);

#endif
