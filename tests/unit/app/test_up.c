/* The launcher's parts that need no server: certificate, files, options, configuration text,
 * commands to paste, processes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app/config.h"
#include "app/up/checks.h"
#include "app/supervise/children.h"
#include "app/up/commands.h"
#include "app/up/config_write.h"
#include "app/supervise/files.h"
#include "app/up/options.h"
#include "app/supervise/process.h"
#include "app/up/tls.h"
#include "base/size.h"
#include "tests/lib/test_folder.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static X509 *read_cert(const char *path)
{
    FILE *f = fopen(path, "r");
    X509 *cert;

    assert_non_null(f);
    cert = PEM_read_X509(f, NULL, NULL, NULL);
    fclose(f);
    assert_non_null(cert);
    return cert;
}

static mode_t mode_of(const char *path)
{
    struct stat s;

    assert_int_equal(stat(path, &s), 0);
    return s.st_mode & 07777;
}

/* ---- certificate ---- */

static void certificate_is_for_this_machine_and_verifies_itself(void **state)
{
    const char *cert_path = in_test_folder("a.crt"), *key_path = in_test_folder("a.key");
    X509 *cert;

    (void)state;
    assert_int_equal(tls_make(cert_path, key_path, NULL), ST_OK);
    assert_int_equal(mode_of(key_path), 0600);
    cert = read_cert(cert_path);
    assert_int_equal(X509_check_host(cert, "localhost", 0, 0, NULL), 1);
    assert_int_equal(X509_check_ip_asc(cert, "127.0.0.1", 0), 1);
    assert_int_equal(X509_check_ip_asc(cert, "::1", 0), 1);
    assert_int_equal(X509_verify(cert, X509_get0_pubkey(cert)), 1);
    X509_free(cert);
}

static void certificate_is_kept_while_its_key_fits(void **state)
{
    const char *cert_path = in_test_folder("b.crt"), *key_path = in_test_folder("b.key");
    X509 *first, *second;

    (void)state;
    assert_int_equal(tls_make(cert_path, key_path, NULL), ST_OK);
    first = read_cert(cert_path);
    assert_int_equal(tls_make(cert_path, key_path, NULL), ST_OK);
    second = read_cert(cert_path);
    assert_int_equal(X509_cmp(first, second), 0);
    X509_free(second);
    assert_int_equal(unlink(key_path), 0);
    assert_int_equal(tls_make(cert_path, key_path, NULL), ST_OK);
    second = read_cert(cert_path);
    assert_int_not_equal(X509_cmp(first, second), 0);
    X509_free(first);
    X509_free(second);
}

/* ---- files ---- */

static void written_file_replaces_the_old_one_with_its_mode(void **state)
{
    const char *path = in_test_folder("secret");
    char text[16];

    (void)state;
    assert_int_equal(file_write(path, "old", 3, 0644, NULL), ST_OK);
    assert_int_equal(file_write(path, "new \n", 5, 0600, NULL), ST_OK);
    assert_int_equal(mode_of(path), 0600);
    assert_int_equal(file_read(path, text, sizeof text), ST_OK);
    assert_string_equal(text, "new");
}

static void only_a_log_that_has_grown_is_put_aside(void **state)
{
    const char *log = in_test_folder("grown.log");
    char text[16];

    (void)state;
    assert_int_equal(file_write(log, "12345", 5, 0600, NULL), ST_OK);
    file_put_aside(log, 5);
    assert_true(file_exists(log));
    assert_int_equal(file_write(in_test_folder("grown.log.1"), "older", 5, 0600, NULL), ST_OK);
    file_put_aside(log, 4);
    assert_false(file_exists(in_test_folder("grown.log")));
    assert_int_equal(file_read(in_test_folder("grown.log.1"), text, sizeof text), ST_OK);
    assert_string_equal(text, "12345");
}

static void removal_of_a_folder_follows_no_link(void **state)
{
    struct reason why;

    (void)state;
    assert_int_equal(folder_make(in_test_folder("tree/deep"), 0700, &why), ST_OK);
    assert_int_equal(file_write(in_test_folder("kept"), "x", 1, 0600, &why), ST_OK);
    assert_int_equal(symlink(test_folder, in_test_folder("tree/deep/link")), 0);
    assert_int_equal(folder_remove(in_test_folder("tree"), &why), ST_OK);
    assert_false(file_exists(in_test_folder("tree")));
    assert_true(file_exists(in_test_folder("kept")));
}

static void second_launcher_on_a_folder_is_refused(void **state)
{
    struct reason why = {0};
    int status = 0;
    pid_t pid;

    (void)state;
    assert_int_equal(check_alone(test_folder, &why), ST_OK);
    pid = fork();
    if (pid == 0)
        _exit(check_alone(test_folder, &why) == ST_CONFLICT && strstr(why.text, test_folder) != NULL
                  ? 0
                  : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* ---- options ---- */

static enum status parse(struct up_options *o, struct reason *why, int argc, const char **argv)
{
    return options_parse(o, argc, (char **)argv, why);
}

static void options_have_defaults_and_the_last_value_counts(void **state)
{
    const char *argv[] = {"up", "--dir", "a", "--port", "1", "--dir", "b", "--tls-port", "0"};
    struct up_options o;
    struct reason why;

    (void)state;
    assert_int_equal(parse(&o, &why, COUNT_OF(argv), argv), ST_OK);
    assert_string_equal(o.dir, "b");
    assert_int_equal(o.n_models, 0);
    assert_int_equal(o.port, 1);
    assert_int_equal(o.tls_port, 0);
    assert_int_equal(options_complete(&o, NULL, &why), ST_OK);
    assert_int_equal(o.port, 1);
    assert_int_equal(o.admin_port, 9090);
}

static void a_port_that_is_not_given_is_the_last_start_s(void **state)
{
    const struct config last = {.port = 11, .tls_port = 12, .admin_port = 0};
    const char *argv[] = {"up", "--dir", "a", "--port", "1"};
    struct up_options o;
    struct reason why;

    (void)state;
    assert_int_equal(parse(&o, &why, COUNT_OF(argv), argv), ST_OK);
    assert_int_equal(options_complete(&o, &last, &why), ST_OK);
    assert_int_equal(o.port, 1);
    assert_int_equal(o.tls_port, 12);
    assert_int_equal(o.admin_port, 0);
}

static void wrong_options_are_named(void **state)
{
    const char *unknown[] = {"up", "--dir", "a", "--prot", "1"};
    const char *port[] = {"up", "--dir", "a", "--port", "80x"};
    const char *value[] = {"up", "--dir"};
    const char *same[] = {"up", "--dir", "a", "--port", "9090"};
    struct up_options o;
    struct reason why;

    (void)state;
    assert_int_equal(parse(&o, &why, COUNT_OF(unknown), unknown), ST_INVALID);
    assert_non_null(strstr(why.text, "--prot"));
    assert_int_equal(parse(&o, &why, COUNT_OF(port), port), ST_INVALID);
    assert_non_null(strstr(why.text, "80x"));
    assert_int_equal(parse(&o, &why, COUNT_OF(value), value), ST_INVALID);
    assert_int_equal(parse(&o, &why, COUNT_OF(same), same), ST_OK);
    assert_int_equal(options_complete(&o, NULL, &why), ST_INVALID);
    assert_int_equal(parse(&o, &why, 1, unknown), ST_INVALID);
}

/* ---- texts ---- */

static void model_id_is_the_file_name_without_its_quantization(void **state)
{
    static const char *const expected[][2] = {
        {"/m/SmolLM2-135M-Instruct.Q4_1.gguf", "smollm2-135m-instruct"},
        {"llama-3.2-1b.gguf", "llama-3.2-1b"},
        {"x.BF16.gguf", "x"},
        {"my model.gguf", "my-model"},
        {".gguf", ".gguf"},
    };
    char id[96];

    (void)state;
    for (size_t i = 0; i < COUNT_OF(expected); i++) {
        config_model_id(expected[i][0], id, sizeof id);
        assert_string_equal(id, expected[i][1]);
    }
}

static void written_configuration_is_read_back_whatever_the_paths(void **state)
{
    struct layout l = {.engine_socket = "/s \"x\" \\/#/engine.sock",
                       .redis_socket = "/s: y/redis.sock"};
    struct config_values v = {.layout = &l,
                              .model_path = "/m/\xC3\xA9 'q'\t.gguf",
                              .model_id = "m",
                              .conninfo = "host='/a b' user=sluice dbname=sluice",
                              .port = 1,
                              .tls_port = 2,
                              .admin_port = 3};
    struct config *c = NULL;
    struct reason why = {0};
    struct buf text;

    (void)state;
    buf_init(&text);
    config_put(&text, &v);
    assert_int_equal(config_parse(buf_cstr(&text), text.len, "c", "/d", &c, &why), ST_OK);
    assert_string_equal(c->models[0].socket, l.engine_socket);
    assert_string_equal(c->redis_socket, l.redis_socket);
    assert_string_equal(c->models[0].path, v.model_path);
    assert_string_equal(c->postgres_conninfo, v.conninfo);
    assert_string_equal(c->tls_key, "/d/tls.key");
    assert_int_equal(c->tls_port, 2);
    config_free(c);
    buf_dispose(&text);
}

static void commands_quote_the_folder_for_the_shell(void **state)
{
    struct buf text;

    (void)state;
    buf_init(&text);
    commands_put_quoted(&text, "/plain/path");
    assert_string_equal(buf_cstr(&text), "/plain/path");
    buf_clear(&text);
    commands_put_quoted(&text, "/it's $(here)");
    assert_string_equal(buf_cstr(&text), "'/it'\\''s $(here)'");
    buf_dispose(&text);
}

/* ---- processes ---- */

static struct process_spec shell(const char *const *argv)
{
    struct process_spec s = {.name = "shell", .argv = argv, .cwd = "/", .death_signal = SIGKILL};

    snprintf(s.log, sizeof s.log, "%s", in_test_folder("shell.log"));
    return s;
}

static void failed_process_says_its_last_line(void **state)
{
    const char *const argv[] = {"sh", "-c", "echo first; echo why it failed; exit 3", NULL};
    struct process_spec s = shell(argv);
    struct reason why;

    (void)state;
    assert_int_equal(process_run(&s, &why), ST_IO);
    assert_string_equal(why.text, "shell failed: why it failed");
}

static void missing_program_is_said_at_once(void **state)
{
    const char *const argv[] = {"/nonexistent/program", NULL};
    struct process_spec s = shell(argv);
    struct reason why;
    pid_t pid = 0;

    (void)state;
    assert_int_equal(process_start(&s, &pid, &why), ST_NOT_FOUND);
    assert_int_equal(pid, 0);
    assert_non_null(strstr(why.text, "/nonexistent/program"));
}

static void dead_child_is_described_and_due_again(void **state)
{
    const char *const argv[] = {"sh", "-c", "kill -9 $$", NULL};
    struct child c = {.spec = shell(argv), .stop_signal = SIGTERM};
    int status = 0;

    (void)state;
    snprintf(c.pid_file, sizeof c.pid_file, "%s", in_test_folder("child.pid"));
    assert_int_equal(child_start(&c, 1000, NULL), ST_OK);
    assert_int_equal(waitpid(c.pid, &status, 0), c.pid);
    assert_int_equal(child_on_exit(&c, status, 1500), 100);
    assert_int_equal(c.due_ms, 1600);
    assert_string_equal(c.last, "signal 9 (Killed)");
    child_ask_to_stop(&c);
    assert_int_equal(child_on_exit(&c, status, 1700), -1);
}

/* Its child's life, played: starts, and ends at now_ms with a code. */
static int64_t live_and_end(struct child *c, int64_t start_ms, int64_t end_ms)
{
    int status = 0;

    assert_int_equal(child_start(c, start_ms, NULL), ST_OK);
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    return child_on_exit(c, status, end_ms);
}

static void watched_child_is_given_up_in_a_crash_loop(void **state)
{
    const char *const argv[] = {"sh", "-c", "echo broken; exit 7", NULL};
    struct child c = {.spec = shell(argv), .stop_signal = SIGTERM, .is_watched = true};
    int64_t now_ms = 0;

    (void)state;
    for (unsigned i = 1; i < CHILD_DEATHS_MAX; i++) {
        /* It lives for a minute each time, and never gets ready: that is no health. */
        assert_true(live_and_end(&c, now_ms, now_ms + 60000) > 0);
        assert_false(c.given_up);
        now_ms = child_due_ms(&c);
    }
    (void)live_and_end(&c, now_ms, now_ms + 60000);
    assert_true(c.given_up);
    assert_int_equal(c.n_deaths, CHILD_DEATHS_MAX);
    assert_true(child_due_ms(&c) == INT64_MAX);
    assert_string_equal(c.cause, "exit 7");
    assert_string_equal(last_lines_newest(&c.lines), "broken");
    child_try_again(&c, now_ms);
    assert_int_equal(child_due_ms(&c), now_ms);
    assert_int_equal(live_and_end(&c, now_ms, now_ms + 5), 100);
    assert_false(c.given_up);
}

static void ready_time_is_health(void **state)
{
    const char *const argv[] = {"false", NULL};
    struct child c = {.spec = shell(argv), .is_watched = true};
    int status = 0;

    (void)state;
    for (int i = 0; i < 2 * CHILD_DEATHS_MAX; i++) {
        assert_int_equal(child_start(&c, 1000, NULL), ST_OK);
        c.ready_ms = 2000;
        assert_int_equal(waitpid(c.pid, &status, 0), c.pid);
        assert_int_equal(child_on_exit(&c, status, 2000 + BACKOFF_HEALTHY_MS), 100);
    }
    assert_false(c.given_up);
}

static void child_that_left_by_itself_waits_for_its_companion(void **state)
{
    const char *const argv[] = {"true", NULL};
    struct child gateway = {0};
    struct child c = {.spec = shell(argv), .is_watched = true, .with = &gateway};

    (void)state;
    assert_int_equal(live_and_end(&c, 0, 1000), 100);
    assert_true(c.rests);
    assert_true(child_due_ms(&c) == INT64_MAX);
    gateway.pid = 4711;
    assert_int_equal(child_due_ms(&c), 1100);
}

static void watchdog_is_the_cause_of_its_kill(void **state)
{
    const char *const argv[] = {"sleep", "60", NULL};
    struct child c = {.spec = shell(argv), .is_watched = true};
    int status = 0;

    (void)state;
    assert_int_equal(child_start(&c, 0, NULL), ST_OK);
    child_end(&c, "said nothing for 30 s");
    assert_int_equal(waitpid(c.pid, &status, 0), c.pid);
    assert_int_equal(child_on_exit(&c, status, 10), 100);
    assert_string_equal(c.last, "killed: it said nothing for 30 s");
}

static void without_a_log_file_the_last_line_is_kept(void **state)
{
    const char *const argv[] = {"sh", "-c", "printf 'first\\n\\nlast words' >&2; exit 1", NULL};
    struct child c = {.spec = {.name = "shell", .argv = argv, .cwd = "/"}};

    (void)state;
    assert_int_equal(live_and_end(&c, 0, 10), 100);
    assert_string_equal(c.last, "exit 1: last words");
}

static void process_of_an_earlier_launcher_is_ended(void **state)
{
    const char *const argv[] = {"sleep", "60", NULL};
    struct child c = {.spec = shell(argv), .stop_signal = SIGTERM};
    int status = 0;
    pid_t waiter;

    (void)state;
    snprintf(c.pid_file, sizeof c.pid_file, "%s", in_test_folder("orphan.pid"));
    assert_int_equal(child_start(&c, 0, NULL), ST_OK);
    /* As a zombie it counts as gone: it is ours here, nobody else reaps it. */
    waiter = c.pid;
    assert_int_equal(child_end_orphan(&c, NULL), ST_OK);
    assert_int_equal(waitpid(waiter, &status, 0), waiter);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    assert_false(file_exists(c.pid_file));
}

static void pid_that_became_another_process_is_left_alone(void **state)
{
    struct child c = {.stop_signal = SIGKILL};
    char text[64];

    (void)state;
    snprintf(c.pid_file, sizeof c.pid_file, "%s", in_test_folder("reused.pid"));
    snprintf(text, sizeof text, "%d 1\n", (int)getpid());
    assert_int_equal(file_write(c.pid_file, text, strlen(text), 0644, NULL), ST_OK);
    assert_int_equal(child_end_orphan(&c, NULL), ST_OK);
    assert_false(file_exists(c.pid_file));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(certificate_is_for_this_machine_and_verifies_itself),
        cmocka_unit_test(certificate_is_kept_while_its_key_fits),
        cmocka_unit_test(written_file_replaces_the_old_one_with_its_mode),
        cmocka_unit_test(only_a_log_that_has_grown_is_put_aside),
        cmocka_unit_test(removal_of_a_folder_follows_no_link),
        cmocka_unit_test(second_launcher_on_a_folder_is_refused),
        cmocka_unit_test(options_have_defaults_and_the_last_value_counts),
        cmocka_unit_test(a_port_that_is_not_given_is_the_last_start_s),
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(model_id_is_the_file_name_without_its_quantization),
        cmocka_unit_test(written_configuration_is_read_back_whatever_the_paths),
        cmocka_unit_test(commands_quote_the_folder_for_the_shell),
        cmocka_unit_test(failed_process_says_its_last_line),
        cmocka_unit_test(missing_program_is_said_at_once),
        cmocka_unit_test(dead_child_is_described_and_due_again),
        cmocka_unit_test(watched_child_is_given_up_in_a_crash_loop),
        cmocka_unit_test(ready_time_is_health),
        cmocka_unit_test(child_that_left_by_itself_waits_for_its_companion),
        cmocka_unit_test(watchdog_is_the_cause_of_its_kill),
        cmocka_unit_test(without_a_log_file_the_last_line_is_kept),
        cmocka_unit_test(process_of_an_earlier_launcher_is_ended),
        cmocka_unit_test(pid_that_became_another_process_is_left_alone),
    };

    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
