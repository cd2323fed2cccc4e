/* GET /v1/organization/usage/completions' pages over rows in a real PostgreSQL. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/json.h"
#include "base/log.h"
#include "base/size.h"
#include "tests/lib/billing_rig.h"
#include "tests/lib/poll_loop.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static struct reason why;

static void on_usage(struct usage_query *q)
{
    q->tenant_id = -1; /* the mark of this test's wait */
}

static bool is_usage_done(void *arg)
{
    return ((struct usage_query *)arg)->tenant_id == -1;
}

static json_t *ask(struct billing *b, struct usage_query *q)
{
    json_t *doc = NULL;

    q->loop = rig.loop;
    q->on_done = on_usage;
    assert_int_equal(billing_usage(b, q), ST_OK);
    assert_true(poll_loop_run_until(rig.loop, is_usage_done, q, RIG_WAIT_MS));
    assert_int_equal(q->status, ST_OK);
    assert_int_equal(json_parse(q->body.data, q->body.len, 8, &doc, &why), ST_OK);
    assert_string_equal(json_string_value(json_object_get(doc, "object")), "page");
    buf_dispose(&q->body);
    return doc;
}

static int64_t sum_of(json_t *page, const char *member)
{
    json_t *bucket, *result;
    int64_t sum = 0;
    size_t i, k;

    json_array_foreach(json_object_get(page, "data"), i, bucket)
        json_array_foreach(json_object_get(bucket, "results"), k, result) sum +=
        json_integer_value(json_object_get(result, member));
    return sum;
}

static void usage_pages_sum_to_the_rows(void **state)
{
    struct usage_query q = {.start_s = 1760000000,
                            .end_s = 1760006000,
                            .bucket_s = 60,
                            .limit = 7,
                            .tenant_id = 1,
                            .group_by = 4};
    int64_t input = 0, cached = 0, output = 0, requests = 0, page_s = 0;
    char dir[TEMP_DIR_BYTES];
    struct billing *b;
    bool more = true;

    (void)state;
    temp_dir_make(dir);
    b = rig_open_billing(dir, rig.server.conninfo);
    rig_post_spread_requests(b);
    while (more) {
        struct usage_query one = q;
        json_t *page;

        one.page_s = page_s;
        page = ask(b, &one);
        input += sum_of(page, "input_tokens");
        cached += sum_of(page, "input_cached_tokens");
        output += sum_of(page, "output_tokens");
        requests += sum_of(page, "num_model_requests");
        more = json_is_true(json_object_get(page, "has_more"));
        if (more)
            assert_true(
                usage_page_parse(json_string_value(json_object_get(page, "next_page")), &page_s));
        else
            assert_true(json_is_null(json_object_get(page, "next_page")));
        json_decref(page);
    }
#define RANGE                                                                                      \
    " FROM usage_events WHERE tenant_id = 1 AND admitted_at >= to_timestamp(1760000000) AND "      \
    "admitted_at < to_timestamp(1760006000)"
    assert_int_equal(input, rig_number("SELECT sum(prompt_tokens)" RANGE));
    assert_int_equal(cached, rig_number("SELECT sum(cached_tokens)" RANGE));
    assert_int_equal(output, rig_number("SELECT sum(output_tokens)" RANGE));
    assert_int_equal(requests, rig_number("SELECT count(*)" RANGE));
    assert_int_equal(requests, 20);
#undef RANGE
    billing_close(b, 1000);
    temp_dir_remove(dir);
}

static void buckets_are_aligned_and_the_empty_ones_are_there(void **state)
{
    struct usage_query q = {
        .start_s = 1760000000, .end_s = 1760090000, .bucket_s = 3600, .limit = 24, .group_by = 3};
    char dir[TEMP_DIR_BYTES];
    json_t *page, *bucket, *result;
    struct billing *b;
    size_t i, empty = 0;

    (void)state;
    temp_dir_make(dir);
    b = rig_open_billing(dir, rig.server.conninfo);
    page = ask(b, &q);
    assert_int_equal(json_array_size(json_object_get(page, "data")), 24);
    json_array_foreach(json_object_get(page, "data"), i, bucket)
    {
        assert_int_equal(json_integer_value(json_object_get(bucket, "start_time")) % 3600, 0);
        empty += json_array_size(json_object_get(bucket, "results")) == 0;
    }
    assert_true(empty >= 21 && empty <= 22);
    result = json_array_get(
        json_object_get(json_array_get(json_object_get(page, "data"), 0), "results"), 0);
    assert_string_equal(json_string_value(json_object_get(result, "project_id")), "proj_2");
    assert_string_equal(json_string_value(json_object_get(result, "api_key_id")), "3");
    assert_true(json_is_null(json_object_get(result, "model")));
    assert_true(json_is_true(json_object_get(page, "has_more")));
    json_decref(page);
    billing_close(b, 1000);
    temp_dir_remove(dir);
}

static void a_bad_usage_query_names_its_parameter(void **state)
{
    static const struct {
        struct usage_query q;
        const char *param;
    } cases[] = {
        {{.start_s = -1, .bucket_s = 60, .limit = 1}, "start_time"},
        {{.start_s = 10, .end_s = 10, .bucket_s = 60, .limit = 1}, "end_time"},
        {{.start_s = 10, .bucket_s = 61, .limit = 1}, "bucket_width"},
        {{.start_s = 10, .bucket_s = 60, .limit = 0}, "limit"},
        {{.start_s = 10, .bucket_s = 60, .limit = 1441}, "limit"},
        {{.start_s = 10, .bucket_s = 60, .limit = 1, .group_by = 8}, "group_by"},
        {{.start_s = 10, .bucket_s = 60, .limit = 1, .page_s = 9}, "page"},
    };
    char dir[TEMP_DIR_BYTES];
    struct billing *b;

    (void)state;
    temp_dir_make(dir);
    b = rig_open_billing(dir, rig.server.conninfo);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct usage_query q = cases[i].q;

        assert_int_equal(billing_usage(b, &q), ST_INVALID);
        assert_string_equal(q.reason.param, cases[i].param);
    }
    billing_close(b, 0);
    temp_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usage_pages_sum_to_the_rows),
        cmocka_unit_test(buckets_are_aligned_and_the_empty_ones_are_there),
        cmocka_unit_test(a_bad_usage_query_names_its_parameter),
    };

    log_init("test", LOG_ERROR);
    return cmocka_run_group_tests(tests, rig_set_up, rig_tear_down);
}
