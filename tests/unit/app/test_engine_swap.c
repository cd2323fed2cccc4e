/* A hot swap: processes that only sleep, the engines in them played by hand, the clock the test's.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app/cmd_engine.h"
#include "app/supervise/engine_guard.h"
#include "app/supervise/engine_swap.h"
#include "app/supervise/files.h"
#include "base/log.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define STALL_MS 30000

static char folder[] = "/tmp/sluice-test-swap-XXXXXX";
static const char *const sleeper[] = {"sh", "-c", "echo started; exec sleep 60", NULL};

/* An engine's socket, and the connection that a watch made. */
struct hand {
    int listen_fd, fd;
};

struct rig {
    char socket[96];
    struct child engine;
    struct engine_guard guard;
    struct engine_swap swap;
    struct hand old, next;
    int64_t now_ms;
    char news[ENGINE_SWAP_NEWS_BYTES];
};

/* ---- engines by hand ---- */

static void hand_listen(struct hand *h, const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};

    strcpy(a.sun_path, path);
    h->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    unlink(path);
    assert_int_equal(bind(h->listen_fd, (const struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(h->listen_fd, 4), 0);
}

static void hand_close(struct hand *h)
{
    if (h->fd != -1)
        close(h->fd);
    if (h->listen_fd != -1)
        close(h->listen_fd);
    h->fd = h->listen_fd = -1;
}

static uint16_t hand_hears(const struct hand *h)
{
    struct wire_frame f;
    char in[512];
    size_t used;
    ssize_t n = recv(h->fd, in, sizeof in, MSG_DONTWAIT);

    if (n == -1 && errno == EAGAIN)
        return 0;
    assert_true(n > 0);
    assert_int_equal(wire_scan(in, (size_t)n, &f, &used), WIRE_SCAN_FRAME);
    return f.type;
}

/* Takes the watch's connection, which turns by `turn`. */
static void hand_greet(struct rig *r, struct hand *h, uint16_t version, bool (*turn)(struct rig *r))
{
    struct buf b;

    turn(r);
    h->fd = accept4(h->listen_fd, NULL, NULL, SOCK_CLOEXEC); /* else the next child has it, too */
    assert_int_not_equal(h->fd, -1);
    assert_int_equal(hand_hears(h), WIRE_HELLO);
    buf_init(&b);
    wire_put_welcome(&b, &(struct wire_welcome){.version = version,
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
    assert_int_equal(send(h->fd, b.data, b.len, MSG_NOSIGNAL), b.len);
    buf_dispose(&b);
}

/* ---- the supervisor's turns ---- */

static bool turn(struct rig *r)
{
    r->news[0] = '\0';
    assert_false(engine_guard_turn(&r->guard, r->now_ms));
    return engine_swap_turn(&r->swap, r->now_ms, r->news);
}

/* Killed by the test, or by what is tested. */
static void reap_engine(struct rig *r)
{
    int status = 0;

    assert_int_equal(waitpid(r->engine.pid, &status, 0), r->engine.pid);
    (void)child_on_exit(&r->engine, status, r->now_ms);
    engine_guard_on_end(&r->guard, NULL);
}

static void reap_other(struct rig *r)
{
    int status = 0;

    assert_int_equal(waitpid(r->swap.other.pid, &status, 0), r->swap.other.pid);
    assert_int_equal(child_on_exit(&r->swap.other, status, r->now_ms), -1);
    engine_swap_on_end(&r->swap, r->now_ms, r->news);
}

static void start_engine(struct rig *r)
{
    engine_guard_make_way(&r->guard);
    assert_int_equal(child_start(&r->engine, r->now_ms, NULL), ST_OK);
    engine_guard_on_start(&r->guard, r->now_ms);
}

/* With an engine of that version that serves; 0: one that still loads. */
static void open_rig(struct rig *r, uint16_t version)
{
    *r = (struct rig){.now_ms = 1000000, .old = {-1, -1}, .next = {-1, -1}};
    snprintf(r->socket, sizeof r->socket, "%s/engine.sock", folder);
    r->engine = (struct child){
        .spec = {.name = "engine", .argv = sleeper, .cwd = "/", .death_signal = SIGKILL},
        .stop_signal = SIGTERM,
        .stop_ms = 5000};
    snprintf(r->engine.pid_file, sizeof r->engine.pid_file, "%s.pid", r->socket);
    snprintf(r->engine.spec.log, sizeof r->engine.spec.log, "%s/engine.log", folder);
    engine_swap_init(&r->swap, &r->guard, &r->engine, r->socket, STALL_MS);
    engine_swap_set_log(&r->swap, r->engine.spec.log);
    engine_guard_init(&r->guard, &r->engine, r->socket, STALL_MS, 0);
    start_engine(r);
    hand_listen(&r->old, r->socket);
    if (version == 0)
        return;
    hand_greet(r, &r->old, version, turn);
    turn(r);
    assert_int_equal(hand_hears(&r->old), WIRE_MONITOR);
}

static void end_child(struct child *c)
{
    if (c->pid == 0)
        return;
    c->wanted = false;
    child_kill(c);
    waitpid(c->pid, NULL, 0);
    unlink(c->pid_file);
}

static void close_rig(struct rig *r)
{
    end_child(&r->engine);
    end_child(&r->swap.other);
    hand_close(&r->old);
    hand_close(&r->next);
    engine_guard_dispose(&r->guard);
    engine_swap_dispose(&r->swap);
    unlink(r->socket);
}

static void begin(struct rig *r)
{
    assert_int_equal(engine_swap_start(&r->swap, r->now_ms, NULL), ST_OK);
    hand_listen(&r->next, r->swap.socket);
}

/* Its answer is read in the turn that follows. */
static void successor_greets(struct rig *r)
{
    r->now_ms += 1200;
    hand_greet(r, &r->next, WIRE_VERSION_MAX, turn);
}

/* The pid in a pid file; 0: there is none. */
static int pid_in(const char *path)
{
    char text[64];

    return file_read(path, text, sizeof text) == ST_OK ? atoi(text) : 0;
}

/* Who answers at the socket's path. */
static bool is_at_path(const struct rig *r, const struct hand *h)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), here = -1;

    strcpy(a.sun_path, r->socket);
    if (connect(fd, (const struct sockaddr *)&a, sizeof a) == 0)
        here = accept4(h->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    close(fd);
    if (here != -1)
        close(here);
    return here != -1;
}

/* ---- tests ---- */

static void the_successor_takes_the_place_of_the_first(void **state)
{
    char next_pid[PROCESS_PATH_MAX];
    struct rig r;
    pid_t first, second;

    (void)state;
    open_rig(&r, WIRE_VERSION_MAX);
    first = r.engine.pid;
    snprintf(next_pid, sizeof next_pid, "%s.next.pid", r.socket);
    begin(&r);
    second = r.swap.other.pid;
    assert_int_equal(pid_in(next_pid), second);
    assert_string_equal(r.swap.argv[3], "--socket");
    assert_string_equal(r.swap.argv[5], "--warm");
    assert_false(turn(&r)); /* not before it has greeted */
    successor_greets(&r);
    assert_int_equal(hand_hears(&r.old), 0);
    assert_true(turn(&r));
    assert_non_null(strstr(r.news, "serves, ready after 1200 ms"));
    assert_int_equal(r.swap.state, ENGINE_SWAP_RETIRING);
    assert_int_equal(r.engine.pid, second);
    assert_int_equal(r.swap.other.pid, first);
    assert_int_equal(engine_guard_state(&r.guard), ENGINE_GUARD_READY);
    assert_int_equal(pid_in(r.engine.pid_file), second);
    assert_int_equal(pid_in(next_pid), first);
    assert_true(is_at_path(&r, &r.next));
    assert_false(file_exists(r.swap.socket));
    turn(&r);
    assert_int_equal(hand_hears(&r.old), WIRE_HANDOVER); /* on the connection that was there */
    assert_int_equal(hand_hears(&r.next), WIRE_MONITOR);
    hand_close(&r.old);
    turn(&r);
    r.now_ms += 1000;
    turn(&r);
    assert_int_equal(r.swap.watch.state, ENGINE_WATCH_OFF); /* it looks for no other one there */
    end_child(&r.swap.other);
    r.swap.other.pid = 0;
    strcpy(r.swap.other.cause, "exit 0");
    engine_swap_on_end(&r.swap, r.now_ms, r.news);
    assert_int_equal(r.swap.state, ENGINE_SWAP_DONE);
    assert_string_equal(r.swap.reason, "");
    close_rig(&r);
}

static void another_one_has_to_wait_until_the_first_has_left(void **state)
{
    struct reason why = {0};
    struct rig r;

    (void)state;
    open_rig(&r, WIRE_VERSION_MAX);
    begin(&r);
    assert_int_equal(engine_swap_start(&r.swap, r.now_ms, &why), ST_CONFLICT);
    assert_non_null(strstr(why.text, "its successor (pid "));
    successor_greets(&r);
    assert_true(turn(&r));
    assert_int_equal(engine_swap_start(&r.swap, r.now_ms, &why), ST_CONFLICT);
    assert_non_null(strstr(why.text, "still ends its requests"));
    hand_close(&r.old);
    child_kill(&r.swap.other);
    reap_other(&r);
    assert_string_equal(r.swap.reason, "signal 9 (Killed)");
    hand_close(&r.next);
    begin(&r);
    assert_int_equal(r.swap.n, 2);
    close_rig(&r);
}

static void an_older_engine_is_told_to_stop(void **state)
{
    int status = 0;
    struct rig r;

    (void)state;
    open_rig(&r, WIRE_VERSION_HANDOVER - 1);
    begin(&r);
    successor_greets(&r);
    assert_true(turn(&r));
    turn(&r);
    assert_int_equal(hand_hears(&r.old), 0);
    assert_int_equal(waitpid(r.swap.other.pid, &status, 0), r.swap.other.pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    r.swap.other.pid = 0;
    close_rig(&r);
}

/* Its gateways would stay with it to the very end. */
static void one_that_can_not_be_told_any_more_is_told_to_stop(void **state)
{
    int status = 0;
    struct rig r;

    (void)state;
    open_rig(&r, WIRE_VERSION_MAX);
    begin(&r);
    successor_greets(&r);
    assert_true(turn(&r));
    hand_close(&r.old);
    turn(&r);
    assert_true(r.swap.due_ms < r.now_ms + 60000);
    assert_int_equal(waitpid(r.swap.other.pid, &status, 0), r.swap.other.pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    r.swap.other.pid = 0;
    close_rig(&r);
}

static void who_does_not_leave_is_killed_past_the_limit(void **state)
{
    struct rig r;
    pid_t old;

    (void)state;
    open_rig(&r, WIRE_VERSION_MAX);
    begin(&r);
    successor_greets(&r);
    assert_true(turn(&r));
    old = r.swap.other.pid;
    turn(&r);
    assert_int_equal(hand_hears(&r.old), WIRE_HANDOVER);
    hand_close(&r.old);
    turn(&r);
    r.now_ms = r.swap.due_ms - 1;
    engine_swap_turn(&r.swap, r.now_ms, r.news);
    assert_int_equal(waitpid(old, NULL, WNOHANG), 0);
    r.now_ms++;
    engine_swap_turn(&r.swap, r.now_ms, r.news);
    reap_other(&r);
    assert_string_equal(r.swap.reason, "killed: it did not end its requests in time");
    close_rig(&r);
}

static void a_successor_that_dies_changes_nothing(void **state)
{
    static const char *const dies[] = {"sh", "-c", "echo no such weights; exit 1", NULL};
    struct rig r;
    pid_t first;

    (void)state;
    open_rig(&r, WIRE_VERSION_MAX);
    first = r.engine.pid;
    r.swap.other.spec.argv = dies;
    assert_int_equal(engine_swap_start(&r.swap, r.now_ms, NULL), ST_OK);
    reap_other(&r);
    assert_int_equal(r.swap.state, ENGINE_SWAP_FAILED);
    assert_string_equal(r.swap.reason, "exit 1: no such weights");
    assert_non_null(strstr(r.news, "nothing changes"));
    assert_int_equal(r.engine.pid, first);
    assert_int_equal(engine_guard_state(&r.guard), ENGINE_GUARD_READY);
    assert_true(is_at_path(&r, &r.old));
    turn(&r);
    assert_int_equal(hand_hears(&r.old), 0);
    close_rig(&r);
}

static void one_that_is_not_ready_in_time_is_killed(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r, WIRE_VERSION_MAX);
    begin(&r);
    r.now_ms = r.swap.due_ms;
    r.swap.watch.turned_ms = r.now_ms; /* this process has not slept */
    assert_false(engine_swap_turn(&r.swap, r.now_ms, r.news));
    reap_other(&r);
    assert_int_equal(r.swap.state, ENGINE_SWAP_FAILED);
    assert_non_null(strstr(r.swap.reason, "ready"));
    assert_false(file_exists(r.swap.socket));
    close_rig(&r);
}

static void when_the_first_dies_its_successor_takes_over_at_once(void **state)
{
    struct rig r;
    pid_t second;

    (void)state;
    open_rig(&r, WIRE_VERSION_MAX);
    begin(&r);
    second = r.swap.other.pid;
    child_kill(&r.engine);
    hand_close(&r.old);
    reap_engine(&r);
    assert_false(turn(&r));
    assert_true(child_due_ms(&r.engine) == INT64_MAX); /* two needn't load */
    successor_greets(&r);
    assert_true(turn(&r));
    assert_int_equal(r.engine.pid, second);
    assert_int_equal(r.engine.n_deaths, 1);
    assert_int_equal(r.swap.state, ENGINE_SWAP_DONE);
    assert_true(is_at_path(&r, &r.next)); /* and not who stood in meanwhile */
    close_rig(&r);
}

/* It was sent to sleep right before its successor was started. */
static void when_the_first_leaves_for_being_idle_its_successor_takes_over(void **state)
{
    struct rig r;
    pid_t second;

    (void)state;
    open_rig(&r, WIRE_VERSION_MAX);
    begin(&r);
    second = r.swap.other.pid;
    child_kill(&r.engine);
    hand_close(&r.old);
    assert_int_equal(waitpid(r.engine.pid, NULL, 0), r.engine.pid);
    assert_true(engine_guard_on_exit(&r.guard, ENGINE_EXIT_IDLE << 8));
    assert_int_equal(child_on_exit(&r.engine, ENGINE_EXIT_IDLE << 8, r.now_ms), -1);
    engine_guard_on_end(&r.guard, NULL);
    assert_false(turn(&r));
    assert_int_equal(engine_guard_state(&r.guard), ENGINE_GUARD_IDLE);
    assert_string_equal(r.swap.other.killed_for, "");
    successor_greets(&r);
    assert_true(turn(&r));
    assert_int_equal(r.engine.pid, second);
    assert_int_equal(engine_guard_state(&r.guard), ENGINE_GUARD_READY);
    assert_int_equal(r.swap.state, ENGINE_SWAP_DONE);
    assert_true(is_at_path(&r, &r.next));
    close_rig(&r);
}

static void when_both_die_the_first_starts_again(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r, WIRE_VERSION_MAX);
    begin(&r);
    child_kill(&r.engine);
    hand_close(&r.old);
    reap_engine(&r);
    assert_false(turn(&r));
    child_kill(&r.swap.other);
    reap_other(&r);
    assert_int_equal(child_due_ms(&r.engine), r.now_ms);
    close_rig(&r);
}

/* Started again while its successor loaded, as a SIGHUP does: nobody is served by it. */
static void a_first_that_still_loads_is_not_waited_for(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r, 0);
    begin(&r);
    hand_close(&r.old);
    unlink(r.socket);
    successor_greets(&r);
    assert_true(turn(&r));
    assert_int_equal(r.swap.state, ENGINE_SWAP_RETIRING);
    reap_other(&r);
    assert_int_equal(r.swap.state, ENGINE_SWAP_DONE);
    close_rig(&r);
}

/* Its connection broke in this moment, and would be made anew at the successor's socket. */
static void the_first_must_be_within_hearing(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r, WIRE_VERSION_MAX);
    begin(&r);
    close(r.old.fd);
    successor_greets(&r);
    assert_false(turn(&r));
    assert_int_equal(r.swap.state, ENGINE_SWAP_LOADING);
    r.now_ms += 1000;
    hand_greet(&r, &r.old, WIRE_VERSION_MAX, turn);
    assert_true(turn(&r));
    turn(&r);
    assert_int_equal(r.swap.state, ENGINE_SWAP_RETIRING);
    close_rig(&r);
}

static void an_unload_ends_the_swap(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r, WIRE_VERSION_MAX);
    begin(&r);
    engine_guard_unload(&r.guard, r.now_ms);
    assert_false(turn(&r));
    reap_other(&r);
    assert_int_equal(r.swap.state, ENGINE_SWAP_FAILED);
    assert_non_null(strstr(r.swap.reason, "unloaded"));
    close_rig(&r);
}

static void logs_go_with_their_processes(void **state)
{
    char next_log[PROCESS_PATH_MAX];
    struct last_lines said;
    struct rig r;

    (void)state;
    open_rig(&r, WIRE_VERSION_MAX);
    snprintf(next_log, sizeof next_log, "%s", r.swap.other.spec.log);
    assert_non_null(strstr(next_log, "/engine.next.log"));
    begin(&r);
    assert_int_equal(file_write(r.engine.spec.log, "first\n", 6, 0600, NULL), ST_OK);
    assert_int_equal(file_write(next_log, "second\n", 7, 0600, NULL), ST_OK);
    successor_greets(&r);
    assert_true(turn(&r));
    last_lines_read(&said, r.engine.spec.log);
    assert_string_equal(last_lines_newest(&said), "second");
    last_lines_read(&said, r.swap.other.spec.log);
    assert_string_equal(last_lines_newest(&said), "first");
    assert_string_equal(r.swap.other.spec.log, next_log);
    close_rig(&r);
}

static void what_an_earlier_supervisor_left_is_ended(void **state)
{
    struct engine_swap again;
    struct rig r;
    int status = 0;

    (void)state;
    open_rig(&r, WIRE_VERSION_MAX);
    begin(&r);
    engine_swap_init(&again, &r.guard, &r.engine, r.socket, STALL_MS);
    assert_int_equal(engine_swap_end_orphan(&again, NULL), ST_OK);
    assert_int_equal(waitpid(r.swap.other.pid, &status, 0), r.swap.other.pid);
    assert_true(WIFSIGNALED(status));
    r.swap.other.pid = 0;
    assert_false(file_exists(r.swap.socket));
    assert_false(file_exists(r.swap.other.pid_file));
    engine_swap_dispose(&again);
    close_rig(&r);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return folder_remove(folder, NULL) == ST_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_successor_takes_the_place_of_the_first),
        cmocka_unit_test(another_one_has_to_wait_until_the_first_has_left),
        cmocka_unit_test(an_older_engine_is_told_to_stop),
        cmocka_unit_test(one_that_can_not_be_told_any_more_is_told_to_stop),
        cmocka_unit_test(who_does_not_leave_is_killed_past_the_limit),
        cmocka_unit_test(a_successor_that_dies_changes_nothing),
        cmocka_unit_test(one_that_is_not_ready_in_time_is_killed),
        cmocka_unit_test(when_the_first_dies_its_successor_takes_over_at_once),
        cmocka_unit_test(when_the_first_leaves_for_being_idle_its_successor_takes_over),
        cmocka_unit_test(when_both_die_the_first_starts_again),
        cmocka_unit_test(a_first_that_still_loads_is_not_waited_for),
        cmocka_unit_test(the_first_must_be_within_hearing),
        cmocka_unit_test(an_unload_ends_the_swap),
        cmocka_unit_test(logs_go_with_their_processes),
        cmocka_unit_test(what_an_earlier_supervisor_left_is_ended),
    };

    log_init("test", LOG_ERROR);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
