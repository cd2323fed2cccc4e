/* The memory of a configuration's engines, planned before any of them loads. */
#ifndef APP_MEMORY_H
#define APP_MEMORY_H

#include "app/config.h"
#include "base/buf.h"
#include "base/status.h"

struct engine_process_config;

/* Whether the engine of this model, set up as `own` (NULL: as the file says), fits beside those
 * that run and those before it in the file that fit themselves, running or not (but not what
 * `sluice model unload` stopped): so two that start at one time don't count on the same memory, and
 * the first in the file is the first served. Where own->socket_path is another than the file's, the
 * model's own engine that runs is one of those beside it: it is to be replaced.
 * ST_NO_MEMORY: *why has the arithmetic, the log each engine's part of it. Others: the model can't
 * be read. */
MUST_CHECK enum status memory_check_model(const struct config *c, const struct config_model *m,
                                          const struct engine_process_config *own,
                                          struct reason *why);
/* All of them, as a table. ST_NO_MEMORY: *why has the arithmetic; *out is filled all the same. */
MUST_CHECK enum status memory_check_all(const struct config *c, struct buf *out,
                                        struct reason *why);

#endif
