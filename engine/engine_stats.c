/* What engines say of themselves, as callers see it: of a model, and of all. */
#include <string.h>

#include "base/clock.h"
#include "engine/engine_state.h"

/* Until the last holder of the one before has left, both engines work for the model. The counters
 * are the current one's alone: they begin anew with its process, as after a restart. */
static void add_others(const struct served_model *m, int64_t now_ms, struct engine_stats *out)
{
    struct engine_stats s;

    for (struct served_revision *r = m->revisions; r != NULL; r = r->next) {
        if (r == m->current)
            continue;
        stats_cell_read(&r->stats, now_ms, &s);
        /* A link that lost its engine may have found the current one's. */
        if (!s.connected || (out->connected && s.pid == out->pid))
            continue;
        out->running += s.running;
        out->waiting += s.waiting;
    }
}

void engine_stats_of(struct engine *e, const struct engine_model *m, struct engine_stats *out)
{
    const struct served_model *served = &e->models[engine_index_of(e, m)];
    int64_t now_ms = clock_mono_ms();

    pthread_mutex_lock(&e->lock);
    if (served->current != NULL)
        stats_cell_read(&served->current->stats, now_ms, out);
    else
        *out = (struct engine_stats){.last_step_age_ms = -1};
    out->stalled = out->connected && e->silence_ms != 0 && out->last_step_age_ms >= e->silence_ms;
    if (!out->connected && served->trouble[0] != '\0')
        memcpy(out->absence, served->trouble, sizeof out->absence);
    add_others(served, now_ms, out);
    pthread_mutex_unlock(&e->lock);
}

static void add_stats(struct engine_stats *sum, const struct engine_stats *s)
{
    sum->connected &= s->connected;
    sum->stalled |= s->stalled;
    sum->running += s->running;
    sum->waiting += s->waiting;
    sum->pages_used += s->pages_used;
    sum->pages_total += s->pages_total;
    sum->steps += s->steps;
    sum->prompt_tokens += s->prompt_tokens;
    sum->output_tokens += s->output_tokens;
    sum->preemptions += s->preemptions;
    sum->prefix_query_tokens += s->prefix_query_tokens;
    sum->prefix_hit_tokens += s->prefix_hit_tokens;
    sum->not_finite += s->not_finite;
    if (s->rows_max > sum->rows_max)
        sum->rows_max = s->rows_max;
    if (s->last_step_age_ms > sum->last_step_age_ms)
        sum->last_step_age_ms = s->last_step_age_ms;
}

void engine_stats(struct engine *e, struct engine_stats *out)
{
    struct engine_stats s;

    engine_stats_of(e, &e->models[0].pub, out);
    for (size_t i = 1; i < e->n_models; i++) {
        engine_stats_of(e, &e->models[i].pub, &s);
        add_stats(out, &s);
    }
}
