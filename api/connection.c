#include "api/connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "api/loop_thread.h"
#include "base/log.h"

/* An agent that cancels much drops tens of requests in a window; the rapid-reset attack drops tens
 * of thousands in a second. */
#define UNFINISHED_MAX 500
/* Requests of any kind in a window: what is answered at once (health, a bad key) can be flooded
 * too, and a reset that overtakes such an answer isn't seen. */
#define HANDLED_MAX 50000
#define WINDOW_MS   10000

static void on_socket_close(void *data)
{
    struct connection *c = data;

    if (c->prev != NULL)
        c->prev->next = c->next;
    else
        c->loop->connections = c->next;
    if (c->next != NULL)
        c->next->prev = c->prev;
    c->loop->n_connections--;
    free(c);
}

static void link_connection(struct api_loop *l, struct connection *c)
{
    c->next = l->connections;
    if (l->connections != NULL)
        l->connections->prev = c;
    l->connections = c;
    l->n_connections++;
}

void connection_accept(struct api_loop *l, h2o_socket_t *sock, enum listener_kind kind)
{
    struct connection *c = NULL;

    if (l->n_connections < l->api->cfg.connections_max)
        c = calloc(1, sizeof *c);
    if (c == NULL) {
        metrics_add(&l->metrics, METRIC_CONNECTIONS_REFUSED, 1);
        h2o_socket_close(sock);
        return;
    }
    c->loop = l;
    c->sock = sock;
    c->kind = kind;
    c->window_ms = loop_now_ms(&l->loop.super);
    link_connection(l, c);
    sock->on_close.cb = on_socket_close;
    sock->on_close.data = c;
    h2o_accept(kind == LISTENER_TLS ? &l->accept_tls : &l->accept_plain, sock);
}

struct connection *connection_of(h2o_req_t *http)
{
    return http->conn->callbacks->get_socket(http->conn)->on_close.data;
}

static void turn_window(struct connection *c)
{
    int64_t now_ms = loop_now_ms(&c->loop->loop.super);

    if (now_ms - c->window_ms <= WINDOW_MS)
        return;
    c->window_ms = now_ms;
    c->handled = 0;
    c->unfinished = 0;
}

bool connection_enter(struct connection *c)
{
    if (c->shut)
        return false;
    turn_window(c);
    if (++c->handled > HANDLED_MAX) {
        connection_shut(c, "too many requests");
        return false;
    }
    c->bytes_seen = c->sock->bytes_read;
    c->bytes_unhandled = 0;
    c->live++;
    return true;
}

void connection_leave(struct connection *c, bool finished)
{
    c->live--;
    if (finished)
        return;
    turn_window(c);
    if (++c->unfinished > UNFINISHED_MAX)
        connection_shut(c, "too many requests dropped before their answer");
}

void connection_shut(struct connection *c, const char *why)
{
    if (c->shut)
        return;
    c->shut = true;
    metrics_add(&c->loop->metrics, METRIC_CONNECTIONS_SHUT, 1);
    log_warn(NULL, "connection.shut", "%s (%u handled lately)", why, c->handled);
    /* Not h2o_socket_close: this may run inside H2O's own parsing of this connection. */
    shutdown(h2o_socket_get_fd(c->sock), SHUT_RDWR);
}

bool connection_is_loopback(const struct connection *c)
{
    struct sockaddr_storage ss;
    struct sockaddr *sa = (struct sockaddr *)&ss;

    if (h2o_socket_getpeername(c->sock, sa) == 0)
        return false;
    if (sa->sa_family == AF_INET)
        return ntohl(((struct sockaddr_in *)sa)->sin_addr.s_addr) >> 24 == 127;
    if (sa->sa_family != AF_INET6)
        return false;
    return IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)sa)->sin6_addr);
}

/* H2O doesn't tell of streams that are reset before their body is whole, nor of PING or SETTINGS
 * frames: bytes are all that is seen of them. A body that is still coming is bounded by H2O's cap,
 * and many at once by what a loop may buffer. */
void connection_sample(struct api_loop *l)
{
    size_t max_bytes = l->api->cfg.buffered_max_bytes + H2O_ENTITY_MAX_BYTES;

    for (struct connection *c = l->connections; c != NULL; c = c->next) {
        size_t read = c->sock->bytes_read;

        /* H2O sets its counter back when it goes over to the next request. */
        c->bytes_unhandled += read >= c->bytes_seen ? read - c->bytes_seen : read;
        c->bytes_seen = read;
        if (c->bytes_unhandled > max_bytes)
            connection_shut(c, "too many bytes that never became a request");
    }
}

void connection_shut_all(struct api_loop *l, bool all)
{
    for (struct connection *c = l->connections; c != NULL; c = c->next) {
        if (all)
            shutdown(h2o_socket_get_fd(c->sock), SHUT_RDWR);
        else if (c->live == 0)
            shutdown(h2o_socket_get_fd(c->sock), SHUT_RD);
    }
}
