/* How a model is served, from the configuration file to what the engine's side is told. */
#ifndef APP_MODEL_SETTINGS_H
#define APP_MODEL_SETTINGS_H

#include "app/config.h"
#include "engine/engine.h"

/* Strings are m's. Any thread. */
struct engine_model_config model_settings(const struct config_model *m);
/* For struct engine_config's reload: of the file as it is now, whose path `path` (a const char *)
 * is. No secret is read. As config_load_engine; ST_NOT_FOUND too: no model of that id any more. */
MUST_CHECK enum status model_settings_reload(void *path, const char *id, struct engine_reload *to,
                                             struct reason *why);

#endif
