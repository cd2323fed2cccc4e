/* The command line of `sluice engine`, as a table. */
#include "app/engine_options.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "app/local_run.h"
#include "base/size.h"

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

/* The options that are whole numbers, and their bounds. */
static const struct {
    enum engine_option option;
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

static bool take_number(struct engine_options *s, int option, const char *value)
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

static bool take_option(struct engine_options *s, int option, const char *value)
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

bool engine_options_parse(struct engine_options *s, int argc, char **argv)
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

static void add_number(struct engine_options *s, enum engine_option option, int64_t value)
{
    if (s->numbers[option] == -1)
        s->numbers[option] = value;
}

static void add_text(const char **field, const char *value)
{
    if (*field == NULL && value[0] != '\0')
        *field = value;
}

void engine_options_add_config(struct engine_options *s)
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

static bool take_lockdown(struct engine_options *s)
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

static bool is_enough(const struct engine_options *s)
{
    const char *missing = NULL;

    if (s->config_path == NULL && s->model_id != NULL)
        missing = "--model-id needs --config FILE";
    else if (s->model == NULL && s->socket == NULL)
        missing = "--config FILE is missing, or --model PATH and --socket PATH";
    else if (s->model == NULL)
        missing = "--model PATH is missing";
    else if (s->socket == NULL)
        missing = "--socket PATH is missing";
    if (missing != NULL)
        fprintf(stderr, "sluice engine: %s; --help lists the options\n", missing);
    return missing == NULL;
}

bool engine_options_complete(struct engine_options *s)
{
    add_text(&s->mode, "fast");
    add_text(&s->kv_type, "auto");
    add_text(&s->isa, "auto");
    add_text(&s->prefix_cache, "on");
    add_text(&s->lockdown, "auto");
    add_text(&s->cores, "auto");
    for (size_t i = 0; i < COUNT_OF(number_options); i++)
        add_number(s, number_options[i].option, number_options[i].otherwise);
    if (!is_enough(s))
        return false;
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

void engine_options_help(void)
{
    fputs(usage_text, stdout);
}
