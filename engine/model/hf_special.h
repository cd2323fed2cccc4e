/* What stands beside tokenizer.json: which tokens are BOS, EOS and unknown, which end a generation,
 * and the chat templates. tokenizer_config.json goes before special_tokens_map.json, and
 * chat_template.jinja before the config's. */
#ifndef ENGINE_MODEL_HF_SPECIAL_H
#define ENGINE_MODEL_HF_SPECIAL_H

#include "engine/model/hf_vocab.h"

/* Texts of a folder's files, valid UTF-8; .text NULL: the folder lacks it. */
struct hf_tokenizer_files {
    struct hf_span tokenizer;     /* tokenizer.json */
    struct hf_span config;        /* tokenizer_config.json */
    struct hf_span special_map;   /* special_tokens_map.json */
    struct hf_span generation;    /* generation_config.json */
    struct hf_span model;         /* config.json */
    struct hf_span chat_template; /* chat_template.jinja */
};

/* Writes tokenizer.ggml.bos_token_id, .eos_token_id, .padding_token_id, .add_bos_token,
 * .add_eos_token and sluice.eog_token_ids. */
MUST_CHECK enum status hf_special_put(const struct hf_tokenizer_files *f, struct hf_vocab *v,
                                      const struct hf_pipeline *p, struct hf_meta *m,
                                      struct reason *why);
/* Writes tokenizer.chat_template, and tokenizer.chat_template.NAME for each further one. */
MUST_CHECK enum status hf_templates_put(const struct hf_tokenizer_files *f, struct arena *a,
                                        struct hf_meta *m, struct reason *why);

#endif
