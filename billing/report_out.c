#include "billing/report_out.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "billing/usage_row.h"

#define FLUSH_BYTES 65536
/* One FETCH of a large report on a busy server. */
#define STATEMENT_MS 600000

enum status report_out_flush(struct report_out *o, bool all, struct reason *why)
{
    size_t at = 0;

    if (o->buf.failed)
        return fail(why, ST_NO_MEMORY, "%s", status_text(ST_NO_MEMORY));
    if (!all && o->buf.len < FLUSH_BYTES)
        return ST_OK;
    while (at < o->buf.len) {
        ssize_t n = write(o->fd, o->buf.data + at, o->buf.len - at);

        if (n == -1 && errno == EINTR)
            continue;
        if (n == -1)
            return fail(why, errno == ENOSPC ? ST_NO_SPACE : ST_IO,
                        "the report can't be written: %s", strerror(errno));
        at += (size_t)n;
    }
    buf_clear(&o->buf);
    return ST_OK;
}

void report_put_csv(struct buf *b, const char *s, bool is_text)
{
    bool is_formula;

    if (s == NULL || s[0] == '\0')
        return;
    is_formula = is_text && strchr("=+-@\t\r", s[0]) != NULL;
    if (!is_formula && strpbrk(s, "\",\r\n") == NULL) {
        buf_puts(b, s);
        return;
    }
    buf_puts(b, is_formula ? "\"'" : "\"");
    for (; *s != '\0'; s++) {
        if (*s == '"')
            buf_putc(b, '"');
        buf_putc(b, *s);
    }
    buf_putc(b, '"');
}

static enum status find_tenant(struct pg *pg, const char *name, int64_t *id, struct reason *why)
{
    const char *params[] = {name};
    struct pg_result *r = NULL;
    enum status s;

    *id = 0;
    if (name == NULL)
        return ST_OK;
    s = pg_exec(pg, "SELECT id FROM tenants WHERE name = $1", 1, params, &r, why);
    if (s != ST_OK)
        return s;
    if (pg_rows(r) == 1)
        *id = pg_int64(r, 0, 0);
    else
        s = fail(why, ST_NOT_FOUND, "there is no tenant \"%s\"", name);
    pg_result_free(r);
    return s;
}

static bool is_time(int64_t s)
{
    return s >= 0 && s <= USAGE_TIME_MAX_US / 1000000;
}

static enum status begin_snapshot(struct pg *pg, struct reason *why)
{
    enum status s = pg_begin(pg, why);

    if (s == ST_OK)
        s = pg_exec(pg, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY", 0, NULL, NULL,
                    why);
    if (s == ST_OK)
        s = pg_exec(pg, "SET LOCAL statement_timeout = 0", 0, NULL, NULL, why);
    return s;
}

enum status report_begin(struct pg *pg, const struct usage_report *r, struct report_params *out,
                         struct reason *why)
{
    int64_t tenant = 0, end_s = r->end_s != 0 ? r->end_s : USAGE_TIME_MAX_US / 1000000;
    enum status s;

    if (!is_time(r->start_s) || !is_time(end_s) || r->start_s > end_s)
        return fail(why, ST_INVALID, "the end lies before the start, or a time is out of range");
    pg_set_timeout(pg, STATEMENT_MS);
    s = begin_snapshot(pg, why);
    if (s == ST_OK)
        s = find_tenant(pg, r->tenant, &tenant, why);
    if (s != ST_OK) {
        pg_rollback(pg);
        return s;
    }
    snprintf(out->text[0], sizeof out->text[0], "%" PRId64, tenant);
    snprintf(out->text[1], sizeof out->text[1], "%" PRId64, r->start_s);
    snprintf(out->text[2], sizeof out->text[2], "%" PRId64, end_s);
    for (int i = 0; i < REPORT_PARAMS; i++)
        out->values[i] = out->text[i];
    return ST_OK;
}
