#include "tests/lib/billing_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/size.h"
#include "store/migrate.h"
#include "tests/lib/poll_loop.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

struct billing_rig rig;

static struct reason why;

/* ---- the database ---- */

int64_t rig_number(const char *sql)
{
    struct pg_result *r = NULL;
    int64_t v;

    assert_int_equal(pg_exec(rig.pg, sql, 0, NULL, &r, &why), ST_OK);
    v = pg_int64(r, 0, 0);
    pg_result_free(r);
    return v;
}

void rig_execute(const char *sql)
{
    assert_int_equal(pg_exec(rig.pg, sql, 0, NULL, NULL, &why), ST_OK);
}

int rig_set_up(void **state)
{
    int n = 0;

    (void)state;
    if (!pg_server_start(&rig.server))
        return -1;
    assert_int_equal(pg_open(rig.server.conninfo, &rig.pg, &why), ST_OK);
    assert_int_equal(migrate(rig.pg, embedded_files, NULL, NULL, &n, &why), ST_OK);
    assert_int_equal(pg_exec_script(rig.pg,
                                    "INSERT INTO tenants (name) VALUES ('acme'), ('globex');"
                                    "INSERT INTO projects (tenant_id, name) VALUES (1, 'p');",
                                    &why),
                     ST_OK);
    assert_int_equal(pg_pool_start(rig.server.conninfo, 1, 16, &rig.pool), ST_OK);
    rig.loop = poll_loop_new();
    return 0;
}

int rig_tear_down(void **state)
{
    (void)state;
    pg_pool_stop(rig.pool);
    poll_loop_free(rig.loop);
    pg_close(rig.pg);
    pg_server_stop(&rig.server);
    return 0;
}

/* ---- a gateway's billing ---- */

struct billing *rig_open_billing(const char *dir, const char *conninfo)
{
    struct billing_config cfg = {.journal_dir = dir,
                                 .conninfo = conninfo,
                                 .pool = rig.pool,
                                 .post_ms = 10,
                                 .segment_bytes = 64 << 10};
    struct billing *b = NULL;

    if (billing_open(&cfg, &b, &why) != ST_OK) {
        fprintf(stderr, "billing_open: %s\n", why.text);
        abort();
    }
    return b;
}

bool rig_is_ready(void *arg)
{
    return billing_is_ready(arg);
}

bool rig_is_posted(void *arg)
{
    struct billing_stats s;

    billing_stats(arg, &s);
    return s.unposted == 0 && s.postgres_ok;
}

/* The loop has nothing to do meanwhile but to pass the time. */
void rig_wait_for(bool (*done)(void *arg), void *arg)
{
    for (int64_t end = clock_mono_ms() + RIG_WAIT_MS; !done(arg) && clock_mono_ms() < end;)
        poll_loop_turn(rig.loop, 5);
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

enum status rig_try_admit(struct billing *b, const struct billing_admission *a)
{
    struct waiting x = {.w = {.loop = rig.loop, .on_done = on_done}};

    billing_admit(b, &x.w, a);
    assert_true(poll_loop_run_until(rig.loop, is_done, &x, RIG_WAIT_MS));
    return x.w.status;
}

void rig_admit(struct billing *b, const struct billing_admission *a)
{
    assert_int_equal(rig_try_admit(b, a), ST_OK);
}

void rig_finish(struct billing *b, const struct billing_final *f)
{
    struct waiting x = {.w = {.loop = rig.loop, .on_done = on_done}};

    billing_finish(b, &x.w, f);
    assert_true(poll_loop_run_until(rig.loop, is_done, &x, RIG_WAIT_MS));
    assert_int_equal(x.w.status, ST_OK);
}

void rig_run_requests(struct billing *b, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        struct billing_admission a = sample_admission(i);
        struct billing_final f = sample_final(i);

        rig_admit(b, &a);
        rig_finish(b, &f);
    }
}

int64_t rig_rows_of(unsigned from, unsigned to)
{
    char sql[256];

    snprintf(sql, sizeof sql,
             "SELECT count(*) FROM usage_events WHERE client_request_id IN"
             " (SELECT 'client-' || i FROM generate_series(%u, %u) i)",
             from, to - 1);
    return rig_number(sql);
}

void rig_post_spread_requests(struct billing *b)
{
    for (unsigned i = 5000; i < 5060; i++) {
        struct billing_admission a = sample_admission(i);
        struct billing_final f = sample_final(i);

        a.admitted_at_us = (INT64_C(1760000000) + 100 * (i - 5000)) * 1000000 + 999999;
        snprintf(a.model, sizeof a.model, "model-%u", i % 2);
        f.cached_tokens = 7;
        f.outcome = i % 5 == 0 ? OUTCOME_CANCELLED : OUTCOME_COMPLETED;
        rig_admit(b, &a);
        rig_finish(b, &f);
    }
    rig_wait_for(rig_is_posted, b);
}
