#include "app/supervise/children.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "app/supervise/files.h"
#include "base/clock.h"

/* An orphan got its death signal already: what it waits for is a drain or a fast shutdown. */
#define ORPHAN_WAIT_MS 20000
#define ORPHAN_POLL_MS 20

/* pid and start time: a pid alone may be somebody else's by the next start. */
static void write_pid_file(const struct child *c)
{
    char text[64];
    int n =
        snprintf(text, sizeof text, "%d %" PRIu64 "\n", (int)c->pid, process_started_ticks(c->pid));

    /* Without it only the search for orphans is blind, and the databases' own locks remain. */
    if (file_write(c->pid_file, text, (size_t)n, 0644, NULL) != ST_OK)
        unlink(c->pid_file);
}

static enum status start_process(struct child *c, struct reason *why)
{
    enum status st;

    if (c->spec.log[0] != '\0')
        return process_start(&c->spec, &c->pid, why);
    st = child_log_open(&c->output, &c->spec.output_fd, why);
    if (st != ST_OK)
        return st;
    st = process_start(&c->spec, &c->pid, why);
    close(c->spec.output_fd);
    if (st != ST_OK)
        child_log_close(&c->output);
    return st;
}

enum status child_start(struct child *c, int64_t now_ms, struct reason *why)
{
    enum status st = start_process(c, why);

    c->wanted = true;
    if (st != ST_OK) {
        c->pid = 0;
        return st;
    }
    c->started_ms = now_ms;
    c->ready_ms = 0;
    c->rests = false;
    c->killed_for[0] = '\0';
    if (c->pid_file[0] != '\0')
        write_pid_file(c);
    return ST_OK;
}

static void describe_cause(struct child *c, int wait_status)
{
    if (c->killed_for[0] != '\0')
        snprintf(c->cause, sizeof c->cause, "killed: it %s", c->killed_for);
    else if (WIFSIGNALED(wait_status))
        snprintf(c->cause, sizeof c->cause, "signal %d (%s)", WTERMSIG(wait_status),
                 strsignal(WTERMSIG(wait_status)));
    else
        snprintf(c->cause, sizeof c->cause, "exit %d", WEXITSTATUS(wait_status));
}

static void describe_end(struct child *c, int wait_status)
{
    bool says_why = WIFEXITED(wait_status) && WEXITSTATUS(wait_status) != 0;
    const char *line;

    describe_cause(c, wait_status);
    if (c->spec.log[0] != '\0') {
        last_lines_read(&c->lines, c->spec.log);
    } else {
        child_log_close(&c->output);
        c->lines = c->output.lines;
    }
    line = last_lines_newest(&c->lines);
    /* Who leaves by itself says why; the last line before a signal has another cause. */
    snprintf(c->last, sizeof c->last, "%.150s%s%.160s", c->cause,
             says_why && line[0] != '\0' ? ": " : "", says_why ? line : "");
}

static int64_t healthy_ms(const struct child *c, int64_t now_ms)
{
    if (!c->is_watched)
        return now_ms - c->started_ms;
    return c->ready_ms != 0 ? now_ms - c->ready_ms : 0;
}

int64_t child_on_exit(struct child *c, int wait_status, int64_t now_ms)
{
    int64_t delay;

    describe_end(c, wait_status);
    c->pid = 0;
    if (c->pid_file[0] != '\0')
        unlink(c->pid_file);
    if (!c->wanted)
        return -1;
    c->n_deaths++;
    c->rests = c->with != NULL && wait_status == 0;
    delay = backoff_next(&c->backoff, healthy_ms(c, now_ms));
    c->given_up = c->is_watched && c->backoff.deaths >= CHILD_DEATHS_MAX;
    c->due_ms = now_ms + delay;
    return delay;
}

int64_t child_due_ms(const struct child *c)
{
    if (!c->wanted || c->pid != 0 || c->given_up || (c->rests && c->with->pid == 0))
        return INT64_MAX;
    return c->due_ms;
}

void child_try_again(struct child *c, int64_t now_ms)
{
    c->given_up = false;
    c->backoff = (struct backoff){0};
    c->due_ms = now_ms;
}

void child_ask_to_stop(struct child *c)
{
    c->wanted = false;
    if (c->pid != 0)
        kill(c->pid, c->stop_signal);
}

static void take_process(struct child *to, const struct child *from)
{
    to->pid = from->pid;
    to->started_ms = from->started_ms;
    to->ready_ms = from->ready_ms;
    to->output = from->output;
    memcpy(to->killed_for, from->killed_for, sizeof to->killed_for);
    if (to->pid_file[0] == '\0')
        return;
    if (to->pid != 0)
        write_pid_file(to);
    else
        unlink(to->pid_file);
}

/* Where a file system can't, the paths go with the processes instead. */
static void exchange_logs(struct child *a, struct child *b)
{
    char path[PROCESS_PATH_MAX];

    if (a->spec.log[0] == '\0' ||
        renameat2(AT_FDCWD, a->spec.log, AT_FDCWD, b->spec.log, RENAME_EXCHANGE) == 0)
        return;
    memcpy(path, a->spec.log, sizeof path);
    memcpy(a->spec.log, b->spec.log, sizeof path);
    memcpy(b->spec.log, path, sizeof path);
}

void child_exchange(struct child *a, struct child *b)
{
    const struct child was = *a;

    take_process(a, b);
    take_process(b, &was);
    exchange_logs(a, b);
}

void child_kill(struct child *c)
{
    if (c->pid != 0)
        kill(-c->pid, SIGKILL);
}

void child_end(struct child *c, const char *why)
{
    snprintf(c->killed_for, sizeof c->killed_for, "%s", why);
    child_kill(c);
}

static bool is_running(pid_t pid, uint64_t ticks)
{
    return ticks != 0 && process_started_ticks(pid) == ticks;
}

enum status child_end_orphan(const struct child *c, struct reason *why)
{
    const struct timespec pause = {.tv_nsec = ORPHAN_POLL_MS * 1000000L};
    int64_t deadline = clock_mono_ms() + ORPHAN_WAIT_MS;
    uint64_t ticks = 0;
    pid_t pid;

    if (c->pid_file[0] == '\0')
        return ST_OK;
    pid = process_of_pid_file(c->pid_file, &ticks);
    if (pid == 0) {
        unlink(c->pid_file);
        return ST_OK;
    }
    kill(pid, c->stop_signal);
    while (is_running(pid, ticks)) {
        if (clock_mono_ms() >= deadline)
            return fail(why, ST_CONFLICT,
                        "%s of an earlier run (pid %d) does not stop: end it and try again",
                        c->spec.name, pid);
        nanosleep(&pause, NULL);
    }
    unlink(c->pid_file);
    return ST_OK;
}
