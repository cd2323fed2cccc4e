/* SentencePiece's way with spaces: each is written U+2581. Private to engine/text. */
#ifndef ENGINE_TEXT_SPACES_H
#define ENGINE_TEXT_SPACES_H

#include "engine/text/encode_work.h"
#include "engine/text/vocab.h"

/* Whether a text gets a space before it: tokenizer.ggml.add_space_prefix, true where the file
 * doesn't say. */
bool spaces_prefix(const struct gguf *g);
/* Where that space goes, by keys of ours for what Hugging Face's Metaspace does: */
struct spaces_where {
    bool first_only;   /* sluice.space_prefix.first_only: not behind added tokens */
    bool unless_space; /* sluice.space_prefix.unless_space: not before a space */
};
struct spaces_where spaces_prefix_where(const struct gguf *g);
bool spaces_prefix_goes(const struct spaces_where *where, bool at_beginning, const char *text,
                        size_t len);
/* Appends the text with its spaces written U+2581. */
void spaces_escape(const char *text, size_t len, struct buf *out);
/* Hands an escaped text to `encode`: in words where no token of the vocabulary reaches from one
 * into the next (then the ids are the same, and words repeat), else whole. Text and model as for
 * encode_work_piece. */
MUST_CHECK enum status spaces_cut(const struct vocab *v, struct encode_work *w, const char *text,
                                  size_t len,
                                  enum status (*encode)(const void *model, struct encode_work *w,
                                                        const char *text, size_t len),
                                  const void *model);

#endif
