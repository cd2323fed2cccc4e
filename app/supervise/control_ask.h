/* One request to a running supervisor's control socket (control.h says the forms), for `sluice
 * model`. Blocks for at most ten seconds each way; any thread. */
#ifndef APP_SUPERVISE_CONTROL_ASK_H
#define APP_SUPERVISE_CONTROL_ASK_H

#include <jansson.h>

#include "base/status.h"

/* path: of control_path. id: NULL with "list". *out is the whole answer, for json_decref.
 * ST_UNAVAILABLE: nobody listens; ST_FORBIDDEN; ST_IO; ST_CORRUPT; ST_INVALID: it says no, and why.
 */
MUST_CHECK enum status control_ask(const char *path, const char *op, const char *id, json_t **out,
                                   struct reason *why);

#endif
