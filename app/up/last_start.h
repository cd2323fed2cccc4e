/* What a start takes over from the last one: the configuration that it left, as people edited it
 * since. */
#ifndef APP_UP_LAST_START_H
#define APP_UP_LAST_START_H

#include "app/config.h"
#include "app/up/config_write.h"
#include "app/up/options.h"

/* Reads `config` (a path) where there is one, else *last is NULL, and completes the options with
 * its ports; the caller frees *last. A file with a mistake stops the start: it is not ours to throw
 * away. */
MUST_CHECK enum status last_start_read(const char *config, struct up_options *o,
                                       struct config **last, struct reason *why);

/* The models that were given (none: the last start's, of several the first), checked: out[i] for
 * each, at least one, and their number. A model of the last start keeps the path and the name that
 * it has in the configuration. ST_CONFLICT: there it has a list of others, or one and several were
 * given. ST_INVALID: none was ever given, or two would have one name. */
MUST_CHECK enum status last_start_models(const struct up_options *o, const struct config *last,
                                         struct model_choice out[UP_MODELS_MAX], size_t *n,
                                         struct reason *why);

#endif
