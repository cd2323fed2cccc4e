/* The configuration that the launcher writes into its folder at every start. */
#ifndef APP_UP_CONFIG_WRITE_H
#define APP_UP_CONFIG_WRITE_H

#include <stddef.h>

#include "app/up/layout.h"
#include "base/buf.h"
#include "base/status.h"

struct config_values {
    const struct layout *layout;
    const char *model_path; /* absolute */
    const char *conninfo;
    int port, tls_port, admin_port;
};

/* How clients name a model file: its name in small letters, without ".gguf" and the quantization
 * before it ("SmolLM2-135M-Instruct.Q4_1.gguf": "smollm2-135m-instruct"). */
void config_model_id(const char *path, char *out, size_t size);
/* The file's text. */
void config_put(struct buf *out, const struct config_values *v);
/* DIR/sluice.yaml, mode 0600. */
MUST_CHECK enum status config_write(const struct config_values *v, struct reason *why);

#endif
