/* Tokens to text for one sequence, as a stream: never half a character, stop strings matched across
 * token borders, and no more held back than the longest suffix that a stop string could begin with.
 * Bytes that can't become valid UTF-8 come out as U+FFFD. Control tokens produce no text.
 * Belongs to one thread. */
#ifndef ENGINE_TEXT_DETOK_H
#define ENGINE_TEXT_DETOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "engine/text/tokenizer.h"

#define STOP_STRINGS_MAX      4   /* as OpenAI's API says */
#define STOP_STRING_BYTES_MAX 256 /* each; longer is refused at the API */

struct detok;

/* ST_INVALID: a stop string that is empty, too long or not UTF-8. `stops` are copied; n_stops may
 * be 0. The tokenizer must outlive it. */
MUST_CHECK enum status detok_new(const struct tokenizer *t, const struct text_span *stops,
                                 size_t n_stops, struct detok **out);
void detok_free(struct detok *d); /* NULL is fine */
/* Before the first feed: the sequence goes on after a token `id`. Where encoding puts a space
 * before a text, a text that begins here (after a control token, or without this call) loses it
 * again, and one that goes on keeps its own. */
void detok_follow(struct detok *d, int32_t id);
/* Stop strings are looked for (as at first) or not. What becomes text while they are not goes out
 * at once, and is no part of a stop string that is complete later. */
void detok_search_stops(struct detok *d, bool on);
/* Feeds one token; appends to *out what is safe to send. True: a stop string is complete; the text
 * before it is out, nothing of it or after it ever is, and later tokens are ignored. */
bool detok_feed(struct detok *d, int32_t id, struct buf *out);
/* The sequence ended without a stop string: appends what was held back. True: a stop string is
 * complete after all, by the U+FFFD of a character that stayed unfinished. */
bool detok_flush(struct detok *d, struct buf *out);

/* Bytes of the pieces that were fed, as tokens spell them, and how many of the first of these are
 * out (as themselves or within a U+FFFD). A token's text is out once `released` has reached what
 * `fed` was after it; a token that didn't move `fed` has no text. */
uint64_t detok_fed_bytes(const struct detok *d);
uint64_t detok_released_bytes(const struct detok *d);
/* Most bytes that can be fed and not released, between calls. */
#define DETOK_HELD_BYTES_MAX (STOP_STRING_BYTES_MAX - 1 + 3)

#endif
