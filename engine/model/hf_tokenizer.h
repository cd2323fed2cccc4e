/* tokenizer.json and the files beside it, written as GGUF's tokenizer.* keys. Pure: texts in,
 * metadata out. Format: Hugging Face's tokenizers library (its serialised form). */
#ifndef ENGINE_MODEL_HF_TOKENIZER_H
#define ENGINE_MODEL_HF_TOKENIZER_H

#include "engine/model/hf_special.h"

/* n_vocab: rows of the embedding, up to which the vocabulary is padded. Without a tokenizer.json
 * nothing but the chat template is written, and tokenizer_new says what is missing. */
MUST_CHECK enum status hf_tokenizer_put(const struct hf_tokenizer_files *f, uint32_t n_vocab,
                                        struct hf_meta *m, struct reason *why);

#endif
