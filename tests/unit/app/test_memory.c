/* Whether the engines of a configuration fit: who is counted when one starts. KV of a TiB stands
 * for what no machine here has. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/config.h"
#include "app/memory.h"
#include "app/supervise/files.h"
#include "app/supervise/process.h"
#include "app/supervise/state_file.h"
#include "base/log.h"
#include "engine/core/engine_process.h"
#include "engine/core/listener.h"
#include "engine/cpu/cpu.h"
#include "tests/lib/gguf_build.h"
#include "tests/lib/test_folder.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static struct config *with_models(const char *models)
{
    struct config *c = NULL;
    struct reason why = {0};
    char text[1024];

    snprintf(text, sizeof text,
             "models:\n%sengine: {socket: e.sock, threads: 1}\npostgres: {conninfo: p}\n"
             "redis: {socket: r}\nauth: {pepper_file: p}\nbilling: {journal_dir: j}\n",
             models);
    if (config_parse(text, strlen(text), "c.yaml", test_folder, &c, &why) != ST_OK)
        fail_msg("%s", why.text);
    return c;
}

#define SMALL(id) "  - {path: tiny.gguf, id: " id ", kv_mb: 1}\n"
#define HUGE(id)  "  - {path: tiny.gguf, id: " id ", kv_mb: 1048576}\n"

static enum status check(const struct config *c, size_t i, struct reason *why)
{
    *why = (struct reason){0};
    return memory_check_model(c, &c->models[i], NULL, why);
}

static void a_model_that_cannot_fit_is_refused_alone(void **state)
{
    struct config *c = with_models(SMALL("a") HUGE("b") SMALL("c"));
    struct reason why;

    (void)state;
    assert_int_equal(check(c, 0, &why), ST_OK);
    assert_int_equal(check(c, 1, &why), ST_NO_MEMORY);
    assert_non_null(strstr(why.text, "model b beside 1 more: weights "));
    assert_int_equal(check(c, 2, &why), ST_OK); /* b won't run: it takes nothing from c */
    config_free(c);
}

static void models_before_it_count_and_those_after_it_do_not(void **state)
{
    struct config *c = with_models(SMALL("a") SMALL("b") HUGE("c") HUGE("d"));
    struct reason why;

    (void)state;
    assert_int_equal(check(c, 2, &why), ST_NO_MEMORY);
    assert_non_null(strstr(why.text, "model c beside 2 more"));
    config_free(c);
}

static void one_that_runs_counts_wherever_it_stands(void **state)
{
    struct config *c = with_models(HUGE("a") SMALL("b"));
    struct reason why;
    int fd = -1;

    (void)state;
    assert_int_equal(check(c, 0, &why), ST_NO_MEMORY);
    assert_non_null(strstr(why.text, "model a: weights "));
    assert_non_null(strstr(why.text, "taken already 0 ="));
    assert_int_equal(listener_open(c->models[1].socket, &fd, &why), ST_OK);
    assert_int_equal(listener_start(c->models[1].socket, fd, &why), ST_OK);
    assert_int_equal(check(c, 0, &why), ST_NO_MEMORY);
    /* This process listens there, and has more in use than the small model will ever take. */
    assert_non_null(strstr(why.text, "model a beside 1 more"));
    assert_null(strstr(why.text, "taken already 0 ="));
    close(fd);
    unlink(c->models[1].socket);
    config_free(c);
}

/* It listens beside the path of the one that it is to replace, which this process stands for. */
static void a_successor_must_fit_beside_the_one_that_serves(void **state)
{
    struct config *c = with_models(SMALL("a") HUGE("b"));
    struct engine_process_config own = {.device = &cpu_device_ops,
                                        .model_path = c->models[0].path,
                                        .socket_path = "e.sock.next",
                                        .isa = "auto",
                                        .n_threads = 1,
                                        .max_sequences = 1,
                                        .prefill_rows = 8,
                                        .kv_bytes = (size_t)1 << 40};
    struct reason why = {0};
    int fd = -1;

    (void)state;
    assert_int_equal(memory_check_model(c, &c->models[0], &own, &why), ST_NO_MEMORY);
    assert_non_null(strstr(why.text, "model a: weights "));
    assert_int_equal(listener_open(c->models[0].socket, &fd, &why), ST_OK);
    assert_int_equal(listener_start(c->models[0].socket, fd, &why), ST_OK);
    assert_int_equal(memory_check_model(c, &c->models[0], &own, &why), ST_NO_MEMORY);
    assert_non_null(strstr(why.text, "model a beside 1 more: weights "));
    own.socket_path = c->models[0].socket; /* its own start, as ever */
    assert_int_equal(memory_check_model(c, &c->models[0], &own, &why), ST_NO_MEMORY);
    assert_non_null(strstr(why.text, "model a: weights "));
    close(fd);
    unlink(c->models[0].socket);
    config_free(c);
}

/* A process that another model's swap has beside its engine, which this one's parent stands for. */
static void what_a_swap_of_another_one_takes_counts(void **state)
{
    struct config *c = with_models(HUGE("a") SMALL("b"));
    char path[PROCESS_PATH_MAX], text[64];
    struct reason why;
    int n = snprintf(text, sizeof text, "%d %" PRIu64 "\n", (int)getppid(),
                     process_started_ticks(getppid()));

    (void)state;
    snprintf(path, sizeof path, "%.600s.next.pid", c->models[1].socket);
    assert_int_equal(file_write(path, text, (size_t)n, 0600, NULL), ST_OK);
    assert_int_equal(check(c, 0, &why), ST_NO_MEMORY);
    assert_non_null(strstr(why.text, "model a beside 1 more"));
    n = snprintf(text, sizeof text, "%d 1\n", (int)getppid()); /* an earlier one's number */
    assert_int_equal(file_write(path, text, (size_t)n, 0600, NULL), ST_OK);
    assert_int_equal(check(c, 0, &why), ST_NO_MEMORY);
    assert_non_null(strstr(why.text, "model a: weights "));
    unlink(path);
    config_free(c);
}

/* This process is their supervisor, and answers at the socket of the one that stands behind. */
static void what_is_unloaded_takes_nothing_from_others(void **state)
{
    struct config *c = with_models(SMALL("a") SMALL("b") HUGE("c") SMALL("d"));
    char path[PROCESS_PATH_MAX];
    struct reason why;
    int fd = -1;

    (void)state;
    state_file_path(c->models[0].socket, path);
    state_file_write(path, "waiting", 0, "", NULL);
    state_file_path(c->models[3].socket, path);
    state_file_write(path, "unloaded", 0, "", NULL);
    assert_int_equal(listener_open(c->models[3].socket, &fd, &why), ST_OK);
    assert_int_equal(listener_start(c->models[3].socket, fd, &why), ST_OK);
    assert_int_equal(check(c, 2, &why), ST_NO_MEMORY);
    assert_non_null(strstr(why.text, "model c beside 2 more"));
    assert_non_null(strstr(why.text, "taken already 0 ="));
    state_file_path(c->models[0].socket, path);
    state_file_write(path, "unloaded", 0, "", NULL);
    assert_int_equal(check(c, 2, &why), ST_NO_MEMORY);
    assert_non_null(strstr(why.text, "model c beside 1 more"));
    unlink(path);
    state_file_path(c->models[3].socket, path);
    unlink(path);
    close(fd);
    unlink(c->models[3].socket);
    config_free(c);
}

static void a_model_that_cannot_be_read_takes_nothing_from_others(void **state)
{
    struct config *c = with_models("  - {path: none.gguf, id: a}\n" SMALL("b"));
    struct reason why;

    (void)state;
    assert_int_equal(check(c, 1, &why), ST_OK);
    assert_int_not_equal(check(c, 0, &why), ST_OK);
    assert_non_null(strstr(why.text, "none.gguf"));
    config_free(c);
}

/* The command line goes before the file. */
static void what_the_engine_was_told_counts_for_itself(void **state)
{
    struct config *c = with_models(SMALL("a") HUGE("b"));
    struct engine_process_config own = {.device = &cpu_device_ops,
                                        .model_path = c->models[1].path,
                                        .isa = "auto",
                                        .n_threads = 1,
                                        .max_sequences = 1,
                                        .prefill_rows = 8,
                                        .kv_bytes = (size_t)1 << 20};
    struct reason why = {0};

    (void)state;
    assert_int_equal(memory_check_model(c, &c->models[1], &own, &why), ST_OK);
    own.kv_bytes = (size_t)1 << 40;
    assert_int_equal(memory_check_model(c, &c->models[0], &own, &why), ST_NO_MEMORY);
    config_free(c);
}

static void the_whole_file_is_a_table(void **state)
{
    struct config *c = with_models(SMALL("a") HUGE("b"));
    struct reason why = {0};
    struct buf out;

    (void)state;
    buf_init(&out);
    assert_int_equal(memory_check_all(c, &out, &why), ST_NO_MEMORY);
    assert_non_null(strstr(why.text, "for 2 models: "));
    assert_non_null(strstr(buf_cstr(&out), "\na "));
    assert_non_null(strstr(buf_cstr(&out), "\nb "));
    assert_non_null(strstr(buf_cstr(&out), "\navailable "));
    buf_dispose(&out);
    config_free(c);
}

/* Of several models the reason alone would not tell which one to change. */
static void what_cannot_be_planned_is_named(void **state)
{
    struct config *c = with_models(SMALL("a") "  - {id: missing, path: /nowhere/model.gguf}\n");
    struct reason why = {0};
    struct buf out;

    (void)state;
    buf_init(&out);
    assert_int_not_equal(memory_check_all(c, &out, &why), ST_OK);
    assert_non_null(strstr(why.text, "model missing: "));
    assert_non_null(strstr(why.text, "/nowhere/model.gguf"));
    buf_dispose(&out);
    config_free(c);
}

static int make_folder(void **state)
{
    log_init("test", LOG_ERROR);
    if (test_folder_make(state) != 0)
        return -1;
    tiny_model_write(NULL, in_test_folder("tiny.gguf"));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_that_cannot_fit_is_refused_alone),
        cmocka_unit_test(models_before_it_count_and_those_after_it_do_not),
        cmocka_unit_test(one_that_runs_counts_wherever_it_stands),
        cmocka_unit_test(a_successor_must_fit_beside_the_one_that_serves),
        cmocka_unit_test(what_a_swap_of_another_one_takes_counts),
        cmocka_unit_test(what_is_unloaded_takes_nothing_from_others),
        cmocka_unit_test(a_model_that_cannot_be_read_takes_nothing_from_others),
        cmocka_unit_test(what_the_engine_was_told_counts_for_itself),
        cmocka_unit_test(the_whole_file_is_a_table),
        cmocka_unit_test(what_cannot_be_planned_is_named),
    };

    return cmocka_run_group_tests(tests, make_folder, test_folder_remove);
}
