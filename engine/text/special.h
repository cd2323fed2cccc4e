/* Tokens that a file's metadata give a part: BOS, EOS, unknown, and what ends a generation. Private
 * to engine/text. */
#ifndef ENGINE_TEXT_SPECIAL_H
#define ENGINE_TEXT_SPECIAL_H

#include "engine/text/vocab.h"

/* Id under a key of the file; -1: it lacks the key. ST_CORRUPT: no token of the vocabulary. */
MUST_CHECK enum status special_id(const struct vocab *v, const struct gguf *g, const char *key,
                                  int32_t *out, struct reason *why);
/* What characters become that the vocabulary can't spell: the file's unknown token, else the first
 * of type UNKNOWN. -1: none, or one with another part to play, which no text may turn into. */
MUST_CHECK enum status special_unknown(const struct vocab *v, const struct gguf *g, int32_t *out,
                                       struct reason *why);
/* Tokens that begin or end a turn are control tokens, also where the file lists them as added
 * tokens like any other (as DeepSeek's <|User|> in folders, and files made before converters knew
 * Gemma's): a user's text must not become them. Before the vocabulary is put to use. */
MUST_CHECK enum status special_protect(struct vocab *v, const struct gguf *g, struct reason *why);
/* By id, whether it ends a generation: the union of the file's EOS, EOT and EOM, of
 * sluice.eog_token_ids, and of control tokens by which known models end a turn. The caller frees
 * *out. */
MUST_CHECK enum status special_eog(const struct vocab *v, const struct gguf *g, bool **out,
                                   struct reason *why);

#endif
