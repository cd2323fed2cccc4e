#include "app/memory.h"

#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/config_models.h"
#include "app/local_run.h"
#include "app/supervise/engine_watch.h"
#include "app/supervise/files.h"
#include "app/supervise/process.h"
#include "app/supervise/state_file.h"
#include "base/cgroup_memory.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"
#include "base/unix_socket.h"
#include "engine/core/engine_process.h"
#include "engine/core/memory_plan.h"
#include "engine/cpu/cpu.h"

/* A greeting is answered between two steps. */
#define GREETING_MS 3000

/* ---- engines that run ---- */

/* Who listens at the socket; 0: nobody, or somebody that we may not ask. */
static pid_t peer_of(const char *path)
{
    struct ucred who = {0};
    socklen_t len = sizeof who;
    int fd = unix_socket_connect(path);

    if (fd == -1)
        return 0;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == -1)
        who.pid = 0;
    close(fd);
    return who.pid;
}

/* Of the engine; 0: it doesn't run. Its supervisor, which answers there in its place, is none. */
static pid_t engine_of(const struct config_model *m)
{
    pid_t peer = peer_of(m->socket);
    struct state_file s;

    return peer != 0 && state_file_read(m->socket, &s) && s.supervisor == peer ? 0 : peer;
}

/* The other process of a hot swap, by its pid file: the successor while it loads, then the engine
 * before it while it ends its requests. Neither is found at the socket. 0: there is none. */
static pid_t swapped_of(const struct config_model *m)
{
    char path[PROCESS_PATH_MAX];

    snprintf(path, sizeof path, "%.600s.next.pid", m->socket);
    return process_of_pid_file(path, NULL);
}

/* On demand or while idle, until somebody demands it again: it needs nothing. */
static bool is_unloaded(const struct config_model *m)
{
    struct state_file s;

    return state_file_read(m->socket, &s) &&
           (strcmp(s.state, "unloaded") == 0 || strcmp(s.state, "idle") == 0);
}

/* Anonymous memory of a process that is resident: KV pages, buffers and repacked weights count from
 * when they are first written. */
static size_t anonymous_bytes(pid_t pid)
{
    char path[64], line[128];
    size_t kib, bytes = 0;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    f = fopen(path, "re");
    if (f == NULL)
        return 0;
    while (fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "RssAnon: %zu kB", &kib) == 1 && size_mul(kib, 1024, &bytes))
            break;
    fclose(f);
    return bytes;
}

/* ---- room and needs ---- */

/* Of this process's control groups, in which its engine is too. */
static struct memory_room room_now(void)
{
    struct cgroup_bound bound;

    cgroup_memory_bound("", &bound);
    return memory_room_within(&bound);
}

static enum status need_of_process(const struct engine_process_config *cfg, const char *id,
                                   struct memory_need *out, struct reason *why)
{
    struct stat st;
    enum status s;

    *out = (struct memory_need){.id = id};
    s = engine_process_plan(cfg, out, why);
    if (s != ST_OK)
        return s;
    if (stat(cfg->model_path, &st) == -1)
        return fail(why, ST_NOT_FOUND, "%s has gone", cfg->model_path);
    out->device = st.st_dev;
    out->inode = st.st_ino;
    return ST_OK;
}

static enum status need_of(const struct config *c, const struct config_model *m,
                           struct memory_need *out, struct reason *why)
{
    struct engine_process_config cfg = {
        .device = &cpu_device_ops,
        .model_path = m->path,
        .mode = strcmp(m->mode, "exact") == 0 ? DEVICE_EXACT : DEVICE_FAST,
        .isa = c->engine_isa,
        .n_threads = (unsigned)m->threads,
        .context_tokens = (uint32_t)m->context_tokens,
        .max_sequences = (uint32_t)m->max_sequences,
        .prefill_rows = (uint32_t)c->engine_prefill_rows,
        .kv_bytes = (size_t)m->kv_mb << 20,
    };

    if (!local_kv_type(m->kv_type, &cfg.kv_type))
        return fail(why, ST_INVALID, "no such type of KV: %s", m->kv_type);
    return need_of_process(&cfg, m->id, out, why);
}

/* With what it has taken already, if it runs. False: it can't be planned, so it won't start. */
static bool add_other(const struct config *c, const struct config_model *m, pid_t pid,
                      struct memory_need *out)
{
    struct reason ignored = {0};

    if (need_of(c, m, out, &ignored) != ST_OK)
        return false;
    if (pid != 0)
        out->held_bytes = anonymous_bytes(pid);
    return true;
}

/* False also when it doesn't answer. */
static bool serves_revision(const char *socket_path, const char *revision)
{
    int64_t now_ms = clock_mono_ms(), end_ms = now_ms + GREETING_MS;
    struct engine_watch w;
    bool same;

    engine_watch_init(&w, socket_path, 0);
    engine_watch_start(&w, now_ms);
    (void)engine_watch_turn(&w, now_ms, NULL);
    while (w.state == ENGINE_WATCH_GREETING && now_ms < end_ms) {
        struct pollfd fd = engine_watch_pollfd(&w);

        (void)poll(&fd, 1, (int)(end_ms - now_ms));
        now_ms = clock_mono_ms();
        (void)engine_watch_turn(&w, now_ms, NULL);
    }
    same = w.greeted && strcmp(w.welcome.revision, revision) == 0;
    engine_watch_dispose(&w);
    return same;
}

/* The engine whose place this one is to take, planned from the same settings. It shares mapped
 * weights only if it has the same model: its file may have been replaced since it was loaded. */
static bool add_predecessor(const struct config *c, const struct config_model *m,
                            const struct memory_need *mine, struct memory_need *out)
{
    pid_t pid = engine_of(m);

    if (pid == 0 || !add_other(c, m, pid, out))
        return false;
    if (!serves_revision(m->socket, mine->revision))
        out->device = out->inode = 0;
    return true;
}

/* The file of one of the two may have been replaced: they count as sharing nothing. */
static size_t gather_swapped(const struct config *c, struct memory_need *needs)
{
    size_t n = 0;

    for (size_t i = 0; i < c->n_models; i++) {
        pid_t pid = swapped_of(&c->models[i]);

        if (pid == 0 || pid == getpid() || !add_other(c, &c->models[i], pid, &needs[n]))
            continue;
        needs[n].device = needs[n].inode = 0;
        n++;
    }
    return n;
}

/* Those beside which `m` must fit; their number. */
static size_t gather_others(const struct config *c, const struct config_model *m,
                            const struct memory_room *room, struct memory_need *needs)
{
    struct reason ignored = {0};
    pid_t pids[CONFIG_MODELS_MAX] = {0};
    size_t n = gather_swapped(c, needs);

    for (size_t i = 0; i < c->n_models; i++) {
        const struct config_model *other = &c->models[i];

        pids[i] = other != m ? engine_of(other) : 0;
        if (pids[i] != 0)
            n += add_other(c, other, pids[i], &needs[n]);
    }
    for (size_t i = 0; &c->models[i] < m; i++)
        if (pids[i] == 0 && !is_unloaded(&c->models[i]) &&
            add_other(c, &c->models[i], 0, &needs[n]) &&
            memory_check(needs, n + 1, room, "", &ignored) == ST_OK)
            n++;
    return n;
}

static void log_needs(const struct memory_need *needs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        log_info(NULL, "engine.memory",
                 "model=%s weights_mib=%zu repacked_mib=%zu kv_mib=%zu buffers_mib=%zu "
                 "taken_mib=%zu",
                 needs[i].id, needs[i].mapped_bytes >> 20, needs[i].packed_bytes >> 20,
                 needs[i].kv_bytes >> 20, needs[i].scratch_bytes >> 20, needs[i].held_bytes >> 20);
}

/* It serves elsewhere than the file says: at a socket that is to be renamed. */
static bool is_successor(const struct config_model *m, const struct engine_process_config *own)
{
    return own != NULL && own->socket_path != NULL && strcmp(own->socket_path, m->socket) != 0;
}

enum status memory_check_model(const struct config *c, const struct config_model *m,
                               const struct engine_process_config *own, struct reason *why)
{
    struct memory_need needs[2 * CONFIG_MODELS_MAX + 1] = {0}, mine;
    const struct memory_room room = room_now();
    size_t n;
    enum status s =
        own != NULL ? need_of_process(own, m->id, &mine, why) : need_of(c, m, &mine, why);
    char whose[128];

    if (s != ST_OK)
        return s;
    n = gather_others(c, m, &room, needs);
    if (is_successor(m, own))
        n += add_predecessor(c, m, &mine, &needs[n]);
    needs[n] = mine;
    if (n == 0)
        snprintf(whose, sizeof whose, "model %s", m->id);
    else
        snprintf(whose, sizeof whose, "model %s beside %zu more", m->id, n);
    s = memory_check(needs, n + 1, &room, whose, why);
    if (s != ST_OK)
        log_needs(needs, n + 1);
    return s;
}

enum status memory_check_all(const struct config *c, struct buf *out, struct reason *why)
{
    struct memory_need needs[CONFIG_MODELS_MAX];
    const struct memory_room room = room_now();
    struct reason inner = {0};
    char whose[32];

    for (size_t i = 0; i < c->n_models; i++) {
        const struct config_model *m = &c->models[i];
        enum status s = need_of(c, m, &needs[i], &inner);
        pid_t pid = s == ST_OK ? engine_of(m) : 0;

        if (s != ST_OK)
            return fail(why, s, "model %s: %s", m->id, inner.text);
        if (pid != 0)
            needs[i].held_bytes = anonymous_bytes(pid);
    }
    memory_table(needs, c->n_models, &room, out);
    snprintf(whose, sizeof whose, "%zu model%s", c->n_models, c->n_models == 1 ? "" : "s");
    return memory_check(needs, c->n_models, &room, whose, why);
}
