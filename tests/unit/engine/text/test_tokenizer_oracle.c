/* Against Hugging Face's tokenizers on the real vocabulary: tests/data/tokenizer_smollm2.json, made
 * by tools/oracle_tokenizer.py. Needs the model's file: SLUICE_TEST_MODEL, else it is skipped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "engine/text/tokenizer.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static void same_ids(const struct tokenizer *t, const json_t *c, size_t i)
{
    const json_t *text = json_object_get(c, "text"), *want = json_object_get(c, "ids");
    struct text_span span = {json_string_value(text), json_string_length(text),
                             json_is_true(json_object_get(c, "control"))};
    struct token_ids ids = {0};

    assert_int_equal(tokenizer_encode(t, &span, 1, false, 100000, &ids), ST_OK);
    if (ids.n != json_array_size(want))
        fail_msg("case %zu: %zu ids, want %zu", i, ids.n, json_array_size(want));
    for (size_t k = 0; k < ids.n; k++)
        if (ids.ids[k] != json_integer_value(json_array_get(want, k)))
            fail_msg("case %zu: id %zu is %d", i, k, ids.ids[k]);
    token_ids_dispose(&ids);
}

/* What was encoded is what the pieces say, where the vocabulary has every byte of it. */
static void same_text(const struct tokenizer *t, const json_t *c)
{
    const json_t *text = json_object_get(c, "text"), *ids = json_object_get(c, "ids");
    struct buf out;

    buf_init(&out);
    for (size_t k = 0; k < json_array_size(ids); k++) {
        size_t len;
        const char *piece =
            tokenizer_piece(t, (int32_t)json_integer_value(json_array_get(ids, k)), &len);

        buf_append(&out, piece, len);
    }
    if (out.len == json_string_length(text) && out.len > 0)
        assert_memory_equal(out.data, json_string_value(text), out.len);
    else
        assert_true(out.len <= json_string_length(text));
    buf_dispose(&out);
}

static void gives_the_ids_of_the_reference(void **state)
{
    const char *path = getenv("SLUICE_TEST_MODEL");
    json_t *data = json_load_file("tests/data/tokenizer_smollm2.json", JSON_ALLOW_NUL, NULL);
    const json_t *cases = json_object_get(data, "cases");
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;

    (void)state;
    if (path == NULL || *path == 0) {
        json_decref(data);
        skip();
    }
    assert_true(json_array_size(cases) > 300);
    assert_int_equal(gguf_open(path, &g, NULL), ST_OK);
    assert_int_equal(tokenizer_new(g, &t, NULL), ST_OK);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        same_ids(t, json_array_get(cases, i), i);
        same_text(t, json_array_get(cases, i));
    }
    tokenizer_free(t);
    gguf_close(g);
    json_decref(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_ids_of_the_reference),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
