/* The configuration parser on any bytes: refuses or gives a struct whose values are in bounds. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "app/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct config *c = NULL;
    struct reason why;

    if (config_parse((const char *)data, len, "fuzz", "/d", &c, &why) != ST_OK)
        return 0;
    if (c->port < 1 || c->port > 65535 || c->model_path[0] != '/')
        abort();
    config_free(c);
    return 0;
}
