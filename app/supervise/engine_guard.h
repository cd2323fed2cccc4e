/* Everything a supervisor does for its engine beside starting it: a watch on its progress, an
 * answer at its socket while there is none, and a small file beside the socket (SOCKET.state) from
 * which `sluice status` knows deaths and reasons.
 *
 * One thread; borrows child and path. */
#ifndef APP_SUPERVISE_ENGINE_GUARD_H
#define APP_SUPERVISE_ENGINE_GUARD_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "app/supervise/children.h"
#include "app/supervise/engine_watch.h"
#include "app/supervise/stand_in.h"

#define ENGINE_GUARD_FDS (STAND_IN_FDS + 1)

enum engine_guard_state {
    ENGINE_GUARD_LOADING,   /* it runs, and hasn't greeted yet */
    ENGINE_GUARD_READY,     /* it has */
    ENGINE_GUARD_WAITING,   /* it ended, and starts again by itself */
    ENGINE_GUARD_STOPPED,   /* given up in a crash loop */
    ENGINE_GUARD_UNLOADING, /* it ends its requests, on demand */
    ENGINE_GUARD_UNLOADED,
    ENGINE_GUARD_IDLE /* unloaded because nobody asked for it; the next request loads it */
};

struct engine_guard {
    struct child *child;
    bool is_unloaded;       /* on demand; the process may be still on its way out, until: */
    int64_t unload_kill_ms; /* then it is killed */
    int64_t idle_ms;        /* of nothing to do until it is to leave; 0: it stays */
    struct {
        int64_t since_ms; /* nothing to do, as far as is known */
        uint64_t steps;   /* its steps by then */
        int64_t asked_ms; /* when it was sent to sleep last; 0: it wasn't */
        bool is_away;     /* and so it left */
    } idle;
    struct engine_watch watch;
    struct stand_in stand_in;
    char state_path[PROCESS_PATH_MAX];
};

/* From now on the child counts as healthy from its greeting on, and is given up in a crash loop. */
void engine_guard_init(struct engine_guard *g, struct child *engine, const char *socket_path,
                       int64_t stall_ms, int64_t idle_ms);
/* Leaves no file. */
void engine_guard_dispose(struct engine_guard *g);

/* Before the child is started: the socket is its own. */
void engine_guard_make_way(struct engine_guard *g);
void engine_guard_on_start(struct engine_guard *g, int64_t now_ms);
/* It ended, with that status of waitpid(2); before child_on_exit. True: it left for having nothing
 * to do, as it says by its exit code, and isn't wanted until a request comes. */
bool engine_guard_on_exit(struct engine_guard *g, int wait_status);
/* It ended, or didn't start (then `problem` says why; else NULL): answers at its socket, unless it
 * is to end with its supervisor. */
void engine_guard_on_end(struct engine_guard *g, const char *problem);

/* g->child runs another process since now, which serves the socket's path: `watch` has greeted it,
 * and is exchanged for the one on the process before it. */
void engine_guard_succeed(struct engine_guard *g, struct engine_watch *watch, int64_t now_ms);

/* Fills fds[ENGINE_GUARD_FDS]; returns how many. */
unsigned engine_guard_pollfds(const struct engine_guard *g, struct pollfd *fds);
int64_t engine_guard_due_ms(const struct engine_guard *g, int64_t now_ms);
/* True: the engine is stuck, and was killed for what c->killed_for says. */
bool engine_guard_turn(struct engine_guard *g, int64_t now_ms);

/* On demand: the engine ends what it computes, takes nothing new, and leaves; whoever asks at its
 * socket is told so. Again: nothing. */
void engine_guard_unload(struct engine_guard *g, int64_t now_ms);
/* Due at once, whatever kept it down. ST_CONFLICT: it is still on its way out. */
MUST_CHECK enum status engine_guard_load(struct engine_guard *g, int64_t now_ms,
                                         struct reason *why);
enum engine_guard_state engine_guard_state(const struct engine_guard *g);
/* "loading", "ready" ... */
const char *engine_guard_state_name(enum engine_guard_state s);

/* It isn't idle now: its successor is coming. */
void engine_guard_keep_awake(struct engine_guard *g, int64_t now_ms);

/* What is said about an engine that is away, in `size` bytes. */
void engine_guard_text(const struct child *engine, char *out, size_t size);

#endif
