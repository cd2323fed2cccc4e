#include "app/up/up.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/config.h"
#include "app/supervise/alone.h"
#include "app/supervise/files.h"
#include "app/supervise/fleet.h"
#include "app/supervise/supervisor.h"
#include "app/up/checks.h"
#include "app/up/commands.h"
#include "app/up/config_write.h"
#include "app/up/demo.h"
#include "app/up/last_start.h"
#include "app/up/options.h"
#include "app/up/postgres.h"
#include "app/up/probe.h"
#include "app/up/readme.h"
#include "app/up/redis_server.h"
#include "app/up/tls.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/size.h"

/* A log larger than this is put aside at start: it must not grow for ever. */
#define LOG_BYTES_MAX (16 << 20)
/* Crash recovery of a big database, or loading a big append-only file. */
#define DATABASE_READY_MS 120000
/* A big model on a slow disk. */
#define READY_MS 600000
/* "Still waiting" every so often. */
#define PATIENCE_MS 10000
/* The gateway's own drain (server.drain_ms, 10 s) and what it takes to settle and flush. */
#define GATEWAY_STOP_MS 20000

struct up {
    struct up_options options;
    struct layout layout;
    struct supervisor supervisor;
    struct postgres postgres;
    struct child postgres_child, redis_child, gateway_child;
    struct fleet fleet;
    const char *redis_argv[PROCESS_ARGS_MAX];
    const char *gateway_argv[8], *migrate_argv[8];
    struct config *last; /* of the last start; NULL: this is the first */
    char self[PATH_MAX];
    struct model_choice models[UP_MODELS_MAX];
    size_t n_models;
    char config[LAYOUT_PATH_MAX];
    char conninfo[POSTGRES_CONNINFO_MAX];
    char readyz[2048]; /* the last answer */
};

/* ---- before anything starts ---- */

static void set_files(struct up *u, struct child *c, const char *name)
{
    const struct layout *l = &u->layout;

    snprintf(c->spec.log, sizeof c->spec.log, "%.560s/%s.log", l->log, name);
    snprintf(c->pid_file, sizeof c->pid_file, "%.560s/%s.pid", l->run, name);
    file_put_aside(c->spec.log, LOG_BYTES_MAX);
}

/* What an earlier launcher left behind ends in the order of every stop; but engines, which need no
 * database, when the file has said which ones there are. */
static enum status end_orphans(struct up *u, struct reason *why)
{
    enum status st = child_end_orphan(&u->gateway_child, why);

    if (st == ST_OK)
        st = child_end_orphan(&u->redis_child, why);
    return st == ST_OK ? child_end_orphan(&u->postgres_child, why) : st;
}

static void describe_own(struct up *u)
{
    const char *const gateway[] = {u->self, "serve", "--config", u->config, NULL};
    const char *const migrate[] = {u->self, "migrate", "--config", u->config, NULL};

    memcpy(u->gateway_argv, gateway, sizeof gateway);
    memcpy(u->migrate_argv, migrate, sizeof migrate);
    u->gateway_child.spec = (struct process_spec){
        .name = "gateway", .argv = u->gateway_argv, .cwd = "/", .death_signal = SIGTERM};
    u->gateway_child.stop_signal = SIGTERM;
    u->gateway_child.stop_ms = GATEWAY_STOP_MS;
}

static enum status describe(struct up *u, struct reason *why)
{
    const struct layout *l = &u->layout;
    ssize_t n = readlink("/proc/self/exe", u->self, sizeof u->self - 1);
    enum status st;

    if (n <= 0)
        return fail(why, ST_IO, "/proc/self/exe: %s", strerror(errno));
    u->self[n] = '\0';
    layout_path(l, "sluice.yaml", u->config);
    describe_own(u);
    st = postgres_find(&u->postgres, l, why);
    if (st == ST_OK)
        st = redis_server_find(why);
    if (st != ST_OK)
        return st;
    postgres_conninfo(l, u->conninfo);
    postgres_child(&u->postgres, &u->postgres_child);
    redis_server_child(l, u->redis_argv, &u->redis_child);
    set_files(u, &u->postgres_child, "postgres");
    set_files(u, &u->redis_child, "redis");
    set_files(u, &u->gateway_child, "gateway");
    return ST_OK;
}

/* Everything that can be seen to fail is seen here, before the first process starts. */
static enum status prepare(struct up *u, struct reason *why)
{
    struct layout *l = &u->layout;
    enum status st = layout_open(l, u->options.dir, why);

    if (st == ST_OK)
        st = check_alone(l->dir, why);
    if (st == ST_OK)
        st = check_space(l->dir, why);
    if (st == ST_OK)
        st = layout_make(l, why);
    if (st == ST_OK)
        st = describe(u, why);
    if (st == ST_OK)
        st = last_start_read(u->config, &u->options, &u->last, why);
    if (st == ST_OK)
        st = end_orphans(u, why);
    if (st == ST_OK)
        st = check_ports(&u->options, why);
    if (st == ST_OK)
        st = last_start_models(&u->options, u->last, u->models, &u->n_models, why);
    return st;
}

static enum status write_files(struct up *u, struct reason *why)
{
    const struct layout *l = &u->layout;
    char cert[LAYOUT_PATH_MAX], key[LAYOUT_PATH_MAX];
    struct config_values v = {.layout = l,
                              .model_path = u->models[0].path,
                              .model_id = u->models[0].id,
                              .models = u->models,
                              .n_models = u->n_models,
                              .conninfo = u->conninfo,
                              .port = u->options.port,
                              .tls_port = u->options.tls_port,
                              .admin_port = u->options.admin_port};
    enum status st = demo_pepper(l, why);

    if (st == ST_OK)
        st = tls_make(layout_path(l, "tls.crt", cert), layout_path(l, "tls.key", key), why);
    if (st == ST_OK)
        st = config_write(&v, why);
    if (st == ST_OK)
        st = readme_write(l, why);
    return st;
}

/* ---- start ---- */

static bool postgres_ready(void *arg)
{
    const struct up *u = arg;

    return postgres_is_ready(&u->postgres);
}

static bool redis_ready(void *arg)
{
    const struct up *u = arg;

    return redis_server_is_ready(&u->layout);
}

static bool gateway_ready(void *arg)
{
    struct up *u = arg;

    return probe_http("127.0.0.1", u->options.port, "/readyz", u->readyz, sizeof u->readyz) == 200;
}

static enum status start_postgres(struct up *u, struct reason *why)
{
    bool is_new = !file_exists(u->layout.postgres_data);
    enum status st;

    if (is_new)
        supervisor_say(&u->supervisor, "making a PostgreSQL %d cluster", u->postgres.major);
    st = postgres_make_cluster(&u->postgres, why);
    if (st != ST_OK)
        return st;
    /* Keys of an earlier database mean nothing to a new one. */
    if (u->postgres.made)
        demo_forget(&u->layout);
    return supervisor_start(&u->supervisor, &u->postgres_child, why);
}

static enum status start_databases(struct up *u, struct reason *why)
{
    struct supervisor *s = &u->supervisor;
    enum status st = supervisor_start(&u->supervisor, &u->redis_child, why);

    if (st == ST_OK)
        st = start_postgres(u, why);
    if (st == ST_OK)
        st = supervisor_wait(s, postgres_ready, u, DATABASE_READY_MS, why);
    if (st == ST_OK)
        supervisor_say(s, "PostgreSQL %d is ready", u->postgres.major);
    if (st == ST_OK)
        st = supervisor_wait(s, redis_ready, u, DATABASE_READY_MS, why);
    if (st == ST_OK)
        supervisor_say(s, "Redis is ready");
    return st;
}

static enum status fill_database(struct up *u, struct reason *why)
{
    struct process_spec migrate = {
        .name = "migrate", .argv = u->migrate_argv, .cwd = "/", .death_signal = SIGTERM};
    enum status st = postgres_make_database(&u->postgres, why);

    snprintf(migrate.log, sizeof migrate.log, "%.600s/migrate.log", u->layout.log);
    if (st == ST_OK)
        st = process_run(&migrate, why);
    if (st == ST_OK)
        st = demo_keys(&u->layout, u->conninfo, why);
    if (st == ST_OK)
        supervisor_say(&u->supervisor, "schema and keys are there");
    return st;
}

/* The text that /readyz answered with, on one line: what is still away. */
static const char *readyz_text(struct up *u)
{
    char *body = strstr(u->readyz, "\r\n\r\n");

    if (body == NULL)
        return "the gateway does not answer yet";
    body += 4;
    body[strcspn(body, "\r\n")] = '\0';
    return body;
}

static enum status wait_for_gateway(struct up *u, struct reason *why)
{
    enum status st = ST_TIMEOUT;

    for (int64_t waited_ms = 0; st == ST_TIMEOUT && waited_ms < READY_MS;
         waited_ms += PATIENCE_MS) {
        u->readyz[0] = '\0';
        st = supervisor_wait(&u->supervisor, gateway_ready, u, PATIENCE_MS, why);
        if (st == ST_TIMEOUT)
            supervisor_say(&u->supervisor, "still waiting: %s", readyz_text(u));
    }
    return st;
}

/* As the file that was just written has them. */
static enum status describe_engines(struct up *u, struct reason *why)
{
    struct config *c = NULL;
    enum status st = config_load_engine(u->config, &c, why);

    if (st == ST_OK)
        st = fleet_init(&u->fleet, c, u->self, u->config, &u->supervisor, &u->gateway_child, why);
    config_free(c);
    if (st != ST_OK)
        return st;
    fleet_set_logs(&u->fleet, u->layout.log);
    for (size_t i = 0; i < u->fleet.n; i++) {
        file_put_aside(u->fleet.engines[i].child.spec.log, LOG_BYTES_MAX);
        file_put_aside(u->fleet.engines[i].swap.other.spec.log, LOG_BYTES_MAX);
    }
    st = alone_take_engines(u->layout.engine_socket, why);
    return st == ST_OK ? fleet_end_orphans(&u->fleet, why) : st;
}

/* In the order to stop in, from behind: the gateway first. */
static void add_all(struct up *u)
{
    supervisor_add(&u->supervisor, &u->postgres_child);
    supervisor_add(&u->supervisor, &u->redis_child);
    fleet_add(&u->fleet);
    supervisor_add(&u->supervisor, &u->gateway_child);
}

static enum status start(struct up *u, struct reason *why)
{
    enum status st = write_files(u, why);

    if (st == ST_OK)
        st = describe_engines(u, why);
    if (st != ST_OK)
        return st;
    add_all(u);
    /* Engines need no database: they load their models meanwhile. */
    st = fleet_start(&u->fleet, u->layout.engine_socket, why);
    if (st == ST_OK)
        st = start_databases(u, why);
    if (st == ST_OK)
        st = fill_database(u, why);
    if (st == ST_OK)
        st = supervisor_start(&u->supervisor, &u->gateway_child, why);
    if (st == ST_OK)
        st = wait_for_gateway(u, why);
    if (st == ST_OK && u->fleet.n == 1)
        supervisor_say(&u->supervisor, "ready: %s", u->models[0].id);
    else if (st == ST_OK)
        supervisor_say(&u->supervisor, "ready; sluice status lists the %zu models", u->fleet.n);
    return st;
}

/* ---- the command ---- */

static void print_commands(const struct up *u)
{
    struct buf text;

    buf_init(&text);
    commands_put(&text, u->layout.dir, u->models[0].id, u->options.port, u->options.tls_port,
                 u->options.admin_port);
    fputs(buf_cstr(&text), stdout);
    fflush(stdout);
    buf_dispose(&text);
}

static int refuse(enum status st, const struct reason *why)
{
    fprintf(stderr, "sluice up: %s\n", why->text[0] != '\0' ? why->text : status_text(st));
    return 1;
}

static int run(struct up *u)
{
    struct reason why = {0};
    enum status st = prepare(u, &why);

    if (st != ST_OK)
        return refuse(st, &why);
    st = start(u, &why);
    if (st == ST_OK) {
        print_commands(u);
        supervisor_run(&u->supervisor);
    }
    if (st == ST_OK || st == ST_CANCELLED)
        supervisor_say(&u->supervisor, "stopping");
    supervisor_stop(&u->supervisor);
    fleet_dispose(&u->fleet);
    if (st != ST_OK && st != ST_CANCELLED)
        return refuse(st, &why);
    supervisor_say(&u->supervisor, "stopped");
    return 0;
}

int cmd_up(int argc, char **argv)
{
    struct reason why = {0};
    struct up *u;
    int rc;

    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(UP_USAGE, stdout);
        return 0;
    }
    u = calloc(1, sizeof *u);
    if (u == NULL)
        return refuse(ST_NO_MEMORY, &why);
    if (options_parse(&u->options, argc, argv, &why) != ST_OK) {
        fprintf(stderr, "sluice up: %s\n" UP_USAGE, why.text);
        free(u);
        return 2;
    }
    /* Only what stops a start is said here; the processes' own logs have the rest. */
    log_init("up", LOG_ERROR);
    if (supervisor_init(&u->supervisor, &why) != ST_OK)
        rc = refuse(ST_IO, &why);
    else
        rc = run(u);
    config_free(u->last);
    free(u);
    return rc;
}
