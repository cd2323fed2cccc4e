/* Hot swap of an engine: a second process of the same model loads beside the one that serves, at a
 * socket of its own (SOCKET.next). When its watch has greeted it, its socket is renamed over
 * SOCKET, the engine before it is told so (WIRE_HANDOVER), and the two change roles: the guard has
 * the new one from then on, the old one is retired, which means: never started again, and killed
 * only when it is stuck or past its limit. A successor that fails changes nothing.
 *
 * One swap of an engine at a time, until the old process has gone. One thread; never blocks. */
#ifndef APP_SUPERVISE_SWAP_H
#define APP_SUPERVISE_SWAP_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "app/supervise/children.h"
#include "app/supervise/engine_guard.h"
#include "app/supervise/engine_watch.h"
#include "base/status.h"

enum swap_state {
    SWAP_NONE,     /* there was none yet */
    SWAP_LOADING,  /* the successor hasn't taken over yet */
    SWAP_RETIRING, /* it has; the engine before it ends its requests */
    SWAP_DONE,
    SWAP_FAILED /* the successor has gone; the engine that served serves on */
};

struct swap {
    struct engine_guard *guard; /* of the engine that serves; borrowed */
    struct child other;         /* the successor; once it serves, the engine before it */
    struct engine_watch watch;  /* on it */
    char socket[PROCESS_PATH_MAX];
    char name[160];
    const char *argv[16];
    enum swap_state state;
    unsigned n;       /* swaps that were begun */
    int64_t ready_ms; /* of the last: from its start until it was ready */
    int64_t due_ms;   /* then `other` is killed */
    char reason[400]; /* why the last one failed; after DONE how the old engine ended, "" well */
};

/* The successor is started as `engine` is, warmed, with its own socket (beside socket_path, the
 * engine's), pid file and log (see swap_set_log). The guard, which is to have the engine, is used
 * from swap_start on; neither it nor the swap may move. */
void swap_init(struct swap *sw, struct engine_guard *g, const struct child *engine,
               const char *socket_path, int64_t stall_ms);
/* From the engine's: "FOLDER/NAME.log" gives "FOLDER/NAME.next.log". Once the successor serves, the
 * two files change names. */
void swap_set_log(struct swap *sw, const char *engine_log);
/* Leaves no file. */
void swap_dispose(struct swap *sw);
/* Its process and files of an earlier supervisor: as child_end_orphan. */
MUST_CHECK enum status swap_end_orphan(const struct swap *sw, struct reason *why);

/* ST_CONFLICT: one is under way. Others: the process doesn't start. */
MUST_CHECK enum status swap_start(struct swap *sw, int64_t now_ms, struct reason *why);
bool swap_is_under_way(const struct swap *sw);
/* "loading", "retiring" ... */
const char *swap_state_name(enum swap_state s);

/* What happened, as a sentence about the engine. */
#define SWAP_NEWS_BYTES 320

struct pollfd swap_pollfd(const struct swap *sw);
int64_t swap_due_ms(const struct swap *sw, int64_t now_ms);
/* After the guard's turn. True: there is news. */
bool swap_turn(struct swap *sw, int64_t now_ms, char news[SWAP_NEWS_BYTES]);
/* `other` has been reaped, which is news. */
void swap_on_end(struct swap *sw, int64_t now_ms, char news[SWAP_NEWS_BYTES]);

#endif
