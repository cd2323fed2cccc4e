/* Between pg.c and pg_pool.c only. */
#ifndef STORE_PG_PRIVATE_H
#define STORE_PG_PRIVATE_H

#include <stdatomic.h>

#include "store/pg.h"

/* From now on p says in *reachable whether its last statement reached the server. */
void pg_report_to(struct pg *p, atomic_bool *reachable);

#endif
