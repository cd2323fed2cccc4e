#include "billing/journal_format.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

#include "base/reader.h"
#include "billing/usage_row.h"

/* Without cached tokens in progress records. */
#define VERSION_1 1
static const char magic[8] = "SLUJRNL";

/* ---- writing ---- */

void journal_put_head(struct buf *b, const struct journal_head *h)
{
    size_t at = b->len;

    buf_append(b, magic, sizeof magic);
    buf_put_u32(b, JOURNAL_VERSION);
    buf_put_u32(b, JOURNAL_BLOCK_BYTES);
    buf_put_u64(b, h->generation);
    buf_put_u64(b, h->number);
    buf_put_u64(b, h->first_seq);
    buf_put_u64(b, h->prev_end);
    buf_put_u64(b, h->prev_seq);
    buf_put_u64(b, h->image_end);
    if (!b->failed)
        buf_put_u64(b, XXH3_64bits(b->data + at, JOURNAL_HEAD_BYTES - 8));
}

/* Payloads are gathered in a buffer of this type, on the stack. */
struct payload {
    size_t len;
    uint8_t bytes[JOURNAL_PAYLOAD_MAX];
};

static void put_bytes(struct payload *p, const void *data, size_t len)
{
    assert(len <= sizeof p->bytes - p->len);
    memcpy(p->bytes + p->len, data, len);
    p->len += len;
}

static void put_u8(struct payload *p, uint8_t v)
{
    put_bytes(p, &v, 1);
}

static void put_u64(struct payload *p, uint64_t v)
{
    uint8_t le[8];

    for (size_t i = 0; i < sizeof le; i++)
        le[i] = (uint8_t)(v >> (8 * i));
    put_bytes(p, le, sizeof le);
}

static void put_i64(struct payload *p, int64_t v)
{
    put_u64(p, (uint64_t)v);
}

/* A length byte and the text. */
static void put_text(struct payload *p, const char *s)
{
    size_t len = strlen(s);

    put_u8(p, (uint8_t)len);
    put_bytes(p, s, len);
}

static void pad_block(struct buf *b, size_t base, size_t record_bytes)
{
    static const uint8_t zeros[JOURNAL_RECORD_HEAD_BYTES + JOURNAL_PAYLOAD_MAX];
    size_t left = JOURNAL_BLOCK_BYTES - (base + b->len) % JOURNAL_BLOCK_BYTES;

    if (record_bytes > left)
        buf_append(b, zeros, left);
}

static void put_record(struct buf *b, size_t base, const struct journal_stamp *s, uint8_t type,
                       const struct payload *p)
{
    uint64_t sum;
    size_t at;

    pad_block(b, base, JOURNAL_RECORD_HEAD_BYTES + p->len);
    at = b->len;
    buf_put_u64(b, 0);
    buf_put_u16(b, (uint16_t)p->len);
    buf_put_u8(b, type);
    buf_put_u8(b, 0);
    buf_put_u32(b, (uint32_t)(base + at));
    buf_put_u32(b, (uint32_t)s->durable);
    buf_put_u64(b, s->generation);
    buf_put_u64(b, s->seq);
    buf_append(b, p->bytes, p->len);
    if (b->failed)
        return;
    sum = XXH3_64bits(b->data + at + 8, JOURNAL_RECORD_HEAD_BYTES - 8 + p->len);
    for (size_t i = 0; i < 8; i++)
        b->data[at + i] = (char)(uint8_t)(sum >> (8 * i));
}

void journal_put_admission(struct buf *b, size_t base, const struct journal_stamp *s,
                           const struct billing_admission *a)
{
    struct payload p = {0};

    put_bytes(&p, a->id.bytes, sizeof a->id.bytes);
    put_i64(&p, a->admitted_at_us);
    put_i64(&p, a->tenant_id);
    put_i64(&p, a->project_id);
    put_i64(&p, a->key_id);
    put_i64(&p, a->prompt_tokens);
    put_i64(&p, a->output_cap);
    put_i64(&p, a->price.id);
    put_i64(&p, a->price.input_nanos);
    put_i64(&p, a->price.cached_nanos);
    put_i64(&p, a->price.output_nanos);
    put_i64(&p, a->price.request_nanos);
    put_u8(&p, a->stream);
    put_text(&p, a->price.currency);
    put_text(&p, a->model);
    put_text(&p, a->endpoint);
    put_text(&p, a->client_request_id);
    put_record(b, base, s, JOURNAL_ADMISSION, &p);
}

void journal_put_progress(struct buf *b, size_t base, const struct journal_stamp *s,
                          const struct journal_progress *g)
{
    struct payload p = {0};

    put_bytes(&p, g->id.bytes, sizeof g->id.bytes);
    put_i64(&p, g->at_us);
    put_i64(&p, g->prompt_tokens);
    put_i64(&p, g->cached_tokens);
    put_i64(&p, g->output_tokens);
    put_record(b, base, s, JOURNAL_PROGRESS, &p);
}

void journal_put_final(struct buf *b, size_t base, const struct journal_stamp *s,
                       const struct billing_final *f)
{
    struct payload p = {0};

    put_bytes(&p, f->id.bytes, sizeof f->id.bytes);
    put_i64(&p, f->admitted_at_us);
    put_i64(&p, f->ended_at_us);
    put_i64(&p, f->prompt_tokens);
    put_i64(&p, f->cached_tokens);
    put_i64(&p, f->output_tokens);
    put_i64(&p, f->ttft_us);
    put_u8(&p, (uint8_t)f->outcome);
    put_text(&p, f->finish_reason);
    put_record(b, base, s, JOURNAL_FINAL, &p);
}

void journal_put_posted(struct buf *b, size_t base, const struct journal_stamp *s,
                        uint64_t up_to_seq)
{
    struct payload p = {0};

    put_u64(&p, up_to_seq);
    put_record(b, base, s, JOURNAL_POSTED, &p);
}

/* ---- payloads ---- */

static int64_t get_i64(struct reader *r)
{
    return (int64_t)reader_u64(r);
}

static void get_id(struct reader *r, struct id *out)
{
    const void *p = reader_bytes(r, sizeof out->bytes);

    if (p != NULL)
        memcpy(out->bytes, p, sizeof out->bytes);
}

static void get_text(struct reader *r, char *out, size_t cap)
{
    size_t len = reader_u8(r);
    const void *p = reader_bytes(r, len);

    if (p == NULL || len >= cap || memchr(p, '\0', len) != NULL) {
        r->failed = true;
        return;
    }
    memcpy(out, p, len);
    out[len] = '\0';
}

static bool get_flag(struct reader *r)
{
    uint8_t v = reader_u8(r);

    r->failed |= v > 1;
    return v == 1;
}

static bool decode_admission(struct reader *r, struct billing_admission *a)
{
    get_id(r, &a->id);
    a->admitted_at_us = get_i64(r);
    a->tenant_id = get_i64(r);
    a->project_id = get_i64(r);
    a->key_id = get_i64(r);
    a->prompt_tokens = get_i64(r);
    a->output_cap = get_i64(r);
    a->price.id = get_i64(r);
    a->price.input_nanos = get_i64(r);
    a->price.cached_nanos = get_i64(r);
    a->price.output_nanos = get_i64(r);
    a->price.request_nanos = get_i64(r);
    a->stream = get_flag(r);
    get_text(r, a->price.currency, sizeof a->price.currency);
    get_text(r, a->model, sizeof a->model);
    get_text(r, a->endpoint, sizeof a->endpoint);
    get_text(r, a->client_request_id, sizeof a->client_request_id);
    return !r->failed && usage_admission_is_valid(a);
}

bool journal_progress_is_valid(const struct journal_progress *p)
{
    return p->at_us >= 0 && p->at_us <= USAGE_TIME_MAX_US && p->prompt_tokens >= 0 &&
           p->prompt_tokens <= USAGE_TOKENS_MAX && p->cached_tokens >= 0 &&
           p->cached_tokens <= p->prompt_tokens && p->output_tokens >= 0 &&
           p->output_tokens <= USAGE_TOKENS_MAX;
}

static bool decode_progress(struct reader *r, uint32_t version, struct journal_progress *p)
{
    get_id(r, &p->id);
    p->at_us = get_i64(r);
    p->prompt_tokens = get_i64(r);
    p->cached_tokens = version == VERSION_1 ? 0 : get_i64(r);
    p->output_tokens = get_i64(r);
    return !r->failed && journal_progress_is_valid(p);
}

static bool decode_final(struct reader *r, struct billing_final *f)
{
    get_id(r, &f->id);
    f->admitted_at_us = get_i64(r);
    f->ended_at_us = get_i64(r);
    f->prompt_tokens = get_i64(r);
    f->cached_tokens = get_i64(r);
    f->output_tokens = get_i64(r);
    f->ttft_us = get_i64(r);
    f->outcome = reader_u8(r);
    get_text(r, f->finish_reason, sizeof f->finish_reason);
    return !r->failed && usage_final_is_valid(f);
}

static bool decode(struct journal_record *out, uint32_t version, const uint8_t *payload, size_t len)
{
    struct reader r;
    bool good = false;

    reader_init(&r, payload, len);
    switch (out->type) {
    case JOURNAL_ADMISSION:
        good = decode_admission(&r, &out->admission);
        break;
    case JOURNAL_PROGRESS:
        good = decode_progress(&r, version, &out->progress);
        break;
    case JOURNAL_FINAL:
        good = decode_final(&r, &out->final);
        break;
    case JOURNAL_POSTED:
        out->posted_seq = reader_u64(&r);
        good = !r.failed;
        break;
    }
    return good && reader_left(&r) == 0;
}

/* ---- reading ---- */

enum status journal_view_init(struct journal_view *v, const void *data, size_t len)
{
    struct reader r;
    const void *m;

    memset(v, 0, sizeof *v);
    reader_init(&r, data, len);
    m = reader_bytes(&r, sizeof magic);
    if (len < JOURNAL_HEAD_BYTES || memcmp(m, magic, sizeof magic) != 0)
        return ST_CORRUPT;
    v->head.version = reader_u32(&r);
    if ((v->head.version != VERSION_1 && v->head.version != JOURNAL_VERSION) ||
        reader_u32(&r) != JOURNAL_BLOCK_BYTES)
        return ST_CORRUPT;
    v->head.generation = reader_u64(&r);
    v->head.number = reader_u64(&r);
    v->head.first_seq = reader_u64(&r);
    v->head.prev_end = reader_u64(&r);
    v->head.prev_seq = reader_u64(&r);
    v->head.image_end = reader_u64(&r);
    if (reader_u64(&r) != XXH3_64bits(data, JOURNAL_HEAD_BYTES - 8))
        return ST_CORRUPT;
    v->data = data;
    v->len = len;
    v->pos = JOURNAL_HEAD_BYTES;
    v->next_seq = v->head.first_seq;
    return ST_OK;
}

/* A record's head, checked; the payload lies behind it. */
struct frame {
    uint16_t len;
    uint8_t type;
    uint32_t durable;
    uint64_t seq;
};

/* Whether a whole record of this segment lies at `at`. */
static bool read_frame(const struct journal_view *v, size_t at, struct frame *f)
{
    size_t left = JOURNAL_BLOCK_BYTES - at % JOURNAL_BLOCK_BYTES;
    struct reader r;
    uint64_t sum;

    if (left > v->len - at)
        left = v->len - at;
    reader_init(&r, v->data + at, left);
    sum = reader_u64(&r);
    f->len = reader_u16(&r);
    f->type = reader_u8(&r);
    if (reader_u8(&r) != 0 || reader_u32(&r) != at)
        return false;
    f->durable = reader_u32(&r);
    if (reader_u64(&r) != v->head.generation)
        return false;
    f->seq = reader_u64(&r);
    if (r.failed || f->len > JOURNAL_PAYLOAD_MAX || f->len > reader_left(&r))
        return false;
    return sum == XXH3_64bits(v->data + at + 8, JOURNAL_RECORD_HEAD_BYTES - 8 + f->len);
}

/* Steps over the zeros at a block's end. False: there is more than zeros, or nothing behind them.
 */
static bool skip_padding(struct journal_view *v)
{
    size_t end = v->pos - v->pos % JOURNAL_BLOCK_BYTES + JOURNAL_BLOCK_BYTES;

    if (end - v->pos >= JOURNAL_RECORD_HEAD_BYTES + JOURNAL_PAYLOAD_MAX || end >= v->len)
        return false;
    for (size_t i = v->pos; i < end; i++)
        if (v->data[i] != 0)
            return false;
    v->pos = end;
    return true;
}

enum journal_scan journal_next(struct journal_view *v, struct journal_record *out)
{
    size_t damage = v->pos;
    struct frame f;

    if (v->pos == v->len)
        return SCAN_END;
    if (read_frame(v, v->pos, &f) || (skip_padding(v) && read_frame(v, v->pos, &f))) {
        out->type = f.type;
        out->seq = f.seq;
        if (f.seq == v->next_seq &&
            decode(out, v->head.version, v->data + v->pos + JOURNAL_RECORD_HEAD_BYTES, f.len)) {
            v->next_seq++;
            v->pos += JOURNAL_RECORD_HEAD_BYTES + (size_t)f.len;
            return SCAN_RECORD;
        }
    }
    v->pos = damage;
    return SCAN_DAMAGED;
}

bool journal_tail_is_torn(const struct journal_view *v)
{
    struct frame f;

    if (v->pos < v->head.image_end)
        return false;
    /* A whole record that can't be read here (a wrong sequence or content under a right checksum)
     * was written that way: no crash does that. */
    if (read_frame(v, v->pos, &f))
        return false;
    for (size_t at = v->pos; at + JOURNAL_RECORD_HEAD_BYTES <= v->len; at++)
        if (read_frame(v, at, &f) && f.durable > v->pos)
            return false;
    return true;
}
