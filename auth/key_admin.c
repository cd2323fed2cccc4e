/* Keys as an administrator makes and changes them: blocking, on a connection of the caller's. */
#include "auth/auth.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "auth/keys.h"
#include "base/id.h"
#include "base/size.h"
#include "base/utf8.h"

#define LIMIT_MAX       100000000
#define CONCURRENCY_MAX 1000000
#define NAME_CHARS_MAX  63
#define LABEL_BYTES_MAX 200
#define INT_TEXT_BYTES  24

static const char sql_tenant_add[] =
    "INSERT INTO tenants (name) VALUES ($1) ON CONFLICT (name) DO NOTHING";
static const char sql_tenant_find[] = "SELECT id FROM tenants WHERE name = $1";
static const char sql_tenant_limits[] =
    "UPDATE tenants SET requests_per_min = coalesce($2, requests_per_min),"
    " tokens_per_min = coalesce($3, tokens_per_min), concurrency = coalesce($4, concurrency)"
    " WHERE id = $1";
static const char sql_project_add[] = "INSERT INTO projects (tenant_id, name) VALUES ($1, $2)"
                                      " ON CONFLICT (tenant_id, name) DO NOTHING";
static const char sql_project_find[] = "SELECT id FROM projects WHERE tenant_id = $1 AND name = $2";
static const char sql_key_add[] =
    "INSERT INTO api_keys (tenant_id, project_id, public_id, mac, pepper_id, name, scopes,"
    " requests_per_min, tokens_per_min, concurrency, expires_at, priority)"
    " VALUES ($1, $2, $3, decode($4, 'hex'), $5, $6, $7, $8, $9, $10, to_timestamp($11::bigint),"
    " $12)";
static const char sql_key_list[] =
    "SELECT k.public_id, k.name, t.name, p.name, k.scopes,"
    " k.requests_per_min, k.tokens_per_min, k.concurrency,"
    " CASE WHEN k.disabled_at IS NOT NULL THEN 'disabled'"
    "  WHEN k.expires_at <= now() THEN 'expired' ELSE 'active' END,"
    " to_char(k.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'),"
    " to_char(k.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'), k.priority"
    " FROM api_keys k JOIN projects p ON p.id = k.project_id JOIN tenants t ON t.id = k.tenant_id"
    " WHERE $1::text IS NULL OR t.name = $1 ORDER BY k.id";

static const struct {
    const char *action, *sql;
} updates[] = {
    {"disable",
     "UPDATE api_keys SET disabled_at = coalesce(disabled_at, now()) WHERE public_id = $1"},
    {"enable", "UPDATE api_keys SET disabled_at = NULL WHERE public_id = $1"},
    {"expire", "UPDATE api_keys SET expires_at = least(expires_at, now()) WHERE public_id = $1"},
};

/* ---- what may be asked for ---- */

/* As the tables' checks have it; here so that the answer can name the field. */
static enum status check_name(const char *what, const char *name, struct reason *why)
{
    static const char first[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    static const char rest[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t len = strlen(name);

    if (len == 0 || len > NAME_CHARS_MAX || strchr(first, name[0]) == NULL ||
        strspn(name, rest) != len)
        return fail_param(why, ST_INVALID, what,
                          "%s: up to %d letters, digits and . _ - (not first)", what,
                          NAME_CHARS_MAX);
    return ST_OK;
}

static enum status check_limits(const char *whose, const struct auth_limits *l, int64_t min,
                                struct reason *why)
{
    const struct {
        int64_t value, max;
        const char *name;
    } limits[] = {{l->requests_per_min, LIMIT_MAX, "rpm"},
                  {l->tokens_per_min, LIMIT_MAX, "tpm"},
                  {l->concurrency, CONCURRENCY_MAX, "concurrency"}};

    for (size_t i = 0; i < COUNT_OF(limits); i++)
        if (limits[i].value < min || limits[i].value > limits[i].max)
            return fail_param(why, ST_INVALID, limits[i].name,
                              "%s's %s must be between 0 (none) and %" PRId64, whose,
                              limits[i].name, limits[i].max);
    return ST_OK;
}

/* A label is printed in lists: a control character in it would be an order to the terminal. */
static enum status check_label(const char *label, struct reason *why)
{
    size_t len = strlen(label);
    uint32_t cp;

    if (len > LABEL_BYTES_MAX)
        return fail_param(why, ST_INVALID, "name", "name: at most %d bytes", LABEL_BYTES_MAX);
    for (size_t i = 0; i < len;) {
        int n = utf8_decode(label + i, len - i, &cp);

        if (n <= 0 || cp < 0x20 || (cp >= 0x7F && cp < 0xA0))
            return fail_param(why, ST_INVALID, "name", "name: UTF-8 without control characters");
        i += (size_t)n;
    }
    return ST_OK;
}

static enum status check_spec(const struct key_spec *spec, struct reason *why)
{
    enum status s = check_name("tenant", spec->tenant, why);

    if (s == ST_OK)
        s = check_name("project", spec->project, why);
    if (s == ST_OK)
        s = check_limits("the key", &spec->key_limits, 0, why);
    if (s == ST_OK)
        s = check_limits("the tenant", &spec->tenant_limits, -1, why);
    if (s == ST_OK)
        s = check_label(spec->name, why);
    if (s == ST_OK && (spec->scopes == 0 || spec->scopes > SCOPES_ALL))
        s = fail_param(why, ST_INVALID, "scopes", "scopes: at least one");
    if (s == ST_OK && spec->priority > KEY_PRIORITY_LOW)
        s = fail_param(why, ST_INVALID, "priority", "priority: high, normal or low");
    return s;
}

/* ---- create ---- */

static const char *int_text(char out[INT_TEXT_BYTES], int64_t v)
{
    snprintf(out, INT_TEXT_BYTES, "%" PRId64, v);
    return out;
}

/* Makes the row if it is missing; its id as text. */
static enum status find_or_add(struct pg *pg, const char *sql_add, const char *sql_find, int n,
                               const char *const *params, char out_id[INT_TEXT_BYTES],
                               struct reason *why)
{
    struct pg_result *r = NULL;
    enum status s = pg_exec(pg, sql_add, n, params, NULL, why);

    if (s == ST_OK)
        s = pg_exec(pg, sql_find, n, params, &r, why);
    if (s != ST_OK)
        return s;
    if (pg_rows(r) == 1)
        int_text(out_id, pg_int64(r, 0, 0));
    else
        s = fail(why, ST_CONFLICT, "it was removed at the same moment, try again");
    pg_result_free(r);
    return s;
}

static enum status set_tenant_limits(struct pg *pg, const char *tenant_id,
                                     const struct auth_limits *l, struct reason *why)
{
    const int64_t limits[] = {l->requests_per_min, l->tokens_per_min, l->concurrency};
    char texts[COUNT_OF(limits)][INT_TEXT_BYTES];
    const char *params[1 + COUNT_OF(limits)] = {tenant_id};
    bool any = false;

    for (size_t i = 0; i < COUNT_OF(limits); i++) {
        params[1 + i] = limits[i] >= 0 ? int_text(texts[i], limits[i]) : NULL;
        any = any || limits[i] >= 0;
    }
    return any ? pg_exec(pg, sql_tenant_limits, COUNT_OF(params), params, NULL, why) : ST_OK;
}

static enum status add_key(struct pg *pg, const char *pepper, const struct key_spec *spec,
                           const char *tenant_id, const char *project_id, const char *key,
                           struct reason *why)
{
    const char *public_id, *secret;
    size_t public_id_len, secret_len;
    uint8_t mac[KEY_MAC_BYTES];
    char id[KEY_PUBLIC_ID_CHARS + 1], mac_hex[2 * KEY_MAC_BYTES + 1];
    char pepper_id[PEPPER_ID_CHARS + 1], ints[6][INT_TEXT_BYTES];
    const char *params[] = {
        tenant_id,
        project_id,
        id,
        mac_hex,
        pepper_id,
        spec->name,
        int_text(ints[0], spec->scopes),
        int_text(ints[1], spec->key_limits.requests_per_min),
        int_text(ints[2], spec->key_limits.tokens_per_min),
        int_text(ints[3], spec->key_limits.concurrency),
        spec->expires_at_s != 0 ? int_text(ints[4], spec->expires_at_s) : NULL,
        int_text(ints[5], spec->priority),
    };

    if (!key_parse(key, strlen(key), &public_id, &public_id_len, &secret, &secret_len))
        return fail(why, ST_INTERNAL, "a fresh key is not well-formed");
    snprintf(id, sizeof id, "%.*s", (int)public_id_len, public_id);
    key_mac(pepper, secret, secret_len, mac);
    hex_encode(mac, sizeof mac, mac_hex);
    key_pepper_id(pepper, pepper_id);
    return pg_exec(pg, sql_key_add, COUNT_OF(params), params, NULL, why);
}

static enum status add_all(struct pg *pg, const char *pepper, const struct key_spec *spec,
                           const char *key, struct reason *why)
{
    char tenant_id[INT_TEXT_BYTES], project_id[INT_TEXT_BYTES];
    const char *tenant[] = {spec->tenant};
    const char *project[] = {tenant_id, spec->project};
    enum status s = find_or_add(pg, sql_tenant_add, sql_tenant_find, 1, tenant, tenant_id, why);

    if (s == ST_OK)
        s = set_tenant_limits(pg, tenant_id, &spec->tenant_limits, why);
    if (s == ST_OK)
        s = find_or_add(pg, sql_project_add, sql_project_find, 2, project, project_id, why);
    if (s == ST_OK)
        s = add_key(pg, pepper, spec, tenant_id, project_id, key, why);
    return s;
}

enum status key_create(struct pg *pg, const char *pepper, const struct key_spec *spec,
                       char *out_key, char *out_public_id, struct reason *why)
{
    char key[KEY_TEXT_BYTES] = "";
    enum status s = check_spec(spec, why);

    if (s == ST_OK && !key_pepper_is_valid(pepper))
        s = fail(why, ST_INVALID, "the pepper must be at least %d hex digits", PEPPER_CHARS_MIN);
    if (s == ST_OK)
        s = pg_begin(pg, why);
    if (s != ST_OK)
        return s;
    key_make(key);
    s = add_all(pg, pepper, spec, key, why);
    if (s != ST_OK) {
        pg_rollback(pg);
        return s;
    }
    s = pg_commit(pg, why);
    if (s != ST_OK)
        return s;
    memcpy(out_key, key, sizeof key);
    snprintf(out_public_id, KEY_PUBLIC_ID_CHARS + 1, "%.*s", KEY_PUBLIC_ID_CHARS,
             key + sizeof KEY_PREFIX - 1);
    return ST_OK;
}

/* ---- change and list ---- */

enum status key_update(struct pg *pg, const char *public_id, const char *action, struct reason *why)
{
    const char *params[] = {public_id};
    struct pg_result *r = NULL;
    enum status s;
    size_t i = 0;

    while (i < COUNT_OF(updates) && strcmp(updates[i].action, action) != 0)
        i++;
    if (i == COUNT_OF(updates))
        return fail(why, ST_INVALID, "an action is disable, enable or expire");
    s = pg_exec(pg, updates[i].sql, 1, params, &r, why);
    if (s != ST_OK)
        return s;
    if (pg_affected(r) == 0)
        s = fail(why, ST_NOT_FOUND, "there is no key with this public id");
    pg_result_free(r);
    return s;
}

static struct key_info info_at(const struct pg_result *r, int row)
{
    return (struct key_info){.public_id = pg_text(r, row, 0),
                             .name = pg_text(r, row, 1),
                             .tenant = pg_text(r, row, 2),
                             .project = pg_text(r, row, 3),
                             .scopes = (uint32_t)pg_int64(r, row, 4),
                             .limits = {.requests_per_min = pg_int64(r, row, 5),
                                        .tokens_per_min = pg_int64(r, row, 6),
                                        .concurrency = pg_int64(r, row, 7)},
                             .state = pg_text(r, row, 8),
                             .created_at = pg_text(r, row, 9),
                             .expires_at = pg_text(r, row, 10),
                             .priority = (enum key_priority)pg_int64(r, row, 11)};
}

enum status key_list(struct pg *pg, const char *tenant,
                     void (*on_key)(void *arg, const struct key_info *k), void *arg,
                     struct reason *why)
{
    const char *params[] = {tenant};
    struct pg_result *r = NULL;
    enum status s = pg_exec(pg, sql_key_list, 1, params, &r, why);

    if (s != ST_OK)
        return s;
    for (int i = 0; i < pg_rows(r); i++) {
        struct key_info k = info_at(r, i);

        on_key(arg, &k);
    }
    pg_result_free(r);
    return ST_OK;
}
