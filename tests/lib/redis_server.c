#include "tests/lib/redis_server.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"

#define START_TIMEOUT_MS 20000

static int connect_socket(const struct redis_server *s)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert(fd != -1 && strlen(s->socket_path) < sizeof addr.sun_path);
    memcpy(addr.sun_path, s->socket_path, strlen(s->socket_path) + 1);
    if (connect(fd, (struct sockaddr *)&addr, sizeof addr) == -1) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Replies here are one line; `out` gets what came first. False: no server. */
static bool ask(struct redis_server *s, const char *const *words, int n, char *out, size_t cap)
{
    char command[1024];
    size_t used = (size_t)snprintf(command, sizeof command, "*%d\r\n", n);
    int fd = connect_socket(s);
    ssize_t got;

    if (fd == -1)
        return false;
    for (int i = 0; i < n; i++)
        used += (size_t)snprintf(command + used, sizeof command - used, "$%zu\r\n%s\r\n",
                                 strlen(words[i]), words[i]);
    assert(used < sizeof command);
    if (send(fd, command, used, MSG_NOSIGNAL) != (ssize_t)used) {
        close(fd);
        return false;
    }
    got = recv(fd, out, cap - 1, 0);
    out[got > 0 ? got : 0] = '\0';
    close(fd);
    return got > 0;
}

long long redis_server_ask(struct redis_server *s, const char *const *words, int n)
{
    char reply[256];

    if (!ask(s, words, n, reply, sizeof reply) || reply[0] != ':')
        return -1;
    return strtoll(reply + 1, NULL, 10);
}

void redis_server_resume(struct redis_server *s)
{
    const char *argv[] = {
        s->program, "--port", "0",    "--unixsocket",       s->socket_path, "--unixsocketperm",
        "777",      "--dir",  s->dir, "--appendonly",       "yes",          "--appendfsync",
        "always",   "--save", "",     "--maxmemory-policy", "noeviction",   NULL};
    static const char *const ping[] = {"PING"};
    int64_t deadline = clock_mono_ms() + START_TIMEOUT_MS;
    char reply[256] = "";

    s->pid = server_spawn(s->dir, "redis", argv);
    while (!ask(s, ping, 1, reply, sizeof reply) || strncmp(reply, "+PONG", 5) != 0) {
        assert(clock_mono_ms() < deadline);
        poll(NULL, 0, 10);
    }
}

bool redis_server_start(struct redis_server *s)
{
    memset(s, 0, sizeof *s);
    s->pid = -1;
    if (!server_find("redis-server", NULL, s->program, sizeof s->program)) {
        fprintf(stderr, "skipped: redis-server is not installed\n");
        return false;
    }
    scratch_make(s->dir);
    snprintf(s->socket_path, sizeof s->socket_path, "%s/redis.sock", s->dir);
    redis_server_resume(s);
    return true;
}

void redis_server_crash(struct redis_server *s)
{
    server_end(s->pid, SIGKILL);
    s->pid = -1;
}

void redis_server_stop(struct redis_server *s)
{
    if (s->pid != -1)
        redis_server_crash(s);
    scratch_remove(s->dir);
}

void redis_server_freeze(struct redis_server *s)
{
    assert(kill(s->pid, SIGSTOP) == 0);
}

void redis_server_thaw(struct redis_server *s)
{
    assert(kill(s->pid, SIGCONT) == 0);
}
