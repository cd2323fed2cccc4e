/* The tiny model of gguf_build.h: metadata, vocabulary and random weights. */
#include "tests/lib/gguf_build.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/utf8.h"

static const char chatml[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' "
    "}}{% endif %}";

static const char *const added[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>",
                                    "<tool_call>s"};
static const int32_t added_types[] = {3, 3, 3, 4, 4};

/* In rank order; both sides exist as bytes or as results of earlier merges. U+0120 is the space. */
static const char *const merges[] = {
    "h e",           "l l",
    "he ll",         "hell o",
    "\u0120 w",      "o r",
    "or l",          "orl d",
    "\u0120w orld",  "\u0120 t",
    "\u0120t he",    "i n",
    "in g",          "e r",
    "a n",           "an d",
    "\u0120 and",    "\u0120 a",
    "o n",           "s t",
    "\u0120 \u0120", "\u0120\u0120 \u0120\u0120",
    "r e",           "u s",
    "us er",         "s s",
    "a ss",
};

/* GPT-2's byte alphabet: printable bytes stand for themselves, the others for U+0100 onwards. */
static void byte_text(int byte, char out[5])
{
    uint32_t cp = (uint32_t)byte;
    bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);

    if (!printable) {
        cp = 0x100;
        for (int b = 0; b < byte; b++)
            cp += !((b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xFF && b != 0xAD));
    }
    out[utf8_encode(cp, out)] = 0;
}

static void merged_text(const char *merge, char *out)
{
    const char *space = strchr(merge, ' ');

    memcpy(out, merge, (size_t)(space - merge));
    strcpy(out + (space - merge), space + 1);
}

void tiny_model_vocabulary(struct gguf_build *b, const struct tiny_model_options *o)
{
    char texts[TINY_VOCAB][24];
    const char *tokens[TINY_VOCAB];
    int32_t types[TINY_VOCAB];

    _Static_assert(COUNT_OF(added) == TINY_BYTE0, "added tokens come before the bytes");
    _Static_assert(COUNT_OF(merges) == TINY_N_MERGES, "a token for each merge");
    for (int i = 0; i < TINY_VOCAB; i++) {
        if (i < TINY_BYTE0)
            strcpy(texts[i], added[i]);
        else if (i < TINY_MERGE0)
            byte_text(i - TINY_BYTE0, texts[i]);
        else
            merged_text(merges[i - TINY_MERGE0], texts[i]);
        tokens[i] = texts[i];
        types[i] = i < TINY_BYTE0 ? added_types[i] : 1;
    }
    gguf_build_string(b, "tokenizer.ggml.model", "gpt2");
    gguf_build_string(b, "tokenizer.ggml.pre", o->pre != NULL ? o->pre : "smollm");
    gguf_build_strings(b, "tokenizer.ggml.tokens", tokens, TINY_VOCAB);
    gguf_build_i32s(b, "tokenizer.ggml.token_type", types, TINY_VOCAB);
    gguf_build_strings(b, "tokenizer.ggml.merges", merges, COUNT_OF(merges));
    gguf_build_u32(b, "tokenizer.ggml.bos_token_id", TINY_IM_START);
    gguf_build_u32(b, "tokenizer.ggml.eos_token_id", TINY_IM_END);
    gguf_build_u32(b, "tokenizer.ggml.unknown_token_id", TINY_ENDOFTEXT);
    gguf_build_u32(b, "tokenizer.ggml.padding_token_id", TINY_ENDOFTEXT);
    gguf_build_bool(b, "tokenizer.ggml.add_bos_token", o->add_bos);
    gguf_build_string(b, "tokenizer.chat_template",
                      o->chat_template != NULL ? o->chat_template : chatml);
}

static uint32_t or_default(uint32_t v, uint32_t otherwise)
{
    return v != 0 ? v : otherwise;
}

static struct tiny_model_options with_defaults(const struct tiny_model_options *o)
{
    struct tiny_model_options r = o != NULL ? *o : (struct tiny_model_options){0};

    r.seed = r.seed != 0 ? r.seed : 1;
    r.n_layers = or_default(r.n_layers, 2);
    r.n_embd = or_default(r.n_embd, 64);
    r.n_heads = or_default(r.n_heads, 4);
    r.n_kv_heads = or_default(r.n_kv_heads, 2);
    r.n_ff = or_default(r.n_ff, 96);
    r.context_tokens = or_default(r.context_tokens, 512);
    assert(r.n_embd % r.n_heads == 0 && r.n_heads % r.n_kv_heads == 0);
    return r;
}

static void put_shape(struct gguf_build *b, const struct tiny_model_options *o)
{
    gguf_build_string(b, "general.architecture", "llama");
    gguf_build_string(b, "general.name", "Tiny random");
    gguf_build_u32(b, "llama.block_count", o->n_layers);
    gguf_build_u32(b, "llama.context_length", o->context_tokens);
    gguf_build_u32(b, "llama.embedding_length", o->n_embd);
    gguf_build_u32(b, "llama.feed_forward_length", o->n_ff);
    gguf_build_u32(b, "llama.attention.head_count", o->n_heads);
    gguf_build_u32(b, "llama.attention.head_count_kv", o->n_kv_heads);
    gguf_build_u32(b, "llama.rope.dimension_count", o->n_embd / o->n_heads);
    gguf_build_u32(b, "llama.vocab_size", TINY_VOCAB);
    gguf_build_f32(b, "llama.rope.freq_base", 10000.0f);
    gguf_build_f32(b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
}

/* A matrix whose outputs have about `gain` times the standard deviation of its inputs. */
static void put_matrix(struct gguf_build *b, const struct tiny_model_options *o, const char *name,
                       uint32_t rows, uint32_t cols, float gain, uint64_t *seed)
{
    gguf_build_random(b, name, o->type, rows, cols, 0.0f, gain * sqrtf(3.0f / (float)cols), seed);
}

static void put_layer(struct gguf_build *b, const struct tiny_model_options *o, uint32_t layer,
                      uint64_t *seed)
{
    const uint32_t embd = o->n_embd, kv = embd / o->n_heads * o->n_kv_heads, ff = o->n_ff;
    const struct {
        const char *suffix;
        uint32_t rows, cols; /* rows 0: a norm */
        float gain;
    } table[] = {
        {"attn_norm", 0, embd, 0},         {"attn_q", embd, embd, 1.5f},
        {"attn_k", kv, embd, 1.5f},        {"attn_v", kv, embd, 1.0f},
        {"attn_output", embd, embd, 1.0f}, {"ffn_norm", 0, embd, 0},
        {"ffn_gate", ff, embd, 1.0f},      {"ffn_up", ff, embd, 1.0f},
        {"ffn_down", embd, ff, 1.5f},
    };
    char name[64];

    for (size_t i = 0; i < COUNT_OF(table); i++) {
        snprintf(name, sizeof name, "blk.%u.%s.weight", layer, table[i].suffix);
        if (table[i].rows == 0)
            gguf_build_random(b, name, TENSOR_F32, 0, embd, 1.0f, 0.2f, seed);
        else
            put_matrix(b, o, name, table[i].rows, table[i].cols, table[i].gain, seed);
    }
}

void tiny_model_build(const struct tiny_model_options *options, struct buf *out)
{
    struct tiny_model_options o = with_defaults(options);
    uint64_t seed = o.seed;
    struct gguf_build b;

    gguf_build_init(&b);
    put_shape(&b, &o);
    tiny_model_vocabulary(&b, &o);
    put_matrix(&b, &o, "token_embd.weight", TINY_VOCAB, o.n_embd, 2.0f, &seed);
    for (uint32_t i = 0; i < o.n_layers; i++)
        put_layer(&b, &o, i, &seed);
    gguf_build_random(&b, "output_norm.weight", TENSOR_F32, 0, o.n_embd, 1.0f, 0.2f, &seed);
    if (o.untied)
        put_matrix(&b, &o, "output.weight", TINY_VOCAB, o.n_embd, 2.0f, &seed);
    gguf_build_finish(&b, out);
    gguf_build_dispose(&b);
}

void tiny_model_write(const struct tiny_model_options *o, const char *path)
{
    FILE *f = fopen(path, "wb");
    struct buf out;
    bool written;

    assert(f != NULL);
    buf_init(&out);
    tiny_model_build(o, &out);
    written = fwrite(out.data, 1, out.len, f) == out.len;
    written = fclose(f) == 0 && written;
    assert(written);
    buf_dispose(&out);
}
