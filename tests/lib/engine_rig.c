#include "tests/lib/engine_rig.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/size.h"
#include "tests/lib/gguf_build.h"
#include "tests/lib/poll_loop.h"

#define PATIENCE_MS 20000

static void open_gateway(struct engine_rig *r)
{
    const struct engine_model_config model = {
        .path = r->model_path, .id = "tiny", .socket_path = r->socket_path};
    struct engine_config cfg = {.models = &model,
                                .n_models = 1,
                                .text_threads = 1,
                                .text_queue = 64,
                                .silence_ms = RIG_SILENCE_MS,
                                .load_wait_ms = RIG_LOAD_WAIT_MS,
                                .build = "rig"};
    enum status s;

    r->loop = poll_loop_new();
    s = engine_open(&cfg, &r->engine, NULL);
    assert(s == ST_OK);
    s = engine_link_open(r->engine, r->loop, &r->link);
    assert(s == ST_OK);
    r->model = engine_model_at(r->engine, 0);
    r->revision = engine_revision_get(r->model);
}

void engine_rig_open(struct engine_rig *r, const struct device_ops *device)
{
    memset(r, 0, sizeof *r);
    strcpy(r->dir, "/tmp/sluice-rig-XXXXXX");
    if (mkdtemp(r->dir) == NULL)
        abort();
    snprintf(r->model_path, sizeof r->model_path, "%s/tiny.gguf", r->dir);
    snprintf(r->socket_path, sizeof r->socket_path, "%s/engine.sock", r->dir);
    tiny_model_write(NULL, r->model_path);
    r->cfg = (struct engine_process_config){.device = device,
                                            .model_path = r->model_path,
                                            .socket_path = r->socket_path,
                                            .build = "rig",
                                            .mode = DEVICE_EXACT,
                                            .isa = "auto",
                                            .n_threads = 1,
                                            .max_sequences = 64,
                                            .prefill_rows = 32,
                                            .queue_max = 128,
                                            .depth = 1,
                                            .credit_bytes = 1 << 20,
                                            .drain_ms = PATIENCE_MS,
                                            .handover_ms = PATIENCE_MS,
                                            .stop_fd = eventfd(0, EFD_CLOEXEC)};
    assert(r->cfg.stop_fd != -1);
    open_gateway(r);
}

static void *run(void *arg)
{
    engine_process_run(arg);
    return NULL;
}

void engine_rig_start(struct engine_rig *r)
{
    struct reason why = {0};
    enum status s;

    r->output_tokens = 0;
    s = engine_process_open(&r->cfg, &r->process, &why);

    if (s != ST_OK)
        fprintf(stderr, "engine_rig: %s\n", why.text);
    assert(s == ST_OK);
    if (pthread_create(&r->thread, NULL, run, r->process) != 0)
        abort();
}

void engine_rig_tell_stop(struct engine_rig *r)
{
    uint64_t one = 1;

    if (write(r->cfg.stop_fd, &one, sizeof one) != (ssize_t)sizeof one)
        abort();
}

void engine_rig_join(struct engine_rig *r)
{
    pthread_join(r->thread, NULL);
    engine_process_close(r->process);
    r->process = NULL;
}

void engine_rig_stop(struct engine_rig *r)
{
    if (r->process == NULL)
        return;
    engine_rig_tell_stop(r);
    engine_rig_join(r);
}

void engine_rig_close(struct engine_rig *r)
{
    engine_link_close(r->link);
    engine_rig_stop(r);
    engine_revision_put(r->revision);
    engine_close(r->engine);
    poll_loop_free(r->loop);
    close(r->cfg.stop_fd);
    unlink(r->model_path);
    unlink(r->socket_path);
    rmdir(r->dir);
}

void engine_rig_await(struct engine_rig *r, bool (*check)(void *arg), void *arg)
{
    if (poll_loop_run_until(r->loop, check, arg, PATIENCE_MS))
        return;
    fprintf(stderr, "engine_rig: waited in vain\n");
    abort();
}

static bool is_ready(void *arg)
{
    return engine_link_is_ready(arg);
}

void engine_rig_await_ready(struct engine_rig *r)
{
    engine_rig_await(r, is_ready, r->link);
}

static bool is_idle(void *arg)
{
    struct engine_rig *r = arg;
    struct engine_stats st;

    engine_stats(r->engine, &st);
    /* The tokens tell a state after the jobs from one before them. */
    return st.connected && st.pages_total > 0 && st.output_tokens >= r->output_tokens &&
           st.running + st.waiting + st.pages_used == 0;
}

void engine_rig_await_idle(struct engine_rig *r)
{
    engine_rig_await(r, is_idle, r);
}

static void take_prompt_samples(struct rig_job *j, const struct engine_delta *d)
{
    assert(d->choice == 0 && d->len == 0 && d->finish == ENGINE_FINISH_NONE);
    for (uint32_t i = 0; i < d->n_tokens; i++, j->n_prompt_samples++) {
        if (j->n_prompt_samples < COUNT_OF(j->prompt_samples))
            j->prompt_samples[j->n_prompt_samples] =
                (struct token_logprob){d->tokens[i].id, d->tokens[i].logprob};
        j->n_prompt_tops += d->tokens[i].n_tops;
    }
}

static void take_samples(struct rig_job *j, struct rig_choice *c, const struct engine_delta *d)
{
    for (uint32_t i = 0; i < d->n_tokens; i++) {
        char bytes[64];
        size_t len = engine_token_bytes(j->rig->revision, d->tokens[i].id, bytes, sizeof bytes);

        assert(len <= sizeof bytes);
        buf_append(&c->spelled, bytes, len);
        c->n_samples++;
        c->n_tops += d->tokens[i].n_tops;
    }
}

static void on_delta(void *arg, const struct engine_delta *d, const struct engine_usage *so_far)
{
    struct rig_job *j = arg;
    struct rig_choice *c = &j->choices[d->choice];

    assert(j->n_ends == 0);
    assert(d->choice < RIG_CHOICES_MAX && c->finish == ENGINE_FINISH_NONE);
    assert(j->cancel_after == 0 || j->n_frames < j->cancel_after);
    buf_append(&c->text, d->text, d->len);
    c->finish = d->finish;
    if (d->is_prompt)
        take_prompt_samples(j, d);
    else
        take_samples(j, c, d);
    j->usage = *so_far;
    j->n_frames++;
    if (j->n_frames == j->cancel_after)
        engine_cancel(j->job);
}

static void on_end(void *arg, const struct engine_end *end)
{
    struct rig_job *j = arg;

    j->end = *end;
    j->rig->output_tokens += end->usage.output_tokens;
    j->n_ends++;
    j->job = NULL;
}

enum status rig_job_submit(struct engine_rig *r, struct rig_job *j, struct engine_submit *s)
{
    j->rig = r;
    s->revision = r->revision;
    s->weight = 1000;
    s->sampling.top_p = s->sampling.top_p == 0.0f ? 1.0f : s->sampling.top_p;
    s->arg = j;
    s->on_delta = on_delta;
    s->on_end = on_end;
    return engine_submit(r->link, s, &j->job);
}

static bool has_ended(void *arg)
{
    return ((struct rig_job *)arg)->n_ends > 0;
}

void rig_job_await(struct engine_rig *r, struct rig_job *j)
{
    engine_rig_await(r, has_ended, j);
}

void rig_job_dispose(struct rig_job *j)
{
    for (size_t i = 0; i < RIG_CHOICES_MAX; i++) {
        buf_dispose(&j->choices[i].text);
        buf_dispose(&j->choices[i].spelled);
    }
}
