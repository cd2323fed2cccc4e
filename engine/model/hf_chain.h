/* Components of a tokenizer.json's pipeline, spelled short: "Digit > Bytes(gpt2)" for a Sequence of
 * Digits and ByteLevel. Options that change ids are in the spelling, others (offsets) are
 * not. A component or an option that has no spelling is refused by name. Private to hf_pipeline.c.
 */
#ifndef ENGINE_MODEL_HF_CHAIN_H
#define ENGINE_MODEL_HF_CHAIN_H

#include "base/json.h"
#include "engine/model/hf_json.h"

/* In a pattern for hf_chain_matches: any bytes. Once in a pattern at most. */
#define HF_CHAIN_ANY "\x01"

bool hf_chain_matches(const char *chain, const char *pattern);

/* The chain is appended to *out, "" for null. *charsmap: Precompiled's, a new reference. */
MUST_CHECK enum status hf_chain_normalizers(struct hf_span text, struct buf *out, json_t **charsmap,
                                            struct reason *why);
MUST_CHECK enum status hf_chain_pre_tokenizers(struct hf_span text, struct buf *out,
                                               struct reason *why);
/* Refuses decoders by which tokens would be another text than engine/text gives. */
MUST_CHECK enum status hf_chain_check_decoders(struct hf_span text, struct reason *why);
/* The one token that goes before a text and the one behind it (-1: none). *has_template is whether
 * the file says anything of them. */
MUST_CHECK enum status hf_chain_post_processors(struct hf_span text, bool *has_template,
                                                int64_t *bos_id, int64_t *eos_id,
                                                struct reason *why);

#endif
