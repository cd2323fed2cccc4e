#include "app/serve_with_engine.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/config.h"
#include "app/supervise/alone.h"
#include "app/supervise/fleet.h"
#include "app/supervise/supervisor.h"
#include "base/log.h"

/* Beyond the gateway's own drain: to settle and flush. */
#define GATEWAY_FLUSH_MS 10000

struct house {
    struct supervisor supervisor;
    struct fleet fleet;
    struct child gateway;
    char self[PATH_MAX], config[PATH_MAX];
    const char *gateway_argv[8];
};

static void describe_gateway(struct house *h, const struct config *c)
{
    const char *const argv[] = {h->self, "serve", "--config", h->config, NULL};

    memcpy(h->gateway_argv, argv, sizeof argv);
    h->gateway = (struct child){
        .spec = {.name = "gateway", .argv = h->gateway_argv, .cwd = "/", .death_signal = SIGTERM},
        .stop_signal = SIGTERM,
        .stop_ms = c->drain_ms + GATEWAY_FLUSH_MS};
    snprintf(h->gateway.pid_file, sizeof h->gateway.pid_file, "%.500s.gateway.pid",
             c->engine_socket);
}

/* Also the settings that only the children need: what is wrong with the file is said here, once. */
static enum status load(struct house *h, const char *path, struct config **out, struct reason *why)
{
    ssize_t n = readlink("/proc/self/exe", h->self, sizeof h->self - 1);
    struct config *all = NULL;
    enum status st;

    if (n <= 0)
        return fail(why, ST_IO, "/proc/self/exe: %s", strerror(errno));
    h->self[n] = '\0';
    if (realpath(path, h->config) == NULL)
        return fail(why, ST_NOT_FOUND, "%s: %s", path, strerror(errno));
    st = config_load(h->config, &all, why);
    config_free(all);
    /* No secret stays in this process. */
    return st == ST_OK ? config_load_engine(h->config, out, why) : st;
}

static enum status take_place(struct house *h, const char *socket_path, struct reason *why)
{
    enum status st = alone_take_engines(socket_path, why);

    if (st == ST_OK)
        st = child_end_orphan(&h->gateway, why);
    return st == ST_OK ? fleet_end_orphans(&h->fleet, why) : st;
}

static enum status start(struct house *h, const struct config *c, struct reason *why)
{
    struct supervisor *s = &h->supervisor;
    enum status st;

    /* In the order to stop in, from behind. */
    fleet_add(&h->fleet);
    supervisor_add(s, &h->gateway);
    st = fleet_start(&h->fleet, c->engine_socket, why);
    if (st == ST_OK)
        st = supervisor_start(s, &h->gateway, why);
    for (size_t i = 0; st == ST_OK && i < s->n; i++)
        if (s->children[i]->pid != 0)
            supervisor_say(s, "%s (pid %d) started", s->children[i]->spec.name,
                           (int)s->children[i]->pid);
    return st;
}

static enum status run(struct house *h, const struct config *c, struct reason *why)
{
    enum status st;

    assert(c != NULL); /* load gave it */
    describe_gateway(h, c);
    st = fleet_init(&h->fleet, c, h->self, h->config, &h->supervisor, &h->gateway, why);
    if (st == ST_OK)
        st = take_place(h, c->engine_socket, why);
    if (st != ST_OK)
        return st;
    st = start(h, c, why);
    if (st == ST_OK)
        supervisor_run(&h->supervisor);
    supervisor_say(&h->supervisor, "stopping");
    supervisor_stop(&h->supervisor);
    return st;
}

int serve_with_engine(const char *config_path)
{
    struct house *h = calloc(1, sizeof *h);
    struct config *c = NULL;
    struct reason why = {0};
    enum status st = ST_NO_MEMORY;

    log_init("supervisor", LOG_INFO);
    if (h != NULL)
        st = load(h, config_path, &c, &why);
    if (st == ST_OK)
        st = supervisor_init(&h->supervisor, &why);
    if (st == ST_OK)
        st = run(h, c, &why);
    config_free(c);
    if (h != NULL)
        fleet_dispose(&h->fleet);
    free(h);
    if (st == ST_OK)
        return 0;
    fprintf(stderr, "sluice serve: %s\n", why.text[0] != '\0' ? why.text : status_text(st));
    return 1;
}
