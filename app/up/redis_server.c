#include "app/up/redis_server.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/up/probe.h"

/* SIGTERM writes what the append-only file lacks. */
#define STOP_MS 15000

enum status redis_server_find(struct reason *why)
{
    const char *path = getenv("PATH");
    char list[4096], file[4352];
    char *rest = list, *folder;

    snprintf(list, sizeof list, "%s", path != NULL ? path : "/usr/bin:/bin");
    while ((folder = strsep(&rest, ":")) != NULL) {
        snprintf(file, sizeof file, "%s/redis-server", folder);
        if (access(file, X_OK) == 0)
            return ST_OK;
    }
    return fail(why, ST_NOT_FOUND,
                "redis-server is not installed: install the package of that name");
}

void redis_server_child(const struct layout *l, const char *argv[PROCESS_ARGS_MAX], struct child *c)
{
    const char *const fixed[] = {
        "redis-server",
        "--port",
        "0",
        "--unixsocket",
        l->redis_socket,
        "--unixsocketperm",
        "700",
        "--dir",
        l->redis_data,
        "--appendonly",
        "yes",
        "--appendfsync",
        "everysec",
        "--maxmemory-policy",
        "noeviction",
        "--save",
        "",
        "--daemonize",
        "no",
        "--databases",
        "1",
        "--logfile",
        "",
        NULL,
    };

    memcpy(argv, fixed, sizeof fixed);
    c->spec.name = "Redis";
    c->spec.argv = argv;
    c->spec.account = &l->redis;
    c->spec.death_signal = SIGTERM;
    c->stop_signal = SIGTERM;
    c->stop_ms = STOP_MS;
    c->spec.cwd = l->redis_data;
}

bool redis_server_is_ready(const struct layout *l)
{
    char answer[64];

    return probe_unix(l->redis_socket, "PING\r\n", answer, sizeof answer) &&
           strncmp(answer, "+PONG", 5) == 0;
}
