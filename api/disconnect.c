#include "api/disconnect.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "api/loop_thread.h"
#include "api/request.h"
#include "base/log.h"
#include "base/size.h"

static bool reserve(struct api_loop *l, size_t n)
{
    size_t cap = l->polled_cap > 0 ? l->polled_cap : 64;
    struct pollfd *fds;
    struct request **requests;

    if (n <= l->polled_cap)
        return true;
    while (cap < n)
        cap *= 2;
    fds = reallocarray(l->polled, cap, sizeof *fds);
    if (fds == NULL)
        return false;
    l->polled = fds;
    requests = reallocarray(l->polled_for, cap, sizeof *requests);
    if (requests == NULL)
        return false;
    l->polled_for = requests;
    l->polled_cap = cap;
    return true;
}

static size_t collect(struct api_loop *l)
{
    size_t n = 0;

    for (struct request *r = l->live; r != NULL; r = r->next) {
        if (r->http == NULL || r->answered || r->gone || r->http->version >= 0x200)
            continue;
        l->polled_for[n] = r;
        l->polled[n++] = (struct pollfd){
            .fd = h2o_socket_get_fd(r->conn->sock),
            .events = POLLRDHUP,
        };
    }
    return n;
}

void disconnect_poll(struct api_loop *l)
{
    size_t n;

    if (l->n_live == 0 || !reserve(l, l->n_live))
        return;
    n = collect(l);
    if (n == 0)
        return;
    if (poll(l->polled, n, 0) == -1) {
        log_error(NULL, "disconnect.poll", "errno=%d", errno);
        return;
    }
    /* Dropping one frees no other, and none whose work goes on. */
    for (size_t i = 0; i < n; i++)
        if ((l->polled[i].revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0)
            request_drop(l->polled_for[i]);
}
