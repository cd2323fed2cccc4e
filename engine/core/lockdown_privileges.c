/* Namespaces and capabilities. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/core/lockdown_parts.h"

#define DAC_BITS ((1u << CAP_DAC_OVERRIDE) | (1u << CAP_DAC_READ_SEARCH))
_Static_assert(CAP_DAC_OVERRIDE < 32 && CAP_DAC_READ_SEARCH < 32, "bits of the first word");

/* ---- network ---- */

static bool write_proc(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ssize_t n;

    if (fd == -1)
        return false;
    n = write(fd, text, strlen(text));
    close(fd);
    return n == (ssize_t)strlen(text);
}

/* A user namespace shows ids that nobody mapped as 65534: ours stay what they are
 * (user_namespaces(7)). A failure changes only how ids are shown. */
static void map_own_ids(uid_t uid, gid_t gid)
{
    char text[64];

    snprintf(text, sizeof text, "%u %u 1", uid, uid);
    write_proc("/proc/self/uid_map", text);
    write_proc("/proc/self/setgroups", "deny");
    snprintf(text, sizeof text, "%u %u 1", gid, gid);
    write_proc("/proc/self/gid_map", text);
}

int lockdown_empty_network(void)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();

    if (unshare(CLONE_NEWNET) == 0)
        return 0;
    /* Without the right to that: everyone has it in a user namespace, where the system allows
     * those. In a chroot it doesn't. */
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET) == -1)
        return errno;
    map_own_ids(uid, gid);
    return 0;
}

/* ---- capabilities ---- */

static int set_capabilities(unsigned effective, unsigned permitted)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{.effective = effective, .permitted = permitted}};

    return syscall(SYS_capset, &head, data) == -1 ? errno : 0;
}

static unsigned permitted_capabilities(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};

    return syscall(SYS_capget, &head, data) == -1 ? 0 : data[0].permitted;
}

int lockdown_drop_capabilities(bool keep_dac)
{
    unsigned kept = keep_dac ? permitted_capabilities() & DAC_BITS : 0;
    int error = set_capabilities(kept, kept);

    if (error == 0)
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    return error;
}

static bool may_use(const struct lockdown_config *cfg)
{
    char folder[4096];

    if (faccessat(AT_FDCWD, cfg->model_path, R_OK, AT_EACCESS) == -1)
        return false;
    if (cfg->socket_path == NULL)
        return true;
    snprintf(folder, sizeof folder, "%s", cfg->socket_path);
    return faccessat(AT_FDCWD, dirname(folder), W_OK | X_OK, AT_EACCESS) == 0;
}

bool lockdown_paths_need_dac(const struct lockdown_config *cfg)
{
    unsigned permitted = permitted_capabilities();
    bool may;

    /* Tried without them: effective ones go for the moment, permitted ones stay. */
    if ((permitted & DAC_BITS) == 0 || set_capabilities(0, permitted) != 0)
        return false;
    may = may_use(cfg);
    (void)set_capabilities(permitted & DAC_BITS, permitted);
    return !may && may_use(cfg);
}
