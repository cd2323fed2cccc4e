/* Cuts text into pre-tokens, across which no merge happens: by the patterns that
 * tokenizer.ggml.pre names. Immutable after pretokenizer_new; any thread may use it with a scratch
 * of its own. */
#ifndef ENGINE_TEXT_PRETOKENIZE_H
#define ENGINE_TEXT_PRETOKENIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "engine/model/gguf.h"

struct pretokenizer;
struct pretokenize_scratch; /* of one call */

/* What a name of tokenizer.ggml.pre implies besides its patterns. */
struct pretokenizer_traits {
    bool whole_first; /* a pre-token that is a token needs no merging */
    bool adds_bos;    /* where the file doesn't say */
    bool nfc;         /* the text is brought into Unicode's normal form C first */
};

/* ST_UNSUPPORTED: an unknown name. */
MUST_CHECK enum status pretokenizer_new(const struct gguf_string *name, struct pretokenizer **out,
                                        struct pretokenizer_traits *traits, struct reason *why);
void pretokenizer_free(struct pretokenizer *p); /* NULL is fine */

struct pretokenize_scratch *pretokenize_scratch_new(const struct pretokenizer *p);
void pretokenize_scratch_free(struct pretokenize_scratch *x); /* NULL is fine */

/* Calls on_piece for each pre-token of valid UTF-8 in order; stops at the first status that is not
 * ST_OK and returns it. The pieces make up the text. */
MUST_CHECK enum status pretokenize(const struct pretokenizer *p, struct pretokenize_scratch *x,
                                   const char *text, size_t len,
                                   enum status (*on_piece)(void *arg, const char *s, size_t n),
                                   void *arg);

#endif
