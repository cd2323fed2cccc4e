/* The token table of a byte-level BPE vocabulary. Copies what it needs from the file. Immutable
 * after vocab_init; any thread may read it. */
#ifndef ENGINE_TEXT_VOCAB_H
#define ENGINE_TEXT_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "engine/model/gguf.h"

/* As in the file (tokenizer.ggml.token_type). */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

struct vocab_token {
    const char *text;  /* as the file spells it, NUL-terminated */
    const char *piece; /* the bytes it stands for; the text where that is no byte spelling */
    uint32_t text_len;
    uint32_t piece_len;
    enum token_type type;
};

struct vocab {
    struct arena arena;
    struct vocab_token *tokens;
    uint32_t n;
    uint32_t piece_max; /* bytes of the longest piece, at least 1 */
    int32_t *slots;     /* texts to ids: open addressing, at most half full; id + 1 */
    size_t mask;
};

MUST_CHECK enum status vocab_init(struct vocab *v, const struct gguf *g, struct reason *why);
void vocab_dispose(struct vocab *v);
/* Id of the token with exactly this spelling; -1: none. */
int32_t vocab_find(const struct vocab *v, const char *text, size_t len);
/* Control tokens (and the unknown token, which is one in all but name) never come from plain text
 * and produce none. */
bool vocab_is_control(const struct vocab *v, int32_t id);

#endif
