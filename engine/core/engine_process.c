#include "engine/core/engine_process.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "engine/core/calibrate.h"
#include "engine/core/kv_plan.h"
#include "engine/core/listener.h"
#include "engine/core/process_state.h"
#include "engine/text/tokenizer.h"

/* Descriptors beside connections: standard ones, the stop, the socket, a refused connection's, and
 * while a model is read its folder and a file. */
#define OTHER_FDS 16

static enum status choose_context(struct engine_process *p, struct reason *why)
{
    uint32_t of_file = p->model->shape.context_tokens;

    if (p->cfg.context_tokens > of_file)
        return fail(why, ST_INVALID, "a context of %u tokens: the model was made for %u",
                    p->cfg.context_tokens, of_file);
    p->context_tokens = p->cfg.context_tokens != 0 ? p->cfg.context_tokens : of_file;
    return ST_OK;
}

static struct scheduler_config scheduler_config(const struct engine_process *p)
{
    return (struct scheduler_config){.max_sequences = p->cfg.max_sequences,
                                     .prefill_rows = p->cfg.prefill_rows,
                                     .max_context = p->context_tokens,
                                     .n_pages = p->n_pages,
                                     .queue_max = p->cfg.queue_max,
                                     .tenant_queue_max = p->cfg.tenant_queue_max,
                                     .step_us = p->cfg.step_ms * 1000,
                                     .age_up_us = p->cfg.age_up_ms * 1000,
                                     .prefix_cache = p->cfg.prefix_cache,
                                     .prefix_cache_permille = p->cfg.prefix_cache_permille,
                                     .depth = p->cfg.depth};
}

/* How much of what the device will need, and p->n_pages. No room: whatever there is. */
static enum status plan_device(struct engine_process *p, struct memory_room room,
                               struct device_config *cfg, struct device_plan *plan,
                               struct reason *why)
{
    const struct scheduler_config rows = scheduler_config(p);
    enum status s;

    *cfg = (struct device_config){
        .model = p->model,
        .mode = p->cfg.mode,
        .kv_type = p->cfg.kv_type,
        .isa = p->cfg.isa,
        .n_threads = p->cfg.n_threads,
        .max_rows = scheduler_max_rows(&rows),
        .max_sequences = p->cfg.max_sequences,
        .max_context = p->context_tokens,
        .n_pages = sequence_pages_for(p->context_tokens),
    };
    s = p->cfg.device->plan(cfg, plan, why);
    if (s != ST_OK)
        return s;
    s = kv_plan_pages(&(struct kv_request){.context_tokens = p->context_tokens,
                                           .page_bytes = plan->kv_page_bytes,
                                           .kv_bytes = p->cfg.kv_bytes,
                                           .other_bytes = plan->scratch_bytes,
                                           .room = room},
                      &p->n_pages, why);
    cfg->n_pages = p->n_pages;
    return s;
}

static enum status open_device(struct engine_process *p, struct reason *why)
{
    struct device_config cfg;
    struct device_plan plan;
    enum status s = plan_device(p, memory_room_within(&p->bound), &cfg, &plan, why);

    if (s != ST_OK)
        return s;
    s = p->cfg.device->open(&cfg, &p->device, why);
    if (s == ST_OK)
        log_info(NULL, "engine.kv", "pages=%u page_bytes=%zu kv_mib=%zu tokens=%llu", p->n_pages,
                 plan.kv_page_bytes, plan.kv_page_bytes * p->n_pages >> 20,
                 (unsigned long long)p->n_pages * KV_PAGE_TOKENS);
    return s;
}

void engine_process_learn_cost(struct engine_process *p)
{
    const struct scheduler_config rows = scheduler_config(p);
    const struct calibrate_limits limits = {.max_rows = scheduler_max_rows(&rows),
                                            .max_context = p->context_tokens,
                                            .n_pages = p->n_pages,
                                            .max_sequences = p->cfg.max_sequences,
                                            .step_us = p->cfg.step_ms * 1000};
    struct cost cost;
    enum status s = calibrate(p->device, &limits, &cost);

    p->has_cost = true;
    if (s != ST_OK)
        log_error(NULL, "engine.cost",
                  "the device failed while its speed was measured (%s): steps begin small",
                  status_name(s));
    scheduler_set_cost(p->scheduler, &cost);
    log_info(NULL, "engine.cost", "base_us=%llu row_us=%llu attended_ns=%llu logits_us=%llu",
             (unsigned long long)cost.base_ns / 1000, (unsigned long long)cost.row_ns / 1000,
             (unsigned long long)cost.attended_ns, (unsigned long long)cost.logits_ns / 1000);
}

static enum status open_scheduler(struct engine_process *p)
{
    const struct scheduler_config cfg = scheduler_config(p);
    const struct cache_domain cache = {
        .revision = p->model->revision, .kv_type = p->cfg.kv_type, .mode = p->cfg.mode};
    enum status s;

    s = jobs_init(&p->jobs, p->tokenizer, &cache);
    if (s != ST_OK)
        return s;
    s = scheduler_new(&cfg, &jobs_events, &p->jobs, &p->scheduler);
    if (s != ST_OK)
        return s;
    p->jobs.scheduler = p->scheduler;
    p->has_cost = p->cfg.cost != NULL;
    if (p->has_cost)
        scheduler_set_cost(p->scheduler, p->cfg.cost);
    return stepper_init(&p->stepper, p->scheduler, p->device,
                        &(struct stepper_limits){.max_rows = scheduler_max_rows(&cfg),
                                                 .max_sequences = cfg.max_sequences,
                                                 .n_vocab = p->model->shape.n_vocab});
}

/* Parsers say what is wrong where in the file, not in which file. */
static enum status open_file(struct engine_process *p, struct reason *why)
{
    struct reason detail = {0};
    enum status s = model_open(p->cfg.model_path, &p->model, &detail);

    if (s == ST_OK)
        s = tokenizer_new(p->model->gguf, &p->tokenizer, &detail);
    if (s == ST_OK)
        return ST_OK;
    if (strstr(detail.text, p->cfg.model_path) != NULL)
        return fail(why, s, "%s", detail.text);
    return fail(why, s, "the model %s: %.200s", p->cfg.model_path, detail.text);
}

static enum status begin_lock(struct engine_process *p, struct reason *why)
{
    const int keep[] = {p->cfg.stop_fd, p->listen_fd};

    return lockdown_begin(&p->lock,
                          &(struct lockdown_config){.want = p->cfg.lockdown,
                                                    .model_path = p->cfg.model_path,
                                                    .socket_path = p->cfg.socket_path,
                                                    .keep_fds = keep,
                                                    .n_keep_fds = COUNT_OF(keep),
                                                    .max_fds = CONNS_MAX + OTHER_FDS},
                          why);
}

/* The model as the parsers give it, checked: strangers' bytes. */
static enum status read_model(struct engine_process *p, struct reason *why)
{
    enum status s = open_file(p, why);

    if (s == ST_OK && tokenizer_n_vocab(p->tokenizer) > p->model->shape.n_vocab)
        s = fail(why, ST_CORRUPT, "the vocabulary has %u tokens, the weights only %u",
                 tokenizer_n_vocab(p->tokenizer), p->model->shape.n_vocab);
    return s == ST_OK ? choose_context(p, why) : s;
}

/* Locked in, a process removes no file: the next start does. */
static bool removes_its_socket(const struct engine_process *p)
{
    return p->cfg.lockdown == LOCKDOWN_OFF;
}

/* Its socket may have been renamed since, and at its old path the next one of its kind listens. */
static void remove_socket(const struct engine_process *p)
{
    struct stat st;

    if (p->socket_inode != 0 && lstat(p->cfg.socket_path, &st) == 0 && st.st_ino == p->socket_inode)
        unlink(p->cfg.socket_path);
}

/* Who can connect is served: the last thing before the lock is complete. */
static enum status start_listening(struct engine_process *p, struct reason *why)
{
    enum status s = listener_start(p->cfg.socket_path, p->listen_fd, why);
    struct stat st;

    if (s == ST_OK && removes_its_socket(p) && lstat(p->cfg.socket_path, &st) == 0)
        p->socket_inode = st.st_ino;
    return s;
}

static bool is_told_to_stop(const struct engine_process *p)
{
    struct pollfd stop = {.fd = p->cfg.stop_fd, .events = POLLIN};

    return poll(&stop, 1, 0) > 0;
}

/* All at once, and nobody is served meanwhile: whoever waits for the socket finds it quick. */
static enum status warm_up(struct engine_process *p, struct reason *why)
{
    int64_t start_ms = clock_mono_ms();

    while (engine_process_warm(p))
        if (is_told_to_stop(p))
            return fail(why, ST_CANCELLED, "told to stop while it warmed up");
    log_info(NULL, "engine.warm", "took_ms=%lld", (long long)(clock_mono_ms() - start_ms));
    return ST_OK;
}

static enum status open_parts(struct engine_process *p, struct reason *why)
{
    enum status s = open_device(p, why);

    if (s != ST_OK)
        return s;
    s = open_scheduler(p);
    if (s != ST_OK)
        return fail(why, s, "not enough memory for the scheduler");
    if (p->cfg.warm)
        s = warm_up(p, why);
    return s == ST_OK ? start_listening(p, why) : s;
}

static enum status open_all(struct engine_process *p, struct reason *why)
{
    enum status s = listener_open(p->cfg.socket_path, &p->listen_fd, why);

    /* Locked in, it reads no files of control groups. */
    cgroup_memory_bound("", &p->bound);
    if (s == ST_OK)
        s = begin_lock(p, why);
    if (s == ST_OK)
        s = read_model(p, why);
    if (s == ST_OK)
        s = lockdown_parsed(&p->lock, why);
    if (s == ST_OK)
        s = open_parts(p, why);
    return s == ST_OK ? lockdown_finish(&p->lock, why) : s;
}

static void log_ready(const struct engine_process *p)
{
    char lock[160];

    lockdown_describe(&p->lock, lock, sizeof lock);
    log_info(NULL, "engine.lockdown", "%s", lock);
    log_info(NULL, "engine.ready",
             "model=\"%s\" revision=%.12s device=\"%s\" context=%u pages=%u max_sequences=%u "
             "prefill_rows=%u socket=%s",
             p->model->name, p->model->revision, p->device->ops->describe(p->device),
             p->context_tokens, p->n_pages, p->cfg.max_sequences, p->cfg.prefill_rows,
             p->cfg.socket_path);
}

/* The pages behind a repacked matrix are read once more and then the kernel's to drop: only the
 * rest of the file is counted. */
enum status engine_process_plan(const struct engine_process_config *cfg, struct memory_need *out,
                                struct reason *why)
{
    struct engine_process p = {.cfg = *cfg};
    struct device_config device;
    struct device_plan plan;
    enum status s = open_file(&p, why);

    if (s == ST_OK)
        s = choose_context(&p, why);
    if (s == ST_OK)
        s = plan_device(&p, (struct memory_room){0}, &device, &plan, why);
    if (s == ST_OK) {
        size_t file = gguf_file_bytes(p.model->gguf), packed = plan.weight_bytes - file;

        snprintf(out->revision, sizeof out->revision, "%s", p.model->revision);
        out->mapped_bytes = file > packed ? file - packed : 0;
        out->packed_bytes = packed;
        out->kv_bytes = plan.kv_page_bytes * p.n_pages; /* kv_plan_pages found it to fit */
        out->scratch_bytes = plan.scratch_bytes;
    }
    tokenizer_free(p.tokenizer);
    model_close(p.model);
    return s;
}

enum status engine_process_open(const struct engine_process_config *cfg,
                                struct engine_process **out, struct reason *why)
{
    struct engine_process *p = calloc(1, sizeof *p);
    enum status s;

    if (p == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory");
    p->cfg = *cfg;
    p->listen_fd = -1;
    s = open_all(p, why);
    if (s != ST_OK) {
        engine_process_close(p);
        return s;
    }
    attendance_init(&p->attendance, cfg->orphan_ms, clock_mono_ms());
    log_ready(p);
    *out = p;
    return ST_OK;
}

void engine_process_close_listener(struct engine_process *p)
{
    if (p->listen_fd == -1)
        return;
    remove_socket(p);
    close(p->listen_fd);
    p->listen_fd = -1;
}

void engine_process_close(struct engine_process *p)
{
    if (p == NULL)
        return;
    engine_process_close_listener(p);
    stepper_dispose(&p->stepper);
    scheduler_free(p->scheduler);
    jobs_dispose(&p->jobs);
    if (p->device != NULL)
        p->device->ops->close(p->device);
    tokenizer_free(p->tokenizer);
    model_close(p->model);
    free(p);
}
