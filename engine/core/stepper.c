#include "engine/core/stepper.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"

enum status stepper_init(struct stepper *t, struct scheduler *scheduler, struct device *device,
                         uint32_t max_sequences)
{
    *t = (struct stepper){.scheduler = scheduler, .device = device};
    t->results = calloc(max_sequences, sizeof t->results[0]);
    return t->results != NULL ? ST_OK : ST_NO_MEMORY;
}

void stepper_dispose(struct stepper *t)
{
    free(t->results);
    t->results = NULL;
}

static int64_t now_us(void)
{
    return clock_mono_ns() / 1000;
}

static void set_slots(struct stepper *t, struct scheduled_step *step)
{
    for (uint32_t i = 0; i < step->n_entries; i++) {
        struct sequence *q = step->entries[i].sequence;

        if (!q->slot_is_new)
            continue;
        t->device->ops->slot_set(t->device, q->slot, &q->sampling);
        q->slot_is_new = false;
    }
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
        enum status status;

        set_slots(t, step);
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
    uint32_t n = 0;

    submit_all(t);
    step = scheduler_oldest(t->scheduler);
    if (step == NULL)
        return false;
    status = t->device->ops->complete(t->device, step->ticket, t->results, &n);
    if (status == ST_OK)
        scheduler_apply(t->scheduler, step, t->results, n, now_us());
    else
        fail_step(t, step, status);
    return true;
}
