/* Reads a configuration's YAML into a zeroed struct config by the table of keys, defaults
 * included. Required keys that are missing stay NULL: the caller checks. */
#ifndef APP_CONFIG_YAML_H
#define APP_CONFIG_YAML_H

#include <stddef.h>

#include "app/config.h"
#include "base/status.h"

/* `name` stands in messages, `dir` is what paths are relative to. On failure the caller frees what
 * was filled so far (config_free). */
MUST_CHECK enum status config_yaml_read(const char *text, size_t len, const char *name,
                                        const char *dir, struct config *c, struct reason *why);

#endif
