#include "app/cmd_engine.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "app/check_lockdown.h"
#include "app/config.h"
#include "app/config_models.h"
#include "app/engine_cores.h"
#include "app/engine_options.h"
#include "app/local_run.h"
#include "app/memory.h"
#include "app/version.h"
#include "base/log.h"
#include "base/size.h"
#include "engine/core/engine_process.h"
#include "engine/cpu/cpu.h"
#include "engine/cpu/threads.h"

/* Frames that a gateway's loop may be behind: half a second of a full batch, with room. */
#define CREDIT_BYTES ((uint64_t)1 << 20)
/* The gateway drains first and takes longer; what is left then is of streams nobody waits for. */
#define DRAIN_MS 20000
/* Above the gateway's longest request (server.request_max_ms, 10 minutes), which may have begun
 * just before another engine took the path. */
#define HANDOVER_MS 900000
/* The CPU device computes in `complete`: a second step in flight would only waste a row. */
#define CPU_DEPTH 1

static int complain(const char *what)
{
    fprintf(stderr, "sluice engine: %s\n", what);
    return EXIT_FAILED;
}

/* Blocked before the device starts its threads, so that only stop_fd takes them. */
static int open_stop_fd(void)
{
    sigset_t stop;

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    pthread_sigmask(SIG_BLOCK, &stop, NULL);
    return signalfd(-1, &stop, SFD_NONBLOCK | SFD_CLOEXEC);
}

static int run_engine(const struct engine_process_config *cfg, const struct engine_cores *cores)
{
    struct engine_process *p = NULL;
    struct reason why = {0};
    enum status st = engine_process_open(cfg, &p, &why);
    int rc = 0;

    if (st == ST_OK) {
        engine_cores_log(cores);
        engine_process_run(p);
        rc = engine_process_was_idle(p) ? ENGINE_EXIT_IDLE : 0;
    }
    engine_process_close(p);
    if (st != ST_OK)
        return complain(why.text[0] != '\0' ? why.text : status_text(st));
    return rc;
}

static int serve(const struct engine_options *s)
{
    const long long *n = s->numbers;
    struct engine_process_config cfg = {
        .device = &cpu_device_ops,
        .model_path = s->model,
        .socket_path = s->socket,
        .build = version_text(),
        .mode = strcmp(s->mode, "exact") == 0 ? DEVICE_EXACT : DEVICE_FAST,
        .kv_type = s->kv,
        .isa = s->isa,
        .n_threads = (unsigned)n[OPT_THREADS],
        .context_tokens = (uint32_t)n[OPT_CONTEXT],
        .max_sequences = (uint32_t)n[OPT_MAX_SEQUENCES],
        .prefill_rows = (uint32_t)n[OPT_PREFILL_ROWS],
        .step_ms = n[OPT_STEP_MS],
        .queue_max = (uint32_t)n[OPT_QUEUE_MAX],
        .tenant_queue_max = (uint32_t)n[OPT_TENANT_QUEUE_MAX],
        .age_up_ms = n[OPT_AGE_UP_MS],
        .prefix_cache = strcmp(s->prefix_cache, "on") == 0,
        .prefix_cache_permille = (uint32_t)n[OPT_PREFIX_CACHE_SHARE],
        .kv_bytes = (size_t)n[OPT_KV_MB] << 20,
        .depth = CPU_DEPTH,
        .credit_bytes = CREDIT_BYTES,
        .lockdown = s->lock,
        .warm = s->warm,
        .drain_ms = DRAIN_MS,
        .handover_ms = HANDOVER_MS,
        .orphan_ms = n[OPT_ORPHAN_S] * 1000,
        .stop_fd = open_stop_fd(),
    };
    struct reason why = {0};
    struct engine_cores cores;
    int rc;

    if (cfg.stop_fd == -1)
        return complain(strerror(errno));
    if (engine_cores_apply(s->cores, (int)n[OPT_NICE], &cores, &why) != ST_OK)
        return complain(why.text);
    if (cfg.n_threads == 0 && cores.is_pinned)
        cfg.n_threads = cores.n < POOL_THREADS_MAX ? cores.n : POOL_THREADS_MAX;
    if (s->config != NULL && memory_check_model(s->config, s->chosen, &cfg, &why) != ST_OK)
        rc = complain(why.text);
    else
        rc = s->check_lockdown ? check_lockdown(&cfg, s->config_path) : run_engine(&cfg, &cores);
    close(cfg.stop_fd);
    return rc;
}

/* NULL: said what is wrong. */
static const struct config_model *choose_model(const struct engine_options *s,
                                               const struct config *c)
{
    const struct config_model *m = &c->models[0];
    struct buf ids;

    if (s->model_id != NULL)
        m = config_model_find(c, s->model_id);
    else if (c->n_models > 1)
        m = NULL;
    if (m != NULL)
        return m;
    buf_init(&ids);
    config_models_put_ids(c, &ids);
    if (s->model_id != NULL)
        fprintf(stderr, "sluice engine: %s has no model %s, but %s\n", s->config_path, s->model_id,
                buf_cstr(&ids));
    else
        fprintf(stderr, "sluice engine: %s has several models; say with --model-id which: %s\n",
                s->config_path, buf_cstr(&ids));
    buf_dispose(&ids);
    return NULL;
}

static int serve_configured(struct engine_options *s, const struct config *c)
{
    s->config = c;
    s->chosen = choose_model(s, c);
    if (s->chosen == NULL)
        return EXIT_USAGE;
    engine_options_add_config(s);
    return engine_options_complete(s) ? serve(s) : EXIT_USAGE;
}

int cmd_engine(int argc, char **argv)
{
    struct config *config = NULL;
    struct reason why = {0};
    struct engine_options s;
    int rc = EXIT_USAGE;

    if (!engine_options_parse(&s, argc, argv))
        return EXIT_USAGE;
    if (s.help) {
        engine_options_help();
        return 0;
    }
    log_init("engine", LOG_INFO);
    if (s.config_path != NULL) {
        if (config_load_engine(s.config_path, &config, &why) != ST_OK)
            return complain(why.text);
        log_init("engine", config->log_level);
        rc = serve_configured(&s, config);
    } else if (engine_options_complete(&s)) {
        rc = serve(&s);
    }
    config_free(config);
    return rc;
}
