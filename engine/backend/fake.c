#include "engine/backend/fake.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
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
    uint32_t n_choices, turn;          /* whose it is, if it has something to say */
    uint32_t said[ENGINE_CHOICES_MAX]; /* texts */
    bool finished[ENGINE_CHOICES_MAX];
    enum engine_finish finish; /* LENGTH where any choice ended so */
    size_t n_prompt_said;
    struct token_sample sample;
};

static void end_job(struct fake_job *j, enum status status, enum engine_finish finish)
{
    bool is_queue = status == ST_OVERLOADED || status == ST_TIMEOUT;
    struct engine_end end = {.status = status,
                             .finish = status == ST_OK ? finish : ENGINE_FINISH_NONE,
                             .usage = j->usage,
                             .retry_after_ms = is_queue ? j->link->script->retry_after_ms : 0};

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

static struct fake_choice choice_of(const struct fake_script *s, uint32_t choice)
{
    return choice < s->n_choices ? s->choices[choice]
                                 : (struct fake_choice){s->texts, s->n_texts, s->finish};
}

/* NULL: there is none. Kept until the next one. */
static const struct token_sample *cut_tops(struct fake_job *j, const struct token_sample *samples,
                                           size_t n, size_t i)
{
    if (samples == NULL || i >= n)
        return NULL;
    j->sample = samples[i];
    if (j->sample.n_tops > j->submit.sampling.top_logprobs)
        j->sample.n_tops = j->submit.sampling.top_logprobs;
    return &j->sample;
}

static void tell(struct fake_job *j, struct engine_delta *d)
{
    d->n_tokens = d->tokens != NULL ? 1 : 0;
    d->read_us = clock_mono_us();
    loop_timer_start(j->link->loop, &j->timer, 0);
    j->submit.on_delta(j->submit.arg, d, &j->usage);
}

static bool has_prompt_left(const struct fake_job *j)
{
    return j->submit.sampling.want_prompt_logprobs &&
           j->n_prompt_said < j->link->script->n_prompt_samples;
}

static void say_prompt(struct fake_job *j)
{
    const struct fake_script *s = j->link->script;
    struct engine_delta d = {.text = "", .is_prompt = true};

    d.tokens = cut_tops(j, s->prompt_samples, s->n_prompt_samples, j->n_prompt_said++);
    tell(j, &d);
}

/* After one more text. */
static enum engine_finish finish_after(const struct fake_job *j, const struct fake_choice *c,
                                       uint32_t said)
{
    const struct fake_script *s = j->link->script;

    if (said == j->submit.max_tokens)
        return ENGINE_FINISH_LENGTH;
    if (said < c->n_texts || s->stalls || s->end_status != ST_OK)
        return ENGINE_FINISH_NONE;
    return c->finish != ENGINE_FINISH_NONE ? c->finish : ENGINE_FINISH_STOP;
}

static void say(struct fake_job *j, uint32_t choice)
{
    const struct fake_script *s = j->link->script;
    const struct fake_choice c = choice_of(s, choice);
    struct engine_delta d = {.choice = choice, .text = ""};
    uint32_t at = j->said[choice];

    if (at < c.n_texts && at < j->submit.max_tokens) {
        d.text = c.texts[at];
        d.len = strlen(d.text);
        if (j->submit.sampling.want_logprobs)
            d.tokens = cut_tops(j, s->samples, s->n_samples, at);
        j->said[choice]++;
        j->usage.output_tokens++;
    }
    j->usage.prompt_tokens = j->submit.n_prompt;
    d.finish = finish_after(j, &c, j->said[choice]);
    j->finished[choice] = d.finish != ENGINE_FINISH_NONE;
    if (j->finished[choice] && j->finish != ENGINE_FINISH_LENGTH)
        j->finish = d.finish;
    tell(j, &d);
}

static bool all_finished(const struct fake_job *j)
{
    for (uint32_t i = 0; i < j->n_choices; i++)
        if (!j->finished[i])
            return false;
    return true;
}

enum fake_turn { TURN_SAY, TURN_STALL, TURN_END };

/* Whose turn it is: the next choice that is not finished and has a text or its finish to say. */
static enum fake_turn next_turn(struct fake_job *j, uint32_t *choice)
{
    const struct fake_script *s = j->link->script;
    enum fake_turn turn = TURN_END;

    for (uint32_t i = 0; i < j->n_choices; i++) {
        uint32_t c = (j->turn + i) % j->n_choices;
        bool is_spent = j->said[c] >= choice_of(s, c).n_texts && j->submit.max_tokens > 0;

        if (j->finished[c])
            continue;
        if (!is_spent || (!s->stalls && s->end_status == ST_OK)) {
            j->turn = c + 1;
            *choice = c;
            return TURN_SAY;
        }
        turn = s->stalls ? TURN_STALL : TURN_END;
    }
    return turn;
}

/* One event of the script; the next comes in the next turn of the loop. */
static void on_timer(void *arg)
{
    struct fake_job *j = arg;
    uint32_t choice;

    if (j->is_cancelled) {
        end_job(j, ST_CANCELLED, ENGINE_FINISH_NONE);
        return;
    }
    if (has_prompt_left(j)) {
        say_prompt(j);
        return;
    }
    switch (next_turn(j, &choice)) {
    case TURN_SAY:
        say(j, choice);
        break;
    case TURN_END:
        end_job(j, all_finished(j) ? ST_OK : j->link->script->end_status, j->finish);
        break;
    case TURN_STALL:
        break;
    }
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
    if (s->n_choices > ENGINE_CHOICES_MAX)
        return ST_INVALID;
    j = calloc(1, sizeof *j);
    if (j == NULL)
        return ST_NO_MEMORY;
    j->super.ops = &fake_backend_ops;
    j->link = l;
    j->submit = *s;
    j->n_choices = s->n_choices != 0 ? s->n_choices : 1;
    j->timer = (struct loop_timer){.on_timer = on_timer, .arg = j};
    j->next = l->jobs;
    if (l->jobs != NULL)
        l->jobs->prev = j;
    l->jobs = j;
    l->script->n_submitted++;
    if (l->script->on_submit != NULL)
        l->script->on_submit(l->script->arg, s);
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

static void claim(struct backend_link *super, struct engine_claim *c)
{
    const struct fake_script *s = CONTAINER_OF(super, struct fake_link, super)->script;
    size_t n = c->n;

    c->n_left = n;
    if (s->ignores_claims)
        return;
    for (size_t i = 0; i < n; i++) {
        c->requests[i].is_settled = true;
        c->n_left--;
        c->on_settled(c->arg, i, i < s->n_settled ? &s->settled[i] : NULL);
    }
}

static void unclaim(struct backend_link *super, struct engine_claim *c)
{
    (void)c;
    CONTAINER_OF(super, struct fake_link, super)->script->n_unclaimed++;
}

static void release(struct backend_link *super, const struct id *request)
{
    (void)request;
    CONTAINER_OF(super, struct fake_link, super)->script->n_released++;
}

const struct backend_ops fake_backend_ops = {.name = "fake",
                                             .link_open = link_open,
                                             .link_close = link_close,
                                             .is_ready = is_ready,
                                             .submit = submit,
                                             .cancel = cancel,
                                             .claim = claim,
                                             .unclaim = unclaim,
                                             .release = release};
