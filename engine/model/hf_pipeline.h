/* What a tokenizer.json does to text around its model: normalizer, pre-tokenizer,
 * post-processor and decoder, recognised as a whole among those that engine/text computes, and
 * named as GGUF names them. Any other is refused by name: ids that are almost right are wrong. */
#ifndef ENGINE_MODEL_HF_PIPELINE_H
#define ENGINE_MODEL_HF_PIPELINE_H

#include "base/json.h"
#include "engine/model/hf_json.h"

enum hf_kind {
    HF_BYTE_BPE,   /* tokenizer.ggml.model "gpt2" */
    HF_SPACE_BPE,  /* "llama": spaces are U+2581, with byte fallback */
    HF_UNIGRAM,    /* "t5" */
    HF_WORD_PIECE, /* "bert" */
};

struct hf_pipeline {
    enum hf_kind kind;
    const char *pre;            /* tokenizer.ggml.pre; NULL: the kind has none. Static. */
    bool normalizes;            /* other than by NFC: the text that tokens meet is another one */
    bool adds_space;            /* before a text... */
    bool adds_space_first_only; /* ...only at its beginning, not behind added tokens */
    bool adds_space_to_words;   /* ...only where it doesn't begin with one */
    bool collapses_spaces;
    json_t *charsmap;       /* base64 string, or NULL; owned */
    int64_t bos_id, eos_id; /* that the post-processor puts around a text; -1: none */
    bool has_template;      /* it says so: else tokenizer_config.json may */
};

/* The parts as they stand in the file (.text NULL or "null": none). */
struct hf_pipeline_parts {
    struct hf_span normalizer, pre_tokenizer, post_processor, decoder;
};

/* ignore_merges is the model's. On failure nothing is left to dispose of. */
MUST_CHECK enum status hf_pipeline_read(struct hf_pipeline *p, enum hf_kind kind,
                                        bool ignore_merges, const struct hf_pipeline_parts *parts,
                                        struct reason *why);
void hf_pipeline_dispose(struct hf_pipeline *p);

#endif
