/* The error object. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "api/errors.h"
#include "base/json.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static json_t *error_object(const struct api_error *e)
{
    struct reason why;
    struct buf b;
    json_t *doc = NULL;

    buf_init(&b);
    error_put(&b, e);
    assert_int_equal(json_parse(b.data, b.len, 4, &doc, &why), ST_OK);
    buf_dispose(&b);
    return doc;
}

static void every_error_has_its_four_members(void **state)
{
    (void)state;
    for (int k = ERROR_NONE + 1; k < ERROR_COUNT; k++) {
        struct api_error e = {.kind = (enum error_kind)k};
        json_t *doc = error_object(&e);
        json_t *in = json_object_get(doc, "error");

        assert_int_equal(json_object_size(doc), 1);
        assert_int_equal(json_object_size(in), 4);
        assert_true(json_string_length(json_object_get(in, "message")) > 0);
        assert_true(json_is_string(json_object_get(in, "type")));
        assert_true(json_is_null(json_object_get(in, "param")));
        assert_non_null(json_object_get(in, "code"));
        assert_true(error_info(e.kind)->http >= 400 && error_info(e.kind)->http < 600);
        json_decref(doc);
    }
}

static void text_and_param_of_the_reason_win(void **state)
{
    struct api_error e;
    json_t *doc, *in;

    (void)state;
    assert_false(error_set(&e, ERROR_TYPE, "stop", "a \"quoted\" %s\n", "word"));
    doc = error_object(&e);
    in = json_object_get(doc, "error");
    assert_string_equal(json_string_value(json_object_get(in, "message")), "a \"quoted\" word\n");
    assert_string_equal(json_string_value(json_object_get(in, "param")), "stop");
    assert_string_equal(json_string_value(json_object_get(in, "code")), "invalid_type");
    json_decref(doc);
}

static void every_status_means_something_to_a_client(void **state)
{
    (void)state;
    for (int s = 1; s < STATUS_COUNT; s++)
        assert_true(error_info(error_from_status((enum status)s))->http >= 400);
    assert_int_equal(error_info(error_from_status(ST_TOO_LONG))->http, 400);
    assert_int_equal(error_info(error_from_status(ST_UNAVAILABLE))->http, 503);
    assert_int_equal(error_info(error_from_status(ST_CORRUPT))->http, 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_error_has_its_four_members),
        cmocka_unit_test(text_and_param_of_the_reason_win),
        cmocka_unit_test(every_status_means_something_to_a_client),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
