#include "app/up/layout.h"

#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include "app/supervise/files.h"

/* sun_path holds 108 bytes with its NUL (unix(7)); the longest name we put behind the folder. */
#define SOCKET_PATH_MAX     107
#define LONGEST_SOCKET_NAME "/postgres/.s.PGSQL.5432"

const char *layout_path(const struct layout *l, const char *name, char *out)
{
    snprintf(out, LAYOUT_PATH_MAX, "%s/%s", l->dir, name);
    return out;
}

enum status layout_open(struct layout *l, const char *dir, struct reason *why)
{
    char real[PATH_MAX];
    enum status st;

    if (dir[0] == '\0')
        return fail(why, ST_INVALID, "the folder's name is empty");
    st = folder_make(dir, 0755, why);
    if (st != ST_OK)
        return st;
    if (realpath(dir, real) == NULL)
        return fail(why, ST_IO, "%s: %s", dir, strerror(errno));
    if (strlen(real) >= sizeof l->dir)
        return fail(why, ST_TOO_LARGE, "%s: the path is longer than %zu bytes", dir,
                    sizeof l->dir - 1);
    memcpy(l->dir, real, strlen(real) + 1);
    return ST_OK;
}

/* ---- accounts ---- */

/* Debian's packages bring an account for each server. */
static struct account account_of(const char *name)
{
    struct account a = {.change = true};
    const struct passwd *p = getpwnam(name);

    if (p == NULL)
        p = getpwnam("nobody");
    a.uid = p != NULL ? p->pw_uid : 65534;
    a.gid = p != NULL ? p->pw_gid : 65534;
    return a;
}

/* Asked of the kernel by a child that is that account: mode bits, groups, ACLs and mounts all
 * count. */
static bool can_reach(const struct account *a, const char *path)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0) {
        if (setgroups(0, NULL) == -1 || setgid(a->gid) == -1 || setuid(a->uid) == -1)
            _exit(1);
        _exit(access(path, X_OK) == 0 ? 0 : 1);
    }
    return pid != -1 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

static uint64_t hash_of(const struct layout *l)
{
    return XXH3_64bits(l->dir, strlen(l->dir));
}

static enum status choose_home(struct layout *l, struct reason *why)
{
    snprintf(l->home, sizeof l->home, "%s", l->dir);
    if (geteuid() != 0)
        return ST_OK;
    l->postgres = account_of("postgres");
    l->redis = account_of("redis");
    if (can_reach(&l->postgres, l->dir) && can_reach(&l->redis, l->dir))
        return ST_OK;
    snprintf(l->home, sizeof l->home, "/var/lib/sluice-%016" PRIx64, hash_of(l));
    return folder_make(l->home, 0755, why);
}

/* ---- sockets ---- */

/* /tmp is everybody's: the folder must be one that we made, not a link, and closed to others. */
static enum status check_ours(const char *path, struct reason *why)
{
    struct stat s;

    if (lstat(path, &s) == -1)
        return fail(why, ST_IO, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(s.st_mode) || s.st_uid != geteuid() || (s.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return fail(why, ST_CONFLICT,
                    "%s is not a folder of this user alone: remove it, or use a shorter folder",
                    path);
    return ST_OK;
}

/* Root's is passed through by the databases' accounts; nobody can list it. */
static enum status make_sockets(struct layout *l, struct reason *why)
{
    mode_t mode = geteuid() == 0 ? 0711 : 0700;
    enum status st;

    snprintf(l->sockets, sizeof l->sockets, "%s/sock", l->home);
    if (strlen(l->sockets) + strlen(LONGEST_SOCKET_NAME) > SOCKET_PATH_MAX)
        snprintf(l->sockets, sizeof l->sockets, "/tmp/sluice-%u-%016" PRIx64, (unsigned)geteuid(),
                 hash_of(l));
    st = folder_make(l->sockets, mode, why);
    return st == ST_OK ? check_ours(l->sockets, why) : st;
}

/* ---- folders ---- */

static enum status make_for(const struct account *a, const char *path, struct reason *why)
{
    enum status st = folder_make(path, 0700, why);

    if (st != ST_OK || !a->change)
        return st;
    if (lchown(path, a->uid, a->gid) == -1)
        return fail(why, ST_IO, "%s: %s", path, strerror(errno));
    return ST_OK;
}

static void name_parts(struct layout *l)
{
    snprintf(l->postgres_data, sizeof l->postgres_data, "%s/postgres", l->home);
    snprintf(l->redis_data, sizeof l->redis_data, "%s/redis", l->home);
    snprintf(l->postgres_sockets, sizeof l->postgres_sockets, "%.500s/postgres", l->sockets);
    snprintf(l->redis_socket, sizeof l->redis_socket, "%.500s/redis/redis.sock", l->sockets);
    snprintf(l->engine_socket, sizeof l->engine_socket, "%.500s/engine.sock", l->sockets);
    layout_path(l, "journal", l->journal);
    layout_path(l, "log", l->log);
    layout_path(l, "run", l->run);
}

/* A link to where the databases lie, so that whoever looks in DIR finds them. What stands there
 * already tells of a folder that was moved or closed since: a new cluster beside the old one would
 * look like lost data. */
static enum status link_one(const struct layout *l, const char *name, struct reason *why)
{
    char link[LAYOUT_PATH_MAX], to[LAYOUT_PATH_MAX], old[LAYOUT_PATH_MAX];
    ssize_t n = readlink(layout_path(l, name, link), old, sizeof old - 1);

    snprintf(to, sizeof to, "%s/%s", l->home, name);
    if (n == -1 && file_exists(link))
        return fail(why, ST_CONFLICT,
                    "the accounts postgres and redis can't reach %s any more: let others enter the "
                    "folders above it again",
                    l->dir);
    if (n == -1)
        return symlink(to, link) == 0 ? ST_OK : fail(why, ST_IO, "%s: %s", link, strerror(errno));
    old[n] = '\0';
    if (strcmp(old, to) != 0)
        return fail(why, ST_CONFLICT,
                    "%s was moved: its data is in %s; move that to %s and remove %s", l->dir, old,
                    to, link);
    return ST_OK;
}

static enum status link_home(const struct layout *l, struct reason *why)
{
    enum status st = ST_OK;

    if (strcmp(l->home, l->dir) == 0)
        return ST_OK;
    st = link_one(l, "postgres", why);
    return st == ST_OK ? link_one(l, "redis", why) : st;
}

static enum status make_folders(const struct layout *l, struct reason *why)
{
    char redis_sockets[LAYOUT_PATH_MAX];
    enum status st = folder_make(l->log, 0750, why);

    snprintf(redis_sockets, sizeof redis_sockets, "%.500s/redis", l->sockets);
    if (st == ST_OK)
        st = folder_make(l->run, 0700, why);
    if (st == ST_OK)
        st = folder_make(l->journal, 0700, why);
    if (st == ST_OK)
        st = make_for(&l->redis, l->redis_data, why);
    if (st == ST_OK)
        st = make_for(&l->redis, redis_sockets, why);
    if (st == ST_OK)
        st = make_for(&l->postgres, l->postgres_sockets, why);
    return st;
}

enum status layout_make(struct layout *l, struct reason *why)
{
    enum status st = choose_home(l, why);

    if (st == ST_OK)
        st = make_sockets(l, why);
    if (st != ST_OK)
        return st;
    name_parts(l);
    st = link_home(l, why);
    return st == ST_OK ? make_folders(l, why) : st;
}
