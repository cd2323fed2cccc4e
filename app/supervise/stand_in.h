/* Answers at an engine's socket while there is no engine: whoever greets is refused with the
 * reason. So the gateway, and everyone who asks it, can say what happened. For one that was
 * unloaded while idle it hears WAKE.
 *
 * Never blocks; one thread, which polls the descriptors. Borrows the path. */
#ifndef APP_SUPERVISE_STAND_IN_H
#define APP_SUPERVISE_STAND_IN_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* More wait in the socket's backlog. */
#define STAND_IN_CALLERS_MAX 16
#define STAND_IN_FDS         (STAND_IN_CALLERS_MAX + 1)
/* Of a REFUSED frame's text. */
#define STAND_IN_TEXT_BYTES 128

struct stand_in {
    const char *socket_path;
    int listen_fd; /* -1: it doesn't stand in */
    enum status status;
    char text[STAND_IN_TEXT_BYTES];
    bool is_woken; /* with ST_ASLEEP: somebody wants the engine */
    struct {
        int fd;
        int64_t due_ms; /* hung up then, greeted or not */
    } callers[STAND_IN_CALLERS_MAX];
    unsigned n_callers;
};

void stand_in_init(struct stand_in *s, const char *socket_path);
/* Takes the socket's path, if it hasn't, and gives status (ST_UNAVAILABLE, or ST_ASLEEP: whoever
 * needs the engine may wake it) and `text` as the reason from now on: printable, longer ones are
 * cut. */
MUST_CHECK enum status stand_in_start(struct stand_in *s, enum status status, const char *text,
                                      struct reason *why);
/* Leaves the path to the engine. */
void stand_in_stop(struct stand_in *s);

/* Fills fds[STAND_IN_FDS]; returns how many. */
unsigned stand_in_pollfds(const struct stand_in *s, struct pollfd *fds);
/* INT64_MAX: not before a descriptor says something. */
int64_t stand_in_due_ms(const struct stand_in *s);
void stand_in_turn(struct stand_in *s, int64_t now_ms);

#endif
