/* The configuration file: YAML, sections of plain keys, read strictly. One table (config_keys.c)
 * says every key's type, default and bounds; docs/config.md is generated from it by
 * `sluice check-config --keys`. Unknown and duplicate keys, wrong types and values out of range are
 * refused with file, line and what is allowed.
 *
 * A struct config is immutable after config_load; any thread may read it; strings are its own.
 * Paths are absolute (those in the file are relative to its folder). "" stands for an optional
 * text that was not given. */
#ifndef APP_CONFIG_H
#define APP_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "base/status.h"

/* A model that is served, each by an engine process of its own. After config_load no field is left
 * open: what an item does not say of the engine's keys is as section engine says. */
struct config_model {
    char *path;
    char *id;       /* as clients name it */
    char **aliases; /* (n_aliases): further names */
    size_t n_aliases;
    char *socket;               /* of its engine */
    char *required;             /* "on", "off": /readyz */
    int64_t context_tokens;     /* 0: the file's own */
    int64_t default_max_tokens; /* 0: what the context leaves */
    char *generation_defaults;  /* "openai", "model" */
    char *mode, *kv_type;       /* these and the following: as config.engine_* */
    int64_t threads, max_sequences, kv_mb, queue_max, tenant_queue_max, idle_unload_s;
};

struct config {
    struct config_model *models; /* (n_models), at least one, in the file's order */
    size_t n_models;

    /* engine */
    char *engine_socket;
    char *engine_mode;      /* "fast", "exact" */
    char *engine_kv_type;   /* "auto", "f16", "q8" */
    char *engine_isa;       /* "auto", "scalar", "avx2", "avx512" */
    int64_t engine_threads; /* 0: all cores (all but one where there are more than two) */
    int64_t engine_max_sequences;
    int64_t engine_prefill_rows;
    char *engine_lockdown; /* "auto", "require", "off" */
    int64_t engine_kv_mb;  /* 0: the engine's default */
    int64_t engine_queue_max;
    int64_t engine_tenant_queue_max;   /* 0: engine_queue_max alone */
    int64_t engine_step_ms;            /* 0: only engine_prefill_rows bounds a step */
    int64_t engine_age_up_ms;          /* 0: never */
    char *engine_prefix_cache;         /* "on", "off" */
    int64_t engine_prefix_cache_share; /* thousandths */
    int64_t engine_queue_max_ms;       /* 0: no bound */
    int64_t engine_adopt_ms;           /* 0: the engine is not asked */
    int64_t engine_stall_ms;           /* 0: never */
    int64_t engine_orphan_s;           /* 0: never */
    int64_t engine_idle_unload_s;      /* 0: never */
    int64_t engine_load_wait_s;
    char *engine_cores;  /* "auto", "off", or a list of cores: "1-3,5" */
    int64_t engine_nice; /* 0: as its parent */

    /* server */
    char *listen;
    int64_t port;
    int64_t tls_port; /* 0: none */
    char *tls_cert, *tls_key;
    char *admin_listen;
    int64_t admin_port; /* 0: none */
    int64_t http_loops;
    int64_t body_max_bytes;
    int64_t buffered_max_bytes;
    int64_t answers_max_bytes;
    int64_t connections_max;
    int64_t ping_ms;
    int64_t request_max_ms;
    int64_t drain_ms;
    int64_t text_threads;
    int64_t text_queue;

    /* postgres, redis */
    char *postgres_conninfo; /* secret */
    int64_t postgres_threads;
    int64_t postgres_queue;
    char *redis_socket;
    int64_t redis_connect_timeout_ms;
    int64_t redis_command_timeout_ms;
    int64_t redis_in_flight_max;

    /* auth */
    char *auth_pepper_file;
    char *auth_pepper; /* secret: the file's content */
    int64_t auth_poll_ms;
    int64_t auth_stale_max_ms;
    int64_t auth_cache_max;

    /* quota, billing, log */
    int64_t reserve_output_tokens;
    char *journal_dir;
    int64_t billing_post_ms;
    int64_t journal_segment_bytes;
    char *log_level_name;
    enum log_level log_level;
};

/* Everything, the pepper's file included: for the gateway and the administrator's commands.
 * ST_NOT_FOUND, ST_INVALID, ST_FORBIDDEN (a secret's file that everyone may read); the reason
 * begins with "FILE:LINE: " where a line is at fault, and names the key. */
MUST_CHECK enum status config_load(const char *path, struct config **out, struct reason *why);
/* For the engine process: only sections model (or models), engine and log are required, no secret
 * is read and none stays in memory. */
MUST_CHECK enum status config_load_engine(const char *path, struct config **out,
                                          struct reason *why);
/* From memory, for tests and fuzzing: `name` stands in messages, `dir` is what paths are relative
 * to. Reads no file; auth_pepper stays "". */
MUST_CHECK enum status config_parse(const char *text, size_t len, const char *name, const char *dir,
                                    struct config **out, struct reason *why);
void config_free(struct config *c); /* NULL is fine; secrets are wiped */

#endif
