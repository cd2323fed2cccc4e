/* A value of the configuration file: checked against its key's row and stored. */
#ifndef APP_CONFIG_VALUE_H
#define APP_CONFIG_VALUE_H

#include <stdbool.h>

#include "app/config_keys.h"

/* `base` is what the key's offset counts from (a struct config or struct config_model), `dir` what
 * a path is relative to. A text is copied in place of the one before. False: not allowed, or out of
 * memory; nothing was stored. */
bool config_value_store(void *base, const struct config_key *k, const char *dir, const char *s);
/* The same of the key's fallback, which is not NULL and, of a path, may be "". */
bool config_value_default(void *base, const struct config_key *k, const char *dir);
/* Whether it may be one of a CONFIG_NAMES or a CONFIG_NAME. */
bool config_value_is_name(const struct config_key *k, const char *s);

#endif
