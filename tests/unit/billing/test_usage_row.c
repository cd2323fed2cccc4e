#include "billing/usage_row.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"
#include "billing/report_out.h"
#include "tests/lib/journal_help.h"

static struct usage_row sample_row(void)
{
    return (struct usage_row){.seq = 1, .admission = sample_admission(5), .final = sample_final(5)};
}

static void a_row_costs_what_its_admission_s_price_says(void **state)
{
    struct usage_row row = sample_row();

    (void)state;
    row.final.prompt_tokens = 1000;
    row.final.cached_tokens = 400;
    row.final.output_tokens = 10;
    /* 600 * 0.1 + 400 * 0.05 + 10 * 0.4 units per million, in nanos */
    assert_int_equal(usage_row_cost(&row), 60000 + 20000 + 4000);
}

static void the_bounds_keep_every_cost_within_64_bits(void **state)
{
    struct usage_row row = sample_row();

    (void)state;
    row.final.prompt_tokens = row.final.output_tokens = USAGE_TOKENS_MAX;
    row.admission.price.input_nanos = row.admission.price.output_nanos = USAGE_PRICE_MAX_NANOS;
    row.admission.price.request_nanos = USAGE_PRICE_MAX_NANOS;
    assert_true(usage_admission_is_valid(&row.admission));
    assert_true(usage_final_is_valid(&row.final));
    assert_true(usage_row_cost(&row) > 0);
}

static void what_could_not_be_posted_is_not_valid(void **state)
{
    struct billing_admission a = sample_admission(1);
    struct billing_final f = sample_final(1);

    (void)state;
    assert_true(usage_admission_is_valid(&a));
    assert_true(usage_final_is_valid(&f));
    a.price.input_nanos = USAGE_PRICE_MAX_NANOS + 1;
    assert_false(usage_admission_is_valid(&a));
    a = sample_admission(1);
    strcpy(a.price.currency, "US");
    assert_false(usage_admission_is_valid(&a));
    a = sample_admission(1);
    strcpy(a.client_request_id, "\xFF");
    assert_false(usage_admission_is_valid(&a));
    f.cached_tokens = f.prompt_tokens + 1;
    assert_false(usage_final_is_valid(&f));
    f = sample_final(1);
    f.output_tokens = -1;
    assert_false(usage_final_is_valid(&f));
    f = sample_final(1);
    f.ended_at_us = USAGE_TIME_MAX_US + 1;
    assert_false(usage_final_is_valid(&f));
}

static void text_from_outside_becomes_storable(void **state)
{
    char text[] = "a\xFF\nb\xC3\xA9\xC2\x85\xE2\x82";

    (void)state;
    usage_clean_text(text);
    assert_string_equal(text, "a??b\xC3\xA9????");
}

static void stamps_are_utc_to_the_microsecond(void **state)
{
    char text[USAGE_TIME_TEXT_BYTES];

    (void)state;
    usage_format_time(0, text);
    assert_string_equal(text, "1970-01-01T00:00:00.000000Z");
    usage_format_time(INT64_C(1738367999999999), text);
    assert_string_equal(text, "2025-01-31T23:59:59.999999Z");
    usage_format_time(USAGE_TIME_MAX_US, text);
    assert_string_equal(text, "9999-12-31T23:59:59.999999Z");
}

static void a_row_is_a_json_object_of_its_columns(void **state)
{
    struct usage_row row = sample_row();
    json_t *doc = NULL;
    struct buf b;

    (void)state;
    strcpy(row.admission.client_request_id, "\"quoted\", {braced}");
    row.final.ttft_us = -1;
    row.final.finish_reason[0] = '\0';
    buf_init(&b);
    usage_row_put_json(&b, &row);
    assert_int_equal(json_parse(b.data, b.len, 2, &doc, NULL), ST_OK);
    assert_string_equal(json_string_value(json_object_get(doc, "client_request_id")),
                        "\"quoted\", {braced}");
    assert_string_equal(json_string_value(json_object_get(doc, "outcome")), "completed");
    assert_true(json_is_null(json_object_get(doc, "finish_reason")));
    assert_null(json_object_get(doc, "ttft_us"));
    assert_int_equal(json_integer_value(json_object_get(doc, "cost_nanos")), usage_row_cost(&row));
    json_decref(doc);
    buf_dispose(&b);
}

static const char *csv(struct buf *b, const char *s, bool is_text)
{
    buf_clear(b);
    report_put_csv(b, s, is_text);
    return buf_cstr(b);
}

static void csv_fields_are_quoted_and_are_no_formulas(void **state)
{
    struct buf b;

    (void)state;
    buf_init(&b);
    assert_string_equal(csv(&b, "plain", true), "plain");
    assert_string_equal(csv(&b, NULL, true), "");
    assert_string_equal(csv(&b, "a,b", true), "\"a,b\"");
    assert_string_equal(csv(&b, "say \"no\"", true), "\"say \"\"no\"\"\"");
    assert_string_equal(csv(&b, "two\r\nlines", true), "\"two\r\nlines\"");
    assert_string_equal(csv(&b, "=1+1", true), "\"'=1+1\"");
    assert_string_equal(csv(&b, "+1", true), "\"'+1\"");
    assert_string_equal(csv(&b, "-1", true), "\"'-1\"");
    assert_string_equal(csv(&b, "@cmd", true), "\"'@cmd\"");
    assert_string_equal(csv(&b, "\tx", true), "\"'\tx\"");
    assert_string_equal(csv(&b, "-1", false), "-1");
    buf_dispose(&b);
}

static void a_page_of_ours_is_read_back_and_no_other(void **state)
{
    static const char *const bad[] = {
        "", "page_", "page_0", "page_-1", "page_12x", "12", "page_99999999999999999999"};
    int64_t at = 7;

    (void)state;
    assert_true(usage_page_parse("page_1730419200", &at));
    assert_int_equal(at, 1730419200);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(usage_page_parse(bad[i], &at));
    assert_int_equal(at, 1730419200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_costs_what_its_admission_s_price_says),
        cmocka_unit_test(the_bounds_keep_every_cost_within_64_bits),
        cmocka_unit_test(what_could_not_be_posted_is_not_valid),
        cmocka_unit_test(text_from_outside_becomes_storable),
        cmocka_unit_test(stamps_are_utc_to_the_microsecond),
        cmocka_unit_test(a_row_is_a_json_object_of_its_columns),
        cmocka_unit_test(csv_fields_are_quoted_and_are_no_formulas),
        cmocka_unit_test(a_page_of_ours_is_read_back_and_no_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
