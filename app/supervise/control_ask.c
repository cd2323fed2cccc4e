#include "app/supervise/control_ask.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "app/supervise/control.h"
#include "base/buf.h"
#include "base/json.h"

/* The supervisor answers within a turn. */
#define ANSWER_S     10
#define ANSWER_DEPTH 4
/* Of 64 models, with their reasons. */
#define ANSWER_BYTES_MAX (1 << 16)

static enum status connect_to(const char *path, int *out, struct reason *why)
{
    const struct timeval patience = {.tv_sec = ANSWER_S};
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    _Static_assert(sizeof a.sun_path >= CONTROL_PATH_BYTES, "every path fits");
    if (fd == -1)
        return fail(why, ST_IO, "no socket: %s", strerror(errno));
    memcpy(a.sun_path, path, strlen(path) + 1);
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == -1 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == -1 ||
        connect(fd, (const struct sockaddr *)&a, sizeof a) == -1) {
        enum status st =
            errno == EACCES
                ? fail(why, ST_FORBIDDEN, "%s: no right to ask there; run as its user", path)
                : fail(why, ST_UNAVAILABLE,
                       "no supervisor listens at %s: start sluice serve --with-engine or sluice up",
                       path);
        close(fd);
        return st;
    }
    *out = fd;
    return ST_OK;
}

static enum status exchange(int fd, const struct buf *request, struct buf *answer,
                            struct reason *why)
{
    ssize_t n = send(fd, request->data, request->len, MSG_NOSIGNAL);

    if (n != (ssize_t)request->len)
        return fail(why, ST_IO, "the supervisor does not listen: %s", strerror(errno));
    while (answer->len < ANSWER_BYTES_MAX && buf_reserve(answer, 4096)) {
        n = recv(fd, answer->data + answer->len, 4096, 0);
        if (n == -1 && errno == EINTR)
            continue;
        if (n == 0)
            return ST_OK;
        if (n == -1)
            break;
        answer->len += (size_t)n;
    }
    return fail(why, ST_IO, "the supervisor gave no answer");
}

static void put_request(struct buf *out, const char *op, const char *id)
{
    buf_puts(out, "{\"op\":");
    json_put_cstr(out, op);
    if (id != NULL) {
        buf_puts(out, ",\"model\":");
        json_put_cstr(out, id);
    }
    buf_puts(out, "}\n");
}

static enum status read_answer(const struct buf *text, json_t **out, struct reason *why)
{
    json_t *o = NULL;
    const char *error;

    if (json_parse(text->data, text->len, ANSWER_DEPTH, &o, NULL) != ST_OK)
        return fail(why, ST_CORRUPT, "the supervisor's answer can't be read");
    if (json_is_true(json_object_get(o, "ok"))) {
        *out = o;
        return ST_OK;
    }
    error = json_string_value(json_object_get(o, "error"));
    (void)fail(why, ST_INVALID, "%s", error != NULL ? error : "the supervisor says no");
    json_decref(o);
    return ST_INVALID;
}

enum status control_ask(const char *path, const char *op, const char *id, json_t **out,
                        struct reason *why)
{
    struct buf request, answer;
    int fd = -1;
    enum status st = connect_to(path, &fd, why);

    if (st != ST_OK)
        return st;
    buf_init(&request);
    buf_init(&answer);
    put_request(&request, op, id);
    st = request.failed ? ST_NO_MEMORY : exchange(fd, &request, &answer, why);
    if (st == ST_OK)
        st = read_answer(&answer, out, why);
    buf_dispose(&request);
    buf_dispose(&answer);
    close(fd);
    return st;
}
