#include "app/config_yaml.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "app/config_keys.h"
#include "app/config_models.h"
#include "app/config_value.h"
#include "base/buf.h"

#define SEEN_WORDS 4

/* The document is a mapping of sections to mappings of scalars, but for models, a list of such
 * mappings, and their aliases, a list of scalars. Anything else is refused where it stands, so
 * there is no recursion. */
struct yaml {
    yaml_parser_t parser;
    yaml_event_t event;
    bool has_event;
    const char *name, *dir;
    struct config *config;
    struct reason *why;
    char section[64];
    bool in_model;             /* the pairs that are read belong to the last of config's models */
    bool has_list;             /* `models` was there */
    uint64_t seen[SEEN_WORDS]; /* a bit per row of the table */
    uint64_t model_seen;       /* the same of the keys of that model */
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

static bool is_null(const struct yaml *y, const char *value)
{
    return !is_quoted(y) && (strcmp(value, "~") == 0 || strcmp(value, "null") == 0);
}

static enum status store_defaults(struct yaml *y)
{
    for (size_t i = 0; i < config_keys_count; i++) {
        const struct config_key *k = &config_keys[i];

        if (k->fallback == NULL)
            continue;
        if (!config_value_default(y->config, k, y->dir))
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

static struct config_model *last_model(const struct yaml *y)
{
    return &y->config->models[y->config->n_models - 1];
}

static enum status refuse_second_name(struct yaml *y, const struct config_key *k, const char *name)
{
    char text[192];

    if (config_models_count_name(y->config, name) < 2)
        return ST_OK;
    snprintf(text, sizeof text, "two models, or one twice, are called %.95s", name);
    return refuse(y, k->name, text);
}

/* The event is the value. */
static enum status read_value(struct yaml *y, const struct config_key *k)
{
    void *base = y->in_model ? (void *)last_model(y) : (void *)y->config;
    const char *value = scalar(y);

    if (value == NULL || (k->kind == CONFIG_INT && is_quoted(y)) || is_null(y, value) ||
        !config_value_store(base, k, y->dir, value))
        return refuse_value(y, k);
    return k->kind == CONFIG_NAME ? refuse_second_name(y, k, value) : ST_OK;
}

static bool is_plain_list(const struct yaml *y)
{
    return y->event.type == YAML_SEQUENCE_START_EVENT &&
           y->event.data.sequence_start.anchor == NULL && y->event.data.sequence_start.tag == NULL;
}

/* The event is the value: a list of names. */
static enum status read_names(struct yaml *y, const struct config_key *k)
{
    if (!is_plain_list(y))
        return refuse_value(y, k);
    for (;;) {
        enum status st = next(y);
        const char *name;

        if (st != ST_OK || y->event.type == YAML_SEQUENCE_END_EVENT)
            return st;
        name = scalar(y);
        if (name == NULL || is_null(y, name) || !config_value_is_name(k, name))
            return refuse_value(y, k);
        st = config_model_add_alias(last_model(y), name);
        if (st == ST_TOO_LARGE)
            return refuse_value(y, k);
        if (st == ST_OK)
            st = refuse_second_name(y, k, name);
        if (st != ST_OK)
            return st;
    }
}

/* Finds the key and where its bit is; NULL: there is none. */
static uint64_t *find_key(struct yaml *y, const char *key, struct config_key *out, unsigned *bit)
{
    const struct config_key *row;
    int i;

    if (y->in_model) {
        i = config_model_key_find(key, out);
        *bit = (unsigned)i;
        return i != -1 ? &y->model_seen : NULL;
    }
    row = config_key_find(y->section, key);
    if (row == NULL)
        return NULL;
    *out = *row;
    *bit = (unsigned)(row - config_keys) % 64;
    return &y->seen[(row - config_keys) / 64];
}

/* The event is the key; reads the value behind it. */
static enum status read_pair(struct yaml *y)
{
    const char *key = scalar(y);
    struct config_key k;
    uint64_t *seen;
    enum status st;
    unsigned bit;

    if (key == NULL)
        return refuse(y, y->section, "expected a key");
    seen = find_key(y, key, &k, &bit);
    if (seen == NULL)
        return refuse_name(y, "unknown key", key);
    if ((*seen >> bit & 1) != 0)
        return refuse_name(y, "duplicate key", key);
    *seen |= UINT64_C(1) << bit;
    st = next(y);
    if (st != ST_OK)
        return st;
    return k.kind == CONFIG_NAMES ? read_names(y, &k) : read_value(y, &k);
}

/* The event is the mapping's start. */
static enum status read_pairs(struct yaml *y)
{
    if (y->event.type != YAML_MAPPING_START_EVENT || y->event.data.mapping_start.anchor != NULL)
        return refuse_name(y, "expected keys and values under section", "");
    for (;;) {
        enum status st = next(y);

        if (st != ST_OK || y->event.type == YAML_MAPPING_END_EVENT)
            return st;
        st = read_pair(y);
        if (st != ST_OK)
            return st;
    }
}

static enum status add_model(struct yaml *y)
{
    enum status st = config_models_add(y->config);

    y->model_seen = 0;
    if (st == ST_TOO_LARGE)
        return refuse(y, "models", "more models than an engine each can serve");
    return st;
}

/* Section model: the one item. Standing twice it is one section, as others. */
static enum status read_model(struct yaml *y)
{
    enum status st = ST_OK;

    if (y->has_list)
        return refuse(y, "model", "sections model and models exclude each other");
    if (y->config->n_models == 0)
        st = add_model(y);
    y->in_model = true;
    if (st == ST_OK)
        st = read_pairs(y);
    y->in_model = false;
    return st;
}

static enum status read_models(struct yaml *y)
{
    if (y->has_list || y->config->n_models > 0)
        return refuse(y, "models",
                      y->has_list ? "models stands twice"
                                  : "sections model and models exclude each other");
    y->has_list = true;
    if (!is_plain_list(y))
        return refuse(y, "models", "expected a list under models");
    for (;;) {
        enum status st = next(y);

        if (st != ST_OK || y->event.type == YAML_SEQUENCE_END_EVENT)
            return st;
        st = add_model(y);
        y->in_model = true;
        if (st == ST_OK)
            st = read_pairs(y);
        y->in_model = false;
        if (st != ST_OK)
            return st;
    }
}

static bool section_exists(const char *section)
{
    size_t n = strlen(section);

    if (strcmp(section, "model") == 0 || strcmp(section, "models") == 0)
        return true;
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
    if (strcmp(y->section, "model") == 0)
        return read_model(y);
    return strcmp(y->section, "models") == 0 ? read_models(y) : read_pairs(y);
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
    /* libyaml would take UTF-16 by its first bytes; whoever edits the text (config_update) reads it
     * as a C string. */
    if (len > 0 && memchr(text, '\0', len) != NULL)
        return fail(why, ST_INVALID, "%s: not YAML in UTF-8: there is a NUL byte", name);
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
