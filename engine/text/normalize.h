/* Unicode normal forms for tokenizers (Unicode Standard Annex 15), with utf8proc's tables. Any
 * thread. O(n log n), also for text of nothing but combining marks. */
#ifndef ENGINE_TEXT_NORMALIZE_H
#define ENGINE_TEXT_NORMALIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

/* True: the text is certainly in normal form C already (it has no character from U+0300 on). */
bool normalize_is_plain(const char *text, size_t len);
/* Appends normal form C of valid UTF-8. ST_NO_MEMORY is the only failure. */
MUST_CHECK enum status normalize_nfc(const char *text, size_t len, struct buf *out);
/* Normal form D as code points: the caller frees *out. */
MUST_CHECK enum status normalize_nfd(const char *text, size_t len, int32_t **out, size_t *n);

#endif
