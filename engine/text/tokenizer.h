/* Text to tokens by a GGUF vocabulary: byte-level BPE, SentencePiece BPE and Unigram, WordPiece
 * (tokenizer.ggml.model "gpt2", "llama", "t5", "bert"). Immutable after tokenizer_new; any thread
 * may use it (scratch is per call). An unknown tokenizer.ggml.model or .pre is refused by name. */
#ifndef ENGINE_TEXT_TOKENIZER_H
#define ENGINE_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "engine/model/gguf.h"

struct tokenizer;

MUST_CHECK enum status tokenizer_new(const struct gguf *g, struct tokenizer **out,
                                     struct reason *why);
void tokenizer_free(struct tokenizer *t); /* NULL is fine */

/* A stretch of text to encode. Control tokens (special=true, GGUF type CONTROL) are matched only
 * where `control` is set: text that comes from a user is never parsed into them. User-defined added
 * tokens (GGUF type USER_DEFINED) match everywhere. */
struct text_span {
    const char *text; /* valid UTF-8 */
    size_t len;
    bool control;
};

/* Growable id list; owner: the caller; token_ids_dispose frees. */
struct token_ids {
    int32_t *ids;
    size_t n;
    size_t cap;
};
void token_ids_dispose(struct token_ids *ids);

enum {
    TOKENIZER_BOS = 1, /* true */
    TOKENIZER_EOS = 2,
};

/* Encodes the concatenation of spans (normalizer, pre-tokenizer and merges run across borders of
 * spans as if it were one text) and appends to *out. `add`: which of BOS first (unless the text
 * begins with it as a control token) and EOS last are added where the file asks for them; a prompt
 * to go on from wants no EOS, an encoder's text does. Takes O(n log n), whatever the text is.
 * ST_INVALID: invalid UTF-8. ST_TOO_LARGE: over max_tokens ids. */
MUST_CHECK enum status tokenizer_encode(const struct tokenizer *t, const struct text_span *spans,
                                        size_t n_spans, unsigned add, size_t max_tokens,
                                        struct token_ids *out);

uint32_t tokenizer_n_vocab(const struct tokenizer *t);
/* Bytes of a token as they appear in text (spelling undone; a control token's own text). Borrowed.
 */
const char *tokenizer_piece(const struct tokenizer *t, int32_t id, size_t *len);
bool tokenizer_is_control(const struct tokenizer *t, int32_t id);
/* End of generation: eos, eot, eom and equivalents of the file. */
bool tokenizer_is_eog(const struct tokenizer *t, int32_t id);
/* A text is encoded with a space before it, which decoding takes away again. */
bool tokenizer_adds_space(const struct tokenizer *t);
/* Text of the BOS and EOS tokens for templates ("" if none), borrowed. */
const char *tokenizer_bos_text(const struct tokenizer *t);
const char *tokenizer_eos_text(const struct tokenizer *t);
/* Where a file has no such token: -1. */
int32_t tokenizer_bos_id(const struct tokenizer *t);
int32_t tokenizer_eos_id(const struct tokenizer *t);

#endif
