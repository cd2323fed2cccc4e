#include "app/config_keys.h"

#include <inttypes.h>
#include <string.h>

#include "app/config.h"
#include "app/config_models.h"
#include "base/size.h"

/* sun_path holds 108 bytes with its NUL (unix(7)). */
#define SOCKET_PATH_MAX 107
#define PATH_BYTES_MAX  4000
#define MIB             (1 << 20)

static const char *const modes[] = {"fast", "exact", NULL};
static const char *const kv_types[] = {"auto", "f16", "q8", NULL};
static const char *const isas[] = {"auto", "scalar", "avx2", "avx512", NULL};
static const char *const switches[] = {"on", "off", NULL};
static const char *const lockdowns[] = {"auto", "require", "off", NULL};
static const char *const levels[] = {"debug", "info", "warn", "error", NULL};

#define AT(field) offsetof(struct config, field)
#define INT(key, field, def, lo, hi, text)                                                         \
    {                                                                                              \
        .name = key, .kind = CONFIG_INT, .offset = AT(field), .fallback = def, .min = lo,          \
        .max = hi, .help = text                                                                    \
    }
#define ENGINE_INT(key, field, def, lo, hi, text)                                                  \
    {                                                                                              \
        .name = key, .kind = CONFIG_INT, .offset = AT(field), .fallback = def, .min = lo,          \
        .max = hi, .engine = true, .help = text                                                    \
    }
#define TEXT(key, field, def, lo, hi, text)                                                        \
    {                                                                                              \
        .name = key, .kind = CONFIG_TEXT, .offset = AT(field), .fallback = def, .min = lo,         \
        .max = hi, .help = text                                                                    \
    }
#define PATH(key, field, def, hi, text)                                                            \
    {                                                                                              \
        .name = key, .kind = CONFIG_PATH, .offset = AT(field), .fallback = def, .min = 1,          \
        .max = hi, .help = text                                                                    \
    }
#define CHOICE(key, field, def, list, text)                                                        \
    {                                                                                              \
        .name = key, .kind = CONFIG_CHOICE, .offset = AT(field), .fallback = def, .choices = list, \
        .engine = true, .help = text                                                               \
    }

const struct config_key config_keys[] = {
    {.name = "engine.socket",
     .kind = CONFIG_PATH,
     .offset = AT(engine_socket),
     .min = 1,
     .max = SOCKET_PATH_MAX,
     .engine = true,
     .help = "Unix socket where the engine process listens and the gateway connects."},
    CHOICE(
        "engine.mode", engine_mode, "fast", modes,
        "Numeric mode: `fast` quantizes activations and keeps F16 KV, `exact` computes in F32 and "
        "is the reference."),
    CHOICE("engine.kv_type", engine_kv_type, "auto", kv_types,
           "How KV is kept: `f16`, or `q8` in 8 bits, with which about 1.9 times the tokens fit. "
           "`auto`: what the mode says."),
    CHOICE("engine.isa", engine_isa, "auto", isas,
           "Kernels to use; one that the machine lacks is refused."),
    ENGINE_INT("engine.threads", engine_threads, "0", 0, 1024,
               "Compute threads. 0: all cores, all but one where there are more than two."),
    ENGINE_INT("engine.max_sequences", engine_max_sequences, "64", 1, 4096,
               "Most sequences in one step; further requests wait."),
    ENGINE_INT("engine.prefill_rows", engine_prefill_rows, "64", 1, 65536,
               "Prompt tokens in one step, beside the running streams. More read prompts faster "
               "and make each token of a running stream wait longer."),
    ENGINE_INT("engine.kv_mb", engine_kv_mb, "0", 0, 1 << 20,
               "Memory for KV pages, in MiB. 0: four full contexts, or 512 MiB if that is less."),
    CHOICE("engine.lockdown", engine_lockdown, "auto", lockdowns,
           "Whether the engine locks itself in before it reads the model: `auto` takes what the "
           "machine has and says so at start, `require` refuses to start without seccomp, Landlock "
           "and an empty network namespace, `off` leaves it open."),
    ENGINE_INT("engine.queue_max", engine_queue_max, "1024", 1, 1 << 20,
               "Requests that may wait in the engine, each choice of `n` counted; more are "
               "answered with 503."),
    ENGINE_INT("engine.tenant_queue_max", engine_tenant_queue_max, "256", 0, 1 << 20,
               "Those of one tenant that may wait, counted alike: an `n` above it never fits. 0: "
               "`engine.queue_max` alone."),
    ENGINE_INT("engine.step_ms", engine_step_ms, "100", 0, 10000,
               "Time that a step may take by the engine's own prediction: prompts get what the "
               "running streams leave of it, and at least a quarter. 0: only "
               "`engine.prefill_rows` bounds it."),
    ENGINE_INT("engine.age_up_ms", engine_age_up_ms, "10000", 0, 3600000,
               "A request that waits so long counts as one of the next higher priority class. 0: "
               "never."),
    CHOICE("engine.prefix_cache", engine_prefix_cache, "on", switches,
           "Keeps KV pages for prompts of the same tenant that begin alike. `off`: only the "
           "choices of one request share theirs."),
    ENGINE_INT("engine.prefix_cache_share", engine_prefix_cache_share, "500", 0, 1000,
               "Most KV pages that one tenant may leave in the prefix cache, in thousandths of "
               "all."),
    INT("engine.queue_max_ms", engine_queue_max_ms, "60000", 0, 86400000,
        "Longest wait of a job in the engine's queue; then it is answered with 503. 0: only "
        "`server.request_max_ms` ends it."),
    INT("engine.adopt_ms", engine_adopt_ms, "10000", 0, 600000,
        "Longest wait of a starting gateway for the engine's word on how the requests of one that "
        "died ended; then their last progress record counts. It serves meanwhile. 0: that record "
        "counts at once."),
    ENGINE_INT("engine.stall_ms", engine_stall_ms, "30000", 0, 3600000,
               "An engine that is silent, or makes no step while requests wait, for so long is "
               "killed and started again by its supervisor; the gateway counts it as gone. At "
               "least 3000, and three times `engine.step_ms`. 0: never."),
    ENGINE_INT("engine.orphan_s", engine_orphan_s, "3600", 0, 31536000,
               "Without any gateway for so many seconds the engine ends; its supervisor starts it "
               "again when a gateway runs. 0: never."),
    ENGINE_INT("engine.idle_unload_s", engine_idle_unload_s, "0", 0, 31536000,
               "A model that nobody has asked for so many seconds is unloaded by its supervisor, "
               "and loaded again for the next request, which waits. 0: never."),
    INT("engine.load_wait_s", engine_load_wait_s, "120", 1, 86400,
        "Longest wait of a request for a model that was unloaded while idle; then it is answered "
        "with 503."),
    {.name = "engine.cores",
     .kind = CONFIG_TEXT,
     .offset = AT(engine_cores),
     .fallback = "auto",
     .min = 1,
     .max = 255,
     .engine = true,
     .help = "Cores the engine computes on: `auto` (all but the first where there are more than "
             "two, else all), `off` (all), or a list such as `1-3,5`. Gateway, Redis and journal "
             "keep the others to themselves."},
    ENGINE_INT("engine.nice", engine_nice, "5", 0, 19,
               "Where the engine shares every core with the other processes, it gives way to them "
               "by this much (nice(2)). 0: not."),

    TEXT("server.listen", listen, "127.0.0.1", 1, 255, "Address of the API's listeners."),
    INT("server.port", port, "8080", 1, 65535, "HTTP/1.1 and cleartext HTTP/2."),
    INT("server.tls_port", tls_port, "0", 0, 65535,
        "TLS 1.2 and 1.3 with ALPN. 0: no TLS listener."),
    PATH("server.tls_cert", tls_cert, "", PATH_BYTES_MAX,
         "Certificate chain, PEM. Needed with `server.tls_port`."),
    PATH("server.tls_key", tls_key, "", PATH_BYTES_MAX,
         "The certificate's private key, PEM. Needed with `server.tls_port`."),
    TEXT("server.admin_listen", admin_listen, "127.0.0.1", 1, 255,
         "Address of the listener for health and metrics."),
    INT("server.admin_port", admin_port, "9090", 0, 65535, "Health and metrics. 0: none."),
    INT("server.loops", http_loops, "1", 1, 64,
        "Threads that serve HTTP. One carries thousands of streams; the engine needs the cores."),
    INT("server.body_max_bytes", body_max_bytes, "8388608", 1024, 64 * MIB,
        "Largest request body; more is a 413."),
    INT("server.buffered_max_bytes", buffered_max_bytes, "268435456", 1024, INT64_C(1) << 36,
        "Request bodies held at one time, all requests of a loop together; more is a 503."),
    INT("server.answers_max_bytes", answers_max_bytes, "268435456", MIB, INT64_C(1) << 36,
        "Answers held for their clients at one time, all together: what is collected of those that "
        "are sent whole, and what waits for streams' readers that lag. Above it the largest one is "
        "ended with an error, and new requests are a 503."),
    INT("server.connections_max", connections_max, "4096", 1, 1 << 20,
        "Open connections per loop."),
    INT("server.ping_ms", ping_ms, "5000", 100, 600000,
        "A stream that is silent for so long gets a comment, so that nothing between closes it."),
    INT("server.request_max_ms", request_max_ms, "600000", 1000, 86400000,
        "Longest life of a request; also how long a concurrency slot outlives a dead gateway."),
    INT("server.drain_ms", drain_ms, "10000", 0, 3600000,
        "How long running requests may go on after SIGTERM; then they are cancelled and settled."),
    INT("server.text_threads", text_threads, "1", 1, 64,
        "Threads that tokenize and render prompts."),
    INT("server.text_queue", text_queue, "1024", 1, 1 << 20,
        "Prompts that may wait for them; more are a 503."),

    {.name = "postgres.conninfo",
     .kind = CONFIG_TEXT,
     .offset = AT(postgres_conninfo),
     .min = 1,
     .max = 4000,
     .secret = true,
     .help = "How to reach PostgreSQL: a libpq connection string or URI."},
    INT("postgres.threads", postgres_threads, "2", 1, 64,
        "Connections for lookups and usage queries, one thread each."),
    INT("postgres.queue", postgres_queue, "1024", 1, 1 << 20,
        "Lookups that may wait for them; more are a 503."),

    PATH("redis.socket", redis_socket, NULL, SOCKET_PATH_MAX,
         "Unix socket of Redis. It must run with `maxmemory-policy noeviction`."),
    INT("redis.connect_timeout_ms", redis_connect_timeout_ms, "1000", 10, 60000,
        "Deadline of a connection attempt."),
    INT("redis.command_timeout_ms", redis_command_timeout_ms, "1000", 10, 60000,
        "Deadline of a command; a Redis that is slower counts as away."),
    INT("redis.in_flight_max", redis_in_flight_max, "4096", 1, 1 << 20,
        "Commands waiting for an answer, per loop; more are a 503."),

    {.name = "auth.pepper_file",
     .kind = CONFIG_PATH,
     .offset = AT(auth_pepper_file),
     .min = 1,
     .max = PATH_BYTES_MAX,
     .secret = true,
     .help = "File with the key of the HMAC over API keys: at least 64 hex digits. Whoever has it "
             "and the database can test guesses of keys; with it lost, every key is void."},
    INT("auth.poll_ms", auth_poll_ms, "500", 50, 60000,
        "How often the change log is read: a disabled key stops within that time."),
    INT("auth.stale_max_ms", auth_stale_max_ms, "60000", 1000, 86400000,
        "How long cached answers about keys serve while PostgreSQL is away."),
    INT("auth.cache_max", auth_cache_max, "65536", 16, 1 << 24,
        "Keys and refusals kept in memory."),

    INT("quota.reserve_output_tokens", reserve_output_tokens, "1024", 1, 1 << 24,
        "Most output tokens that the tokens-per-minute limit reserves for a request; what it "
        "really took is settled at its end."),

    PATH("billing.journal_dir", journal_dir, NULL, PATH_BYTES_MAX,
         "Folder of the usage journal, on a disk that survives. Locked by one gateway."),
    INT("billing.post_ms", billing_post_ms, "200", 10, 60000,
        "How often usage rows go to PostgreSQL."),
    INT("billing.segment_bytes", journal_segment_bytes, "16777216", MIB, 1024 * MIB,
        "Size at which the journal begins a new file."),

    CHOICE("log.level", log_level_name, "info", levels, "Events below it are not written."),
};
const size_t config_keys_count = COUNT_OF(config_keys);

const struct config_key *config_key_find(const char *section, const char *key)
{
    size_t n = strlen(section);

    for (size_t i = 0; i < config_keys_count; i++) {
        const char *name = config_keys[i].name;

        if (strncmp(name, section, n) == 0 && name[n] == '.' && strcmp(name + n + 1, key) == 0)
            return &config_keys[i];
    }
    return NULL;
}

void config_key_allowed(const struct config_key *k, struct buf *out)
{
    switch (k->kind) {
    case CONFIG_INT:
        buf_printf(out, "an integer from %" PRId64 " to %" PRId64, k->min, k->max);
        break;
    case CONFIG_TEXT:
        buf_printf(out, "a text of %" PRId64 " to %" PRId64 " bytes", k->min, k->max);
        break;
    case CONFIG_PATH:
        buf_printf(out, "a path of at most %" PRId64 " bytes", k->max);
        break;
    case CONFIG_CHOICE:
        buf_puts(out, "one of ");
        for (size_t i = 0; k->choices[i] != NULL; i++)
            buf_printf(out, "%s%s", i > 0 ? ", " : "", k->choices[i]);
        break;
    case CONFIG_NAME:
        buf_printf(out,
                   "a text of %" PRId64 " to %" PRId64
                   " bytes without a colon or a control character, and not a lone asterisk",
                   k->min, k->max);
        break;
    case CONFIG_NAMES:
        buf_printf(out, "a list of at most %d names as `model.id`", CONFIG_ALIASES_MAX);
        break;
    }
}

static size_t section_length(const struct config_key *k)
{
    return strcspn(k->name, ".");
}

static bool opens_section(size_t i)
{
    size_t n = section_length(&config_keys[i]);

    return i == 0 || strncmp(config_keys[i].name, config_keys[i - 1].name, n + 1) != 0;
}

void config_key_row(const struct config_key *k, struct buf *out)
{
    buf_printf(out, "| `%s` | ", k->name);
    config_key_allowed(k, out);
    if (k->fallback == NULL)
        buf_puts(out, " | required");
    else if (k->fallback[0] == '\0')
        buf_puts(out, " | none");
    else
        buf_printf(out, " | `%s`", k->fallback);
    buf_printf(out, " | %s |\n", k->help);
}

void config_keys_markdown(struct buf *out)
{
    buf_puts(out,
             "# Configuration\n\n"
             "The file is YAML: sections of plain keys, no anchors, aliases or tags. Paths are "
             "relative to the\nfile's folder. `sluice check-config FILE` says whether a file "
             "is right; this page is written by\n`sluice check-config --keys`.\n");
    config_models_markdown(out);
    for (size_t i = 0; i < config_keys_count; i++) {
        if (opens_section(i))
            buf_printf(
                out, "\n## %.*s\n\n| key | allowed | default | what it does |\n|---|---|---|---|\n",
                (int)section_length(&config_keys[i]), config_keys[i].name);
        config_key_row(&config_keys[i], out);
    }
}
