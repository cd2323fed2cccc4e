#include "engine/wire/wire.h"

#include <assert.h>
#include <string.h>

#define STEP_COUNT_AT (WIRE_HEADER_BYTES + 8) /* after the header and the step's number */
#define ENTRY_BYTES   (8 + 4 + 4 + 4 + 4)     /* without its text */

/* ---- writing ---- */

static void put_le32_at(struct buf *b, size_t at, uint32_t v)
{
    for (size_t i = 0; i < 4; i++)
        b->data[at + i] = (char)(uint8_t)(v >> (8 * i));
}

static size_t begin(struct buf *b, enum wire_type type)
{
    size_t start = b->len;

    buf_put_u32(b, 0);
    buf_put_u16(b, (uint16_t)type);
    return start;
}

static void end(struct buf *b, size_t start)
{
    size_t length = b->len - start - 4;

    if (b->failed)
        return;
    assert(length <= WIRE_FRAME_BYTES_MAX);
    put_le32_at(b, start, (uint32_t)length);
}

static void put_text(struct buf *b, const char *s)
{
    size_t len = strlen(s);

    assert(len <= UINT8_MAX);
    buf_put_u8(b, (uint8_t)len);
    buf_append(b, s, len);
}

static void put_f32(struct buf *b, float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    buf_put_u32(b, bits);
}

void wire_put_hello(struct buf *b, const struct wire_hello *v)
{
    size_t start = begin(b, WIRE_HELLO);

    buf_put_u16(b, v->version_min);
    buf_put_u16(b, v->version_max);
    put_text(b, v->build);
    end(b, start);
}

void wire_put_welcome(struct buf *b, const struct wire_welcome *v)
{
    size_t start = begin(b, WIRE_WELCOME);

    buf_put_u16(b, v->version);
    put_text(b, v->build);
    put_text(b, v->revision);
    put_text(b, v->device);
    buf_put_u32(b, v->max_sequences);
    buf_put_u32(b, v->max_rows);
    buf_put_u32(b, v->max_context);
    buf_put_u32(b, v->n_pages);
    buf_put_u32(b, v->n_vocab);
    buf_put_u64(b, v->credit_bytes);
    buf_put_u32(b, v->pid);
    end(b, start);
}

void wire_put_refused(struct buf *b, const struct wire_refused *v)
{
    size_t start = begin(b, WIRE_REFUSED);

    buf_put_u16(b, v->status);
    put_text(b, v->text);
    end(b, start);
}

static void put_sampling(struct buf *b, const struct sampling *s)
{
    put_f32(b, s->temperature);
    put_f32(b, s->top_p);
    buf_put_u32(b, (uint32_t)s->top_k);
    buf_put_u64(b, s->seed);
    buf_put_u32(b, s->choice);
}

void wire_put_submit(struct buf *b, const struct wire_submit *v)
{
    size_t start = begin(b, WIRE_SUBMIT);

    buf_put_u64(b, v->job);
    buf_append(b, v->request.bytes, sizeof v->request.bytes);
    buf_put_u64(b, v->tenant);
    buf_put_u32(b, v->weight);
    buf_put_u32(b, v->max_tokens);
    put_sampling(b, &v->sampling);
    buf_put_u8(b, v->ignore_eos);
    buf_put_u8(b, (uint8_t)v->n_stops);
    for (uint32_t i = 0; i < v->n_stops; i++) {
        buf_put_u16(b, (uint16_t)v->stops[i].len);
        buf_append(b, v->stops[i].text, v->stops[i].len);
    }
    buf_put_u32(b, v->n_prompt);
    for (uint32_t i = 0; i < v->n_prompt; i++)
        buf_put_u32(b, (uint32_t)v->prompt[i]);
    end(b, start);
}

void wire_put_cancel(struct buf *b, uint64_t job)
{
    size_t start = begin(b, WIRE_CANCEL);

    buf_put_u64(b, job);
    end(b, start);
}

void wire_put_final(struct buf *b, const struct wire_final *v)
{
    size_t start = begin(b, WIRE_FINAL);

    buf_put_u64(b, v->job);
    buf_put_u16(b, v->status);
    buf_put_u8(b, v->finish);
    buf_put_u32(b, v->prompt_tokens);
    buf_put_u32(b, v->cached_tokens);
    buf_put_u32(b, v->output_tokens);
    buf_put_u32(b, v->queue_us);
    buf_put_u32(b, v->prefill_us);
    buf_put_u32(b, v->decode_us);
    end(b, start);
}

void wire_put_stats(struct buf *b, const struct wire_stats *v)
{
    size_t start = begin(b, WIRE_STATS);

    buf_put_u32(b, v->running);
    buf_put_u32(b, v->waiting);
    buf_put_u32(b, v->pages_used);
    buf_put_u32(b, v->pages_total);
    buf_put_u32(b, v->rows_max);
    buf_put_u64(b, v->steps);
    buf_put_u64(b, v->prompt_tokens);
    buf_put_u64(b, v->output_tokens);
    buf_put_u64(b, v->preemptions);
    buf_put_u64(b, (uint64_t)v->last_step_age_ms);
    end(b, start);
}

void wire_put_credit(struct buf *b, uint64_t bytes)
{
    size_t start = begin(b, WIRE_CREDIT);

    buf_put_u64(b, bytes);
    end(b, start);
}

void wire_step_begin(struct buf *b, uint64_t step)
{
    assert(b->len == 0);
    begin(b, WIRE_STEP);
    buf_put_u64(b, step);
    buf_put_u32(b, 0);
}

void wire_step_add(struct buf *b, const struct wire_step_entry *e)
{
    buf_put_u64(b, e->job);
    buf_put_u32(b, e->prompt_tokens);
    buf_put_u32(b, e->cached_tokens);
    buf_put_u32(b, e->output_tokens);
    buf_put_u32(b, e->text_len);
    buf_append(b, e->text, e->text_len);
    if (!b->failed) {
        struct reader count;

        reader_init(&count, b->data + STEP_COUNT_AT, 4);
        put_le32_at(b, STEP_COUNT_AT, reader_u32(&count) + 1);
    }
}

void wire_step_end(struct buf *b)
{
    end(b, 0);
}

/* ---- reading ---- */

enum wire_scan wire_scan(const void *data, size_t len, struct wire_frame *out, size_t *frame_bytes)
{
    struct reader r;
    uint32_t length;

    reader_init(&r, data, len);
    length = reader_u32(&r);
    if (r.failed)
        return WIRE_SCAN_MORE;
    if (length < WIRE_HEADER_BYTES - 4 || length > WIRE_FRAME_BYTES_MAX)
        return WIRE_SCAN_CORRUPT;
    if (reader_left(&r) < length)
        return WIRE_SCAN_MORE;
    out->type = reader_u16(&r);
    out->len = length - (WIRE_HEADER_BYTES - 4);
    out->body = reader_bytes(&r, out->len);
    *frame_bytes = 4 + (size_t)length;
    return WIRE_SCAN_FRAME;
}

static struct reader body_of(const struct wire_frame *f)
{
    struct reader r;

    reader_init(&r, f->body, f->len);
    return r;
}

/* Everything was there, and nothing more. */
static enum status done(const struct reader *r)
{
    return r->failed || reader_left(r) != 0 ? ST_CORRUPT : ST_OK;
}

/* Printable ASCII, NUL-terminated into out[cap]: these texts go to logs and headers. */
static void get_text(struct reader *r, char *out, size_t cap)
{
    size_t len = reader_u8(r);
    const char *s = reader_bytes(r, len);

    if (s == NULL || len >= cap) {
        r->failed = true;
        return;
    }
    for (size_t i = 0; i < len; i++)
        if (s[i] < 0x20 || s[i] > 0x7E)
            r->failed = true;
    memcpy(out, s, len);
    out[len] = '\0';
}

enum status wire_get_hello(const struct wire_frame *f, struct wire_hello *out)
{
    struct reader r = body_of(f);

    out->version_min = reader_u16(&r);
    out->version_max = reader_u16(&r);
    get_text(&r, out->build, sizeof out->build);
    if (out->version_min > out->version_max)
        return ST_CORRUPT;
    return done(&r);
}

enum status wire_get_welcome(const struct wire_frame *f, struct wire_welcome *out)
{
    struct reader r = body_of(f);

    out->version = reader_u16(&r);
    get_text(&r, out->build, sizeof out->build);
    get_text(&r, out->revision, sizeof out->revision);
    get_text(&r, out->device, sizeof out->device);
    out->max_sequences = reader_u32(&r);
    out->max_rows = reader_u32(&r);
    out->max_context = reader_u32(&r);
    out->n_pages = reader_u32(&r);
    out->n_vocab = reader_u32(&r);
    out->credit_bytes = reader_u64(&r);
    out->pid = reader_u32(&r);
    if (out->max_sequences == 0 || out->max_context == 0 || out->credit_bytes == 0)
        return ST_CORRUPT;
    return done(&r);
}

enum status wire_get_refused(const struct wire_frame *f, struct wire_refused *out)
{
    struct reader r = body_of(f);

    out->status = reader_u16(&r);
    get_text(&r, out->text, sizeof out->text);
    if (out->status == ST_OK || out->status >= STATUS_COUNT)
        return ST_CORRUPT;
    return done(&r);
}

static void get_sampling(struct reader *r, struct sampling *s)
{
    s->temperature = reader_f32(r);
    s->top_p = reader_f32(r);
    s->top_k = (int32_t)reader_u32(r);
    s->seed = reader_u64(r);
    s->choice = reader_u32(r);
    /* Negated, so that NaN fails. */
    if (!(s->temperature >= 0.0f && s->temperature <= 2.0f) ||
        !(s->top_p > 0.0f && s->top_p <= 1.0f) || s->top_k < 0)
        r->failed = true;
}

static void get_stops(struct reader *r, struct wire_submit *out)
{
    out->n_stops = reader_u8(r);
    if (out->n_stops > WIRE_STOPS_MAX) {
        r->failed = true;
        return;
    }
    for (uint32_t i = 0; i < out->n_stops; i++) {
        size_t len = reader_u16(r);

        if (len == 0 || len > WIRE_STOP_BYTES_MAX)
            r->failed = true;
        out->stops[i] = (struct text_span){.text = reader_bytes(r, len), .len = len};
    }
}

static enum status get_prompt(struct reader *r, struct buf *scratch, struct wire_submit *out)
{
    int32_t *ids;

    out->n_prompt = reader_u32(r);
    /* Compared by division: n_prompt * 4 may not fit where size_t is 32 bits wide. */
    if (r->failed || out->n_prompt == 0 || reader_left(r) % 4 != 0 ||
        reader_left(r) / 4 != out->n_prompt)
        return ST_CORRUPT;
    buf_clear(scratch);
    if (!buf_reserve(scratch, reader_left(r)))
        return ST_NO_MEMORY;
    ids = (int32_t *)(void *)scratch->data;
    for (uint32_t i = 0; i < out->n_prompt; i++) {
        ids[i] = (int32_t)reader_u32(r);
        if (ids[i] < 0)
            return ST_CORRUPT;
    }
    out->prompt = ids;
    return ST_OK;
}

enum status wire_get_submit(const struct wire_frame *f, struct buf *scratch,
                            struct wire_submit *out)
{
    struct reader r = body_of(f);
    const void *request;
    enum status s;
    uint8_t flag;

    out->job = reader_u64(&r);
    request = reader_bytes(&r, sizeof out->request.bytes);
    if (request == NULL)
        return ST_CORRUPT;
    memcpy(out->request.bytes, request, sizeof out->request.bytes);
    out->tenant = reader_u64(&r);
    out->weight = reader_u32(&r);
    out->max_tokens = reader_u32(&r);
    get_sampling(&r, &out->sampling);
    flag = reader_u8(&r);
    out->ignore_eos = flag != 0;
    get_stops(&r, out);
    if (r.failed || flag > 1 || out->weight == 0 || out->weight > WIRE_WEIGHT_MAX)
        return ST_CORRUPT;
    s = get_prompt(&r, scratch, out);
    return s == ST_OK ? done(&r) : s;
}

enum status wire_get_cancel(const struct wire_frame *f, uint64_t *job)
{
    struct reader r = body_of(f);

    *job = reader_u64(&r);
    return done(&r);
}

enum status wire_get_final(const struct wire_frame *f, struct wire_final *out)
{
    struct reader r = body_of(f);

    out->job = reader_u64(&r);
    out->status = reader_u16(&r);
    out->finish = reader_u8(&r);
    out->prompt_tokens = reader_u32(&r);
    out->cached_tokens = reader_u32(&r);
    out->output_tokens = reader_u32(&r);
    out->queue_us = reader_u32(&r);
    out->prefill_us = reader_u32(&r);
    out->decode_us = reader_u32(&r);
    if (out->status >= STATUS_COUNT || out->finish > ENGINE_FINISH_LENGTH ||
        out->cached_tokens > out->prompt_tokens ||
        (out->status == ST_OK) != (out->finish != ENGINE_FINISH_NONE))
        return ST_CORRUPT;
    return done(&r);
}

enum status wire_get_stats(const struct wire_frame *f, struct wire_stats *out)
{
    struct reader r = body_of(f);

    out->running = reader_u32(&r);
    out->waiting = reader_u32(&r);
    out->pages_used = reader_u32(&r);
    out->pages_total = reader_u32(&r);
    out->rows_max = reader_u32(&r);
    out->steps = reader_u64(&r);
    out->prompt_tokens = reader_u64(&r);
    out->output_tokens = reader_u64(&r);
    out->preemptions = reader_u64(&r);
    out->last_step_age_ms = (int64_t)reader_u64(&r);
    if (out->pages_used > out->pages_total || out->last_step_age_ms < -1)
        return ST_CORRUPT;
    return done(&r);
}

enum status wire_get_credit(const struct wire_frame *f, uint64_t *bytes)
{
    struct reader r = body_of(f);

    *bytes = reader_u64(&r);
    return done(&r);
}

static void get_entry(struct reader *r, struct wire_step_entry *out)
{
    out->job = reader_u64(r);
    out->prompt_tokens = reader_u32(r);
    out->cached_tokens = reader_u32(r);
    out->output_tokens = reader_u32(r);
    out->text_len = reader_u32(r);
    out->text = reader_bytes(r, out->text_len);
    if (out->cached_tokens > out->prompt_tokens)
        r->failed = true;
}

enum status wire_get_step(const struct wire_frame *f, struct wire_step *out)
{
    struct reader r = body_of(f), all;
    struct wire_step_entry e;

    out->step = reader_u64(&r);
    out->n_entries = reader_u32(&r);
    if (r.failed || out->n_entries == 0 || out->n_entries > reader_left(&r) / ENTRY_BYTES)
        return ST_CORRUPT;
    all = r;
    for (uint32_t i = 0; i < out->n_entries && !all.failed; i++)
        get_entry(&all, &e);
    out->reader = r;
    return done(&all);
}

bool wire_step_next(struct wire_step *s, struct wire_step_entry *out)
{
    if (reader_left(&s->reader) == 0)
        return false;
    get_entry(&s->reader, out);
    return true;
}
