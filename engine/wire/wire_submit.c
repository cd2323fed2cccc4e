/* SUBMIT: what a job is. The only frame whose values a client has a say in, so one function judges
 * them, for the side that writes and for the side that reads.
 *
 *   job u64, request 16 bytes, tenant u64, project u64, weight u32, priority u8, queue_max_ms u32,
 *   salt 32 bytes, max_tokens u32, n_choices u8, flags u8,
 *   temperature f32, top_p f32, top_k u32, min_p f32, repetition f32, frequency f32, presence f32,
 *   min_tokens u32, seed u64, top_logprobs u8, n_bias u32, each: id u32, bias f32,
 *   n_stop_ids u32, each: id u32, n_stops u8, each: length u16, text, n_prompt u32, each: id u32 */
#include "engine/wire/wire.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "engine/wire/wire_parts.h"

enum {
    FLAG_IGNORE_EOS = 1,
    FLAG_LOGPROBS = 2,
    FLAG_PROMPT_LOGPROBS = 4,
    FLAGS_ALL = 7,
};

/* ---- what may be asked for ---- */

/* False for NaN. */
static bool is_within(float v, float low, float high)
{
    return v >= low && v <= high;
}

static bool is_bias_valid(const struct sampling *s)
{
    if (s->n_bias > LOGIT_BIAS_MAX)
        return false;
    for (uint32_t i = 0; i < s->n_bias; i++)
        if (s->bias[i].id < 0 || !isfinite(s->bias[i].bias) ||
            (i > 0 && s->bias[i].id <= s->bias[i - 1].id))
            return false;
    return true;
}

static bool is_sampling_valid(const struct sampling *s)
{
    return is_within(s->temperature, 0, 2) && is_within(s->top_p, 0, 1) && s->top_p > 0 &&
           s->top_k >= 0 && is_within(s->min_p, 0, 1) && is_within(s->repetition_penalty, 0, 2) &&
           is_within(s->frequency_penalty, -2, 2) && is_within(s->presence_penalty, -2, 2) &&
           s->top_logprobs <= TOP_LOGPROBS_MAX && is_bias_valid(s);
}

static bool are_stop_ids_valid(const struct wire_submit *v)
{
    if (v->n_stop_ids > STOP_IDS_MAX)
        return false;
    for (uint32_t i = 0; i < v->n_stop_ids; i++)
        if (v->stop_ids[i] < 0 || (i > 0 && v->stop_ids[i] <= v->stop_ids[i - 1]))
            return false;
    return true;
}

static bool are_stops_valid(const struct wire_submit *v)
{
    if (v->n_stops > WIRE_STOPS_MAX)
        return false;
    for (uint32_t i = 0; i < v->n_stops; i++)
        if (v->stops[i].len == 0 || v->stops[i].len > WIRE_STOP_BYTES_MAX)
            return false;
    return true;
}

static bool is_prompt_valid(const struct wire_submit *v)
{
    if (v->n_prompt == 0 || v->n_prompt > WIRE_PROMPT_MAX)
        return false;
    for (uint32_t i = 0; i < v->n_prompt; i++)
        if (v->prompt[i] < 0)
            return false;
    return true;
}

bool wire_submit_is_valid(const struct wire_submit *v)
{
    return v->weight > 0 && v->weight <= WIRE_WEIGHT_MAX && v->priority < ENGINE_PRIORITIES &&
           v->queue_max_ms <= WIRE_QUEUE_MS_MAX && v->n_choices > 0 &&
           v->n_choices <= ENGINE_CHOICES_MAX && is_sampling_valid(&v->sampling) &&
           are_stop_ids_valid(v) && are_stops_valid(v) && is_prompt_valid(v);
}

/* ---- writing ---- */

static void put_ids(struct buf *b, const int32_t *ids, uint32_t n)
{
    buf_put_u32(b, n);
    for (uint32_t i = 0; i < n; i++)
        buf_put_u32(b, (uint32_t)ids[i]);
}

static uint8_t flags_of(const struct wire_submit *v)
{
    return (uint8_t)((v->ignore_eos ? FLAG_IGNORE_EOS : 0) |
                     (v->sampling.want_logprobs ? FLAG_LOGPROBS : 0) |
                     (v->sampling.want_prompt_logprobs ? FLAG_PROMPT_LOGPROBS : 0));
}

static void put_sampling(struct buf *b, const struct sampling *s)
{
    wire_put_f32(b, s->temperature);
    wire_put_f32(b, s->top_p);
    buf_put_u32(b, (uint32_t)s->top_k);
    wire_put_f32(b, s->min_p);
    wire_put_f32(b, s->repetition_penalty);
    wire_put_f32(b, s->frequency_penalty);
    wire_put_f32(b, s->presence_penalty);
    buf_put_u32(b, s->min_tokens);
    buf_put_u64(b, s->seed);
    buf_put_u8(b, (uint8_t)s->top_logprobs);
    buf_put_u32(b, s->n_bias);
    for (uint32_t i = 0; i < s->n_bias; i++) {
        buf_put_u32(b, (uint32_t)s->bias[i].id);
        wire_put_f32(b, s->bias[i].bias);
    }
}

static void put_stops(struct buf *b, const struct wire_submit *v)
{
    buf_put_u8(b, (uint8_t)v->n_stops);
    for (uint32_t i = 0; i < v->n_stops; i++) {
        buf_put_u16(b, (uint16_t)v->stops[i].len);
        buf_append(b, v->stops[i].text, v->stops[i].len);
    }
}

void wire_put_submit(struct buf *b, const struct wire_submit *v)
{
    size_t start = wire_begin(b, WIRE_SUBMIT);

    buf_put_u64(b, v->job);
    buf_append(b, v->request.bytes, sizeof v->request.bytes);
    buf_put_u64(b, v->tenant);
    buf_put_u64(b, v->project);
    buf_put_u32(b, v->weight);
    buf_put_u8(b, (uint8_t)v->priority);
    buf_put_u32(b, v->queue_max_ms);
    buf_append(b, v->salt, sizeof v->salt);
    buf_put_u32(b, v->max_tokens);
    buf_put_u8(b, (uint8_t)v->n_choices);
    buf_put_u8(b, flags_of(v));
    put_sampling(b, &v->sampling);
    put_ids(b, v->stop_ids, v->n_stop_ids);
    put_stops(b, v);
    put_ids(b, v->prompt, v->n_prompt);
    wire_end(b, start);
}

/* ---- reading ---- */

/* Room for n elements in the scratch, which was reserved as a whole: an element takes as many bytes
 * as in the frame. Each size is a multiple of the alignment that the next needs. */
static void *take_room(struct buf *scratch, size_t bytes)
{
    void *p = scratch->data + scratch->len;

    assert(bytes <= scratch->cap - scratch->len);
    scratch->len += bytes;
    return p;
}

static const int32_t *get_ids(struct reader *r, struct buf *scratch, uint32_t max, uint32_t *n)
{
    int32_t *ids;

    *n = reader_u32(r);
    if (*n > max || *n > reader_left(r) / sizeof ids[0]) {
        r->failed = true;
        return NULL;
    }
    ids = take_room(scratch, *n * sizeof ids[0]);
    for (uint32_t i = 0; i < *n; i++)
        ids[i] = (int32_t)reader_u32(r);
    return ids;
}

static void get_bias(struct reader *r, struct buf *scratch, struct sampling *s)
{
    struct logit_bias *bias;

    _Static_assert(sizeof *bias == 8, "as in the frame");
    s->n_bias = reader_u32(r);
    if (s->n_bias > LOGIT_BIAS_MAX || s->n_bias > reader_left(r) / sizeof *bias) {
        r->failed = true;
        return;
    }
    bias = take_room(scratch, s->n_bias * sizeof *bias);
    for (uint32_t i = 0; i < s->n_bias; i++) {
        bias[i].id = (int32_t)reader_u32(r);
        bias[i].bias = reader_f32(r);
    }
    s->bias = bias;
}

static void get_sampling(struct reader *r, struct buf *scratch, struct sampling *s)
{
    s->temperature = reader_f32(r);
    s->top_p = reader_f32(r);
    s->top_k = (int32_t)reader_u32(r);
    s->min_p = reader_f32(r);
    s->repetition_penalty = reader_f32(r);
    s->frequency_penalty = reader_f32(r);
    s->presence_penalty = reader_f32(r);
    s->min_tokens = reader_u32(r);
    s->seed = reader_u64(r);
    s->top_logprobs = reader_u8(r);
    get_bias(r, scratch, s);
}

static void get_flags(struct reader *r, struct wire_submit *out)
{
    uint8_t flags = reader_u8(r);

    if (flags > FLAGS_ALL)
        r->failed = true;
    out->ignore_eos = (flags & FLAG_IGNORE_EOS) != 0;
    out->sampling.want_logprobs = (flags & FLAG_LOGPROBS) != 0;
    out->sampling.want_prompt_logprobs = (flags & FLAG_PROMPT_LOGPROBS) != 0;
}

static void get_bytes(struct reader *r, void *out, size_t n)
{
    const void *bytes = reader_bytes(r, n);

    if (bytes != NULL)
        memcpy(out, bytes, n);
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

        out->stops[i] = (struct text_span){.text = reader_bytes(r, len), .len = len};
    }
}

enum status wire_get_submit(const struct wire_frame *f, struct buf *scratch,
                            struct wire_submit *out)
{
    struct reader r = wire_body_of(f);

    buf_clear(scratch);
    if (!buf_reserve(scratch, f->len + 1))
        return ST_NO_MEMORY;
    *out = (struct wire_submit){.job = reader_u64(&r)};
    get_bytes(&r, out->request.bytes, sizeof out->request.bytes);
    out->tenant = reader_u64(&r);
    out->project = reader_u64(&r);
    out->weight = reader_u32(&r);
    out->priority = reader_u8(&r);
    out->queue_max_ms = reader_u32(&r);
    get_bytes(&r, out->salt, sizeof out->salt);
    out->max_tokens = reader_u32(&r);
    out->n_choices = reader_u8(&r);
    get_flags(&r, out);
    get_sampling(&r, scratch, &out->sampling);
    out->stop_ids = get_ids(&r, scratch, STOP_IDS_MAX, &out->n_stop_ids);
    get_stops(&r, out);
    if (!r.failed)
        out->prompt = get_ids(&r, scratch, WIRE_PROMPT_MAX, &out->n_prompt);
    return wire_done(&r) == ST_OK && wire_submit_is_valid(out) ? ST_OK : ST_CORRUPT;
}
