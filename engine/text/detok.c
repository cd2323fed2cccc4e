/* Three steps: bytes of tokens wait in `tail` until they make characters; characters wait in `text`
 * while a stop string may begin in them; the rest is out. */
#include "engine/text/detok.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

#define REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */
#define TAIL_MAX    3              /* bytes of an unfinished character */

struct stop {
    char text[STOP_STRING_BYTES_MAX];
    size_t len;
};

struct detok {
    const struct tokenizer *tokenizer;
    struct stop stops[STOP_STRINGS_MAX];
    size_t n_stops;
    char tail[TAIL_MAX];
    size_t tail_len;
    struct buf text;    /* held back: a proper prefix of a stop string */
    struct buf weights; /* for each byte of text: fed bytes that are out when it is */
    uint64_t fed_bytes, released_bytes;
    bool ignores_stops;
    bool drops_space; /* of the next piece: the one that encoding put before the text */
    bool stopped;
};

/* Half a character could stop the text in the middle of one. */
static bool is_stop_string(const struct text_span *s)
{
    return s->len > 0 && s->len <= STOP_STRING_BYTES_MAX && utf8_is_valid(s->text, s->len);
}

enum status detok_new(const struct tokenizer *t, const struct text_span *stops, size_t n_stops,
                      struct detok **out)
{
    struct detok *d;

    if (n_stops > STOP_STRINGS_MAX)
        return ST_INVALID;
    for (size_t i = 0; i < n_stops; i++)
        if (!is_stop_string(&stops[i]))
            return ST_INVALID;
    d = calloc(1, sizeof *d);
    if (d == NULL)
        return ST_NO_MEMORY;
    d->tokenizer = t;
    d->drops_space = tokenizer_adds_space(t);
    buf_init(&d->text);
    buf_init(&d->weights);
    for (size_t i = 0; i < n_stops; i++) {
        memcpy(d->stops[i].text, stops[i].text, stops[i].len);
        d->stops[i].len = stops[i].len;
    }
    d->n_stops = n_stops;
    *out = d;
    return ST_OK;
}

void detok_free(struct detok *d)
{
    if (d == NULL)
        return;
    buf_dispose(&d->text);
    buf_dispose(&d->weights);
    free(d);
}

void detok_follow(struct detok *d, int32_t id)
{
    d->drops_space = tokenizer_adds_space(d->tokenizer) && tokenizer_is_control(d->tokenizer, id);
}

/* Length of the ill-formed sequence at s that one U+FFFD stands for: the longest beginning of a
 * character, at least one byte (Unicode 15, section 3.9, "maximal subpart"). */
static size_t subpart_length(const char *s, size_t len)
{
    size_t n = 1;

    while (n < len && utf8_decode(s, n + 1, NULL) == -1)
        n++;
    return n;
}

/* One for each of the bytes that stand for themselves. */
static void put_character(struct detok *d, const char *s, size_t len)
{
    buf_append(&d->text, s, len);
    for (size_t i = 0; i < len; i++)
        buf_putc(&d->weights, 1);
}

/* Its last byte stands for the n fed ones. */
static void put_replacement(struct detok *d, size_t n)
{
    buf_puts(&d->text, REPLACEMENT);
    for (size_t i = 0; i + 2 < sizeof REPLACEMENT; i++)
        buf_putc(&d->weights, 0);
    buf_putc(&d->weights, (char)n);
}

/* Moves the character at s into the text; 0: it is unfinished. */
static size_t take_character(struct detok *d, const char *s, size_t len)
{
    int n = utf8_decode(s, len, NULL);
    size_t subpart;

    if (n == -1)
        return 0;
    if (n > 0) {
        put_character(d, s, (size_t)n);
        return (size_t)n;
    }
    subpart = subpart_length(s, len);
    put_replacement(d, subpart);
    return subpart;
}

/* A byte at a time through the tail: pieces are a few bytes long. */
static void take_bytes(struct detok *d, const char *s, size_t len)
{
    char window[TAIL_MAX + 1];
    size_t n = d->tail_len, taken;

    memcpy(window, d->tail, n);
    for (size_t i = 0; i < len; i++) {
        window[n++] = s[i];
        while (n > 0 && (taken = take_character(d, window, n)) > 0) {
            n -= taken;
            memmove(window, window + taken, n);
        }
    }
    memcpy(d->tail, window, n);
    d->tail_len = n;
}

static bool ends_with(const char *text, size_t len, const char *end, size_t end_len)
{
    return len >= end_len && memcmp(text + len - end_len, end, end_len) == 0;
}

/* The longest stop string that the first `len` bytes end with; 0: none. */
static size_t stop_at(const struct detok *d, size_t len)
{
    size_t longest = 0;

    for (size_t i = 0; i < d->n_stops; i++) {
        const struct stop *s = &d->stops[i];

        if (s->len > longest && ends_with(d->text.data, len, s->text, s->len))
            longest = s->len;
    }
    return longest;
}

/* Finds the stop string that is complete first, whichever way the text was cut into tokens; text
 * before `from` was searched already. True: *at is where it begins. */
static bool find_stop(const struct detok *d, size_t from, size_t *at)
{
    for (size_t end = from + 1; d->n_stops > 0 && !d->ignores_stops && end <= d->text.len; end++) {
        size_t len = stop_at(d, end);

        if (len > 0) {
            *at = end - len;
            return true;
        }
    }
    return false;
}

/* Length of the longest end of the text that is a proper prefix of this stop string. */
static size_t prefix_length(const struct detok *d, const struct stop *s)
{
    size_t n = s->len - 1;

    if (n > d->text.len)
        n = d->text.len;
    while (n > 0 && !ends_with(d->text.data, d->text.len, s->text, n))
        n--;
    return n;
}

/* Sends the first n bytes and drops them. */
static void release(struct detok *d, size_t n, struct buf *out)
{
    if (d->text.failed || d->weights.failed)
        return;
    buf_append(out, d->text.data, n);
    for (size_t i = 0; i < n; i++)
        d->released_bytes += (uint8_t)d->weights.data[i];
    buf_consume(&d->text, n);
    buf_consume(&d->weights, n);
}

static void release_safe(struct detok *d, struct buf *out)
{
    size_t held = 0;

    for (size_t i = 0; i < d->n_stops && !d->ignores_stops; i++) {
        size_t n = prefix_length(d, &d->stops[i]);

        held = n > held ? n : held;
    }
    release(d, d->text.len - held, out);
}

/* True: stopped, and what came before the stop string is out. */
static bool stop_or_go_on(struct detok *d, size_t from, struct buf *out)
{
    size_t at;

    if (d->text.failed || d->weights.failed) {
        out->failed = true;
        return false;
    }
    if (!find_stop(d, from, &at))
        return false;
    release(d, at, out);
    d->stopped = true;
    return true;
}

void detok_search_stops(struct detok *d, bool on)
{
    d->ignores_stops = !on;
}

uint64_t detok_fed_bytes(const struct detok *d)
{
    return d->fed_bytes;
}

uint64_t detok_released_bytes(const struct detok *d)
{
    return d->released_bytes;
}

bool detok_feed(struct detok *d, int32_t id, struct buf *out)
{
    size_t searched = d->text.len, len;
    const char *piece;

    if (d->stopped)
        return true;
    if (tokenizer_is_control(d->tokenizer, id))
        return false;
    piece = tokenizer_piece(d->tokenizer, id, &len);
    if (len > 0 && d->drops_space && *piece == ' ') {
        piece++;
        len--;
    }
    d->drops_space = false;
    d->fed_bytes += len;
    take_bytes(d, piece, len);
    if (stop_or_go_on(d, searched, out))
        return true;
    release_safe(d, out);
    return false;
}

bool detok_flush(struct detok *d, struct buf *out)
{
    size_t searched = d->text.len;

    if (d->stopped)
        return true;
    if (d->tail_len > 0)
        put_replacement(d, d->tail_len);
    d->tail_len = 0;
    if (stop_or_go_on(d, searched, out))
        return true;
    release(d, d->text.len, out);
    return false;
}
