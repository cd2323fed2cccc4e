#include "engine/core/stepper.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"

static int64_t clock_us(void *arg)
{
    (void)arg;
    return clock_mono_ns() / 1000;
}

enum status stepper_init(struct stepper *t, struct scheduler *scheduler, struct device *device,
                         const struct stepper_limits *limits)
{
    size_t n_bits;

    *t = (struct stepper){.scheduler = scheduler,
                          .device = device,
                          .now_us = clock_us,
                          .n_words = (limits->n_vocab + 31) / 32};
    if (!size_mul(limits->max_sequences, t->n_words, &n_bits))
        return ST_NO_MEMORY;
    t->output.results = calloc(limits->max_rows, sizeof t->output.results[0]);
    t->output.tops = calloc((size_t)limits->max_rows * TOP_LOGPROBS_MAX, sizeof t->output.tops[0]);
    t->masks = calloc(limits->max_sequences, sizeof t->masks[0]);
    t->bits = calloc(n_bits, sizeof t->bits[0]);
    if (t->output.results != NULL && t->output.tops != NULL && t->masks != NULL && t->bits != NULL)
        return ST_OK;
    stepper_dispose(t);
    return ST_NO_MEMORY;
}

void stepper_dispose(struct stepper *t)
{
    free(t->output.results);
    free(t->output.tops);
    free(t->masks);
    free(t->bits);
    *t = (struct stepper){0};
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
    scheduler_fail(t->scheduler, step, t->now_us(t->clock_arg));
}

static void submit_all(struct stepper *t)
{
    struct scheduled_step *step;
    uint64_t ticket;

    while ((step = scheduler_build(t->scheduler, t->now_us(t->clock_arg))) != NULL) {
        enum status status = set_slots(t, step);

        if (status == ST_OK)
            status = t->device->ops->submit(t->device, &step->step, &ticket);
        if (status == ST_OK)
            scheduler_submitted(t->scheduler, step, ticket);
        else
            fail_step(t, step, status);
    }
}

/* The steps before it were applied: what its masks depend on is known. */
static void constrain(struct stepper *t, struct scheduled_step *step)
{
    uint32_t n;

    if (step->is_constrained)
        return;
    step->is_constrained = true;
    n = scheduler_masks(t->scheduler, step, t->n_words, t->masks, t->bits);
    if (n > 0)
        step->constrained = t->device->ops->constrain(t->device, step->ticket, t->masks, n);
}

/* A step whose masks were refused is still in the device and has to be completed. */
static void complete(struct stepper *t, struct scheduled_step *step)
{
    enum status status = t->device->ops->complete(t->device, step->ticket, &t->output);

    if (status == ST_OK)
        status = step->constrained;
    if (status == ST_OK)
        scheduler_apply(t->scheduler, step, &t->output, t->now_us(t->clock_arg));
    else
        fail_step(t, step, status);
}

bool stepper_turn(struct stepper *t)
{
    struct scheduled_step *step;

    submit_all(t);
    step = scheduler_oldest(t->scheduler);
    if (step == NULL)
        return false;
    constrain(t, step);
    complete(t, step);
    /* The device may have come to the end of the next one already, and wait for its masks. */
    step = scheduler_oldest(t->scheduler);
    if (step != NULL)
        constrain(t, step);
    return true;
}
