#include "app/cmd_engine.h"

#include <errno.h>
#include <getopt.h>
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

static const char usage_text[] =
    "usage: sluice engine --model PATH --socket PATH [OPTION...]\n"
    "       sluice engine --config FILE [OPTION...]\n"
    "\n"
    "  --config FILE      take model and engine settings from there; options go before it\n"
    "  --model-id ID      which of that file's models; needed where it has several\n"
    "  --model PATH       the GGUF file or Hugging Face folder\n"
    "  --socket PATH      Unix socket to serve the gateway on (made with mode 0600)\n"
    "  --mode MODE        fast (default) or exact\n"
    "  --kv-type TYPE     auto (default: f16, f32 in mode exact), f16 or q8\n"
    "  --isa NAME         auto (default), scalar, avx2 or avx512\n"
    "  --threads N        compute threads (default 0: all cores, all but one of more than two)\n"
    "  --context N        longest prompt and output together (default: the file's own)\n"
    "  --max-sequences N  most sequences in a step (default 64); further jobs wait\n"
    "  --prefill-rows N   prompt tokens in a step, beside the decodes (default 64)\n"
    "  --queue-max N      jobs that may wait (default 1024)\n"
    "  --tenant-queue-max N  jobs of one tenant that may wait (default 256; 0: no bound)\n"
    "  --step-ms N        predicted time of a step (default 100; 0: rows alone bound it)\n"
    "  --age-up-ms N      waiting so long lifts a job by a class (default 10000; 0: never)\n"
    "  --prefix-cache X   on (default) or off\n"
    "  --prefix-cache-share N  thousandths of all pages that a tenant may keep (default 500)\n"
    "  --lockdown X       auto (default), require or off: see docs/operations.md\n"
    "  --check-lockdown   locks in as for serving, tries each way out, prints a table, ends\n"
    "  --kv-mb N          memory for KV pages in MiB (default: four contexts, at most 512 MiB, at\n"
    "                     least one context)\n"
    "  --warm             prepares weights and measures its speed before it serves, not beside\n"
    "  --orphan-s N       ends after so long without a gateway (default 3600; 0: never)\n"
    "  --cores LIST       auto (default: all but the first of more than two), off, or 1-3,5\n"
    "  --nice N           where it shares every core, it gives way by this much (default 5)\n";

enum option_value {
    OPT_CONFIG = 256,
    OPT_MODEL_ID,
    OPT_MODEL,
    OPT_SOCKET,
    OPT_MODE,
    OPT_KV_TYPE,
    OPT_ISA,
    OPT_THREADS,
    OPT_CONTEXT,
    OPT_MAX_SEQUENCES,
    OPT_PREFILL_ROWS,
    OPT_QUEUE_MAX,
    OPT_KV_MB,
    OPT_TENANT_QUEUE_MAX,
    OPT_STEP_MS,
    OPT_AGE_UP_MS,
    OPT_PREFIX_CACHE,
    OPT_PREFIX_CACHE_SHARE,
    OPT_LOCKDOWN,
    OPT_CHECK_LOCKDOWN,
    OPT_WARM,
    OPT_ORPHAN_S,
    OPT_CORES,
    OPT_NICE,
    OPT_HELP,
};

static const struct option options[] = {
    {"config", required_argument, NULL, OPT_CONFIG},
    {"model-id", required_argument, NULL, OPT_MODEL_ID},
    {"model", required_argument, NULL, OPT_MODEL},
    {"socket", required_argument, NULL, OPT_SOCKET},
    {"mode", required_argument, NULL, OPT_MODE},
    {"kv-type", required_argument, NULL, OPT_KV_TYPE},
    {"isa", required_argument, NULL, OPT_ISA},
    {"threads", required_argument, NULL, OPT_THREADS},
    {"context", required_argument, NULL, OPT_CONTEXT},
    {"max-sequences", required_argument, NULL, OPT_MAX_SEQUENCES},
    {"prefill-rows", required_argument, NULL, OPT_PREFILL_ROWS},
    {"queue-max", required_argument, NULL, OPT_QUEUE_MAX},
    {"kv-mb", required_argument, NULL, OPT_KV_MB},
    {"tenant-queue-max", required_argument, NULL, OPT_TENANT_QUEUE_MAX},
    {"step-ms", required_argument, NULL, OPT_STEP_MS},
    {"age-up-ms", required_argument, NULL, OPT_AGE_UP_MS},
    {"prefix-cache", required_argument, NULL, OPT_PREFIX_CACHE},
    {"prefix-cache-share", required_argument, NULL, OPT_PREFIX_CACHE_SHARE},
    {"lockdown", required_argument, NULL, OPT_LOCKDOWN},
    {"check-lockdown", no_argument, NULL, OPT_CHECK_LOCKDOWN},
    {"warm", no_argument, NULL, OPT_WARM},
    {"orphan-s", required_argument, NULL, OPT_ORPHAN_S},
    {"cores", required_argument, NULL, OPT_CORES},
    {"nice", required_argument, NULL, OPT_NICE},
    {"help", no_argument, NULL, OPT_HELP},
    {NULL, 0, NULL, 0},
};

/* What options and configuration file say; text fields are borrowed. */
struct settings {
    const char *config_path, *model_id, *model, *socket, *mode, *kv_type, *isa, *prefix_cache,
        *lockdown, *cores;
    long long numbers[OPT_HELP]; /* by option; -1: not given */
    enum kv_type kv;
    enum lockdown_want lock;
    const struct config *config;       /* NULL: none was named */
    const struct config_model *chosen; /* of its models */
    bool help, check_lockdown, warm;
};

/* The options that are whole numbers, and their bounds. */
static const struct {
    enum option_value option;
    long long min, max, otherwise;
} number_options[] = {
    {OPT_THREADS, 0, 1024, 0},
    {OPT_CONTEXT, 0, 1 << 24, 0},
    {OPT_MAX_SEQUENCES, 1, 4096, 64},
    {OPT_PREFILL_ROWS, 1, 65536, 64},
    {OPT_QUEUE_MAX, 1, 1 << 20, 1024},
    {OPT_KV_MB, 0, 1 << 20, 0},
    {OPT_TENANT_QUEUE_MAX, 0, 1 << 20, 256},
    {OPT_STEP_MS, 0, 10000, 100},
    {OPT_AGE_UP_MS, 0, 3600000, 10000},
    {OPT_PREFIX_CACHE_SHARE, 0, 1000, 500},
    {OPT_ORPHAN_S, 0, 31536000, 3600},
    {OPT_NICE, 0, 19, 5},
};

static const char *option_name(int option)
{
    const struct option *o = options;

    while (o->name != NULL && o->val != option)
        o++;
    return o->name;
}

static bool take_number(struct settings *s, int option, const char *value)
{
    for (size_t i = 0; i < COUNT_OF(number_options); i++) {
        if ((int)number_options[i].option != option)
            continue;
        if (local_number(value, number_options[i].min, number_options[i].max, &s->numbers[option]))
            return true;
        fprintf(stderr, "sluice engine: --%s is a number from %lld to %lld, not %s\n",
                option_name(option), number_options[i].min, number_options[i].max, value);
        return false;
    }
    return false; /* getopt_long has said what it didn't know */
}

static bool take_option(struct settings *s, int option, const char *value)
{
    switch (option) {
    case OPT_CONFIG:
        s->config_path = value;
        return true;
    case OPT_MODEL_ID:
        s->model_id = value;
        return true;
    case OPT_MODEL:
        s->model = value;
        return true;
    case OPT_SOCKET:
        s->socket = value;
        return true;
    case OPT_MODE:
        s->mode = value;
        return true;
    case OPT_KV_TYPE:
        s->kv_type = value;
        return true;
    case OPT_ISA:
        s->isa = value;
        return true;
    case OPT_PREFIX_CACHE:
        s->prefix_cache = value;
        return true;
    case OPT_LOCKDOWN:
        s->lockdown = value;
        return true;
    case OPT_CORES:
        s->cores = value;
        return true;
    case OPT_CHECK_LOCKDOWN:
        s->check_lockdown = true;
        return true;
    case OPT_WARM:
        s->warm = true;
        return true;
    case OPT_HELP:
        s->help = true;
        return true;
    default:
        return take_number(s, option, value);
    }
}

static bool take_options(struct settings *s, int argc, char **argv)
{
    int option;

    memset(s, 0, sizeof *s);
    for (size_t i = 0; i < COUNT_OF(s->numbers); i++)
        s->numbers[i] = -1;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        if (!take_option(s, option, optarg))
            return false;
    if (optind == argc)
        return true;
    fprintf(stderr, "sluice engine: what is \"%s\"?\n", argv[optind]);
    return false;
}

static void add_number(struct settings *s, enum option_value option, int64_t value)
{
    if (s->numbers[option] == -1)
        s->numbers[option] = value;
}

static void add_text(const char **field, const char *value)
{
    if (*field == NULL && value[0] != '\0')
        *field = value;
}

/* What the command line left open. */
static void add_config(struct settings *s)
{
    const struct config *c = s->config;
    const struct config_model *m = s->chosen;

    add_text(&s->model, m->path);
    add_text(&s->socket, m->socket);
    add_text(&s->mode, m->mode);
    add_text(&s->kv_type, m->kv_type);
    add_text(&s->isa, c->engine_isa);
    add_text(&s->prefix_cache, c->engine_prefix_cache);
    add_text(&s->lockdown, c->engine_lockdown);
    add_text(&s->cores, c->engine_cores);
    add_number(s, OPT_THREADS, m->threads);
    add_number(s, OPT_CONTEXT, m->context_tokens);
    add_number(s, OPT_MAX_SEQUENCES, m->max_sequences);
    add_number(s, OPT_PREFILL_ROWS, c->engine_prefill_rows);
    add_number(s, OPT_QUEUE_MAX, m->queue_max);
    add_number(s, OPT_KV_MB, m->kv_mb);
    add_number(s, OPT_TENANT_QUEUE_MAX, m->tenant_queue_max);
    add_number(s, OPT_STEP_MS, c->engine_step_ms);
    add_number(s, OPT_AGE_UP_MS, c->engine_age_up_ms);
    add_number(s, OPT_PREFIX_CACHE_SHARE, c->engine_prefix_cache_share);
    add_number(s, OPT_ORPHAN_S, c->engine_orphan_s);
    add_number(s, OPT_NICE, c->engine_nice);
}

static bool is_one_of(const char *option, const char *value, const char *a, const char *b)
{
    if (strcmp(value, a) == 0 || strcmp(value, b) == 0)
        return true;
    fprintf(stderr, "sluice engine: --%s is %s or %s, not %s\n", option, a, b, value);
    return false;
}

static bool take_lockdown(struct settings *s)
{
    static const char *const names[] = {
        [LOCKDOWN_OFF] = "off", [LOCKDOWN_AUTO] = "auto", [LOCKDOWN_REQUIRE] = "require"};

    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (strcmp(s->lockdown, names[i]) == 0) {
            s->lock = (enum lockdown_want)i;
            return true;
        }
    fprintf(stderr, "sluice engine: --lockdown is auto, require or off, not %s\n", s->lockdown);
    return false;
}

static bool is_complete(struct settings *s)
{
    add_text(&s->mode, "fast");
    add_text(&s->kv_type, "auto");
    add_text(&s->isa, "auto");
    add_text(&s->prefix_cache, "on");
    add_text(&s->lockdown, "auto");
    add_text(&s->cores, "auto");
    for (size_t i = 0; i < COUNT_OF(number_options); i++)
        add_number(s, number_options[i].option, number_options[i].otherwise);
    if (s->model == NULL || s->socket == NULL || (s->model_id != NULL && s->config_path == NULL)) {
        fputs(usage_text, stderr);
        return false;
    }
    if (!is_one_of("mode", s->mode, "fast", "exact") ||
        !is_one_of("prefix-cache", s->prefix_cache, "on", "off"))
        return false;
    if (!take_lockdown(s))
        return false;
    if (local_kv_type(s->kv_type, &s->kv))
        return true;
    fprintf(stderr, "sluice engine: --kv-type is auto, f16 or q8, not %s\n", s->kv_type);
    return false;
}

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

static int serve(const struct settings *s)
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
static const struct config_model *choose_model(const struct settings *s, const struct config *c)
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

static int serve_configured(struct settings *s, const struct config *c)
{
    s->config = c;
    s->chosen = choose_model(s, c);
    if (s->chosen == NULL)
        return EXIT_USAGE;
    add_config(s);
    return is_complete(s) ? serve(s) : EXIT_USAGE;
}

int cmd_engine(int argc, char **argv)
{
    struct config *config = NULL;
    struct reason why = {0};
    struct settings s;
    int rc = EXIT_USAGE;

    if (!take_options(&s, argc, argv))
        return EXIT_USAGE;
    if (s.help) {
        fputs(usage_text, stdout);
        return 0;
    }
    log_init("engine", LOG_INFO);
    if (s.config_path != NULL) {
        if (config_load_engine(s.config_path, &config, &why) != ST_OK)
            return complain(why.text);
        log_init("engine", config->log_level);
        rc = serve_configured(&s, config);
    } else if (is_complete(&s)) {
        rc = serve(&s);
    }
    config_free(config);
    return rc;
}
