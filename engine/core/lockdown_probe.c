#include "engine/core/lockdown_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/size.h"

/* Exit codes of a child; errnos go from 1 to 133. */
#define EXIT_ESCAPED    0
#define EXIT_NOT_LOCKED 255

/* ---- the ways out ---- */

static int result_of(long rc)
{
    return rc == -1 ? errno : 0;
}

static int try_inet(const struct lockdown_targets *t)
{
    (void)t;
    return result_of(socket(AF_INET, SOCK_STREAM, 0));
}

static int try_unix(const struct lockdown_targets *t)
{
    (void)t;
    return result_of(socket(AF_UNIX, SOCK_STREAM, 0));
}

static int try_connect(const struct lockdown_targets *t)
{
    struct sockaddr_in a = {.sin_family = AF_INET};

    (void)t;
    return result_of(connect(STDIN_FILENO, (const struct sockaddr *)&a, sizeof a));
}

static int try_execve(const struct lockdown_targets *t)
{
    char *const none[] = {NULL};

    (void)t;
    return result_of(execve("/bin/true", none, none)); /* which exits with 0: it got out */
}

static int try_fork(const struct lockdown_targets *t)
{
    (void)t;
    return result_of(syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL));
}

static int try_read(const struct lockdown_targets *t)
{
    return result_of(open(t->secret_path, O_RDONLY));
}

static int try_write(const struct lockdown_targets *t)
{
    return result_of(open(t->write_path, O_WRONLY));
}

static int try_create(const struct lockdown_targets *t)
{
    (void)t;
    return result_of(open("/tmp", O_TMPFILE | O_RDWR, 0600));
}

static int try_unlink(const struct lockdown_targets *t)
{
    return result_of(unlink(t->write_path));
}

static int try_list(const struct lockdown_targets *t)
{
    (void)t;
    return result_of(open("/", O_RDONLY | O_DIRECTORY));
}

static int try_ptrace(const struct lockdown_targets *t)
{
    (void)t;
    return result_of(ptrace(PTRACE_SEIZE, getppid(), NULL, NULL));
}

static int try_read_memory(const struct lockdown_targets *t)
{
    static char here[8];
    struct iovec to = {here, sizeof here}, from = {here, sizeof here};

    (void)t;
    return result_of(process_vm_readv(getppid(), &to, 1, &from, 1, 0));
}

static int try_signal(const struct lockdown_targets *t)
{
    (void)t;
    return result_of(kill(getppid(), 0));
}

static int try_signal_thread(const struct lockdown_targets *t)
{
    (void)t;
    return result_of(syscall(SYS_tgkill, getpid() + 1, getpid() + 1, 0));
}

static int try_map_code(const struct lockdown_targets *t)
{
    (void)t;
    return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED
               ? errno
               : 0;
}

static int try_make_code(const struct lockdown_targets *t)
{
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    (void)t;
    return p == MAP_FAILED ? 0 : result_of(mprotect(p, 4096, PROT_READ | PROT_EXEC));
}

static int try_memfd(const struct lockdown_targets *t)
{
    (void)t;
    return result_of(memfd_create("x", 0));
}

static int try_ioctl(const struct lockdown_targets *t)
{
    (void)t;
    return result_of(ioctl(STDIN_FILENO, FIOCLEX)); /* which every file answers */
}

static int try_namespace(const struct lockdown_targets *t)
{
    (void)t;
    return result_of(unshare(CLONE_NEWUSER));
}

static int try_io_uring(const struct lockdown_targets *t)
{
    char params[120] = {0}; /* struct io_uring_params */

    (void)t;
    return result_of(syscall(SYS_io_uring_setup, 1, params));
}

const struct lockdown_probe lockdown_probes[] = {
    {"socket(AF_INET)", try_inet, 0, 0},
    {"socket(AF_UNIX)", try_unix, 0, 0},
    {"connect", try_connect, 0, 0},
    {"execve", try_execve, 0, 0},
    {"fork", try_fork, 0, 0},
    {"read the configuration", try_read, EACCES, EACCES},
    {"list a folder", try_list, EACCES, EACCES},
    {"open for writing", try_write, 0, 0},
    {"create a file", try_create, 0, 0},
    {"remove a file", try_unlink, 0, 0},
    {"memfd_create", try_memfd, 0, 0},
    {"ptrace the parent", try_ptrace, 0, 0},
    {"read the parent's memory", try_read_memory, 0, 0},
    {"signal the parent", try_signal, 0, 0},
    {"tgkill another process", try_signal_thread, 0, 0},
    {"map executable memory", try_map_code, 0, EACCES},
    {"make memory executable", try_make_code, 0, EACCES},
    {"ioctl", try_ioctl, ENOTTY, ENOTTY},
    {"unshare", try_namespace, 0, 0},
    {"io_uring", try_io_uring, 0, 0},
};
const size_t lockdown_probes_count = COUNT_OF(lockdown_probes);

/* ---- trying ---- */

static _Noreturn void run_child(const struct lockdown_probe *p, const struct lockdown_targets *t,
                                int (*lock)(void *arg), void *arg)
{
    if (lock(arg) != 0)
        _exit(EXIT_NOT_LOCKED);
    _exit(p->attempt(t)); /* 0: EXIT_ESCAPED */
}

static struct lockdown_result result_from(int status)
{
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
        return (struct lockdown_result){LOCKDOWN_KILLED, 0};
    if (WIFSIGNALED(status))
        return (struct lockdown_result){LOCKDOWN_BROKEN, WTERMSIG(status)};
    if (WEXITSTATUS(status) == EXIT_NOT_LOCKED)
        return (struct lockdown_result){LOCKDOWN_BROKEN, 0};
    if (WEXITSTATUS(status) == EXIT_ESCAPED)
        return (struct lockdown_result){LOCKDOWN_ESCAPED, 0};
    return (struct lockdown_result){LOCKDOWN_REFUSED, WEXITSTATUS(status)};
}

struct lockdown_result lockdown_probe_run(const struct lockdown_probe *p,
                                          const struct lockdown_targets *t, int (*lock)(void *arg),
                                          void *arg)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0)
        run_child(p, t, lock, arg);
    if (pid == -1)
        return (struct lockdown_result){LOCKDOWN_BROKEN, 0};
    while (waitpid(pid, &status, 0) == -1)
        if (errno != EINTR)
            return (struct lockdown_result){LOCKDOWN_BROKEN, 0};
    return result_from(status);
}

bool lockdown_probe_held(const struct lockdown_result *r, int want)
{
    if (want == 0)
        return r->outcome == LOCKDOWN_KILLED;
    return r->outcome == LOCKDOWN_REFUSED && r->error == want;
}
