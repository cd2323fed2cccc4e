/* Byte-pair merging: which two neighbours become one token, and which pair goes first (Sennrich,
 * Haddow, Birch 2016). The table is immutable once made and may be used by any thread; a struct
 * merge_work belongs to one call. */
#ifndef ENGINE_TEXT_MERGES_H
#define ENGINE_TEXT_MERGES_H

#include "engine/text/vocab.h"

struct merge {
    int32_t left, right;
    int32_t result; /* -1: a free slot */
    uint32_t rank;  /* the least goes first, among equals the leftmost */
};

struct merges {
    struct merge *slots; /* open addressing, at most half full */
    size_t mask;
};

struct merge_symbol;

/* Grown to the longest piece met and reused. Zero it to begin. */
struct merge_work {
    int32_t *ids; /* the piece's tokens, in and out */
    struct merge_symbol *symbols;
    uint64_t *heap; /* room for two entries of each symbol */
    size_t cap;
};

/* By the file's list of pairs (tokenizer.ggml.merges), best first. Refused: a pair that names a
 * token which the vocabulary lacks or which plain text must not become. */
MUST_CHECK enum status merges_from_list(struct merges *m, const struct vocab *v,
                                        const struct gguf *g, struct reason *why);
/* By the tokens' scores, as SentencePiece does: any two tokens merge whose texts joined are a
 * token, the highest score first. */
MUST_CHECK enum status merges_from_scores(struct merges *m, const struct vocab *v,
                                          struct reason *why);
void merges_dispose(struct merges *m);
/* The slot of a pair, or a free one for it. */
struct merge *merges_slot(const struct merges *m, int32_t left, int32_t right);

/* Makes room for n ids; false: no memory. What was in it is lost. */
bool merge_work_reserve(struct merge_work *w, size_t n);
void merge_work_dispose(struct merge_work *w);

/* Merges w->ids[0 .. n) until no pair is left, in O(n log n), and returns how many remain. */
size_t merges_apply(const struct merges *m, struct merge_work *w, size_t n);

#endif
