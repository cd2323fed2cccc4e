/* Brings a database to the binary's schema: the embedded migrations/NNNN_name.sql in order, each in
 * a transaction of its own, under an advisory lock, so that two may start at once. Forward only. An
 * applied file is never changed: its SHA-256 is kept and compared. Blocking; for the command line.
 */
#ifndef STORE_MIGRATE_H
#define STORE_MIGRATE_H

#include "base/embedded.h"
#include "base/status.h"
#include "store/pg.h"

/* on_applied (may be NULL) is told each applied file's name. ST_CONFLICT: an applied file differs
 * from the binary's, or the database is newer than the binary; other statuses as pg_exec.
 * *n_applied counts what was applied now, also on failure. */
MUST_CHECK enum status migrate(struct pg *pg, const struct embedded_file *files,
                               void (*on_applied)(void *arg, const char *name), void *arg,
                               int *n_applied, struct reason *why);
/* Whether the database is exactly at the binary's schema; ST_CONFLICT with the reason when not. */
MUST_CHECK enum status migrate_check(struct pg *pg, const struct embedded_file *files,
                                     struct reason *why);

#endif
