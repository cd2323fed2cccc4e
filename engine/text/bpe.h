/* Byte-pair merging of one pre-token. The merge table is immutable after bpe_init and may be used
 * by any thread; a struct bpe_scratch belongs to one call. */
#ifndef ENGINE_TEXT_BPE_H
#define ENGINE_TEXT_BPE_H

#include "engine/text/tokenizer.h"
#include "engine/text/vocab.h"

struct bpe_merge;

struct bpe {
    const struct vocab *vocab; /* must outlive it */
    struct bpe_merge *merges;  /* pairs to merges: open addressing, at most half full */
    size_t mask;
    int32_t byte_ids[256]; /* -1: the vocabulary lacks the byte */
    bool whole_first;      /* a pre-token that is a token needs no merging */
};

/* Working memory, grown to the longest pre-token met and reused. Zero it to begin. */
struct bpe_scratch {
    struct bpe_symbol *symbols;
    uint64_t *heap;
    size_t cap; /* symbols; the heap has room for two entries of each */
};

MUST_CHECK enum status bpe_init(struct bpe *b, const struct vocab *v, const struct gguf *g,
                                bool whole_first, struct reason *why);
void bpe_dispose(struct bpe *b);
void bpe_scratch_dispose(struct bpe_scratch *s);

/* Appends the ids of a pre-token. Takes O(n log n) for n bytes, whatever they are. A byte that the
 * vocabulary lacks is left out, as Hugging Face's tokenizers do with such files (SmolLM2 lacks
 * those that UTF-8 never has, and some control characters): its unknown token is a control token,
 * and user text must not turn into one. ST_TOO_LARGE: *out would have over max_tokens ids. */
MUST_CHECK enum status bpe_encode(const struct bpe *b, struct bpe_scratch *scratch,
                                  const char *text, size_t len, size_t max_tokens,
                                  struct token_ids *out);

#endif
