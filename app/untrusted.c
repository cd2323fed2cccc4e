#include "app/untrusted.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/core/lockdown.h"

/* Standard descriptors, the model's folder, and a file in it. */
#define FDS_MAX 16
#define CHUNK   65536

/* The child's exit code where the lock can't be had; run's own are 0 and 1. */
#define EXIT_NOT_LOCKED 100

/* ---- in the child ---- */

static void limit(int resource, rlim_t most)
{
    (void)setrlimit(resource, &(struct rlimit){.rlim_cur = most, .rlim_max = most});
}

static bool lock_in(const struct untrusted_work *w)
{
    struct lockdown l;

    limit(RLIMIT_CPU, w->limits.cpu_s);
    /* A sanitizer's shadow memory is data too, and larger than any limit. */
    if (!lockdown_is_wide())
        limit(RLIMIT_DATA, w->limits.data_bytes);
    /* A namespace and Landlock are had where they are; without seccomp nothing is opened. */
    return lockdown_begin(&l,
                          &(struct lockdown_config){
                              .want = LOCKDOWN_AUTO, .model_path = w->path, .max_fds = FDS_MAX},
                          NULL) == ST_OK &&
           l.seccomp_error == 0;
}

static _Noreturn void run_child(const struct untrusted_work *w, int to_parent)
{
    int code;

    if (dup2(to_parent, STDOUT_FILENO) == -1 || dup2(to_parent, STDERR_FILENO) == -1 || !lock_in(w))
        _exit(EXIT_NOT_LOCKED);
    code = w->run(w->arg);
    exit(code);
}

/* ---- in the parent ---- */

/* ST_TOO_LARGE: it says more than it may. */
static enum status read_all(int fd, size_t most, struct buf *out)
{
    size_t begin = out->len;
    ssize_t n;

    do {
        if (!buf_reserve(out, CHUNK))
            return ST_NO_MEMORY;
        n = read(fd, out->data + out->len, CHUNK);
        if (n > 0)
            out->len += (size_t)n;
        if (out->len - begin > most)
            return ST_TOO_LARGE;
    } while (n > 0 || (n == -1 && errno == EINTR));
    return n == 0 ? ST_OK : ST_IO;
}

/* Nothing steers a terminal: the process that wrote this may not be ours any more. C1 controls are
 * C2 80 to C2 9F in UTF-8. */
static void clean(char *s, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i], before = i > 0 ? (unsigned char)s[i - 1] : 0;

        if ((c < 0x20 && c != '\n') || c == 0x7F || (before == 0xC2 && c < 0xA0 && c >= 0x80))
            s[i] = '?';
    }
}

static enum status explain_death(int sig, const struct untrusted_limits *l, struct reason *why)
{
    switch (sig) {
    case SIGXCPU:
    case SIGKILL: /* what the kernel sends after SIGXCPU, or where memory is out */
        return fail(why, ST_CORRUPT,
                    "the process that read it was stopped (signal %d): it took more than %u s of "
                    "processor time, or the machine's memory",
                    sig, l->cpu_s);
    case SIGSYS:
        return fail(why, ST_CORRUPT,
                    "the process that read it was killed (signal %d): it tried a system call that "
                    "reading a model never makes",
                    sig);
    default:
        return fail(why, ST_CORRUPT, "the process that read it was killed by signal %d (%s)", sig,
                    strsignal(sig));
    }
}

static enum status judge(int status, const struct untrusted_work *w, int *exit_code,
                         struct reason *why)
{
    if (WIFSIGNALED(status))
        return explain_death(WTERMSIG(status), &w->limits, why);
    if (WEXITSTATUS(status) == EXIT_NOT_LOCKED)
        return fail(why, ST_UNSUPPORTED, "this machine can't lock a process in (no seccomp)");
    *exit_code = WEXITSTATUS(status);
    return ST_OK;
}

static enum status attend(pid_t pid, int from_child, const struct untrusted_work *w,
                          struct buf *out, int *exit_code, struct reason *why)
{
    size_t begin = out->len;
    enum status s = read_all(from_child, w->limits.output_bytes, out);
    int status = 0;

    if (s != ST_OK)
        kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) == -1)
        if (errno != EINTR)
            return fail(why, ST_IO, "waiting failed: %s", strerror(errno));
    if (s == ST_TOO_LARGE)
        return fail(why, ST_CORRUPT,
                    "the process that read it was stopped: it said more than %zu bytes",
                    w->limits.output_bytes);
    if (s != ST_OK)
        return fail(why, s, "%s", status_text(s));
    clean(out->data + begin, out->len - begin);
    return judge(status, w, exit_code, why);
}

enum status untrusted_run(const struct untrusted_work *w, struct buf *out, int *exit_code,
                          struct reason *why)
{
    int fds[2];
    enum status s;
    pid_t pid;

    if (pipe2(fds, O_CLOEXEC) == -1)
        return fail(why, ST_IO, "no pipe: %s", strerror(errno));
    fflush(NULL); /* or the child would write it again */
    pid = fork();
    if (pid == 0)
        run_child(w, fds[1]);
    close(fds[1]);
    s = pid == -1 ? fail(why, ST_IO, "no process: %s", strerror(errno))
                  : attend(pid, fds[0], w, out, exit_code, why);
    close(fds[0]);
    return s;
}
