/* Models in the configuration: the short form and the list, what is filled in, what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/config.h"
#include "app/config_models.h"
#include "base/size.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

/* What every file needs besides its models; its engine section is first. */
#define ENGINE "engine:\n  socket: run/e.sock\n"
#define REST                                                                                       \
    "postgres:\n  conninfo: host=/p\nredis:\n  socket: /r.sock\nauth:\n  pepper_file: pepper\n"    \
    "billing:\n  journal_dir: journal\n"
#define TWO "models:\n  - {path: a.gguf, id: org/a}\n  - {path: b.gguf, id: b}\n"

static enum status parse(const char *text, struct config **c, struct reason *why)
{
    *c = NULL;
    memset(why, 0, sizeof *why);
    return config_parse(text, strlen(text), "c.yaml", "/s", c, why);
}

static struct config *parsed(const char *text)
{
    struct config *c;
    struct reason why;

    if (parse(text, &c, &why) != ST_OK)
        fail_msg("refused: %s", why.text);
    return c;
}

static void assert_refused(const char *text, const char *message)
{
    struct config *c;
    struct reason why;

    assert_int_equal(parse(text, &c, &why), ST_INVALID);
    assert_null(c);
    if (strstr(why.text, message) == NULL)
        fail_msg("expected \"%s\" in \"%s\"", message, why.text);
}

static void the_short_form_is_one_model(void **state)
{
    struct config *c = parsed("model:\n  path: m.gguf\n  id: m\n  aliases: [n, \"o\"]\n  kv_mb: 7\n"
                              "  generation_defaults: model\n" ENGINE REST);

    (void)state;
    assert_int_equal(c->n_models, 1);
    assert_string_equal(c->models[0].path, "/s/m.gguf");
    assert_int_equal(c->models[0].n_aliases, 2);
    assert_string_equal(c->models[0].aliases[1], "o");
    assert_int_equal(c->models[0].kv_mb, 7);
    assert_string_equal(c->models[0].generation_defaults, "model");
    assert_string_equal(c->models[0].required, "off");
    assert_string_equal(c->models[0].socket, "/s/run/e.sock");
    config_free(c);
}

static void several_models_have_a_socket_each(void **state)
{
    struct config *c = parsed(TWO "  - {path: c.gguf, id: c, socket: own.sock}\n" ENGINE REST);

    (void)state;
    assert_int_equal(c->n_models, 3);
    assert_string_equal(c->models[0].id, "org/a");
    assert_string_equal(c->models[0].socket, "/s/run/e.org-a.sock");
    assert_string_equal(c->models[1].path, "/s/b.gguf");
    assert_string_equal(c->models[1].socket, "/s/run/e.b.sock");
    assert_string_equal(c->models[2].socket, "/s/own.sock");
    config_free(c);
    c = parsed(TWO "engine:\n  socket: /a.b/socket\n" REST);
    assert_string_equal(c->models[1].socket, "/a.b/socket.b");
    config_free(c);
}

static void what_a_model_leaves_open_is_the_engines(void **state)
{
    struct config *c =
        parsed("models:\n  - {path: a, id: a, threads: 3, kv_type: q8, mode: fast, kv_mb: 0,"
               " max_sequences: 5, queue_max: 6, tenant_queue_max: 0}\n  - {path: b, id: b}\n"
               "engine:\n  socket: e\n  threads: 2\n  kv_type: f16\n  mode: exact\n  kv_mb: 100\n"
               "  max_sequences: 8\n  queue_max: 9\n  tenant_queue_max: 4\n" REST);
    const struct config_model *a = &c->models[0], *b = &c->models[1];

    (void)state;
    assert_int_equal(a->threads, 3);
    assert_string_equal(a->kv_type, "q8");
    assert_string_equal(a->mode, "fast");
    assert_int_equal(a->kv_mb, 0); /* said, and so not the engine's */
    assert_int_equal(a->max_sequences, 5);
    assert_int_equal(a->queue_max, 6);
    assert_int_equal(a->tenant_queue_max, 0);
    assert_int_equal(b->threads, 2);
    assert_string_equal(b->kv_type, "f16");
    assert_string_equal(b->mode, "exact");
    assert_int_equal(b->kv_mb, 100);
    assert_int_equal(b->max_sequences, 8);
    assert_int_equal(b->queue_max, 9);
    assert_int_equal(b->tenant_queue_max, 4);
    assert_int_equal(b->context_tokens, 0);
    assert_string_equal(b->generation_defaults, "openai");
    config_free(c);
}

static void models_are_found_by_id_and_alias(void **state)
{
    struct config *c = parsed("models:\n  - {path: a, id: a, aliases: [x, y]}\n"
                              "  - {path: a, id: b, aliases: []}\n" ENGINE REST);
    struct buf ids;

    (void)state;
    assert_ptr_equal(config_model_find(c, "a"), &c->models[0]);
    assert_ptr_equal(config_model_find(c, "y"), &c->models[0]);
    assert_ptr_equal(config_model_find(c, "b"), &c->models[1]);
    assert_null(config_model_find(c, "z"));
    buf_init(&ids);
    config_models_put_ids(c, &ids);
    assert_string_equal(buf_cstr(&ids), "a, b");
    buf_dispose(&ids);
    config_free(c);
}

static void a_name_belongs_to_one_model(void **state)
{
    (void)state;
    assert_refused("models:\n  - {path: a, id: a}\n  - path: b\n    id: a\n",
                   "c.yaml:4: two models, or one twice, are called a");
    assert_refused("models:\n  - {path: a, id: a, aliases: [b]}\n  - {path: b, id: b}\n",
                   "c.yaml:3: two models, or one twice, are called b");
    assert_refused("model:\n  aliases: [b, c, b]\n", "c.yaml:2: two models, or one twice");
    assert_refused("model:\n  aliases: [b]\n  id: b\n", "c.yaml:3: two models, or one twice");
}

static void names_that_would_mean_something_else_are_refused(void **state)
{
    static const char *const bad[] = {"a:b", "\"a\\nb\"", "\"\"", "\"*\"", "~", "null", "[a]"};
    char text[128];

    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        snprintf(text, sizeof text, "model:\n  id: %s\n", bad[i]);
        assert_refused(text, "c.yaml:2: model.id must be a text of 1 to 95 bytes");
        snprintf(text, sizeof text, "model:\n  aliases: [%s]\n", bad[i]);
        assert_refused(text, "c.yaml:2: model.aliases must be a list");
    }
}

static void lists_are_read_as_strictly_as_sections(void **state)
{
    (void)state;
    assert_refused("models:\n  - path: a\n    kv_md: 3\n", "c.yaml:3: unknown key: models.kv_md");
    assert_refused("models:\n  - path: a\n    path: b\n", "c.yaml:3: duplicate key: models.path");
    assert_refused("models:\n  - kv_mb: 1048577\n",
                   "c.yaml:2: model.kv_mb must be an integer from 0 to 1048576");
    assert_refused("models:\n  - kv_mb: -1\n", "model.kv_mb must be an integer");
    assert_refused("models:\n  - mode: slow\n", "model.mode must be one of fast, exact");
    assert_refused("models:\n  - required: yes\n", "model.required must be one of on, off");
    assert_refused("models:\n  - isa: scalar\n", "unknown key: models.isa");
    assert_refused("models:\n  path: a\n", "expected a list under models");
    assert_refused("models: &x []\n", "expected a list under models");
    assert_refused("models: !!seq []\n", "expected a list under models");
    assert_refused("models:\n  - a\n", "expected keys and values under section: models");
    assert_refused("models:\n  - [a]\n", "expected keys and values under section: models");
    assert_refused("models: []\nmodels: []\n", "c.yaml:2: models stands twice");
    assert_refused("model: {}\nmodels: []\n", "c.yaml:2: sections model and models exclude");
    assert_refused("models: []\nmodel: {}\n", "c.yaml:2: sections model and models exclude");
    assert_refused("model:\n  aliases: a\n", "model.aliases must be a list of at most 16");
    assert_refused("model:\n  aliases: {a: b}\n", "model.aliases must be a list");
    assert_refused("model:\n  aliases: &x [a]\n", "model.aliases must be a list");
    assert_refused("model:\n  aliases: [[a]]\n", "model.aliases must be a list");
}

static void what_is_missing_is_named_with_its_item(void **state)
{
    (void)state;
    assert_refused("models: []\n", "model.path is missing");
    assert_refused(ENGINE, "model.path is missing");
    assert_refused("models:\n  - {id: a}\n", "c.yaml: model.path is missing");
    assert_refused("models:\n  - {path: a, id: a}\n  - {path: b}\n",
                   "c.yaml: model.id is missing in item 2 of models");
}

static void sockets_are_short_and_nobody_elses(void **state)
{
    char text[512], name[96];

    (void)state;
    assert_refused("models:\n  - {path: a, id: a/b}\n  - {path: b, id: a-b}\n" ENGINE REST,
                   "models a/b and a-b would share the socket /s/run/e.a-b.sock");
    memset(name, 'n', sizeof name);
    name[95] = '\0';
    snprintf(text, sizeof text, "models:\n  - {path: a, id: a}\n  - {path: b, id: %s}\n%s%s", name,
             ENGINE, REST);
    assert_refused(text, "bytes of at most 107: give it a model.socket");
    snprintf(text, sizeof text, "model:\n  socket: %s/%s\n", name, name);
    assert_refused(text, "model.socket must be a path of at most 107 bytes");
}

static void there_are_bounds_on_models_and_aliases(void **state)
{
    struct buf text;

    (void)state;
    buf_init(&text);
    buf_puts(&text, "models:\n");
    for (int i = 0; i <= CONFIG_MODELS_MAX; i++)
        buf_printf(&text, "  - {path: a, id: m%d}\n", i);
    assert_refused(buf_cstr(&text), "c.yaml:66: more models");
    buf_clear(&text);
    buf_puts(&text, "model:\n  aliases: [");
    for (int i = 0; i <= CONFIG_ALIASES_MAX; i++)
        buf_printf(&text, "a%d,", i);
    buf_puts(&text, "]\n");
    assert_refused(buf_cstr(&text), "a list of at most 16 names");
    buf_dispose(&text);
}

static void document_names_every_key_of_a_model(void **state)
{
    struct config_key k;
    struct buf doc;
    size_t i = 0;

    (void)state;
    buf_init(&doc);
    config_keys_markdown(&doc);
    for (; config_model_key_at(i, &k); i++) {
        char row[64];

        snprintf(row, sizeof row, "| `%s` | ", k.name);
        assert_non_null(strstr(buf_cstr(&doc), row));
    }
    assert_true(i > 8);
    buf_dispose(&doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_short_form_is_one_model),
        cmocka_unit_test(several_models_have_a_socket_each),
        cmocka_unit_test(what_a_model_leaves_open_is_the_engines),
        cmocka_unit_test(models_are_found_by_id_and_alias),
        cmocka_unit_test(a_name_belongs_to_one_model),
        cmocka_unit_test(names_that_would_mean_something_else_are_refused),
        cmocka_unit_test(lists_are_read_as_strictly_as_sections),
        cmocka_unit_test(what_is_missing_is_named_with_its_item),
        cmocka_unit_test(sockets_are_short_and_nobody_elses),
        cmocka_unit_test(there_are_bounds_on_models_and_aliases),
        cmocka_unit_test(document_names_every_key_of_a_model),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
