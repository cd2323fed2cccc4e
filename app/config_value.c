#include "app/config_value.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

static bool parse_int(const char *s, int64_t *out)
{
    char *end = NULL;
    long long v;

    if (s[0] != '-' && (s[0] < '0' || s[0] > '9'))
        return false;
    errno = 0;
    v = strtoll(s, &end, 10);
    if (errno != 0 || *end != '\0' || end == s)
        return false;
    *out = v;
    return true;
}

static bool is_choice(const struct config_key *k, const char *s)
{
    for (size_t i = 0; k->choices[i] != NULL; i++)
        if (strcmp(k->choices[i], s) == 0)
            return true;
    return false;
}

static bool store_text(void *base, const struct config_key *k, const char *dir, const char *s)
{
    char **field = (char **)(void *)((char *)base + k->offset);
    struct buf path;

    buf_init(&path);
    /* An empty path is an optional one that was not given. */
    if (k->kind == CONFIG_PATH && s[0] != '/' && s[0] != '\0')
        buf_printf(&path, "%s/", dir);
    buf_puts(&path, s);
    if (path.failed || (k->kind == CONFIG_PATH && (int64_t)path.len > k->max)) {
        buf_dispose(&path);
        return false;
    }
    free(*field);
    *field = strdup(buf_cstr(&path));
    buf_dispose(&path);
    return *field != NULL;
}

static bool fits(const struct config_key *k, const char *s)
{
    return (int64_t)strlen(s) >= k->min && (int64_t)strlen(s) <= k->max;
}

/* A colon will part a model from its adapter; `*` stands for every model in prices. */
bool config_value_is_name(const struct config_key *k, const char *s)
{
    for (const char *at = s; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7F || *at == ':')
            return false;
    return fits(k, s) && strcmp(s, "*") != 0;
}

bool config_value_store(void *base, const struct config_key *k, const char *dir, const char *s)
{
    int64_t v;

    switch (k->kind) {
    case CONFIG_INT:
        if (!parse_int(s, &v) || v < k->min || v > k->max)
            return false;
        memcpy((char *)base + k->offset, &v, sizeof v);
        return true;
    case CONFIG_CHOICE:
        return is_choice(k, s) && store_text(base, k, dir, s);
    case CONFIG_TEXT:
    case CONFIG_PATH:
        return fits(k, s) && store_text(base, k, dir, s);
    case CONFIG_NAME:
        return config_value_is_name(k, s) && store_text(base, k, dir, s);
    case CONFIG_NAMES:
        return false; /* a list: config_model_add_alias */
    }
    return false;
}

bool config_value_default(void *base, const struct config_key *k, const char *dir)
{
    if (k->kind == CONFIG_PATH)
        return store_text(base, k, dir, k->fallback); /* may be empty */
    return config_value_store(base, k, dir, k->fallback);
}
