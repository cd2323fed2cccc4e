/* `sluice up` and a configuration that people have edited. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/config.h"
#include "app/up/config_write.h"
#include "app/supervise/files.h"
#include "base/size.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static const struct layout layout = {
    .dir = "/d", .engine_socket = "/s/engine.sock", .redis_socket = "/s/redis.sock"};
static const struct config_values first = {.layout = &layout,
                                           .model_path = "/m/a.gguf",
                                           .model_id = "a",
                                           .conninfo = "host=/s dbname=sluice",
                                           .port = 1,
                                           .tls_port = 2,
                                           .admin_port = 3};

/* What a person made of it: other order, comments, keys of their own, another name. */
static const char edited[] = "# our gateway\n"
                             "server:\n"
                             "    # behind nginx\n"
                             "    port: 1 # do not touch\n"
                             "    admin_port: 3\n"
                             "    tls_port: 2\n"
                             "    tls_cert: ours.crt\n"
                             "    tls_key: ours.key\n"
                             "    drain_ms: 777\n"
                             "log:\n"
                             "  level: debug\n"
                             "model: { path: /m/a.gguf, id: house-model }\n"
                             "engine:\n"
                             "  socket: '/s/engine.sock'\n"
                             "  threads: 3\n"
                             "postgres:\n"
                             "  conninfo: host=/s dbname=sluice\n"
                             "redis:\n"
                             "  socket: /s/redis.sock\n"
                             "auth:\n"
                             "  pepper_file: pepper\n"
                             "billing:\n"
                             "  journal_dir: /fast/journal";

static void what_agrees_stays_as_it_is_byte_for_byte(void **state)
{
    struct config_values v = first;
    struct reason why = {0};
    struct buf out;

    (void)state;
    v.model_id = "house-model";
    buf_init(&out);
    assert_int_equal(config_update(&out, edited, strlen(edited), &v, &why), ST_OK);
    assert_string_equal(buf_cstr(&out), edited);
    buf_dispose(&out);
}

/* Its models are the person's alone, also where nothing agrees with the launcher's. */
static void a_list_of_models_stays_and_the_rest_follows(void **state)
{
    static const char listed[] = "models:\n"
                                 "  - path: /m/x.gguf\n"
                                 "    id: x\n"
                                 "  - {path: /m/y.gguf, id: y} # the quick one\n";
    static const char rest[] = "engine:\n  socket: /s/engine.sock\n"
                               "server:\n  port: %d\n  tls_port: 2\n  admin_port: 3\n"
                               "  tls_cert: c\n  tls_key: k\n"
                               "postgres:\n  conninfo: \"host=/s dbname=sluice\"\n"
                               "redis:\n  socket: /s/redis.sock\n"
                               "auth:\n  pepper_file: p\nbilling:\n  journal_dir: j\n";
    char old[1024], wanted[1024];
    struct reason why = {0};
    struct buf out;
    int n = snprintf(old, sizeof old, "%s", listed);

    (void)state;
    snprintf(wanted, sizeof wanted, "%s", listed);
    snprintf(old + n, sizeof old - (size_t)n, rest, 4711);
    snprintf(wanted + n, sizeof wanted - (size_t)n, rest, 1);
    buf_init(&out);
    assert_int_equal(config_update(&out, old, strlen(old), &first, &why), ST_OK);
    assert_string_equal(buf_cstr(&out), wanted);
    buf_dispose(&out);
}

static void only_the_lines_of_changed_values_change(void **state)
{
    static const char changed[] = "    port: 1 # do not touch\n", now[] = "    port: 81\n";
    struct config_values v = first;
    struct reason why = {0};
    const char *at = strstr(edited, changed);
    struct buf out, expected;

    (void)state;
    v.model_id = "house-model";
    v.port = 81;
    buf_init(&out);
    buf_init(&expected);
    buf_append(&expected, edited, (size_t)(at - edited));
    buf_puts(&expected, now);
    buf_puts(&expected, at + strlen(changed));
    assert_int_equal(config_update(&out, edited, strlen(edited), &v, &why), ST_OK);
    assert_string_equal(buf_cstr(&out), buf_cstr(&expected));
    buf_dispose(&expected);
    buf_dispose(&out);
}

static void what_is_missing_is_added(void **state)
{
    static const char text[] = "model:\n"
                               "  path: /m/a.gguf\n"
                               "  id: a\n"
                               "engine:\n"
                               "  socket: /s/engine.sock\n"
                               "postgres:\n"
                               "  conninfo: host=/s dbname=sluice\n"
                               "redis:\n"
                               "  socket: /s/redis.sock\n"
                               "auth:\n"
                               "  pepper_file: pepper\n"
                               "billing:\n"
                               "  journal_dir: journal # no line end";
    struct config_values v = first;
    struct config *c = NULL;
    struct reason why = {0};
    struct buf out;

    (void)state;
    v.tls_port = 0;
    buf_init(&out);
    assert_int_equal(config_update(&out, text, strlen(text), &v, &why), ST_OK);
    assert_memory_equal(buf_cstr(&out), text, strlen(text));
    assert_int_equal(config_parse(buf_cstr(&out), out.len, "c", "/d", &c, &why), ST_OK);
    assert_int_equal(c->port, 1);
    assert_int_equal(c->admin_port, 3);
    config_free(c);
    buf_dispose(&out);
}

static void another_model_is_written_with_any_path(void **state)
{
    struct config_values v = first;
    struct config *c = NULL;
    struct reason why = {0};
    struct buf old, out;

    (void)state;
    buf_init(&old);
    buf_init(&out);
    config_put(&old, &first);
    v.model_path = "/m/\xC3\xA9 \"b\" #1: \\x.gguf";
    v.model_id = "b";
    assert_int_equal(config_update(&out, buf_cstr(&old), old.len, &v, &why), ST_OK);
    assert_int_equal(config_parse(buf_cstr(&out), out.len, "c", "/d", &c, &why), ST_OK);
    assert_string_equal(c->models[0].path, v.model_path);
    assert_string_equal(c->models[0].id, "b");
    assert_string_equal(c->engine_socket, layout.engine_socket);
    config_free(c);
    buf_dispose(&out);
    buf_dispose(&old);
}

/* A section in braces, whose model.id differs here; and a file with a mistake. */
static void what_cant_be_changed_in_its_line_is_refused(void **state)
{
    static const char broken[] = "server:\n  prot: 1\n";
    struct reason why = {0};
    struct buf out;

    (void)state;
    buf_init(&out);
    assert_int_equal(config_update(&out, edited, strlen(edited), &first, &why), ST_CONFLICT);
    assert_non_null(strstr(why.text, "sluice.yaml"));
    assert_int_equal(config_update(&out, broken, strlen(broken), &first, &why), ST_INVALID);
    assert_non_null(strstr(why.text, "sluice.yaml:2"));
    buf_dispose(&out);
}

/* `edited` as some editors would save it: as UTF-16, whose lines are of bytes that no other line
 * has. */
static void a_file_of_another_encoding_is_refused(void **state)
{
    char wide[2 + 2 * sizeof edited] = {'\xFF', '\xFE'};
    struct reason why = {0};
    struct buf out;

    (void)state;
    for (size_t i = 0; i < sizeof edited - 1; i++)
        wide[2 + 2 * i] = edited[i];
    buf_init(&out);
    assert_int_equal(config_update(&out, wide, 2 * sizeof edited, &first, &why), ST_INVALID);
    assert_non_null(strstr(why.text, "not YAML"));
    buf_dispose(&out);
}

static void a_second_start_leaves_the_file_alone(void **state)
{
    static const char more[] = "log:\n  level: warn # ours\n";
    char folder[] = "/tmp/sluice-test-config-XXXXXX", path[LAYOUT_PATH_MAX], text[4096];
    struct layout l = layout;
    struct config_values v = first;
    struct reason why = {0};
    struct stat before, after;
    FILE *f;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(l.dir, sizeof l.dir, "%s", folder);
    v.layout = &l;
    layout_path(&l, "sluice.yaml", path);
    assert_int_equal(config_write(&v, &why), ST_OK);
    f = fopen(path, "a");
    assert_non_null(f);
    fputs(more, f);
    fclose(f);
    assert_int_equal(stat(path, &before), 0);
    assert_int_equal(before.st_mode & 07777, 0600);
    assert_int_equal(config_write(&v, &why), ST_OK);
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino); /* not even written */
    v.port = 99;
    assert_int_equal(config_write(&v, &why), ST_OK);
    assert_int_equal(file_read(path, text, sizeof text), ST_OK);
    assert_non_null(strstr(text, "level: warn # ours"));
    assert_non_null(strstr(text, "  port: 99\n"));
    assert_int_equal(folder_remove(folder, &why), ST_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_agrees_stays_as_it_is_byte_for_byte),
        cmocka_unit_test(a_list_of_models_stays_and_the_rest_follows),
        cmocka_unit_test(only_the_lines_of_changed_values_change),
        cmocka_unit_test(what_is_missing_is_added),
        cmocka_unit_test(another_model_is_written_with_any_path),
        cmocka_unit_test(what_cant_be_changed_in_its_line_is_refused),
        cmocka_unit_test(a_file_of_another_encoding_is_refused),
        cmocka_unit_test(a_second_start_leaves_the_file_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
