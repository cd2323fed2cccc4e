#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "engine/model/gguf.h"
#include "tests/lib/gguf_build.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static const float ones[64] = {1, 1, 1, 1};

/* Parses what was built; the builder is left as it is. */
static enum status parse(const struct gguf_build *b, struct buf *file, struct gguf **g,
                         struct reason *why)
{
    buf_init(file);
    gguf_build_finish(b, file);
    return gguf_open_memory(file->data, file->len, g, why);
}

/* The file must be refused with this status and a reason that names the fault. */
static void refuses(struct gguf_build *b, enum status want, const char *text)
{
    struct gguf *g = NULL;
    struct reason why = {0};
    struct buf file;
    enum status s = parse(b, &file, &g, &why);

    if (s != want || strstr(why.text, text) == NULL)
        fail_msg("got %s \"%s\", want %s \"%s\"", status_name(s), why.text, status_name(want),
                 text);
    assert_null(g);
    buf_dispose(&file);
    gguf_build_dispose(b);
}

static void reads_metadata_of_each_type(void **state)
{
    const char *const words[] = {"a", "", "c\xFF"};
    const int32_t numbers[] = {-1, 0, 7};
    struct gguf_string s, all[3];
    struct gguf_build b;
    struct gguf *g = NULL;
    enum gguf_type type;
    struct buf file;
    uint32_t u;
    int32_t i;
    size_t n;
    float f;
    bool t;

    (void)state;
    gguf_build_init(&b);
    gguf_build_u32(&b, "u", 5);
    gguf_build_f32(&b, "f", 0.5f);
    gguf_build_bool(&b, "b", true);
    gguf_build_string(&b, "s", "text");
    gguf_build_strings(&b, "ss", words, 3);
    gguf_build_i32s(&b, "is", numbers, 3);
    gguf_build_key(&b, "u64", GGUF_U64);
    buf_put_u64(&b.kv, 9);
    gguf_build_key(&b, "big", GGUF_U64);
    buf_put_u64(&b.kv, UINT64_MAX);
    gguf_build_key(&b, "minus", GGUF_I8);
    buf_put_u8(&b.kv, 0xFF);
    assert_int_equal(parse(&b, &file, &g, NULL), ST_OK);
    assert_int_equal(gguf_version(g), 3);
    assert_int_equal(gguf_file_bytes(g), file.len);
    assert_true(gguf_get_u32(g, "u", &u) && u == 5);
    assert_true(gguf_get_u32(g, "u64", &u) && u == 9);
    assert_false(gguf_get_u32(g, "big", &u));
    assert_false(gguf_get_u32(g, "minus", &u));
    assert_false(gguf_get_u32(g, "f", &u));
    assert_false(gguf_get_u32(g, "absent", &u));
    assert_true(gguf_get_f32(g, "f", &f) && f == 0.5f);
    assert_true(gguf_get_bool(g, "b", &t) && t);
    assert_true(gguf_get_string(g, "s", &s) && s.len == 4 && memcmp(s.data, "text", 4) == 0);
    assert_true(gguf_array(g, "ss", &type, &n) && type == GGUF_STRING && n == 3);
    assert_true(gguf_array_strings(g, "ss", all, 3) && all[2].len == 2 && all[1].len == 0);
    assert_true(gguf_array_string(g, "ss", 2, &s) && s.data == all[2].data);
    assert_false(gguf_array_string(g, "ss", 3, &s));
    assert_true(gguf_array_i32(g, "is", 0, &i) && i == -1);
    assert_false(gguf_array_i32(g, "is", 3, &i));
    assert_false(gguf_array_i32(g, "ss", 0, &i));
    assert_string_equal(gguf_key(g, 3, &type), "s");
    assert_int_equal(type, GGUF_STRING);
    assert_null(gguf_key(g, 9, &type));
    gguf_close(g);
    buf_dispose(&file);
    gguf_build_dispose(&b);
}

static void finds_tensors_by_name(void **state)
{
    const uint64_t dims[] = {8, 2};
    struct gguf_build b;
    struct gguf *g = NULL;
    struct buf file;
    char name[32];

    (void)state;
    gguf_build_init(&b);
    for (int i = 0; i < 1000; i++) {
        float x[16] = {(float)i};

        snprintf(name, sizeof name, "t.%d", i);
        gguf_build_tensor(&b, name, TENSOR_F32, 2, dims, x, sizeof x);
    }
    assert_int_equal(parse(&b, &file, &g, NULL), ST_OK);
    assert_int_equal(gguf_n_tensors(g), 1000);
    for (int i = 0; i < 1000; i++) {
        const struct tensor *t;

        snprintf(name, sizeof name, "t.%d", i);
        t = gguf_tensor(g, name);
        assert_ptr_equal(t, gguf_tensor_at(g, (size_t)i));
        assert_true(((const float *)t->data)[0] == (float)i);
        assert_int_equal(t->bytes, 64);
        assert_int_equal(t->dims[2], 1);
    }
    assert_null(gguf_tensor(g, "t.1000"));
    assert_null(gguf_tensor_at(g, 1000));
    gguf_close(g);
    buf_dispose(&file);
    gguf_build_dispose(&b);
}

/* Version 2 differs from 3 in what it says of byte order, not in its layout. */
static void reads_version_2(void **state)
{
    const uint64_t dims[] = {4, 1};
    struct gguf_build b;
    struct gguf *g = NULL;
    struct buf file;
    uint32_t u;

    (void)state;
    gguf_build_init(&b);
    b.version = 2;
    gguf_build_u32(&b, "u", 5);
    gguf_build_tensor(&b, "t", TENSOR_F32, 2, dims, ones, 16);
    assert_int_equal(parse(&b, &file, &g, NULL), ST_OK);
    assert_int_equal(gguf_version(g), 2);
    assert_true(gguf_get_u32(g, "u", &u) && u == 5);
    assert_true(((const float *)gguf_tensor(g, "t")->data)[3] == 1.0f);
    gguf_close(g);
    buf_dispose(&file);
    gguf_build_dispose(&b);
}

static void knows_names_and_blocks_of_types(void **state)
{
    uint32_t elements, bytes;
    char list[128];

    (void)state;
    assert_string_equal(tensor_type_name(12), "Q4_K");
    assert_null(tensor_type_name(31));
    assert_null(tensor_type_name(1000));
    assert_true(tensor_type_block(TENSOR_Q4_1, &elements, &bytes));
    assert_int_equal(elements, 32);
    assert_int_equal(bytes, 20);
    assert_true(tensor_type_block(TENSOR_Q4_K, &elements, &bytes));
    assert_int_equal(elements, 256);
    assert_int_equal(bytes, 144);
    assert_false(tensor_type_block(15, &elements, &bytes));
    assert_false(tensor_type_block(1000, &elements, &bytes));
    tensor_type_list(list, sizeof list);
    assert_string_equal(list,
                        "F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, "
                        "IQ4_NL, IQ4_XS, BF16");
    tensor_type_list(list, 8);
    assert_string_equal(list, "F32, F1");
}

static void refuses_other_files_and_versions(void **state)
{
    struct gguf *g = NULL;
    struct reason why;
    struct gguf_build b;

    (void)state;
    assert_int_equal(gguf_open_memory("GGML and more than that", 23, &g, &why), ST_INVALID);
    assert_int_equal(gguf_open("/nonexistent/model.gguf", &g, &why), ST_NOT_FOUND);
    assert_int_equal(gguf_open("/", &g, &why), ST_INVALID);
    gguf_build_init(&b);
    b.version = 1;
    refuses(&b, ST_UNSUPPORTED, "GGUF version 1");
    gguf_build_init(&b);
    b.version = 3u << 24;
    refuses(&b, ST_UNSUPPORTED, "big-endian");
    gguf_build_init(&b);
    b.version = 4;
    refuses(&b, ST_UNSUPPORTED, "GGUF version 4");
}

static void refuses_counts_that_the_file_cannot_hold(void **state)
{
    struct gguf_build b;

    (void)state;
    gguf_build_init(&b);
    b.n_kv = (uint64_t)1 << 63;
    refuses(&b, ST_CORRUPT, "metadata keys");
    gguf_build_init(&b);
    b.n_tensors = UINT64_MAX;
    refuses(&b, ST_CORRUPT, "tensors");
    gguf_build_init(&b);
    gguf_build_key(&b, "k", GGUF_STRING);
    buf_put_u64(&b.kv, (uint64_t)1 << 63);
    refuses(&b, ST_CORRUPT, "k runs past");
    gguf_build_init(&b);
    gguf_build_key(&b, "k", GGUF_ARRAY);
    buf_put_u32(&b.kv, GGUF_U64);
    buf_put_u64(&b.kv, ((uint64_t)1 << 61) + 1); /* times 8 wraps to 8 */
    buf_put_u64(&b.kv, 0);
    refuses(&b, ST_CORRUPT, "longer than the file");
    gguf_build_init(&b);
    gguf_build_key(&b, "k", GGUF_ARRAY);
    buf_put_u32(&b.kv, GGUF_STRING);
    buf_put_u64(&b.kv, 2);
    buf_put_u64(&b.kv, 0);
    refuses(&b, ST_CORRUPT, "k");
}

static void refuses_bad_values(void **state)
{
    struct gguf_build b;

    (void)state;
    gguf_build_init(&b);
    gguf_build_key(&b, "k", (enum gguf_type)13);
    buf_put_u64(&b.kv, 0);
    refuses(&b, ST_CORRUPT, "no known type");
    gguf_build_init(&b);
    gguf_build_key(&b, "k", GGUF_BOOL);
    buf_put_u8(&b.kv, 2);
    refuses(&b, ST_CORRUPT, "boolean");
    gguf_build_init(&b);
    gguf_build_key(&b, "k", GGUF_ARRAY);
    buf_put_u32(&b.kv, GGUF_ARRAY);
    buf_put_u64(&b.kv, 0);
    refuses(&b, ST_UNSUPPORTED, "array of arrays");
    gguf_build_init(&b);
    gguf_build_u32(&b, "k", 1);
    gguf_build_u32(&b, "k", 2);
    refuses(&b, ST_CORRUPT, "k is there twice");
    gguf_build_init(&b);
    gguf_build_u32(&b, "a\nb", 1);
    refuses(&b, ST_CORRUPT, "plain text");
}

static void refuses_odd_alignments(void **state)
{
    const uint32_t odd[] = {0, 1, 4, 33, 1u << 30};
    struct gguf_build b;

    (void)state;
    for (size_t i = 0; i < COUNT_OF(odd); i++) {
        gguf_build_init(&b);
        gguf_build_u32(&b, "general.alignment", odd[i]);
        refuses(&b, ST_CORRUPT, "general.alignment");
    }
    gguf_build_init(&b);
    gguf_build_string(&b, "general.alignment", "32");
    refuses(&b, ST_CORRUPT, "general.alignment");
}

static void honours_the_alignment(void **state)
{
    const uint64_t dims[] = {3};
    struct gguf_build b;
    struct gguf *g = NULL;
    struct buf file;
    size_t start;

    (void)state;
    gguf_build_init(&b);
    b.alignment = 256;
    gguf_build_u32(&b, "general.alignment", 256);
    gguf_build_tensor(&b, "a", TENSOR_F32, 1, dims, ones, 12);
    gguf_build_tensor(&b, "b", TENSOR_F32, 1, dims, ones, 12);
    assert_int_equal(parse(&b, &file, &g, NULL), ST_OK);
    start = gguf_part_at(g, 0)->data_start;
    assert_int_equal(start % 256, 0);
    assert_ptr_equal(gguf_tensor(g, "b")->data, file.data + start + 256);
    gguf_close(g);
    buf_dispose(&file);
    gguf_build_dispose(&b);
}

static void add(struct gguf_build *b, const char *name, uint32_t type, uint32_t n_dims, uint64_t d0,
                uint64_t d1)
{
    const uint64_t dims[8] = {d0, d1, 1, 1, 1, 1, 1, 1};

    gguf_build_tensor(b, name, type, n_dims, dims, ones, sizeof ones);
}

static void refuses_bad_tensors(void **state)
{
    const struct {
        uint32_t type, n_dims;
        uint64_t d0, d1;
        enum status want;
        const char *text;
    } cases[] = {
        {TENSOR_F32, 2, 8, 0, ST_CORRUPT, "dimension of 0"},
        {TENSOR_F32, 0, 8, 1, ST_CORRUPT, "0 dimensions"},
        {TENSOR_F32, 5, 8, 1, ST_CORRUPT, "5 dimensions"},
        {TENSOR_F32, 2, (uint64_t)1 << 32, (uint64_t)1 << 32, ST_CORRUPT, "too many elements"},
        {TENSOR_F32, 2, (uint64_t)1 << 31, (uint64_t)1 << 31, ST_CORRUPT, "too many elements"},
        {TENSOR_F32, 1, 65, 1, ST_CORRUPT, "past the end"},
        {TENSOR_Q8_0, 2, 16, 2, ST_CORRUPT, "no multiple of Q8_0's 32"},
        {TENSOR_Q4_K, 2, 96, 2, ST_CORRUPT, "no multiple of Q4_K's 256"},
        {15, 1, 256, 1, ST_UNSUPPORTED, "Q8_K; supported: F32, F16, Q4_0"},
        {99, 1, 32, 1, ST_UNSUPPORTED, "unknown type 99"},
    };
    struct gguf_build b;

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        gguf_build_init(&b);
        add(&b, "t", cases[i].type, cases[i].n_dims, cases[i].d0, cases[i].d1);
        refuses(&b, cases[i].want, cases[i].text);
    }
    gguf_build_init(&b);
    add(&b, "t", TENSOR_F32, 1, 8, 1);
    add(&b, "t", TENSOR_F32, 1, 8, 1);
    refuses(&b, ST_CORRUPT, "t is there twice");
}

/* Overwrites the offset of the last tensor added. */
static void move_last(struct gguf_build *b, uint64_t offset)
{
    b->infos.len -= 8;
    buf_put_u64(&b->infos, offset);
}

static void refuses_misplaced_tensors(void **state)
{
    struct gguf_build b;

    (void)state;
    gguf_build_init(&b);
    add(&b, "a", TENSOR_F32, 1, 64, 1);
    add(&b, "b", TENSOR_F32, 1, 64, 1);
    move_last(&b, 32);
    refuses(&b, ST_CORRUPT, "a and b overlap");
    gguf_build_init(&b);
    add(&b, "a", TENSOR_F32, 1, 8, 1);
    move_last(&b, 4);
    refuses(&b, ST_CORRUPT, "no multiple of the alignment");
    gguf_build_init(&b);
    add(&b, "a", TENSOR_F32, 1, 8, 1);
    move_last(&b, UINT64_MAX - 31);
    refuses(&b, ST_CORRUPT, "past the end");
}

/* Every proper beginning of a file is refused, and none is read past its end. */
static void refuses_every_cut_file(void **state)
{
    struct tiny_model_options o = {.n_layers = 1, .n_embd = 32, .n_ff = 32};
    struct buf file;
    struct gguf *g = NULL;

    (void)state;
    buf_init(&file);
    tiny_model_build(&o, &file);
    for (size_t len = 0; len < file.len; len += len < 20000 ? 1 : 977) {
        /* a copy of its own, so that a sanitizer sees a read past the end */
        char *copy = malloc(len + 1);

        memcpy(copy, file.data, len);
        copy = realloc(copy, len > 0 ? len : 1);
        assert_int_not_equal(gguf_open_memory(copy, len, &g, NULL), ST_OK);
        free(copy);
    }
    buf_dispose(&file);
}

static void maps_a_file(void **state)
{
    char path[] = "/tmp/sluice-test-gguf-XXXXXX";
    int fd = mkstemp(path);
    struct gguf *g = NULL;

    (void)state;
    assert_int_not_equal(fd, -1);
    close(fd);
    assert_int_equal(gguf_open(path, &g, NULL), ST_CORRUPT); /* empty */
    tiny_model_write(NULL, path);
    assert_int_equal(gguf_open(path, &g, NULL), ST_OK);
    assert_non_null(gguf_tensor(g, "blk.1.ffn_down.weight"));
    gguf_close(g);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_metadata_of_each_type),
        cmocka_unit_test(finds_tensors_by_name),
        cmocka_unit_test(reads_version_2),
        cmocka_unit_test(knows_names_and_blocks_of_types),
        cmocka_unit_test(refuses_other_files_and_versions),
        cmocka_unit_test(refuses_counts_that_the_file_cannot_hold),
        cmocka_unit_test(refuses_bad_values),
        cmocka_unit_test(refuses_odd_alignments),
        cmocka_unit_test(honours_the_alignment),
        cmocka_unit_test(refuses_bad_tensors),
        cmocka_unit_test(refuses_misplaced_tensors),
        cmocka_unit_test(refuses_every_cut_file),
        cmocka_unit_test(maps_a_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
