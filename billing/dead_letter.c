#include "billing/dead_letter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/size.h"
#include "billing/billing.h"
#include "billing/report_out.h"
#include "billing/usage_insert.h"

/* Before every request's id. */
#define NIL_UUID "00000000-0000-0000-0000-000000000000"

/* Hexadecimal: a bytea takes any bytes, whatever they were refused for. */
static const char put_sql[] = "INSERT INTO usage_dead_letters (request_id, row, reason)"
                              " VALUES ($1::uuid, decode($2, 'hex'), $3)"
                              " ON CONFLICT (request_id) DO NOTHING";

enum status dead_letter_put(struct pg *pg, const struct id *request, const struct buf *json,
                            const char *reason, struct reason *why)
{
    char uuid[ID_UUID_BYTES];
    char *hex = malloc(2 * json->len + 1);
    const char *params[] = {uuid, hex, reason};
    enum status s;

    if (hex == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory");
    hex_encode(json->data, json->len, hex);
    id_to_uuid(request, uuid);
    s = pg_exec(pg, put_sql, COUNT_OF(params), params, NULL, why);
    free(hex);
    return s;
}

/* ---- showing them ---- */

/* A page of them, by id: ids are in the order of their requests. */
static const char list_sql[] =
    "SELECT request_id, replace(request_id::text, '-', ''),"
    "       to_char(refused_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'),"
    "       to_char(tried_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'),"
    "       tries, reason, encode(row, 'escape')"
    "  FROM usage_dead_letters WHERE request_id > $1::uuid ORDER BY request_id LIMIT 500";
enum { LIST_UUID, LIST_ID, LIST_REFUSED, LIST_TRIED, LIST_TRIES, LIST_REASON, LIST_ROW };

static void put_member(struct buf *b, const char *name, const char *text)
{
    json_put_cstr(b, name);
    buf_putc(b, ':');
    json_put_cstr(b, text);
    buf_putc(b, ',');
}

static void put_letter(struct buf *b, const struct pg_result *r, int i)
{
    buf_putc(b, '{');
    put_member(b, "request_id", pg_text(r, i, LIST_ID));
    put_member(b, "refused_at", pg_text(r, i, LIST_REFUSED));
    put_member(b, "tried_at", pg_text(r, i, LIST_TRIED));
    put_member(b, "reason", pg_text(r, i, LIST_REASON));
    put_member(b, "row", pg_text(r, i, LIST_ROW));
    buf_printf(b, "\"tries\":%s}\n", pg_text(r, i, LIST_TRIES));
}

/* `after` goes on to the page's last; *n 0: the end. */
static enum status write_page(struct pg *pg, struct report_out *out, char after[ID_UUID_BYTES],
                              int *n, struct reason *why)
{
    const char *params[] = {after};
    struct pg_result *r = NULL;
    enum status s = pg_exec(pg, list_sql, COUNT_OF(params), params, &r, why);

    if (s != ST_OK)
        return s;
    *n = pg_rows(r);
    for (int i = 0; i < *n; i++)
        put_letter(&out->buf, r, i);
    if (*n > 0)
        snprintf(after, ID_UUID_BYTES, "%s", pg_text(r, *n - 1, LIST_UUID));
    pg_result_free(r);
    return report_out_flush(out, true, why);
}

enum status dead_letters_write(struct pg *pg, int out_fd, int64_t *n, struct reason *why)
{
    char after[ID_UUID_BYTES] = NIL_UUID;
    struct report_out out = {.fd = out_fd};
    enum status s = ST_OK;
    int page = 1;

    *n = 0;
    buf_init(&out.buf);
    while (s == ST_OK && page > 0) {
        s = write_page(pg, &out, after, &page, why);
        *n += s == ST_OK ? page : 0;
    }
    buf_dispose(&out.buf);
    return s;
}

enum status dead_letters_count(struct pg *pg, int64_t *n, struct reason *why)
{
    struct pg_result *r = NULL;
    enum status s = pg_exec(pg, "SELECT count(*) FROM usage_dead_letters", 0, NULL, &r, why);

    if (s != ST_OK)
        return s;
    *n = pg_int64(r, 0, 0);
    pg_result_free(r);
    return ST_OK;
}

/* ---- posting them after all ---- */

static const char next_sql[] = "SELECT request_id FROM usage_dead_letters"
                               " WHERE request_id > $1::uuid ORDER BY request_id LIMIT 1";
/* Locked, so that two retries at once come one after the other. */
static const char rows_sql[] = "SELECT '[' || convert_from(row, 'UTF8') || ']'"
                               "  FROM usage_dead_letters WHERE request_id = $1::uuid FOR UPDATE";
static const char partition_sql[] = "SELECT usage_partition(admitted_at)"
                                    "  FROM jsonb_to_recordset($1::jsonb)"
                                    "       AS r(admitted_at timestamptz)";
static const char delete_sql[] = "DELETE FROM usage_dead_letters WHERE request_id = $1::uuid";
static const char tried_sql[] = "UPDATE usage_dead_letters"
                                "   SET tries = tries + 1, tried_at = now(), reason = $2"
                                " WHERE request_id = $1::uuid";

/* The row itself, in the caller's transaction. *is_there false: another retry was faster. */
static enum status move(struct pg *pg, const char *uuid, bool *is_there, struct reason *why)
{
    const char *by_id[] = {uuid}, *rows[1];
    struct pg_result *r = NULL;
    enum status s = pg_exec(pg, rows_sql, 1, by_id, &r, why);

    *is_there = s == ST_OK && pg_rows(r) == 1;
    if (*is_there) {
        rows[0] = pg_text(r, 0, 0);
        s = pg_exec(pg, partition_sql, 1, rows, NULL, why);
        if (s == ST_OK)
            s = usage_insert(pg, rows[0], why);
        if (s == ST_OK)
            s = pg_exec(pg, delete_sql, 1, by_id, NULL, why);
    }
    pg_result_free(r);
    return s;
}

static enum status retry_one(struct pg *pg, const char *uuid, struct dead_letter_retry *out,
                             struct reason *why)
{
    struct reason refusal = {.text = ""};
    const char *params[] = {uuid, refusal.text};
    bool is_there;
    enum status s = pg_begin(pg, why);

    if (s != ST_OK)
        return s;
    s = move(pg, uuid, &is_there, &refusal);
    if (s == ST_OK) {
        s = pg_commit(pg, why);
        out->posted += s == ST_OK && is_there;
        return s;
    }
    pg_rollback(pg);
    if (!usage_is_refused(pg, s))
        return fail(why, s, "%s", refusal.text);
    out->refused++;
    return pg_exec(pg, tried_sql, COUNT_OF(params), params, NULL, why);
}

/* The one after `uuid`, into it; *found false: it was the last. */
static enum status next(struct pg *pg, char uuid[ID_UUID_BYTES], bool *found, struct reason *why)
{
    const char *params[] = {uuid};
    struct pg_result *r = NULL;
    enum status s = pg_exec(pg, next_sql, COUNT_OF(params), params, &r, why);

    *found = s == ST_OK && pg_rows(r) == 1;
    if (*found)
        snprintf(uuid, ID_UUID_BYTES, "%s", pg_text(r, 0, 0));
    pg_result_free(r);
    return s;
}

enum status dead_letters_retry(struct pg *pg, struct dead_letter_retry *out, struct reason *why)
{
    char uuid[ID_UUID_BYTES] = NIL_UUID;
    bool found;
    enum status s;

    *out = (struct dead_letter_retry){.posted = 0};
    do {
        s = next(pg, uuid, &found, why);
        if (s == ST_OK && found)
            s = retry_one(pg, uuid, out, why);
    } while (s == ST_OK && found);
    return s;
}
