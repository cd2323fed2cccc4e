/* Several engines under one supervisor: how they are started, loaded and unloaded. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app/supervise/files.h"
#include "app/supervise/fleet.h"
#include "base/size.h"
#include "tests/lib/test_folder.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define NOW_MS 1000000

static const struct child gateway = {.pid = 4711};

static struct config *config_of(const char *models)
{
    struct config *c = NULL;
    struct reason why = {0};
    char text[1024];

    snprintf(text, sizeof text,
             "%s\nengine:\n  socket: engine.sock\n  stall_ms: 30000\npostgres:\n  conninfo: x\n"
             "redis:\n  socket: r\nauth:\n  pepper_file: p\nbilling:\n  journal_dir: j\n",
             models);
    if (config_parse(text, strlen(text), "test", test_folder, &c, &why) != ST_OK)
        fail_msg("%s", why.text);
    return c;
}

static void open_fleet(struct fleet *f, struct supervisor *s, const char *models)
{
    struct config *c = config_of(models);

    memset(s, 0, sizeof *s);
    assert_int_equal(fleet_init(f, c, "/bin/sluice", "/c.yaml", s, &gateway, NULL), ST_OK);
    config_free(c);
    fleet_add(f);
}

static const char two[] = "models:\n  - {path: a.gguf, id: a/b, required: 'on'}\n"
                          "  - {path: b.gguf, id: a-b, socket: own.sock}";

static const char *ask(struct fleet *f, enum control_op op, const char *model, int64_t now_ms)
{
    struct control_request r = {.op = op};
    static char text[1024];
    struct buf out;

    snprintf(r.model, sizeof r.model, "%s", model);
    buf_init(&out);
    fleet_answer(f, &r, now_ms, &out);
    snprintf(text, sizeof text, "%s", buf_cstr(&out));
    buf_dispose(&out);
    return text;
}

static void one_engine_needs_no_model_id(void **state)
{
    struct supervisor s;
    struct fleet f;
    const struct fleet_engine *e;

    (void)state;
    open_fleet(&f, &s, "model: {path: a.gguf, id: a}");
    e = &f.engines[0];
    assert_int_equal(s.n, 2); /* and its successor, should there be one */
    assert_string_equal(e->child.spec.name, "engine");
    assert_string_equal(e->argv[0], "/bin/sluice");
    assert_string_equal(e->argv[3], "/c.yaml");
    assert_null(e->argv[4]);
    assert_false(e->child.is_optional);
    fleet_set_logs(&f, "/log");
    assert_string_equal(e->child.spec.log, "/log/engine.log");
    assert_string_equal(e->swap.other.spec.log, "/log/engine.next.log");
    assert_string_equal(e->swap.argv[3], "/c.yaml");
    assert_string_equal(e->swap.argv[4], "--socket");
    assert_string_equal(e->swap.argv[6], "--warm");
    assert_null(e->swap.argv[7]);
    fleet_dispose(&f);
    fleet_dispose(&f);
}

static void several_share_nothing(void **state)
{
    struct supervisor s;
    struct fleet f;
    const struct fleet_engine *a, *b;

    (void)state;
    open_fleet(&f, &s, two);
    fleet_set_logs(&f, "/log");
    a = &f.engines[0];
    b = &f.engines[1];
    assert_int_equal(s.n_guards, 2);
    assert_string_equal(a->child.spec.name, "engine a/b");
    assert_string_equal(a->argv[4], "--model-id");
    assert_string_equal(a->argv[5], "a/b");
    assert_null(a->argv[6]);
    assert_string_equal(b->argv[5], "a-b");
    assert_string_equal(a->child.spec.log, "/log/engine.1.a-b.log");
    assert_string_equal(b->child.spec.log, "/log/engine.2.a-b.log");
    assert_string_not_equal(a->socket, b->socket);
    assert_string_not_equal(a->child.pid_file, b->child.pid_file);
    assert_string_not_equal(a->guard.state_path, b->guard.state_path);
    assert_false(a->child.is_optional);
    assert_true(b->child.is_optional);
    fleet_dispose(&f);
}

/* Its own start was refused: the other one's files stay. */
static void files_of_another_supervisor_are_left_alone(void **state)
{
    struct config *c = config_of(two);
    struct supervisor s = {0};
    struct fleet f;
    char path[128];

    (void)state;
    snprintf(path, sizeof path, "%s.state", c->models[0].socket);
    assert_int_equal(file_write(path, "x", 1, 0600, NULL), ST_OK);
    assert_int_equal(fleet_init(&f, c, "/bin/sluice", "/c.yaml", &s, &gateway, NULL), ST_OK);
    fleet_dispose(&f);
    assert_true(file_exists(path));
    config_free(c);
}

static void a_model_is_unloaded_and_loaded_again(void **state)
{
    struct supervisor s;
    struct fleet f;
    struct child *c;

    (void)state;
    open_fleet(&f, &s, two);
    c = &f.engines[1].child;
    c->wanted = f.engines[0].child.wanted = true;
    c->due_ms = NOW_MS + 10000;
    strcpy(c->cause, "exit 1");
    last_lines_add(&c->lines, "no \xff\x1b model", 11);
    assert_string_equal(
        ask(&f, CONTROL_LIST, "", NOW_MS),
        "{\"ok\":true,\"config\":\"/c.yaml\",\"models\":[{\"id\":\"a/"
        "b\",\"state\":\"waiting\",\"pid\":0,\"reason\":"
        "\"starts again after: \"},{\"id\":\"a-b\",\"state\":\"waiting\",\"pid\":0,\"reason\":"
        "\"starts again after: exit 1; last log: no ?? model\"}]}\n");
    assert_non_null(strstr(ask(&f, CONTROL_UNLOAD, "a-b", NOW_MS),
                           "{\"id\":\"a-b\",\"state\":\"unloaded\",\"pid\":0,\"reason\":\"\"}"));
    assert_true(child_due_ms(c) == INT64_MAX);
    child_try_again(c, NOW_MS); /* a SIGHUP */
    assert_true(child_due_ms(c) == INT64_MAX);
    assert_string_equal(f.engines[1].guard.stand_in.text,
                        "not loaded (sluice model load starts it)");
    assert_non_null(strstr(ask(&f, CONTROL_LOAD, "a-b", NOW_MS), "\"waiting\""));
    assert_int_equal(child_due_ms(c), NOW_MS);
    fleet_dispose(&f);
}

static void one_that_was_given_up_is_tried_again(void **state)
{
    struct supervisor s;
    struct fleet f;
    struct child *c;

    (void)state;
    open_fleet(&f, &s, two);
    c = &f.engines[0].child;
    c->wanted = c->given_up = true;
    c->backoff.deaths = CHILD_DEATHS_MAX;
    assert_non_null(strstr(ask(&f, CONTROL_LIST, "", NOW_MS), "\"stopped\""));
    (void)ask(&f, CONTROL_LOAD, "a/b", NOW_MS);
    assert_int_equal(child_due_ms(c), NOW_MS);
    assert_int_equal(c->backoff.deaths, 0);
    fleet_dispose(&f);
}

static void a_model_that_is_not_there_is_named(void **state)
{
    struct supervisor s;
    struct fleet f;

    (void)state;
    open_fleet(&f, &s, two);
    assert_string_equal(
        ask(&f, CONTROL_UNLOAD, "c", NOW_MS),
        "{\"ok\":false,\"error\":\"the supervisor has no model c: it read its file at start\"}\n");
    fleet_dispose(&f);
}

/* ---- with a process ---- */

static void start_sleeper(struct fleet_engine *e, const char *script)
{
    static const char *argv[4] = {"sh", "-c", NULL, NULL};

    argv[2] = script;
    e->child.spec.argv = argv;
    snprintf(e->child.spec.log, sizeof e->child.spec.log, "%s", in_test_folder("log"));
    assert_int_equal(child_start(&e->child, NOW_MS, NULL), ST_OK);
    engine_guard_on_start(&e->guard, NOW_MS);
}

static void end(struct fleet_engine *e, int64_t now_ms)
{
    int status = 0;

    assert_int_equal(waitpid(e->child.pid, &status, 0), e->child.pid);
    assert_int_equal(child_on_exit(&e->child, status, now_ms), -1);
    engine_guard_on_end(&e->guard, NULL);
}

static void what_runs_is_asked_to_leave_and_counts_no_death(void **state)
{
    struct supervisor s;
    struct fleet f;
    struct fleet_engine *e;
    char path[128];

    (void)state;
    open_fleet(&f, &s, two);
    e = &f.engines[0];
    start_sleeper(e, "exec sleep 60");
    assert_int_equal(engine_guard_state(&e->guard), ENGINE_GUARD_LOADING);
    assert_non_null(strstr(ask(&f, CONTROL_UNLOAD, "a/b", NOW_MS), "\"unloading\""));
    assert_non_null(strstr(ask(&f, CONTROL_LOAD, "a/b", NOW_MS), "still ending its requests"));
    end(e, NOW_MS);
    assert_int_equal(engine_guard_state(&e->guard), ENGINE_GUARD_UNLOADED);
    assert_int_equal(e->child.n_deaths, 0);
    snprintf(path, sizeof path, "%s", e->socket);
    assert_true(file_exists(path)); /* somebody answers there */
    fleet_dispose(&f);
    assert_false(file_exists(path));
}

/* Of the second process's life test_engine_swap.c tells more. */
static void a_swap_is_begun_once_and_told(void **state)
{
    static const char *const sleeper[] = {"sh", "-c", "exec sleep 60", NULL};
    struct supervisor s;
    struct fleet f;
    struct fleet_engine *e;

    (void)state;
    open_fleet(&f, &s, two);
    e = &f.engines[0];
    start_sleeper(e, "exec sleep 60");
    e->swap.other.spec.argv = sleeper;
    snprintf(e->swap.other.spec.log, sizeof e->swap.other.spec.log, "%s", in_test_folder("log"));
    assert_non_null(strstr(ask(&f, CONTROL_SWAP, "a/b", NOW_MS), "it is still loading"));
    e->child.ready_ms = NOW_MS;
    assert_null(strstr(ask(&f, CONTROL_LIST, "", NOW_MS), "swap"));
    assert_non_null(strstr(ask(&f, CONTROL_SWAP, "a/b", NOW_MS),
                           "\"reason\":\"\",\"swap\":\"loading\",\"swap_number\":1,\"swap_pid\":"));
    assert_non_null(strstr(ask(&f, CONTROL_SWAP, "a/b", NOW_MS), "a swap is under way"));
    child_kill(&e->swap.other);
    child_ask_to_stop(&e->child);
    end(e, NOW_MS);
    assert_int_equal(waitpid(e->swap.other.pid, NULL, 0), e->swap.other.pid);
    fleet_dispose(&f);
}

static void the_swap_of_what_is_not_loaded_is_a_load(void **state)
{
    struct supervisor s;
    struct fleet f;

    (void)state;
    open_fleet(&f, &s, two);
    f.engines[1].child.wanted = true;
    (void)ask(&f, CONTROL_UNLOAD, "a-b", NOW_MS);
    assert_null(strstr(ask(&f, CONTROL_SWAP, "a-b", NOW_MS), "swap"));
    assert_int_equal(child_due_ms(&f.engines[1].child), NOW_MS);
    fleet_dispose(&f);
}

static void who_does_not_leave_is_killed(void **state)
{
    struct supervisor s;
    struct fleet f;
    struct fleet_engine *e;
    int64_t due_ms;

    (void)state;
    open_fleet(&f, &s, two);
    e = &f.engines[0];
    start_sleeper(e, "exec sleep 60");
    assert_int_equal(kill(e->child.pid, SIGSTOP), 0);
    assert_int_equal(waitpid(e->child.pid, NULL, WUNTRACED), e->child.pid);
    engine_guard_unload(&e->guard, NOW_MS);
    due_ms = e->guard.unload_kill_ms;
    assert_true(due_ms > NOW_MS && due_ms < INT64_MAX);
    assert_false(engine_guard_turn(&e->guard, due_ms - 1));
    assert_int_equal(waitpid(e->child.pid, NULL, WNOHANG), 0);
    assert_false(engine_guard_turn(&e->guard, due_ms));
    end(e, due_ms);
    assert_int_equal(engine_guard_state(&e->guard), ENGINE_GUARD_UNLOADED);
    assert_true(e->guard.unload_kill_ms == INT64_MAX);
    fleet_dispose(&f);
}

/* ---- a start with some that don't come up ---- */

static bool never(void *arg)
{
    (void)arg;
    return false;
}

static enum status start_with(unsigned deaths_a, unsigned deaths_b, bool a_is_optional)
{
    struct child a = {.is_optional = a_is_optional, .backoff = {.deaths = deaths_a}};
    struct child b = {.is_optional = true, .backoff = {.deaths = deaths_b}};
    struct supervisor s = {.signal_fd = -1};

    a.spec.name = b.spec.name = "engine";
    supervisor_add(&s, &a);
    supervisor_add(&s, &b);
    return supervisor_wait(&s, never, NULL, 0, NULL);
}

static void a_start_waits_while_an_optional_engine_may_come_up(void **state)
{
    (void)state;
    assert_int_equal(start_with(0, CHILD_DEATHS_MAX, true), ST_TIMEOUT);
    assert_int_equal(start_with(CHILD_DEATHS_MAX, 0, true), ST_TIMEOUT);
    assert_int_equal(start_with(CHILD_DEATHS_MAX, CHILD_DEATHS_MAX, true), ST_UNAVAILABLE);
    assert_int_equal(start_with(CHILD_DEATHS_MAX, 0, false), ST_UNAVAILABLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_engine_needs_no_model_id),
        cmocka_unit_test(several_share_nothing),
        cmocka_unit_test(files_of_another_supervisor_are_left_alone),
        cmocka_unit_test(a_model_is_unloaded_and_loaded_again),
        cmocka_unit_test(one_that_was_given_up_is_tried_again),
        cmocka_unit_test(a_model_that_is_not_there_is_named),
        cmocka_unit_test(what_runs_is_asked_to_leave_and_counts_no_death),
        cmocka_unit_test(a_swap_is_begun_once_and_told),
        cmocka_unit_test(the_swap_of_what_is_not_loaded_is_a_load),
        cmocka_unit_test(who_does_not_leave_is_killed),
        cmocka_unit_test(a_start_waits_while_an_optional_engine_may_come_up),
    };

    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
