/* The token table of a vocabulary. Copies what it needs from the file. Immutable after vocab_init;
 * any thread may read it. */
#ifndef ENGINE_TEXT_VOCAB_H
#define ENGINE_TEXT_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "engine/model/gguf.h"

/* U+2581, by which SentencePiece writes a space. */
#define VOCAB_SPACE       "\xE2\x96\x81"
#define VOCAB_SPACE_BYTES 3

/* As in the file (tokenizer.ggml.token_type). */
enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2,
    TOKEN_CONTROL = 3,
    TOKEN_USER_DEFINED = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6,
};

/* How tokens spell what they stand for. */
enum vocab_spelling {
    VOCAB_BYTE_ALPHABET, /* GPT-2's: a character for each byte */
    VOCAB_SPACES,        /* SentencePiece's: U+2581 is a space, "<0x0A>" (type BYTE) a byte */
};

struct vocab_token {
    const char *text;  /* as the file spells it, NUL-terminated */
    const char *piece; /* the bytes it stands for; the text where that is no spelling */
    uint32_t text_len;
    uint32_t piece_len;
    float score; /* of SentencePiece vocabularies; 0 where the file has none */
    enum token_type type;
};

struct vocab {
    struct arena arena;
    struct vocab_token *tokens;
    uint32_t n;
    enum vocab_spelling spelling;
    bool has_scores;
    bool words_begin_with_space; /* no normal token has U+2581 behind another character */
    uint32_t piece_max;          /* bytes of the longest piece, at least 1 */
    uint32_t text_max;           /* and of the longest text */
    int32_t *slots;              /* texts to ids: open addressing, at most half full; id + 1 */
    size_t mask;
};

MUST_CHECK enum status vocab_init(struct vocab *v, const struct gguf *g,
                                  enum vocab_spelling spelling, struct reason *why);
void vocab_dispose(struct vocab *v);
/* Id of the token with exactly this spelling; -1: none. */
int32_t vocab_find(const struct vocab *v, const char *text, size_t len);
/* The same among those that plain text may become. */
int32_t vocab_find_plain(const struct vocab *v, const char *text, size_t len);
/* Id of the token that stands for a byte alone; -1: none. */
int32_t vocab_find_byte(const struct vocab *v, unsigned char byte);
/* Control tokens, and the unknown token, which is one in all but name: matched only where control
 * tokens are allowed, and no text comes of them. */
bool vocab_is_control(const struct vocab *v, int32_t id);
/* Control and user-defined tokens, which are looked for before anything else is done with a text.
 */
bool vocab_is_added(const struct vocab *v, int32_t id);

#endif
