#include "engine/core/stepper.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"

enum status stepper_init(struct stepper *t, struct scheduler *scheduler, struct device *device,
                         uint32_t max_rows)
{
    *t = (struct stepper){.scheduler = scheduler, .device = device};
    t->output.results = calloc(max_rows, sizeof t->output.results[0]);
    t->output.tops = calloc((size_t)max_rows * TOP_LOGPROBS_MAX, sizeof t->output.tops[0]);
    if (t->output.results != NULL && t->output.tops != NULL)
        return ST_OK;
    stepper_dispose(t);
    return ST_NO_MEMORY;
}

void stepper_dispose(struct stepper *t)
{
    free(t->output.results);
    free(t->output.tops);
    t->output = (struct step_output){0};
}

static int64_t now_us(void)
{
    return clock_mono_ns() / 1000;
}

static enum status set_slots(struct stepper *t, struct scheduled_step *step)
{
    for (uint32_t i = 0; i < step->n_entries; i++) {
        struct sequence *q = step->entries[i].sequence;
        enum status s;

        if (!q->slot_is_new)
            continue;
        s = t->device->ops->slot_set(t->device, q->slot, &q->sampling, q->tokens, q->n_prompt,
                                     q->n_tokens);
        if (s != ST_OK)
            return s;
        q->slot_is_new = false;
    }
    return ST_OK;
}

static void fail_step(struct stepper *t, struct scheduled_step *step, enum status status)
{
    log_error(NULL, "engine.step", "device=%s status=%s sequences=%u",
              t->device->ops->describe(t->device), status_name(status), step->n_entries);
    scheduler_fail(t->scheduler, step, now_us());
}

static void submit_all(struct stepper *t)
{
    struct scheduled_step *step;
    uint64_t ticket;

    while ((step = scheduler_build(t->scheduler, now_us())) != NULL) {
        enum status status = set_slots(t, step);

        if (status == ST_OK)
            status = t->device->ops->submit(t->device, &step->step, &ticket);
        if (status == ST_OK)
            scheduler_submitted(t->scheduler, step, ticket);
        else
            fail_step(t, step, status);
    }
}

bool stepper_turn(struct stepper *t)
{
    struct scheduled_step *step;
    enum status status;

    submit_all(t);
    step = scheduler_oldest(t->scheduler);
    if (step == NULL)
        return false;
    status = t->device->ops->complete(t->device, step->ticket, &t->output);
    if (status == ST_OK)
        scheduler_apply(t->scheduler, step, &t->output, now_us());
    else
        fail_step(t, step, status);
    return true;
}
