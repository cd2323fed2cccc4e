/* sluice migrate and sluice key, as their users see them: what is on standard output, and the exit
 * code. */
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/cmd_key.h"
#include "app/cmd_migrate.h"
#include "auth/auth.h"
#include "base/size.h"
#include "tests/lib/pg_server.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static struct pg_server server;
static char pepper_file[SCRATCH_BYTES + 16];
static char output[8192];

/* Runs the command with standard output into `output`; its exit code. */
static int run(int (*command)(int argc, char **argv), int argc, const char *const *argv)
{
    FILE *f = tmpfile();
    int saved = dup(STDOUT_FILENO), rc;
    size_t n;

    assert_non_null(f);
    fflush(stdout);
    assert_true(dup2(fileno(f), STDOUT_FILENO) != -1);
    rc = command(argc, (char **)(uintptr_t)argv);
    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    rewind(f);
    n = fread(output, 1, sizeof output - 1, f);
    output[n] = '\0';
    fclose(f);
    return rc;
}

static int run_key(const char *action, const char *const *more, int n)
{
    const char *argv[24] = {"key",           action,          "--conninfo",
                            server.conninfo, "--pepper-file", pepper_file};

    memcpy(argv + 6, more, (size_t)n * sizeof more[0]);
    return run(cmd_key, 6 + n, argv);
}

#define KEY(action, ...)                                                                           \
    run_key(action, (const char *const[]){__VA_ARGS__},                                            \
            (int)COUNT_OF(((const char *const[]){__VA_ARGS__})))

static bool is_one_key(const char *text, char id[32])
{
    const char *public_id, *secret;
    size_t id_len, secret_len, len = strcspn(text, "\n");

    if (strlen(text) != len + 1 || !key_parse(text, len, &public_id, &id_len, &secret, &secret_len))
        return false;
    snprintf(id, 32, "%.*s", (int)id_len, public_id);
    return true;
}

static void test_migrate_says_what_it_applied(void **state)
{
    const char *argv[] = {"migrate", "--conninfo", server.conninfo};

    (void)state;
    assert_int_equal(run(cmd_migrate, 3, argv), 0);
    assert_non_null(strstr(output, "applied migrations/0001_init.sql\n"));
    assert_int_equal(run(cmd_migrate, 3, argv), 0);
    assert_string_equal(output, "the database is up to date\n");
}

static void test_create_prints_the_key_alone_and_list_never_does(void **state)
{
    char key[sizeof output], id[32];

    (void)state;
    assert_int_equal(KEY("create", "--tenant", "acme", "--rpm", "10", "--scopes", "usage"), 0);
    assert_true(is_one_key(output, id));
    snprintf(key, sizeof key, "%s", output);
    assert_int_equal(KEY("list", "--tenant", "acme"), 0);
    assert_non_null(strstr(output, id));
    assert_null(strstr(output, key + strlen("sk-sluice-") + strlen(id) + 1));
}

static json_t *parse_output(void)
{
    json_error_t error;
    json_t *j = json_loads(output, 0, &error);

    assert_non_null(j);
    return j;
}

static void test_json_is_for_programs(void **state)
{
    json_t *j, *first;

    (void)state;
    assert_int_equal(KEY("create", "--tenant", "json", "--expires", "30d", "--json"), 0);
    j = parse_output();
    assert_string_equal(json_string_value(json_object_get(j, "tenant")), "json");
    json_decref(j);
    assert_int_equal(KEY("list", "--tenant", "json", "--json"), 0);
    j = parse_output();
    assert_int_equal(json_array_size(json_object_get(j, "keys")), 1);
    first = json_array_get(json_object_get(j, "keys"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "state")), "active");
    assert_true(json_is_string(json_object_get(first, "expires_at")));
    assert_string_equal(json_string_value(json_object_get(first, "priority")), "normal");
    assert_null(json_object_get(first, "key"));
    json_decref(j);
}

static void test_states_change(void **state)
{
    char id[32];

    (void)state;
    assert_int_equal(KEY("create", "--tenant", "states"), 0);
    assert_true(is_one_key(output, id));
    assert_int_equal(KEY("disable", id), 0);
    KEY("list", "--tenant", "states");
    assert_non_null(strstr(output, "disabled"));
    assert_int_equal(KEY("enable", id), 0);
    assert_int_equal(KEY("expire", id), 0);
    KEY("list", "--tenant", "states");
    assert_non_null(strstr(output, "expired"));
    assert_int_equal(KEY("disable", "0000000000000000"), 1);
}

static void test_wrong_use_is_refused(void **state)
{
    (void)state;
    assert_int_equal(KEY("create", "--rpm", "1"), 2);
    assert_int_equal(KEY("create", "--tenant", "acme", "--rpm", "many"), 2);
    assert_int_equal(KEY("create", "--tenant", "acme", "--scopes", "root"), 2);
    assert_int_equal(KEY("create", "--tenant", "acme", "--priority", "urgent"), 2);
    assert_int_equal(KEY("create", "--tenant", "acme", "--expires", "2001-01-01T00:00:00Z"), 2);
    assert_int_equal(KEY("create", "--tenant", "no spaces please"), 1);
    assert_int_equal(KEY("create", "--tenant", "acme", "--tpm", "100000001"), 1);
    assert_int_equal(KEY("explode", "--tenant", "acme"), 2);
    assert_string_equal(output, "");
}

static void test_expiries(void **state)
{
    static const struct {
        const char *text;
        int64_t expected;
    } good[] = {{"30d", 1000 + 30 * 86400},
                {"90s", 1090},
                {"2026-01-31T12:00:00Z", 1769860800},
                {"2026-01-31T14:00:00+02:00", 1769860800},
                {"2026-01-31T06:30:00-05:30", 1769860800}};
    static const char *const bad[] = {"",
                                      "d",
                                      "-1d",
                                      "30",
                                      "30w",
                                      "1d1h",
                                      "2026-01-31",
                                      "2026-01-31T12:00:00",
                                      "2026-01-31T12:00:00+2",
                                      "2026-01-31T12:00:00Zx",
                                      "2026-02-31T12:00:00Z",
                                      "36501d",
                                      "99999999d"};
    int64_t s;

    (void)state;
    for (size_t i = 0; i < COUNT_OF(good); i++) {
        assert_true(parse_expiry(good[i].text, 1000, &s));
        assert_int_equal(s, good[i].expected);
    }
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        assert_false(parse_expiry(bad[i], 1000, &s));
}

static void write_pepper(void)
{
    int fd;

    snprintf(pepper_file, sizeof pepper_file, "%s/pepper", server.dir);
    fd = open(pepper_file, O_WRONLY | O_CREAT, 0600);
    assert_true(fd != -1);
    for (int i = 0; i < 64; i++)
        assert_int_equal(write(fd, "a", 1), 1);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_migrate_says_what_it_applied),
        cmocka_unit_test(test_create_prints_the_key_alone_and_list_never_does),
        cmocka_unit_test(test_json_is_for_programs),
        cmocka_unit_test(test_states_change),
        cmocka_unit_test(test_wrong_use_is_refused),
        cmocka_unit_test(test_expiries),
    };
    int failed;

    if (!pg_server_start(&server))
        return 0;
    write_pepper();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    pg_server_stop(&server);
    return failed;
}
