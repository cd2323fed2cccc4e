/* What connections ask of the engine process: each frame by its type, and by who may send it. */
#include "engine/core/process_state.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/core/claims.h"

static void refuse_talk(struct conn *c, enum status status, const char *text)
{
    struct wire_refused out = {.status = (uint16_t)status};

    snprintf(out.text, sizeof out.text, "%s", text);
    wire_put_refused(&c->out, &out);
    conn_flush(c);
    c->broken = true;
}

static void put_welcome(struct engine_process *p, struct conn *c, uint16_t version)
{
    struct wire_welcome w = {.version = version,
                             .max_sequences = p->cfg.max_sequences,
                             .max_rows = p->cfg.max_sequences + p->cfg.prefill_rows,
                             .max_context = p->context_tokens,
                             .n_pages = p->n_pages,
                             .n_vocab = p->model->shape.n_vocab,
                             .credit_bytes = p->cfg.credit_bytes,
                             .pid = (uint32_t)getpid()};

    snprintf(w.build, sizeof w.build, "%s", p->cfg.build);
    snprintf(w.revision, sizeof w.revision, "%s", p->model->revision);
    snprintf(w.device, sizeof w.device, "%s", p->device->ops->describe(p->device));
    wire_put_welcome(&c->out, &w);
    p->stats_due_ms = 0; /* the newcomer learns the state at once */
    p->attendance.is_leaving = false;
    c->greeted = true;
    c->version = version;
    engine_process_tell_handover(p, c);
}

static enum status on_hello(struct engine_process *p, struct conn *c, const struct wire_frame *f)
{
    struct wire_hello hello;
    uint16_t version;

    if (c->greeted || wire_get_hello(f, &hello) != ST_OK)
        return ST_CORRUPT;
    version = hello.version_max < WIRE_VERSION_MAX ? hello.version_max : WIRE_VERSION_MAX;
    if (version < hello.version_min || version < WIRE_VERSION_MIN) {
        log_warn(NULL, "engine.refuse", "gateway=\"%s\" versions=%u-%u", hello.build,
                 hello.version_min, hello.version_max);
        refuse_talk(c, ST_UNSUPPORTED, "no common version of the protocol");
        return ST_OK;
    }
    put_welcome(p, c, version);
    return ST_OK;
}

static enum status on_credit(struct conn *c, const struct wire_frame *f)
{
    uint64_t bytes;

    if (wire_get_credit(f, &bytes) != ST_OK)
        return ST_CORRUPT;
    conn_acknowledge(c, bytes);
    jobs_hold(c);
    return ST_OK;
}

/* Before it asked for anything. */
static enum status on_monitor(struct conn *c, const struct wire_frame *f)
{
    if (c->version < WIRE_VERSION_ADOPT || c->is_monitor || c->jobs != NULL)
        return ST_CORRUPT;
    c->is_monitor = true;
    return wire_get_bare(f);
}

static enum status on_claim(struct engine_process *p, struct conn *c, const struct wire_frame *f)
{
    const struct conn_list all = engine_process_conns(p);

    if (c->version < WIRE_VERSION_ADOPT)
        return ST_CORRUPT;
    if (f->type == WIRE_CLAIM)
        return claims_take(&p->jobs, &all, c, f);
    return claims_release(&p->jobs, f);
}

static uint32_t n_gateways(const struct engine_process *p)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < p->n_conns; i++)
        n += p->conns[i]->greeted && !p->conns[i]->is_monitor && !p->conns[i]->broken;
    return n;
}

/* Its numbers are a moment old: with a job meanwhile nobody is sent away. And without any gateway
 * the ends of its last requests may be here alone. One of an older version stays, and so does this
 * process. */
static enum status on_sleep(struct engine_process *p, const struct wire_frame *f)
{
    if (wire_get_bare(f) != ST_OK)
        return ST_CORRUPT;
    if (p->jobs.n > 0 || n_gateways(p) == 0)
        return ST_OK;
    p->attendance.is_leaving = true;
    for (uint32_t i = 0; i < p->n_conns; i++) {
        struct conn *c = p->conns[i];

        if (c->greeted && !c->is_monitor && c->version >= WIRE_VERSION_HANDOVER)
            wire_put_bare(&c->out, WIRE_SLEEP);
    }
    return ST_OK;
}

static enum status on_submit(struct engine_process *p, struct conn *c, const struct wire_frame *f)
{
    p->attendance.is_leaving = false;
    return jobs_submit(&p->jobs, c, f, clock_mono_us());
}

static enum status on_handover(struct engine_process *p, const struct wire_frame *f)
{
    if (wire_get_bare(f) != ST_OK)
        return ST_CORRUPT;
    engine_process_hand_over(p);
    return ST_OK;
}

/* Who may say so also starts and stops this process: the socket is its user's alone. */
static enum status on_monitors_frame(struct engine_process *p, const struct conn *c,
                                     const struct wire_frame *f)
{
    if (c->version < WIRE_VERSION_HANDOVER)
        return ST_CORRUPT;
    switch (f->type) {
    case WIRE_HANDOVER:
        return on_handover(p, f);
    case WIRE_SLEEP:
        return on_sleep(p, f);
    default:
        return ST_CORRUPT;
    }
}

static enum status on_frame(struct engine_process *p, struct conn *c, const struct wire_frame *f)
{
    if (f->type == WIRE_HELLO)
        return on_hello(p, c, f);
    if (!c->greeted)
        return ST_CORRUPT;
    if (c->is_monitor)
        return on_monitors_frame(p, c, f);
    switch (f->type) {
    case WIRE_MONITOR:
        return on_monitor(c, f);
    case WIRE_SUBMIT:
        return on_submit(p, c, f);
    case WIRE_CANCEL:
        return jobs_cancel(&p->jobs, c, f, clock_mono_us());
    case WIRE_CREDIT:
        return on_credit(c, f);
    case WIRE_CLAIM:
    case WIRE_RELEASE:
        return on_claim(p, c, f);
    default:
        return ST_CORRUPT;
    }
}

void engine_process_read(struct engine_process *p, struct conn *c)
{
    struct wire_frame f;
    size_t at = 0;

    conn_read(c);
    while (conn_next_frame(c, &at, &f)) {
        enum status s = on_frame(p, c, &f);

        if (s == ST_OK)
            continue;
        log_warn(NULL, "engine.conn", "frame type=%u bytes=%zu: %s", f.type, f.len, status_name(s));
        c->broken = true;
    }
    conn_consume(c, at);
}
