#include "app/config_yaml.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "app/config_keys.h"
#include "base/buf.h"

#define SEEN_WORDS 4

/* The document is a mapping of sections to mappings of scalars; anything else is refused where it
 * stands, so there is no recursion. */
struct yaml {
    yaml_parser_t parser;
    yaml_event_t event;
    bool has_event;
    const char *name, *dir;
    struct config *config;
    struct reason *why;
    char section[64];
    uint64_t seen[SEEN_WORDS]; /* a bit per row of the table */
};

static enum status refuse(struct yaml *y, const char *param, const char *text)
{
    return fail_param(y->why, ST_INVALID, param, "%s:%zu: %s", y->name,
                      y->event.start_mark.line + 1, text);
}

static enum status next(struct yaml *y)
{
    if (y->has_event)
        yaml_event_delete(&y->event);
    y->has_event = yaml_parser_parse(&y->parser, &y->event) == 1;
    if (y->has_event)
        return ST_OK;
    return fail(y->why, ST_INVALID, "%s:%zu: not YAML: %s", y->name,
                y->parser.problem_mark.line + 1,
                y->parser.problem != NULL ? y->parser.problem : "unreadable");
}

/* The scalar's text when the event is a plain untagged one without NUL bytes. */
static const char *scalar(const struct yaml *y)
{
    if (y->event.type != YAML_SCALAR_EVENT || y->event.data.scalar.anchor != NULL ||
        y->event.data.scalar.tag != NULL)
        return NULL;
    if (memchr(y->event.data.scalar.value, '\0', y->event.data.scalar.length) != NULL)
        return NULL;
    return (const char *)y->event.data.scalar.value;
}

static bool is_quoted(const struct yaml *y)
{
    return y->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
}

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

/* ---- storing a value; false: it is not allowed ---- */

static bool store_text(struct config *c, const struct config_key *k, const char *dir, const char *s)
{
    char **field = (char **)(void *)((char *)c + k->offset);
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

static bool store(struct config *c, const struct config_key *k, const char *dir, const char *s)
{
    int64_t v;

    switch (k->kind) {
    case CONFIG_INT:
        if (!parse_int(s, &v) || v < k->min || v > k->max)
            return false;
        memcpy((char *)c + k->offset, &v, sizeof v);
        return true;
    case CONFIG_CHOICE:
        return is_choice(k, s) && store_text(c, k, dir, s);
    case CONFIG_TEXT:
    case CONFIG_PATH:
        return (int64_t)strlen(s) >= k->min && (int64_t)strlen(s) <= k->max &&
               store_text(c, k, dir, s);
    }
    return false;
}

static enum status store_defaults(struct yaml *y)
{
    for (size_t i = 0; i < config_keys_count; i++) {
        const struct config_key *k = &config_keys[i];

        if (k->fallback == NULL)
            continue;
        if (k->kind == CONFIG_PATH ? !store_text(y->config, k, y->dir, k->fallback)
                                   : !store(y->config, k, y->dir, k->fallback))
            return fail(y->why, ST_NO_MEMORY, "out of memory");
    }
    return ST_OK;
}

/* ---- the document ---- */

static enum status refuse_value(struct yaml *y, const struct config_key *k)
{
    struct buf text;
    enum status st;

    buf_init(&text);
    buf_printf(&text, "%s must be ", k->name);
    config_key_allowed(k, &text);
    st = refuse(y, k->name, buf_cstr(&text));
    buf_dispose(&text);
    return st;
}

static enum status refuse_name(struct yaml *y, const char *what, const char *key)
{
    char text[160];

    snprintf(text, sizeof text, "%s: %.40s%s%.40s", what, y->section,
             y->section[0] != '\0' && key[0] != '\0' ? "." : "", key);
    return refuse(y, "", text);
}

/* The event is the key; reads the value behind it. */
static enum status read_pair(struct yaml *y)
{
    const char *key = scalar(y), *value;
    const struct config_key *k;
    enum status st;
    size_t row;

    if (key == NULL)
        return refuse(y, y->section, "expected a key");
    k = config_key_find(y->section, key);
    if (k == NULL)
        return refuse_name(y, "unknown key", key);
    row = (size_t)(k - config_keys);
    if ((y->seen[row / 64] >> (row % 64) & 1) != 0)
        return refuse_name(y, "duplicate key", key);
    y->seen[row / 64] |= UINT64_C(1) << (row % 64);
    st = next(y);
    if (st != ST_OK)
        return st;
    value = scalar(y);
    if (value == NULL || (k->kind == CONFIG_INT && is_quoted(y)) ||
        (!is_quoted(y) && (strcmp(value, "~") == 0 || strcmp(value, "null") == 0)) ||
        !store(y->config, k, y->dir, value))
        return refuse_value(y, k);
    return ST_OK;
}

static bool section_exists(const char *section)
{
    size_t n = strlen(section);

    for (size_t i = 0; i < config_keys_count; i++)
        if (strncmp(config_keys[i].name, section, n) == 0 && config_keys[i].name[n] == '.')
            return true;
    return false;
}

/* The event is the section's name. A section that stands twice is one whose keys may stand twice,
 * which read_pair refuses; an empty one is fine. */
static enum status read_section(struct yaml *y)
{
    const char *section = scalar(y);
    enum status st;

    y->section[0] = '\0';
    if (section == NULL)
        return refuse(y, "", "expected a section's name");
    if (strlen(section) >= sizeof y->section || !section_exists(section))
        return refuse_name(y, "unknown section", section);
    snprintf(y->section, sizeof y->section, "%s", section);
    st = next(y);
    if (st != ST_OK)
        return st;
    if (y->event.type != YAML_MAPPING_START_EVENT || y->event.data.mapping_start.anchor != NULL)
        return refuse_name(y, "expected keys and values under section", "");
    for (;;) {
        st = next(y);
        if (st != ST_OK || y->event.type == YAML_MAPPING_END_EVENT)
            return st;
        st = read_pair(y);
        if (st != ST_OK)
            return st;
    }
}

static enum status expect(struct yaml *y, yaml_event_type_t type, const char *what)
{
    enum status st = next(y);

    if (st != ST_OK || y->event.type == type)
        return st;
    return refuse(y, "", what);
}

static enum status read_document(struct yaml *y)
{
    enum status st = expect(y, YAML_STREAM_START_EVENT, "not YAML");

    if (st == ST_OK)
        st = expect(y, YAML_DOCUMENT_START_EVENT, "the file is empty");
    if (st == ST_OK)
        st = expect(y, YAML_MAPPING_START_EVENT, "expected sections");
    while (st == ST_OK) {
        st = next(y);
        if (st != ST_OK || y->event.type == YAML_MAPPING_END_EVENT)
            break;
        st = read_section(y);
    }
    if (st == ST_OK)
        st = expect(y, YAML_DOCUMENT_END_EVENT, "not YAML");
    if (st == ST_OK)
        st = expect(y, YAML_STREAM_END_EVENT, "a second document in the file");
    return st;
}

enum status config_yaml_read(const char *text, size_t len, const char *name, const char *dir,
                             struct config *c, struct reason *why)
{
    struct yaml y = {.name = name, .dir = dir, .config = c, .why = why};
    enum status st;

    assert(config_keys_count <= SEEN_WORDS * 64);
    st = store_defaults(&y);
    if (st != ST_OK)
        return st;
    if (yaml_parser_initialize(&y.parser) == 0)
        return fail(why, ST_NO_MEMORY, "out of memory");
    yaml_parser_set_input_string(&y.parser, (const unsigned char *)text, len);
    st = read_document(&y);
    if (y.has_event)
        yaml_event_delete(&y.event);
    yaml_parser_delete(&y.parser);
    return st;
}
