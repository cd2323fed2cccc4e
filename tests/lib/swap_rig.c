#include "tests/lib/swap_rig.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/engine_state.h"
#include "tests/lib/gguf_build.h"
#include "tests/lib/poll_loop.h"

#define PATIENCE_MS 20000

/* ---- the settings ---- */

static enum status reload(void *arg, const char *id, struct engine_reload *to, struct reason *why)
{
    struct swap_rig *r = arg;
    struct engine_model_config m = {.id = id, .socket_path = "of no engine: the first one counts"};

    pthread_mutex_lock(&r->lock);
    r->n_reloads++;
    while (r->is_held)
        pthread_cond_wait(&r->released, &r->lock);
    m.path = r->file;
    pthread_mutex_unlock(&r->lock);
    return to->take(to, &m, why);
}

void swap_rig_set_file(struct swap_rig *r, const char *path)
{
    pthread_mutex_lock(&r->lock);
    r->file = path;
    pthread_mutex_unlock(&r->lock);
}

void swap_rig_hold(struct swap_rig *r, bool is_held)
{
    pthread_mutex_lock(&r->lock);
    r->is_held = is_held;
    pthread_cond_signal(&r->released);
    pthread_mutex_unlock(&r->lock);
}

uint32_t swap_rig_n_reloads(struct swap_rig *r)
{
    uint32_t n;

    pthread_mutex_lock(&r->lock);
    n = r->n_reloads;
    pthread_mutex_unlock(&r->lock);
    return n;
}

/* ---- open, close ---- */

static void make_file(struct swap_rig *r, size_t which)
{
    const struct tiny_model_options o = {.seed = which + 1};
    char *path = r->files[which];
    struct model *m;
    enum status s;

    strcpy(path, r->dir);
    strcat(path, which == 0 ? "/0.gguf" : "/1.gguf");
    tiny_model_write(&o, path);
    s = model_open(path, &m, NULL);
    assert(s == ST_OK);
    strcpy(r->hex[which], m->revision);
    model_close(m);
}

static void open_gateway(struct swap_rig *r, size_t n_models)
{
    const struct engine_model_config models[] = {
        {.path = r->file, .id = "m", .socket_path = r->socket_path},
        {.path = r->files[1], .id = "beside", .socket_path = "/nowhere/engine.sock"}};
    const struct engine_config cfg = {.models = models,
                                      .n_models = n_models,
                                      .text_threads = 1,
                                      .text_queue = 1,
                                      .reload = reload,
                                      .reload_arg = r};
    enum status s = engine_open(&cfg, &r->engine, NULL);

    assert(s == ST_OK);
    r->model = engine_model_at(r->engine, 0);
    for (size_t i = 0; i < SWAP_LOOPS; i++) {
        r->loops[i] = poll_loop_new();
        s = engine_link_open(r->engine, r->loops[i], &r->links[i]);
        assert(s == ST_OK);
    }
}

static void prepare(struct swap_rig *r)
{
    memset(r, 0, sizeof *r);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->released, NULL);
    strcpy(r->dir, "/tmp/sluice-swap-XXXXXX");
    if (mkdtemp(r->dir) == NULL)
        abort();
    snprintf(r->socket_path, sizeof r->socket_path, "%s/engine.sock", r->dir);
    for (size_t i = 0; i < SWAP_ENGINES; i++)
        r->engines[i].listen_fd = -1;
    make_file(r, 0);
    make_file(r, 1);
}

void swap_rig_open(struct swap_rig *r)
{
    prepare(r);
    r->file = r->files[0];
    open_gateway(r, 1);
}

void swap_rig_open_without(struct swap_rig *r)
{
    prepare(r);
    r->file = "/nowhere/m.gguf";
    r->is_held = true;
    open_gateway(r, 2);
}

void swap_rig_close_links(struct swap_rig *r)
{
    for (size_t i = 0; i < SWAP_LOOPS; i++) {
        engine_link_close(r->links[i]);
        r->links[i] = NULL;
    }
}

void swap_rig_close(struct swap_rig *r)
{
    swap_rig_close_links(r);
    engine_close(r->engine);
    for (size_t i = 0; i < SWAP_LOOPS; i++)
        poll_loop_free(r->loops[i]);
    for (size_t i = 0; i < SWAP_ENGINES; i++)
        played_engine_close(&r->engines[i]);
    unlink(r->files[0]);
    unlink(r->files[1]);
    unlink(r->socket_path);
    rmdir(r->dir);
    pthread_cond_destroy(&r->released);
    pthread_mutex_destroy(&r->lock);
}

/* ---- engines ---- */

void swap_rig_play(struct swap_rig *r, size_t engine, size_t which)
{
    played_engine_close(&r->engines[engine]);
    played_engine_open(&r->engines[engine], r->socket_path, r->hex[which], (uint32_t)engine);
}

void swap_rig_hand_over(struct swap_rig *r, size_t from, size_t to, size_t which)
{
    swap_rig_set_file(r, r->files[which]);
    swap_rig_play(r, to, which);
    played_engine_hand_over(&r->engines[from]);
}

/* ---- waiting ---- */

void swap_rig_turn(struct swap_rig *r)
{
    for (size_t i = 0; i < SWAP_LOOPS; i++)
        poll_loop_turn(r->loops[i], 1);
    for (size_t i = 0; i < SWAP_ENGINES; i++)
        played_engine_turn(&r->engines[i]);
}

void swap_rig_await(struct swap_rig *r, bool (*check)(struct swap_rig *r))
{
    int64_t end_ms = clock_mono_ms() + PATIENCE_MS;

    while (!check(r)) {
        if (clock_mono_ms() >= end_ms) {
            fprintf(stderr, "swap_rig: waited in vain\n");
            abort();
        }
        swap_rig_turn(r);
    }
}

bool swap_rig_serves(struct swap_rig *r)
{
    for (size_t i = 0; i < SWAP_LOOPS; i++)
        if (!engine_link_serves(r->links[i], r->model))
            return false;
    return true;
}

static bool has_file(struct swap_rig *r, size_t which)
{
    const struct engine_revision *now = engine_revision_get(r->model);
    bool has = now != NULL && strcmp(now->hex, r->hex[which]) == 0;

    engine_revision_put(now);
    return has && swap_rig_serves(r);
}

bool swap_rig_has_revision(struct swap_rig *r)
{
    const struct engine_revision *now = engine_revision_get(r->model);

    engine_revision_put(now);
    return now != NULL;
}

bool swap_rig_has_file_0(struct swap_rig *r)
{
    return has_file(r, 0);
}

bool swap_rig_has_file_1(struct swap_rig *r)
{
    return has_file(r, 1);
}

size_t swap_rig_n_revisions(struct swap_rig *r)
{
    struct engine *e = r->engine;
    size_t n = 0;

    pthread_mutex_lock(&e->lock);
    for (const struct served_revision *v = e->models[0].revisions; v != NULL; v = v->next)
        n++;
    pthread_mutex_unlock(&e->lock);
    return n;
}

bool swap_rig_wants_change(struct swap_rig *r)
{
    struct engine *e = r->engine;
    bool wants;

    pthread_mutex_lock(&e->lock);
    wants = e->models[0].is_wanted;
    pthread_mutex_unlock(&e->lock);
    return wants;
}

bool swap_rig_is_settled(struct swap_rig *r)
{
    return swap_rig_n_revisions(r) == 1;
}

/* ---- jobs ---- */

static void on_delta(void *arg, const struct engine_delta *d, const struct engine_usage *so_far)
{
    (void)arg;
    (void)d;
    (void)so_far;
}

static void on_end(void *arg, const struct engine_end *end)
{
    struct swap_job *j = arg;

    j->end = *end;
    j->n_ends++;
    j->job = NULL;
}

enum status swap_rig_submit(struct swap_rig *r, size_t loop, const struct engine_revision *revision,
                            struct swap_job *j)
{
    static const int32_t prompt[] = {5, 6, 7};
    const struct engine_submit s = {.request = {.bytes = {1}},
                                    .revision = revision,
                                    .tenant = 1,
                                    .weight = 1000,
                                    .prompt = prompt,
                                    .n_prompt = 3,
                                    .max_tokens = 5,
                                    .sampling = {.top_p = 1},
                                    .arg = j,
                                    .on_delta = on_delta,
                                    .on_end = on_end};

    *j = (struct swap_job){0};
    return engine_submit(r->links[loop], &s, &j->job);
}
