/* STEP: what one step gave the choices of a connection's jobs.
 *
 *   step u64, n_entries u32, then each entry:
 *     job u64, choice u8, finish u8, is_prompt u8,
 *     prompt_tokens u32, cached_tokens u32, output_tokens u32,
 *     text_len u32, text, n_tokens u16, then each token:
 *       id u32, logprob f32, n_tops u8, then each top: id u32, logprob f32 */
#include "engine/wire/wire.h"

#include <assert.h>
#include <math.h>

#include "base/size.h"
#include "engine/wire/wire_parts.h"

#define STEP_COUNT_AT (WIRE_HEADER_BYTES + 8) /* after the header and the step's number */
#define ENTRY_BYTES   (8 + 3 + 3 * 4 + 4 + 2) /* without text and tokens */

/* ---- writing ---- */

void wire_step_begin(struct buf *b, uint64_t step)
{
    assert(b->len == 0);
    wire_begin(b, WIRE_STEP);
    buf_put_u64(b, step);
    buf_put_u32(b, 0);
}

static void put_logprob(struct buf *b, int32_t id, float logprob)
{
    buf_put_u32(b, (uint32_t)id);
    wire_put_f32(b, logprob);
}

static void put_token(struct buf *b, const struct token_sample *t)
{
    assert(t->n_tops <= TOP_LOGPROBS_MAX);
    put_logprob(b, t->id, t->logprob);
    buf_put_u8(b, (uint8_t)t->n_tops);
    for (uint32_t i = 0; i < t->n_tops; i++)
        put_logprob(b, t->tops[i].id, t->tops[i].logprob);
}

static void count_entry(struct buf *b)
{
    struct reader count;

    if (b->failed)
        return;
    reader_init(&count, b->data + STEP_COUNT_AT, 4);
    wire_put_u32_at(b, STEP_COUNT_AT, reader_u32(&count) + 1);
}

void wire_step_add(struct buf *b, const struct wire_step_entry *e)
{
    assert(e->n_tokens <= WIRE_ENTRY_TOKENS_MAX && e->choice < ENGINE_CHOICES_MAX);
    buf_put_u64(b, e->job);
    buf_put_u8(b, (uint8_t)e->choice);
    buf_put_u8(b, e->finish);
    buf_put_u8(b, e->is_prompt);
    buf_put_u32(b, e->prompt_tokens);
    buf_put_u32(b, e->cached_tokens);
    buf_put_u32(b, e->output_tokens);
    buf_put_u32(b, e->text_len);
    buf_append(b, e->text, e->text_len);
    buf_put_u16(b, (uint16_t)e->n_tokens);
    for (uint32_t i = 0; i < e->n_tokens; i++)
        put_token(b, &e->tokens[i]);
    count_entry(b);
}

void wire_step_end(struct buf *b)
{
    wire_end(b, 0);
}

/* ---- reading ---- */

/* Where the samples of an entry go; both NULL: they are only checked and counted. */
struct room {
    struct token_sample *tokens;
    struct token_logprob *tops;
    size_t n_tops;
};

static struct token_logprob get_logprob(struct reader *r)
{
    struct token_logprob l = {.id = (int32_t)reader_u32(r), .logprob = reader_f32(r)};

    /* -infinity is one: of a token that the model rules out. */
    if (l.id < 0 || isnan(l.logprob) || l.logprob == INFINITY)
        r->failed = true;
    return l;
}

static void get_token(struct reader *r, struct room *room, uint32_t i)
{
    struct token_logprob chosen = get_logprob(r);
    uint32_t n_tops = reader_u8(r);

    if (n_tops > TOP_LOGPROBS_MAX) {
        r->failed = true;
        return;
    }
    if (room->tokens != NULL)
        room->tokens[i] = (struct token_sample){.id = chosen.id,
                                                .logprob = chosen.logprob,
                                                .tops = room->tops + room->n_tops,
                                                .n_tops = n_tops};
    for (uint32_t t = 0; t < n_tops; t++) {
        struct token_logprob top = get_logprob(r);

        if (room->tops != NULL)
            room->tops[room->n_tops + t] = top;
    }
    room->n_tops += n_tops;
}

static bool is_entry_valid(const struct wire_step_entry *e, uint8_t is_prompt)
{
    return e->choice < ENGINE_CHOICES_MAX && e->finish <= ENGINE_FINISH_LENGTH && is_prompt <= 1 &&
           e->cached_tokens <= e->prompt_tokens && e->n_tokens <= WIRE_ENTRY_TOKENS_MAX &&
           (is_prompt == 0 || (e->text_len == 0 && e->finish == ENGINE_FINISH_NONE));
}

static void get_entry(struct reader *r, struct room *room, struct wire_step_entry *out)
{
    uint8_t is_prompt;

    out->job = reader_u64(r);
    out->choice = reader_u8(r);
    out->finish = reader_u8(r);
    is_prompt = reader_u8(r);
    out->is_prompt = is_prompt != 0;
    out->prompt_tokens = reader_u32(r);
    out->cached_tokens = reader_u32(r);
    out->output_tokens = reader_u32(r);
    out->text_len = reader_u32(r);
    out->text = reader_bytes(r, out->text_len);
    out->n_tokens = reader_u16(r);
    out->tokens = room->tokens;
    if (!is_entry_valid(out, is_prompt))
        r->failed = true;
    for (uint32_t i = 0; i < out->n_tokens && !r->failed; i++)
        get_token(r, room, i);
}

static size_t tokens_bytes(uint32_t n_tokens)
{
    return n_tokens * sizeof(struct token_sample);
}

enum status wire_get_step(const struct wire_frame *f, struct buf *scratch, struct wire_step *out)
{
    struct reader r = wire_body_of(f), all;
    size_t most = 0;

    out->step = reader_u64(&r);
    out->n_entries = reader_u32(&r);
    if (r.failed || out->n_entries == 0 || out->n_entries > reader_left(&r) / ENTRY_BYTES)
        return ST_CORRUPT;
    all = r;
    for (uint32_t i = 0; i < out->n_entries && !all.failed; i++) {
        struct room counted = {0};
        struct wire_step_entry e;
        size_t bytes;

        get_entry(&all, &counted, &e);
        bytes = tokens_bytes(e.n_tokens) + counted.n_tops * sizeof counted.tops[0];
        most = bytes > most ? bytes : most;
    }
    out->reader = r;
    out->scratch = scratch;
    if (wire_done(&all) != ST_OK)
        return ST_CORRUPT;
    buf_clear(scratch);
    return buf_reserve(scratch, most) ? ST_OK : ST_NO_MEMORY;
}

/* The samples first, then the tops of all of them: how many samples there are is known only behind
 * the text, so the entry is read twice. */
bool wire_step_next(struct wire_step *s, struct wire_step_entry *out)
{
    struct reader again = s->reader;
    struct room room = {0};

    if (reader_left(&s->reader) == 0)
        return false;
    get_entry(&again, &room, out);
    if (out->n_tokens > 0) {
        room = (struct room){.tokens = (void *)s->scratch->data,
                             .tops = (void *)(s->scratch->data + tokens_bytes(out->n_tokens))};
        get_entry(&s->reader, &room, out);
    } else {
        s->reader = again;
    }
    return true;
}
