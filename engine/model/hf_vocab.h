/* The tokens of a tokenizer.json by id: the model's vocabulary, then the added tokens, respelled as
 * GGUF spells them. Lives for one reading; spans borrow the file's text or the arena. */
#ifndef ENGINE_MODEL_HF_VOCAB_H
#define ENGINE_MODEL_HF_VOCAB_H

#include "engine/model/hf_meta.h"
#include "engine/model/hf_pipeline.h"

/* As GGUF numbers them (tokenizer.ggml.token_type). */
enum hf_token_type {
    HF_TOKEN_NORMAL = 1,
    HF_TOKEN_UNKNOWN = 2,
    HF_TOKEN_CONTROL = 3,
    HF_TOKEN_USER_DEFINED = 4,
    HF_TOKEN_UNUSED = 5,
    HF_TOKEN_BYTE = 6,
};

struct hf_token {
    struct hf_span text; /* .text NULL: no token has this id */
    float score;
    enum hf_token_type type;
    bool lstrip, rstrip; /* white space before it, behind it belongs to it */
};

struct hf_vocab {
    struct arena arena;
    struct hf_token *tokens; /* n, the embedding's rows */
    uint32_t n;
    uint32_t *slots; /* texts to ids: open addressing, at most half full; id + 1 */
    size_t mask;
};

MUST_CHECK enum status hf_vocab_init(struct hf_vocab *v, uint32_t n, struct reason *why);
void hf_vocab_dispose(struct hf_vocab *v);

/* model.vocab: an object of ids by text (BPE, WordPiece), or a list of [text, score] (Unigram).
 * Refused: an id past the embedding, an id or a text that is there twice. */
MUST_CHECK enum status hf_vocab_read(struct hf_vocab *v, struct hf_span vocab, enum hf_kind kind,
                                     struct reason *why);
/* Gives "<0x00>" to "<0xFF>" the type BYTE; false: one of them is not there. */
bool hf_vocab_mark_bytes(struct hf_vocab *v);
/* added_tokens: special ones become CONTROL, others USER_DEFINED. An id past the embedding is left
 * out: no model could compute it (Gemma 3's text models name one of the image encoder's). Refused
 * are flags that would change ids and that engine/text has no part for: single_word; normalized, on
 * tokens that are not special, where the pipeline changes text (see hf.h). */
MUST_CHECK enum status hf_vocab_read_added(struct hf_vocab *v, struct hf_span added,
                                           const struct hf_pipeline *p, struct reason *why);
/* -1: no such token. */
int64_t hf_vocab_find(const struct hf_vocab *v, struct hf_span text);

/* Writes tokenizer.ggml.tokens, .token_type and, for Unigram, .scores; and sluice.token_lstrip and
 * .token_rstrip, be they empty. Ids without a token become "[PAD<id>]" of type UNUSED. */
void hf_vocab_put(const struct hf_vocab *v, enum hf_kind kind, struct hf_meta *m);
/* tokenizer.ggml.merges from model.merges: a list of "left right", or of [left, right]. */
MUST_CHECK enum status hf_merges_put(struct arena *a, struct hf_span merges, struct hf_meta *m,
                                     struct reason *why);

#endif
