#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/model/hf_config.h"
#include "tests/lib/hf_build.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define CLASS(name) "\"architectures\":[\"" name "\"]," HF_TINY_SIZES
#define WINDOW      ",\"sliding_window\":16"
#define GEMMA3      CLASS("Gemma3ForCausalLM") WINDOW ",\"query_pre_attn_scalar\":16"

/* A config translated: metadata as the engine sees it, and the config for what is no metadata. */
struct translated {
    struct hf_config *config;
    struct gguf *gguf;
    struct buf bytes;
};

static void translate(struct translated *t, const char *members)
{
    struct reason why = {0};
    struct hf_meta m;
    struct buf text;

    buf_init(&text);
    buf_init(&t->bytes);
    buf_printf(&text, "{%s}", members);
    t->config = malloc(sizeof *t->config);
    if (hf_config_read(t->config, text.data, text.len, &why) != ST_OK)
        fail_msg("%s: %s", members, why.text);
    hf_meta_init(&m, t->config->arch->gguf);
    if (hf_config_put(t->config, &m, &why) != ST_OK)
        fail_msg("%s: %s", members, why.text);
    assert_int_equal(hf_meta_finish(&m, &t->bytes), ST_OK);
    assert_int_equal(gguf_open_memory(t->bytes.data, t->bytes.len, &t->gguf, NULL), ST_OK);
    hf_meta_dispose(&m);
    buf_dispose(&text);
}

static void dispose(struct translated *t)
{
    gguf_close(t->gguf);
    hf_config_dispose(t->config);
    free(t->config);
    buf_dispose(&t->bytes);
}

/* The number under a key, NAN where there is none. */
static double number(const struct gguf *g, const char *key)
{
    uint32_t whole;
    float f;
    bool b;

    if (gguf_get_u32(g, key, &whole))
        return whole;
    if (gguf_get_f32(g, key, &f))
        return (double)f;
    return gguf_get_bool(g, key, &b) ? b : (double)NAN;
}

static void writes_the_keys_of_each_class(void **state)
{
    static const struct {
        const char *members, *key;
        double want; /* NAN: absent */
    } cases[] = {
        {HF_TINY_LLAMA, "llama.block_count", 2},
        {HF_TINY_LLAMA, "llama.context_length", 64},
        {HF_TINY_LLAMA, "llama.embedding_length", 32},
        {HF_TINY_LLAMA, "llama.feed_forward_length", 48},
        {HF_TINY_LLAMA, "llama.attention.head_count", 4},
        {HF_TINY_LLAMA, "llama.attention.head_count_kv", 2},
        {HF_TINY_LLAMA, "llama.attention.key_length", 8},
        {HF_TINY_LLAMA, "llama.vocab_size", 288},
        {HF_TINY_LLAMA, "llama.rope.dimension_count", 8},
        {HF_TINY_LLAMA, "llama.rope.freq_base", 10000},
        {HF_TINY_LLAMA, "llama.attention.layer_norm_rms_epsilon", 1e-5},
        {HF_TINY_LLAMA, "llama.rope.scaling.type", NAN},
        {HF_TINY_LLAMA, "llama.attention.sliding_window", NAN},
        {HF_TINY_LLAMA, "sluice.rope.halves", 1},
        {HF_TINY_LLAMA, "sluice.norm.offset", NAN},
        {HF_TINY_LLAMA ",\"rope_theta\":5e5", "llama.rope.freq_base", 5e5},
        {HF_TINY_LLAMA ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":7e5}",
         "llama.rope.freq_base", 7e5},
        {HF_TINY_LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}",
         "llama.rope.scaling.factor", 4},
        {CLASS("MistralForCausalLM") WINDOW, "llama.attention.sliding_window", 16},
        {CLASS("MistralForCausalLM") ",\"sliding_window\":null", "llama.attention.sliding_window",
         0},
        {CLASS("Qwen2ForCausalLM") WINDOW ",\"use_sliding_window\":false,\"max_window_layers\":1",
         "qwen2.attention.sliding_window", 0},
        {CLASS("Qwen2ForCausalLM") WINDOW ",\"use_sliding_window\":true,\"max_window_layers\":1",
         "qwen2.attention.sliding_window", 16},
        {CLASS("Qwen2ForCausalLM"), "sluice.rope.halves", NAN},
        {CLASS("Gemma2ForCausalLM"), "sluice.norm.offset", 1},
        {CLASS("Gemma2ForCausalLM"), "gemma2.attn_logit_softcapping", 50},
        {CLASS("Gemma2ForCausalLM") ",\"attn_logit_softcapping\":null",
         "gemma2.attn_logit_softcapping", 0},
        {CLASS("Gemma2ForCausalLM") ",\"final_logit_softcapping\":7",
         "gemma2.final_logit_softcapping", 7},
        {CLASS("Gemma2ForCausalLM") ",\"query_pre_attn_scalar\":144", "gemma2.attention.scale",
         1.0 / 12},
        {GEMMA3 ",\"rope_local_base_freq\":10000,\"rope_theta\":1000000", "gemma3.rope.freq_base",
         1e6},
        {GEMMA3 ",\"rope_local_base_freq\":20000", "gemma3.rope.freq_base_swa", 20000},
        {GEMMA3 ",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8.0}",
         "gemma3.rope.scaling.factor", 8},
        {GEMMA3 ",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":8,"
                "\"rope_theta\":2e6},\"sliding_attention\":{\"rope_type\":\"default\","
                "\"rope_theta\":3e4}}",
         "gemma3.rope.freq_base_swa", 3e4},
        {"\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"vision_config\":{},"
         "\"text_config\":{\"hidden_size\":32,\"num_hidden_layers\":2}",
         "gemma3.attention.key_length", 256},
        {CLASS("Phi3ForCausalLM") ",\"partial_rotary_factor\":0.75", "phi3.rope.dimension_count",
         6},
        {CLASS("GraniteForCausalLM") ",\"attention_multiplier\":0.0625", "granite.attention.scale",
         0.0625},
        {CLASS("GraniteForCausalLM") ",\"embedding_multiplier\":12", "granite.embedding_scale", 12},
        {CLASS("GraniteForCausalLM") ",\"residual_multiplier\":0.5", "granite.residual_scale", 0.5},
        {CLASS("GraniteForCausalLM") ",\"logits_scaling\":8", "granite.logit_scale", 8},
        {CLASS("GraniteForCausalLM"), "sluice.rope.halves", 1},
        {CLASS("Olmo2ForCausalLM"), "olmo2.rope.dimension_count", 8},
        {CLASS("Qwen3ForCausalLM"), "qwen3.attention.value_length", 8},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct translated t;
        double got;

        translate(&t, cases[i].members);
        got = number(t.gguf, cases[i].key);
        if (!(fabs(got - cases[i].want) <= 1e-6 * cases[i].want) &&
            !(isnan(got) && isnan(cases[i].want)))
            fail_msg("%s: %s is %g, not %g", cases[i].members, cases[i].key, got, cases[i].want);
        dispose(&t);
    }
}

static void finds_the_windowed_layers(void **state)
{
    static const struct {
        const char *members, *windowed; /* a digit per layer */
    } cases[] = {
        {CLASS("MistralForCausalLM") WINDOW, "11"},
        {CLASS("Phi3ForCausalLM") WINDOW, "11"},
        {CLASS("LlamaForCausalLM") WINDOW, "00"}, /* the class knows none */
        {CLASS("Qwen2ForCausalLM") WINDOW ",\"use_sliding_window\":true,\"max_window_layers\":1",
         "01"},
        {CLASS("Gemma2ForCausalLM") WINDOW, "10"},
        {GEMMA3 ",\"sliding_window_pattern\":1", "00"},
        {GEMMA3 ",\"_sliding_window_pattern\":2", "10"},
        {GEMMA3, "11"}, /* the class's 6 */
        {GEMMA3 ",\"layer_types\":[\"full_attention\",\"sliding_attention\"]", "01"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct translated t;

        translate(&t, cases[i].members);
        for (uint32_t k = 0; k < 2; k++)
            if (t.config->windowed[k] != (cases[i].windowed[k] == '1'))
                fail_msg("%s: layer %u", cases[i].members, k);
        dispose(&t);
    }
}

/* Llama 3.1's own numbers: the divisors are 1 for short waves, 8 for long ones, and change over
 * between. Reference: transformers 4.46's _compute_llama3_parameters in float64; pair 30 of 64 is
 * 1 / ((1 - s) / 8 + s) with s = (8192 / wave - 1) / 3 and wave = 2 pi 500000^(60 / 128). */
static void computes_llama3_divisors(void **state)
{
    const double wave = 2 * M_PI * pow(500000, 60.0 / 128), s = (8192 / wave - 1) / 3;
    struct translated t;
    float v[64];

    (void)state;
    translate(&t,
              "\"architectures\":[\"LlamaForCausalLM\"],\"num_hidden_layers\":1,"
              "\"hidden_size\":4096,\"num_attention_heads\":32,\"intermediate_size\":64,"
              "\"vocab_size\":288,\"max_position_embeddings\":131072,\"rms_norm_eps\":1e-05,"
              "\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,"
              "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
              "\"original_max_position_embeddings\":8192}");
    assert_string_equal(hf_rope_tensor(&t.config->rope, 0, v), "rope_freqs.weight");
    assert_null(hf_rope_tensor(&t.config->rope, 1, v + 0));
    assert_true(v[0] == 1.0f && v[28] == 1.0f);
    assert_true(v[36] == 8.0f && v[63] == 8.0f);
    assert_true(s > 0 && s < 1);
    assert_true(fabs((double)v[30] - 1 / ((1 - s) / 8 + s)) < 1e-5);
    assert_true(isnan(number(t.gguf, "llama.rope.scaling.factor")));
    dispose(&t);
}

static void keeps_longrope_factors(void **state)
{
    struct translated t;
    float v[4];

    (void)state;
    translate(&t, CLASS("Phi3ForCausalLM") ",\"original_max_position_embeddings\":16,"
                                           "\"rope_scaling\":{\"type\":\"longrope\",\"short_"
                                           "factor\":[1,1.5,2,2.5],"
                                           "\"long_factor\":[3,4,5,6]}");
    assert_string_equal(hf_rope_tensor(&t.config->rope, 0, v), "rope_factors_long.weight");
    assert_true(v[3] == 6.0f);
    assert_string_equal(hf_rope_tensor(&t.config->rope, 1, v), "rope_factors_short.weight");
    assert_true(v[1] == 1.5f);
    assert_null(hf_rope_tensor(&t.config->rope, 2, v));
    /* sqrt(1 + log(64 / 16) / log(16)) */
    assert_true(fabs(number(t.gguf, "phi3.rope.scaling.attn_factor") - sqrt(1.5)) < 1e-6);
    assert_true(number(t.gguf, "phi3.rope.scaling.original_context_length") == 16);
    dispose(&t);
}

static void takes_yarn_apart_as_gguf_does(void **state)
{
    static const char yarn[] = HF_TINY_LLAMA
        ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,"
        "\"original_max_position_embeddings\":16,\"beta_fast\":20,\"attention_factor\":2}";
    struct translated t;

    (void)state;
    translate(&t, yarn);
    assert_true(number(t.gguf, "llama.rope.scaling.factor") == 4);
    assert_true(number(t.gguf, "llama.rope.scaling.yarn_beta_fast") == 20);
    assert_true(number(t.gguf, "llama.rope.scaling.yarn_beta_slow") == 1);
    /* GGUF's comes on top of 0.1 ln(4) + 1 */
    assert_true(fabs(number(t.gguf, "llama.rope.scaling.attn_factor") - 2 / (0.1 * log(4) + 1)) <
                1e-6);
    dispose(&t);
}

static void refuses_what_it_does_not_compute(void **state)
{
    static const struct {
        const char *members;
        enum status want;
        const char *text;
    } cases[] = {
        {"", ST_CORRUPT, "architectures"},
        {CLASS("MixtralForCausalLM"), ST_UNSUPPORTED, "MixtralForCausalLM is not supported"},
        {CLASS("MixtralForCausalLM"), ST_UNSUPPORTED, "Qwen3ForCausalLM"},
        {"\"architectures\":[\"LlamaForCausalLM\",\"x\"]", ST_CORRUPT, "list of one name"},
        {HF_TINY_LLAMA ",\"hidden_act\":\"gelu\"", ST_UNSUPPORTED, "hidden_act is gelu"},
        {HF_TINY_LLAMA ",\"attention_bias\":true", ST_UNSUPPORTED, "attention_bias"},
        {HF_TINY_LLAMA ",\"mlp_bias\":true", ST_UNSUPPORTED, "mlp_bias"},
        {HF_TINY_LLAMA ",\"quantization_config\":{\"bits\":4}", ST_UNSUPPORTED,
         "quantization_config"},
        {HF_TINY_LLAMA ",\"num_local_experts\":8", ST_UNSUPPORTED, "num_local_experts"},
        {HF_TINY_LLAMA ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}", ST_UNSUPPORTED,
         "dynamic NTK"},
        {HF_TINY_LLAMA ",\"rope_scaling\":{\"type\":\"mrope\"}", ST_UNSUPPORTED, "mrope"},
        {HF_TINY_LLAMA ",\"rope_scaling\":{\"type\":\"linear\"}", ST_CORRUPT, "factor"},
        {HF_TINY_LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":0.5}", ST_CORRUPT,
         "below 1"},
        {HF_TINY_LLAMA ",\"rope_scaling\":7", ST_CORRUPT, "no object"},
        {HF_TINY_LLAMA ",\"rope_parameters\":[]", ST_CORRUPT, "rope_parameters is no object"},
        {"\"architectures\":[\"LlamaForCausalLM\"],\"num_hidden_layers\":2,\"hidden_size\":32,"
         "\"intermediate_size\":48,\"num_attention_heads\":4,\"vocab_size\":1048577",
         ST_UNSUPPORTED, "vocab_size is no whole number up to 1048576"},
        {HF_TINY_LLAMA ",\"rope_scaling\":{\"type\":\"longrope\",\"long_factor\":[1],"
                       "\"short_factor\":[1]}",
         ST_CORRUPT, "long_factor is not a list of 4"},
        {HF_TINY_LLAMA ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,\"truncate\":false}",
         ST_UNSUPPORTED, "truncate"},
        {HF_TINY_LLAMA ",\"partial_rotary_factor\":0.5", ST_UNSUPPORTED, "partial_rotary_factor"},
        {GEMMA3 ",\"use_bidirectional_attention\":true", ST_UNSUPPORTED, "later tokens"},
        {GEMMA3 ",\"sliding_window_pattern\":0", ST_CORRUPT, "sliding_window_pattern is 0"},
        {GEMMA3 ",\"layer_types\":[\"full_attention\"]", ST_CORRUPT, "layer_types"},
        {GEMMA3 ",\"layer_types\":[\"full_attention\",\"linear_attention\"]", ST_UNSUPPORTED,
         "layer 1"},
        {"\"architectures\":[\"LlamaForCausalLM\"]", ST_CORRUPT, "lacks num_hidden_layers"},
        {HF_TINY_LLAMA ",\"vocab_size\":1", ST_CORRUPT, "key twice"},
        {"\"architectures\":[\"LlamaForCausalLM\"],\"num_hidden_layers\":1e300", ST_UNSUPPORTED,
         "num_hidden_layers"},
        {"\"architectures\":[\"LlamaForCausalLM\"],\"num_hidden_layers\":-1", ST_CORRUPT,
         "num_hidden_layers"},
        {"\"architectures\":[\"LlamaForCausalLM\"],\"num_hidden_layers\":\"2\"", ST_CORRUPT,
         "num_hidden_layers"},
        {"\"architectures\":[\"Gemma3ForConditionalGeneration\"]", ST_CORRUPT, "text_config"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct hf_config *c = malloc(sizeof *c);
        struct reason why = {0};
        struct buf text;
        enum status s;

        buf_init(&text);
        buf_printf(&text, "{%s}", cases[i].members);
        s = hf_config_read(c, text.data, text.len, &why);
        if (s != cases[i].want || strstr(why.text, cases[i].text) == NULL)
            fail_msg("%s: got %s \"%s\", want %s \"%s\"", cases[i].members, status_name(s),
                     why.text, status_name(cases[i].want), cases[i].text);
        buf_dispose(&text);
        free(c);
    }
}

static void names_tensors_by_class(void **state)
{
    static const struct {
        const char *class_name, *hf, *gguf; /* gguf NULL: none, "": ignored */
    } cases[] = {
        {"LlamaForCausalLM", "model.layers.11.self_attn.q_proj.weight", "blk.11.attn_q.weight"},
        {"LlamaForCausalLM", "model.layers.0.post_attention_layernorm.weight",
         "blk.0.ffn_norm.weight"},
        {"LlamaForCausalLM", "model.layers.0.self_attn.rotary_emb.inv_freq", ""},
        {"LlamaForCausalLM", "model.layers.01.self_attn.q_proj.weight", NULL},
        {"LlamaForCausalLM", "model.layers.99999.self_attn.q_proj.weight", NULL},
        {"LlamaForCausalLM", "model.layers.0.self_attn.q_proj.weight_scale", NULL},
        {"LlamaForCausalLM", "model.layers.0.self_attn.q_proj", NULL},
        {"LlamaForCausalLM", "vision_tower.x", NULL},
        {"LlamaForCausalLM", "model.embed_tokens.weight", "token_embd.weight"},
        {"LlamaForCausalLM", "model.norm.weight", "output_norm.weight"},
        {"LlamaForCausalLM", "lm_head.weight", "output.weight"},
        {"Qwen2ForCausalLM", "model.layers.3.self_attn.k_proj.bias", "blk.3.attn_k.bias"},
        {"Qwen3ForCausalLM", "model.layers.3.self_attn.k_norm.weight", "blk.3.attn_k_norm.weight"},
        {"Phi3ForCausalLM", "model.layers.3.self_attn.qkv_proj.weight", "blk.3.attn_qkv.weight"},
        {"Phi3ForCausalLM", "model.layers.3.mlp.gate_up_proj.weight", "blk.3.ffn_up.weight"},
        {"Gemma2ForCausalLM", "model.layers.3.post_attention_layernorm.weight",
         "blk.3.post_attention_norm.weight"},
        {"Gemma2ForCausalLM", "model.layers.3.pre_feedforward_layernorm.weight",
         "blk.3.ffn_norm.weight"},
        {"Olmo2ForCausalLM", "model.layers.3.post_feedforward_layernorm.weight",
         "blk.3.post_ffw_norm.weight"},
        {"Olmo2ForCausalLM", "model.layers.3.input_layernorm.weight", NULL},
        {"Gemma3ForConditionalGeneration", "language_model.model.layers.3.mlp.up_proj.weight",
         "blk.3.ffn_up.weight"},
        {"Gemma3ForConditionalGeneration", "model.language_model.norm.weight",
         "output_norm.weight"},
        {"Gemma3ForConditionalGeneration", "vision_tower.vision_model.x.weight", ""},
        {"Gemma3ForConditionalGeneration", "model.layers.0.mlp.up_proj.weight", NULL},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char name[HF_NAME_BYTES] = "";
        enum hf_place place = hf_arch_place(hf_arch_find(cases[i].class_name), cases[i].hf, name);

        if (cases[i].gguf == NULL)
            assert_int_equal(place, HF_PLACE_NONE);
        else if (cases[i].gguf[0] == 0)
            assert_int_equal(place, HF_PLACE_IGNORED);
        else
            assert_string_equal(place == HF_PLACE_KNOWN ? name : "", cases[i].gguf);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_the_keys_of_each_class),
        cmocka_unit_test(finds_the_windowed_layers),
        cmocka_unit_test(computes_llama3_divisors),
        cmocka_unit_test(keeps_longrope_factors),
        cmocka_unit_test(takes_yarn_apart_as_gguf_does),
        cmocka_unit_test(refuses_what_it_does_not_compute),
        cmocka_unit_test(names_tensors_by_class),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
