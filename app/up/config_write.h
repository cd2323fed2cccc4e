/* The launcher's configuration file: written at the first start, and then people's. A later start
 * changes only the values that are its own (the model, unless it lists several, the sockets and
 * connection of what it runs, the ports), where they differ, each in its own line; all else,
 * comments too, stays as it is. */
#ifndef APP_UP_CONFIG_WRITE_H
#define APP_UP_CONFIG_WRITE_H

#include <limits.h>
#include <stddef.h>

#include "app/up/layout.h"
#include "base/buf.h"
#include "base/status.h"

/* A model's file, and how clients name it. */
struct model_choice {
    char path[PATH_MAX]; /* absolute */
    char id[96];
};

struct config_values {
    const struct layout *layout;
    const char *model_path; /* absolute; of several the first, here and below */
    const char *model_id;
    const struct model_choice *models; /* (n_models) all of them */
    size_t n_models;                   /* over 1: a new file has a list */
    const char *conninfo;
    int port, tls_port, admin_port;
};

/* How clients name a model file: its name in small letters, without ".gguf" and the quantization
 * before it ("SmolLM2-135M-Instruct.Q4_1.gguf": "smollm2-135m-instruct"). */
void config_model_id(const char *path, char *out, size_t size);
/* The same with its quantization, where that tells two models apart. */
void config_model_full_id(const char *path, char *out, size_t size);
/* `text` in double quotes, for YAML. */
void config_put_quoted(struct buf *out, const char *text);
/* The text of a new file. */
void config_put(struct buf *out, const struct config_values *v);
/* `old` (valid YAML of ours, or refused with its line) with the values of v where it has others.
 * ST_CONFLICT, naming the key: that can't be done in its own line (a section in braces); the caller
 * refuses rather than write the file anew. Untouched bytes where nothing differs. */
MUST_CHECK enum status config_update(struct buf *out, const char *old, size_t len,
                                     const struct config_values *v, struct reason *why);
/* DIR/sluice.yaml, mode 0600: made, changed, or left alone. */
MUST_CHECK enum status config_write(const struct config_values *v, struct reason *why);

#endif
