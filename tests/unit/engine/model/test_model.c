#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/model/model.h"
#include "tests/lib/gguf_build.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static void opens_every_type(void **state)
{
    uint32_t block_elements, block_bytes;

    (void)state;
    for (uint32_t type = 0; type < TENSOR_TYPES; type++) {
        struct tiny_model_options o = {.type = type, .untied = type % 2 == 1};
        struct model *m = NULL;
        struct buf file;

        if (!tensor_type_block(type, &block_elements, &block_bytes))
            continue;
        if (block_elements == 256) {
            o.n_embd = 256;
            o.n_ff = 512;
            o.n_heads = 16;
        }
        buf_init(&file);
        tiny_model_build(&o, &file);
        assert_int_equal(model_open_memory(file.data, file.len, &m, NULL), ST_OK);
        assert_int_equal(m->shape.n_layers, 2);
        assert_int_equal(m->shape.n_vocab, TINY_VOCAB);
        assert_int_equal(m->shape.head_dim, 16);
        assert_int_equal(m->shape.rope.dims, 16);
        assert_int_equal(m->shape.context_tokens, 512);
        assert_int_equal(m->layers[1].attn_k->dims[1], 32);
        assert_int_equal(m->layers[0].ffn_down->type, type);
        assert_int_equal(m->output == m->token_embd, !o.untied);
        assert_string_equal(m->name, "Tiny random");
        assert_int_equal(strlen(m->revision), 64);
        model_close(m);
        buf_dispose(&file);
    }
}

static void revision_of(const struct tiny_model_options *o, char out[65])
{
    struct model *m = NULL;
    struct buf file;

    buf_init(&file);
    tiny_model_build(o, &file);
    assert_int_equal(model_open_memory(file.data, file.len, &m, NULL), ST_OK);
    memcpy(out, m->revision, 65);
    model_close(m);
    buf_dispose(&file);
}

static void revision_tells_models_apart(void **state)
{
    const struct tiny_model_options one = {.seed = 1}, two = {.seed = 2},
                                    named = {.seed = 1, .chat_template = "x"};
    char a[65], b[65];

    (void)state;
    revision_of(&one, a);
    revision_of(&one, b);
    assert_string_equal(a, b);
    revision_of(&two, b);
    assert_string_not_equal(a, b);
    revision_of(&named, b);
    assert_string_not_equal(a, b);
}

/* What a test changes in an otherwise right file: a key more, a key left out or given another
 * value, a tensor more, left out or of another shape. */
struct change {
    const char *arch;        /* NULL: llama */
    const char *skip_key;    /* this shape key is left out */
    const char *key;         /* added... */
    float number;            /* ...as f32, ... */
    const char *text;        /* ...or as a string */
    const char *skip_tensor; /* left out */
    const char *tensor;      /* added as a vector */
    enum tensor_type norm;   /* type of output_norm.weight */
    uint64_t extra_rows;     /* of blk.0.attn_k.weight */
    enum status want;
    const char *reason; /* part of it */
};

static bool is(const char *a, const char *b)
{
    return a != NULL && strcmp(a, b) == 0;
}

static const char *arch_of(const struct change *c)
{
    return c->arch != NULL ? c->arch : "llama";
}

static void put_sizes(struct gguf_build *b, const struct change *c)
{
    const struct {
        const char *suffix;
        uint32_t value;
    } sizes[] = {
        {"block_count", 1},          {"context_length", 64},      {"embedding_length", 32},
        {"feed_forward_length", 32}, {"attention.head_count", 4}, {"attention.head_count_kv", 2},
    };
    char key[64];

    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        snprintf(key, sizeof key, "%s.%s", arch_of(c), sizes[i].suffix);
        if (!is(c->skip_key, key))
            gguf_build_u32(b, key, sizes[i].value);
    }
    if (!is(c->skip_key, "general.architecture"))
        gguf_build_string(b, "general.architecture", arch_of(c));
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch_of(c));
    if (!is(c->skip_key, key))
        gguf_build_f32(b, key, 1e-5f);
    if (c->text != NULL)
        gguf_build_string(b, c->key, c->text);
    else if (c->key != NULL)
        gguf_build_f32(b, c->key, c->number);
}

static void put_tensors(struct gguf_build *b, const struct change *c)
{
    const struct {
        const char *name;
        uint64_t rows, cols;
    } tensors[] = {
        {"token_embd.weight", 40, 32},        {"output_norm.weight", 0, 32},
        {"blk.0.attn_norm.weight", 0, 32},    {"blk.0.attn_q.weight", 32, 32},
        {"blk.0.attn_k.weight", 16, 32},      {"blk.0.attn_v.weight", 16, 32},
        {"blk.0.attn_output.weight", 32, 32}, {"blk.0.ffn_norm.weight", 0, 32},
        {"blk.0.ffn_gate.weight", 32, 32},    {"blk.0.ffn_up.weight", 32, 32},
        {"blk.0.ffn_down.weight", 32, 32},
    };
    uint64_t seed = 3;

    for (size_t i = 0; i < COUNT_OF(tensors); i++) {
        const char *name = tensors[i].name;
        uint64_t extra = strcmp(name, "blk.0.attn_k.weight") == 0 ? c->extra_rows : 0;
        enum tensor_type type = strcmp(name, "output_norm.weight") == 0 ? c->norm : TENSOR_F32;

        if (!is(c->skip_tensor, name))
            gguf_build_random(b, name, type, tensors[i].rows + extra, tensors[i].cols, 0, 1, &seed);
    }
    if (is(c->arch, "gemma2")) {
        gguf_build_random(b, "blk.0.post_attention_norm.weight", TENSOR_F32, 0, 32, 0, 1, &seed);
        gguf_build_random(b, "blk.0.post_ffw_norm.weight", TENSOR_F32, 0, 32, 0, 1, &seed);
    }
    if (c->tensor != NULL)
        gguf_build_random(b, c->tensor, TENSOR_F32, 0, 32, 0, 1, &seed);
}

static enum status open_changed(const struct change *c, struct model **m, struct reason *why,
                                struct buf *file)
{
    struct gguf_build b;

    gguf_build_init(&b);
    put_sizes(&b, c);
    put_tensors(&b, c);
    buf_init(file);
    gguf_build_finish(&b, file);
    gguf_build_dispose(&b);
    return model_open_memory(file->data, file->len, m, why);
}

static void refuses_by_name_what_it_would_compute_wrongly(void **state)
{
    const struct change changes[] = {
        {.skip_key = "general.architecture", .want = ST_CORRUPT, .reason = "architecture"},
        {.skip_key = "general.architecture",
         .key = "general.architecture",
         .text = "rwkv7",
         .want = ST_UNSUPPORTED,
         .reason = "architecture rwkv7 is not supported; these are: gemma2, "},
        {.key = "general.type", .text = "adapter", .want = ST_UNSUPPORTED, .reason = "adapter"},
        {.key = "llama.rope.scaling.type",
         .text = "dynamic",
         .want = ST_UNSUPPORTED,
         .reason = "dynamic scaling"},
        {.key = "llama.rope.scaling.type",
         .text = "longrope",
         .want = ST_CORRUPT,
         .reason = "two sets of factors"},
        {.key = "llama.rope.scaling.factor",
         .number = -4,
         .want = ST_CORRUPT,
         .reason = "llama.rope.scaling.factor"},
        {.key = "llama.attention.clamp_kqv",
         .number = 8,
         .want = ST_UNSUPPORTED,
         .reason = "llama.attention.clamp_kqv"},
        {.key = "llama.new_mathematics",
         .number = 8,
         .want = ST_UNSUPPORTED,
         .reason = "llama.new_mathematics is no key that"},
        {.key = "llama.expert_count",
         .number = 8,
         .want = ST_UNSUPPORTED,
         .reason = "llama.expert_count: mixtures of experts"},
        {.arch = "olmo2",
         .key = "olmo2.attention.sliding_window",
         .number = 16,
         .want = ST_UNSUPPORTED,
         .reason = "olmo2.attention.sliding_window"},
        {.arch = "granite",
         .key = "granite.attention.sliding_window",
         .number = 16,
         .want = ST_UNSUPPORTED,
         .reason = "granite.attention.sliding_window"},
        {.key = "llama.attention.sliding_window",
         .number = 4096.5f,
         .want = ST_CORRUPT,
         .reason = "llama.attention.sliding_window"},
        {.key = "llama.attention.scale",
         .number = -0.5f,
         .want = ST_CORRUPT,
         .reason = "llama.attention.scale"},
        {.key = "llama.logit_scale",
         .number = 1e-9f,
         .want = ST_CORRUPT,
         .reason = "llama.logit_scale"},
        {.key = "llama.rope.freq_base",
         .number = -1,
         .want = ST_CORRUPT,
         .reason = "llama.rope.freq_base"},
        {.key = "llama.attention.key_length",
         .number = 8,
         .want = ST_UNSUPPORTED,
         .reason = "llama.attention.key_length"}, /* a float */
        {.skip_key = "llama.block_count", .want = ST_CORRUPT, .reason = "llama.block_count"},
        {.skip_key = "llama.attention.layer_norm_rms_epsilon",
         .want = ST_CORRUPT,
         .reason = "rms_epsilon"},
        {.skip_key = "llama.attention.head_count_kv", .want = ST_CORRUPT, .reason = "attn_k"},
        {.tensor = "blk.0.attn_q.bias",
         .want = ST_UNSUPPORTED,
         .reason = "a bias is not supported"},
        {.tensor = "rope_freqs.weight", .want = ST_CORRUPT, .reason = "not 4 F32 numbers"},
        {.tensor = "blk.1.attn_q.weight", .want = ST_UNSUPPORTED, .reason = "blk.1.attn_q.weight"},
        {.tensor = "output.weight", .want = ST_CORRUPT, .reason = "output.weight"}, /* a vector */
        {.skip_tensor = "token_embd.weight", .want = ST_CORRUPT, .reason = "token_embd.weight"},
        {.skip_tensor = "blk.0.ffn_up.weight", .want = ST_CORRUPT, .reason = "blk.0.ffn_up"},
        {.extra_rows = 1, .want = ST_CORRUPT, .reason = "blk.0.attn_k.weight"},
        {.norm = TENSOR_Q8_0, .want = ST_UNSUPPORTED, .reason = "norms and biases must be"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(changes); i++) {
        struct model *m = NULL;
        struct reason why = {0};
        struct buf file;
        enum status s = open_changed(&changes[i], &m, &why, &file);

        if (s != changes[i].want || strstr(why.text, changes[i].reason) == NULL)
            fail_msg("case %zu: got %s \"%s\", want \"%s\"", i, status_name(s), why.text,
                     changes[i].reason);
        buf_dispose(&file);
    }
}

static void accepts_features_that_are_turned_off(void **state)
{
    const struct change changes[] = {
        {.key = NULL},
        {.key = "llama.rope.scaling.type", .text = "none"},
        {.key = "llama.rope.scaling.factor", .number = 1},
        {.key = "llama.expert_count", .number = 0},
        {.key = "general.type", .text = "model"},
        {.key = "other.logit_scale", .number = 3},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(changes); i++) {
        struct model *m = NULL;
        struct reason why = {0};
        struct buf file;
        enum status s = open_changed(&changes[i], &m, &why, &file);

        if (s != ST_OK)
            fail_msg("case %zu: %s", i, why.text);
        assert_true(m->shape.rope.base == 10000.0f);
        model_close(m);
        buf_dispose(&file);
    }
}

/* Gemma 2's first files leave out their window, and the references' default has always been its own
 * 4096: without it long contexts would be another model's. */
static void knows_the_window_of_gemma2(void **state)
{
    const struct change silent = {.arch = "gemma2"};
    struct model *m = NULL;
    struct buf file;

    (void)state;
    assert_int_equal(open_changed(&silent, &m, NULL, &file), ST_OK);
    assert_int_equal(m->shape.window, 4096);
    assert_true(m->layers[0].windowed);
    model_close(m);
    buf_dispose(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_every_type),
        cmocka_unit_test(revision_tells_models_apart),
        cmocka_unit_test(refuses_by_name_what_it_would_compute_wrongly),
        cmocka_unit_test(accepts_features_that_are_turned_off),
        cmocka_unit_test(knows_the_window_of_gemma2),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
