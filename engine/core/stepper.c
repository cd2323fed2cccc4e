#include "engine/core/stepper.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/size.h"

static int64_t clock_us(void *arg)
{
    (void)arg;
    return clock_mono_us();
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

static enum status set_slot(struct stepper *t, struct sequence *q)
{
    enum status s = ST_OK;

    if (q->slot_is_new)
        s = t->device->ops->slot_set(t->device, q->slot, &q->sampling, q->tokens, q->n_prompt,
                                     q->n_tokens);
    q->slot_is_new = false;
    return s;
}

/* A slot that is refused fails its sequence alone. False: no other is left in the step. */
static bool set_slots(struct stepper *t, struct scheduled_step *step)
{
    uint32_t i = 0;

    while (i < step->n_entries) {
        enum status s = set_slot(t, step->entries[i].sequence);

        if (s == ST_OK) {
            i++;
            continue;
        }
        log_error(NULL, "engine.slot", "device=%s status=%s", t->device->ops->describe(t->device),
                  status_name(s));
        if (!scheduler_fail_entry(t->scheduler, step, i, t->now_us(t->clock_arg)))
            return false;
    }
    return true;
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
        enum status status;

        if (!set_slots(t, step))
            continue;
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
