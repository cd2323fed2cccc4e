/* The table of configuration keys: what may stand in the file, and what docs/config.md says. */
#ifndef APP_CONFIG_KEYS_H
#define APP_CONFIG_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum config_kind {
    CONFIG_INT,    /* int64_t between min and max */
    CONFIG_TEXT,   /* char *, min to max bytes */
    CONFIG_PATH,   /* as text; made absolute */
    CONFIG_CHOICE, /* char *, one of `choices` */
    CONFIG_NAME, /* char *, what clients call a model: a text without colons and control characters
                  */
    CONFIG_NAMES /* list of them, struct config_model.aliases */
};

struct config_key {
    const char *name; /* "section.key" */
    enum config_kind kind;
    size_t offset;        /* in struct config; of a model's key: in struct config_model */
    const char *fallback; /* NULL: required */
    int64_t min, max;
    const char *const *choices; /* NULL-terminated */
    bool secret;                /* never printed, never in the engine's memory */
    bool engine;                /* the engine process needs it too */
    const char *help;
};

/* In the document's order; sections are adjacent. */
extern const struct config_key config_keys[];
extern const size_t config_keys_count;

/* NULL: no such key. */
const struct config_key *config_key_find(const char *section, const char *key);
/* "an integer from 0 to 65535", "one of auto, scalar, …": what a value may be. */
void config_key_allowed(const struct config_key *k, struct buf *out);
/* One row of the Markdown table. */
void config_key_row(const struct config_key *k, struct buf *out);
/* The whole table as Markdown, the models' keys (app/config_models.h) first: docs/config.md. */
void config_keys_markdown(struct buf *out);

#endif
