#include "engine/backend/stats_cell.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

void stats_cell_init(struct stats_cell *c)
{
    memset(c, 0, sizeof *c);
    c->last.last_step_age_ms = -1;
    pthread_mutex_init(&c->lock, NULL);
}

void stats_cell_dispose(struct stats_cell *c)
{
    assert(c->n_connected == 0);
    pthread_mutex_destroy(&c->lock);
}

void stats_cell_connect(struct stats_cell *c, uint32_t pid, const char *device, const char *build)
{
    pthread_mutex_lock(&c->lock);
    c->n_connected++;
    c->last.pid = pid;
    c->last.absence[0] = '\0';
    c->last.asleep = false;
    snprintf(c->last.device, sizeof c->last.device, "%s", device);
    snprintf(c->last.build, sizeof c->last.build, "%s", build);
    pthread_mutex_unlock(&c->lock);
}

/* Nothing runs in an engine that nobody reaches: gauges go to 0, counters stay until it is back. */
void stats_cell_disconnect(struct stats_cell *c)
{
    pthread_mutex_lock(&c->lock);
    c->n_connected--;
    if (c->n_connected == 0) {
        c->last.running = c->last.waiting = 0;
        c->last.pages_used = c->last.pages_total = 0;
        c->last.last_step_age_ms = -1;
    }
    pthread_mutex_unlock(&c->lock);
}

static bool set_absence(struct stats_cell *c, const char *absence, bool asleep)
{
    bool is_new;

    pthread_mutex_lock(&c->lock);
    is_new = strcmp(c->last.absence, absence) != 0;
    snprintf(c->last.absence, sizeof c->last.absence, "%s", absence);
    c->last.asleep = asleep;
    pthread_mutex_unlock(&c->lock);
    return is_new;
}

bool stats_cell_refuse(struct stats_cell *c, const char *absence)
{
    return set_absence(c, absence, false);
}

bool stats_cell_sleep(struct stats_cell *c, const char *absence)
{
    return set_absence(c, absence, true);
}

void stats_cell_update(struct stats_cell *c, const struct engine_stats *s, int64_t now_ms)
{
    pthread_mutex_lock(&c->lock);
    c->received_ms = now_ms;
    c->last.running = s->running;
    c->last.waiting = s->waiting;
    c->last.pages_used = s->pages_used;
    c->last.pages_total = s->pages_total;
    c->last.steps = s->steps;
    c->last.prompt_tokens = s->prompt_tokens;
    c->last.output_tokens = s->output_tokens;
    c->last.preemptions = s->preemptions;
    c->last.prefix_query_tokens = s->prefix_query_tokens;
    c->last.prefix_hit_tokens = s->prefix_hit_tokens;
    c->last.not_finite = s->not_finite;
    c->last.rows_max = s->rows_max;
    c->last.last_step_age_ms = s->last_step_age_ms;
    pthread_mutex_unlock(&c->lock);
}

void stats_cell_read(struct stats_cell *c, int64_t now_ms, struct engine_stats *out)
{
    pthread_mutex_lock(&c->lock);
    *out = c->last;
    out->connected = c->n_connected > 0;
    if (out->connected) { /* another loop's link knows better */
        out->absence[0] = '\0';
        out->asleep = false;
    }
    if (out->last_step_age_ms >= 0 && now_ms > c->received_ms)
        out->last_step_age_ms += now_ms - c->received_ms;
    pthread_mutex_unlock(&c->lock);
}
