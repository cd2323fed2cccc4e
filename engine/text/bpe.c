#include "engine/text/bpe.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/text/byte_alphabet.h"
#include "engine/text/token_ids.h"

#define MERGES_MAX ((size_t)1 << 21)

static const char merges_key[] = "tokenizer.ggml.merges";

struct bpe_merge {
    int32_t left, right;
    int32_t result; /* -1: a free slot */
    uint32_t rank;
};

/* A doubly linked list in an array: merging two neighbours keeps the left and unlinks the right. */
struct bpe_symbol {
    int32_t id; /* -1: merged into its left neighbour */
    int32_t prev, next;
};

static size_t find_slot(const struct bpe *b, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t i = (size_t)((key * 0x9E3779B97F4A7C15u) >> 32) & b->mask;

    while (b->merges[i].result != -1 && (b->merges[i].left != left || b->merges[i].right != right))
        i = (i + 1) & b->mask;
    return i;
}

/* NULL: the pair doesn't merge. */
static const struct bpe_merge *find_merge(const struct bpe *b, int32_t left, int32_t right)
{
    const struct bpe_merge *m = &b->merges[find_slot(b, left, right)];

    return m->result != -1 ? m : NULL;
}

/* A token that plain text may become; -1: none. */
static int32_t find_plain(const struct vocab *v, const char *text, size_t len)
{
    int32_t id = vocab_find(v, text, len);

    return id != -1 && !vocab_is_control(v, id) ? id : -1;
}

/* "left right", parted by the first space: byte-level tokens contain none. */
static enum status add_merge(struct bpe *b, const struct gguf_string *s, uint32_t rank,
                             struct reason *why)
{
    const char *space = memchr(s->data, ' ', s->len);
    char joined[2 * 4096];
    size_t left_len, right_len;
    struct bpe_merge m = {.rank = rank};
    struct bpe_merge *slot;

    if (space == NULL || s->len > sizeof joined)
        return fail_param(why, ST_CORRUPT, merges_key, "merge %u is not a pair of tokens", rank);
    left_len = (size_t)(space - s->data);
    right_len = s->len - left_len - 1;
    memcpy(joined, s->data, left_len);
    memcpy(joined + left_len, space + 1, right_len);
    m.left = find_plain(b->vocab, s->data, left_len);
    m.right = find_plain(b->vocab, space + 1, right_len);
    m.result = find_plain(b->vocab, joined, left_len + right_len);
    if (m.left == -1 || m.right == -1 || m.result == -1)
        return fail_param(why, ST_CORRUPT, merges_key,
                          "merge %u names a token that the vocabulary lacks, or a control token",
                          rank);
    slot = &b->merges[find_slot(b, m.left, m.right)];
    if (slot->result != -1)
        return fail_param(why, ST_CORRUPT, merges_key, "merges %u and %u are the same pair",
                          slot->rank, rank);
    *slot = m;
    return ST_OK;
}

static bool make_table(struct bpe *b, size_t n)
{
    size_t slots = 8;

    while (slots < 2 * n)
        slots *= 2;
    b->mask = slots - 1;
    b->merges = malloc(slots * sizeof *b->merges);
    for (size_t i = 0; b->merges != NULL && i < slots; i++)
        b->merges[i].result = -1;
    return b->merges != NULL;
}

static enum status add_merges(struct bpe *b, const struct gguf *g, size_t n, struct reason *why)
{
    struct gguf_string *texts = calloc(n + 1, sizeof *texts);
    enum status s = ST_OK;

    if (texts == NULL || !make_table(b, n)) {
        free(texts);
        return fail(why, ST_NO_MEMORY, "out of memory for the merges");
    }
    (void)gguf_array_strings(g, merges_key, texts, n); /* bpe_init saw that they are there */
    for (size_t i = 0; i < n && s == ST_OK; i++)
        s = add_merge(b, &texts[i], (uint32_t)i, why);
    free(texts);
    return s;
}

static void find_bytes(struct bpe *b)
{
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte, spelled[BYTE_ALPHABET_CHAR_MAX];
        size_t len = byte_alphabet_encode_text(&c, 1, spelled);

        b->byte_ids[byte] = find_plain(b->vocab, spelled, len);
    }
}

enum status bpe_init(struct bpe *b, const struct vocab *v, const struct gguf *g, bool whole_first,
                     struct reason *why)
{
    enum gguf_type type = GGUF_ARRAY;
    size_t n = 0;

    *b = (struct bpe){.vocab = v, .whole_first = whole_first};
    if (!gguf_array(g, merges_key, &type, &n) || type != GGUF_STRING)
        return fail_param(why, ST_CORRUPT, merges_key, "the file has no list of merges (%s)",
                          merges_key);
    if (n > MERGES_MAX)
        return fail_param(why, ST_TOO_LARGE, merges_key, "%zu merges; at most %zu", n, MERGES_MAX);
    find_bytes(b);
    return add_merges(b, g, n, why);
}

void bpe_dispose(struct bpe *b)
{
    free(b->merges);
}

void bpe_scratch_dispose(struct bpe_scratch *s)
{
    free(s->symbols);
    free(s->heap);
}

static bool scratch_reserve(struct bpe_scratch *s, size_t n)
{
    size_t cap = s->cap > 0 ? s->cap : 256;

    if (n <= s->cap)
        return true;
    while (cap < n)
        cap *= 2;
    bpe_scratch_dispose(s);
    s->symbols = calloc(cap, sizeof *s->symbols);
    s->heap = calloc(cap, 2 * sizeof *s->heap);
    s->cap = s->symbols != NULL && s->heap != NULL ? cap : 0;
    return s->cap != 0;
}

/* A binary heap of candidates, smallest first: rank in the high half, so that the best merge comes
 * first and among equals the leftmost; position in the low half. */
static void heap_push(uint64_t *heap, size_t *n, uint64_t v)
{
    size_t i = (*n)++;

    for (; i > 0 && heap[(i - 1) / 2] > v; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = v;
}

static uint64_t heap_pop(uint64_t *heap, size_t *n)
{
    uint64_t top = heap[0], v = heap[--*n];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < *n) {
        if (child + 1 < *n && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= v)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = v;
    return top;
}

static const struct bpe_merge *merge_at(const struct bpe *b, const struct bpe_symbol *s,
                                        int32_t pos)
{
    if (pos < 0 || s[pos].id == -1 || s[pos].next < 0)
        return NULL;
    return find_merge(b, s[pos].id, s[s[pos].next].id);
}

static void push_candidate(const struct bpe *b, struct bpe_scratch *x, size_t *n_heap, int32_t pos)
{
    const struct bpe_merge *m = merge_at(b, x->symbols, pos);

    if (m != NULL)
        heap_push(x->heap, n_heap, (uint64_t)m->rank << 32 | (uint32_t)pos);
}

static void unlink_right(struct bpe_symbol *s, int32_t pos)
{
    int32_t right = s[pos].next;

    s[pos].next = s[right].next;
    if (s[right].next >= 0)
        s[s[right].next].prev = pos;
    s[right].id = -1;
}

/* Merges the best pair until none is left. The heap holds at most two entries for each symbol: one
 * pair each to begin with, and a merge, which removes a symbol, adds two for the one it took. A
 * candidate is stale when the pair at its position is no longer the one of its rank. */
static void merge_all(const struct bpe *b, struct bpe_scratch *x, size_t n)
{
    size_t n_heap = 0;

    for (size_t i = 0; i + 1 < n; i++)
        push_candidate(b, x, &n_heap, (int32_t)i);
    while (n_heap > 0) {
        uint64_t top = heap_pop(x->heap, &n_heap);
        int32_t pos = (int32_t)(uint32_t)top;
        const struct bpe_merge *m = merge_at(b, x->symbols, pos);

        if (m == NULL || m->rank != top >> 32)
            continue;
        x->symbols[pos].id = m->result;
        unlink_right(x->symbols, pos);
        push_candidate(b, x, &n_heap, x->symbols[pos].prev);
        push_candidate(b, x, &n_heap, pos);
    }
}

static size_t count_known(const struct bpe *b, const char *text, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++)
        n += b->byte_ids[(unsigned char)text[i]] != -1;
    return n;
}

static void fill_symbols(const struct bpe *b, struct bpe_symbol *s, const char *text, size_t len,
                         size_t n)
{
    size_t k = 0;

    for (size_t i = 0; i < len; i++) {
        int32_t id = b->byte_ids[(unsigned char)text[i]];

        if (id == -1)
            continue;
        s[k] = (struct bpe_symbol){id, (int32_t)k - 1, k + 1 < n ? (int32_t)k + 1 : -1};
        k++;
    }
    assert(k == n);
}

/* Id of the token that spells the whole pre-token; -1: none. */
static int32_t find_whole(const struct bpe *b, const char *text, size_t len)
{
    char spelled[512];

    if (len > sizeof spelled / BYTE_ALPHABET_CHAR_MAX || len > b->vocab->piece_max)
        return -1;
    return find_plain(b->vocab, spelled, byte_alphabet_encode_text(text, len, spelled));
}

static enum status encode_symbols(const struct bpe *b, struct bpe_scratch *x, size_t n,
                                  size_t max_tokens, struct token_ids *out)
{
    merge_all(b, x, n);
    for (int32_t i = 0; i >= 0; i = x->symbols[i].next) {
        enum status s = token_ids_add(out, x->symbols[i].id, max_tokens);

        if (s != ST_OK)
            return s;
    }
    return ST_OK;
}

enum status bpe_encode(const struct bpe *b, struct bpe_scratch *scratch, const char *text,
                       size_t len, size_t max_tokens, struct token_ids *out)
{
    int32_t whole = b->whole_first ? find_whole(b, text, len) : -1;
    size_t n = count_known(b, text, len);

    if (whole != -1)
        return token_ids_add(out, whole, max_tokens);
    if (n == 0)
        return ST_OK;
    /* Tokens of the longest kind would not fit: known before the work is done. */
    if (out->n > max_tokens || n / b->vocab->piece_max > max_tokens - out->n || n > INT32_MAX)
        return ST_TOO_LARGE;
    if (!scratch_reserve(scratch, n))
        return ST_NO_MEMORY;
    fill_symbols(b, scratch->symbols, text, len, n);
    return encode_symbols(b, scratch, n, max_tokens, out);
}
