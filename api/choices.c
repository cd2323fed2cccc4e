#include "api/choices.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/size.h"

struct text_part {
    const char *bytes;
    size_t len;
};

/* Of one token in completions' four lists: "", and 0, and {}, and 0, at the least. */
#define PROMPT_LOGPROB_BYTES_MIN 10

/* ---- echo ---- */

/* The text of a prompt that came as ids. */
static void spell_prompt(struct choices *c, const struct choices_config *cfg)
{
    struct speller s = {0};

    for (uint32_t i = 0; i < cfg->n_prompt; i++) {
        token_source_read(&cfg->source, cfg->prompt[i], &c->scratch);
        speller_add(&s, c->scratch.data, c->scratch.len, &c->echo);
    }
    speller_end(&s, &c->echo);
    c->echo.failed = c->echo.failed || c->scratch.failed;
}

/* Of the token in `scratch`, the bytes that stand in the prompt's text next: a text that came as
 * such lacks what encoding added (a BOS, a space before the first word). */
static struct text_part find_in_echo(const struct choices *c)
{
    const char *at = c->echo.data + c->echo_at;
    const size_t left = c->echo.len - c->echo_at;
    struct text_part p = {c->scratch.data, c->scratch.len};

    if (c->is_spelled)
        return p;
    if (p.len > 0 && left > 0 && p.bytes[0] == ' ' && at[0] != ' ') {
        p.bytes++;
        p.len--;
    }
    if (p.len > left || (p.len > 0 && memcmp(at, p.bytes, p.len) != 0))
        p.len = 0;
    return p;
}

/* Where the prompt's next token stands in its text. */
static int64_t place_in_echo(struct choices *c, int32_t id)
{
    struct text_part p;

    token_source_read(&c->config.source, id, &c->scratch);
    p = find_in_echo(c);
    c->echo_at += p.len;
    return speller_add(&c->echo_speller, p.bytes, p.len, NULL);
}

/* What every choice is sure to hold is known before anything runs. */
static enum status count_echo(struct choices *c, const struct choices_config *cfg)
{
    size_t text = json_chars_len(c->echo.data, c->echo.len), logprobs = 0, all;

    if (cfg->want_logprobs)
        logprobs = (size_t)cfg->n_prompt * PROMPT_LOGPROB_BYTES_MIN;
    if (!size_mul(text + logprobs, cfg->n, &all) || all > ANSWER_BYTES_MAX)
        return ST_TOO_LARGE;
    c->bytes = text * cfg->n;
    c->held = c->echo.len;
    return ST_OK;
}

static enum status init_echo(struct choices *c, const struct choices_config *cfg)
{
    enum status s;

    c->is_spelled = cfg->text == NULL;
    if (cfg->text != NULL)
        buf_append(&c->echo, cfg->text, cfg->text_len);
    else
        spell_prompt(c, cfg);
    if (c->echo.failed)
        return ST_NO_MEMORY;
    s = count_echo(c, cfg);
    if (s != ST_OK || !cfg->want_logprobs)
        return s;
    shape_logprobs_add_first(&c->prompt, &cfg->source, cfg->prompt[0],
                             place_in_echo(c, cfg->prompt[0]), &c->scratch);
    return shape_logprobs_failed(&c->prompt) ? ST_NO_MEMORY : ST_OK;
}

/* ---- life ---- */

enum status choices_init(struct choices *c, const struct choices_config *cfg)
{
    struct speller whole = {0};

    *c = (struct choices){.config = *cfg};
    buf_init(&c->echo);
    buf_init(&c->scratch);
    shape_logprobs_init(&c->prompt, cfg->endpoint);
    c->config.prompt = NULL;
    c->config.text = NULL;
    c->list = calloc(cfg->n, sizeof *c->list);
    if (c->list == NULL)
        return ST_NO_MEMORY;
    for (uint32_t i = 0; i < cfg->n; i++) {
        buf_init(&c->list[i].text);
        shape_logprobs_init(&c->list[i].logprobs, cfg->endpoint);
    }
    if (cfg->prompt != NULL) {
        enum status s = init_echo(c, cfg);

        if (s != ST_OK)
            return s;
    }
    speller_add(&whole, c->echo.data, c->echo.len, NULL);
    for (uint32_t i = 0; i < cfg->n; i++)
        c->list[i].speller = whole;
    return ST_OK;
}

void choices_drop(struct choices *c)
{
    for (uint32_t i = 0; c->list != NULL && i < c->config.n; i++) {
        buf_dispose(&c->list[i].text);
        shape_logprobs_dispose(&c->list[i].logprobs);
    }
    buf_dispose(&c->echo);
    buf_dispose(&c->scratch);
    shape_logprobs_dispose(&c->prompt);
    c->held = 0;
}

void choices_dispose(struct choices *c)
{
    choices_drop(c);
    free(c->list);
    *c = (struct choices){0};
}

/* ---- what comes from the engine ---- */

static size_t choice_bytes(const struct choice *one)
{
    return one->text.len + shape_logprobs_bytes(&one->logprobs);
}

/* The prompt's log-probabilities stand in each choice. */
static enum status add_prompt(struct choices *c, const struct engine_delta *d)
{
    size_t before = shape_logprobs_bytes(&c->prompt), more;

    for (uint32_t i = 0; i < d->n_tokens; i++)
        shape_logprobs_add(&c->prompt, &c->config.source, &d->tokens[i],
                           place_in_echo(c, d->tokens[i].id), &c->scratch);
    more = shape_logprobs_bytes(&c->prompt) - before;
    c->held += more;
    c->bytes += more * c->config.n;
    return shape_logprobs_failed(&c->prompt) ? ST_NO_MEMORY : ST_OK;
}

/* Where a choice's next token stands in its text, which may lack the space that encoding would have
 * put before its first word. */
static int64_t place_token(struct choices *c, struct choice *one, int32_t id)
{
    struct text_part p;

    token_source_read(&c->config.source, id, &c->scratch);
    p = (struct text_part){c->scratch.data, c->scratch.len};
    if (!one->has_tokens && p.len > 0 && p.bytes[0] == ' ' && one->first != ' ') {
        p.bytes++;
        p.len--;
    }
    one->has_tokens = true;
    return speller_add(&one->speller, p.bytes, p.len, NULL);
}

static void add_tokens(struct choices *c, struct choice *one, const struct engine_delta *d)
{
    for (uint32_t i = 0; i < d->n_tokens; i++)
        shape_logprobs_add(&one->logprobs, &c->config.source, &d->tokens[i],
                           place_token(c, one, d->tokens[i].id), &c->scratch);
}

static enum status add_output(struct choices *c, const struct engine_delta *d)
{
    struct choice *one = &c->list[d->choice];
    size_t before = choice_bytes(one), more;

    buf_append(&one->text, d->text, d->len);
    if (one->first == '\0' && d->len > 0)
        one->first = d->text[0];
    if (c->config.want_logprobs)
        add_tokens(c, one, d);
    more = choice_bytes(one) - before;
    c->held += more;
    if (!c->config.is_streamed)
        c->bytes += more;
    if (d->finish != ENGINE_FINISH_NONE && one->finish == ENGINE_FINISH_NONE) {
        one->finish = d->finish;
        c->n_ended++;
    }
    return one->text.failed || shape_logprobs_failed(&one->logprobs) ? ST_NO_MEMORY : ST_OK;
}

enum status choices_add(struct choices *c, const struct engine_delta *d)
{
    enum status s = d->is_prompt ? add_prompt(c, d) : add_output(c, d);

    if (s == ST_OK && c->bytes > ANSWER_BYTES_MAX)
        s = ST_TOO_LARGE;
    return s;
}

void choices_clear(struct choices *c, struct choice *one)
{
    c->held -= choice_bytes(one);
    buf_clear(&one->text);
    shape_logprobs_clear(&one->logprobs);
}

const struct shape_logprobs *choice_logprobs(const struct choices *c, const struct choice *one)
{
    return c->config.want_logprobs ? &one->logprobs : NULL;
}

const struct shape_logprobs *choices_prompt_logprobs(const struct choices *c)
{
    return c->config.want_logprobs && c->prompt.lists[0].len > 0 ? &c->prompt : NULL;
}
