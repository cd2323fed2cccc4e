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
#include "tests/lib/hf_build.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

/* One part as a test makes it; zeros mean what is right for `number` of 3. */
struct part {
    uint32_t number; /* 1..3 */
    const char *name;
    uint32_t no, count, tensors; /* as written, when not 0 */
    const char *more;            /* a tensor more */
    bool cut;                    /* half its tensor's data is missing */
};

static void name_of(uint32_t number, char out[64])
{
    snprintf(out, 64, "m-%05u-of-00003.gguf", number);
}

/* Part i has one tensor, "t<i>", of eight floats that are i. */
static void write_part(const struct hf_folder *f, const struct part *p)
{
    const uint64_t dims[] = {8};
    char file_name[64], tensor[8];
    struct gguf_build b;
    float values[8];
    struct buf file;

    name_of(p->number, file_name);
    gguf_build_init(&b);
    if (p->number == 1)
        gguf_build_string(&b, "general.name", "whole");
    gguf_build_u32(&b, "split.no", p->no != 0 ? p->no : p->number - 1);
    gguf_build_u32(&b, "split.count", p->count != 0 ? p->count : 3);
    gguf_build_u32(&b, "split.tensors.count", p->tensors != 0 ? p->tensors : 3);
    for (size_t i = 0; i < COUNT_OF(values); i++)
        values[i] = (float)p->number;
    snprintf(tensor, sizeof tensor, "t%u", p->number);
    gguf_build_tensor(&b, tensor, TENSOR_F32, 1, dims, values, p->cut ? 16 : 32);
    if (p->more != NULL)
        gguf_build_tensor(&b, p->more, TENSOR_F32, 1, dims, values, 32);
    buf_init(&file);
    gguf_build_finish(&b, &file);
    hf_folder_write(f, p->name != NULL ? p->name : file_name, file.data, file.len);
    buf_dispose(&file);
    gguf_build_dispose(&b);
}

static void write_all(const struct hf_folder *f)
{
    for (uint32_t i = 1; i <= 3; i++)
        write_part(f, &(struct part){.number = i});
}

static void refuses(const struct hf_folder *f, const char *name, enum status want, const char *text)
{
    struct gguf *g = NULL;
    struct reason why = {0};
    enum status s = gguf_open(hf_folder_file(f, name), &g, &why);

    if (s != want || strstr(why.text, text) == NULL)
        fail_msg("got %s \"%s\", want %s \"%s\"", status_name(s), why.text, status_name(want),
                 text);
    assert_null(g);
}

static void presents_the_parts_as_one(void **state)
{
    struct hf_folder f;
    struct gguf *g = NULL;
    struct gguf_string s;
    char name[8];

    (void)state;
    hf_folder_init(&f);
    write_all(&f);
    assert_int_equal(gguf_open(hf_folder_file(&f, "m-00001-of-00003.gguf"), &g, NULL), ST_OK);
    assert_int_equal(gguf_n_tensors(g), 3);
    for (int i = 1; i <= 3; i++) {
        const struct tensor *t;

        snprintf(name, sizeof name, "t%d", i);
        t = gguf_tensor(g, name);
        assert_non_null(t);
        assert_true(((const float *)t->data)[7] == (float)i);
        assert_ptr_equal(t, gguf_tensor_at(g, (size_t)i - 1));
    }
    assert_true(gguf_get_string(g, "general.name", &s) && s.len == 5);
    assert_non_null(gguf_part_at(g, 2));
    assert_null(gguf_part_at(g, 3));
    assert_int_equal(gguf_file_bytes(g),
                     gguf_part_at(g, 0)->len + gguf_part_at(g, 1)->len + gguf_part_at(g, 2)->len);
    gguf_close(g);
    hf_folder_dispose(&f);
}

static void asks_for_the_first_part(void **state)
{
    struct hf_folder f;

    (void)state;
    hf_folder_init(&f);
    write_all(&f);
    refuses(&f, "m-00002-of-00003.gguf", ST_INVALID, "give the first one, m-00001-of-00003.gguf");
    write_part(&f, &(struct part){.number = 1, .name = "renamed.gguf"});
    refuses(&f, "renamed.gguf", ST_INVALID, "must be named NAME-00001-of-00003.gguf");
    hf_folder_dispose(&f);
}

static void refuses_parts_of_another_model(void **state)
{
    static const struct {
        struct part part;
        enum status want;
        const char *text;
    } cases[] = {
        {{.number = 2, .no = 2}, ST_CORRUPT, "m-00002-of-00003.gguf: split.no is not 1"},
        {{.number = 2, .count = 4}, ST_CORRUPT, "split.count is not 3"},
        {{.number = 3, .tensors = 9}, ST_CORRUPT, "split.tensors.count is not 3"},
        {{.number = 3, .more = "t1"}, ST_CORRUPT, "more tensors than split.tensors.count"},
        {{.number = 2, .more = "t1"}, ST_CORRUPT, "t1 of m-00002-of-00003.gguf is in another part"},
        {{.number = 3, .cut = true}, ST_CORRUPT, "m-00003-of-00003.gguf: tensor t3 lies past"},
        {{.number = 1, .tensors = 4294967295u}, ST_CORRUPT, "split.tensors.count"},
        {{.number = 1, .count = 65536}, ST_TOO_LARGE, "split.count is 65536"},
        {{.number = 1, .no = 3}, ST_CORRUPT, "split.no"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct hf_folder f;

        hf_folder_init(&f);
        write_all(&f);
        write_part(&f, &cases[i].part);
        refuses(&f, "m-00001-of-00003.gguf", cases[i].want, cases[i].text);
        hf_folder_dispose(&f);
    }
}

static void refuses_missing_parts_and_tensors(void **state)
{
    struct hf_folder f;

    (void)state;
    hf_folder_init(&f);
    write_part(&f, &(struct part){.number = 1});
    write_part(&f, &(struct part){.number = 2});
    refuses(&f, "m-00001-of-00003.gguf", ST_NOT_FOUND, "m-00003-of-00003.gguf");
    for (uint32_t i = 1; i <= 3; i++)
        write_part(&f, &(struct part){.number = i, .tensors = 4});
    refuses(&f, "m-00001-of-00003.gguf", ST_CORRUPT, "have 3 tensors");
    hf_folder_dispose(&f);
}

/* Bytes have no others beside them. */
static void refuses_a_part_in_memory(void **state)
{
    struct gguf_build b;
    struct gguf *g = NULL;
    struct reason why = {0};
    struct buf file;

    (void)state;
    gguf_build_init(&b);
    gguf_build_u32(&b, "split.count", 2);
    buf_init(&file);
    gguf_build_finish(&b, &file);
    assert_int_equal(gguf_open_memory(file.data, file.len, &g, &why), ST_UNSUPPORTED);
    assert_non_null(strstr(why.text, "one of the 2 files"));
    assert_null(g);
    buf_dispose(&file);
    gguf_build_dispose(&b);
}

static void put_shape(struct gguf_build *b)
{
    static const struct {
        const char *key;
        uint32_t value;
    } sizes[] = {
        {"llama.block_count", 1},          {"llama.context_length", 512},
        {"llama.embedding_length", 64},    {"llama.feed_forward_length", 96},
        {"llama.attention.head_count", 4}, {"llama.attention.head_count_kv", 2},
    };

    gguf_build_string(b, "general.architecture", "llama");
    gguf_build_f32(b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        gguf_build_u32(b, sizes[i].key, sizes[i].value);
}

/* A model's tensors in two parts; `flip` changes the last byte of the second. */
static void write_halves(const struct hf_folder *f, const struct gguf *whole, bool flip)
{
    static const char *const names[] = {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf"};

    for (uint32_t part = 0; part < 2; part++) {
        struct gguf_build b;
        struct buf file;

        gguf_build_init(&b);
        if (part == 0)
            put_shape(&b);
        gguf_build_u32(&b, "split.no", part);
        gguf_build_u32(&b, "split.count", 2);
        gguf_build_u32(&b, "split.tensors.count", (uint32_t)gguf_n_tensors(whole));
        for (size_t i = part; i < gguf_n_tensors(whole); i += 2) {
            const struct tensor *t = gguf_tensor_at(whole, i);

            gguf_build_tensor(&b, t->name, t->type, t->n_dims, t->dims, t->data, t->bytes);
        }
        if (flip && part == 1)
            b.data.data[b.data.len - 1] ^= 1;
        buf_init(&file);
        gguf_build_finish(&b, &file);
        hf_folder_write(f, names[part], file.data, file.len);
        buf_dispose(&file);
        gguf_build_dispose(&b);
    }
}

static void revision_sees_every_part(void **state)
{
    const struct tiny_model_options o = {.n_layers = 1};
    struct gguf *whole = NULL;
    struct hf_folder f;
    struct model *m = NULL, *n = NULL;
    struct buf file;
    const char *first;

    (void)state;
    hf_folder_init(&f);
    buf_init(&file);
    tiny_model_build(&o, &file);
    assert_int_equal(gguf_open_memory(file.data, file.len, &whole, NULL), ST_OK);
    write_halves(&f, whole, false);
    first = hf_folder_file(&f, "m-00001-of-00002.gguf");
    assert_int_equal(model_open(first, &m, NULL), ST_OK);
    write_halves(&f, whole, true);
    first = hf_folder_file(&f, "m-00001-of-00002.gguf");
    assert_int_equal(model_open(first, &n, NULL), ST_OK);
    assert_string_not_equal(m->revision, n->revision);
    model_close(m);
    model_close(n);
    gguf_close(whole);
    buf_dispose(&file);
    hf_folder_dispose(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presents_the_parts_as_one),
        cmocka_unit_test(asks_for_the_first_part),
        cmocka_unit_test(refuses_parts_of_another_model),
        cmocka_unit_test(refuses_missing_parts_and_tensors),
        cmocka_unit_test(refuses_a_part_in_memory),
        cmocka_unit_test(revision_sees_every_part),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
