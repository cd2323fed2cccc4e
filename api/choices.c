#include "api/choices.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/size.h"
#include "base/utf8.h"

/* Of one token in completions' four lists: "", and 0, and {}, and 0, at the least. */
#define PROMPT_LOGPROB_BYTES_MIN 10

/* Characters that begin in the bytes: those of UTF-8 that are no continuation. */
static int64_t count_chars(const char *s, size_t len)
{
    int64_t n = 0;

    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)s[i] & 0xC0) != 0x80;
    return n;
}

/* ---- echo ---- */

/* The text of a prompt that came as ids; bytes that are no UTF-8 become U+FFFD. */
static void spell_prompt(struct choices *c, const struct choices_config *cfg)
{
    struct buf raw;

    buf_init(&raw);
    for (uint32_t i = 0; i < cfg->n_prompt; i++) {
        token_source_read(&cfg->source, cfg->prompt[i], &c->scratch);
        buf_append(&raw, c->scratch.data, c->scratch.len);
    }
    for (size_t at = 0; at < raw.len;) {
        int n = utf8_decode(raw.data + at, raw.len - at, NULL);

        if (n > 0)
            buf_append(&c->echo, raw.data + at, (size_t)n);
        else
            buf_puts(&c->echo, "\xEF\xBF\xBD");
        at += n > 0 ? (size_t)n : 1;
    }
    c->echo.failed = c->echo.failed || raw.failed;
    buf_dispose(&raw);
}

/* Where the prompt's next token stands in its text. A token that the text does not have there (a
 * BOS, a space that the tokenizer put before the first word) takes no room in it. */
static int64_t place_in_echo(struct choices *c, int32_t id)
{
    const int64_t offset = c->echo_chars;
    const char *bytes;
    size_t len;

    token_source_read(&c->config.source, id, &c->scratch);
    bytes = c->scratch.data;
    len = c->scratch.len;
    if (len > 0 && bytes[0] == ' ' && c->echo_at < c->echo.len && c->echo.data[c->echo_at] != ' ') {
        bytes++;
        len--;
    }
    if (len > 0 && len <= c->echo.len - c->echo_at &&
        memcmp(c->echo.data + c->echo_at, bytes, len) == 0) {
        c->echo_at += len;
        c->echo_chars += count_chars(bytes, len);
    }
    return offset;
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
    int64_t n_chars;

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
    n_chars = count_chars(c->echo.data, c->echo.len);
    for (uint32_t i = 0; i < cfg->n; i++)
        c->list[i].n_chars = n_chars;
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

static void add_tokens(struct choices *c, struct choice *one, const struct engine_delta *d)
{
    for (uint32_t i = 0; i < d->n_tokens; i++) {
        shape_logprobs_add(&one->logprobs, &c->config.source, &d->tokens[i], one->n_chars,
                           &c->scratch);
        token_source_read(&c->config.source, d->tokens[i].id, &c->scratch);
        one->n_chars += count_chars(c->scratch.data, c->scratch.len);
    }
}

static enum status add_output(struct choices *c, const struct engine_delta *d)
{
    struct choice *one = &c->list[d->choice];
    size_t before = choice_bytes(one), more;

    buf_append(&one->text, d->text, d->len);
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
