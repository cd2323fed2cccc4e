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
    unsigned char *strips;     /* by id: on which sides it takes white space along */
    int32_t first[256];        /* the root's children by byte; -1: none */
};

/* g says which tokens take white space along: sluice.token_lstrip and sluice.token_rstrip (arrays
 * of ids), or, where it lacks both, what is known of its architecture. Whatever it returns,
 * added_dispose is to follow. */
MUST_CHECK enum status added_init(struct added *a, const struct vocab *v, const struct gguf *g,
                                  struct reason *why);
void added_dispose(struct added *a);

/* How many bytes of text there are before one that an added token could begin with. */
size_t added_skip(const struct added *a, const char *text, size_t len);
/* The longest added token that text begins with: id and length, or -1. User-defined ones may take
 * all of `len`, control ones only the first `control_len` bytes. */
int32_t added_match(const struct added *a, const char *text, size_t len, size_t control_len,
                    size_t *match_len);

/* Where what the match of a token takes of a text begins and ends: the text is valid UTF-8, the
 * token found at `at`, or its end there, and `from` the end of the match before it. White space
 * that a token takes is read no further: not as a token of spaces either, unlike in PyPI's
 * tokenizers, which give such text twice. */
size_t added_begin(const struct added *a, int32_t id, const char *text, size_t from, size_t at);
size_t added_end(const struct added *a, int32_t id, const char *text, size_t at, size_t len);

#endif
