/* What the engine says on a link: greeting, tokens, ends, state. */
#include <string.h>

#include "base/log.h"
#include "base/utf8.h"
#include "engine/backend/process_state.h"
#include "engine/wire/wire.h"

/* It can't come: who waits for it learns that. */
static void give_up(struct process_link *l)
{
    l->is_asleep = false;
    process_hold_end(l, ST_UNAVAILABLE);
}

static void refuse_model(struct process_link *l, const struct wire_welcome *w)
{
    const struct backend_target *t = l->target;

    if (stats_cell_refuse(t->stats, "it has another model than the gateway, or less context") &&
        !l->is_handed_over)
        log_error(NULL, "engine.link",
                  "socket=%s: the engine has revision=%.12s context=%u, we have revision=%.12s "
                  "context=%u",
                  t->socket_path, w->revision, w->max_context, t->revision, t->context_tokens);
    l->backoff_ms = BACKOFF_REFUSED_MS;
    give_up(l);
    backend_tell(&l->super, BACKEND_MISMATCH);
}

static enum status on_welcome(struct process_link *l, const struct wire_frame *f)
{
    const struct backend_target *t = l->target;
    struct wire_welcome w;

    if (l->state != LINK_GREETING || wire_get_welcome(f, &w) != ST_OK ||
        w.version < WIRE_VERSION_MIN || w.version > WIRE_VERSION_MAX)
        return ST_CORRUPT;
    if (strcmp(w.revision, t->revision) != 0 || w.max_context < t->context_tokens) {
        refuse_model(l, &w);
        return ST_CONFLICT;
    }
    l->state = LINK_READY;
    l->is_asleep = false;
    l->is_handed_over = false;
    l->backoff_ms = BACKOFF_MIN_MS;
    l->version = w.version;
    l->credit_bytes = w.credit_bytes;
    stats_cell_connect(t->stats, w.pid, w.device, w.build);
    log_info(NULL, "engine.link", "connected pid=%u device=\"%s\" build=\"%s\"", w.pid, w.device,
             w.build);
    process_claim_send(l);
    process_hold_send(l);
    backend_tell(&l->super, BACKEND_GREETED);
    return ST_OK;
}

/* With a job it is woken at once; else somebody else's may wake it. */
static enum status fall_asleep(struct process_link *l)
{
    l->is_asleep = true;
    l->wants_wake = l->held.n > 0 && l->state != LINK_WAKING;
    l->backoff_ms = l->held.n > 0 ? BACKOFF_MIN_MS : BACKOFF_REFUSED_MS;
    return ST_ASLEEP;
}

/* It isn't needed now, and leaves when nobody is left. A job of ours, whose frame may still be on
 * its way, keeps it. */
static enum status on_sleep(struct process_link *l, const struct wire_frame *f)
{
    if (l->version < WIRE_VERSION_HANDOVER || wire_get_bare(f) != ST_OK)
        return ST_CORRUPT;
    if (l->jobs.n_jobs > 0 || l->claim != NULL || l->target->load_wait_ms == 0)
        return ST_OK;
    if (stats_cell_sleep(l->target->stats, "it was idle, and leaves"))
        log_info(NULL, "engine.link", "socket=%s sleeps", l->target->socket_path);
    return fall_asleep(l);
}

static enum status on_refused(struct process_link *l, const struct wire_frame *f)
{
    struct wire_refused r;

    if (wire_get_refused(f, &r) != ST_OK)
        return ST_CORRUPT;
    if (r.status == ST_ASLEEP && l->target->load_wait_ms != 0) {
        if (stats_cell_sleep(l->target->stats, r.text))
            log_info(NULL, "engine.link", "socket=%s sleeps: %s", l->target->socket_path, r.text);
        return fall_asleep(l);
    }
    give_up(l);
    if (stats_cell_refuse(l->target->stats, r.text))
        log_error(NULL, "engine.link", "socket=%s refused: %s (%s)", l->target->socket_path, r.text,
                  status_name((enum status)r.status));
    /* It is a supervisor that answers while there is no engine: the next one is found at once. */
    if (r.status == ST_UNAVAILABLE)
        return ST_UNAVAILABLE;
    l->backoff_ms = BACKOFF_REFUSED_MS;
    return ST_CONFLICT;
}

static bool is_finished(const struct process_job *j, uint32_t choice)
{
    return (j->finished[choice / 64] >> choice % 64 & 1) != 0;
}

/* Counts never fall, and nothing comes that was not asked for or is over. */
static bool is_entry_right(const struct process_job *j, const struct wire_step_entry *e)
{
    bool wants_tokens = e->is_prompt ? j->want_prompt_logprobs : j->want_logprobs;

    return e->prompt_tokens >= j->usage.prompt_tokens &&
           e->cached_tokens >= j->usage.cached_tokens &&
           e->output_tokens >= j->usage.output_tokens && e->choice < j->n_choices &&
           !is_finished(j, e->choice) && (wants_tokens || e->n_tokens == 0) &&
           utf8_is_valid(e->text, e->text_len);
}

static enum status on_entry(struct process_link *l, const struct wire_step_entry *e)
{
    struct process_job *j = job_table_find(&l->jobs, e->job);
    const struct engine_delta d = {.choice = e->choice,
                                   .read_us = l->read_us,
                                   .text = e->text,
                                   .len = e->text_len,
                                   .finish = (enum engine_finish)e->finish,
                                   .tokens = e->tokens,
                                   .n_tokens = e->n_tokens,
                                   .is_prompt = e->is_prompt};

    if (j == NULL || !is_entry_right(j, e))
        return ST_CORRUPT;
    if (e->finish != ENGINE_FINISH_NONE) {
        j->finished[e->choice / 64] |= (uint64_t)1 << e->choice % 64;
        j->n_finished++;
    }
    j->usage = (struct engine_usage){.prompt_tokens = e->prompt_tokens,
                                     .cached_tokens = e->cached_tokens,
                                     .output_tokens = e->output_tokens};
    if (!j->is_cancelled)
        j->on_delta(j->arg, &d, &j->usage);
    return ST_OK;
}

static enum status on_step(struct process_link *l, const struct wire_frame *f)
{
    struct wire_step_entry e;
    struct wire_step step;
    enum status s = wire_get_step(f, &l->samples, &step);

    while (s == ST_OK && wire_step_next(&step, &e))
        s = on_entry(l, &e);
    return s;
}

static enum status on_final(struct process_link *l, const struct wire_frame *f)
{
    struct engine_end end;
    struct process_job *j;
    struct wire_final v;

    if (wire_get_final(f, &v) != ST_OK || (j = job_table_find(&l->jobs, v.job)) == NULL)
        return ST_CORRUPT;
    if (v.status == ST_OK && j->n_finished != j->n_choices)
        return ST_CORRUPT;
    end = (struct engine_end){.status = (enum status)v.status,
                              .finish = (enum engine_finish)v.finish,
                              .usage = {.prompt_tokens = v.prompt_tokens,
                                        .cached_tokens = v.cached_tokens,
                                        .output_tokens = v.output_tokens},
                              .queue_us = v.queue_us,
                              .prefill_us = v.prefill_us,
                              .decode_us = v.decode_us,
                              .retry_after_ms = v.retry_after_ms};
    process_job_end(j, &end);
    return ST_OK;
}

static enum status on_stats(struct process_link *l, const struct wire_frame *f)
{
    struct engine_stats s = {0};
    struct wire_stats v;

    if (wire_get_stats(f, &v) != ST_OK)
        return ST_CORRUPT;
    s.running = v.running;
    s.waiting = v.waiting;
    s.pages_used = v.pages_used;
    s.pages_total = v.pages_total;
    s.rows_max = v.rows_max;
    s.steps = v.steps;
    s.prompt_tokens = v.prompt_tokens;
    s.output_tokens = v.output_tokens;
    s.preemptions = v.preemptions;
    s.prefix_query_tokens = v.prefix_query_tokens;
    s.prefix_hit_tokens = v.prefix_hit_tokens;
    s.not_finite = v.not_finite;
    s.last_step_age_ms = v.last_step_age_ms;
    stats_cell_update(l->target->stats, &s, loop_now_ms(l->loop));
    return ST_OK;
}

static enum status on_handover(struct process_link *l, const struct wire_frame *f)
{
    if (l->version < WIRE_VERSION_HANDOVER || wire_get_bare(f) != ST_OK)
        return ST_CORRUPT;
    log_info(NULL, "engine.link", "socket=%s jobs=%u: another engine takes over",
             l->target->socket_path, l->jobs.n_jobs);
    l->is_handed_over = true;
    backend_tell(&l->super, BACKEND_HANDOVER);
    return ST_OK;
}

static enum status on_frame(struct process_link *l, const struct wire_frame *f, size_t bytes)
{
    if (l->state != LINK_READY) {
        if (f->type == WIRE_REFUSED)
            return on_refused(l, f);
        return f->type == WIRE_WELCOME ? on_welcome(l, f) : ST_CORRUPT;
    }
    switch (f->type) {
    case WIRE_STEP:
        l->consumed_bytes += bytes;
        return on_step(l, f);
    case WIRE_FINAL:
        l->consumed_bytes += bytes;
        return on_final(l, f);
    case WIRE_STATS:
        return on_stats(l, f);
    case WIRE_SLEEP:
        return on_sleep(l, f);
    case WIRE_SETTLED:
        return process_claim_settled(l, f);
    case WIRE_HANDOVER:
        return on_handover(l, f);
    default:
        return ST_CORRUPT;
    }
}

enum status process_frames_handle(struct process_link *l)
{
    struct wire_frame f;
    size_t at = 0, used;
    enum status s = ST_OK;

    while (s == ST_OK && at < l->in.len) {
        enum wire_scan scan = wire_scan(l->in.data + at, l->in.len - at, &f, &used);

        if (scan == WIRE_SCAN_MORE)
            break;
        s = scan == WIRE_SCAN_CORRUPT ? ST_CORRUPT : on_frame(l, &f, used);
        at += used;
    }
    if (s == ST_OK)
        buf_consume(&l->in, at);
    return s;
}
