/* Watches an engine process by its own protocol: greets it as a monitor, reads its STATS, and says
 * when it is stuck: loading for ever, silent, or with work that waits and no step made. So a
 * stopped process, a deadlock and a kernel that hangs look alike.
 *
 * Never blocks; one thread, which polls the descriptor and calls engine_watch_turn at least once a
 * second. Borrows the socket's path. Time is the caller's monotonic clock. */
#ifndef APP_SUPERVISE_ENGINE_WATCH_H
#define APP_SUPERVISE_ENGINE_WATCH_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"
#include "engine/wire/wire.h"

/* From the start of the process to its greeting: 400 GB from a disk of 250 MB/s. */
#define ENGINE_LOAD_MAX_MS 1800000
/* A greeting is answered between two steps. Unanswered for so long, it is made anew: so the engine
 * finds a fresh one after whatever step. */
#define ENGINE_GREETING_MS 5000

enum engine_watch_state {
    ENGINE_WATCH_OFF,      /* no process to watch */
    ENGINE_WATCH_AWAY,     /* no connection; tried again every so often */
    ENGINE_WATCH_GREETING, /* HELLO is out */
    ENGINE_WATCH_SEES,     /* greeted: STATS come */
};

struct engine_watch {
    const char *socket_path;
    int64_t stall_ms; /* of silence, or of work without a step; 0: never stuck */
    enum engine_watch_state state;
    int fd; /* -1: none */
    struct buf in, out;
    int64_t began_ms;  /* the process started */
    int64_t heard_ms;  /* the last frame, once greeted */
    int64_t turned_ms; /* the last turn */
    int64_t due_ms;    /* next try, or the greeting's end */
    bool greeted;      /* this process, at least once */
    bool has_stats;
    struct wire_welcome welcome; /* when greeted */
    struct wire_stats stats;     /* when has_stats */
    char refused[128];           /* the text of the last REFUSED; "" none */
    enum status refused_status;  /* and its status */
};

void engine_watch_init(struct engine_watch *w, const char *socket_path, int64_t stall_ms);
void engine_watch_dispose(struct engine_watch *w);
/* A process has started. */
void engine_watch_start(struct engine_watch *w, int64_t now_ms);
/* It has gone, or is to go. */
void engine_watch_stop(struct engine_watch *w);

/* Greeted, and of WIRE_VERSION_HANDOVER at least: it hears that another engine serves the path. */
void engine_watch_hand_over(struct engine_watch *w);

/* What to poll for: fd -1 where there is nothing. */
struct pollfd engine_watch_pollfd(const struct engine_watch *w);
/* When the next turn is due, whatever the descriptor says. */
int64_t engine_watch_due_ms(const struct engine_watch *w, int64_t now_ms);
/* Tells an engine that is seen that it isn't needed, as far as it knows that word: one that really
 * has nothing to do then leaves. */
void engine_watch_send_to_sleep(struct engine_watch *w);
/* Connects, reads, judges. True: the engine is stuck, and *why says how ("made no step for 30 s
 * while 3 requests waited"). */
bool engine_watch_turn(struct engine_watch *w, int64_t now_ms, struct reason *why);

#endif
