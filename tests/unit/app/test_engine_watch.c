/* The watch on an engine, and what answers in its place: the other side is played by hand, and the
 * clock is the test's. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "app/supervise/engine_guard.h"
#include "app/supervise/engine_watch.h"
#include "app/supervise/stand_in.h"
#include "base/log.h"
#include "tests/lib/test_folder.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define STALL_MS 30000

static char path[64];

/* An engine by hand: its socket, and the connection that the watch made. */
struct hand {
    struct engine_watch watch;
    int listen_fd, fd;
    int64_t now_ms;
    struct reason why;
};

static int listen_by_hand(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    strcpy(a.sun_path, path);
    assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 4), 0);
    return fd;
}

static void stop_listening(struct hand *h)
{
    if (h->listen_fd == -1)
        return;
    unlink(path);
    close(h->listen_fd);
    h->listen_fd = -1;
}

static void open_hand(struct hand *h)
{
    memset(h, 0, sizeof *h);
    h->fd = -1;
    h->now_ms = 1000000;
    h->listen_fd = listen_by_hand();
    engine_watch_init(&h->watch, path, STALL_MS);
    engine_watch_start(&h->watch, h->now_ms);
}

static void close_hand(struct hand *h)
{
    engine_watch_dispose(&h->watch);
    if (h->fd != -1)
        close(h->fd);
    stop_listening(h);
}

static bool turn(struct hand *h)
{
    return engine_watch_turn(&h->watch, h->now_ms, &h->why);
}

/* Turns once a second, as the supervisor does. */
static bool pass(struct hand *h, int64_t ms)
{
    for (; ms > 0; ms -= 1000) {
        h->now_ms += 1000;
        if (turn(h))
            return true;
    }
    return false;
}

static void say(struct hand *h, struct buf *b)
{
    assert_int_equal(send(h->fd, b->data, b->len, MSG_NOSIGNAL), b->len);
    buf_dispose(b);
}

static uint16_t next_type(struct hand *h)
{
    char in[512];
    struct wire_frame f;
    size_t used;
    ssize_t n = recv(h->fd, in, sizeof in, 0);

    assert_true(n > 0);
    assert_int_equal(wire_scan(in, (size_t)n, &f, &used), WIRE_SCAN_FRAME);
    assert_int_equal(used, n);
    return f.type;
}

static void say_welcome(struct hand *h)
{
    struct buf b;

    buf_init(&b);
    wire_put_welcome(&b, &(struct wire_welcome){.version = WIRE_VERSION_ADOPT,
                                                .build = "hand",
                                                .revision = "ab",
                                                .device = "hand",
                                                .max_sequences = 1,
                                                .max_rows = 1,
                                                .max_context = 16,
                                                .n_pages = 1,
                                                .n_vocab = 1,
                                                .credit_bytes = 1,
                                                .pid = 7});
    say(h, &b);
}

static void say_stats(struct hand *h, uint32_t waiting, int64_t age_ms)
{
    struct buf b;

    buf_init(&b);
    wire_put_stats(&b, &(struct wire_stats){.waiting = waiting, .last_step_age_ms = age_ms});
    say(h, &b);
}

static void greet(struct hand *h)
{
    assert_false(turn(h));
    h->fd = accept(h->listen_fd, NULL, NULL);
    assert_int_not_equal(h->fd, -1);
    assert_int_equal(next_type(h), WIRE_HELLO);
    say_welcome(h);
    assert_false(turn(h));
    assert_int_equal(next_type(h), WIRE_MONITOR);
}

static void it_greets_and_monitors(void **state)
{
    struct hand h;

    (void)state;
    open_hand(&h);
    greet(&h);
    assert_true(h.watch.greeted);
    assert_int_equal(h.watch.welcome.pid, 7);
    say_stats(&h, 3, -1);
    assert_false(turn(&h));
    assert_true(h.watch.has_stats);
    assert_int_equal(h.watch.stats.waiting, 3);
    close_hand(&h);
}

static void silence_is_stuck(void **state)
{
    struct hand h;

    (void)state;
    open_hand(&h);
    greet(&h);
    assert_false(pass(&h, STALL_MS - 1000));
    say_stats(&h, 0, -1);
    assert_false(pass(&h, STALL_MS));
    assert_true(pass(&h, 1000));
    assert_string_equal(h.why.text, "said nothing for 30 s");
    close_hand(&h);
}

static void work_without_a_step_is_stuck(void **state)
{
    struct hand h;

    (void)state;
    open_hand(&h);
    greet(&h);
    say_stats(&h, 3, STALL_MS - 1);
    assert_false(turn(&h));
    say_stats(&h, 3, STALL_MS);
    assert_true(turn(&h));
    assert_string_equal(h.why.text, "made no step for 30 s while 3 requests waited");
    close_hand(&h);
}

static void a_loading_engine_has_time_but_not_for_ever(void **state)
{
    struct hand h;

    (void)state;
    open_hand(&h);
    stop_listening(&h);
    assert_false(pass(&h, ENGINE_LOAD_MAX_MS - 1000));
    assert_true(pass(&h, 1000));
    assert_string_equal(h.why.text, "was still not ready after 1800 s");
    close_hand(&h);
}

/* One that takes connections and never greets loads still: it is greeted anew. */
static void a_greeting_without_answer_is_made_anew(void **state)
{
    struct hand h;
    char in[512];

    (void)state;
    open_hand(&h);
    assert_false(turn(&h));
    h.fd = accept(h.listen_fd, NULL, NULL);
    assert_int_equal(next_type(&h), WIRE_HELLO);
    assert_false(pass(&h, ENGINE_GREETING_MS));
    assert_int_equal(recv(h.fd, in, sizeof in, MSG_DONTWAIT), 0);
    close(h.fd);
    h.now_ms += 1000;
    greet(&h);
    close_hand(&h);
}

/* The supervisor was stopped for an hour: what the engine said before is in the socket, and what it
 * could not say is not held against it. */
static void a_watch_that_slept_blames_nobody(void **state)
{
    struct hand h;

    (void)state;
    open_hand(&h);
    greet(&h);
    h.now_ms += 3600000;
    assert_false(turn(&h));
    assert_false(pass(&h, STALL_MS - 1000));
    assert_true(pass(&h, 1000));
    close_hand(&h);
}

static void zero_is_never_stuck(void **state)
{
    struct hand h;

    (void)state;
    open_hand(&h);
    h.watch.stall_ms = 0;
    greet(&h);
    say_stats(&h, 3, 3600000);
    assert_false(pass(&h, 100 * STALL_MS));
    close_hand(&h);
}

static void a_broken_protocol_ends_the_connection_not_the_watch(void **state)
{
    struct hand h;
    struct buf b;

    (void)state;
    open_hand(&h);
    greet(&h);
    buf_init(&b);
    wire_put_cancel(&b, 1);
    say(&h, &b);
    assert_false(turn(&h));
    assert_int_equal(h.watch.state, ENGINE_WATCH_AWAY);
    close(h.fd);
    h.now_ms += 1000;
    greet(&h);
    close_hand(&h);
}

/* ---- in its place ---- */

static int call(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    strcpy(a.sun_path, path);
    assert_int_equal(connect(fd, (const struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static void assert_refused(int fd, const char *text)
{
    char in[512];
    struct wire_refused r;
    struct wire_frame f;
    size_t used;
    ssize_t n = recv(fd, in, sizeof in, 0);

    assert_true(n > 0);
    assert_int_equal(wire_scan(in, (size_t)n, &f, &used), WIRE_SCAN_FRAME);
    assert_int_equal(f.type, WIRE_REFUSED);
    assert_int_equal(wire_get_refused(&f, &r), ST_OK);
    assert_int_equal(r.status, ST_UNAVAILABLE);
    assert_string_equal(r.text, text);
    assert_int_equal(recv(fd, in, sizeof in, 0), 0);
    close(fd);
}

static void who_greets_in_its_absence_hears_why(void **state)
{
    struct stand_in s;
    int fd;

    (void)state;
    stand_in_init(&s, path);
    assert_int_equal(
        stand_in_start(&s, ST_UNAVAILABLE, "stopped after 5 crashes: exit 1\x1b\xc3", NULL), ST_OK);
    fd = call();
    stand_in_turn(&s, 0);
    assert_int_equal(s.n_callers, 1); /* not before it greets */
    assert_int_equal(send(fd, "hello", 5, 0), 5);
    stand_in_turn(&s, 1);
    assert_int_equal(s.n_callers, 0);
    assert_refused(fd, "stopped after 5 crashes: exit 1??");
    stand_in_stop(&s);
    assert_int_equal(access(path, F_OK), -1);
}

static void a_caller_without_a_word_is_let_go(void **state)
{
    struct stand_in s;
    char in[8];
    int fd;

    (void)state;
    stand_in_init(&s, path);
    assert_int_equal(stand_in_start(&s, ST_UNAVAILABLE, "away", NULL), ST_OK);
    fd = call();
    stand_in_turn(&s, 0);
    assert_int_equal(stand_in_due_ms(&s), 1000);
    stand_in_turn(&s, 1000);
    assert_int_equal(recv(fd, in, sizeof in, 0), 0);
    assert_true(stand_in_due_ms(&s) == INT64_MAX);
    close(fd);
    stand_in_stop(&s);
}

static void more_callers_than_places_wait_for_theirs(void **state)
{
    struct pollfd fds[STAND_IN_FDS];
    int calls[STAND_IN_CALLERS_MAX + 1];
    struct stand_in s;

    (void)state;
    stand_in_init(&s, path);
    assert_int_equal(stand_in_start(&s, ST_UNAVAILABLE, "away", NULL), ST_OK);
    for (int i = 0; i <= STAND_IN_CALLERS_MAX; i++)
        calls[i] = call();
    stand_in_turn(&s, 0);
    assert_int_equal(stand_in_pollfds(&s, fds), STAND_IN_FDS);
    assert_int_equal(fds[STAND_IN_CALLERS_MAX].fd, -1);
    assert_int_equal(send(calls[STAND_IN_CALLERS_MAX], "hello", 5, 0), 5);
    stand_in_turn(&s, 1000);
    stand_in_turn(&s, 1000);
    assert_refused(calls[STAND_IN_CALLERS_MAX], "away");
    for (int i = 0; i < STAND_IN_CALLERS_MAX; i++)
        close(calls[i]);
    stand_in_stop(&s);
}

static void a_long_reason_is_cut_with_dots(void **state)
{
    struct stand_in s;
    char text[400];

    (void)state;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    stand_in_init(&s, path);
    assert_int_equal(stand_in_start(&s, ST_UNAVAILABLE, text, NULL), ST_OK);
    assert_int_equal(strlen(s.text), STAND_IN_TEXT_BYTES - 1);
    assert_string_equal(s.text + STAND_IN_TEXT_BYTES - 4, "...");
    stand_in_stop(&s);
}

static void an_absence_is_described(void **state)
{
    struct child c = {
        .given_up = true,
        .backoff = {.deaths = 5},
        .cause = "signal 11 (Segmentation fault)",
        .lines = {2, {"of before", "2026-01-01T00:00:00.000Z warn engine engine.conn x=1"}}};
    char text[256];

    (void)state;
    engine_guard_text(&c, text, sizeof text);
    assert_string_equal(text, "stopped after 5 crashes: signal 11 (Segmentation fault); last log: "
                              "engine.conn x=1");
    c.given_up = false;
    last_lines_add(&c.lines, "7 words", 7);
    engine_guard_text(&c, text, sizeof text);
    assert_string_equal(text,
                        "starts again after: signal 11 (Segmentation fault); last log: 7 words");
    c.lines.n = 0;
    engine_guard_text(&c, text, sizeof text);
    assert_string_equal(text, "starts again after: signal 11 (Segmentation fault)");
}

static int make_folder(void **state)
{
    if (test_folder_make(state) != 0)
        return -1;
    snprintf(path, sizeof path, "%s", in_test_folder("engine.sock"));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_greets_and_monitors),
        cmocka_unit_test(silence_is_stuck),
        cmocka_unit_test(work_without_a_step_is_stuck),
        cmocka_unit_test(a_loading_engine_has_time_but_not_for_ever),
        cmocka_unit_test(a_greeting_without_answer_is_made_anew),
        cmocka_unit_test(a_watch_that_slept_blames_nobody),
        cmocka_unit_test(zero_is_never_stuck),
        cmocka_unit_test(a_broken_protocol_ends_the_connection_not_the_watch),
        cmocka_unit_test(who_greets_in_its_absence_hears_why),
        cmocka_unit_test(a_caller_without_a_word_is_let_go),
        cmocka_unit_test(more_callers_than_places_wait_for_theirs),
        cmocka_unit_test(a_long_reason_is_cut_with_dots),
        cmocka_unit_test(an_absence_is_described),
    };

    log_init("test", LOG_ERROR);
    return cmocka_run_group_tests(tests, make_folder, test_folder_remove_empty);
}
