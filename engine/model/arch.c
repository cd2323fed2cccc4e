#include "engine/model/arch.h"

#include <string.h>

#include "base/size.h"

#define DECODER .norm_kind = NORM_RMS, .routing = ROUTING_NONE, .causal = true

static const struct arch table[] = {
    /* Gemma Team 2024 */
    {.name = "gemma2",
     DECODER,
     .norm_place = NORM_AROUND,
     .activation = ACTIVATION_GELU_TANH,
     .rope_pairs = ROPE_HALVES,
     .embedding_width = true,
     .windows = true,
     .window = 4096,
     .period = 2,
     .attention_cap = 50.0f,
     .logit_cap = 30.0f,
     .width_scaled = 46},
    /* Gemma Team 2025 */
    {.name = "gemma3",
     DECODER,
     .norm_place = NORM_AROUND,
     .qk_norm = QK_NORM_HEAD,
     .activation = ACTIVATION_GELU_TANH,
     .rope_pairs = ROPE_HALVES,
     .embedding_width = true,
     .windows = true,
     .period = 6,
     .window_base = 10000.0f,
     .width_scaled = 62},
    {.name = "granite", DECODER, .norm_place = NORM_BEFORE, .rope_pairs = ROPE_ADJACENT},
    /* Llama 1 to 3.3, Mistral, SmolLM 1 and 2 */
    {.name = "llama",
     DECODER,
     .norm_place = NORM_BEFORE,
     .rope_pairs = ROPE_ADJACENT,
     .windows = true},
    /* OLMo 3 comes under this name with windows, whose layers are rotated in another way. */
    {.name = "olmo2",
     DECODER,
     .norm_place = NORM_AFTER,
     .qk_norm = QK_NORM_ALL,
     .rope_pairs = ROPE_HALVES},
    {.name = "phi3",
     DECODER,
     .norm_place = NORM_BEFORE,
     .rope_pairs = ROPE_HALVES,
     .fused = true,
     .windows = true},
    {.name = "qwen2",
     DECODER,
     .norm_place = NORM_BEFORE,
     .rope_pairs = ROPE_HALVES,
     .qkv_bias = true,
     .windows = true},
    {.name = "qwen3",
     DECODER,
     .norm_place = NORM_BEFORE,
     .qk_norm = QK_NORM_HEAD,
     .rope_pairs = ROPE_HALVES,
     .windows = true},
};

const struct arch *arch_find(const char *name, size_t len)
{
    for (size_t i = 0; i < COUNT_OF(table); i++)
        if (strlen(table[i].name) == len && memcmp(table[i].name, name, len) == 0)
            return &table[i];
    return NULL;
}

void arch_names(struct buf *out)
{
    for (size_t i = 0; i < COUNT_OF(table); i++)
        buf_printf(out, "%s%s", i == 0 ? "" : ", ", table[i].name);
}
