/* What a start takes over from the last one: the configuration that it left, as people edited it
 * since. */
#ifndef APP_UP_LAST_START_H
#define APP_UP_LAST_START_H

#include <limits.h>

#include "app/config.h"
#include "app/up/options.h"

/* Reads `config` (a path) where there is one, else *last is NULL, and completes the options with
 * its ports; the caller frees *last. A file with a mistake stops the start: it is not ours to throw
 * away. */
MUST_CHECK enum status last_start_read(const char *config, struct up_options *o,
                                       struct config **last, struct reason *why);

/* The model that was given (NULL: the last start's, the first of several), checked: its absolute
 * path, and how clients name it. The last start's model keeps the path and the name that it has in
 * the configuration. ST_CONFLICT: one was given, and there it has a list of them. */
struct model_choice {
    char path[PATH_MAX];
    char id[96];
};
MUST_CHECK enum status last_start_model(const char *given, const struct config *last,
                                        struct model_choice *out, struct reason *why);

#endif
