/* A kind of tokenizer as tokenizer.c sees it: what becomes of a stretch of plain text between added
 * tokens. Immutable once made, any thread may use it; what a call needs is in its struct
 * encode_work. Each kind embeds this as its first member. Private to engine/text. */
#ifndef ENGINE_TEXT_TEXT_MODEL_H
#define ENGINE_TEXT_TEXT_MODEL_H

#include "engine/text/encode_work.h"
#include "engine/text/vocab.h"

struct text_model;

struct text_model_ops {
    void (*free)(struct text_model *m);
    /* Appends the ids of len > 0 bytes of valid UTF-8. O(n log n) at most, whatever they are. */
    enum status (*encode)(const struct text_model *m, struct encode_work *w, const char *text,
                          size_t len);
};

struct text_model {
    const struct text_model_ops *ops;
    bool adds_bos, adds_eos; /* where the file doesn't say */
    bool adds_space;         /* before a text */
};

/* What makes one: the vocabulary must outlive it, the file need not. */
typedef enum status text_model_new(const struct vocab *v, const struct gguf *g,
                                   struct text_model **out, struct reason *why);

text_model_new bpe_new;       /* bpe.c: byte-level BPE, tokenizer.ggml.model "gpt2" */
text_model_new spm_new;       /* spm.c: SentencePiece BPE, "llama" */
text_model_new unigram_new;   /* unigram.c: SentencePiece Unigram, "t5" */
text_model_new wordpiece_new; /* wordpiece.c: WordPiece, "bert" */

#endif
