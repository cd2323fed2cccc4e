/* SentencePiece's precompiled normalizer (tokenizer.ggml.precompiled_charsmap): which strings of
 * bytes become which others. A little-endian size, a double-array trie of that many bytes in
 * Darts-clone's layout, then NUL-terminated replacements, which the trie's values are offsets of.
 * Immutable once made; any thread may read it. */
#ifndef ENGINE_TEXT_CHARSMAP_H
#define ENGINE_TEXT_CHARSMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct charsmap {
    uint32_t *units; /* of the double array; NULL: there is no map */
    size_t n_units;
    char *texts; /* ends with a NUL */
    size_t texts_len;
};

/* Copies it. Everything that can be reached from the trie's root is checked: ST_CORRUPT with the
 * reason. */
MUST_CHECK enum status charsmap_init(struct charsmap *c, const void *data, size_t len,
                                     struct reason *why);
void charsmap_dispose(struct charsmap *c);
/* The longest key that text begins with: its replacement and how many bytes it replaces. False:
 * none. Borrowed. */
bool charsmap_match(const struct charsmap *c, const char *text, size_t len, const char **to,
                    size_t *taken);

#endif
