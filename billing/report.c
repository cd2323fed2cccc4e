/* usage_report_write: every usage row of a range, from a cursor over one snapshot, so that neither
 * its size nor rows that arrive meanwhile matter. Stamps are UTC; money is decimal without
 * exponent, beside the exact nano-units. */
#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "base/size.h"
#include "billing/billing.h"
#include "billing/report_out.h"

#define ROWS_PER_FETCH "1000"

/* The columns are those of the table below, in its order. */
static const char declare_sql[] =
    "DECLARE report NO SCROLL CURSOR FOR "
    "SELECT replace(e.id::text, '-', ''),"
    "       to_char(e.admitted_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'),"
    "       to_char(e.ended_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'),"
    "       e.tenant_id, t.name, e.project_id, p.name, coalesce(k.public_id, e.key_id::text),"
    "       e.model, e.endpoint, e.client_request_id, CASE WHEN e.stream THEN 'true' ELSE 'false' "
    "END,"
    "       e.outcome, e.finish_reason, e.prompt_tokens, e.cached_tokens, e.output_tokens, "
    "e.ttft_us,"
    "       e.price_id, e.currency, e.cost_nanos, e.cost_nanos"
    "  FROM usage_events e"
    "  LEFT JOIN tenants t ON t.id = e.tenant_id"
    "  LEFT JOIN projects p ON p.id = e.project_id"
    "  LEFT JOIN api_keys k ON k.id = e.key_id"
    " WHERE ($1::bigint = 0 OR e.tenant_id = $1::bigint)"
    "   AND e.admitted_at >= to_timestamp($2::bigint)"
    "   AND e.admitted_at < to_timestamp($3::bigint)"
    " ORDER BY e.admitted_at, e.id";
static const char fetch_sql[] = "FETCH " ROWS_PER_FETCH " FROM report";

enum kind { KIND_TEXT, KIND_PLAIN /* numbers, booleans */, KIND_MONEY /* of nano-units */ };

static const struct column {
    const char *name;
    enum kind kind;
} columns[] = {
    {"request_id", KIND_TEXT},
    {"admitted_at", KIND_TEXT},
    {"ended_at", KIND_TEXT},
    {"tenant_id", KIND_PLAIN},
    {"tenant", KIND_TEXT},
    {"project_id", KIND_PLAIN},
    {"project", KIND_TEXT},
    {"api_key_id", KIND_TEXT},
    {"model", KIND_TEXT},
    {"endpoint", KIND_TEXT},
    {"client_request_id", KIND_TEXT},
    {"stream", KIND_PLAIN},
    {"outcome", KIND_TEXT},
    {"finish_reason", KIND_TEXT},
    {"prompt_tokens", KIND_PLAIN},
    {"cached_tokens", KIND_PLAIN},
    {"output_tokens", KIND_PLAIN},
    {"ttft_us", KIND_PLAIN},
    {"price_id", KIND_PLAIN},
    {"currency", KIND_TEXT},
    {"cost", KIND_MONEY},
    {"cost_nanos", KIND_PLAIN},
};
enum { COL_PROMPT = 14, COL_CACHED = 15, COL_OUTPUT = 16, COL_CURRENCY = 19, COL_NANOS = 21 };

/* ---- the two formats ---- */

struct report_format {
    const char *name;
    void (*put_head)(struct buf *b);
    void (*put_row)(struct buf *b, const struct pg_result *r, int row);
};

static const char *value(const struct pg_result *r, int row, int col, char money[MONEY_TEXT_BYTES])
{
    const char *text = pg_text(r, row, col);

    if (text == NULL || columns[col].kind != KIND_MONEY)
        return text;
    money_format(pg_int64(r, row, col), money);
    return money;
}

static void put_csv_head(struct buf *b)
{
    for (size_t i = 0; i < COUNT_OF(columns); i++) {
        buf_puts(b, i > 0 ? "," : "");
        buf_puts(b, columns[i].name);
    }
    buf_puts(b, "\r\n");
}

static void put_csv_row(struct buf *b, const struct pg_result *r, int row)
{
    char money[MONEY_TEXT_BYTES];

    for (int i = 0; i < (int)COUNT_OF(columns); i++) {
        if (i > 0)
            buf_putc(b, ',');
        report_put_csv(b, value(r, row, i, money), columns[i].kind == KIND_TEXT);
    }
    buf_puts(b, "\r\n");
}

static void put_no_head(struct buf *b)
{
    (void)b;
}

/* Money is a string: a reader that takes numbers for floats would round it. */
static void put_json_row(struct buf *b, const struct pg_result *r, int row)
{
    char money[MONEY_TEXT_BYTES];

    for (int i = 0; i < (int)COUNT_OF(columns); i++) {
        const char *v = value(r, row, i, money);

        buf_putc(b, i == 0 ? '{' : ',');
        json_put_cstr(b, columns[i].name);
        buf_putc(b, ':');
        if (v == NULL)
            buf_puts(b, "null");
        else if (columns[i].kind == KIND_PLAIN)
            buf_puts(b, v);
        else
            json_put_cstr(b, v);
    }
    buf_puts(b, "}\n");
}

static const struct report_format formats[] = {
    {"csv", put_csv_head, put_csv_row},
    {"jsonl", put_no_head, put_json_row},
};

static const struct report_format *find_format(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(formats); i++)
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    return NULL;
}

/* ---- */

static bool add(int64_t *sum, const struct pg_result *r, int row, int col)
{
    return !__builtin_add_overflow(*sum, pg_int64(r, row, col), sum);
}

static enum status add_totals(struct usage_totals *t, const struct pg_result *r, int row,
                              struct reason *why)
{
    const char *currency = pg_text(r, row, COL_CURRENCY);

    if (t->currency[0] == '\0')
        memcpy(t->currency, currency, sizeof t->currency);
    else if (strcmp(t->currency, currency) != 0)
        t->mixed_currencies = true;
    t->rows++;
    if (!add(&t->prompt_tokens, r, row, COL_PROMPT) ||
        !add(&t->cached_tokens, r, row, COL_CACHED) ||
        !add(&t->output_tokens, r, row, COL_OUTPUT) || !add(&t->cost_nanos, r, row, COL_NANOS))
        return fail(why, ST_TOO_LARGE, "the total is more than a 64-bit number holds");
    return ST_OK;
}

/* The next rows of the cursor; *n 0: the end. */
static enum status write_some(struct pg *pg, const struct report_format *f, struct report_out *out,
                              struct usage_totals *totals, int *n, struct reason *why)
{
    struct pg_result *r = NULL;
    enum status s = pg_exec(pg, fetch_sql, 0, NULL, &r, why);

    if (s != ST_OK)
        return s;
    *n = pg_rows(r);
    for (int i = 0; s == ST_OK && i < *n; i++) {
        f->put_row(&out->buf, r, i);
        s = add_totals(totals, r, i, why);
        if (s == ST_OK)
            s = report_out_flush(out, false, why);
    }
    pg_result_free(r);
    return s;
}

static enum status write_rows(struct pg *pg, const struct report_format *f,
                              const struct report_params *params, struct report_out *out,
                              struct usage_totals *totals, struct reason *why)
{
    enum status s = pg_exec(pg, declare_sql, REPORT_PARAMS, params->values, NULL, why);
    int n = 1;

    f->put_head(&out->buf);
    while (s == ST_OK && n > 0)
        s = write_some(pg, f, out, totals, &n, why);
    if (s == ST_OK)
        s = report_out_flush(out, true, why);
    return s;
}

enum status usage_report_write(struct pg *pg, const struct usage_report *r, int out_fd,
                               struct usage_totals *totals, struct reason *why)
{
    const struct report_format *f = find_format(r->format);
    struct report_out out = {.fd = out_fd};
    struct usage_totals sum = {.rows = 0};
    struct report_params params;
    enum status s;

    if (f == NULL)
        return fail(why, ST_INVALID, "format must be csv or jsonl");
    s = report_begin(pg, r, &params, why);
    if (s != ST_OK)
        return s;
    buf_init(&out.buf);
    s = write_rows(pg, f, &params, &out, &sum, why);
    pg_rollback(pg);
    buf_dispose(&out.buf);
    if (s == ST_OK)
        *totals = sum;
    return s;
}
