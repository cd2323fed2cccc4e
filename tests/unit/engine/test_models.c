/* Several models: found by their names, each served by its own engine process, whatever the others
 * do. Two real engines on threads, one gateway's side before both. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/cpu.h"
#include "engine/engine.h"
#include "tests/lib/engine_rig.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static const char *const aliases[] = {"one", "first"};

/* Both rigs' loops are one: a's. Their own links stay unused. */
struct pair {
    struct engine_rig a, b;
    struct engine *engine;
    struct engine_link *link;
    const struct engine_model *of_a, *of_b;
    const struct engine_revision *now_a, *now_b;
};

static void open_gateway(struct pair *p, bool b_is_required)
{
    const struct engine_model_config models[] = {
        {.path = p->a.model_path,
         .id = "a",
         .aliases = aliases,
         .n_aliases = 2,
         .socket_path = p->a.socket_path,
         .context_tokens = 100},
        {.path = p->b.model_path,
         .id = "b",
         .socket_path = p->b.socket_path,
         .default_max_tokens = 7,
         .required = b_is_required},
    };
    const struct engine_config cfg = {
        .models = models, .n_models = 2, .text_threads = 1, .text_queue = 8};

    assert_int_equal(engine_open(&cfg, &p->engine, NULL), ST_OK);
    assert_int_equal(engine_link_open(p->engine, p->a.loop, &p->link), ST_OK);
    p->of_a = engine_model_find(p->engine, "a");
    p->of_b = engine_model_find(p->engine, "b");
    p->now_a = engine_revision_get(p->of_a);
    p->now_b = engine_revision_get(p->of_b);
}

static void close_gateway(struct pair *p)
{
    engine_link_close(p->link);
    engine_revision_put(p->now_a);
    engine_revision_put(p->now_b);
    engine_close(p->engine);
}

static int setup(void **state)
{
    struct pair *p = calloc(1, sizeof *p);

    engine_rig_open(&p->a, &cpu_device_ops);
    engine_rig_open(&p->b, &cpu_device_ops);
    engine_rig_start(&p->a);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct pair *p = *state;

    engine_rig_stop(&p->a);
    engine_rig_close(&p->a);
    engine_rig_close(&p->b);
    free(p);
    return 0;
}

static bool serves_a(void *arg)
{
    struct pair *p = arg;

    return engine_link_serves(p->link, p->of_a);
}

static bool serves_b(void *arg)
{
    struct pair *p = arg;

    return engine_link_serves(p->link, p->of_b);
}

static bool lost_b(void *arg)
{
    return !serves_b(arg);
}

struct job {
    struct engine_usage usage;
    enum status status;
    bool is_over;
};

static void on_delta(void *arg, const struct engine_delta *d, const struct engine_usage *so_far)
{
    (void)arg;
    (void)d;
    (void)so_far;
}

static void on_end(void *arg, const struct engine_end *end)
{
    struct job *j = arg;

    j->usage = end->usage;
    j->status = end->status;
    j->is_over = true;
}

static bool is_over(void *arg)
{
    return ((struct job *)arg)->is_over;
}

static enum status submit(struct pair *p, struct job *j, const struct engine_revision *r,
                          uint32_t n)
{
    static const int32_t prompt[] = {5, 6, 7};
    static uint8_t request;
    const struct engine_submit s = {.request = {.bytes = {++request}},
                                    .revision = r,
                                    .tenant = 1,
                                    .weight = 1000,
                                    .prompt = prompt,
                                    .n_prompt = 3,
                                    .max_tokens = n,
                                    .sampling = {.top_p = 1},
                                    .ignore_eos = true,
                                    .arg = j,
                                    .on_delta = on_delta,
                                    .on_end = on_end};
    struct engine_job *job;

    *j = (struct job){0};
    return engine_submit(p->link, &s, &job);
}

static void a_model_is_found_by_id_and_alias(void **state)
{
    struct pair *p = *state;

    open_gateway(p, false);
    assert_ptr_equal(engine_model_at(p->engine, 0), p->of_a);
    assert_ptr_equal(engine_model_at(p->engine, 1), p->of_b);
    assert_null(engine_model_at(p->engine, 2));
    assert_ptr_equal(engine_model_find(p->engine, "one"), p->of_a);
    assert_ptr_equal(engine_model_find(p->engine, "first"), p->of_a);
    assert_null(engine_model_find(p->engine, "on"));
    assert_null(engine_model_find(p->engine, ""));
    assert_string_equal(p->of_a->id, "a");
    assert_int_equal(p->now_a->context_tokens, 100);
    assert_int_equal(p->now_b->default_max_tokens, 7);
    close_gateway(p);
}

static void one_engine_away_takes_only_its_own_requests_along(void **state)
{
    struct pair *p = *state;
    struct job j;

    open_gateway(p, false);
    assert_false(engine_link_is_ready(p->link));
    engine_rig_await(&p->a, serves_a, p);
    assert_true(engine_link_is_ready(p->link));
    assert_int_equal(submit(p, &j, p->now_b, 2), ST_UNAVAILABLE);
    assert_int_equal(submit(p, &j, p->now_a, 2), ST_OK);
    engine_rig_await(&p->a, is_over, &j);
    assert_int_equal(j.status, ST_OK);
    assert_int_equal(j.usage.output_tokens, 2);
    close_gateway(p);
}

static void a_required_model_makes_the_link_wait_for_it(void **state)
{
    struct pair *p = *state;

    open_gateway(p, true);
    engine_rig_await(&p->a, serves_a, p);
    assert_false(engine_link_is_ready(p->link));
    engine_rig_start(&p->b);
    engine_rig_await(&p->a, serves_b, p);
    assert_true(engine_link_is_ready(p->link));
    engine_rig_stop(&p->b);
    engine_rig_await(&p->a, lost_b, p);
    assert_false(engine_link_is_ready(p->link));
    close_gateway(p);
}

static bool has_all_stats(void *arg)
{
    struct pair *p = arg;
    struct engine_stats all;

    engine_stats(p->engine, &all);
    return all.connected && all.output_tokens == 8;
}

static void stats_are_each_engines_and_their_sum(void **state)
{
    struct engine_stats a, b, all;
    struct pair *p = *state;
    struct job ja, jb;

    open_gateway(p, false);
    engine_rig_start(&p->b);
    engine_rig_await(&p->a, serves_a, p);
    engine_rig_await(&p->a, serves_b, p);
    assert_int_equal(submit(p, &ja, p->now_a, 3), ST_OK);
    assert_int_equal(submit(p, &jb, p->now_b, 5), ST_OK);
    engine_rig_await(&p->a, is_over, &ja);
    engine_rig_await(&p->a, is_over, &jb);
    engine_rig_await(&p->a, has_all_stats, p);
    engine_stats_of(p->engine, p->of_a, &a);
    engine_stats_of(p->engine, p->of_b, &b);
    engine_stats(p->engine, &all);
    assert_int_equal(a.output_tokens, 3);
    assert_int_equal(b.output_tokens, 5);
    assert_int_equal(all.prompt_tokens, 6);
    assert_int_equal(all.pages_total, a.pages_total + b.pages_total);
    assert_int_equal(all.rows_max, 1);
    engine_rig_stop(&p->b);
    engine_rig_await(&p->a, lost_b, p);
    engine_stats(p->engine, &all);
    assert_false(all.connected);
    assert_int_equal(all.pages_total, a.pages_total);
    close_gateway(p);
}

static void a_model_that_cannot_be_read_is_named(void **state)
{
    struct pair *p = *state;
    const struct engine_model_config models[] = {{.path = p->a.model_path, .id = "good"},
                                                 {.path = "/nowhere/m.gguf", .id = "bad"}};
    const struct engine_config cfg = {
        .models = models, .n_models = 2, .text_threads = 1, .text_queue = 8};
    struct reason why = {0};
    struct engine *e = NULL;

    assert_int_not_equal(engine_open(&cfg, &e, &why), ST_OK);
    assert_null(e);
    assert_non_null(strstr(why.text, "model bad: "));
    assert_non_null(strstr(why.text, "/nowhere/m.gguf"));
}

static enum status reload(void *arg, const char *id, struct engine_reload *to, struct reason *why)
{
    (void)arg;
    (void)id;
    (void)to;
    (void)why;
    return ST_NOT_FOUND;
}

static void without_any_model_or_a_required_one_there_is_no_start(void **state)
{
    struct pair *p = *state;
    const struct engine_model_config none[] = {{.path = "/nowhere/1", .id = "first"},
                                               {.path = "/nowhere/2", .id = "second"}};
    const struct engine_model_config main_is_away[] = {
        {.path = "/nowhere/1", .id = "some"},
        {.path = "/nowhere/2", .id = "main", .required = true},
        {.path = p->a.model_path, .id = "good"}};
    struct engine_config cfg = {
        .models = none, .n_models = 2, .text_threads = 1, .text_queue = 8, .reload = reload};
    struct reason why = {0};
    struct engine *e = NULL;

    assert_int_not_equal(engine_open(&cfg, &e, &why), ST_OK);
    assert_non_null(strstr(why.text, "model first: cannot open /nowhere/1"));
    cfg.n_models = 1;
    assert_int_not_equal(engine_open(&cfg, &e, &why), ST_OK);
    assert_non_null(strstr(why.text, "/nowhere/1"));
    cfg.models = main_is_away;
    cfg.n_models = 3;
    assert_int_not_equal(engine_open(&cfg, &e, &why), ST_OK);
    assert_non_null(strstr(why.text, "model main: cannot open /nowhere/2"));
    assert_null(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_model_is_found_by_id_and_alias, setup, teardown),
        cmocka_unit_test_setup_teardown(one_engine_away_takes_only_its_own_requests_along, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_required_model_makes_the_link_wait_for_it, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(stats_are_each_engines_and_their_sum, setup, teardown),
        cmocka_unit_test_setup_teardown(a_model_that_cannot_be_read_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(without_any_model_or_a_required_one_there_is_no_start,
                                        setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
