#include "engine/core/lockdown.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/size.h"
#include "engine/core/lockdown_parts.h"

/* ---- what was inherited ---- */

/* The values, too: they lie in the process's memory, and /proc/PID/environ shows them. */
static void forget_environment(void)
{
    for (char **e = environ; e != NULL && *e != NULL; e++)
        explicit_bzero(*e, strlen(*e));
    clearenv();
}

static int lowest_kept(const struct lockdown_config *cfg, int from)
{
    int lowest = -1;

    for (size_t i = 0; i < cfg->n_keep_fds; i++)
        if (cfg->keep_fds[i] >= from && (lowest == -1 || cfg->keep_fds[i] < lowest))
            lowest = cfg->keep_fds[i];
    return lowest;
}

/* As close_range(2), for kernels before 5.9. */
static void close_range_fds(int from, int to)
{
    struct rlimit most;

    if (syscall(SYS_close_range, from, to, 0) == 0 || getrlimit(RLIMIT_NOFILE, &most) == -1)
        return;
    for (int fd = from; fd <= to && (rlim_t)fd < most.rlim_cur; fd++)
        close(fd);
}

static void close_inherited(const struct lockdown_config *cfg)
{
    int from = STDERR_FILENO + 1, kept;

    while ((kept = lowest_kept(cfg, from)) != -1) {
        if (kept > from)
            close_range_fds(from, kept - 1);
        from = kept + 1;
    }
    close_range_fds(from, INT32_MAX);
}

/* ---- limits ---- */

static void limit(int resource, rlim_t most)
{
    const struct rlimit r = {.rlim_cur = most, .rlim_max = most};
    struct rlimit now;

    if (getrlimit(resource, &now) == 0 && now.rlim_max < most)
        return; /* stricter already */
    /* Only ever downwards, which everyone may. */
    (void)setrlimit(resource, &r);
}

static bool is_file(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

static void set_limits(const struct lockdown_config *cfg)
{
    limit(RLIMIT_CORE, 0); /* it would hold prompts */
    limit(RLIMIT_NOFILE, cfg->max_fds);
    limit(RLIMIT_MEMLOCK, 0);
    limit(RLIMIT_MSGQUEUE, 0);
    /* A log in a file must grow; into a pipe or a terminal it has no size. */
    if (!is_file(STDERR_FILENO) && !is_file(STDOUT_FILENO))
        limit(RLIMIT_FSIZE, 0);
}

/* ---- the steps ---- */

/* Libraries that read files at their first use do it now: libcrypto its configuration, libc the
 * time zone. */
static void prepare_libraries(void)
{
    tzset();
    OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CONFIG, NULL);
}

/* What can't be had is remembered for lockdown_describe, and only refused where it is demanded. */
static enum status check(const struct lockdown *l, int error, const char *what, struct reason *why)
{
    if (error == 0 || l->cfg.want != LOCKDOWN_REQUIRE)
        return ST_OK;
    return fail(why, ST_UNSUPPORTED,
                "engine.lockdown is \"require\", and this machine doesn't give the engine %s: %s",
                what, strerror(error));
}

static enum status add_landlock(struct lockdown *l, enum lockdown_files files, struct reason *why)
{
    if (l->landlock_abi > 0)
        l->landlock_error = lockdown_landlock(&l->cfg, l->landlock_abi, files);
    if (l->landlock_error != 0)
        l->landlock_abi = 0;
    return check(l, l->landlock_error, "Landlock", why);
}

static enum status add_seccomp(struct lockdown *l, enum lockdown_list list, struct reason *why)
{
    if (l->seccomp_error == 0)
        l->seccomp_error = lockdown_seccomp(list);
    return check(l, l->seccomp_error, "seccomp", why);
}

enum status lockdown_begin(struct lockdown *l, const struct lockdown_config *cfg,
                           struct reason *why)
{
    enum status s;

    *l = (struct lockdown){.cfg = *cfg};
    if (cfg->want == LOCKDOWN_OFF)
        return ST_OK;
    prepare_libraries();
    close_inherited(cfg);
    forget_environment();
    /* Before the capabilities go, and before the process can't write its own /proc files. */
    l->netns_error = lockdown_empty_network();
    s = check(l, l->netns_error, "an empty network namespace", why);
    if (s != ST_OK)
        return s;
    l->keeps_dac = lockdown_paths_need_dac(cfg);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1 ||
        lockdown_drop_capabilities(l->keeps_dac) != 0)
        return fail(why, ST_INTERNAL, "privileges can't be dropped: %s", strerror(errno));
    set_limits(cfg);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    l->landlock_abi = lockdown_landlock_abi(&l->landlock_error);
    s = add_landlock(l, LOCKDOWN_FILES_OF_PARSER, why);
    return s == ST_OK ? add_seccomp(l, LOCKDOWN_FIRST, why) : s;
}

enum status lockdown_parsed(struct lockdown *l, struct reason *why)
{
    if (l->cfg.want == LOCKDOWN_OFF)
        return ST_OK;
    return add_landlock(l, LOCKDOWN_FILES_OF_DEVICE, why);
}

enum status lockdown_finish(struct lockdown *l, struct reason *why)
{
    enum status s;

    if (l->cfg.want == LOCKDOWN_OFF)
        return ST_OK;
    s = add_landlock(l, LOCKDOWN_FILES_NONE, why);
    /* Threads count; those that exist stay. The kernel exempts root. */
    limit(RLIMIT_NPROC, 0);
    if (lockdown_drop_capabilities(false) != 0)
        return fail(why, ST_INTERNAL, "capabilities can't be dropped");
    return s == ST_OK ? add_seccomp(l, LOCKDOWN_FINAL, why) : s;
}

/* ---- what holds ---- */

static void put_switch(char *out, size_t size, int error)
{
    const char *name = strerrorname_np(error);

    if (error == 0)
        snprintf(out, size, "on");
    else
        snprintf(out, size, "off(%s)", name != NULL ? name : "?");
}

void lockdown_describe(const struct lockdown *l, char *out, size_t size)
{
    char seccomp[24], landlock[24], netns[24];

    if (l->cfg.want == LOCKDOWN_OFF) {
        snprintf(out, size, "off");
        return;
    }
    put_switch(seccomp, sizeof seccomp, l->seccomp_error);
    put_switch(netns, sizeof netns, l->netns_error);
    put_switch(landlock, sizeof landlock, l->landlock_error);
    if (l->landlock_abi > 0)
        snprintf(landlock, sizeof landlock, "abi%d", l->landlock_abi);
    snprintf(out, size, "seccomp=%s landlock=%s netns=%s no_new_privs=on capabilities=%s%s",
             seccomp, landlock, netns, l->keeps_dac ? "dac" : "none",
             lockdown_is_wide() ? " build=sanitized" : "");
}

bool lockdown_is_wide(void)
{
    return LOCKDOWN_WIDE;
}
