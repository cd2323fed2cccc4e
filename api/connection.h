/* One accepted connection, from accept to the socket's close, found from a request by its socket.
 *
 * H2O 2.2.5 keeps no place of ours in its connections, so this hangs on the socket's close hook. It
 * carries what a stranger's connection is held to: H2O predates the fix for HTTP/2 rapid reset, so
 * requests that end before their answer are counted here, and bytes that never reach a handler are
 * sampled. Belongs to its loop's thread. */
#ifndef API_CONNECTION_H
#define API_CONNECTION_H

#include <h2o.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/routes.h"

struct api_loop;

struct connection {
    struct api_loop *loop;
    h2o_socket_t *sock;
    enum listener_kind kind;
    bool shut;              /* we gave it up: nothing more is done for it */
    unsigned live;          /* requests in hand */
    unsigned unfinished;    /* requests dropped before their answer, in this window */
    int64_t window_ms;      /* when the window began */
    unsigned handled;       /* requests that reached our handler, in this window */
    size_t bytes_seen;      /* the socket's bytes_read at the last look */
    size_t bytes_unhandled; /* read since the last request that reached a handler */
    struct connection *prev, *next;
};

/* Takes over a socket just accepted; closes it when the loop has its fill. */
void connection_accept(struct api_loop *l, h2o_socket_t *sock, enum listener_kind kind);
struct connection *connection_of(h2o_req_t *http);
/* A request came; false: this connection was given up. */
bool connection_enter(struct connection *c);
/* A request's memory goes; `finished`: its answer went out whole. */
void connection_leave(struct connection *c, bool finished);
/* Cuts it: H2O notices and closes. */
void connection_shut(struct connection *c, const char *why);
bool connection_is_loopback(const struct connection *c);
/* Looks for floods that never reach a handler. Call once a second. */
void connection_sample(struct api_loop *l);
/* `all` false: those without a request in hand, so that keep-alive doesn't hold up a drain (what
 * they sent already is still read). */
void connection_shut_all(struct api_loop *l, bool all);

#endif
