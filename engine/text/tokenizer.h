/* Byte-level BPE from a GGUF vocabulary (tokenizer.ggml.model "gpt2"). Immutable after
 * tokenizer_new; any thread may use it (scratch is per call). Patterns run on PCRE2 with JIT.
 * An unknown tokenizer.ggml.pre is refused by name. */
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

/* Encodes the concatenation of spans (pre-tokenizer and merges run across borders of spans as if it
 * were one text) and appends to *out. `add_bos`: the tokenizer's own BOS first where the file asks
 * for one. ST_INVALID: invalid UTF-8. ST_TOO_LARGE: over max_tokens ids. */
MUST_CHECK enum status tokenizer_encode(const struct tokenizer *t, const struct text_span *spans,
                                        size_t n_spans, bool add_bos, size_t max_tokens,
                                        struct token_ids *out);

uint32_t tokenizer_n_vocab(const struct tokenizer *t);
/* Bytes of a token as they appear in text (byte-level decoded; a control token's own text).
 * Borrowed. */
const char *tokenizer_piece(const struct tokenizer *t, int32_t id, size_t *len);
bool tokenizer_is_control(const struct tokenizer *t, int32_t id);
/* End of generation: eos, eot, eom and equivalents of the file. */
bool tokenizer_is_eog(const struct tokenizer *t, int32_t id);
/* Text of the BOS and EOS tokens for templates ("" if none), borrowed. */
const char *tokenizer_bos_text(const struct tokenizer *t);
const char *tokenizer_eos_text(const struct tokenizer *t);
/* Where a file has no such token: -1. */
int32_t tokenizer_bos_id(const struct tokenizer *t);
int32_t tokenizer_eos_id(const struct tokenizer *t);

#endif
