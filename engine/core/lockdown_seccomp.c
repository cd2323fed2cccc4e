/* The lists of system calls. Both are allow-lists, and the second lies on top of the first: the
 * kernel asks both and takes the stricter answer. What is on neither kills the process. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/size.h"
#include "engine/core/lockdown_parts.h"

/* A call, and what its argument must be for the row to hold. */
struct row {
    int call;
    uint32_t action;
    bool has_compare;
    struct scmp_arg_cmp compare;
};

#define ALLOW(name)                                                                                \
    {                                                                                              \
        .call = SYS_##name, .action = SCMP_ACT_ALLOW                                               \
    }
#define ANSWER(name, error)                                                                        \
    {                                                                                              \
        .call = SYS_##name, .action = SCMP_ACT_ERRNO(error)                                        \
    }
/* Of argument `arg`, the bits of `mask` are `bits`. */
#define BITS(name, act, arg_, mask, bits)                                                          \
    {                                                                                              \
        .call = SYS_##name, .action = act, .has_compare = true, .compare = {                       \
            .arg = arg_,                                                                           \
            .op = SCMP_CMP_MASKED_EQ,                                                              \
            .datum_a = mask,                                                                       \
            .datum_b = bits                                                                        \
        }                                                                                          \
    }
#define EQUAL(name, arg_, value)                                                                   \
    {                                                                                              \
        .call = SYS_##name, .action = SCMP_ACT_ALLOW, .has_compare = true, .compare = {            \
            .arg = arg_,                                                                           \
            .op = SCMP_CMP_EQ,                                                                     \
            .datum_a = value                                                                       \
        }                                                                                          \
    }

#define WRITES  (O_ACCMODE | O_CREAT | O_TRUNC)
#define THREADS (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD)

/* What computing and serving take: memory without code, open descriptors, waiting. */
static const struct row serving[] = {
    /* Gateways' connections, logs, the signal descriptor. */
    ALLOW(accept4),
    ALLOW(recvfrom),
    ALLOW(sendto),
    ALLOW(read),
    ALLOW(write),
    ALLOW(writev),
    ALLOW(close),
    ALLOW(poll),
    ALLOW(lseek),
    /* Memory. */
    ALLOW(brk),
    BITS(mmap, SCMP_ACT_ALLOW, 2, PROT_EXEC, 0),
    BITS(mprotect, SCMP_ACT_ALLOW, 2, PROT_EXEC, 0),
    ALLOW(mremap),
    ALLOW(munmap),
    ALLOW(madvise),
    /* Threads that are there. One that was just made says the first two itself, maybe after the
     * list has become the shorter one. */
    ALLOW(set_robust_list),
    ALLOW(rseq),
    ALLOW(futex),
    ALLOW(sched_yield),
    ALLOW(sched_getaffinity),
    ALLOW(gettid),
    ALLOW(getpid),
    ALLOW(exit),
    ALLOW(exit_group),
    /* Time, where the machine's clock isn't read without the kernel. */
    ALLOW(clock_gettime),
    ALLOW(clock_nanosleep),
    ALLOW(restart_syscall),
    /* libc: malloc's random tag, sort's memory, abort. */
    ALLOW(getrandom),
    ALLOW(sysinfo),
    ALLOW(rt_sigprocmask),
    ALLOW(rt_sigaction),
    ALLOW(rt_sigreturn),
    /* stdio asks whether it writes to a terminal. No other ioctl is answered either. */
    ANSWER(ioctl, ENOTTY),
    ALLOW(fstat),
};

/* On top of `serving` until the device is open and the socket bound. */
static const struct row opening[] = {
    /* The parsers; Landlock says which files. */
    BITS(openat, SCMP_ACT_ALLOW, 2, WRITES, 0),
    BITS(open, SCMP_ACT_ALLOW, 1, WRITES, 0),
    ALLOW(newfstatat),
    ALLOW(pread64),
    /* PCRE2 asks for memory for compiled patterns, and interprets them without. */
    BITS(mmap, SCMP_ACT_ERRNO(EACCES), 2, PROT_EXEC, PROT_EXEC),
    BITS(mprotect, SCMP_ACT_ERRNO(EACCES), 2, PROT_EXEC, PROT_EXEC),
    /* The device's threads. The flags of clone3 lie in memory, where no filter sees them: without
     * it libc takes clone. */
    ANSWER(clone3, ENOSYS),
    BITS(clone, SCMP_ACT_ALLOW, 0, THREADS, THREADS),
    /* The socket was made before. */
    ALLOW(bind),
    ALLOW(listen),
    /* The next steps of the lock: each takes away and gives nothing back. */
    EQUAL(prctl, 0, PR_SET_NO_NEW_PRIVS),
    EQUAL(prctl, 0, PR_CAP_AMBIENT),
    EQUAL(prlimit64, 0, 0),
    ALLOW(capget),
    ALLOW(capset),
    ALLOW(seccomp),
    ALLOW(landlock_create_ruleset),
    ALLOW(landlock_add_rule),
    ALLOW(landlock_restrict_self),
};

/* On top of `serving` from then on. */
static const struct row closed[] = {
    ANSWER(openat, EACCES),
    ANSWER(open, EACCES),
    /* fstat, as libc calls it; no path. */
    BITS(newfstatat, SCMP_ACT_ALLOW, 3, AT_EMPTY_PATH, AT_EMPTY_PATH),
    EQUAL(prlimit64, 2, 0),
};

/* Both lists of a sanitized build. Its leak search stops all threads from a process of its own, for
 * which the program waits without end where the list kills that one; reports read symbols. */
static const struct row sanitized[] = {
    ALLOW(open),
    BITS(openat, SCMP_ACT_ALLOW, 2, WRITES, 0),
    ALLOW(newfstatat),
    ALLOW(stat),
    ALLOW(lstat),
    ALLOW(access),
    ALLOW(readlink),
    ALLOW(readlinkat),
    ALLOW(pread64),
    ALLOW(getdents),
    ALLOW(getdents64),
    ALLOW(clone),
    ALLOW(ptrace),
    ALLOW(wait4),
    ALLOW(kill),
    ALLOW(tgkill),
    ALLOW(prctl),
    ALLOW(getppid),
    ALLOW(sigaltstack),
    ALLOW(nanosleep),
    ALLOW(gettimeofday),
    ALLOW(getrusage),
    ALLOW(prlimit64),
    ALLOW(mincore),
    ALLOW(set_robust_list),
    ALLOW(rseq),
    ALLOW(sched_setaffinity),
    ALLOW(fcntl),
    ALLOW(dup),
    ALLOW(pipe2),
    ALLOW(getuid),
    ALLOW(geteuid),
    ALLOW(uname),
};

static bool is_wider(int call)
{
    for (size_t i = 0; LOCKDOWN_WIDE && i < COUNT_OF(sanitized); i++)
        if (sanitized[i].call == call)
            return true;
    return false;
}

static int add_rows(scmp_filter_ctx ctx, const struct row *rows, size_t n)
{
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++)
        if (rows == sanitized || !is_wider(rows[i].call))
            rc = seccomp_rule_add_array(ctx, rows[i].action, rows[i].call, rows[i].has_compare,
                                        &rows[i].compare);
    return rc;
}

/* abort() signals its own thread, and nobody else may be signalled. */
static int add_abort(scmp_filter_ctx ctx)
{
    const struct row own = EQUAL(tgkill, 0, (scmp_datum_t)getpid());

    return add_rows(ctx, &own, 1);
}

static int set_attributes(scmp_filter_ctx ctx)
{
    static const struct {
        enum scmp_filter_attr attr;
        uint32_t value;
    } attributes[] = {
        {SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS}, /* 32-bit calls */
        {SCMP_FLTATR_API_SYSRAWRC, 1},                    /* errors are the kernel's */
        {SCMP_FLTATR_CTL_NNP, 1},
        {SCMP_FLTATR_CTL_TSYNC, 1},
        /* Kernels before 5.16 turn on mitigations for whoever has a filter, that cost a few per
         * cent of every load after a store; no code of strangers runs here. */
        {SCMP_FLTATR_CTL_SSB, 1},
        {SCMP_FLTATR_CTL_OPTIMIZE, 2}, /* a binary search over the list */
    };
    int rc = 0;

    for (size_t i = 0; i < COUNT_OF(attributes) && rc == 0; i++)
        rc = seccomp_attr_set(ctx, attributes[i].attr, attributes[i].value);
    return rc;
}

static int add_list(scmp_filter_ctx ctx, enum lockdown_list list)
{
    int rc = add_rows(ctx, serving, COUNT_OF(serving));

    if (rc == 0)
        rc = add_abort(ctx);
    if (rc == 0 && list == LOCKDOWN_FIRST)
        rc = add_rows(ctx, opening, COUNT_OF(opening));
    if (rc == 0 && list == LOCKDOWN_FINAL)
        rc = add_rows(ctx, closed, COUNT_OF(closed));
    if (rc == 0 && LOCKDOWN_WIDE)
        rc = add_rows(ctx, sanitized, COUNT_OF(sanitized));
    return rc;
}

int lockdown_seccomp(enum lockdown_list list)
{
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_KILL_PROCESS);
    int rc;

    if (ctx == NULL)
        return ENOMEM;
    rc = set_attributes(ctx);
    if (rc == 0)
        rc = add_list(ctx, list);
    if (rc == 0)
        rc = seccomp_load(ctx);
    seccomp_release(ctx);
    return -rc;
}
