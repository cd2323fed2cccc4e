/* `sluice engine --check-lockdown`: tries each way out of an engine that is locked in. */
#ifndef APP_CHECK_LOCKDOWN_H
#define APP_CHECK_LOCKDOWN_H

#include "engine/core/engine_process.h"

/* Opens the engine process as for serving in a child per try, which is why it takes as many loads
 * of the model; prints a table. secret_path: a file that the engine must not read; NULL: one that
 * is made for it. Exit code: 0: nothing got out. Must be called with one thread. */
int check_lockdown(const struct engine_process_config *cfg, const char *secret_path);

#endif
