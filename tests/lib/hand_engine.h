/* An engine process played by hand: the test listens on the rig's socket, greets the gateway's
 * side, and writes frames of its own. Failures abort the test. One thread. */
#ifndef TESTS_LIB_HAND_ENGINE_H
#define TESTS_LIB_HAND_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "tests/lib/engine_rig.h"

struct hand_engine {
    struct engine_rig *rig;
    int listen_fd, fd; /* fd may be closed, and set to -1, at any time */
};

/* Opens the rig too and waits until its link has come: it has no answer yet. */
void hand_engine_listen(struct hand_engine *h, struct engine_rig *r);
/* The same, and says that it serves this revision with such
 * a context. NULL, 0: the rig's. */
void hand_engine_open(struct hand_engine *h, struct engine_rig *r, const char *revision,
                      uint32_t context_tokens);
/* Whether the link has come (again); a struct hand_engine, for engine_rig_await. */
bool hand_engine_has_come(void *h);
/* Whether the link has closed its side. */
bool hand_engine_has_left(void *h);
/* Until it has. */
void hand_engine_await_left(struct hand_engine *h);
/* The rig too. */
void hand_engine_close(struct hand_engine *h);
/* Whole, and at once: sockets of tests have room. */
void hand_engine_send(int fd, const struct buf *b);

#endif
