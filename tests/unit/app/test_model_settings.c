/* How a model is to be served now, read anew from a configuration file that has changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/model_settings.h"
#include "base/size.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define ENGINE "engine:\n  socket: run/e.sock\nlog:\n  level: info\n"

struct taker {
    struct engine_reload super;
    char dir[64], path[96];
    unsigned n;
    char model_path[96], socket_path[96];
    uint32_t context_tokens;
    bool file_defaults;
    enum status status; /* what is answered */
};

static enum status take(struct engine_reload *to, const struct engine_model_config *m,
                        struct reason *why)
{
    struct taker *t = CONTAINER_OF(to, struct taker, super);

    t->n++;
    snprintf(t->model_path, sizeof t->model_path, "%s", m->path);
    snprintf(t->socket_path, sizeof t->socket_path, "%s", m->socket_path);
    t->context_tokens = m->context_tokens;
    t->file_defaults = m->file_defaults;
    if (t->status != ST_OK)
        snprintf(why->text, sizeof why->text, "as the test says");
    return t->status;
}

static void open_taker(struct taker *t)
{
    *t = (struct taker){.super.take = take, .dir = "/tmp/sluice-settings-XXXXXX"};
    assert_non_null(mkdtemp(t->dir));
    strcpy(t->path, t->dir);
    strcat(t->path, "/c.yaml");
}

static void close_taker(struct taker *t)
{
    unlink(t->path);
    rmdir(t->dir);
}

static void write_file(const struct taker *t, const char *text)
{
    FILE *f = fopen(t->path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void assert_ends_with(const char *text, const char *end)
{
    assert_true(strlen(text) >= strlen(end));
    assert_string_equal(text + strlen(text) - strlen(end), end);
}

static void the_file_of_the_moment_counts(void **state)
{
    struct reason why = {0};
    struct taker t;

    (void)state;
    open_taker(&t);
    write_file(&t, ENGINE "models:\n  - {path: a.gguf, id: a}\n  - {path: b.gguf, id: b}\n");
    assert_int_equal(model_settings_reload(t.path, "b", &t.super, &why), ST_OK);
    assert_ends_with(t.model_path, "/b.gguf");
    assert_ends_with(t.socket_path, "/run/e.b.sock");
    assert_int_equal(t.context_tokens, 0);
    assert_false(t.file_defaults);
    write_file(&t, ENGINE "models:\n  - {path: a.gguf, id: a}\n  - {path: new.gguf, id: b, "
                          "context_tokens: 77, generation_defaults: model, socket: other.sock}\n");
    assert_int_equal(model_settings_reload(t.path, "b", &t.super, &why), ST_OK);
    assert_ends_with(t.model_path, "/new.gguf");
    assert_ends_with(t.socket_path, "/other.sock");
    assert_int_equal(t.context_tokens, 77);
    assert_true(t.file_defaults);
    assert_int_equal(t.n, 2);
    close_taker(&t);
}

static void what_the_taker_says_is_the_answer(void **state)
{
    struct reason why = {0};
    struct taker t;

    (void)state;
    open_taker(&t);
    t.status = ST_CORRUPT;
    write_file(&t, ENGINE "model: {path: a.gguf, id: a}\n");
    assert_int_equal(model_settings_reload(t.path, "a", &t.super, &why), ST_CORRUPT);
    assert_string_equal(why.text, "as the test says");
    close_taker(&t);
}

static void a_model_that_left_the_file_is_refused_by_name(void **state)
{
    struct reason why = {0};
    struct taker t;

    (void)state;
    open_taker(&t);
    write_file(&t, ENGINE "model: {path: a.gguf, id: a, aliases: [b]}\n");
    assert_int_equal(model_settings_reload(t.path, "b", &t.super, &why), ST_NOT_FOUND);
    assert_non_null(strstr(why.text, "no model of the id b"));
    assert_non_null(strstr(why.text, t.path));
    assert_int_equal(t.n, 0);
    close_taker(&t);
}

static void a_file_that_is_wrong_is_refused_with_its_line(void **state)
{
    struct reason why = {0};
    struct taker t;

    (void)state;
    open_taker(&t);
    write_file(&t, ENGINE "model: {path: a.gguf, id: a, kv_mb: lots}\n");
    assert_int_equal(model_settings_reload(t.path, "a", &t.super, &why), ST_INVALID);
    assert_non_null(strstr(why.text, "kv_mb"));
    unlink(t.path);
    assert_int_equal(model_settings_reload(t.path, "a", &t.super, &why), ST_NOT_FOUND);
    assert_int_equal(t.n, 0);
    close_taker(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_of_the_moment_counts),
        cmocka_unit_test(what_the_taker_says_is_the_answer),
        cmocka_unit_test(a_model_that_left_the_file_is_refused_by_name),
        cmocka_unit_test(a_file_that_is_wrong_is_refused_with_its_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
