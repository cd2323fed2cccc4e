#include "billing/usage_row.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "base/utf8.h"

static bool is_control(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7F && cp < 0xA0);
}

static bool is_text(const char *s, size_t cap)
{
    size_t len = strnlen(s, cap);
    uint32_t cp;

    if (len == cap)
        return false;
    for (size_t i = 0; i < len;) {
        int n = utf8_decode(s + i, len - i, &cp);

        if (n <= 0 || is_control(cp))
            return false;
        i += (size_t)n;
    }
    return true;
}

static bool is_within(int64_t v, int64_t max)
{
    return v >= 0 && v <= max;
}

static bool is_price_valid(const struct price *p)
{
    if (strnlen(p->currency, sizeof p->currency) != 3)
        return false;
    for (int i = 0; i < 3; i++)
        if (p->currency[i] < 'A' || p->currency[i] > 'Z')
            return false;
    return is_within(p->input_nanos, USAGE_PRICE_MAX_NANOS) &&
           is_within(p->cached_nanos, USAGE_PRICE_MAX_NANOS) &&
           is_within(p->output_nanos, USAGE_PRICE_MAX_NANOS) &&
           is_within(p->request_nanos, USAGE_PRICE_MAX_NANOS);
}

bool usage_admission_is_valid(const struct billing_admission *a)
{
    return is_within(a->admitted_at_us, USAGE_TIME_MAX_US) &&
           is_within(a->prompt_tokens, USAGE_TOKENS_MAX) &&
           is_within(a->output_cap, USAGE_TOKENS_MAX) && is_price_valid(&a->price) &&
           is_text(a->model, sizeof a->model) && is_text(a->endpoint, sizeof a->endpoint) &&
           is_text(a->client_request_id, sizeof a->client_request_id);
}

bool usage_final_is_valid(const struct billing_final *f)
{
    return is_within(f->admitted_at_us, USAGE_TIME_MAX_US) &&
           is_within(f->ended_at_us, USAGE_TIME_MAX_US) && f->outcome <= OUTCOME_INTERRUPTED &&
           is_text(f->finish_reason, sizeof f->finish_reason) &&
           is_within(f->prompt_tokens, USAGE_TOKENS_MAX) &&
           is_within(f->cached_tokens, f->prompt_tokens) &&
           is_within(f->output_tokens, USAGE_TOKENS_MAX) &&
           (f->ttft_us == -1 || is_within(f->ttft_us, USAGE_TIME_MAX_US));
}

void usage_clean_text(char *s)
{
    size_t len = strlen(s);
    uint32_t cp;

    for (size_t i = 0; i < len;) {
        int n = utf8_decode(s + i, len - i, &cp);

        if (n > 0 && !is_control(cp)) {
            i += (size_t)n;
            continue;
        }
        /* A control character of two bytes becomes two marks: the length stays. */
        for (int k = 0; k < (n > 0 ? n : 1); k++)
            s[i++] = '?';
    }
}

const char *usage_outcome_name(enum billing_outcome o)
{
    static const char *const names[] = {
        [OUTCOME_COMPLETED] = "completed",
        [OUTCOME_CANCELLED] = "cancelled",
        [OUTCOME_FAILED] = "failed",
        [OUTCOME_INTERRUPTED] = "interrupted",
    };

    return names[o];
}

int64_t usage_row_cost(const struct usage_row *row)
{
    const struct billing_final *f = &row->final;
    int64_t nanos = 0;
    enum status s = money_cost(&row->admission.price, f->prompt_tokens - f->cached_tokens,
                               f->cached_tokens, f->output_tokens, &nanos);

    assert(s == ST_OK);
    return nanos;
}

void usage_format_time(int64_t unix_us, char out[USAGE_TIME_TEXT_BYTES])
{
    time_t s = (time_t)(unix_us / 1000000);
    struct tm tm;
    size_t n;

    gmtime_r(&s, &tm);
    n = strftime(out, USAGE_TIME_TEXT_BYTES, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out + n, USAGE_TIME_TEXT_BYTES - n, ".%06dZ", (int)(unix_us % 1000000));
}

static void put_name(struct buf *b, const char *name)
{
    json_put_cstr(b, name);
    buf_putc(b, ':');
}

static void put_int(struct buf *b, const char *name, int64_t v)
{
    buf_putc(b, ',');
    put_name(b, name);
    json_put_int(b, v);
}

/* Null when empty. */
static void put_text(struct buf *b, const char *name, const char *s)
{
    buf_putc(b, ',');
    put_name(b, name);
    if (s[0] == '\0')
        buf_puts(b, "null");
    else
        json_put_cstr(b, s);
}

static void put_time(struct buf *b, const char *name, int64_t unix_us)
{
    char text[USAGE_TIME_TEXT_BYTES];

    usage_format_time(unix_us, text);
    put_text(b, name, text);
}

void usage_row_put_json(struct buf *b, const struct usage_row *row)
{
    const struct billing_admission *a = &row->admission;
    const struct billing_final *f = &row->final;
    char uuid[ID_UUID_BYTES];

    id_to_uuid(&a->id, uuid);
    buf_puts(b, "{\"stream\":");
    buf_puts(b, a->stream ? "true" : "false");
    put_text(b, "id", uuid);
    put_time(b, "admitted_at", a->admitted_at_us);
    put_time(b, "ended_at", f->ended_at_us);
    put_int(b, "tenant_id", a->tenant_id);
    put_int(b, "project_id", a->project_id);
    put_int(b, "key_id", a->key_id);
    put_text(b, "model", a->model);
    put_text(b, "endpoint", a->endpoint);
    put_text(b, "client_request_id", a->client_request_id);
    put_text(b, "outcome", usage_outcome_name(f->outcome));
    put_text(b, "finish_reason", f->finish_reason);
    put_int(b, "prompt_tokens", f->prompt_tokens);
    put_int(b, "cached_tokens", f->cached_tokens);
    put_int(b, "output_tokens", f->output_tokens);
    if (f->ttft_us != -1)
        put_int(b, "ttft_us", f->ttft_us);
    put_int(b, "price_id", a->price.id);
    put_text(b, "currency", a->price.currency);
    put_int(b, "cost_nanos", usage_row_cost(row));
    buf_putc(b, '}');
}
