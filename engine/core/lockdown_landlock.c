/* Landlock (landlock(7), linux/landlock.h): which files a process reaches, TCP, and whom it may
 * signal. The kernel's structures and numbers are repeated here: Debian 12's header ends at ABI 3,
 * and libc has no functions. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/size.h"
#include "engine/core/lockdown_parts.h"

#define PATH_BYTES 4096
/* "-00001-of-00002.gguf", as engine/model/gguf_split.c reads it */
#define SPLIT_SUFFIX_BYTES 20
#define SPLIT_PARTS_MAX    1024

#define ASK_VERSION       (1u << 0) /* LANDLOCK_CREATE_RULESET_VERSION */
#define RULE_PATH_BENEATH 1

#define FS_READ_FILE (UINT64_C(1) << 2)
#define FS_READ_DIR  (UINT64_C(1) << 3)
#define FS_MAKE_SOCK (UINT64_C(1) << 9)

struct ruleset_attr {
    uint64_t fs;     /* rights on files; ABI 1 */
    uint64_t net;    /* TCP bind and connect; ABI 4 */
    uint64_t scoped; /* abstract Unix sockets and signals of others; ABI 6 */
};

struct path_rule {
    uint64_t allowed;
    int32_t fd;
} __attribute__((packed));

/* What an ABI knows, all of which is taken away: an unknown bit would be refused. */
static const struct {
    int abi;
    size_t bytes; /* of ruleset_attr */
    struct ruleset_attr rights;
} levels[] = {
    {1, 8, {.fs = (1u << 13) - 1}},
    {2, 8, {.fs = (1u << 14) - 1}},                         /* + moving between folders */
    {3, 8, {.fs = (1u << 15) - 1}},                         /* + truncate */
    {4, 16, {.fs = (1u << 15) - 1, .net = 3}},              /* + TCP */
    {5, 16, {.fs = (1u << 16) - 1, .net = 3}},              /* + ioctl of devices */
    {6, 24, {.fs = (1u << 16) - 1, .net = 3, .scoped = 3}}, /* + scopes */
};

int lockdown_landlock_abi(int *error)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, ASK_VERSION);

    *error = abi == -1 ? errno : 0; /* ENOSYS: not built in; EOPNOTSUPP: not enabled at boot */
    return abi == -1 ? 0 : (int)abi;
}

static int make_ruleset(int abi)
{
    size_t i = COUNT_OF(levels) - 1;

    while (i > 0 && levels[i].abi > abi)
        i--;
    return (int)syscall(SYS_landlock_create_ruleset, &levels[i].rights, levels[i].bytes, 0);
}

/* A path that isn't there needs no right. Links are followed: the right is on what they name. */
static int allow(int ruleset, const char *path, uint64_t rights)
{
    struct path_rule rule = {.allowed = rights};
    struct stat st;
    int error = 0;

    rule.fd = open(path, O_PATH | O_CLOEXEC);
    if (rule.fd == -1)
        return 0;
    if (fstat(rule.fd, &st) == 0 && !S_ISDIR(st.st_mode))
        rule.allowed &= FS_READ_FILE;
    if (syscall(SYS_landlock_add_rule, ruleset, RULE_PATH_BENEATH, &rule, 0) == -1)
        error = errno;
    close(rule.fd);
    return error;
}

/* ---- what the parsers read ---- */

/* "-NNNNN-of-NNNNN.gguf" at the end; 0: no split model. */
static unsigned split_parts(const char *path)
{
    size_t len = strlen(path);
    unsigned number, n = 0;

    if (len <= SPLIT_SUFFIX_BYTES || len >= PATH_BYTES ||
        sscanf(path + len - SPLIT_SUFFIX_BYTES, "-%5u-of-%5u.gguf", &number, &n) != 2)
        return 0;
    return n <= SPLIT_PARTS_MAX ? n : 0;
}

static int allow_parts(int ruleset, const char *path, unsigned n)
{
    int stem = (int)(strlen(path) - SPLIT_SUFFIX_BYTES), error = 0;
    char part[PATH_BYTES];

    for (unsigned i = 1; i <= n && error == 0; i++) {
        snprintf(part, sizeof part, "%.*s-%05u-of-%05u.gguf", stem, path, i, n);
        error = allow(ruleset, part, FS_READ_FILE);
    }
    return error;
}

/* Hugging Face's cache: models--X/snapshots/REVISION/ has links to ../../blobs/. Other links that
 * lead out of a folder are not followed: strangers made it. */
static int allow_blobs(int ruleset, const char *path)
{
    char *real = realpath(path, NULL), *parent, blobs[PATH_BYTES];
    int error = 0;

    if (real == NULL)
        return 0;
    parent = dirname(real);
    if (strcmp(basename(parent), "snapshots") == 0) {
        snprintf(blobs, sizeof blobs, "%s/../blobs", parent);
        error = allow(ruleset, blobs, FS_READ_FILE);
    }
    free(real);
    return error;
}

static int allow_model(int ruleset, const char *path)
{
    int error = allow(ruleset, path, FS_READ_FILE | FS_READ_DIR);

    if (error == 0)
        error = allow_parts(ruleset, path, split_parts(path));
    return error == 0 ? allow_blobs(ruleset, path) : error;
}

/* ---- the rules of a step ---- */

static int allow_socket(int ruleset, const char *path)
{
    char folder[PATH_BYTES];

    if (path == NULL)
        return 0;
    snprintf(folder, sizeof folder, "%s", path);
    return allow(ruleset, dirname(folder), FS_MAKE_SOCK);
}

static int add_rules(int ruleset, const struct lockdown_config *cfg, enum lockdown_files files)
{
    int error = 0;

    /* Reports of sanitizers read the program and its libraries. */
    if (LOCKDOWN_WIDE)
        error = allow(ruleset, "/", FS_READ_FILE | FS_READ_DIR);
    if (error == 0 && files == LOCKDOWN_FILES_OF_PARSER)
        error = allow_model(ruleset, cfg->model_path);
    /* How much memory there is decides how much KV is planned. */
    if (error == 0 && files != LOCKDOWN_FILES_NONE)
        error = allow(ruleset, "/proc/meminfo", FS_READ_FILE);
    if (error == 0 && files != LOCKDOWN_FILES_NONE)
        error = allow_socket(ruleset, cfg->socket_path);
    return error;
}

int lockdown_landlock(const struct lockdown_config *cfg, int abi, enum lockdown_files files)
{
    int ruleset, error;

    /* The leak search of a sanitizer looks from one thread at the others, which a lock of that
     * thread alone forbids. */
    if (LOCKDOWN_WIDE && files == LOCKDOWN_FILES_NONE)
        return 0;
    ruleset = make_ruleset(abi);
    if (ruleset == -1)
        return errno;
    error = add_rules(ruleset, cfg, files);
    if (error == 0 && (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1 ||
                       syscall(SYS_landlock_restrict_self, ruleset, 0) == -1))
        error = errno;
    close(ruleset);
    return error;
}
