/* The commands to paste that a start ends with. */
#ifndef APP_UP_COMMANDS_H
#define APP_UP_COMMANDS_H

#include "base/buf.h"

/* curl with streaming, the official Python SDK, the tenant's usage. */
void commands_put(struct buf *out, const char *dir, const char *model_id, int port, int tls_port,
                  int admin_port);
/* `s` as one word of a shell. */
void commands_put_quoted(struct buf *out, const char *s);

#endif
