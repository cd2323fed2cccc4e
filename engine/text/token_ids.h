/* Growing a struct token_ids. Private to engine/text. */
#ifndef ENGINE_TEXT_TOKEN_IDS_H
#define ENGINE_TEXT_TOKEN_IDS_H

#include "engine/text/tokenizer.h"

/* ST_TOO_LARGE: it has max_tokens ids already. */
MUST_CHECK enum status token_ids_add(struct token_ids *ids, int32_t id, size_t max_tokens);
/* Appends ids[first .. first + n) once more. ST_TOO_LARGE: it would have over max_tokens ids. */
MUST_CHECK enum status token_ids_repeat(struct token_ids *ids, size_t first, size_t n,
                                        size_t max_tokens);

#endif
