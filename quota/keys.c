#include "quota/keys.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/size.h"

/* The longest set of words is 10 keys under 90 bytes and 13 arguments under 33. */
static struct redis_arg PRINTF_LIKE(2, 3) put(struct quota_words *w, const char *fmt, ...)
{
    char *at = w->text + w->used;
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(at, sizeof w->text - w->used, fmt, args);
    va_end(args);
    assert(n >= 0 && (size_t)n < sizeof w->text - w->used);
    w->used += (size_t)n + 1;
    return (struct redis_arg){at, (size_t)n};
}

static void put_scope(struct quota_words *w, size_t first, int64_t tenant, char scope, int64_t id)
{
    static const char *const kinds[] = {"requests", "tokens", "slots"};

    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        w->keys[first + i] =
            put(w, "{t%lld}:v1:%c%lld:%s", (long long)tenant, scope, (long long)id, kinds[i]);
}

void quota_words_init(struct quota_words *w, const struct quota_ask *ask)
{
    char hex[ID_HEX_BYTES];

    w->n_args = 0;
    w->used = 0;
    id_to_hex(&ask->request, hex);
    w->keys[0] = put(w, "{t%lld}:v1:reservation:%s", (long long)ask->tenant_id, hex);
    put_scope(w, 1, ask->tenant_id, 't', ask->tenant_id);
    put_scope(w, 4, ask->tenant_id, 'p', ask->project_id);
    put_scope(w, 7, ask->tenant_id, 'k', ask->key_id);
}

static void add(struct quota_words *w, struct redis_arg arg)
{
    assert(w->n_args < COUNT_OF(w->args));
    w->args[w->n_args++] = arg;
}

void quota_words_add_id(struct quota_words *w, const struct id *id)
{
    char hex[ID_HEX_BYTES];

    id_to_hex(id, hex);
    add(w, put(w, "%s", hex));
}

void quota_words_add_int(struct quota_words *w, int64_t v)
{
    add(w, put(w, "%lld", (long long)v));
}

static void add_scope_limits(struct quota_words *w, const struct quota_limits *l)
{
    const int64_t limits[] = {l->requests_per_min, l->tokens_per_min, l->concurrency};

    for (size_t i = 0; i < COUNT_OF(limits); i++)
        quota_words_add_int(w, int64_max(0, int64_min(limits[i], QUOTA_LIMIT_MAX)));
}

void quota_words_add_limits(struct quota_words *w, const struct quota_ask *ask)
{
    add_scope_limits(w, &ask->tenant);
    add_scope_limits(w, &ask->project);
    add_scope_limits(w, &ask->key);
}
