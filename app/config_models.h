/* The models of a configuration: section `model` for one, or the list `models`, whose items have
 * the same keys; among them those of section `engine` that a model may have of its own. */
#ifndef APP_CONFIG_MODELS_H
#define APP_CONFIG_MODELS_H

#include <stdbool.h>
#include <stddef.h>

#include "app/config.h"
#include "app/config_keys.h"
#include "base/buf.h"
#include "base/status.h"

/* More engines than a machine runs, and more names than anybody keeps apart. */
#define CONFIG_MODELS_MAX  64
#define CONFIG_ALIASES_MAX 16

/* The i-th key of a model, in the document's order; false past the end. Those that are the engine's
 * too have its row, but this name and offset. */
bool config_model_key_at(size_t i, struct config_key *out);
/* `key` without "model."; its index, or -1. */
int config_model_key_find(const char *key, struct config_key *out);
/* Their sections of docs/config.md. */
void config_models_markdown(struct buf *out);

/* While the file is read. Appends an item with nothing said yet: ST_TOO_LARGE, ST_NO_MEMORY. */
MUST_CHECK enum status config_models_add(struct config *c);
/* Appends a copy: as above. */
MUST_CHECK enum status config_model_add_alias(struct config_model *m, const char *alias);
/* How often a name stands among all ids and aliases. */
size_t config_models_count_name(const struct config *c, const char *name);

/* Every item has path and id, and there is one. */
MUST_CHECK enum status config_models_check(const struct config *c, const char *file,
                                           struct reason *why);
/* Fills what is open, from section engine. ST_INVALID: two engines at one socket, or a socket's
 * path that is too long. */
MUST_CHECK enum status config_models_complete(struct config *c, const char *file,
                                              struct reason *why);
void config_models_free(struct config *c);

/* By id or alias; NULL: none. */
const struct config_model *config_model_find(const struct config *c, const char *name);
/* "a, b": all ids. */
void config_models_put_ids(const struct config *c, struct buf *out);

#endif
