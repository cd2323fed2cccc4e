#include "app/up/postgres.h"

#include <glob.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/supervise/files.h"
#include "store/pg.h"

#define BIN_PATTERN "/usr/lib/postgresql/*/bin/postgres"
/* Fast shutdown waits for a checkpoint. */
#define STOP_MS 30000

/* Authentication is "trust" on purpose. The socket's folder and the data lie in folders of mode
 * 0700 that belong to the server's account, so whoever could connect (that account, and root) could
 * read and change the files as well: a password or an ident map would guard nothing more, and would
 * be one more secret to keep. There is no TCP port. The gateway's role owns its database and is no
 * superuser. */
static const char *const settings[] = {
    "listen_addresses=",
    "port=5432",
    "unix_socket_permissions=0700",
    "shared_buffers=64MB",
    "max_connections=40",
    "max_wal_size=256MB",
    "max_wal_senders=0",
    "wal_level=minimal",
    "synchronous_commit=on",
    "huge_pages=off",
    "jit=off",
    "logging_collector=off",
    "log_destination=stderr",
    "timezone=UTC",
    "log_timezone=UTC",
};

/* ---- programs ---- */

static int major_of(const char *path)
{
    int major = 0;

    return sscanf(path, "/usr/lib/postgresql/%d/", &major) == 1 ? major : 0;
}

/* Of a version or pid file of the server's; 0: none. */
static int leading_number(const char *text)
{
    long n = strtol(text, NULL, 10);

    return n > 0 && n <= INT_MAX ? (int)n : 0;
}

static int cluster_major(const struct layout *l)
{
    char path[LAYOUT_PATH_MAX + 16], text[16];

    snprintf(path, sizeof path, "%s/PG_VERSION", l->postgres_data);
    return file_read(path, text, sizeof text) == ST_OK ? leading_number(text) : 0;
}

/* wanted 0: the newest. Returns what was found, 0 for nothing. */
static int find_major(int wanted)
{
    glob_t found = {0};
    int best = 0;

    if (glob(BIN_PATTERN, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++) {
            int major = major_of(found.gl_pathv[i]);

            if (wanted == 0 ? major > best : major == wanted)
                best = major;
        }
    globfree(&found);
    return best;
}

enum status postgres_find(struct postgres *p, const struct layout *l, struct reason *why)
{
    int wanted = cluster_major(l);

    p->layout = l;
    p->major = find_major(wanted);
    if (p->major == 0 && wanted != 0)
        return fail(why, ST_NOT_FOUND,
                    "%s was made by PostgreSQL %d, which is not installed: install postgresql-%d, "
                    "or use another folder",
                    l->postgres_data, wanted, wanted);
    if (p->major == 0)
        return fail(why, ST_NOT_FOUND,
                    "PostgreSQL's server is not installed: install the package postgresql");
    snprintf(p->bin, sizeof p->bin, "/usr/lib/postgresql/%d/bin", p->major);
    snprintf(p->program, sizeof p->program, "%s/postgres", p->bin);
    return ST_OK;
}

/* ---- the cluster ---- */

static enum status run_initdb(const struct postgres *p, const char *folder, struct reason *why)
{
    const struct layout *l = p->layout;
    char program[288];
    const char *const argv[] = {program,
                                "-D",
                                folder,
                                "-U",
                                "postgres",
                                "--auth=trust",
                                "--encoding=UTF8",
                                "--locale=C",
                                "--data-checksums",
                                NULL};
    struct process_spec spec = {.name = "initdb",
                                .argv = argv,
                                .account = &l->postgres,
                                .cwd = folder,
                                .death_signal = SIGKILL};

    snprintf(program, sizeof program, "%s/initdb", p->bin);
    snprintf(spec.log, sizeof spec.log, "%.600s/initdb.log", l->log);
    return process_run(&spec, why);
}

/* A pid in postmaster.pid that now belongs to another program of the same account keeps a server
 * from starting; that it is a stale one shows in the process's folder. */
static void drop_stale_lock(const struct layout *l)
{
    char path[LAYOUT_PATH_MAX + 16], text[32], cwd[32];
    struct stat its, ours;

    snprintf(path, sizeof path, "%s/postmaster.pid", l->postgres_data);
    if (file_read(path, text, sizeof text) != ST_OK)
        return;
    snprintf(cwd, sizeof cwd, "/proc/%d/cwd", leading_number(text));
    if (stat(cwd, &its) == -1 || stat(l->postgres_data, &ours) == -1)
        return; /* no such process: the server itself knows that case */
    if (its.st_dev != ours.st_dev || its.st_ino != ours.st_ino)
        unlink(path);
}

/* Made beside its place and renamed when whole, so that a start that is cut short leaves no half
 * cluster behind. */
enum status postgres_make_cluster(struct postgres *p, struct reason *why)
{
    const struct layout *l = p->layout;
    char beside[LAYOUT_PATH_MAX + 8];
    enum status st;

    if (cluster_major(l) != 0) {
        drop_stale_lock(l);
        return ST_OK;
    }
    if (file_exists(l->postgres_data))
        return fail(why, ST_CONFLICT, "%s is there but is no PostgreSQL cluster: move it away",
                    l->postgres_data);
    snprintf(beside, sizeof beside, "%s.new", l->postgres_data);
    st = folder_remove(beside, why);
    if (st == ST_OK)
        st = folder_make(beside, 0700, why);
    if (st != ST_OK)
        return st;
    if (l->postgres.change && chown(beside, l->postgres.uid, l->postgres.gid) == -1)
        return fail(why, ST_IO, "%s: its owner can't be set", beside);
    st = run_initdb(p, beside, why);
    if (st == ST_OK && rename(beside, l->postgres_data) == -1)
        st = fail(why, ST_IO, "%s can't be renamed", beside);
    p->made = st == ST_OK;
    return st;
}

/* ---- the server ---- */

/* Parallel queries share memory through /dev/shm, which a bare chroot may lack. */
static const char *shared_memory_type(void)
{
    struct stat s;

    return stat("/dev/shm", &s) == 0 && S_ISDIR(s.st_mode) && (s.st_mode & S_IWOTH) != 0
               ? "dynamic_shared_memory_type=posix"
               : "dynamic_shared_memory_type=mmap";
}

void postgres_child(struct postgres *p, struct child *c)
{
    const struct layout *l = p->layout;
    size_t n = 0;

    snprintf(p->socket_option, sizeof p->socket_option, "unix_socket_directories=%s",
             l->postgres_sockets);
    p->argv[n++] = p->program;
    p->argv[n++] = "-D";
    p->argv[n++] = l->postgres_data;
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        p->argv[n++] = "-c";
        p->argv[n++] = settings[i];
    }
    p->argv[n++] = "-c";
    p->argv[n++] = shared_memory_type();
    p->argv[n++] = "-c";
    p->argv[n++] = p->socket_option;
    p->argv[n] = NULL;
    c->spec.name = "PostgreSQL";
    c->spec.argv = p->argv;
    c->spec.account = &l->postgres;
    c->spec.death_signal = SIGINT; /* fast shutdown */
    c->stop_signal = SIGINT;
    c->stop_ms = STOP_MS;
    c->spec.cwd = l->postgres_data;
}

/* The server writes its state as the last line of postmaster.pid ("ready   "), as pg_ctl reads it:
 * no connection attempts that fail. */
bool postgres_is_ready(const struct postgres *p)
{
    char path[LAYOUT_PATH_MAX + 16], text[2048];
    const char *line;

    snprintf(path, sizeof path, "%s/postmaster.pid", p->layout->postgres_data);
    if (file_read(path, text, sizeof text) != ST_OK)
        return false;
    line = strrchr(text, '\n');
    return line != NULL && strcmp(line + 1, "ready") == 0;
}

/* ---- role and database ---- */

/* libpq: a value in quotes, with backslashes before quotes and backslashes. */
static void put_conninfo(const struct layout *l, const char *user, const char *database, char *out)
{
    char quoted[2 * LAYOUT_PATH_MAX];
    size_t n = 0;

    for (const char *s = l->postgres_sockets; *s != '\0' && n < sizeof quoted - 2; s++) {
        if (*s == '\'' || *s == '\\')
            quoted[n++] = '\\';
        quoted[n++] = *s;
    }
    quoted[n] = '\0';
    snprintf(out, POSTGRES_CONNINFO_MAX, "host=%s%s%s user=%s dbname=%s",
             strpbrk(quoted, " '\\") != NULL ? "'" : "", quoted,
             strpbrk(quoted, " '\\") != NULL ? "'" : "", user, database);
}

void postgres_conninfo(const struct layout *l, char *out)
{
    put_conninfo(l, "sluice", "sluice", out);
}

static enum status make_missing(struct pg *pg, const char *ask, const char *make,
                                struct reason *why)
{
    struct pg_result *r = NULL;
    enum status st = pg_exec(pg, ask, 0, NULL, &r, why);
    bool there = st == ST_OK && pg_rows(r) > 0;

    pg_result_free(r);
    return st != ST_OK || there ? st : pg_exec(pg, make, 0, NULL, NULL, why);
}

enum status postgres_make_database(const struct postgres *p, struct reason *why)
{
    char conninfo[POSTGRES_CONNINFO_MAX];
    struct pg *pg = NULL;
    enum status st;

    put_conninfo(p->layout, "postgres", "postgres", conninfo);
    st = pg_open(conninfo, &pg, why);
    if (st != ST_OK)
        return st;
    st = make_missing(pg, "SELECT 1 FROM pg_roles WHERE rolname = 'sluice'",
                      "CREATE ROLE sluice LOGIN", why);
    if (st == ST_OK)
        st = make_missing(pg, "SELECT 1 FROM pg_database WHERE datname = 'sluice'",
                          "CREATE DATABASE sluice OWNER sluice", why);
    pg_close(pg);
    return st;
}
