/* Hot swap of an engine: a second process of the same model loads beside the one that serves, at a
 * socket of its own (SOCKET.next). When its watch has greeted it, its socket is renamed over
 * SOCKET, the engine before it is told so (WIRE_HANDOVER), and the two change roles: the guard has
 * the new one from then on, the old one is retired, which means: never started again, and killed
 * only when it is stuck or past its limit. A successor that fails changes nothing.
 *
 * One swap of an engine at a time, until the old process has gone. One thread; never blocks. */
#ifndef APP_SUPERVISE_ENGINE_SWAP_H
#define APP_SUPERVISE_ENGINE_SWAP_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "app/supervise/children.h"
#include "app/supervise/engine_guard.h"
#include "app/supervise/engine_watch.h"
#include "base/status.h"

enum engine_swap_state {
    ENGINE_SWAP_NONE,     /* there was none yet */
    ENGINE_SWAP_LOADING,  /* the successor hasn't taken over yet */
    ENGINE_SWAP_RETIRING, /* it has; the engine before it ends its requests */
    ENGINE_SWAP_DONE,
    ENGINE_SWAP_FAILED /* the successor has gone; the engine that served serves on */
};

struct engine_swap {
    struct engine_guard *guard; /* of the engine that serves; borrowed */
    struct child other;         /* the successor; once it serves, the engine before it */
    struct engine_watch watch;  /* on it */
    char socket[PROCESS_PATH_MAX];
    char name[160];
    const char *argv[16];
    enum engine_swap_state state;
    unsigned n;       /* swaps that were begun */
    int64_t ready_ms; /* of the last: from its start until it was ready */
    int64_t due_ms;   /* then `other` is killed */
    char reason[400]; /* why the last one failed; after DONE how the old engine ended, "" well */
};

/* The successor is started as `engine` is, warmed, with its own socket (beside socket_path, the
 * engine's), pid file and log (see engine_swap_set_log). The guard, which is to have the engine, is
 * used from engine_swap_start on; neither it nor the swap may move. */
void engine_swap_init(struct engine_swap *sw, struct engine_guard *g, const struct child *engine,
                      const char *socket_path, int64_t stall_ms);
/* From the engine's: "FOLDER/NAME.log" gives "FOLDER/NAME.next.log". Once the successor serves, the
 * two files change names. */
void engine_swap_set_log(struct engine_swap *sw, const char *engine_log);
/* Leaves no file. */
void engine_swap_dispose(struct engine_swap *sw);
/* Its process and files of an earlier supervisor: as child_end_orphan. */
MUST_CHECK enum status engine_swap_end_orphan(const struct engine_swap *sw, struct reason *why);

/* ST_CONFLICT: one is under way. Others: the process doesn't start. */
MUST_CHECK enum status engine_swap_start(struct engine_swap *sw, int64_t now_ms,
                                         struct reason *why);
bool engine_swap_is_under_way(const struct engine_swap *sw);
/* "loading", "retiring" ... */
const char *engine_swap_state_name(enum engine_swap_state s);

/* What happened, as a sentence about the engine. */
#define ENGINE_SWAP_NEWS_BYTES 320

struct pollfd engine_swap_pollfd(const struct engine_swap *sw);
int64_t engine_swap_due_ms(const struct engine_swap *sw, int64_t now_ms);
/* After the guard's turn. True: there is news. */
bool engine_swap_turn(struct engine_swap *sw, int64_t now_ms, char news[ENGINE_SWAP_NEWS_BYTES]);
/* `other` has been reaped, which is news. */
void engine_swap_on_end(struct engine_swap *sw, int64_t now_ms, char news[ENGINE_SWAP_NEWS_BYTES]);

#endif
