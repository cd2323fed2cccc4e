#include "app/up/demo.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "app/supervise/files.h"
#include "auth/auth.h"
#include "base/id.h"
#include "base/size.h"
#include "store/pg.h"

/* A key for HMAC-SHA-256, as long as the hash (RFC 2104). */
#define PEPPER_BYTES 32
#define PEPPER_HEX   (2 * PEPPER_BYTES + 1)

static const struct demo_key {
    const char *file, *tenant, *name;
    uint32_t scopes;
    struct auth_limits limits;
} keys[] = {
    /* Generous: a load test with 64 streams at a time, again and again, must pass. */
    {"demo.key", "demo", "demo", SCOPE_INFERENCE | SCOPE_USAGE, {6000, 10000000, 128}},
    {"admin.key", "platform", "admin", SCOPE_PLATFORM | SCOPE_USAGE, {600, 0, 16}},
};

void demo_forget(const struct layout *l)
{
    char path[LAYOUT_PATH_MAX];

    for (size_t i = 0; i < COUNT_OF(keys); i++)
        unlink(layout_path(l, keys[i].file, path));
}

enum status demo_pepper(const struct layout *l, struct reason *why)
{
    unsigned char bytes[PEPPER_BYTES];
    char hex[PEPPER_HEX], path[LAYOUT_PATH_MAX];
    enum status st;

    layout_path(l, "pepper", path);
    if (file_exists(path))
        return ST_OK;
    demo_forget(l);
    random_bytes(bytes, sizeof bytes);
    hex_encode(bytes, sizeof bytes, hex);
    st = file_write(path, hex, sizeof hex - 1, 0600, why);
    OPENSSL_cleanse(bytes, sizeof bytes);
    OPENSSL_cleanse(hex, sizeof hex);
    return st;
}

static bool is_there(const char *path)
{
    char text[KEY_TEXT_BYTES];
    const char *id, *secret;
    size_t id_len, secret_len;
    bool there = file_read(path, text, sizeof text) == ST_OK &&
                 key_parse(text, strlen(text), &id, &id_len, &secret, &secret_len);

    OPENSSL_cleanse(text, sizeof text);
    return there;
}

static enum status make_key(struct pg *pg, const char *pepper, const struct demo_key *k,
                            const char *path, struct reason *why)
{
    const struct auth_limits leave = {-1, -1, -1};
    struct key_spec spec = {.tenant = k->tenant,
                            .project = "default",
                            .name = k->name,
                            .scopes = k->scopes,
                            .priority = KEY_PRIORITY_NORMAL,
                            .key_limits = k->limits,
                            .tenant_limits = leave};
    char key[KEY_TEXT_BYTES], text[KEY_TEXT_BYTES + 1], public_id[32];
    enum status st = key_create(pg, pepper, &spec, key, public_id, why);
    int n;

    if (st != ST_OK)
        return st;
    n = snprintf(text, sizeof text, "%s\n", key);
    st = file_write(path, text, (size_t)n, 0600, why);
    OPENSSL_cleanse(key, sizeof key);
    OPENSSL_cleanse(text, sizeof text);
    return st;
}

static enum status make_missing(const struct layout *l, const char *conninfo, const char *pepper,
                                struct reason *why)
{
    char path[LAYOUT_PATH_MAX];
    struct pg *pg = NULL;
    enum status st = ST_OK;

    for (size_t i = 0; i < COUNT_OF(keys) && st == ST_OK; i++) {
        layout_path(l, keys[i].file, path);
        if (is_there(path))
            continue;
        if (pg == NULL)
            st = pg_open(conninfo, &pg, why);
        if (st == ST_OK)
            st = make_key(pg, pepper, &keys[i], path, why);
    }
    pg_close(pg);
    return st;
}

enum status demo_keys(const struct layout *l, const char *conninfo, struct reason *why)
{
    char pepper[PEPPER_HEX + 8], path[LAYOUT_PATH_MAX];
    enum status st = file_read(layout_path(l, "pepper", path), pepper, sizeof pepper);

    if (st != ST_OK)
        return fail(why, st, "%s can't be read", path);
    st = make_missing(l, conninfo, pepper, why);
    OPENSSL_cleanse(pepper, sizeof pepper);
    return st;
}
