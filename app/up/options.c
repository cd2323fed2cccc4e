#include "app/up/options.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "app/config.h"
#include "base/size.h"

static const struct option {
    const char *name;
    enum { DIR, MODEL, PORT } kind;
    int min;
    size_t offset; /* of a port */
} options[] = {
    {"--dir", DIR, 0, 0},
    {"--model", MODEL, 0, 0},
    {"--port", PORT, 1, offsetof(struct up_options, port)},
    {"--tls-port", PORT, 0, offsetof(struct up_options, tls_port)},
    {"--admin-port", PORT, 0, offsetof(struct up_options, admin_port)},
};

static const struct option *find(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(options); i++)
        if (strcmp(options[i].name, name) == 0)
            return &options[i];
    return NULL;
}

static bool store_port(struct up_options *o, const struct option *option, const char *value)
{
    int *at = (int *)(void *)((char *)o + option->offset);
    char *end = NULL;
    long n;

    errno = 0;
    n = strtol(value, &end, 10);
    if (errno != 0 || end == value || *end != '\0' || n < option->min || n > 65535)
        return false;
    *at = (int)n;
    return true;
}

static bool store(struct up_options *o, const struct option *option, const char *value)
{
    if (option->kind == PORT)
        return store_port(o, option, value);
    if (option->kind == DIR)
        o->dir = value;
    else
        o->models[o->n_models++] = value;
    return value[0] != '\0';
}

enum status options_parse(struct up_options *o, int argc, char **argv, struct reason *why)
{
    *o = (struct up_options){.port = -1, .tls_port = -1, .admin_port = -1};
    for (int i = 1; i < argc; i += 2) {
        const struct option *option = find(argv[i]);

        if (option == NULL)
            return fail(why, ST_INVALID, "unknown option %s", argv[i]);
        if (i + 1 == argc)
            return fail(why, ST_INVALID, "%s needs a value", argv[i]);
        if (option->kind == MODEL && o->n_models == UP_MODELS_MAX)
            return fail(why, ST_INVALID, "more than %d times --model", UP_MODELS_MAX);
        if (!store(o, option, argv[i + 1]))
            return fail(why, ST_INVALID, "%s can't be \"%s\"", argv[i], argv[i + 1]);
    }
    if (o->dir == NULL)
        return fail(why, ST_INVALID, "--dir is missing");
    return ST_OK;
}

static void complete(int *port, const int64_t *last, int otherwise)
{
    if (*port == -1)
        *port = last != NULL ? (int)*last : otherwise;
}

enum status options_complete(struct up_options *o, const struct config *last, struct reason *why)
{
    complete(&o->port, last != NULL ? &last->port : NULL, 8080);
    complete(&o->tls_port, last != NULL ? &last->tls_port : NULL, 8443);
    complete(&o->admin_port, last != NULL ? &last->admin_port : NULL, 9090);
    if (o->port == o->tls_port || o->port == o->admin_port ||
        (o->tls_port != 0 && o->tls_port == o->admin_port))
        return fail(why, ST_INVALID, "the three ports must differ");
    return ST_OK;
}
