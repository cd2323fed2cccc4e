#include "app/model_settings.h"

#include <string.h>

#include "app/config_models.h"

struct engine_model_config model_settings(const struct config_model *m)
{
    return (struct engine_model_config){
        .path = m->path,
        .id = m->id,
        .aliases = (const char *const *)m->aliases,
        .n_aliases = m->n_aliases,
        .socket_path = m->socket,
        .context_tokens = (uint32_t)m->context_tokens,
        .default_max_tokens = (uint32_t)m->default_max_tokens,
        .file_defaults = strcmp(m->generation_defaults, "model") == 0,
        .required = strcmp(m->required, "on") == 0,
        .queue_max = (uint32_t)m->queue_max,
        .tenant_queue_max = (uint32_t)m->tenant_queue_max,
    };
}

enum status model_settings_reload(void *path, const char *id, struct engine_reload *to,
                                  struct reason *why)
{
    const struct config_model *m;
    struct engine_model_config settings;
    struct config *now = NULL;
    enum status s = config_load_engine(path, &now, why);

    if (s != ST_OK)
        return s;
    m = config_model_find(now, id);
    if (m == NULL || strcmp(m->id, id) != 0) {
        s = fail(why, ST_NOT_FOUND, "%s has no model of the id %s any more", (const char *)path,
                 id);
    } else {
        settings = model_settings(m);
        s = to->take(to, &settings, why);
    }
    config_free(now);
    return s;
}
