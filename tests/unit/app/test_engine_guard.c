/* An engine that nobody asks for: sent to sleep, answered for, and woken. Its side of the socket is
 * played by hand, and the clock is the test's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "app/cmd_engine.h"
#include "app/supervise/engine_guard.h"
#include "base/log.h"
#include "base/unix_socket.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define IDLE_MS    60000
#define NOBODY     0x3FFFFFFF /* above every pid */
#define EXIT(code) ((code) << 8)

static char folder[] = "/tmp/sluice-test-guard-XXXXXX";
static char path[64];

struct hand {
    struct child child;
    struct engine_guard guard;
    int listen_fd, fd;
    int64_t now_ms;
};

static void turn(struct hand *h)
{
    assert_false(engine_guard_turn(&h->guard, h->now_ms));
}

/* Turns once a second, as the supervisor does; and again, as what was to be written can be. */
static void pass(struct hand *h, int64_t ms)
{
    for (; ms > 0; ms -= 1000) {
        h->now_ms += 1000;
        turn(h);
        turn(h);
    }
}

/* 0: it has said nothing. */
static uint16_t next_type(int fd)
{
    char in[512];
    struct wire_frame f;
    size_t used;
    ssize_t n = recv(fd, in, sizeof in, MSG_DONTWAIT);

    if (n <= 0)
        return 0;
    assert_int_equal(wire_scan(in, (size_t)n, &f, &used), WIRE_SCAN_FRAME);
    assert_int_equal(used, n);
    return f.type;
}

static void say(struct hand *h, struct buf *b)
{
    assert_int_equal(send(h->fd, b->data, b->len, MSG_NOSIGNAL), b->len);
    buf_dispose(b);
    turn(h);
}

static void say_stats(struct hand *h, uint32_t running, uint64_t steps)
{
    struct buf b;

    buf_init(&b);
    wire_put_stats(
        &b, &(struct wire_stats){.running = running, .steps = steps, .last_step_age_ms = -1});
    say(h, &b);
}

static int listen_by_hand(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    strcpy(a.sun_path, path);
    assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 4), 0);
    return fd;
}

/* An engine of that version that has greeted and done five steps. */
static void open_version(struct hand *h, int64_t idle_ms, uint16_t version)
{
    struct buf b;

    *h = (struct hand){.fd = -1, .now_ms = 1000000, .child = {.pid = NOBODY, .wanted = true}};
    engine_guard_init(&h->guard, &h->child, path, 0, idle_ms);
    engine_guard_on_start(&h->guard, h->now_ms);
    pass(h, 2 * IDLE_MS); /* it loads, which is no idleness */
    h->listen_fd = listen_by_hand();
    pass(h, 1000);
    h->fd = accept(h->listen_fd, NULL, NULL);
    assert_int_equal(next_type(h->fd), WIRE_HELLO);
    buf_init(&b);
    wire_put_welcome(&b, &(struct wire_welcome){.version = version,
                                                .max_sequences = 1,
                                                .max_rows = 1,
                                                .max_context = 16,
                                                .n_pages = 1,
                                                .n_vocab = 1,
                                                .credit_bytes = 1});
    say(h, &b);
    assert_int_equal(next_type(h->fd), WIRE_MONITOR);
    say_stats(h, 0, 5);
}

static void open_hand(struct hand *h)
{
    open_version(h, IDLE_MS, WIRE_VERSION_HANDOVER);
}

/* The engine's process has ended. */
static bool leave(struct hand *h, int wait_status)
{
    bool is_idle;

    close(h->fd);
    close(h->listen_fd);
    h->fd = h->listen_fd = -1;
    unlink(path);
    is_idle = engine_guard_on_exit(&h->guard, wait_status);
    (void)child_on_exit(&h->child, wait_status, h->now_ms);
    engine_guard_on_end(&h->guard, NULL);
    return is_idle;
}

static void close_hand(struct hand *h)
{
    if (h->fd != -1)
        close(h->fd);
    if (h->listen_fd != -1)
        close(h->listen_fd);
    engine_guard_dispose(&h->guard);
    unlink(path);
}

/* What stands in for it answers to a greeting by hand. */
static enum status ask(struct hand *h, enum wire_type type)
{
    struct wire_refused r;
    struct wire_frame f;
    size_t used;
    char in[512];
    struct buf b;
    ssize_t n;
    int fd = unix_socket_connect(path);

    assert_true(fd != -1);
    buf_init(&b);
    if (type == WIRE_HELLO)
        wire_put_hello(&b, &(struct wire_hello){2, WIRE_VERSION_MAX, "hand"});
    else
        wire_put_bare(&b, type);
    assert_int_equal(send(fd, b.data, b.len, MSG_NOSIGNAL), b.len);
    buf_dispose(&b);
    turn(h);
    n = recv(fd, in, sizeof in, 0);
    close(fd);
    assert_true(n > 0);
    assert_int_equal(wire_scan(in, (size_t)n, &f, &used), WIRE_SCAN_FRAME);
    assert_int_equal(wire_get_refused(&f, &r), ST_OK);
    return (enum status)r.status;
}

static void nobody_asked_for_so_long_it_is_sent_to_sleep(void **state)
{
    struct hand h;

    (void)state;
    open_hand(&h);
    pass(&h, IDLE_MS - 1000);
    assert_int_equal(next_type(h.fd), 0);
    pass(&h, 1000);
    assert_int_equal(next_type(h.fd), WIRE_SLEEP);
    turn(&h);
    assert_int_equal(next_type(h.fd), 0);
    pass(&h, 1000); /* it is still there: some gateway stayed */
    assert_int_equal(next_type(h.fd), WIRE_SLEEP);
    close_hand(&h);
}

static void work_begins_its_time_anew(void **state)
{
    struct hand h;

    (void)state;
    open_hand(&h);
    pass(&h, IDLE_MS - 1000);
    say_stats(&h, 1, 5); /* runs */
    pass(&h, 2 * IDLE_MS);
    say_stats(&h, 0, 5);
    pass(&h, IDLE_MS - 2000);
    say_stats(&h, 0, 6); /* ran and ended between two looks */
    pass(&h, IDLE_MS - 1000);
    assert_int_equal(next_type(h.fd), 0);
    pass(&h, 1000);
    assert_int_equal(next_type(h.fd), WIRE_SLEEP);
    close_hand(&h);
}

static void without_a_limit_or_the_word_it_stays(void **state)
{
    struct hand h;

    (void)state;
    open_version(&h, 0, WIRE_VERSION_HANDOVER);
    pass(&h, 10 * IDLE_MS);
    assert_int_equal(next_type(h.fd), 0);
    close_hand(&h);
    open_version(&h, IDLE_MS, WIRE_VERSION_ADOPT);
    pass(&h, 10 * IDLE_MS);
    assert_int_equal(next_type(h.fd), 0);
    close_hand(&h);
}

static void gone_to_sleep_it_is_woken_by_who_needs_it_alone(void **state)
{
    struct hand h;

    (void)state;
    open_hand(&h);
    pass(&h, IDLE_MS);
    say_stats(&h, 0, 6); /* of a job that came and ended just before it was asked */
    assert_true(leave(&h, EXIT(ENGINE_EXIT_IDLE)));
    assert_int_equal(engine_guard_state(&h.guard), ENGINE_GUARD_IDLE);
    assert_int_equal(h.child.n_deaths, 0);
    assert_int_equal(ask(&h, WIRE_HELLO), ST_ASLEEP);
    assert_true(child_due_ms(&h.child) == INT64_MAX);
    child_try_again(&h.child, h.now_ms); /* a SIGHUP */
    assert_true(child_due_ms(&h.child) == INT64_MAX);
    assert_int_equal(ask(&h, WIRE_WAKE), ST_ASLEEP);
    assert_int_equal(child_due_ms(&h.child), h.now_ms);
    assert_int_equal(engine_guard_state(&h.guard), ENGINE_GUARD_WAITING);
    close_hand(&h);
}

static void unloaded_by_command_it_is_not_woken(void **state)
{
    struct hand h;

    (void)state;
    open_hand(&h);
    pass(&h, IDLE_MS);
    assert_true(leave(&h, EXIT(ENGINE_EXIT_IDLE)));
    engine_guard_unload(&h.guard, h.now_ms);
    assert_int_equal(engine_guard_state(&h.guard), ENGINE_GUARD_UNLOADED);
    assert_int_equal(ask(&h, WIRE_WAKE), ST_UNAVAILABLE);
    turn(&h);
    assert_true(child_due_ms(&h.child) == INT64_MAX);
    close_hand(&h);
}

static void another_end_is_a_death(void **state)
{
    const int ends[] = {EXIT(0), EXIT(1), 9};

    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        struct hand h;

        open_hand(&h);
        pass(&h, IDLE_MS);
        assert_false(leave(&h, ends[i]));
        assert_int_equal(engine_guard_state(&h.guard), ENGINE_GUARD_WAITING);
        assert_int_equal(h.child.n_deaths, 1);
        assert_int_equal(ask(&h, WIRE_WAKE), ST_UNAVAILABLE);
        close_hand(&h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_asked_for_so_long_it_is_sent_to_sleep),
        cmocka_unit_test(work_begins_its_time_anew),
        cmocka_unit_test(without_a_limit_or_the_word_it_stays),
        cmocka_unit_test(gone_to_sleep_it_is_woken_by_who_needs_it_alone),
        cmocka_unit_test(unloaded_by_command_it_is_not_woken),
        cmocka_unit_test(another_end_is_a_death),
    };
    int failed;

    log_init("test", LOG_ERROR);
    if (mkdtemp(folder) == NULL)
        return 1;
    strcpy(path, folder);
    strcat(path, "/e.sock");
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
