/* `sluice usage`: reports and their sums over rows in a real PostgreSQL. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "tests/lib/billing_rig.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static struct reason why;

/* What there is to report. */
static int set_up_rows(void **state)
{
    char dir[TEMP_DIR_BYTES];
    struct billing *b;

    if (rig_set_up(state) != 0)
        return -1;
    temp_dir_make(dir);
    b = rig_open_billing(dir, rig.server.conninfo);
    rig_run_requests(b, 1000, 1400);
    rig_post_spread_requests(b);
    billing_close(b, 1000);
    temp_dir_remove(dir);
    return 0;
}

static char *report_text(const struct usage_report *r, struct usage_totals *totals)
{
    FILE *f = tmpfile();
    char *text;
    long len;

    assert_non_null(f);
    assert_int_equal(usage_report_write(rig.pg, r, fileno(f), totals, &why), ST_OK);
    len = lseek(fileno(f), 0, SEEK_END);
    text = calloc(1, (size_t)len + 1);
    assert_non_null(text);
    assert_int_equal(pread(fileno(f), text, (size_t)len, 0), len);
    fclose(f);
    return text;
}

static size_t count_lines(const char *text)
{
    size_t n = 0;

    for (; *text != '\0'; text++)
        n += *text == '\n';
    return n;
}

static void a_report_sums_to_the_rows(void **state)
{
    const struct usage_report csv = {.format = "csv"}, jsonl = {.format = "jsonl"};
    struct usage_totals t, u;
    int64_t nanos = 0;
    char *text, *line, *save = NULL;

    (void)state;
    text = report_text(&csv, &t);
    assert_int_equal(t.rows, rig_number("SELECT count(*) FROM usage_events"));
    assert_true(t.rows > 400);
    assert_int_equal(t.prompt_tokens, rig_number("SELECT sum(prompt_tokens) FROM usage_events"));
    assert_int_equal(t.cached_tokens, rig_number("SELECT sum(cached_tokens) FROM usage_events"));
    assert_int_equal(t.output_tokens, rig_number("SELECT sum(output_tokens) FROM usage_events"));
    assert_int_equal(t.cost_nanos, rig_number("SELECT sum(cost_nanos) FROM usage_events"));
    assert_string_equal(t.currency, "USD");
    assert_false(t.mixed_currencies);
    assert_int_equal(count_lines(text), t.rows + 1);
    assert_null(strstr(text, "e-"));
    for (line = strtok_r(text, "\r\n", &save); line != NULL; line = strtok_r(NULL, "\r\n", &save))
        nanos += strtoll(strrchr(line, ',') + 1, NULL, 10);
    assert_int_equal(nanos, t.cost_nanos);
    free(text);

    text = report_text(&jsonl, &u);
    assert_int_equal(u.cost_nanos, t.cost_nanos);
    assert_int_equal(count_lines(text), u.rows);
    *strchr(text, '\n') = '\0';
    json_t *doc = NULL;
    assert_int_equal(json_parse(text, strlen(text), 2, &doc, &why), ST_OK);
    assert_string_equal(json_string_value(json_object_get(doc, "model")), "a-model");
    json_decref(doc);
    free(text);
}

static void a_report_keeps_to_its_tenant_and_range(void **state)
{
    struct usage_report r = {
        .format = "csv", .tenant = "acme", .start_s = 1760000000, .end_s = 1760003000};
    struct usage_totals t;

    (void)state;
    free(report_text(&r, &t));
    assert_int_equal(t.rows, rig_number("SELECT count(*) FROM usage_events WHERE tenant_id = 1 AND"
                                        " admitted_at >= to_timestamp(1760000000) AND"
                                        " admitted_at < to_timestamp(1760003000)"));
    assert_int_equal(t.rows, 10);
    r.tenant = "nobody";
    assert_int_equal(usage_report_write(rig.pg, &r, STDOUT_FILENO, &t, &why), ST_NOT_FOUND);
    r.format = "xml";
    assert_int_equal(usage_report_write(rig.pg, &r, STDOUT_FILENO, &t, &why), ST_INVALID);
}

static void a_summary_sums_to_the_rows(void **state)
{
    const struct usage_report r = {.format = "json"};
    FILE *f = tmpfile();
    json_t *doc = NULL, *line;
    int64_t nanos = 0;
    char text[65536];
    ssize_t len;
    size_t i;

    (void)state;
    assert_non_null(f);
    assert_int_equal(usage_summary_write(rig.pg, &r, fileno(f), &why), ST_OK);
    len = pread(fileno(f), text, sizeof text, 0);
    fclose(f);
    assert_true(len > 0);
    assert_int_equal(json_parse(text, (size_t)len, 4, &doc, &why), ST_OK);
    json_array_foreach(doc, i, line) nanos +=
        json_integer_value(json_object_get(line, "cost_nanos"));
    assert_int_equal(nanos, rig_number("SELECT sum(cost_nanos) FROM usage_events"));
    json_decref(doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_report_sums_to_the_rows),
        cmocka_unit_test(a_report_keeps_to_its_tenant_and_range),
        cmocka_unit_test(a_summary_sums_to_the_rows),
    };

    log_init("test", LOG_ERROR);
    return cmocka_run_group_tests(tests, set_up_rows, rig_tear_down);
}
