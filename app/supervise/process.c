#include "app/supervise/process.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "app/supervise/files.h"
#include "app/supervise/last_lines.h"

/* ---- in the child ---- */

static bool become(const struct account *a)
{
    if (a == NULL || !a->change)
        return true;
    return setgroups(0, NULL) == 0 && setgid(a->gid) == 0 && setuid(a->uid) == 0;
}

static bool redirect(const struct process_spec *s)
{
    int in = open("/dev/null", O_RDONLY);
    int out = s->log[0] != '\0' ? open(s->log, O_WRONLY | O_CREAT | O_APPEND, 0640) : s->output_fd;

    return in != -1 && out != -1 && dup2(in, STDIN_FILENO) != -1 &&
           dup2(out, STDOUT_FILENO) != -1 && dup2(out, STDERR_FILENO) != -1;
}

static void reset_signals(void)
{
    sigset_t none;

    sigemptyset(&none);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Never returns; what went wrong before exec goes to the parent through `report`. */
static void run_child(const struct process_spec *s, pid_t launcher, int report)
{
    int error;

    setpgid(0, 0);
    reset_signals();
    umask(0077);
    setenv("LC_ALL", "C.UTF-8", 1);
    /* The log is opened before the account changes: it lies in the launcher's folder. The death
     * signal is asked for after it, because a change of account clears it (prctl(2)). */
    if (redirect(s) && become(s->account) && chdir(s->cwd) == 0 &&
        prctl(PR_SET_PDEATHSIG, s->death_signal) == 0) {
        if (getppid() != launcher)
            _exit(1);
        execvp(s->argv[0], (char *const *)s->argv);
    }
    error = errno;
    if (write(report, &error, sizeof error) == -1)
        _exit(1);
    _exit(1);
}

/* ---- in the launcher ---- */

enum status process_start(const struct process_spec *spec, pid_t *out, struct reason *why)
{
    pid_t launcher = getpid(), pid;
    int pipe_fds[2], error = 0;
    ssize_t n;

    if (pipe2(pipe_fds, O_CLOEXEC) == -1)
        return fail(why, ST_IO, "%s: %s", spec->name, strerror(errno));
    pid = fork();
    if (pid == 0)
        run_child(spec, launcher, pipe_fds[1]);
    close(pipe_fds[1]);
    if (pid == -1) {
        close(pipe_fds[0]);
        return fail(why, ST_IO, "%s does not start: %s", spec->name, strerror(errno));
    }
    /* Closed by exec: nothing to read means it runs. */
    do {
        n = read(pipe_fds[0], &error, sizeof error);
    } while (n == -1 && errno == EINTR);
    close(pipe_fds[0]);
    if (n <= 0) {
        *out = pid;
        return ST_OK;
    }
    waitpid(pid, NULL, 0);
    return fail(why, error == ENOENT ? ST_NOT_FOUND : ST_IO, "%s does not start (%s): %s",
                spec->name, spec->argv[0], strerror(error));
}

enum status process_run(const struct process_spec *spec, struct reason *why)
{
    struct last_lines said;
    int status = 0;
    pid_t pid = -1;
    enum status st = process_start(spec, &pid, why);

    if (st != ST_OK)
        return st;
    while (waitpid(pid, &status, 0) == -1)
        if (errno != EINTR)
            return fail(why, ST_IO, "%s: %s", spec->name, strerror(errno));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return ST_OK;
    last_lines_read(&said, spec->log);
    return fail(why, ST_IO, "%s failed: %s", spec->name,
                said.n > 0 ? last_lines_newest(&said) : "no reason given");
}

uint64_t process_started_ticks(pid_t pid)
{
    char path[64], text[1024];
    const char *at;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (pid <= 0 || file_read(path, text, sizeof text) != ST_OK)
        return 0;
    /* The name in parentheses may hold anything: fields are counted from its end. */
    at = strrchr(text, ')');
    if (at == NULL || at[1] != ' ' || at[2] == 'Z')
        return 0;
    for (int field = 2; field < 22 && at != NULL; field++)
        at = strchr(at + 1, ' ');
    return at != NULL ? strtoull(at + 1, NULL, 10) : 0;
}

pid_t process_of_pid_file(const char *path, uint64_t *ticks)
{
    uint64_t started = 0;
    char text[64];
    int pid = 0;

    if (file_read(path, text, sizeof text) != ST_OK ||
        sscanf(text, "%d %" SCNu64, &pid, &started) != 2 || started == 0 ||
        process_started_ticks(pid) != started)
        return 0;
    if (ticks != NULL)
        *ticks = started;
    return pid;
}
