#include "app/key_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/size.h"

static const struct {
    const char *name;
    uint32_t bit;
} scopes[] = {{"inference", SCOPE_INFERENCE},
              {"usage", SCOPE_USAGE},
              {"platform", SCOPE_PLATFORM},
              {"control-tokens", SCOPE_CONTROL_TOKENS}};

static const char *const priorities[] = {
    [KEY_PRIORITY_HIGH] = "high", [KEY_PRIORITY_NORMAL] = "normal", [KEY_PRIORITY_LOW] = "low"};

/* ---- reading ---- */

static uint32_t scope_bit(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(scopes); i++)
        if (strcmp(scopes[i].name, name) == 0)
            return scopes[i].bit;
    return 0;
}

bool key_parse_scopes(const char *text, uint32_t *out)
{
    char copy[128], *save = NULL;

    *out = 0;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word = strtok_r(copy, ",", &save); word != NULL; word = strtok_r(NULL, ",", &save)) {
        uint32_t bit = scope_bit(word);

        if (bit == 0) {
            fprintf(stderr, "\"%s\" is no scope: inference, usage, platform, control-tokens\n",
                    word);
            return false;
        }
        *out |= bit;
    }
    return true;
}

bool key_parse_priority(const char *text, enum key_priority *out)
{
    for (size_t i = 0; i < COUNT_OF(priorities); i++) {
        if (strcmp(priorities[i], text) == 0) {
            *out = (enum key_priority)i;
            return true;
        }
    }
    fprintf(stderr, "\"%s\" is no priority: high, normal, low\n", text);
    return false;
}

const char *key_priority_name(enum key_priority p)
{
    return priorities[p];
}

/* ---- writing ---- */

void key_put_scopes(struct buf *b, uint32_t bits, const char *quote)
{
    const char *comma = "";

    for (size_t i = 0; i < COUNT_OF(scopes); i++) {
        if ((bits & scopes[i].bit) == 0)
            continue;
        buf_printf(b, "%s%s%s%s", comma, quote, scopes[i].name, quote);
        comma = ",";
    }
}

void key_put_member(struct buf *b, const char *name, const char *value)
{
    buf_printf(b, ",\"%s\":", name);
    if (value != NULL)
        json_put_cstr(b, value);
    else
        buf_puts(b, "null");
}

static void put_key_json(struct key_listing *l, const struct key_info *k)
{
    struct buf *b = &l->text;

    buf_puts(b, l->n > 0 ? ",\n{\"public_id\":" : "{\"public_id\":");
    json_put_cstr(b, k->public_id);
    key_put_member(b, "name", k->name);
    key_put_member(b, "tenant", k->tenant);
    key_put_member(b, "project", k->project);
    key_put_member(b, "priority", priorities[k->priority]);
    buf_puts(b, ",\"scopes\":[");
    key_put_scopes(b, k->scopes, "\"");
    buf_printf(b, "],\"rpm\":%" PRId64 ",\"tpm\":%" PRId64 ",\"concurrency\":%" PRId64,
               k->limits.requests_per_min, k->limits.tokens_per_min, k->limits.concurrency);
    key_put_member(b, "state", k->state);
    key_put_member(b, "created_at", k->created_at);
    key_put_member(b, "expires_at", k->expires_at);
    buf_putc(b, '}');
}

static void put_key_row(struct key_listing *l, const struct key_info *k)
{
    struct buf bits;

    buf_init(&bits);
    key_put_scopes(&bits, k->scopes, "");
    buf_printf(&l->text,
               "%-16s  %-8s  %-16s  %-12s  %-24s  %-8s  %9" PRId64 "  %9" PRId64 "  %6" PRId64
               "  %-20s  %-20s  %s\n",
               k->public_id, k->state, k->tenant, k->project, buf_cstr(&bits),
               priorities[k->priority], k->limits.requests_per_min, k->limits.tokens_per_min,
               k->limits.concurrency, k->created_at,
               k->expires_at != NULL ? k->expires_at : "never", k->name);
    buf_dispose(&bits);
}

void key_listing_add(void *arg, const struct key_info *k)
{
    struct key_listing *l = arg;

    if (l->json)
        put_key_json(l, k);
    else
        put_key_row(l, k);
    l->n++;
}

void key_listing_begin(struct key_listing *l, bool json)
{
    *l = (struct key_listing){.json = json};
    buf_init(&l->text);
    if (json)
        buf_puts(&l->text, "{\"keys\":[");
    else
        buf_printf(&l->text,
                   "%-16s  %-8s  %-16s  %-12s  %-24s  %-8s  %9s  %9s  %6s  %-20s  %-20s  %s\n",
                   "PUBLIC ID", "STATE", "TENANT", "PROJECT", "SCOPES", "PRIORITY", "RPM", "TPM",
                   "CONC", "CREATED", "EXPIRES", "NAME");
}

void key_listing_end(struct key_listing *l)
{
    if (l->json)
        buf_puts(&l->text, "]}\n");
}
