#include "auth/lookup.h"

#include <stdio.h>
#include <string.h>

/* A client waits for this: shorter than the pool's ordinary patience. */
#define LOOKUP_TIMEOUT_MS 2000

static const char sql_lookup[] =
    "SELECT n.position, k.id, k.tenant_id, k.project_id, k.scopes, t.weight,"
    " k.requests_per_min, k.tokens_per_min, k.concurrency,"
    " p.requests_per_min, p.tokens_per_min, p.concurrency,"
    " t.requests_per_min, t.tokens_per_min, t.concurrency,"
    " encode(k.mac, 'hex'), k.pepper_id,"
    " coalesce(floor(extract(epoch FROM k.expires_at) * 1000), 0)::bigint,"
    " k.disabled_at IS NOT NULL, p.disabled_at IS NOT NULL, t.disabled_at IS NOT NULL, k.priority"
    " FROM change_counter n"
    " LEFT JOIN api_keys k ON k.public_id = $1"
    " LEFT JOIN projects p ON p.id = k.project_id"
    " LEFT JOIN tenants t ON t.id = k.tenant_id";

static struct auth_limits limits_at(const struct pg_result *r, int col)
{
    return (struct auth_limits){.requests_per_min = pg_int64(r, 0, col),
                                .tokens_per_min = pg_int64(r, 0, col + 1),
                                .concurrency = pg_int64(r, 0, col + 2)};
}

static void read_hex(const char *hex, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned byte = 0;

        sscanf(hex + 2 * i, "%2x", &byte);
        out[i] = (uint8_t)byte;
    }
}

static void read_record(const struct pg_result *r, const char *public_id, struct key_record *out)
{
    struct principal *p = &out->principal;

    memset(out, 0, sizeof *out);
    p->key_id = pg_int64(r, 0, 1);
    p->tenant_id = pg_int64(r, 0, 2);
    p->project_id = pg_int64(r, 0, 3);
    p->scopes = (uint32_t)pg_int64(r, 0, 4);
    p->weight = (uint32_t)pg_int64(r, 0, 5);
    p->key = limits_at(r, 6);
    p->project = limits_at(r, 9);
    p->tenant = limits_at(r, 12);
    snprintf(p->key_public_id, sizeof p->key_public_id, "%s", public_id);
    read_hex(pg_text(r, 0, 15), out->mac, sizeof out->mac); /* 32 bytes by the table's check */
    snprintf(out->pepper_id, sizeof out->pepper_id, "%s", pg_text(r, 0, 16));
    out->expires_at_ms = pg_int64(r, 0, 17);
    out->key_disabled = pg_bool(r, 0, 18);
    out->project_disabled = pg_bool(r, 0, 19);
    out->tenant_disabled = pg_bool(r, 0, 20);
    p->priority = (uint32_t)pg_int64(r, 0, 21);
}

enum status lookup_key(struct pg *pg, const char *public_id, bool *found, struct key_record *out,
                       int64_t *position)
{
    const char *params[] = {public_id};
    struct pg_result *r = NULL;
    enum status s;

    pg_set_timeout(pg, LOOKUP_TIMEOUT_MS);
    s = pg_exec(pg, sql_lookup, 1, params, &r, NULL);
    pg_set_timeout(pg, 0);
    if (s != ST_OK)
        return s;
    if (pg_rows(r) != 1) { /* change_counter has exactly one row */
        pg_result_free(r);
        return ST_INTERNAL;
    }
    *position = pg_int64(r, 0, 0);
    *found = pg_text(r, 0, 1) != NULL;
    if (*found)
        read_record(r, public_id, out);
    pg_result_free(r);
    return ST_OK;
}
