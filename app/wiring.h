/* Builds the gateway's parts in order (Postgres pool, auth, billing, engine, API) and tears them
 * down in reverse. Whoever opened it closes it, from the same thread. */
#ifndef APP_WIRING_H
#define APP_WIRING_H

#include "app/config.h"
#include "base/status.h"

struct wiring;

/* Postgres, Redis and the engine process may still be away: the gateway is not ready then, and
 * tries on. What can't heal by itself fails here: the model's file, a port in use, a damaged or
 * locked journal. `cfg` outlives it, as `config_path` does, the file that it was read from: how a
 * model is served is read there again when its engine is changed. */
MUST_CHECK enum status wiring_open(const struct config *cfg, const char *config_path,
                                   struct wiring **out, struct reason *why);
/* Drains up to cfg->drain_ms, settles what still runs, flushes the journal. NULL is fine. */
void wiring_close(struct wiring *w);

#endif
