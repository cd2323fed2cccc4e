/* kill -9 of a process in mid-load. Run with arguments this program is the process that gets
 * killed: see a_killed_process_loses_no_row. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/size.h"
#include "tests/lib/billing_rig.h"
#include "tests/lib/poll_loop.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static struct reason why;

extern char **environ;

enum { SAID_SUBMIT = 's', SAID_ADMITTED = 'a', SAID_FINISHED = 'f' };
#define STREAMS 8

/* What the process that gets killed says about each request: one write each, so it is said before
 * or after, never half. */
struct said {
    char what;
    uint8_t pad[3];
    unsigned n;
};

static void say(int fd, char what, unsigned n)
{
    struct said s = {.what = what, .n = n};

    if (write(fd, &s, sizeof s) != sizeof s)
        _exit(1);
}

struct stream {
    struct billing *b;
    int fd;
    unsigned n, step;
    struct billing_write w;
};

static void on_stream(struct billing_write *w)
{
    struct stream *s = CONTAINER_OF(w, struct stream, w);
    struct billing_admission a;
    struct billing_final f;

    if (w->status != ST_OK)
        _exit(1);
    say(s->fd, s->step % 2 == 0 ? SAID_ADMITTED : SAID_FINISHED, s->n);
    if (s->step++ % 2 == 0) {
        struct id id = sample_id(s->n);

        billing_progress(s->b, &id, 10 + s->n, s->n % 7, s->n / 2);
        f = sample_final(s->n);
        billing_finish(s->b, w, &f);
        return;
    }
    s->n += STREAMS;
    a = sample_admission(s->n);
    say(s->fd, SAID_SUBMIT, s->n);
    billing_admit(s->b, w, &a);
}

/* Argument: folder, conninfo, first number. Runs until it is killed. */
static _Noreturn void run_until_killed(char **argv)
{
    static struct stream streams[STREAMS];
    struct billing *b;

    log_init("killed", LOG_ERROR);
    rig.loop = poll_loop_new();
    b = rig_open_billing(argv[1], argv[2]);
    for (unsigned i = 0; i < STREAMS; i++) {
        struct stream *s = &streams[i];
        struct billing_admission a;

        *s = (struct stream){.b = b,
                             .fd = STDOUT_FILENO,
                             .n = (unsigned)atoi(argv[3]) + i,
                             .w = {.loop = rig.loop, .on_done = on_stream}};
        a = sample_admission(s->n);
        say(s->fd, SAID_SUBMIT, s->n);
        billing_admit(b, &s->w, &a);
    }
    for (;;)
        poll_loop_turn(rig.loop, -1);
}

#define KILLED_FIRST 100000
#define KILLED_ROUND 100000
#define KILL_ROUNDS  6

static struct {
    uint8_t submitted, admitted, finished;
} heard[KILL_ROUNDS * KILLED_ROUND];

static void hear(int fd, size_t messages)
{
    struct said s;

    while (messages-- > 0 && read(fd, &s, sizeof s) == sizeof s) {
        unsigned i = s.n - KILLED_FIRST;

        assert_true(i < COUNT_OF(heard));
        if (s.what == SAID_SUBMIT)
            heard[i].submitted = 1;
        else if (s.what == SAID_ADMITTED)
            heard[i].admitted = 1;
        else
            heard[i].finished = 1;
    }
}

/* Kills it after it has said `messages` things: a different moment each time. */
static void run_and_kill(const char *dir, unsigned first, size_t messages)
{
    char number_text[16];
    char *argv[] = {"killed", (char *)dir, rig.server.conninfo, number_text, NULL};
    posix_spawn_file_actions_t actions;
    int fds[2];
    pid_t pid;

    snprintf(number_text, sizeof number_text, "%u", first);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(fds[1]);
    hear(fds[0], messages);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    hear(fds[0], SIZE_MAX);
    close(fds[0]);
}

static void check_row(const struct pg_result *r, int row, uint8_t *seen)
{
    unsigned n = (unsigned)atoi(pg_text(r, row, 0) + strlen("client-"));
    unsigned i = n - KILLED_FIRST;
    bool completed = strcmp(pg_text(r, row, 1), "completed") == 0;

    assert_true(i < COUNT_OF(heard) && heard[i].submitted);
    assert_int_equal(seen[i]++, 0);
    assert_true(completed || !heard[i].finished);
    if (completed)
        assert_int_equal(pg_int64(r, row, 2), n);
    else
        assert_true(pg_int64(r, row, 2) == 0 || pg_int64(r, row, 2) == n / 2);
}

static void a_killed_process_loses_no_row(void **state)
{
    static uint8_t seen[COUNT_OF(heard)];
    static const size_t messages[KILL_ROUNDS] = {1, 9, 50, 777, 2000, 4003};
    char dir[TEMP_DIR_BYTES];
    struct pg_result *r = NULL;
    struct billing *b;

    (void)state;
    temp_dir_make(dir);
    for (unsigned i = 0; i < KILL_ROUNDS; i++)
        run_and_kill(dir, KILLED_FIRST + i * KILLED_ROUND, messages[i]);
    b = rig_open_billing(dir, rig.server.conninfo);
    rig_wait_for(rig_is_ready, b);
    rig_wait_for(rig_is_posted, b);
    assert_int_equal(pg_exec(rig.pg,
                             "SELECT client_request_id, outcome, output_tokens FROM usage_events"
                             " WHERE substr(client_request_id, 8)::bigint >= 100000",
                             0, NULL, &r, &why),
                     ST_OK);
    for (int row = 0; row < pg_rows(r); row++)
        check_row(r, row, seen);
    pg_result_free(r);
    for (size_t i = 0; i < COUNT_OF(heard); i++)
        assert_true(seen[i] == 1 || !heard[i].admitted);
    billing_close(b, 1000);
    temp_dir_remove(dir);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_process_loses_no_row),
    };

    if (argc == 4)
        run_until_killed(argv);
    log_init("test", LOG_ERROR);
    return cmocka_run_group_tests(tests, rig_set_up, rig_tear_down);
}
