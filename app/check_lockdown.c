#include "app/check_lockdown.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "engine/core/lockdown_probe.h"

/* In the child: all that serving locks, in its order. */
static int open_engine(void *arg)
{
    const struct engine_process_config *cfg = arg;
    struct engine_process *p;
    struct reason why = {0};

    if (engine_process_open(cfg, &p, &why) == ST_OK)
        return 0;
    fprintf(stderr, "sluice engine: %s\n", why.text);
    return -1;
}

static void print_outcome(char *out, size_t size, const struct lockdown_result *r)
{
    switch (r->outcome) {
    case LOCKDOWN_ESCAPED:
        snprintf(out, size, "GOT OUT");
        break;
    case LOCKDOWN_REFUSED:
        snprintf(out, size, "refused: %s", strerror(r->error));
        break;
    case LOCKDOWN_KILLED:
        snprintf(out, size, "killed");
        break;
    case LOCKDOWN_BROKEN:
        if (r->error == 0)
            snprintf(out, size, "not tried: the engine did not start");
        else
            snprintf(out, size, "died of signal %d", r->error);
    }
}

/* Whether it was held. */
static bool check_one(const struct lockdown_probe *p, const struct lockdown_targets *t,
                      struct engine_process_config *cfg)
{
    struct lockdown_result r = lockdown_probe_run(p, t, open_engine, cfg);
    bool held = lockdown_probe_held(&r, p->refusal);
    char outcome[64];

    print_outcome(outcome, sizeof outcome, &r);
    printf("%-26s %-40s %s\n", p->name, outcome, held ? "held" : "NOT HELD");
    fflush(stdout);
    return held;
}

static int check_all(struct engine_process_config *cfg, const struct lockdown_targets *t)
{
    size_t n_held = 0;

    if (lockdown_is_wide())
        puts("this build is sanitized: its lists are wider, and some ways are open");
    for (size_t i = 0; i < lockdown_probes_count; i++) {
        n_held += check_one(&lockdown_probes[i], t, cfg);
        /* What holds stands in the log of the first. */
        log_init("engine", LOG_WARN);
    }
    printf("%zu of %zu held\n", n_held, lockdown_probes_count);
    return n_held == lockdown_probes_count ? 0 : 1;
}

int check_lockdown(const struct engine_process_config *cfg, const char *secret_path)
{
    char path[] = "/tmp/sluice-lockdown-XXXXXX", socket_path[sizeof path + 5];
    struct engine_process_config own = *cfg;
    int fd = mkstemp(path), rc;

    if (fd == -1) {
        fprintf(stderr, "sluice engine: cannot make %s: %s\n", path, strerror(errno));
        return 1;
    }
    close(fd);
    /* The configured one may be served by the engine that runs. */
    snprintf(socket_path, sizeof socket_path, "%s.sock", path);
    own.socket_path = socket_path;
    rc = check_all(
        &own, &(struct lockdown_targets){.secret_path = secret_path != NULL ? secret_path : path,
                                         .write_path = path});
    unlink(socket_path);
    unlink(path);
    return rc;
}
