/* usage_summary_write: sums per tenant, model, outcome and currency. */
#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "base/size.h"
#include "billing/billing.h"
#include "billing/report_out.h"

static const char summary_sql[] =
    "SELECT coalesce(t.name, e.tenant_id::text), e.model, e.outcome, e.currency, count(*),"
    "       sum(e.prompt_tokens)::bigint, sum(e.cached_tokens)::bigint,"
    "       sum(e.output_tokens)::bigint, sum(e.cost_nanos)::bigint"
    "  FROM usage_events e LEFT JOIN tenants t ON t.id = e.tenant_id"
    " WHERE ($1::bigint = 0 OR e.tenant_id = $1::bigint)"
    "   AND e.admitted_at >= to_timestamp($2::bigint)"
    "   AND e.admitted_at < to_timestamp($3::bigint)"
    " GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4";

enum { COL_TENANT, COL_MODEL, COL_OUTCOME, COL_CURRENCY, COL_REQUESTS, COL_COST = 8 };

static const char *const names[] = {"tenant",        "model",         "outcome",
                                    "currency",      "requests",      "prompt_tokens",
                                    "cached_tokens", "output_tokens", "cost"};

static void put_table(struct buf *b, const struct pg_result *r)
{
    buf_printf(b, "%-20s %-28s %-12s %10s %14s %14s %14s %18s\n", "tenant", "model", "outcome",
               "requests", "prompt", "cached", "output", "cost");
    for (int i = 0; i < pg_rows(r); i++) {
        char money[MONEY_TEXT_BYTES];

        money_format(pg_int64(r, i, COL_COST), money);
        buf_printf(b, "%-20s %-28s %-12s %10s %14s %14s %14s %18s %s\n", pg_text(r, i, COL_TENANT),
                   pg_text(r, i, COL_MODEL), pg_text(r, i, COL_OUTCOME),
                   pg_text(r, i, COL_REQUESTS), pg_text(r, i, COL_REQUESTS + 1),
                   pg_text(r, i, COL_REQUESTS + 2), pg_text(r, i, COL_REQUESTS + 3), money,
                   pg_text(r, i, COL_CURRENCY));
    }
}

static void put_json_member(struct buf *b, const struct pg_result *r, int row, int col)
{
    char money[MONEY_TEXT_BYTES];

    buf_putc(b, col == 0 ? '{' : ',');
    json_put_cstr(b, names[col]);
    buf_putc(b, ':');
    if (col < COL_REQUESTS) {
        json_put_cstr(b, pg_text(r, row, col));
    } else if (col < COL_COST) {
        buf_puts(b, pg_text(r, row, col));
    } else {
        money_format(pg_int64(r, row, col), money);
        json_put_cstr(b, money);
        buf_printf(b, ",\"cost_nanos\":%s", pg_text(r, row, col));
    }
}

static void put_json(struct buf *b, const struct pg_result *r)
{
    buf_putc(b, '[');
    for (int i = 0; i < pg_rows(r); i++) {
        if (i > 0)
            buf_putc(b, ',');
        for (int col = 0; col < (int)COUNT_OF(names); col++)
            put_json_member(b, r, i, col);
        buf_putc(b, '}');
    }
    buf_puts(b, "]\n");
}

enum status usage_summary_write(struct pg *pg, const struct usage_report *r, int out_fd,
                                struct reason *why)
{
    bool as_json = strcmp(r->format, "json") == 0;
    struct report_out out = {.fd = out_fd};
    struct pg_result *rows = NULL;
    struct report_params params;
    enum status s;

    if (!as_json && strcmp(r->format, "table") != 0)
        return fail(why, ST_INVALID, "format must be table or json");
    s = report_begin(pg, r, &params, why);
    if (s != ST_OK)
        return s;
    s = pg_exec(pg, summary_sql, REPORT_PARAMS, params.values, &rows, why);
    pg_rollback(pg);
    if (s != ST_OK)
        return s;
    buf_init(&out.buf);
    if (as_json)
        put_json(&out.buf, rows);
    else
        put_table(&out.buf, rows);
    pg_result_free(rows);
    s = report_out_flush(&out, true, why);
    buf_dispose(&out.buf);
    return s;
}
