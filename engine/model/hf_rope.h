/* RoPE as config.json describes it, in its two spellings: rope_theta and rope_scaling, or
 * rope_parameters (of one kind, or one for each kind of layer). Scalings as transformers'
 * modeling_rope_utils.py defines them: linear, llama3, yarn, longrope ("su"). Dynamic NTK is
 * refused: it chooses the base by the current length, so that keys which are cached would be wrong.
 */
#ifndef ENGINE_MODEL_HF_ROPE_H
#define ENGINE_MODEL_HF_ROPE_H

#include "engine/model/hf_meta.h"
#include "engine/model/hf_value.h"

enum hf_scaling { HF_ROPE_PLAIN, HF_ROPE_LINEAR, HF_ROPE_LLAMA3, HF_ROPE_YARN, HF_ROPE_LONGROPE };

struct hf_rope {
    enum hf_scaling scaling;
    uint32_t dims; /* rotated dimensions of a head */
    double base;
    double window_base; /* of windowed layers; 0: the same */
    double factor;
    uint32_t original_context;
    double attn_factor;                           /* on cosine and sine, as GGUF has it; 1: none */
    double beta_fast, beta_slow;                  /* yarn */
    double low_freq_factor, high_freq_factor;     /* llama3 */
    const json_t *long_divisors, *short_divisors; /* longrope: dims / 2 positive numbers each */
};

/* Reads it from the config of an architecture with heads of head_dim dimensions. */
void hf_rope_read(struct hf_reader *r, const struct hf_arch *arch, uint32_t head_dim,
                  uint32_t context_tokens, struct hf_rope *out);
void hf_rope_put(const struct hf_rope *rope, struct hf_meta *m);

/* Tensors that follow from it: tensor i (from 0), its values (dims / 2) in `values`. NULL past the
 * end. */
const char *hf_rope_tensor(const struct hf_rope *rope, size_t i, float *values);

#endif
