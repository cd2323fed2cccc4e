#include "tests/lib/hf_build.h"

#include <assert.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/size.h"
#include "tests/lib/gguf_build.h"

void st_build_init(struct st_build *b)
{
    buf_init(&b->rows);
    buf_init(&b->data);
}

void st_build_dispose(struct st_build *b)
{
    buf_dispose(&b->rows);
    buf_dispose(&b->data);
}

void st_build_row(struct st_build *b, const char *row)
{
    if (b->rows.len > 0)
        buf_putc(&b->rows, ',');
    buf_puts(&b->rows, row);
}

void st_build_tensor(struct st_build *b, const char *name, const char *dtype, uint64_t rows,
                     uint64_t cols)
{
    size_t bytes = (size_t)(rows * (cols != 0 ? cols : 1)) * (strcmp(dtype, "F32") == 0 ? 4 : 2);
    struct buf row;

    buf_init(&row);
    buf_printf(&row, "\"%s\":{\"dtype\":\"%s\",\"shape\":[%" PRIu64, name, dtype, rows);
    if (cols != 0)
        buf_printf(&row, ",%" PRIu64, cols);
    buf_printf(&row, "],\"data_offsets\":[%zu,%zu]}", b->data.len, b->data.len + bytes);
    st_build_row(b, buf_cstr(&row));
    buf_dispose(&row);
    for (size_t i = 0; i < bytes; i++)
        buf_putc(&b->data, 0);
}

void st_build_raw(const char *header, size_t bytes, struct buf *out)
{
    buf_put_u64(out, strlen(header));
    buf_puts(out, header);
    for (size_t i = 0; i < bytes; i++)
        buf_putc(out, 0);
}

void st_build_finish(const struct st_build *b, struct buf *out)
{
    size_t header = b->rows.len + 2, padded = (header + 7) & ~(size_t)7;

    buf_put_u64(out, padded);
    buf_putc(out, '{');
    buf_append(out, b->rows.data, b->rows.len);
    buf_putc(out, '}');
    for (size_t i = header; i < padded; i++)
        buf_putc(out, ' ');
    buf_append(out, b->data.data, b->data.len);
    assert(!b->rows.failed && !b->data.failed && !out->failed);
}

void hf_folder_init(struct hf_folder *f)
{
    const char *made;

    strcpy(f->path, "/tmp/sluice-test-hf-XXXXXX");
    made = mkdtemp(f->path);
    assert(made != NULL);
}

void hf_folder_dispose(struct hf_folder *f)
{
    DIR *d = opendir(f->path);
    const struct dirent *e;
    int rc;

    assert(d != NULL);
    while ((e = readdir(d)) != NULL)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            unlink(hf_folder_file(f, e->d_name));
    closedir(d);
    rc = rmdir(f->path);
    assert(rc == 0);
}

const char *hf_folder_file(const struct hf_folder *f, const char *name)
{
    static char path[384];

    snprintf(path, sizeof path, "%s/%s", f->path, name);
    return path;
}

void hf_folder_write(const struct hf_folder *f, const char *name, const void *data, size_t len)
{
    FILE *out = fopen(hf_folder_file(f, name), "wb");
    bool written;

    assert(out != NULL);
    written = fwrite(data, 1, len, out) == len;
    written = fclose(out) == 0 && written;
    assert(written);
}

void hf_folder_text(const struct hf_folder *f, const char *name, const char *text)
{
    hf_folder_write(f, name, text, strlen(text));
}

void hf_folder_shard(const struct hf_folder *f, const char *name, const struct st_build *b)
{
    struct buf out;

    buf_init(&out);
    st_build_finish(b, &out);
    hf_folder_write(f, name, out.data, out.len);
    buf_dispose(&out);
}

void hf_tiny_llama_tensors(struct st_build *b, const char *dtype, unsigned from, unsigned to,
                           bool outside)
{
    static const struct {
        const char *name;
        uint64_t rows, cols;
    } table[] = {
        {"input_layernorm", 32, 0},   {"self_attn.q_proj", 32, 32},
        {"self_attn.k_proj", 16, 32}, {"self_attn.v_proj", 16, 32},
        {"self_attn.o_proj", 32, 32}, {"post_attention_layernorm", 32, 0},
        {"mlp.gate_proj", 48, 32},    {"mlp.up_proj", 48, 32},
        {"mlp.down_proj", 32, 48},
    };
    char name[96];

    for (unsigned layer = from; layer < to; layer++)
        for (size_t i = 0; i < COUNT_OF(table); i++) {
            snprintf(name, sizeof name, "model.layers.%u.%s.weight", layer, table[i].name);
            st_build_tensor(b, name, dtype, table[i].rows, table[i].cols);
        }
    if (!outside)
        return;
    st_build_tensor(b, "model.embed_tokens.weight", dtype, 288, 32);
    st_build_tensor(b, "model.norm.weight", dtype, 32, 0);
    st_build_tensor(b, "lm_head.weight", dtype, 288, 32);
}

void hf_tiny_llama_write(const struct hf_folder *f)
{
    struct st_build b;
    struct buf tokenizer;

    st_build_init(&b);
    hf_tiny_llama_tensors(&b, "F32", 0, 2, true);
    hf_folder_shard(f, "model.safetensors", &b);
    st_build_dispose(&b);
    hf_folder_text(f, "config.json", "{" HF_TINY_LLAMA "}");
    buf_init(&tokenizer);
    hf_tiny_tokenizer(&tokenizer);
    hf_folder_write(f, "tokenizer.json", tokenizer.data, tokenizer.len);
    buf_dispose(&tokenizer);
    hf_folder_text(f, "tokenizer_config.json",
                   "{\"bos_token\":\"<|im_start|>\",\"eos_token\":{\"content\":\"<|im_end|>\"},"
                   "\"pad_token\":null,\"chat_template\":\"{{ messages }}\"}");
}

static void put_added(const struct gguf *g, const struct gguf_string *tokens, struct buf *out)
{
    for (int i = 0; i < TINY_BYTE0; i++) {
        int32_t type = 0;

        (void)gguf_array_i32(g, "tokenizer.ggml.token_type", (size_t)i, &type);
        buf_printf(out, "%s{\"id\":%d,\"special\":%s,\"content\":", i > 0 ? "," : "", i,
                   type == 3 ? "true" : "false");
        json_put_string(out, tokens[i].data, tokens[i].len);
        buf_putc(out, '}');
    }
}

static void put_strings(const struct gguf *g, const char *key, struct buf *out)
{
    struct gguf_string strings[TINY_VOCAB];
    enum gguf_type type;
    size_t n = 0;
    bool there =
        gguf_array(g, key, &type, &n) && n <= TINY_VOCAB && gguf_array_strings(g, key, strings, n);

    assert(there);
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            buf_putc(out, ',');
        json_put_string(out, strings[i].data, strings[i].len);
    }
}

static void put_model(const struct gguf *g, const struct gguf_string *tokens, struct buf *out)
{
    buf_puts(out, "\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (int i = TINY_BYTE0; i < TINY_VOCAB; i++) {
        if (i > TINY_BYTE0)
            buf_putc(out, ',');
        json_put_string(out, tokens[i].data, tokens[i].len);
        buf_printf(out, ":%d", i);
    }
    buf_puts(out, "},\"merges\":[");
    put_strings(g, "tokenizer.ggml.merges", out);
    buf_puts(out, "]}");
}

void hf_tiny_tokenizer(struct buf *out)
{
    const struct tiny_model_options options = {.seed = 1};
    struct gguf_string tokens[TINY_VOCAB];
    struct gguf_build b;
    struct gguf *g = NULL;
    struct buf file;
    enum status s;

    gguf_build_init(&b);
    tiny_model_vocabulary(&b, &options);
    buf_init(&file);
    gguf_build_finish(&b, &file);
    s = gguf_open_memory(file.data, file.len, &g, NULL);
    assert(s == ST_OK);
    (void)gguf_array_strings(g, "tokenizer.ggml.tokens", tokens, TINY_VOCAB);
    buf_puts(out,
             "{\"version\":\"1.0\",\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Sequence\","
             "\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits\":true},"
             "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
             "\"use_regex\":true}]},\"post_processor\":null,\"added_tokens\":[");
    put_added(g, tokens, out);
    buf_puts(out, "],");
    put_model(g, tokens, out);
    buf_putc(out, '}');
    assert(!out->failed);
    gguf_close(g);
    buf_dispose(&file);
    gguf_build_dispose(&b);
}
