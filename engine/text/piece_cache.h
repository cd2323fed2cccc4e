/* Pieces of one text that were encoded before: words repeat. Holds no copies, but where in the text
 * a piece was last seen and where in the output its ids are. Belongs to one call. */
#ifndef ENGINE_TEXT_PIECE_CACHE_H
#define ENGINE_TEXT_PIECE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct cached_piece {
    const char *text; /* in a text that lives as long as `epoch` lasts */
    uint32_t len;
    uint32_t epoch; /* 0: a free slot */
    uint32_t n_ids;
    size_t first_id; /* index into the output */
};

struct piece_cache {
    struct cached_piece *slots; /* by hash; a newer piece takes the place of an older one */
    size_t mask;
    uint32_t epoch;
};

/* Sized for a text of `len` bytes: a slot for each few bytes up to a bound. */
MUST_CHECK enum status piece_cache_init(struct piece_cache *c, size_t len);
void piece_cache_dispose(struct piece_cache *c);
/* The texts of all pieces met so far are gone. */
void piece_cache_forget(struct piece_cache *c);
/* The slot of a piece: as it was noted, or to be filled by piece_cache_note. NULL: too long to be
 * worth it. */
struct cached_piece *piece_cache_slot(struct piece_cache *c, const char *text, size_t len);
bool piece_cache_holds(const struct piece_cache *c, const struct cached_piece *slot,
                       const char *text, size_t len);

#endif
