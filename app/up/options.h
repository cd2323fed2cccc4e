/* The command line of `sluice up`. */
#ifndef APP_UP_OPTIONS_H
#define APP_UP_OPTIONS_H

#include <stddef.h>

#include "base/status.h"

#define UP_MODELS_MAX 16

struct up_options {
    const char *dir;
    const char *models[UP_MODELS_MAX];
    size_t n_models;                /* 0: those of the last start */
    int port, tls_port, admin_port; /* -1: not given */
};

#define UP_USAGE                                                                                   \
    "usage: sluice up --dir DIR [--model FILE.gguf]... [--port N] [--tls-port N] [--admin-port "   \
    "N]\n"                                                                                         \
    "  --dir         keeps everything: databases, keys, configuration, logs\n"                     \
    "  --model       needed at the first start; later the same again. Given more than once: all\n" \
    "                are served, and make the list `models:` in DIR/sluice.yaml\n"                 \
    "  --port        HTTP/1.1 and cleartext HTTP/2 (8080)\n"                                       \
    "  --tls-port    HTTP over TLS (8443; 0: none)\n"                                              \
    "  --admin-port  health and metrics (9090; 0: none)\n"                                         \
    "What is not given is as DIR/sluice.yaml says; what else stands there is kept.\n"

/* Borrows from argv; an option but --model that stands twice has its last value. ST_INVALID says
 * which. */
MUST_CHECK enum status options_parse(struct up_options *o, int argc, char **argv,
                                     struct reason *why);
struct config;
/* Ports that were not given: those of the last start's configuration, or without one (NULL) the
 * defaults. ST_INVALID: two are the same. */
MUST_CHECK enum status options_complete(struct up_options *o, const struct config *last,
                                        struct reason *why);

#endif
