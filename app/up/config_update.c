/* The launcher's values into a configuration that people have edited: line by line, because a YAML
 * writer would lose comments and order. What comes out is read by the real parser before anyone
 * sees it, so a form that lines don't see (a section in braces, a quoted key) is refused and never
 * broken. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "app/config.h"
#include "app/up/config_write.h"
#include "base/size.h"

/* What the launcher decides. */
static const struct owned {
    const char *section, *key;
    size_t offset; /* in struct config, or in its first model: int64_t or char * */
    bool is_number, of_model;
} owned[] = {
#define OF_MODEL(name, field)                                                                      \
    {                                                                                              \
        .section = "model", .key = name, .offset = offsetof(struct config_model, field),           \
        .of_model = true                                                                           \
    }
#define TEXT(of, name, field)                                                                      \
    {                                                                                              \
        .section = of, .key = name, .offset = offsetof(struct config, field)                       \
    }
#define PORT(name)                                                                                 \
    {                                                                                              \
        .section = "server", .key = #name, .offset = offsetof(struct config, name),                \
        .is_number = true                                                                          \
    }
    OF_MODEL("path", path),
    OF_MODEL("id", id),
    TEXT("engine", "socket", engine_socket),
    PORT(port),
    PORT(tls_port),
    PORT(admin_port),
    TEXT("postgres", "conninfo", postgres_conninfo),
    TEXT("redis", "socket", redis_socket),
};

static const char *place_of(const struct config *c, const struct owned *o)
{
    return (o->of_model ? (const char *)&c->models[0] : (const char *)c) + o->offset;
}

static int64_t number_of(const struct config *c, const struct owned *o)
{
    int64_t v;

    memcpy(&v, place_of(c, o), sizeof v);
    return v;
}

static const char *text_of(const struct config *c, const struct owned *o)
{
    const char *s;

    memcpy(&s, place_of(c, o), sizeof s);
    return s;
}

/* A list of models is the person's alone. `now` is what the file says. */
static bool is_same(const struct owned *o, const struct config *now, const struct config *wanted)
{
    if (o->of_model && now->n_models > 1)
        return true;
    if (o->is_number)
        return number_of(now, o) == number_of(wanted, o);
    return strcmp(text_of(now, o), text_of(wanted, o)) == 0;
}

/* Only the owned values; the strings stay v's, and *model is borrowed. */
static struct config wanted_config(const struct config_values *v, struct config_model *model)
{
    *model = (struct config_model){.path = (char *)v->model_path, .id = (char *)v->model_id};
    return (struct config){.models = model,
                           .n_models = 1,
                           .engine_socket = (char *)v->layout->engine_socket,
                           .port = v->port,
                           .tls_port = v->tls_port,
                           .admin_port = v->admin_port,
                           .postgres_conninfo = (char *)v->conninfo,
                           .redis_socket = (char *)v->layout->redis_socket};
}

/* ---- lines ---- */

/* Where a key's line goes: bytes [start, end) of the text give way to it. */
struct place {
    size_t start, end; /* the same: it is a new line */
    size_t indent;
    bool has_section;
};

/* The line `at` begins with `name` and a colon, `indent` bytes in. */
static bool has_name(const char *at, size_t indent, const char *name)
{
    size_t n = strlen(name);

    return strncmp(at + indent, name, n) == 0 && at[indent + n] == ':' &&
           strchr(" \t\r\n", at[indent + n + 1]) != NULL;
}

static struct place find(const char *text, size_t len, const struct owned *o)
{
    struct place p = {.start = len, .end = len};
    bool inside = false;

    for (size_t at = 0, next; at < len; at = next) {
        const char *line = text + at;
        size_t bytes = strcspn(line, "\n"), indent = strspn(line, " ");

        next = at + bytes + (line[bytes] == '\n');
        if (strchr("#\r\n", line[indent]) != NULL)
            continue;
        if (indent == 0) {
            inside = has_name(line, 0, o->section);
            if (inside)
                p = (struct place){.start = next, .end = next, .has_section = true};
            continue;
        }
        if (!inside)
            continue;
        if (p.indent == 0)
            p.indent = indent;
        if (has_name(line, indent, o->key))
            return (struct place){at, at + bytes, indent, true};
    }
    return p;
}

static void put_line(struct buf *out, const struct owned *o, size_t indent,
                     const struct config *wanted)
{
    buf_printf(out, "%*s%s: ", (int)indent, "", o->key);
    if (o->is_number)
        buf_printf(out, "%lld", (long long)number_of(wanted, o));
    else
        config_put_quoted(out, text_of(wanted, o));
}

static void set(struct buf *text, const struct owned *o, const struct config *wanted)
{
    struct place p = find(buf_cstr(text), text->len, o);
    struct buf out;

    buf_init(&out);
    buf_append(&out, text->data, p.start);
    if (p.start > 0 && text->data[p.start - 1] != '\n')
        buf_putc(&out, '\n');
    if (!p.has_section)
        buf_printf(&out, "%s:\n", o->section);
    put_line(&out, o, p.indent != 0 ? p.indent : 2, wanted);
    if (p.start == p.end)
        buf_putc(&out, '\n');
    buf_append(&out, text->data + p.end, text->len - p.end);
    buf_dispose(text);
    *text = out;
}

/* ---- */

static enum status check(struct buf *text, const struct config *wanted,
                         const struct config_values *v, struct reason *why)
{
    struct config *now = NULL;
    const struct owned *lost = NULL;
    struct reason ignored;

    if (config_parse(buf_cstr(text), text->len, "sluice.yaml", v->layout->dir, &now, &ignored) ==
        ST_OK)
        for (size_t i = 0; i < COUNT_OF(owned) && lost == NULL; i++)
            lost = is_same(&owned[i], now, wanted) ? NULL : &owned[i];
    if (now != NULL && lost == NULL) {
        config_free(now);
        return ST_OK;
    }
    config_free(now);
    return fail(why, ST_CONFLICT,
                "sluice.yaml: %s%s%s can't be changed as it is written there; write it as "
                "\"key: value\" on a line of its own, or remove the file",
                lost != NULL ? lost->section : "a value", lost != NULL ? "." : "",
                lost != NULL ? lost->key : "");
}

enum status config_update(struct buf *out, const char *old, size_t len,
                          const struct config_values *v, struct reason *why)
{
    struct config_model model;
    struct config wanted = wanted_config(v, &model), *now = NULL;
    enum status st = config_parse(old, len, "sluice.yaml", v->layout->dir, &now, why);

    if (st != ST_OK)
        return st;
    buf_clear(out);
    buf_append(out, old, len);
    for (size_t i = 0; i < COUNT_OF(owned) && !out->failed; i++)
        if (!is_same(&owned[i], now, &wanted))
            set(out, &owned[i], &wanted);
    config_free(now);
    return out->failed ? fail(why, ST_NO_MEMORY, "out of memory") : check(out, &wanted, v, why);
}
