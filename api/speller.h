/* Bytes of tokens to the characters of their text, as the engine makes text of them: a character
 * whose bytes are spread over tokens is one, and a sequence that is none comes out as one U+FFFD
 * (for the longest beginning of a character: Unicode 15, section 3.9, "maximal subpart"). Says
 * where in the text, in characters, each token begins: at the character that its first byte is part
 * of, so that offsets never fall and the last one's token ends the text. Pure; one thread. */
#ifndef API_SPELLER_H
#define API_SPELLER_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define SPELLER_TAIL_MAX 3 /* bytes of an unfinished character */

struct speller {
    int64_t n_chars; /* whole ones so far */
    char tail[SPELLER_TAIL_MAX];
    size_t n_tail;
};

/* Adds a token's bytes; returns where it begins. Whole characters go to *out (NULL: nowhere). */
int64_t speller_add(struct speller *s, const char *bytes, size_t len, struct buf *out);
/* No more comes: what is unfinished is a U+FFFD. */
void speller_end(struct speller *s, struct buf *out);

#endif
