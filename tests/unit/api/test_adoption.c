/* What a gateway left in its journal, an engine that follows a script, and what the next one writes
 * there. PostgreSQL is away all the time. */
#include "api/adoption.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/size.h"
#include "engine/backend/fake.h"
#include "tests/lib/gguf_build.h"
#include "tests/lib/journal_help.h"
#include "tests/lib/poll_loop.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define N          3
#define LONG_MS    600000
#define PATIENCE   10000
#define PROGRESSED 1 /* the request that has a progress record, with so many tokens: */
#define PROMPT     11
#define OUTPUT     64

struct rig {
    char dir[TEMP_DIR_BYTES], model_path[TEMP_DIR_BYTES + 16];
    struct loop *loop;
    struct fake_script script;
    struct engine *engine;
    struct engine_link *link;
    struct billing *billing;
    struct api_interrupted interrupted[N];
    size_t n_interrupted;
    struct adoption *adoption;
    struct usage_row rows[2 * N];
};

/* ---- the gateway that died ---- */

static void leave_open(struct rig *r, const char *model_of_last)
{
    struct journal_progress p = {.id = sample_id(PROGRESSED),
                                 .at_us = INT64_C(1750000000700000),
                                 .prompt_tokens = PROMPT,
                                 .output_tokens = OUTPUT};
    struct journal *j = open_journal(r->dir, 1 << 20, 0, NULL);

    for (unsigned i = 0; i < N; i++) {
        struct billing_admission a = sample_admission(i);

        if (i == N - 1)
            snprintf(a.model, sizeof a.model, "%s", model_of_last);
        assert_int_equal(admit_and_wait(j, r->loop, &a), ST_OK);
    }
    journal_progress(j, &p);
    journal_close(j);
}

/* ---- the next one ---- */

static bool hold(void *arg, const struct billing_admission *a, const struct billing_final *f)
{
    struct rig *r = arg;
    struct api_interrupted *to = &r->interrupted[r->n_interrupted++];

    assert_true(r->n_interrupted <= N);
    *to = (struct api_interrupted){.final = *f, .is_held = true};
    memcpy(to->model, a->model, sizeof to->model);
    return true;
}

static void open_billing(struct rig *r)
{
    const struct billing_config cfg = {.journal_dir = r->dir,
                                       .conninfo = "host=/nonexistent",
                                       .post_ms = 1000,
                                       .on_interrupted = hold,
                                       .arg = r};
    struct reason why;

    r->n_interrupted = 0;
    assert_int_equal(billing_open(&cfg, &r->billing, &why), ST_OK);
    assert_int_equal(r->n_interrupted, N);
}

static enum status refuse(void *arg, const char *id, struct engine_reload *to, struct reason *why)
{
    (void)arg;
    (void)id;
    (void)to;
    (void)why;
    return ST_NOT_FOUND;
}

/* And a model whose file can never be opened. */
static void open_engine(struct rig *r)
{
    const struct engine_model_config models[] = {{.path = r->model_path, .id = "a-model"},
                                                 {.path = "/nowhere/m.gguf", .id = "unopened"}};
    const struct engine_config cfg = {.models = models,
                                      .n_models = COUNT_OF(models),
                                      .text_threads = 1,
                                      .text_queue = 1,
                                      .reload = refuse,
                                      .backend = &fake_backend_ops,
                                      .backend_arg = &r->script};

    assert_int_equal(engine_open(&cfg, &r->engine, NULL), ST_OK);
    assert_int_equal(engine_link_open(r->engine, r->loop, &r->link), ST_OK);
}

static void open_rig(struct rig *r, const char *model_of_last)
{
    memset(r, 0, sizeof *r);
    temp_dir_make(r->dir);
    snprintf(r->model_path, sizeof r->model_path, "%s.gguf", r->dir);
    tiny_model_write(NULL, r->model_path);
    r->loop = poll_loop_new();
    leave_open(r, model_of_last);
    open_billing(r);
    open_engine(r);
}

static void start(struct rig *r, int64_t wait_ms)
{
    const struct adoption_config cfg = {.loop = r->loop,
                                        .engine = r->engine,
                                        .link = r->link,
                                        .billing = r->billing,
                                        .wait_ms = wait_ms,
                                        .requests = r->interrupted,
                                        .n = r->n_interrupted};

    assert_int_equal(adoption_start(&cfg, &r->adoption), ST_OK);
}

static bool is_done(void *arg)
{
    return adoption_left(arg) == 0;
}

/* Ends all but the folder, whose journal then says what became of the requests. */
static void close_rig(struct rig *r)
{
    struct journal *j;

    assert_true(poll_loop_run_until(r->loop, is_done, r->adoption, PATIENCE));
    adoption_free(r->adoption);
    engine_link_close(r->link);
    engine_close(r->engine);
    billing_close(r->billing, 0);
    j = open_journal(r->dir, 1 << 20, 0, NULL);
    assert_int_equal(take_all(j, r->rows, COUNT_OF(r->rows)), N);
    journal_close(j);
    poll_loop_free(r->loop);
    temp_dir_remove(r->dir);
    unlink(r->model_path);
}

/* The one row of request n. */
static const struct billing_final *row_of(const struct rig *r, unsigned n)
{
    const struct billing_final *found = NULL;
    const struct id id = sample_id(n);

    for (size_t i = 0; i < N; i++) {
        if (!id_equal(&r->rows[i].final.id, &id))
            continue;
        assert_null(found);
        found = &r->rows[i].final;
    }
    assert_non_null(found);
    assert_int_equal(found->outcome, OUTCOME_INTERRUPTED);
    return found;
}

static void counts_are(const struct rig *r, unsigned n, int64_t prompt, int64_t cached,
                       int64_t output)
{
    const struct billing_final *f = row_of(r, n);

    assert_int_equal(f->prompt_tokens, prompt);
    assert_int_equal(f->cached_tokens, cached);
    assert_int_equal(f->output_tokens, output);
}

/* ---- tests ---- */

static void rows_have_the_engines_counts(void **state)
{
    static const struct engine_usage settled[N] = {{100, 16, 70}, {100, 16, 70}, {100, 16, 70}};
    struct rig r;

    (void)state;
    open_rig(&r, "a-model");
    r.script.settled = settled;
    r.script.n_settled = N;
    start(&r, LONG_MS);
    close_rig(&r);
    for (unsigned i = 0; i < N; i++)
        counts_are(&r, i, 100, 16, 70);
    assert_int_equal(r.script.n_released, N);
}

static void what_the_engine_does_not_know_has_its_progress(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r, "a-model");
    start(&r, LONG_MS);
    close_rig(&r);
    counts_are(&r, 0, 0, 0, 0);
    counts_are(&r, PROGRESSED, PROMPT, 0, OUTPUT);
    counts_are(&r, 2, 0, 0, 0);
    assert_int_equal(r.script.n_released, 0);
}

static void an_engine_that_is_silent_is_waited_for_so_long(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r, "a-model");
    r.script.ignores_claims = true;
    start(&r, 1);
    close_rig(&r);
    assert_int_equal(r.script.n_unclaimed, 1);
    counts_are(&r, PROGRESSED, PROMPT, 0, OUTPUT);
}

static void a_stop_does_not_wait(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r, "a-model");
    r.script.ignores_claims = true;
    start(&r, LONG_MS);
    poll_loop_turn(r.loop, 0);
    assert_int_equal(adoption_left(r.adoption), N);
    adoption_settle(r.adoption);
    adoption_settle(r.adoption); /* nothing is ended twice */
    close_rig(&r);
    counts_are(&r, PROGRESSED, PROMPT, 0, OUTPUT);
}

static void a_model_that_is_not_served_any_more_is_not_asked_for(void **state)
{
    static const struct engine_usage settled[N] = {{100, 16, 70}, {100, 16, 70}, {100, 16, 70}};
    struct rig r;

    (void)state;
    open_rig(&r, "another");
    r.script.settled = settled;
    r.script.n_settled = N;
    start(&r, LONG_MS);
    close_rig(&r);
    counts_are(&r, 0, 100, 16, 70);
    counts_are(&r, 1, 100, 16, 70);
    counts_are(&r, 2, 0, 0, 0);
    assert_int_equal(r.script.n_released, N - 1);
}

static void a_model_that_cannot_be_opened_is_waited_for_so_long(void **state)
{
    static const struct engine_usage settled[N] = {{100, 16, 70}, {100, 16, 70}, {100, 16, 70}};
    struct rig r;

    (void)state;
    open_rig(&r, "unopened");
    r.script.settled = settled;
    r.script.n_settled = N;
    start(&r, 50);
    assert_true(adoption_left(r.adoption) > 0);
    close_rig(&r);
    counts_are(&r, 0, 100, 16, 70);
    counts_are(&r, 1, 100, 16, 70);
    counts_are(&r, 2, 0, 0, 0);
    assert_int_equal(r.script.n_released, N - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_have_the_engines_counts),
        cmocka_unit_test(what_the_engine_does_not_know_has_its_progress),
        cmocka_unit_test(an_engine_that_is_silent_is_waited_for_so_long),
        cmocka_unit_test(a_stop_does_not_wait),
        cmocka_unit_test(a_model_that_is_not_served_any_more_is_not_asked_for),
        cmocka_unit_test(a_model_that_cannot_be_opened_is_waited_for_so_long),
    };

    log_init("test", LOG_ERROR + 1); /* the database is away on purpose */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
