#include "app/cmd_serve.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "app/config.h"
#include "app/serve_with_engine.h"
#include "app/version.h"
#include "app/wiring.h"
#include "base/embedded.h"
#include "base/log.h"
#include "store/migrate.h"
#include "store/pg.h"

static const char usage_text[] =
    "usage: sluice serve --config FILE [--with-engine]\n"
    "\n"
    "  --with-engine   a small parent process keeps the engine of each model running too: all are\n"
    "                  restarted when they die, each without the others; SIGHUP tries again what\n"
    "                  was given up\n";

static int refuse(const char *what)
{
    fprintf(stderr, "sluice serve: %s\n", what);
    return 1;
}

static int fail_to_start(enum status st, const struct reason *why)
{
    return refuse(why->text[0] != '\0' ? why->text : status_text(st));
}

/* Blocked before any thread starts, so that none of them takes a signal: only this thread, in
 * wait_for_stop. A broken connection is an error of write(2), never a signal. */
static void block_signals(sigset_t *stop)
{
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(stop);
    sigaddset(stop, SIGTERM);
    sigaddset(stop, SIGINT);
    pthread_sigmask(SIG_BLOCK, stop, NULL);
}

static void wait_for_stop(const sigset_t *stop)
{
    const struct timespec echo = {.tv_nsec = 50 * 1000000L};
    int sig;

    do {
        sig = sigwaitinfo(stop, NULL);
    } while (sig == -1 && errno == EINTR);
    log_info(NULL, "serve.drain", "signal=%s", sig == SIGINT ? "SIGINT" : "SIGTERM");
    /* One Ctrl-C can arrive more than once: from the terminal, and from a wrapper that passes it
     * on. */
    while (sigtimedwait(stop, NULL, &echo) > 0)
        ;
    /* From here a second signal has its default effect: it ends the process at once. */
    pthread_sigmask(SIG_UNBLOCK, stop, NULL);
}

/* Before anything listens or writes: a schema that is not this program's gives wrong rows or none.
 * A database that is away is no reason not to start (the gateway is not ready until it is back). */
static enum status check_schema(const struct config *cfg, struct reason *why)
{
    struct pg *pg = NULL;
    enum status st = pg_open(cfg->postgres_conninfo, &pg, why);

    if (st == ST_OK)
        st = migrate_check(pg, embedded_files, why);
    pg_close(pg);
    if (st != ST_UNAVAILABLE)
        return st;
    log_warn(NULL, "serve.schema_unchecked", "%s", why->text);
    return ST_OK;
}

static int serve(const struct config *cfg, const char *path)
{
    struct wiring *w = NULL;
    struct reason why = {0};
    enum status st;
    sigset_t stop;

    block_signals(&stop);
    st = check_schema(cfg, &why);
    if (st == ST_OK)
        st = wiring_open(cfg, path, &w, &why);
    if (st != ST_OK)
        return fail_to_start(st, &why);
    log_info(NULL, "serve.start",
             "listen=%s port=%" PRId64 " tls_port=%" PRId64 " admin_port=%" PRId64
             " models=%zu first=%s build=\"%s\"",
             cfg->listen, cfg->port, cfg->tls_port, cfg->admin_port, cfg->n_models,
             cfg->models[0].id, version_text());
    wait_for_stop(&stop);
    wiring_close(w);
    log_info(NULL, "serve.stop", "done");
    return 0;
}

/* The path of --config; NULL: used wrongly. */
static const char *take_options(int argc, char **argv, bool *with_engine)
{
    const char *path = NULL;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--with-engine") == 0)
            *with_engine = true;
        else if (strcmp(argv[i], "--config") == 0 && i + 1 < argc)
            path = argv[++i];
        else
            return NULL;
    }
    return path;
}

int cmd_serve(int argc, char **argv)
{
    struct config *cfg = NULL;
    struct reason why = {0};
    bool with_engine = false;
    const char *path;
    enum status st;
    int rc;

    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(usage_text, stdout);
        return 0;
    }
    path = take_options(argc, argv, &with_engine);
    if (path == NULL) {
        fputs(usage_text, stderr);
        return 2;
    }
    if (with_engine)
        return serve_with_engine(path);
    st = config_load(path, &cfg, &why);
    if (st != ST_OK)
        return fail_to_start(st, &why);
    log_init("gateway", cfg->log_level);
    rc = serve(cfg, path);
    config_free(cfg);
    return rc;
}
