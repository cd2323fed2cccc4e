#include "billing/prices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANY_MODEL "*"
/* A price list of this size is a mistake; reading it every few seconds would be another. */
#define PRICES_MAX "100000"

/* Byte order (C), because find() compares bytes. */
static const char load_sql[] =
    "SELECT p.id, p.model, p.input_nanos, p.cached_nanos, p.output_nanos, p.request_nanos,"
    "       p.currency, floor(extract(epoch FROM p.effective_from) * 1000000)::bigint"
    "  FROM prices p"
    " WHERE p.effective_from > now()"
    "    OR p.effective_from = (SELECT max(c.effective_from) FROM prices c"
    "                            WHERE c.model = p.model AND c.effective_from <= now())"
    " ORDER BY p.model COLLATE \"C\", p.effective_from DESC LIMIT " PRICES_MAX;

void prices_init(struct prices *p)
{
    memset(p, 0, sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
}

void prices_dispose(struct prices *p)
{
    pthread_mutex_destroy(&p->lock);
    free(p->rows);
}

void prices_replace(struct prices *p, struct price_row *rows, size_t n)
{
    struct price_row *old;

    pthread_mutex_lock(&p->lock);
    old = p->rows;
    p->rows = rows;
    p->n = n;
    p->is_loaded = true;
    pthread_mutex_unlock(&p->lock);
    free(old);
}

static void read_row(const struct pg_result *r, int i, struct price_row *out)
{
    out->price.id = pg_int64(r, i, 0);
    snprintf(out->model, sizeof out->model, "%s", pg_text(r, i, 1));
    out->price.input_nanos = pg_int64(r, i, 2);
    out->price.cached_nanos = pg_int64(r, i, 3);
    out->price.output_nanos = pg_int64(r, i, 4);
    out->price.request_nanos = pg_int64(r, i, 5);
    snprintf(out->price.currency, sizeof out->price.currency, "%s", pg_text(r, i, 6));
    out->effective_from_us = pg_int64(r, i, 7);
}

enum status prices_load(struct prices *p, struct pg *pg, struct reason *why)
{
    struct pg_result *r = NULL;
    struct price_row *rows;
    enum status s = pg_exec(pg, load_sql, 0, NULL, &r, why);
    int n;

    if (s != ST_OK)
        return s;
    n = pg_rows(r);
    rows = calloc((size_t)n + 1, sizeof *rows);
    if (rows == NULL) {
        pg_result_free(r);
        return ST_NO_MEMORY;
    }
    for (int i = 0; i < n; i++)
        read_row(r, i, &rows[i]);
    pg_result_free(r);
    prices_replace(p, rows, (size_t)n);
    return ST_OK;
}

/* The first row of `model`, by bisection; n when there is none. */
static size_t first_of(const struct prices *p, const char *model)
{
    size_t low = 0, high = p->n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (strcmp(p->rows[mid].model, model) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static bool find(const struct prices *p, const char *model, int64_t now_us, struct price *out)
{
    for (size_t i = first_of(p, model); i < p->n && strcmp(p->rows[i].model, model) == 0; i++) {
        if (p->rows[i].effective_from_us <= now_us) {
            *out = p->rows[i].price;
            return true;
        }
    }
    return false;
}

enum status prices_find(struct prices *p, const char *model, int64_t now_us, struct price *out)
{
    enum status s = ST_OK;

    pthread_mutex_lock(&p->lock);
    if (!p->is_loaded)
        s = ST_UNAVAILABLE;
    else if (!find(p, model, now_us, out) && !find(p, ANY_MODEL, now_us, out))
        s = ST_NOT_FOUND;
    pthread_mutex_unlock(&p->lock);
    return s;
}
