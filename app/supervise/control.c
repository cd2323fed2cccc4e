#include "app/supervise/control.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/json.h"
#include "base/size.h"
#include "engine/core/listener.h"

/* A request comes with the connection. */
#define CALLER_MS 2000
/* An object of texts. */
#define REQUEST_DEPTH 1

enum status control_path(const char *engine_socket, char out[CONTROL_PATH_BYTES],
                         struct reason *why)
{
    if (strlen(engine_socket) + sizeof ".control" > CONTROL_PATH_BYTES)
        return fail(why, ST_TOO_LARGE, "%s.control is too long for a socket's path", engine_socket);
    snprintf(out, CONTROL_PATH_BYTES, "%s.control", engine_socket);
    return ST_OK;
}

/* ---- requests ---- */

static const struct {
    const char *name;
    enum control_op op;
    bool has_model;
} ops[] = {
    {"list", CONTROL_LIST, false},
    {"load", CONTROL_LOAD, true},
    {"unload", CONTROL_UNLOAD, true},
    {"swap", CONTROL_SWAP, true},
};

/* As the file of the configuration may name one: for logs and terminals, too. */
static bool take_model(const json_t *value, char *out, size_t size)
{
    const char *text = json_string_value(value);
    size_t len = json_string_length(value);

    if (text == NULL || len == 0 || len >= size)
        return false;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7F)
            return false;
    memcpy(out, text, len + 1);
    return true;
}

static bool take_request(const json_t *o, struct control_request *out)
{
    const char *name = json_string_value(json_object_get(o, "op"));

    for (size_t i = 0; name != NULL && i < COUNT_OF(ops); i++) {
        if (strcmp(ops[i].name, name) != 0)
            continue;
        out->op = ops[i].op;
        if (json_object_size(o) != (ops[i].has_model ? 2 : 1))
            return false;
        return !ops[i].has_model ||
               take_model(json_object_get(o, "model"), out->model, sizeof out->model);
    }
    return false;
}

enum status control_parse(const char *line, size_t len, struct control_request *out,
                          struct reason *why)
{
    struct control_request r = {.op = CONTROL_LIST};
    json_t *o = NULL;
    enum status st = ST_OK;

    if (len >= CONTROL_LINE_BYTES)
        return fail(why, ST_INVALID, "a request has at most %d bytes", CONTROL_LINE_BYTES - 1);
    if (json_parse(line, len, REQUEST_DEPTH, &o, NULL) != ST_OK || !take_request(o, &r))
        st = fail(why, ST_INVALID, "not a request that this supervisor knows");
    json_decref(o);
    if (st == ST_OK)
        *out = r;
    return st;
}

/* ---- the socket ---- */

enum status control_open(struct control *c, const char *engine_socket, control_answer *answer,
                         void *arg, struct reason *why)
{
    enum status st;

    memset(c, 0, sizeof *c);
    c->listen_fd = -1;
    c->answer = answer;
    c->arg = arg;
    st = control_path(engine_socket, c->path, why);
    if (st == ST_OK)
        st = listener_open(c->path, &c->listen_fd, why);
    if (st != ST_OK)
        return st;
    st = listener_start(c->path, c->listen_fd, why);
    if (st != ST_OK) {
        close(c->listen_fd);
        c->listen_fd = -1;
    }
    return st;
}

void control_close(struct control *c)
{
    while (c->n_callers > 0)
        close(c->callers[--c->n_callers].fd);
    if (c->path[0] == '\0' || c->listen_fd == -1)
        return;
    unlink(c->path);
    close(c->listen_fd);
    c->listen_fd = -1;
}

unsigned control_pollfds(const struct control *c, struct pollfd *fds)
{
    if (c->listen_fd == -1)
        return 0;
    for (unsigned i = 0; i < c->n_callers; i++)
        fds[i] = (struct pollfd){.fd = c->callers[i].fd, .events = POLLIN};
    fds[c->n_callers] = (struct pollfd){
        .fd = c->n_callers < CONTROL_CALLERS_MAX ? c->listen_fd : -1, .events = POLLIN};
    return c->n_callers + 1;
}

int64_t control_due_ms(const struct control *c)
{
    int64_t due_ms = INT64_MAX;

    for (unsigned i = 0; i < c->n_callers; i++)
        due_ms = int64_min(due_ms, c->callers[i].due_ms);
    return due_ms;
}

void control_put_error(struct buf *out, const char *text)
{
    buf_puts(out, "{\"ok\":false,\"error\":");
    json_put_cstr(out, text);
    buf_puts(out, "}\n");
}

static void reply(const struct control *c, const struct control_caller *caller, size_t len,
                  int64_t now_ms)
{
    struct control_request r;
    struct reason why = {0};
    struct buf out;

    buf_init(&out);
    if (control_parse(caller->line, len, &r, &why) == ST_OK)
        c->answer(c->arg, &r, now_ms, &out);
    else
        control_put_error(&out, why.text);
    /* All models' states are far less than a socket's buffer; a caller that has gone needs none. */
    if (!out.failed && send(caller->fd, out.data, out.len, MSG_NOSIGNAL | MSG_DONTWAIT) == -1)
        errno = 0;
    buf_dispose(&out);
}

/* Its line is complete (or will never be), it has gone, or its time is over. */
static bool is_done(const struct control *c, struct control_caller *caller, int64_t now_ms)
{
    ssize_t n = recv(caller->fd, caller->line + caller->len, sizeof caller->line - caller->len,
                     MSG_DONTWAIT);
    const char *end;

    if (n == -1)
        return (errno != EAGAIN && errno != EINTR) || now_ms >= caller->due_ms;
    caller->len += (size_t)n;
    end = memchr(caller->line, '\n', caller->len);
    if (end != NULL || caller->len == sizeof caller->line) {
        reply(c, caller, end != NULL ? (size_t)(end - caller->line) : caller->len, now_ms);
        return true;
    }
    return n == 0 || now_ms >= caller->due_ms;
}

static void accept_all(struct control *c, int64_t now_ms)
{
    while (c->n_callers < CONTROL_CALLERS_MAX) {
        int fd = accept4(c->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd == -1)
            return;
        c->callers[c->n_callers].fd = fd;
        c->callers[c->n_callers].len = 0;
        c->callers[c->n_callers++].due_ms = now_ms + CALLER_MS;
    }
}

void control_turn(struct control *c, int64_t now_ms)
{
    if (c->listen_fd == -1)
        return;
    accept_all(c, now_ms);
    for (unsigned i = c->n_callers; i-- > 0;) {
        if (!is_done(c, &c->callers[i], now_ms))
            continue;
        close(c->callers[i].fd);
        c->callers[i] = c->callers[--c->n_callers];
    }
}
