/* What `sluice model` says to a supervisor, also in a hostile hand; the clock is the test's. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "app/supervise/control.h"
#include "base/size.h"
#include "tests/lib/test_folder.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static char engine_socket[64];

/* ---- requests ---- */

static enum status parse(const char *line, struct control_request *r)
{
    struct reason why;

    return control_parse(line, strlen(line), r, &why);
}

static void the_forms_are_read(void **state)
{
    struct control_request r;

    (void)state;
    assert_int_equal(parse("{\"op\":\"list\"}", &r), ST_OK);
    assert_int_equal(r.op, CONTROL_LIST);
    assert_string_equal(r.model, "");
    assert_int_equal(parse(" {\"model\":\"test/a\", \"op\":\"load\"}\r", &r), ST_OK);
    assert_int_equal(r.op, CONTROL_LOAD);
    assert_string_equal(r.model, "test/a");
    assert_int_equal(parse("{\"op\":\"unload\",\"model\":\"\\u00e9\"}", &r), ST_OK);
    assert_int_equal(r.op, CONTROL_UNLOAD);
    assert_string_equal(r.model, "\xc3\xa9");
    assert_int_equal(parse("{\"op\":\"swap\",\"model\":\"a\"}", &r), ST_OK);
    assert_int_equal(r.op, CONTROL_SWAP);
    assert_string_equal(r.model, "a");
}

static void everything_else_is_refused_and_changes_nothing(void **state)
{
    static const char *const lines[] = {
        "",
        "list",
        "[]",
        "{}",
        "{\"op\":\"list\"",
        "{\"op\":\"list\"}{}",
        "{\"op\":\"list\",\"model\":\"a\"}",
        "{\"op\":\"List\"}",
        "{\"op\":\"lis\"}",
        "{\"op\":null}",
        "{\"op\":[\"list\"]}",
        "{\"op\":\"list\",\"op\":\"list\"}",
        "{\"op\":\"load\"}",
        "{\"op\":\"swap\"}",
        "{\"op\":\"load\",\"model\":\"\"}",
        "{\"op\":\"load\",\"model\":7}",
        "{\"op\":\"load\",\"model\":{\"id\":\"a\"}}",
        "{\"op\":\"load\",\"model\":\"a\",\"force\":true}",
        "{\"op\":\"load\",\"name\":\"a\"}",
        "{\"op\":\"unload\",\"model\":\"a\\nb\"}",
        "{\"op\":\"unload\",\"model\":\"a\\u0000b\"}",
        "{\"op\":\"unload\",\"model\":\"\\u001b[2J\"}",
        "{\"op\":\"unload\",\"model\":\"\x7f\"}",
        "{\"op\":\"unload\",\"model\":\"\xff\"}",
    };
    struct control_request r = {.op = CONTROL_LOAD, .model = "before"};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(lines); i++)
        assert_int_equal(parse(lines[i], &r), ST_INVALID);
    assert_int_equal(r.op, CONTROL_LOAD);
    assert_string_equal(r.model, "before");
}

static void an_id_has_95_bytes_at_most(void **state)
{
    struct control_request r;
    char line[256], id[97];

    (void)state;
    memset(id, 'x', sizeof id);
    id[95] = '\0';
    snprintf(line, sizeof line, "{\"op\":\"load\",\"model\":\"%s\"}", id);
    assert_int_equal(parse(line, &r), ST_OK);
    assert_string_equal(r.model, id);
    id[95] = 'x';
    id[96] = '\0';
    snprintf(line, sizeof line, "{\"op\":\"load\",\"model\":\"%s\"}", id);
    assert_int_equal(parse(line, &r), ST_INVALID);
}

static void a_long_line_is_refused_by_its_length(void **state)
{
    static char line[CONTROL_LINE_BYTES + 1];
    struct control_request r;

    (void)state;
    memset(line, ' ', sizeof line);
    memcpy(line, "{\"op\":\"list\"}", 13);
    line[CONTROL_LINE_BYTES - 1] = '\0';
    assert_int_equal(parse(line, &r), ST_OK);
    line[CONTROL_LINE_BYTES - 1] = ' ';
    line[CONTROL_LINE_BYTES] = '\0';
    assert_int_equal(parse(line, &r), ST_INVALID);
}

/* ---- the socket ---- */

static void answer(void *arg, const struct control_request *r, int64_t now_ms, struct buf *out)
{
    unsigned *n = arg;

    (*n)++;
    buf_printf(out, "{\"op\":%d,\"now\":%d}\n", (int)r->op, (int)now_ms);
}

static int call(const struct control *c)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    strcpy(a.sun_path, c->path);
    assert_int_equal(connect(fd, (const struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* What came before it hung up. */
static const char *heard(int fd)
{
    static char in[1024];
    ssize_t n, len = 0;

    while ((n = recv(fd, in + len, sizeof in - 1 - (size_t)len, 0)) > 0)
        len += n;
    in[len] = '\0';
    close(fd);
    return in;
}

static void only_its_user_may_ask_and_nothing_is_left(void **state)
{
    struct control c;
    unsigned n = 0;
    struct stat s;

    (void)state;
    assert_int_equal(control_open(&c, engine_socket, answer, &n, NULL), ST_OK);
    assert_int_equal(stat(c.path, &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);
    control_close(&c);
    control_close(&c);
    assert_int_equal(stat(c.path, &s), -1);
}

static void a_line_is_answered_however_it_arrives(void **state)
{
    struct control c;
    unsigned n = 0;
    int fd;

    (void)state;
    assert_int_equal(control_open(&c, engine_socket, answer, &n, NULL), ST_OK);
    fd = call(&c);
    control_turn(&c, 0);
    say(fd, "{\"op\":\"lo");
    control_turn(&c, 1);
    say(fd, "ad\",\"model\":\"a\"}");
    control_turn(&c, 2);
    assert_int_equal(n, 0);
    say(fd, "\n{\"op\":\"list\"}\n");
    control_turn(&c, 3);
    assert_int_equal(n, 1);
    assert_string_equal(heard(fd), "{\"op\":1,\"now\":3}\n");
    assert_true(control_due_ms(&c) == INT64_MAX);
    control_close(&c);
}

static void nonsense_is_answered_with_a_reason(void **state)
{
    struct control c;
    unsigned n = 0;
    int fd;

    (void)state;
    assert_int_equal(control_open(&c, engine_socket, answer, &n, NULL), ST_OK);
    fd = call(&c);
    say(fd, "GET / HTTP/1.1\r\n");
    control_turn(&c, 0);
    assert_int_equal(n, 0);
    assert_string_equal(heard(fd),
                        "{\"ok\":false,\"error\":\"not a request that this supervisor knows\"}\n");
    control_close(&c);
}

static void a_line_without_an_end_is_cut_off(void **state)
{
    char line[CONTROL_LINE_BYTES + 1];
    struct control c;
    unsigned n = 0;
    int fd;

    (void)state;
    assert_int_equal(control_open(&c, engine_socket, answer, &n, NULL), ST_OK);
    memset(line, '[', CONTROL_LINE_BYTES);
    line[CONTROL_LINE_BYTES] = '\0';
    fd = call(&c);
    say(fd, line);
    control_turn(&c, 0);
    assert_int_equal(n, 0);
    assert_non_null(strstr(heard(fd), "at most 511 bytes"));
    control_close(&c);
}

static void who_says_nothing_is_let_go(void **state)
{
    struct control c;
    unsigned n = 0;
    int slow, gone;

    (void)state;
    assert_int_equal(control_open(&c, engine_socket, answer, &n, NULL), ST_OK);
    slow = call(&c);
    gone = call(&c);
    say(slow, "{");
    close(gone);
    control_turn(&c, 0);
    assert_int_equal(c.n_callers, 1);
    assert_int_equal(control_due_ms(&c), 2000);
    control_turn(&c, 1999);
    assert_int_equal(c.n_callers, 1);
    control_turn(&c, 2000);
    assert_int_equal(c.n_callers, 0);
    assert_string_equal(heard(slow), "");
    control_close(&c);
}

static void more_callers_than_places_wait_for_theirs(void **state)
{
    struct pollfd fds[CONTROL_FDS];
    int calls[CONTROL_CALLERS_MAX + 1];
    struct control c;
    unsigned n = 0;

    (void)state;
    assert_int_equal(control_open(&c, engine_socket, answer, &n, NULL), ST_OK);
    for (int i = 0; i <= CONTROL_CALLERS_MAX; i++)
        calls[i] = call(&c);
    say(calls[CONTROL_CALLERS_MAX], "{\"op\":\"list\"}\n");
    control_turn(&c, 0);
    assert_int_equal(n, 0);
    assert_int_equal(control_pollfds(&c, fds), CONTROL_FDS);
    assert_int_equal(fds[CONTROL_CALLERS_MAX].fd, -1);
    control_turn(&c, 2000);
    control_turn(&c, 2000);
    assert_int_equal(n, 1);
    for (int i = 0; i <= CONTROL_CALLERS_MAX; i++)
        close(calls[i]);
    control_close(&c);
}

static void a_path_too_long_is_refused_and_closing_is_fine(void **state)
{
    struct control c;
    char path[108];
    unsigned n = 0;

    (void)state;
    memset(path, 'x', sizeof path);
    path[0] = '/';
    path[100] = '\0';
    assert_int_equal(control_open(&c, path, answer, &n, NULL), ST_TOO_LARGE);
    control_turn(&c, 0);
    control_close(&c);
    memset(&c, 0, sizeof c);
    control_close(&c);
}

static int make_folder(void **state)
{
    if (test_folder_make(state) != 0)
        return -1;
    snprintf(engine_socket, sizeof engine_socket, "%s", in_test_folder("engine.sock"));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_forms_are_read),
        cmocka_unit_test(everything_else_is_refused_and_changes_nothing),
        cmocka_unit_test(an_id_has_95_bytes_at_most),
        cmocka_unit_test(a_long_line_is_refused_by_its_length),
        cmocka_unit_test(only_its_user_may_ask_and_nothing_is_left),
        cmocka_unit_test(a_line_is_answered_however_it_arrives),
        cmocka_unit_test(nonsense_is_answered_with_a_reason),
        cmocka_unit_test(a_line_without_an_end_is_cut_off),
        cmocka_unit_test(who_says_nothing_is_let_go),
        cmocka_unit_test(more_callers_than_places_wait_for_theirs),
        cmocka_unit_test(a_path_too_long_is_refused_and_closing_is_fine),
    };

    return cmocka_run_group_tests(tests, make_folder, test_folder_remove_empty);
}
