/* Where `sluice model` talks to a supervisor: a Unix socket of mode 0600 beside the engine's, one
 * line of JSON each way, then it hangs up:
 *
 *     {"op":"list"}
 *     {"op":"load","model":"ID"}   {"op":"unload","model":"ID"}   {"op":"swap","model":"ID"}
 *     {"ok":true,"config":"FILE","models":[{"id":"ID","state":"ready","pid":4711,"reason":""}]}
 *     {"ok":false,"error":"there is no model ID"}
 *
 * Never blocks; one thread, which polls the descriptors. */
#ifndef APP_SUPERVISE_CONTROL_H
#define APP_SUPERVISE_CONTROL_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

#define CONTROL_LINE_BYTES 512 /* of a request, its end included; a model's id has up to 95 */
/* More wait in the socket's backlog. */
#define CONTROL_CALLERS_MAX 8
#define CONTROL_FDS         (CONTROL_CALLERS_MAX + 1)
/* Of a socket's path, with its NUL (unix(7)). */
#define CONTROL_PATH_BYTES 108

enum control_op { CONTROL_LIST, CONTROL_LOAD, CONTROL_UNLOAD, CONTROL_SWAP };

struct control_request {
    enum control_op op;
    char model[96]; /* its id; "" with CONTROL_LIST */
};

/* Appends one line of JSON, its end included. */
typedef void control_answer(void *arg, const struct control_request *r, int64_t now_ms,
                            struct buf *out);

struct control {
    int listen_fd; /* -1: closed */
    char path[CONTROL_PATH_BYTES];
    control_answer *answer;
    void *arg;
    struct control_caller {
        int fd;
        int64_t due_ms; /* hung up then, whatever came */
        size_t len;
        char line[CONTROL_LINE_BYTES];
    } callers[CONTROL_CALLERS_MAX];
    unsigned n_callers;
};

/* The socket's path for an engine socket's. ST_TOO_LARGE: a Unix socket can't have it. */
MUST_CHECK enum status control_path(const char *engine_socket, char out[CONTROL_PATH_BYTES],
                                    struct reason *why);
/* One request, without the end of its line. ST_INVALID for anything else than the forms
 * above, with no other key and no control character in the id. */
MUST_CHECK enum status control_parse(const char *line, size_t len, struct control_request *out,
                                     struct reason *why);

/* The answer that says no. */
void control_put_error(struct buf *out, const char *text);

/* ST_TOO_LARGE, ST_CONFLICT (something else has the path), ST_IO; it is closed then. */
MUST_CHECK enum status control_open(struct control *c, const char *engine_socket,
                                    control_answer *answer, void *arg, struct reason *why);
/* Leaves no file. A zeroed struct, one that wasn't opened, and a second time are fine. */
void control_close(struct control *c);

/* Fills fds[CONTROL_FDS]; returns how many. */
unsigned control_pollfds(const struct control *c, struct pollfd *fds);
/* INT64_MAX: not before a descriptor says something. */
int64_t control_due_ms(const struct control *c);
void control_turn(struct control *c, int64_t now_ms);

#endif
