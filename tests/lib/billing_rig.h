/* For tests of billing against a real PostgreSQL: a server with the schema and two tenants, and
 * gateways' billings on it. One rig to a program, because it is a fixture of the whole group: pass
 * rig_set_up and rig_tear_down to cmocka_run_group_tests. What does not work fails the test. */
#ifndef TESTS_LIB_BILLING_RIG_H
#define TESTS_LIB_BILLING_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "billing/billing.h"
#include "tests/lib/journal_help.h"
#include "tests/lib/pg_server.h"

#define RIG_WAIT_MS 20000

struct billing_rig {
    struct pg_server server;
    struct loop *loop;
    struct pg *pg;
    struct pg_pool *pool;
};
extern struct billing_rig rig;

int rig_set_up(void **state);
int rig_tear_down(void **state);

void rig_execute(const char *sql);
/* The first column of the first row. */
int64_t rig_number(const char *sql);

/* Posts every 10 ms, with small segments. */
struct billing *rig_open_billing(const char *dir, const char *conninfo);
/* For rig_wait_for: of a struct billing. */
bool rig_is_ready(void *arg);
bool rig_is_posted(void *arg);
void rig_wait_for(bool (*done)(void *arg), void *arg);

/* The answer. */
enum status rig_try_admit(struct billing *b, const struct billing_admission *a);
void rig_admit(struct billing *b, const struct billing_admission *a);
void rig_finish(struct billing *b, const struct billing_final *f);
/* sample_admission and sample_final of [from, to), and how many of them are rows. */
void rig_run_requests(struct billing *b, unsigned from, unsigned to);
int64_t rig_rows_of(unsigned from, unsigned to);
/* 60 requests, 100 s apart from 1760000000 on, of tenants 1 to 3 and models model-0 and model-1, of
 * which every fifth was cancelled; posted. */
void rig_post_spread_requests(struct billing *b);

#endif
