/* The options of `sluice engine`: its command line, what a configuration file adds and what holds
 * otherwise. What is wrong is said on standard error. One thread. */
#ifndef APP_ENGINE_OPTIONS_H
#define APP_ENGINE_OPTIONS_H

#include <stdbool.h>

#include "app/config.h"
#include "app/config_models.h"
#include "base/status.h"
#include "engine/core/device.h"
#include "engine/core/lockdown.h"

enum engine_option {
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

/* What options and configuration file say; text fields are borrowed. */
struct engine_options {
    const char *config_path, *model_id, *model, *socket, *mode, *kv_type, *isa, *prefix_cache,
        *lockdown, *cores;
    long long numbers[OPT_HELP]; /* by option; -1: not given */
    enum kv_type kv;
    enum lockdown_want lock;
    const struct config *config;       /* NULL: none was named */
    const struct config_model *chosen; /* of its models */
    bool help, check_lockdown, warm;
};

/* Text fields of *o point into argv. False: an unknown option, or a number out of its bounds. */
MUST_CHECK bool engine_options_parse(struct engine_options *o, int argc, char **argv);
/* What the command line left open, from o->config and o->chosen, which must outlive o. */
void engine_options_add_config(struct engine_options *o);
/* Fills in what nobody said. False: something that is needed is missing, or a word isn't known. */
MUST_CHECK bool engine_options_complete(struct engine_options *o);
/* For --help, on standard output. */
void engine_options_help(void);

#endif
