/* Working memory of one call of tokenizer_encode, shared by all kinds of tokenizers, and where the
 * ids go. Belongs to one thread. Private to engine/text. */
#ifndef ENGINE_TEXT_ENCODE_WORK_H
#define ENGINE_TEXT_ENCODE_WORK_H

#include "base/buf.h"
#include "engine/text/merges.h"
#include "engine/text/piece_cache.h"
#include "engine/text/pretokenize.h"
#include "engine/text/tokenizer.h"

struct lattice_node;

struct encode_work {
    struct token_ids *out;
    size_t max_tokens;
    bool
        at_beginning; /* the stretch being encoded is the text's first: no token stands before it */
    struct piece_cache cache;
    struct merge_work merge;
    struct pretokenize_scratch *cut; /* NULL: not used yet */
    struct buf normal, spare;        /* a normalized stretch, and one on its way there */
    struct lattice_node *lattice;    /* of Unigram: n_lattice nodes */
    size_t n_lattice;
};

/* For a text of text_bytes. Whatever it returns, encode_work_dispose is to follow. */
MUST_CHECK enum status encode_work_init(struct encode_work *w, size_t text_bytes, size_t max_tokens,
                                        struct token_ids *out);
void encode_work_dispose(struct encode_work *w);

/* ST_TOO_LARGE: *out has max_tokens ids already. */
MUST_CHECK enum status encode_work_add(struct encode_work *w, int32_t id);
/* ST_TOO_LARGE where `len` bytes need more ids than are left, were all of them of piece_max bytes:
 * known before the work is done. */
MUST_CHECK enum status encode_work_check(const struct encode_work *w, size_t len, size_t piece_max);

/* Encodes a piece whose ids depend on its bytes alone, unless the same was met before. The text
 * must live until the work is disposed of, or piece_cache_forget. */
MUST_CHECK enum status encode_work_piece(struct encode_work *w, const char *text, size_t len,
                                         enum status (*encode)(const void *model,
                                                               struct encode_work *w,
                                                               const char *text, size_t len),
                                         const void *model);

#endif
