/* The configuration file: what is read, and what is refused with line, key and what is allowed. */
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
#include "app/config_keys.h"
#include "base/size.h"
#include "tests/lib/test_folder.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define SMALLEST WITH_ENGINE("")
#define WITH_ENGINE(keys)                                                                          \
    "model:\n  path: m.gguf\n  id: m\nengine:\n  socket: e.sock\n" keys                            \
    "postgres:\n  conninfo: host=/p\n"                                                             \
    "redis:\n  socket: /r.sock\nauth:\n  pepper_file: pepper\nbilling:\n  journal_dir: journal\n"

static enum status parse(const char *text, struct config **c, struct reason *why)
{
    memset(why, 0, sizeof *why);
    return config_parse(text, strlen(text), "c.yaml", "/etc/s", c, why);
}

static void assert_refused(const char *text, const char *message)
{
    struct config *c = NULL;
    struct reason why;

    assert_int_equal(parse(text, &c, &why), ST_INVALID);
    assert_null(c);
    if (strstr(why.text, message) == NULL)
        fail_msg("expected \"%s\" in \"%s\"", message, why.text);
}

static void smallest_file_has_defaults_and_absolute_paths(void **state)
{
    struct config *c = NULL;
    struct reason why;

    (void)state;
    assert_int_equal(parse(SMALLEST, &c, &why), ST_OK);
    assert_string_equal(c->models[0].path, "/etc/s/m.gguf");
    assert_string_equal(c->redis_socket, "/r.sock");
    assert_string_equal(c->postgres_conninfo, "host=/p");
    assert_int_equal(c->port, 8080);
    assert_int_equal(c->tls_port, 0);
    assert_string_equal(c->tls_cert, "");
    assert_string_equal(c->engine_isa, "auto");
    assert_string_equal(c->engine_kv_type, "auto");
    assert_int_equal(c->log_level, LOG_INFO);
    config_free(c);
}

static void given_values_replace_defaults(void **state)
{
    struct config *c = NULL;
    struct reason why;

    (void)state;
    assert_int_equal(
        parse(SMALLEST "server:\n  port: 80\n  listen: \"::1\"\nlog: {level: debug}\n", &c, &why),
        ST_OK);
    assert_int_equal(c->port, 80);
    assert_string_equal(c->listen, "::1");
    assert_int_equal(c->log_level, LOG_DEBUG);
    config_free(c);
}

static void bad_files_are_refused_with_line_and_key(void **state)
{
    (void)state;
    assert_refused(SMALLEST "server:\n  prot: 80\n", "c.yaml:15: unknown key: server.prot");
    assert_refused(SMALLEST "sever:\n  port: 80\n", "c.yaml:14: unknown section: sever");
    assert_refused("model:\n  id: a\n  id: b\n", "c.yaml:3: duplicate key: model.id");
    assert_refused("model:\n  id: a\nmodel:\n  id: b\n", "c.yaml:4: duplicate key: model.id");
    assert_refused("server:\n  port: 70000\n",
                   "c.yaml:2: server.port must be an integer from 1 to 65535");
    assert_refused("server:\n  port: eighty\n", "server.port must be an integer");
    assert_refused("server:\n  port: 80.5\n", "server.port must be an integer");
    assert_refused("server:\n  port: \"80\"\n", "server.port must be an integer");
    assert_refused("server:\n  port: 99999999999999999999\n", "server.port must be an integer");
    assert_refused("server:\n  port: [80]\n", "server.port must be an integer");
    assert_refused("server:\n  port:\n", "server.port must be an integer");
    assert_refused("engine:\n  isa: neon\n",
                   "engine.isa must be one of auto, scalar, avx2, avx512");
    assert_refused("engine:\n  kv_type: q4\n", "engine.kv_type must be one of auto, f16, q8");
    assert_refused("model:\n  id: ~\n", "model.id must be a text");
    assert_refused("model:\n  id: \"\"\n", "model.id must be a text");
    assert_refused("model:\n  id: \"a\\0b\"\n", "model.id must be a text");
    assert_refused("model:\n  id: !!str a\n", "model.id must be a text");
    assert_refused("model:\n  id: &x a\n", "model.id must be a text");
}

static void a_watchdog_below_a_few_steps_is_refused(void **state)
{
    struct config *c = NULL;
    struct reason why;

    (void)state;
    assert_refused(WITH_ENGINE("  stall_ms: 2999\n"),
                   "engine.stall_ms must be 0, or at least 3000");
    assert_refused(WITH_ENGINE("  stall_ms: 5999\n  step_ms: 2000\n"), "three times");
    assert_int_equal(parse(WITH_ENGINE("  stall_ms: 6000\n  step_ms: 2000\n"), &c, &why), ST_OK);
    assert_int_equal(c->engine_stall_ms, 6000);
    config_free(c);
    assert_int_equal(parse(WITH_ENGINE("  stall_ms: 0\n"), &c, &why), ST_OK);
    config_free(c);
}

static void one_core_is_a_list_too(void **state)
{
    struct config *c = NULL;
    struct reason why;

    (void)state;
    assert_int_equal(parse(WITH_ENGINE("  cores: 3\n"), &c, &why), ST_OK);
    assert_string_equal(c->engine_cores, "3");
    config_free(c);
}

static void files_that_are_no_configuration_are_refused(void **state)
{
    (void)state;
    assert_refused("", "the file is empty");
    assert_refused("model\n", "expected sections");
    assert_refused("- a\n", "expected sections");
    assert_refused("model: 3\n", "expected keys and values under section: model");
    assert_refused("model: {id: a", "not YAML");
    assert_refused("model:\n\tid: a\n", "not YAML");
    assert_refused("[a]: b\n", "expected a section's name");
    assert_refused(SMALLEST "---\nmodel: {}\n", "a second document");
}

/* libyaml tells UTF-16 by its first bytes; UTF-8 may begin with a mark too. */
static void a_file_of_another_encoding_is_refused(void **state)
{
    static const char utf16[] = "\xFF\xFEm\0o\0d\0e\0l\0:\0 \0{\0}\0\n",
                      nul[] = SMALLEST "# a\0b\n";
    struct config *c = NULL;
    struct reason why;

    (void)state;
    assert_int_equal(config_parse(utf16, sizeof utf16, "c.yaml", "/", &c, &why), ST_INVALID);
    assert_non_null(strstr(why.text, "not YAML"));
    assert_int_equal(config_parse(nul, sizeof nul - 1, "c.yaml", "/", &c, &why), ST_INVALID);
    assert_non_null(strstr(why.text, "not YAML"));
    if (parse("\xEF\xBB\xBF" SMALLEST, &c, &why) != ST_OK)
        fail_msg("%s", why.text);
    config_free(c);
}

static void missing_required_keys_are_named(void **state)
{
    (void)state;
    assert_refused("model:\n  path: m\n", "c.yaml: model.id is missing");
}

static void keys_that_contradict_each_other_are_refused(void **state)
{
    (void)state;
    assert_refused(SMALLEST "server:\n  tls_port: 8443\n", "needs server.tls_cert");
    assert_refused(SMALLEST "server:\n  admin_port: 8080\n", "must differ");
}

static void socket_paths_that_the_kernel_would_cut_are_refused(void **state)
{
    char text[512], path[200];

    (void)state;
    memset(path, 'a', sizeof path);
    path[104] = '\0'; /* with "/etc/s/": 111 */
    snprintf(text, sizeof text, "engine:\n  socket: %s\n", path);
    assert_refused(text, "engine.socket must be a path of at most 107 bytes");
}

/* ---- files ---- */

static void write_bytes(const char *name, const char *text, size_t len, mode_t mode)
{
    const char *path = in_test_folder(name);
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static void write_file(const char *name, const char *text, mode_t mode)
{
    write_bytes(name, text, strlen(text), mode);
}

static enum status load_with_pepper(const char *pepper, mode_t mode, struct config **c,
                                    struct reason *why)
{
    write_file("sluice.yaml", SMALLEST, 0644);
    write_file("pepper", pepper, mode);
    return config_load(in_test_folder("sluice.yaml"), c, why);
}

#define HEX64 "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF"

static void pepper_is_read_from_its_file(void **state)
{
    struct config *c = NULL;
    struct reason why;

    (void)state;
    assert_int_equal(load_with_pepper(HEX64 "\n", 0600, &c, &why), ST_OK);
    assert_string_equal(c->auth_pepper, HEX64);
    config_free(c);
}

static void weak_or_open_pepper_is_refused(void **state)
{
    struct config *c = NULL;
    struct reason why;

    (void)state;
    assert_int_equal(load_with_pepper("0011", 0600, &c, &why), ST_INVALID);
    assert_string_equal(why.param, "auth.pepper_file");
    assert_int_equal(load_with_pepper(HEX64 " and more", 0600, &c, &why), ST_INVALID);
    assert_int_equal(load_with_pepper(HEX64, 0644, &c, &why), ST_FORBIDDEN);
    assert_null(c);
}

static void what_a_nul_byte_hides_in_the_pepper_is_refused(void **state)
{
    static const char *const texts[] = {HEX64 "\0and more", HEX64 "\0", "\0" HEX64};
    static const size_t lens[] = {sizeof HEX64 "and more", sizeof HEX64, sizeof HEX64};

    (void)state;
    write_file("sluice.yaml", SMALLEST, 0644);
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        struct config *c = NULL;
        struct reason why;

        write_bytes("pepper", texts[i], lens[i], 0600);
        assert_int_equal(config_load(in_test_folder("sluice.yaml"), &c, &why), ST_INVALID);
        assert_string_equal(why.param, "auth.pepper_file");
    }
}

static void engine_reads_no_secret(void **state)
{
    struct config *c = NULL;
    struct reason why;

    (void)state;
    write_file("sluice.yaml", SMALLEST, 0644);
    unlink(in_test_folder("pepper"));
    assert_int_equal(config_load_engine(in_test_folder("sluice.yaml"), &c, &why), ST_OK);
    assert_null(c->postgres_conninfo);
    assert_null(c->auth_pepper_file);
    assert_string_equal(c->auth_pepper, "");
    config_free(c);
}

static void missing_file_is_said(void **state)
{
    struct config *c = NULL;
    struct reason why;

    (void)state;
    assert_int_equal(config_load("/nonexistent/sluice.yaml", &c, &why), ST_NOT_FOUND);
    assert_non_null(strstr(why.text, "/nonexistent/sluice.yaml"));
}

static void document_names_every_key(void **state)
{
    struct buf doc;

    (void)state;
    buf_init(&doc);
    config_keys_markdown(&doc);
    for (size_t i = 0; i < config_keys_count; i++)
        assert_non_null(strstr(buf_cstr(&doc), config_keys[i].name));
    buf_dispose(&doc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smallest_file_has_defaults_and_absolute_paths),
        cmocka_unit_test(given_values_replace_defaults),
        cmocka_unit_test(bad_files_are_refused_with_line_and_key),
        cmocka_unit_test(a_watchdog_below_a_few_steps_is_refused),
        cmocka_unit_test(one_core_is_a_list_too),
        cmocka_unit_test(files_that_are_no_configuration_are_refused),
        cmocka_unit_test(a_file_of_another_encoding_is_refused),
        cmocka_unit_test(missing_required_keys_are_named),
        cmocka_unit_test(keys_that_contradict_each_other_are_refused),
        cmocka_unit_test(socket_paths_that_the_kernel_would_cut_are_refused),
        cmocka_unit_test(pepper_is_read_from_its_file),
        cmocka_unit_test(weak_or_open_pepper_is_refused),
        cmocka_unit_test(what_a_nul_byte_hides_in_the_pepper_is_refused),
        cmocka_unit_test(engine_reads_no_secret),
        cmocka_unit_test(missing_file_is_said),
        cmocka_unit_test(document_names_every_key),
    };

    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
