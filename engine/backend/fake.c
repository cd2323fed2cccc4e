#include "engine/backend/fake.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"

struct fake_job;

struct fake_link {
    struct backend_link super;
    struct loop *loop;
    struct fake_script *script;
    struct fake_job *jobs;
};

struct fake_job {
    struct engine_job super;
    struct fake_link *link;
    struct fake_job *prev, *next;
    struct loop_timer timer;
    struct engine_submit submit; /* its pointers are not followed later */
    struct engine_usage usage;
    bool is_cancelled;
};

static void end_job(struct fake_job *j, enum status status, enum engine_finish finish)
{
    struct engine_end end = {.status = status,
                             .finish = status == ST_OK ? finish : ENGINE_FINISH_NONE,
                             .usage = j->usage};

    loop_timer_stop(j->link->loop, &j->timer);
    if (j->prev != NULL)
        j->prev->next = j->next;
    else
        j->link->jobs = j->next;
    if (j->next != NULL)
        j->next->prev = j->prev;
    j->link->script->n_ended++;
    j->submit.on_end(j->submit.arg, &end);
    free(j);
}

/* One event of the script; the next comes in the next turn of the loop. */
static void on_timer(void *arg)
{
    struct fake_job *j = arg;
    const struct fake_script *s = j->link->script;
    uint32_t at = j->usage.output_tokens;

    if (j->is_cancelled) {
        end_job(j, ST_CANCELLED, ENGINE_FINISH_NONE);
        return;
    }
    if (at == j->submit.max_tokens) {
        end_job(j, ST_OK, ENGINE_FINISH_LENGTH);
        return;
    }
    if (at == s->n_texts) {
        if (!s->stalls)
            end_job(j, s->end_status, s->finish);
        return;
    }
    j->usage.prompt_tokens = j->submit.n_prompt;
    j->usage.output_tokens++;
    loop_timer_start(j->link->loop, &j->timer, 0);
    j->submit.on_delta(j->submit.arg,
                       &(struct engine_delta){.text = s->texts[at], .len = strlen(s->texts[at])},
                       &j->usage);
}

static enum status link_open(const struct backend_target *t, struct loop *loop,
                             struct backend_link **out)
{
    struct fake_link *l = calloc(1, sizeof *l);

    if (l == NULL)
        return ST_NO_MEMORY;
    l->super.ops = &fake_backend_ops;
    l->loop = loop;
    l->script = t->arg;
    *out = &l->super;
    return ST_OK;
}

static void link_close(struct backend_link *super)
{
    struct fake_link *l = CONTAINER_OF(super, struct fake_link, super);

    while (l->jobs != NULL)
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): end_job takes it off the list */
        end_job(l->jobs, ST_UNAVAILABLE, ENGINE_FINISH_NONE);
    free(l);
}

static bool is_ready(const struct backend_link *super)
{
    return CONTAINER_OF(super, struct fake_link, super)->script->is_ready;
}

static enum status submit(struct backend_link *super, const struct engine_submit *s,
                          struct engine_job **out)
{
    struct fake_link *l = CONTAINER_OF(super, struct fake_link, super);
    struct fake_job *j;

    if (!l->script->is_ready)
        return ST_UNAVAILABLE;
    if (l->script->submit_status != ST_OK)
        return l->script->submit_status;
    j = calloc(1, sizeof *j);
    if (j == NULL)
        return ST_NO_MEMORY;
    j->super.ops = &fake_backend_ops;
    j->link = l;
    j->submit = *s;
    j->timer = (struct loop_timer){.on_timer = on_timer, .arg = j};
    j->next = l->jobs;
    if (l->jobs != NULL)
        l->jobs->prev = j;
    l->jobs = j;
    l->script->n_submitted++;
    l->script->last_n_prompt = s->n_prompt;
    l->script->last_max_tokens = s->max_tokens;
    l->script->last_seed = s->sampling.seed;
    loop_timer_start(l->loop, &j->timer, 0);
    *out = &j->super;
    return ST_OK;
}

static void cancel(struct engine_job *super)
{
    struct fake_job *j = CONTAINER_OF(super, struct fake_job, super);

    if (j->is_cancelled)
        return;
    j->is_cancelled = true;
    j->link->script->n_cancelled++;
    loop_timer_start(j->link->loop, &j->timer, 0);
}

const struct backend_ops fake_backend_ops = {.name = "fake",
                                             .link_open = link_open,
                                             .link_close = link_close,
                                             .is_ready = is_ready,
                                             .submit = submit,
                                             .cancel = cancel};
