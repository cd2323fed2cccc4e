/* The whole of billing against a real PostgreSQL. Run with arguments it is the process that gets
 * killed: see a_killed_process_loses_no_row. */
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/size.h"
#include "billing/billing.h"
#include "store/migrate.h"
#include "tests/lib/journal_help.h"
#include "tests/lib/pg_server.h"
#include "tests/lib/poll_loop.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define WAIT_MS 20000

static struct pg_server server;
static struct loop *loop;
static struct pg *pg;
static struct pg_pool *pool;
static struct reason why;

extern char **environ;

/* ---- the database ---- */

static int64_t number(const char *sql)
{
    struct pg_result *r = NULL;
    int64_t v;

    assert_int_equal(pg_exec(pg, sql, 0, NULL, &r, &why), ST_OK);
    v = pg_int64(r, 0, 0);
    pg_result_free(r);
    return v;
}

static int set_up_server(void **state)
{
    int n = 0;

    (void)state;
    if (!pg_server_start(&server))
        return -1;
    assert_int_equal(pg_open(server.conninfo, &pg, &why), ST_OK);
    assert_int_equal(migrate(pg, embedded_files, NULL, NULL, &n, &why), ST_OK);
    assert_int_equal(pg_exec_script(pg,
                                    "INSERT INTO tenants (name) VALUES ('acme'), ('globex');"
                                    "INSERT INTO projects (tenant_id, name) VALUES (1, 'p');",
                                    &why),
                     ST_OK);
    assert_int_equal(pg_pool_start(server.conninfo, 1, 16, &pool), ST_OK);
    loop = poll_loop_new();
    return 0;
}

static int tear_down_server(void **state)
{
    (void)state;
    pg_pool_stop(pool);
    poll_loop_free(loop);
    pg_close(pg);
    pg_server_stop(&server);
    return 0;
}

/* ---- a gateway's billing ---- */

static struct billing *open_billing(const char *dir, const char *conninfo)
{
    struct billing_config cfg = {.journal_dir = dir,
                                 .conninfo = conninfo,
                                 .pool = pool,
                                 .post_ms = 10,
                                 .segment_bytes = 64 << 10};
    struct billing *b = NULL;

    if (billing_open(&cfg, &b, &why) != ST_OK) {
        fprintf(stderr, "billing_open: %s\n", why.text);
        abort();
    }
    return b;
}

static bool is_ready(void *arg)
{
    return billing_is_ready(arg);
}

static bool is_posted(void *arg)
{
    struct billing_stats s;

    billing_stats(arg, &s);
    return s.unposted == 0 && s.postgres_ok;
}

/* The loop has nothing to do meanwhile but to pass the time. */
static void wait_for(bool (*done)(void *arg), void *arg)
{
    for (int64_t end = clock_mono_ms() + WAIT_MS; !done(arg) && clock_mono_ms() < end;)
        poll_loop_turn(loop, 5);
    assert_true(done(arg));
}

struct waiting {
    struct billing_write w;
    bool done;
};

static void on_done(struct billing_write *w)
{
    CONTAINER_OF(w, struct waiting, w)->done = true;
}

static bool is_done(void *arg)
{
    return ((struct waiting *)arg)->done;
}

static void admit(struct billing *b, const struct billing_admission *a)
{
    struct waiting x = {.w = {.loop = loop, .on_done = on_done}};

    billing_admit(b, &x.w, a);
    assert_true(poll_loop_run_until(loop, is_done, &x, WAIT_MS));
    assert_int_equal(x.w.status, ST_OK);
}

static void finish(struct billing *b, const struct billing_final *f)
{
    struct waiting x = {.w = {.loop = loop, .on_done = on_done}};

    billing_finish(b, &x.w, f);
    assert_true(poll_loop_run_until(loop, is_done, &x, WAIT_MS));
    assert_int_equal(x.w.status, ST_OK);
}

static void run_requests(struct billing *b, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        struct billing_admission a = sample_admission(i);
        struct billing_final f = sample_final(i);

        admit(b, &a);
        finish(b, &f);
    }
}

static int64_t rows_of(unsigned from, unsigned to)
{
    char sql[256];

    snprintf(sql, sizeof sql,
             "SELECT count(*) FROM usage_events WHERE client_request_id IN"
             " (SELECT 'client-' || i FROM generate_series(%u, %u) i)",
             from, to - 1);
    return number(sql);
}

/* ---- tests ---- */

static void finished_requests_are_rows_and_prices_are_known(void **state)
{
    char dir[TEMP_DIR_BYTES];
    struct price price;
    struct billing *b;

    (void)state;
    temp_dir_make(dir);
    b = open_billing(dir, server.conninfo);
    wait_for(is_ready, b);
    assert_int_equal(billing_price(b, "smollm2-135m-instruct", &price), ST_OK);
    assert_int_equal(price.output_nanos, 400000000);
    assert_int_equal(billing_price(b, "some-model-of-the-user", &price), ST_OK);
    assert_string_equal(price.currency, "USD");
    run_requests(b, 1000, 1100);
    wait_for(is_posted, b);
    assert_int_equal(rows_of(1000, 1100), 100);
    assert_int_equal(number("SELECT count(*) FROM usage_events WHERE cost_nanos <>"
                            " ((prompt_tokens - cached_tokens) * 100000000::bigint +"
                            "  cached_tokens * 50000000::bigint +"
                            "  output_tokens * 400000000::bigint + 500000) / 1000000"),
                     0);
    billing_close(b, 1000);
    temp_dir_remove(dir);
}

static void a_new_price_is_seen_without_a_restart(void **state)
{
    char dir[TEMP_DIR_BYTES];
    struct price price = {.id = 0};
    struct billing *b;

    (void)state;
    temp_dir_make(dir);
    b = open_billing(dir, server.conninfo);
    wait_for(is_ready, b);
    assert_int_equal(pg_exec(pg,
                             "INSERT INTO prices (model, input_nanos, cached_nanos, output_nanos,"
                             " currency) VALUES ('new-model', 1, 2, 3, 'EUR')",
                             0, NULL, NULL, &why),
                     ST_OK);
    for (int64_t end = clock_mono_ms() + WAIT_MS;
         price.output_nanos != 3 && clock_mono_ms() < end;) {
        poll_loop_turn(loop, 5);
        assert_int_equal(billing_price(b, "new-model", &price), ST_OK);
    }
    assert_string_equal(price.currency, "EUR");
    billing_close(b, 1000);
    temp_dir_remove(dir);
}

static void rows_wait_on_disk_while_postgres_is_away(void **state)
{
    char dir[TEMP_DIR_BYTES];
    struct billing *b;

    (void)state;
    temp_dir_make(dir);
    b = open_billing(dir, server.conninfo);
    wait_for(is_ready, b);
    run_requests(b, 2000, 2020);
    pg_server_crash(&server);
    run_requests(b, 2020, 2200);
    /* Also through an end of the process. */
    billing_close(b, 0);
    b = open_billing(dir, server.conninfo);
    assert_false(billing_is_ready(b));
    run_requests(b, 2200, 2220);
    pg_server_resume(&server);
    wait_for(is_ready, b);
    wait_for(is_posted, b);
    assert_int_equal(pg_exec(pg, "SELECT 1", 0, NULL, NULL, &why), ST_OK);
    assert_int_equal(rows_of(2000, 2220), 220);
    billing_close(b, 1000);
    temp_dir_remove(dir);
}

/* A limit on the size of files stands for a full disk. */
static void a_journal_that_cant_be_written_is_not_ready(void **state)
{
    struct billing_admission a = sample_admission(2990);
    struct waiting x = {.w = {.loop = loop, .on_done = on_done}};
    struct rlimit before, none;
    char dir[TEMP_DIR_BYTES];
    struct billing *b;
    bool is_ready_then;

    (void)state;
    temp_dir_make(dir);
    b = open_billing(dir, server.conninfo);
    wait_for(is_ready, b);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    billing_admit(b, &x.w, &a);
    assert_true(poll_loop_run_until(loop, is_done, &x, WAIT_MS));
    is_ready_then = billing_is_ready(b);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(x.w.status, ST_IO);
    assert_false(is_ready_then);
    wait_for(is_ready, b); /* it tries again by itself */
    run_requests(b, 2990, 3000);
    wait_for(is_posted, b);
    assert_int_equal(rows_of(2990, 3000), 10);
    billing_close(b, 1000);
    temp_dir_remove(dir);
}

static void replaying_twice_posts_nothing_twice(void **state)
{
    char dir[TEMP_DIR_BYTES];
    struct billing *b;
    char *data;
    size_t len;

    (void)state;
    temp_dir_make(dir);
    /* A conninfo that leads nowhere: everything stays in the journal. */
    b = open_billing(dir, "host=/nowhere connect_timeout=1");
    run_requests(b, 3000, 3050);
    billing_close(b, 0);
    data = segment_get(dir, 1, &len);
    for (int i = 0; i < 2; i++) {
        temp_dir_clear(dir);
        segment_put(dir, 1, data, len);
        b = open_billing(dir, server.conninfo);
        wait_for(is_ready, b);
        assert_int_equal(rows_of(3000, 3050), 50);
        billing_close(b, 1000);
    }
    free(data);
    temp_dir_remove(dir);
}

static void two_gateways_make_the_same_partitions_at_once(void **state)
{
    char dir[2][TEMP_DIR_BYTES];
    struct billing *b[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        temp_dir_make(dir[i]);
        b[i] = open_billing(dir[i], server.conninfo);
        wait_for(is_ready, b[i]);
    }
    for (unsigned month = 0; month < 24; month++) {
        for (unsigned i = 0; i < 2; i++) {
            struct billing_admission a = sample_admission(4000 + 2 * month + i);
            struct billing_final f = sample_final(4000 + 2 * month + i);

            a.admitted_at_us += (int64_t)month * 31 * 86400 * 1000000;
            f.ended_at_us = a.admitted_at_us;
            admit(b[i], &a);
            finish(b[i], &f);
        }
    }
    for (int i = 0; i < 2; i++) {
        wait_for(is_posted, b[i]);
        billing_close(b[i], 1000);
        temp_dir_remove(dir[i]);
    }
    assert_int_equal(rows_of(4000, 4048), 48);
}

/* ---- usage pages ---- */

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

    q->loop = loop;
    q->on_done = on_usage;
    assert_int_equal(billing_usage(b, q), ST_OK);
    assert_true(poll_loop_run_until(loop, is_usage_done, q, WAIT_MS));
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

/* 1750000000 is 2025-06-15T15:06:40Z; requests from 5000 on are 100 s apart, of tenants 1 to 3. */
static void post_spread_requests(struct billing *b)
{
    for (unsigned i = 5000; i < 5060; i++) {
        struct billing_admission a = sample_admission(i);
        struct billing_final f = sample_final(i);

        a.admitted_at_us = (INT64_C(1760000000) + 100 * (i - 5000)) * 1000000 + 999999;
        snprintf(a.model, sizeof a.model, "model-%u", i % 2);
        f.cached_tokens = 7;
        f.outcome = i % 5 == 0 ? OUTCOME_CANCELLED : OUTCOME_COMPLETED;
        admit(b, &a);
        finish(b, &f);
    }
    wait_for(is_posted, b);
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
    b = open_billing(dir, server.conninfo);
    post_spread_requests(b);
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
    assert_int_equal(input, number("SELECT sum(prompt_tokens)" RANGE));
    assert_int_equal(cached, number("SELECT sum(cached_tokens)" RANGE));
    assert_int_equal(output, number("SELECT sum(output_tokens)" RANGE));
    assert_int_equal(requests, number("SELECT count(*)" RANGE));
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
    b = open_billing(dir, server.conninfo);
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
    b = open_billing(dir, server.conninfo);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct usage_query q = cases[i].q;

        assert_int_equal(billing_usage(b, &q), ST_INVALID);
        assert_string_equal(q.reason.param, cases[i].param);
    }
    billing_close(b, 0);
    temp_dir_remove(dir);
}

/* ---- reports ---- */

static char *report_text(const struct usage_report *r, struct usage_totals *totals)
{
    FILE *f = tmpfile();
    char *text;
    long len;

    assert_non_null(f);
    assert_int_equal(usage_report_write(pg, r, fileno(f), totals, &why), ST_OK);
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
    assert_int_equal(t.rows, number("SELECT count(*) FROM usage_events"));
    assert_true(t.rows > 400);
    assert_int_equal(t.prompt_tokens, number("SELECT sum(prompt_tokens) FROM usage_events"));
    assert_int_equal(t.cached_tokens, number("SELECT sum(cached_tokens) FROM usage_events"));
    assert_int_equal(t.output_tokens, number("SELECT sum(output_tokens) FROM usage_events"));
    assert_int_equal(t.cost_nanos, number("SELECT sum(cost_nanos) FROM usage_events"));
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
    assert_int_equal(t.rows, number("SELECT count(*) FROM usage_events WHERE tenant_id = 1 AND"
                                    " admitted_at >= to_timestamp(1760000000) AND"
                                    " admitted_at < to_timestamp(1760003000)"));
    assert_int_equal(t.rows, 10);
    r.tenant = "nobody";
    assert_int_equal(usage_report_write(pg, &r, STDOUT_FILENO, &t, &why), ST_NOT_FOUND);
    r.format = "xml";
    assert_int_equal(usage_report_write(pg, &r, STDOUT_FILENO, &t, &why), ST_INVALID);
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
    assert_int_equal(usage_summary_write(pg, &r, fileno(f), &why), ST_OK);
    len = pread(fileno(f), text, sizeof text, 0);
    fclose(f);
    assert_true(len > 0);
    assert_int_equal(json_parse(text, (size_t)len, 4, &doc, &why), ST_OK);
    json_array_foreach(doc, i, line) nanos +=
        json_integer_value(json_object_get(line, "cost_nanos"));
    assert_int_equal(nanos, number("SELECT sum(cost_nanos) FROM usage_events"));
    json_decref(doc);
}

/* ---- kill -9 ---- */

enum { SAID_SUBMIT = 's', SAID_ADMITTED = 'a', SAID_FINISHED = 'f' };
#define STREAMS 8

/* What the process that gets killed says about each request: one write each, so it is said before
 * or after, never half. */
struct said {
    char what;
    uint8_t pad[3];
    unsigned n;
};

static void say(int fd, char what, unsigned n)
{
    struct said s = {.what = what, .n = n};

    if (write(fd, &s, sizeof s) != sizeof s)
        _exit(1);
}

struct stream {
    struct billing *b;
    int fd;
    unsigned n, step;
    struct billing_write w;
};

static void on_stream(struct billing_write *w)
{
    struct stream *s = CONTAINER_OF(w, struct stream, w);
    struct billing_admission a;
    struct billing_final f;

    if (w->status != ST_OK)
        _exit(1);
    say(s->fd, s->step % 2 == 0 ? SAID_ADMITTED : SAID_FINISHED, s->n);
    if (s->step++ % 2 == 0) {
        struct id id = sample_id(s->n);

        billing_progress(s->b, &id, 10 + s->n, s->n % 7, s->n / 2);
        f = sample_final(s->n);
        billing_finish(s->b, w, &f);
        return;
    }
    s->n += STREAMS;
    a = sample_admission(s->n);
    say(s->fd, SAID_SUBMIT, s->n);
    billing_admit(s->b, w, &a);
}

/* Argument: folder, conninfo, first number. Runs until it is killed. */
static _Noreturn void run_until_killed(char **argv)
{
    static struct stream streams[STREAMS];
    struct billing *b;

    log_init("killed", LOG_ERROR);
    loop = poll_loop_new();
    b = open_billing(argv[1], argv[2]);
    for (unsigned i = 0; i < STREAMS; i++) {
        struct stream *s = &streams[i];
        struct billing_admission a;

        *s = (struct stream){.b = b,
                             .fd = STDOUT_FILENO,
                             .n = (unsigned)atoi(argv[3]) + i,
                             .w = {.loop = loop, .on_done = on_stream}};
        a = sample_admission(s->n);
        say(s->fd, SAID_SUBMIT, s->n);
        billing_admit(b, &s->w, &a);
    }
    for (;;)
        poll_loop_turn(loop, -1);
}

#define KILLED_FIRST 100000
#define KILLED_ROUND 100000
#define KILL_ROUNDS  6

static struct {
    uint8_t submitted, admitted, finished;
} heard[KILL_ROUNDS * KILLED_ROUND];

static void hear(int fd, size_t messages)
{
    struct said s;

    while (messages-- > 0 && read(fd, &s, sizeof s) == sizeof s) {
        unsigned i = s.n - KILLED_FIRST;

        assert_true(i < COUNT_OF(heard));
        if (s.what == SAID_SUBMIT)
            heard[i].submitted = 1;
        else if (s.what == SAID_ADMITTED)
            heard[i].admitted = 1;
        else
            heard[i].finished = 1;
    }
}

/* Kills it after it has said `messages` things: a different moment each time. */
static void run_and_kill(const char *dir, unsigned first, size_t messages)
{
    char number_text[16];
    char *argv[] = {"killed", (char *)dir, server.conninfo, number_text, NULL};
    posix_spawn_file_actions_t actions;
    int fds[2];
    pid_t pid;

    snprintf(number_text, sizeof number_text, "%u", first);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(fds[1]);
    hear(fds[0], messages);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    hear(fds[0], SIZE_MAX);
    close(fds[0]);
}

static void check_row(const struct pg_result *r, int row, uint8_t *seen)
{
    unsigned n = (unsigned)atoi(pg_text(r, row, 0) + strlen("client-"));
    unsigned i = n - KILLED_FIRST;
    bool completed = strcmp(pg_text(r, row, 1), "completed") == 0;

    assert_true(i < COUNT_OF(heard) && heard[i].submitted);
    assert_int_equal(seen[i]++, 0);
    assert_true(completed || !heard[i].finished);
    if (completed)
        assert_int_equal(pg_int64(r, row, 2), n);
    else
        assert_true(pg_int64(r, row, 2) == 0 || pg_int64(r, row, 2) == n / 2);
}

static void a_killed_process_loses_no_row(void **state)
{
    static uint8_t seen[COUNT_OF(heard)];
    static const size_t messages[KILL_ROUNDS] = {1, 9, 50, 777, 2000, 4003};
    char dir[TEMP_DIR_BYTES];
    struct pg_result *r = NULL;
    struct billing *b;

    (void)state;
    temp_dir_make(dir);
    for (unsigned i = 0; i < KILL_ROUNDS; i++)
        run_and_kill(dir, KILLED_FIRST + i * KILLED_ROUND, messages[i]);
    b = open_billing(dir, server.conninfo);
    wait_for(is_ready, b);
    wait_for(is_posted, b);
    assert_int_equal(pg_exec(pg,
                             "SELECT client_request_id, outcome, output_tokens FROM usage_events"
                             " WHERE substr(client_request_id, 8)::bigint >= 100000",
                             0, NULL, &r, &why),
                     ST_OK);
    for (int row = 0; row < pg_rows(r); row++)
        check_row(r, row, seen);
    pg_result_free(r);
    for (size_t i = 0; i < COUNT_OF(heard); i++)
        assert_true(seen[i] == 1 || !heard[i].admitted);
    billing_close(b, 1000);
    temp_dir_remove(dir);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finished_requests_are_rows_and_prices_are_known),
        cmocka_unit_test(a_new_price_is_seen_without_a_restart),
        cmocka_unit_test(rows_wait_on_disk_while_postgres_is_away),
        cmocka_unit_test(a_journal_that_cant_be_written_is_not_ready),
        cmocka_unit_test(replaying_twice_posts_nothing_twice),
        cmocka_unit_test(two_gateways_make_the_same_partitions_at_once),
        cmocka_unit_test(usage_pages_sum_to_the_rows),
        cmocka_unit_test(buckets_are_aligned_and_the_empty_ones_are_there),
        cmocka_unit_test(a_bad_usage_query_names_its_parameter),
        cmocka_unit_test(a_report_sums_to_the_rows),
        cmocka_unit_test(a_report_keeps_to_its_tenant_and_range),
        cmocka_unit_test(a_summary_sums_to_the_rows),
        cmocka_unit_test(a_killed_process_loses_no_row),
    };

    if (argc == 4)
        run_until_killed(argv);
    log_init("test", LOG_ERROR);
    return cmocka_run_group_tests(tests, set_up_server, tear_down_server);
}
