#include "store/migrate.h"

#include <ctype.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/id.h"
#include "base/size.h"

#define PREFIX    "migrations/"
#define FILES_MAX 1000
/* Any number that no other program locks in this database: "sluice" in ASCII. */
#define LOCK_KEY "126918412526437"

#define SQL_SETTINGS "SET statement_timeout = 0"
#define SQL_LOCK     "SELECT pg_advisory_lock(" LOCK_KEY ")"
#define SQL_UNLOCK   "SELECT pg_advisory_unlock(" LOCK_KEY ")"
#define SQL_EXISTS   "SELECT to_regclass('schema_migrations') IS NOT NULL"
#define SQL_CREATE                                                                                 \
    "CREATE TABLE IF NOT EXISTS schema_migrations ("                                               \
    " version integer PRIMARY KEY, name text NOT NULL, sha256 text NOT NULL,"                      \
    " applied_at timestamptz NOT NULL DEFAULT now())"
#define SQL_APPLIED "SELECT version, name, sha256 FROM schema_migrations ORDER BY version"
#define SQL_RECORD  "INSERT INTO schema_migrations (version, name, sha256) VALUES ($1, $2, $3)"
/* As long as another program's migration may take. */
#define LOCK_TIMEOUT_MS 600000

struct migration {
    int version;
    const char *name;
    const char *sql;
    char sha256[2 * SHA256_DIGEST_LENGTH + 1];
};

struct plan {
    struct migration files[FILES_MAX]; /* by version */
    size_t n;
    size_t n_applied; /* the first so many are in the database */
};

/* ---- the binary's files ---- */

/* NNNN of "migrations/NNNN_name.sql"; -1 for any other name. */
static int version_of(const char *name)
{
    const char *digits = name + strlen(PREFIX);

    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0)
        return -1;
    for (int i = 0; i < 4; i++)
        if (!isdigit((unsigned char)digits[i]))
            return -1;
    return digits[4] == '_' ? (int)strtol(digits, NULL, 10) : -1;
}

static int by_version(const void *a, const void *b)
{
    return ((const struct migration *)a)->version - ((const struct migration *)b)->version;
}

static enum status read_files(struct plan *p, const struct embedded_file *files, struct reason *why)
{
    for (const struct embedded_file *f = files; f->name != NULL; f++) {
        struct migration *m = &p->files[p->n];
        unsigned char digest[SHA256_DIGEST_LENGTH];
        int version = version_of(f->name);

        if (version == -1)
            continue;
        if (p->n == FILES_MAX - 1)
            return fail(why, ST_TOO_LARGE, "more than %d migrations", FILES_MAX - 1);
        SHA256((const unsigned char *)f->data, (size_t)(f->end - f->data), digest);
        *m = (struct migration){.version = version, .name = f->name, .sql = f->data};
        hex_encode(digest, sizeof digest, m->sha256);
        p->n++;
    }
    qsort(p->files, p->n, sizeof p->files[0], by_version);
    for (size_t i = 0; i < p->n; i++)
        if (p->files[i].version != (int)i + 1)
            return fail(why, ST_INTERNAL, "%s: expected number %04zu", p->files[i].name, i + 1);
    return ST_OK;
}

/* ---- the database ---- */

static enum status compare(struct plan *p, const struct pg_result *applied, struct reason *why)
{
    int rows = pg_rows(applied);

    for (int i = 0; i < rows; i++) {
        const struct migration *m = &p->files[i];

        if ((size_t)i >= p->n)
            return fail(why, ST_CONFLICT,
                        "the database has %s, which this program does not know: it is newer",
                        pg_text(applied, i, 1));
        if (pg_int64(applied, i, 0) != m->version || strcmp(pg_text(applied, i, 2), m->sha256) != 0)
            return fail(why, ST_CONFLICT,
                        "%s was applied with other content: an applied migration never changes",
                        pg_text(applied, i, 1));
    }
    p->n_applied = (size_t)rows;
    return ST_OK;
}

static enum status read_applied(struct pg *pg, struct plan *p, struct reason *why)
{
    struct pg_result *exists = NULL, *applied = NULL;
    enum status s = pg_exec(pg, SQL_EXISTS, 0, NULL, &exists, why);

    if (s == ST_OK && pg_bool(exists, 0, 0))
        s = pg_exec(pg, SQL_APPLIED, 0, NULL, &applied, why);
    if (s == ST_OK && applied != NULL)
        s = compare(p, applied, why);
    pg_result_free(applied);
    pg_result_free(exists);
    return s;
}

static enum status run_migration(struct pg *pg, const struct migration *m, struct reason *why)
{
    char version[12];
    const char *params[] = {version, m->name, m->sha256};
    enum status s;

    snprintf(version, sizeof version, "%d", m->version);
    s = pg_begin(pg, why);
    if (s != ST_OK)
        return s;
    s = pg_exec_script(pg, m->sql, why);
    if (s == ST_OK)
        s = pg_exec(pg, SQL_RECORD, COUNT_OF(params), params, NULL, why);
    if (s == ST_OK)
        return pg_commit(pg, why);
    pg_rollback(pg);
    return s;
}

static enum status run_missing(struct pg *pg, struct plan *p,
                               void (*on_applied)(void *arg, const char *name), void *arg,
                               struct reason *why)
{
    for (; p->n_applied < p->n; p->n_applied++) {
        const struct migration *m = &p->files[p->n_applied];
        struct reason detail = {{0}, {0}};
        enum status s = run_migration(pg, m, &detail);

        if (s != ST_OK)
            return fail(why, s, "%s: %.200s", m->name, detail.text);
        if (on_applied != NULL)
            on_applied(arg, m->name);
    }
    return ST_OK;
}

static enum status lock(struct pg *pg, struct reason *why)
{
    enum status s;

    pg_set_timeout(pg, LOCK_TIMEOUT_MS);
    s = pg_exec(pg, SQL_SETTINGS, 0, NULL, NULL, why);
    if (s == ST_OK)
        s = pg_exec(pg, SQL_LOCK, 0, NULL, NULL, why);
    return s;
}

static void unlock(struct pg *pg)
{
    /* A lost connection has given the lock back by itself. */
    enum status ignored = pg_exec(pg, SQL_UNLOCK, 0, NULL, NULL, NULL);

    (void)ignored;
    pg_set_timeout(pg, 0);
}

static enum status new_plan(const struct embedded_file *files, struct plan **out,
                            struct reason *why)
{
    struct plan *p = calloc(1, sizeof *p);
    enum status s;

    if (p == NULL) {
        fail(why, ST_NO_MEMORY, "out of memory");
        return ST_NO_MEMORY;
    }
    s = read_files(p, files, why);
    if (s != ST_OK)
        free(p);
    else
        *out = p;
    return s;
}

enum status migrate(struct pg *pg, const struct embedded_file *files,
                    void (*on_applied)(void *arg, const char *name), void *arg, int *n_applied,
                    struct reason *why)
{
    struct plan *p = NULL;
    size_t before;
    enum status s = new_plan(files, &p, why);

    *n_applied = 0;
    if (s != ST_OK)
        return s;
    s = lock(pg, why);
    if (s != ST_OK)
        goto out;
    s = read_applied(pg, p, why);
    before = p->n_applied;
    if (s == ST_OK)
        s = pg_exec(pg, SQL_CREATE, 0, NULL, NULL, why);
    if (s == ST_OK)
        s = run_missing(pg, p, on_applied, arg, why);
    *n_applied = (int)(p->n_applied - before);
    unlock(pg);
out:
    free(p);
    return s;
}

enum status migrate_check(struct pg *pg, const struct embedded_file *files, struct reason *why)
{
    struct plan *p = NULL;
    enum status s = new_plan(files, &p, why);

    if (s != ST_OK)
        return s;
    s = read_applied(pg, p, why);
    if (s == ST_OK && p->n_applied < p->n)
        s = fail(why, ST_CONFLICT, "the database lacks %s: run sluice migrate --config FILE",
                 p->files[p->n_applied].name);
    free(p);
    return s;
}
