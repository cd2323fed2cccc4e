#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/model/safetensors.h"
#include "tests/lib/hf_build.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static void reads_names_types_and_dimensions(void **state)
{
    struct safetensors st;
    struct st_build b;
    struct buf file;
    size_t i;

    (void)state;
    st_build_init(&b);
    st_build_row(&b, "\"__metadata__\":{\"format\":\"pt\"}");
    st_build_tensor(&b, "a.weight", "F32", 3, 8);
    st_build_tensor(&b, "b", "BF16", 6, 0);
    st_build_tensor(&b, "c", "F16", 2, 2);
    buf_init(&file);
    st_build_finish(&b, &file);
    assert_int_equal(safetensors_read(&st, file.data, file.len, NULL), ST_OK);
    assert_int_equal(st.names.n, 3);
    assert_true(name_index_find(&st.names, "a.weight", &i));
    assert_int_equal(st.tensors[i].type, TENSOR_F32);
    assert_int_equal(st.tensors[i].n_dims, 2);
    assert_int_equal(st.tensors[i].dims[0], 8);
    assert_int_equal(st.tensors[i].dims[1], 3);
    assert_int_equal(st.tensors[i].dims[2], 1);
    assert_int_equal(st.tensors[i].bytes, 96);
    assert_ptr_equal(st.tensors[i].data, file.data + st.data_start);
    assert_true(name_index_find(&st.names, "c", &i));
    assert_int_equal(st.tensors[i].type, TENSOR_F16);
    assert_ptr_equal(st.tensors[i].data, file.data + st.data_start + 108);
    safetensors_dispose(&st);
    buf_dispose(&file);
    st_build_dispose(&b);
}

#define A(rest)          "{\"a\":{" rest "}}"
#define F32(shape, ends) A("\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" ends)
#define TWO(ends_a, ends_b)                                                                        \
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" ends_a "},"                        \
    "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" ends_b "}}"

/* The header is padded to 8 bytes first, so that the data is aligned. */
static void refuses_wrong_headers(void **state)
{
    static const struct {
        const char *header;
        size_t bytes;
        enum status want;
        const char *text;
    } cases[] = {
        {"[]", 0, ST_INVALID, "begin with '{'"},
        {"{", 0, ST_CORRUPT, "valid JSON"},
        {"{}x", 0, ST_CORRUPT, "valid JSON"},
        {"{\"a\":1}", 0, ST_CORRUPT, "header"},
        {"{\xFF}", 0, ST_CORRUPT, "UTF-8"},
        {A("\"dtype\":\"F32\",\"shape\":[1]"), 4, ST_CORRUPT, "a lacks its dtype"},
        {A("\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]"), 8, ST_UNSUPPORTED,
         "tensor a has dtype I64"},
        {A("\"dtype\":\"F8_E4M3\",\"shape\":[1],\"data_offsets\":[0,1]"), 1, ST_UNSUPPORTED,
         "F8_E4M3"},
        {A("\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]"), 4,
         ST_CORRUPT, "two dtypes"},
        {A("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1"), 4, ST_CORRUPT,
         "not of the format"},
        {F32("[1]", "[0]"), 4, ST_CORRUPT, "not two numbers"},
        {F32("[1]", "[0,4,8]"), 4, ST_CORRUPT, "not two numbers"},
        {F32("[1]", "[-4,0]"), 4, ST_CORRUPT, "not two numbers"},
        {F32("[1]", "[0,4.0]"), 4, ST_CORRUPT, "not two numbers"},
        {F32("[1.5]", "[0,4]"), 4, ST_CORRUPT, "header"},
        {F32("[]", "[0,4]"), 4, ST_UNSUPPORTED, "scalar"},
        {F32("[0]", "[0,0]"), 0, ST_CORRUPT, "dimension of 0"},
        {F32("[1,1,1,1,1]", "[0,4]"), 4, ST_UNSUPPORTED, "more than 4"},
        {F32("[4294967296,4294967296]", "[0,4]"), 4, ST_CORRUPT, "too many elements"},
        {F32("[4611686018427387904]", "[0,0]"), 0, ST_CORRUPT, "too many elements"},
        {F32("[18446744073709551616]", "[0,4]"), 4, ST_CORRUPT, "header"},
        {F32("[2]", "[0,4]"), 4, ST_CORRUPT, "4 bytes of data; its shape takes 8"},
        {F32("[1]", "[0,4]"), 3, ST_CORRUPT, "past the end"},
        {F32("[1]", "[9223372036854775808,9223372036854775812]"), 4, ST_CORRUPT, "past the end"},
        {F32("[1]", "[4,0]"), 4, ST_CORRUPT, "past the end"},
        {F32("[1]", "[0,4]"), 8, ST_CORRUPT, "last 4 bytes belong to no tensor"},
        {F32("[1]", "[4,8]"), 8, ST_CORRUPT, "4 bytes before tensor a"},
        {TWO("[0,4]", "[0,4]"), 4, ST_CORRUPT, "overlap"},
        {TWO("[0,4]", "[8,12]"), 12, ST_CORRUPT, "4 bytes before tensor b"},
        {"{\"a\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,2]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}",
         6, ST_UNSUPPORTED, "tensor b begins at an address"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         8, ST_CORRUPT, "a is there twice"},
        {"{\"\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, ST_CORRUPT,
         "a tensor's name"},
        {"{\"a\\u0041\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, ST_CORRUPT,
         "a tensor's name"},
        {"{\"__metadata__\":{\"format\":\"tf\"}}", 0, ST_UNSUPPORTED, "format tf"},
        {"{\"__metadata__\":{\"format\":1}}", 0, ST_CORRUPT, "header"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, ST_CORRUPT, "__metadata__ is there twice"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct reason why = {0};
        struct safetensors st;
        struct buf file, header;
        enum status s;

        buf_init(&file);
        buf_init(&header);
        buf_puts(&header, cases[i].header);
        while (header.len % 8 != 0)
            buf_putc(&header, ' ');
        st_build_raw(buf_cstr(&header), cases[i].bytes, &file);
        s = safetensors_read(&st, file.data, file.len, &why);
        if (s != cases[i].want || strstr(why.text, cases[i].text) == NULL)
            fail_msg("case %zu: got %s \"%s\", want %s \"%s\"", i, status_name(s), why.text,
                     status_name(cases[i].want), cases[i].text);
        buf_dispose(&file);
        buf_dispose(&header);
    }
}

static void refuses_header_lengths_that_cannot_be(void **state)
{
    const uint64_t lengths[] = {0, 3, 17, 100000001, (uint64_t)1 << 63, UINT64_MAX};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        struct safetensors st;
        struct buf file;

        buf_init(&file);
        buf_put_u64(&file, lengths[i]);
        buf_puts(&file, "{}              "); /* 16 */
        assert_int_not_equal(safetensors_read(&st, file.data, file.len, NULL), ST_OK);
        buf_dispose(&file);
    }
}

/* A header of nothing but opening brackets must not be recursed into. */
static void refuses_deep_nesting(void **state)
{
    struct reason why = {0};
    struct safetensors st;
    struct buf header, file;

    (void)state;
    buf_init(&header);
    buf_init(&file);
    buf_puts(&header, "{\"a\":");
    for (int i = 0; i < 1000000; i++)
        buf_putc(&header, '[');
    st_build_raw(buf_cstr(&header), 0, &file);
    assert_int_equal(safetensors_read(&st, file.data, file.len, &why), ST_CORRUPT);
    assert_non_null(strstr(why.text, "near byte"));
    buf_dispose(&header);
    buf_dispose(&file);
}

/* Every proper beginning of a file is refused, and none is read past its end. */
static void refuses_every_cut_file(void **state)
{
    struct safetensors st;
    struct st_build b;
    struct buf file;

    (void)state;
    st_build_init(&b);
    st_build_tensor(&b, "a", "F32", 3, 8);
    st_build_tensor(&b, "b", "BF16", 6, 0);
    buf_init(&file);
    st_build_finish(&b, &file);
    for (size_t len = 0; len < file.len; len++) {
        /* a copy of its own, so that a sanitizer sees a read past the end */
        char *copy = malloc(len > 0 ? len : 1);

        memcpy(copy, file.data, len);
        assert_int_not_equal(safetensors_read(&st, copy, len, NULL), ST_OK);
        free(copy);
    }
    buf_dispose(&file);
    st_build_dispose(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_names_types_and_dimensions),
        cmocka_unit_test(refuses_wrong_headers),
        cmocka_unit_test(refuses_header_lengths_that_cannot_be),
        cmocka_unit_test(refuses_deep_nesting),
        cmocka_unit_test(refuses_every_cut_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
