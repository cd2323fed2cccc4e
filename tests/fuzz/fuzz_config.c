/* The configuration parser on any bytes: refuses or gives a struct whose values are in bounds. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "app/config.h"
#include "app/config_models.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* No field is open, and every name is this model's alone. */
static void check_model(const struct config *c, const struct config_model *m)
{
    if (m->path[0] != '/' || m->id[0] == '\0' || m->socket[0] != '/' || strlen(m->socket) > 107 ||
        m->threads < 0 || m->max_sequences < 1 || m->mode == NULL || m->kv_type == NULL ||
        config_model_find(c, m->id) != m)
        abort();
    for (size_t i = 0; i < m->n_aliases; i++)
        if (config_models_count_name(c, m->aliases[i]) != 1)
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct config *c = NULL;
    struct reason why;

    if (config_parse((const char *)data, len, "fuzz", "/d", &c, &why) != ST_OK)
        return 0;
    if (c->port < 1 || c->port > 65535 || c->n_models < 1 || c->n_models > CONFIG_MODELS_MAX)
        abort();
    for (size_t i = 0; i < c->n_models; i++)
        check_model(c, &c->models[i]);
    config_free(c);
    return 0;
}
