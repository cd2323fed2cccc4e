#include "engine/model/hf_arch.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"

#define SILU      .activation_key = "hidden_act", .activation = "silu"
#define GELU_TANH .activation_key = "hidden_activation", .activation = "gelu_pytorch_tanh"

static const struct hf_default no_defaults[] = {{NULL, 0}};
static const struct hf_default qwen3_defaults[] = {{"head_dim", 128}, {NULL, 0}};
static const struct hf_default gemma2_defaults[] = {
    {"head_dim", 256},
    {"query_pre_attn_scalar", 256},
    {"attn_logit_softcapping", 50},
    {"final_logit_softcapping", 30},
    {"sliding_window", 4096},
    {NULL, 0},
};
/* Gemma 3's repositories with an image encoder name only what differs from these. */
static const struct hf_default gemma3_defaults[] = {
    {"vocab_size", 262208},
    {"hidden_size", 2304},
    {"intermediate_size", 9216},
    {"num_hidden_layers", 26},
    {"num_attention_heads", 8},
    {"num_key_value_heads", 4},
    {"head_dim", 256},
    {"max_position_embeddings", 131072},
    {"rms_norm_eps", 1e-6},
    {"rope_theta", 1e6},
    {"rope_local_base_freq", 1e4},
    {"query_pre_attn_scalar", 256},
    {"sliding_window", 4096},
    {"sliding_window_pattern", 6},
    {NULL, 0},
};

#define GEMMA3                                                                                     \
    .gguf = "gemma3", GELU_TANH, .norms = HF_NORMS_AROUND, .window = HF_WINDOW_PERIOD,             \
    .unit_norms = true, .tied = true, .soft_caps = true, .query_scale = true,                      \
    .defaults = gemma3_defaults

static const struct hf_arch archs[] = {
    {.class_name = "Gemma2ForCausalLM",
     .gguf = "gemma2",
     GELU_TANH,
     .norms = HF_NORMS_AROUND,
     .window = HF_WINDOW_ALTERNATE,
     .unit_norms = true,
     .tied = true,
     .soft_caps = true,
     .query_scale = true,
     .defaults = gemma2_defaults},
    {.class_name = "Gemma3ForCausalLM", GEMMA3},
    {.class_name = "Gemma3ForConditionalGeneration", GEMMA3, .nested = true},
    {.class_name = "GraniteForCausalLM",
     .gguf = "granite",
     SILU,
     .norms = HF_NORMS_BEFORE,
     .halves = true,
     .multipliers = true,
     .defaults = no_defaults},
    {.class_name = "LlamaForCausalLM",
     .gguf = "llama",
     SILU,
     .norms = HF_NORMS_BEFORE,
     .halves = true,
     .defaults = no_defaults},
    {.class_name = "MistralForCausalLM",
     .gguf = "llama",
     SILU,
     .norms = HF_NORMS_BEFORE,
     .window = HF_WINDOW_ALL,
     .halves = true,
     .defaults = no_defaults},
    {.class_name = "Olmo2ForCausalLM",
     .gguf = "olmo2",
     SILU,
     .norms = HF_NORMS_AFTER,
     .defaults = no_defaults},
    {.class_name = "Phi3ForCausalLM",
     .gguf = "phi3",
     SILU,
     .norms = HF_NORMS_BEFORE,
     .window = HF_WINDOW_ALL,
     .partial_rope = true,
     .defaults = no_defaults},
    {.class_name = "Qwen2ForCausalLM",
     .gguf = "qwen2",
     SILU,
     .norms = HF_NORMS_BEFORE,
     .window = HF_WINDOW_UPPER,
     .defaults = no_defaults},
    {.class_name = "Qwen3ForCausalLM",
     .gguf = "qwen3",
     SILU,
     .norms = HF_NORMS_BEFORE,
     .window = HF_WINDOW_UPPER,
     .defaults = qwen3_defaults},
};

const struct hf_arch *hf_arch_find(const char *class_name)
{
    for (size_t i = 0; i < COUNT_OF(archs); i++)
        if (strcmp(archs[i].class_name, class_name) == 0)
            return &archs[i];
    return NULL;
}

void hf_arch_names(struct buf *out)
{
    for (size_t i = 0; i < COUNT_OF(archs); i++)
        buf_printf(out, "%s%s", i == 0 ? "" : ", ", archs[i].class_name);
}

#define ANY_NORMS (HF_NORMS_BEFORE | HF_NORMS_AROUND | HF_NORMS_AFTER)

/* Modules of a layer; ".weight" or ".bias" follows in both spellings. */
static const struct {
    const char *hf, *gguf;
    unsigned norms; /* in classes with these */
} modules[] = {
    {"self_attn.q_proj", "attn_q", ANY_NORMS},
    {"self_attn.k_proj", "attn_k", ANY_NORMS},
    {"self_attn.v_proj", "attn_v", ANY_NORMS},
    {"self_attn.qkv_proj", "attn_qkv", ANY_NORMS},
    {"self_attn.o_proj", "attn_output", ANY_NORMS},
    {"self_attn.q_norm", "attn_q_norm", ANY_NORMS},
    {"self_attn.k_norm", "attn_k_norm", ANY_NORMS},
    {"mlp.gate_proj", "ffn_gate", ANY_NORMS},
    {"mlp.up_proj", "ffn_up", ANY_NORMS},
    {"mlp.gate_up_proj", "ffn_up", ANY_NORMS},
    {"mlp.down_proj", "ffn_down", ANY_NORMS},
    {"input_layernorm", "attn_norm", HF_NORMS_BEFORE | HF_NORMS_AROUND},
    {"post_attention_layernorm", "ffn_norm", HF_NORMS_BEFORE},
    {"post_attention_layernorm", "post_attention_norm", HF_NORMS_AROUND | HF_NORMS_AFTER},
    {"pre_feedforward_layernorm", "ffn_norm", HF_NORMS_AROUND},
    {"post_feedforward_layernorm", "post_ffw_norm", HF_NORMS_AROUND | HF_NORMS_AFTER},
};

static const struct {
    const char *hf, *gguf;
} outside_layers[] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
};

/* How the names of a nested decoder begin, in the order in which transformers has spelled them, and
 * what they are without the nesting. */
static const struct {
    const char *nested, *plain;
} nestings[] = {
    {"language_model.model.", "model."},
    {"language_model.lm_head.", "lm_head."},
    {"model.language_model.", "model."},
    {"lm_head.", "lm_head."},
};
static const char *const other_parts[] = {
    "vision_tower.",
    "multi_modal_projector.",
    "model.vision_tower.",
    "model.multi_modal_projector.",
};

static bool skip_prefix(const char **s, const char *prefix)
{
    size_t n = strlen(prefix);

    if (strncmp(*s, prefix, n) != 0)
        return false;
    *s += n;
    return true;
}

/* "17.rest" without leading zeros; false: no layer's number. */
static bool read_layer(const char **s, unsigned *layer)
{
    size_t digits = strspn(*s, "0123456789");

    if (digits == 0 || digits > 4 || (digits > 1 && **s == '0') || (*s)[digits] != '.')
        return false;
    *layer = 0;
    for (size_t i = 0; i < digits; i++)
        *layer = *layer * 10 + (unsigned)((*s)[i] - '0');
    *s += digits + 1;
    return true;
}

static enum hf_place place_in_layer(const struct hf_arch *a, const char *name,
                                    char out[HF_NAME_BYTES])
{
    unsigned layer;

    if (!read_layer(&name, &layer))
        return HF_PLACE_NONE;
    /* Early versions of transformers saved this buffer, which follows from the config. */
    if (strcmp(name, "self_attn.rotary_emb.inv_freq") == 0)
        return HF_PLACE_IGNORED;
    for (size_t i = 0; i < COUNT_OF(modules); i++) {
        const char *rest = name;

        if ((modules[i].norms & a->norms) == 0 || !skip_prefix(&rest, modules[i].hf) ||
            (strcmp(rest, ".weight") != 0 && strcmp(rest, ".bias") != 0))
            continue;
        snprintf(out, HF_NAME_BYTES, "blk.%u.%s%s", layer, modules[i].gguf, rest);
        return HF_PLACE_KNOWN;
    }
    return HF_PLACE_NONE;
}

static enum hf_place place_plain(const struct hf_arch *a, const char *name, char out[HF_NAME_BYTES])
{
    for (size_t i = 0; i < COUNT_OF(outside_layers); i++) {
        if (strcmp(name, outside_layers[i].hf) != 0)
            continue;
        snprintf(out, HF_NAME_BYTES, "%s", outside_layers[i].gguf);
        return HF_PLACE_KNOWN;
    }
    return skip_prefix(&name, "model.layers.") ? place_in_layer(a, name, out) : HF_PLACE_NONE;
}

enum hf_place hf_arch_place(const struct hf_arch *a, const char *name, char out[HF_NAME_BYTES])
{
    char plain[256];

    if (!a->nested)
        return place_plain(a, name, out);
    for (size_t i = 0; i < COUNT_OF(other_parts); i++) {
        const char *rest = name;

        if (skip_prefix(&rest, other_parts[i]))
            return HF_PLACE_IGNORED;
    }
    for (size_t i = 0; i < COUNT_OF(nestings); i++) {
        const char *rest = name;

        if (!skip_prefix(&rest, nestings[i].nested))
            continue;
        snprintf(plain, sizeof plain, "%s%s", nestings[i].plain, rest);
        return place_plain(a, plain, out);
    }
    return HF_PLACE_NONE;
}
