#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/size.h"
#include "engine/model/hf.h"
#include "engine/model/model.h"
#include "engine/text/tokenizer.h"
#include "tests/lib/gguf_build.h"
#include "tests/lib/hf_build.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define INDEX_ENTRY(name, file) "\"" name "\":\"" file "\""

/* The folder must be refused with a reason that names the fault. */
static void refuses(const struct hf_folder *f, enum status want, const char *text)
{
    struct gguf *g = NULL;
    struct reason why = {0};
    enum status s = hf_open(f->path, &g, &why);

    if (s != want || strstr(why.text, text) == NULL)
        fail_msg("got %s \"%s\", want %s \"%s\"", status_name(s), why.text, status_name(want),
                 text);
    assert_null(g);
}

static void write_shard(const struct hf_folder *f, const char *name, unsigned from, unsigned to,
                        bool outside)
{
    struct st_build b;

    st_build_init(&b);
    hf_tiny_llama_tensors(&b, "F32", from, to, outside);
    hf_folder_shard(f, name, &b);
    st_build_dispose(&b);
}

/* Names of the tensors of both shards, layer 0 and the rest in the first, layer 1 in the second. */
static void write_index(const struct hf_folder *f, const char *second, const char *more)
{
    static const char *const modules[] = {
        "input_layernorm",  "self_attn.q_proj", "self_attn.k_proj",
        "self_attn.v_proj", "self_attn.o_proj", "post_attention_layernorm",
        "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj",
    };
    struct buf text;

    buf_init(&text);
    buf_puts(&text, "{\"metadata\":{\"total_size\":1},\"weight_map\":{");
    for (int layer = 0; layer < 2; layer++)
        for (size_t i = 0; i < COUNT_OF(modules); i++)
            buf_printf(&text, "\"model.layers.%d.%s.weight\":\"%s\",", layer, modules[i],
                       layer == 0 ? "a.safetensors" : second);
    buf_puts(&text, INDEX_ENTRY("model.embed_tokens.weight", "a.safetensors") ",");
    buf_puts(&text, INDEX_ENTRY("model.norm.weight", "a.safetensors") ",");
    buf_printf(&text, INDEX_ENTRY("lm_head.weight", "a.safetensors") "%s}}", more);
    hf_folder_write(f, "model.safetensors.index.json", text.data, text.len);
    buf_dispose(&text);
}

static void write_sharded(const struct hf_folder *f)
{
    hf_folder_text(f, "config.json", "{" HF_TINY_LLAMA "}");
    write_shard(f, "a.safetensors", 0, 1, true);
    write_shard(f, "b.safetensors", 1, 2, false);
    write_index(f, "b.safetensors", "");
}

static void presents_a_folder_as_a_gguf(void **state)
{
    struct hf_folder f;
    struct gguf *g = NULL;
    struct gguf_string s;
    const struct tensor *t;
    enum gguf_type type;
    size_t n;

    (void)state;
    hf_folder_init(&f);
    hf_tiny_llama_write(&f);
    assert_int_equal(hf_open(f.path, &g, NULL), ST_OK);
    assert_int_equal(gguf_n_tensors(g), 21);
    t = gguf_tensor(g, "blk.1.ffn_down.weight");
    assert_non_null(t);
    assert_int_equal(t->dims[0], 48);
    assert_int_equal(t->dims[1], 32);
    assert_true(gguf_get_string(g, "general.architecture", &s) && s.len == 5);
    assert_true(gguf_array(g, "tokenizer.ggml.tokens", &type, &n) && n == TINY_VOCAB);
    assert_true(gguf_get_string(g, "tokenizer.chat_template", &s));
    assert_int_equal(s.len, strlen("{{ messages }}"));
    gguf_close(g);
    hf_folder_dispose(&f);
}

static void opens_as_a_model(void **state)
{
    struct hf_folder f;
    struct model *m = NULL;
    struct reason why = {0};

    (void)state;
    hf_folder_init(&f);
    hf_tiny_llama_write(&f);
    if (model_open(f.path, &m, &why) != ST_OK)
        fail_msg("%s", why.text);
    assert_int_equal(m->shape.n_layers, 2);
    assert_int_equal(m->shape.n_vocab, 288);
    assert_ptr_not_equal(m->output, m->token_embd);
    assert_int_equal(strlen(m->revision), 64);
    model_close(m);
    hf_folder_dispose(&f);
}

/* The same vocabulary from both formats gives the same ids. */
static void tokenizes_as_the_gguf_does(void **state)
{
    static const char text[] =
        "<|im_start|>user\nhello the world  <tool_call>s 42 \xC3\xA9<|im_end|>";
    const struct text_span span = {text, sizeof text - 1, true};
    struct token_ids a = {0}, b = {0};
    struct tokenizer *from_gguf = NULL, *from_folder = NULL;
    struct gguf *g = NULL, *h = NULL;
    struct hf_folder f;
    struct buf file;

    (void)state;
    hf_folder_init(&f);
    hf_tiny_llama_write(&f);
    buf_init(&file);
    tiny_model_build(NULL, &file);
    assert_int_equal(gguf_open_memory(file.data, file.len, &g, NULL), ST_OK);
    assert_int_equal(hf_open(f.path, &h, NULL), ST_OK);
    assert_int_equal(tokenizer_new(g, &from_gguf, NULL), ST_OK);
    assert_int_equal(tokenizer_new(h, &from_folder, NULL), ST_OK);
    assert_int_equal(tokenizer_encode(from_gguf, &span, 1, true, 1000, &a), ST_OK);
    assert_int_equal(tokenizer_encode(from_folder, &span, 1, true, 1000, &b), ST_OK);
    assert_true(a.n > 10);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.ids, b.ids, a.n * sizeof *a.ids);
    assert_int_equal(tokenizer_eos_id(from_folder), TINY_IM_END);
    assert_int_equal(tokenizer_bos_id(from_folder), TINY_IM_START);
    token_ids_dispose(&a);
    token_ids_dispose(&b);
    tokenizer_free(from_gguf);
    tokenizer_free(from_folder);
    gguf_close(g);
    gguf_close(h);
    buf_dispose(&file);
    hf_folder_dispose(&f);
}

static void opens_shards_by_the_index(void **state)
{
    struct hf_folder f;
    struct gguf *g = NULL;

    (void)state;
    hf_folder_init(&f);
    write_sharded(&f);
    assert_int_equal(hf_open(f.path, &g, NULL), ST_OK);
    assert_int_equal(gguf_n_tensors(g), 21);
    assert_non_null(gguf_part_at(g, 2));
    assert_null(gguf_part_at(g, 3));
    assert_int_equal(gguf_tensor(g, "blk.1.attn_q.weight")->type, TENSOR_F32);
    gguf_close(g);
    hf_folder_dispose(&f);
}

static void refuses_an_index_that_lies(void **state)
{
    static const struct {
        const char *second, *more;
        enum status want;
        const char *text;
    } cases[] = {
        {"../b.safetensors", "", ST_INVALID, "no *.safetensors of the folder"},
        {"/etc/b.safetensors", "", ST_INVALID, "no *.safetensors of the folder"},
        {".b.safetensors", "", ST_INVALID, "no *.safetensors of the folder"},
        {"b.bin", "", ST_INVALID, "no *.safetensors of the folder"},
        {"c.safetensors", "", ST_NOT_FOUND, "c.safetensors"},
        {"a.safetensors", "", ST_CORRUPT, "is not in a.safetensors"},
        {"b.safetensors", "," INDEX_ENTRY("x", "b.safetensors"), ST_CORRUPT,
         "tensor x is not in b.safetensors"},
        {"b.safetensors", "," INDEX_ENTRY("lm_head.weight", "a.safetensors"), ST_CORRUPT, "twice"},
        {"b.safetensors", ",\"x\":1", ST_CORRUPT, "weight_map"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct hf_folder f;

        hf_folder_init(&f);
        write_sharded(&f);
        write_index(&f, cases[i].second, cases[i].more);
        refuses(&f, cases[i].want, cases[i].text);
        hf_folder_dispose(&f);
    }
}

static void refuses_a_tensor_that_the_index_does_not_list(void **state)
{
    struct hf_folder f;
    struct st_build b;

    (void)state;
    hf_folder_init(&f);
    write_sharded(&f);
    st_build_init(&b);
    hf_tiny_llama_tensors(&b, "BF16", 1, 2, false);
    st_build_tensor(&b, "x", "BF16", 8, 0);
    hf_folder_shard(&f, "b.safetensors", &b);
    refuses(&f, ST_CORRUPT, "tensor x of b.safetensors is not in");
    st_build_dispose(&b);
    st_build_init(&b);
    hf_tiny_llama_tensors(&b, "BF16", 1, 2, false);
    st_build_tensor(&b, "model.norm.weight", "BF16", 32, 0);
    hf_folder_shard(&f, "b.safetensors", &b);
    refuses(&f, ST_CORRUPT, "in two shards");
    st_build_dispose(&b);
    hf_folder_dispose(&f);
}

static void refuses_incomplete_folders(void **state)
{
    struct hf_folder f;
    struct st_build b;

    (void)state;
    hf_folder_init(&f);
    refuses(&f, ST_NOT_FOUND, "no config.json");
    hf_folder_text(&f, "config.json", "{" HF_TINY_LLAMA "}");
    refuses(&f, ST_NOT_FOUND, "neither model.safetensors nor");
    st_build_init(&b);
    hf_tiny_llama_tensors(&b, "F32", 0, 2, false);
    hf_folder_shard(&f, "model.safetensors", &b);
    refuses(&f, ST_CORRUPT, "model.embed_tokens.weight");
    st_build_tensor(&b, "model.embed_tokens.weight", "F32", 288, 32);
    hf_folder_shard(&f, "model.safetensors", &b);
    refuses(&f, ST_CORRUPT, "lm_head.weight");
    hf_folder_text(&f, "config.json",
                   "{" HF_TINY_LLAMA ",\"tie_word_embeddings\":true,"
                   "\"vocab_size_\":1}");
    st_build_tensor(&b, "model.layers.0.self_attn.q_proj.lora_A.weight", "F32", 8, 0);
    hf_folder_shard(&f, "model.safetensors", &b);
    refuses(&f, ST_UNSUPPORTED, "lora_A.weight is not part of a LlamaForCausalLM");
    st_build_dispose(&b);
    hf_folder_dispose(&f);
}

static void refuses_a_vocabulary_of_another_size(void **state)
{
    struct hf_folder f;

    (void)state;
    hf_folder_init(&f);
    hf_tiny_llama_write(&f);
    hf_folder_text(&f, "config.json",
                   "{\"architectures\":[\"LlamaForCausalLM\"],\"num_hidden_layers\":2,"
                   "\"hidden_size\":32,\"num_attention_heads\":4,\"intermediate_size\":48,"
                   "\"vocab_size\":1048576,\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5}");
    refuses(&f, ST_CORRUPT, "the embedding has 288 rows");
    hf_folder_dispose(&f);
}

/* Only regular files are opened, whatever a link of that name leads to. */
static void refuses_what_is_no_file(void **state)
{
    struct hf_folder f;

    (void)state;
    hf_folder_init(&f);
    write_sharded(&f);
    unlink(hf_folder_file(&f, "b.safetensors"));
    assert_int_equal(symlink("/dev/zero", hf_folder_file(&f, "b.safetensors")), 0);
    refuses(&f, ST_INVALID, "b.safetensors is not a regular file");
    unlink(hf_folder_file(&f, "b.safetensors"));
    assert_int_equal(mkfifo(hf_folder_file(&f, "b.safetensors"), 0600), 0);
    refuses(&f, ST_INVALID, "b.safetensors is not a regular file");
    hf_folder_dispose(&f);
}

static void uses_the_embedding_where_they_are_tied(void **state)
{
    struct hf_folder f;
    struct gguf *g = NULL;

    (void)state;
    hf_folder_init(&f);
    hf_tiny_llama_write(&f);
    hf_folder_text(&f, "config.json", "{" HF_TINY_LLAMA ",\"tie_word_embeddings\":true}");
    assert_int_equal(hf_open(f.path, &g, NULL), ST_OK);
    assert_null(gguf_tensor(g, "output.weight"));
    gguf_close(g);
    hf_folder_dispose(&f);
}

static void computes_the_tensors_of_llama3_scaling(void **state)
{
    struct hf_folder f;
    struct gguf *g = NULL;
    const struct tensor *t;

    (void)state;
    hf_folder_init(&f);
    hf_tiny_llama_write(&f);
    hf_folder_text(&f, "config.json",
                   "{" HF_TINY_LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
                   "\"low_freq_factor\":1,\"high_freq_factor\":4,"
                   "\"original_max_position_embeddings\":32}}");
    assert_int_equal(hf_open(f.path, &g, NULL), ST_OK);
    t = gguf_tensor(g, "rope_freqs.weight");
    assert_non_null(t);
    assert_int_equal(t->type, TENSOR_F32);
    assert_int_equal(t->n_dims, 1);
    assert_int_equal(t->dims[0], 4);
    assert_int_equal(t->bytes, 16);
    assert_true(((const float *)t->data)[0] == 1.0f && ((const float *)t->data)[3] == 8.0f);
    gguf_close(g);
    hf_folder_dispose(&f);
}

static void revision_of(const struct hf_folder *f, char out[65])
{
    struct model *m = NULL;

    assert_int_equal(model_open(f->path, &m, NULL), ST_OK);
    memcpy(out, m->revision, 65);
    model_close(m);
}

/* The folder's name is no part of it; each shard and the tokenizer are. */
static void revision_covers_all_files(void **state)
{
    struct hf_folder f, copy;
    char first[65], other[65];
    FILE *shard;

    (void)state;
    hf_folder_init(&f);
    hf_folder_init(&copy);
    write_sharded(&f);
    write_sharded(&copy);
    revision_of(&f, first);
    revision_of(&copy, other);
    assert_string_equal(first, other);
    shard = fopen(hf_folder_file(&f, "b.safetensors"), "r+b");
    assert_non_null(shard);
    assert_int_equal(fseek(shard, -1, SEEK_END), 0);
    assert_int_equal(fputc(1, shard), 1);
    assert_int_equal(fclose(shard), 0);
    revision_of(&f, other);
    assert_string_not_equal(first, other);
    hf_folder_text(&copy, "chat_template.jinja", "x");
    revision_of(&copy, other);
    assert_string_not_equal(first, other);
    hf_folder_dispose(&f);
    hf_folder_dispose(&copy);
}

/* What a folder's owner has never seen is not left unexplained. */
static void says_when_a_name_is_a_translation(void **state)
{
    struct reason why = {0};
    struct model *m = NULL;
    struct hf_folder f;

    (void)state;
    hf_folder_init(&f);
    hf_tiny_llama_write(&f);
    write_shard(&f, "model.safetensors", 0, 1, true);
    assert_int_equal(model_open(f.path, &m, &why), ST_CORRUPT);
    assert_non_null(strstr(why.text, "blk.1.attn_norm.weight"));
    assert_non_null(strstr(why.text, "in GGUF's names"));
    hf_folder_dispose(&f);
}

static void asks_for_the_tokenizer_by_its_file(void **state)
{
    struct reason why = {0};
    struct tokenizer *t = NULL;
    struct gguf *g = NULL;
    struct hf_folder f;

    (void)state;
    hf_folder_init(&f);
    hf_tiny_llama_write(&f);
    hf_folder_text(&f, "tokenizer.model", "x");
    assert_int_equal(unlink(hf_folder_file(&f, "tokenizer.json")), 0);
    assert_int_equal(hf_open(f.path, &g, NULL), ST_OK);
    assert_int_equal(tokenizer_new(g, &t, &why), ST_NOT_FOUND);
    assert_non_null(strstr(why.text, "tokenizer.json"));
    gguf_close(g);
    hf_folder_dispose(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presents_a_folder_as_a_gguf),
        cmocka_unit_test(opens_as_a_model),
        cmocka_unit_test(tokenizes_as_the_gguf_does),
        cmocka_unit_test(opens_shards_by_the_index),
        cmocka_unit_test(refuses_an_index_that_lies),
        cmocka_unit_test(refuses_a_tensor_that_the_index_does_not_list),
        cmocka_unit_test(refuses_incomplete_folders),
        cmocka_unit_test(refuses_a_vocabulary_of_another_size),
        cmocka_unit_test(refuses_what_is_no_file),
        cmocka_unit_test(uses_the_embedding_where_they_are_tied),
        cmocka_unit_test(computes_the_tensors_of_llama3_scaling),
        cmocka_unit_test(revision_covers_all_files),
        cmocka_unit_test(says_when_a_name_is_a_translation),
        cmocka_unit_test(asks_for_the_tokenizer_by_its_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
