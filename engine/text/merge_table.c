/* Builds the table of merges.h from a file: from its list of pairs, or from its tokens' scores. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/text/merges.h"

/* Gemma's vocabulary, one of the largest, has 580,000. */
#define MERGES_MAX ((size_t)1 << 21)
/* SentencePiece's pieces have some dozens of bytes. The bound keeps looking at each place where a
 * token can be parted from taking quadratic time in a long one. */
#define SCORED_BYTES_MAX 256

static const char merges_key[] = "tokenizer.ggml.merges";
static const char scores_key[] = "tokenizer.ggml.scores";

static enum status make_table(struct merges *m, size_t n, struct reason *why)
{
    size_t slots = 8;

    if (n > MERGES_MAX)
        return fail_param(why, ST_TOO_LARGE, merges_key, "%zu merges; at most %zu", n, MERGES_MAX);
    while (slots < 2 * n)
        slots *= 2;
    m->mask = slots - 1;
    m->slots = malloc(slots * sizeof *m->slots);
    if (m->slots == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory for the merges");
    for (size_t i = 0; i < slots; i++)
        m->slots[i].result = -1;
    return ST_OK;
}

/* ---- from a list ---- */

/* "left right", parted by the first space: tokens spell theirs as another character. */
static enum status parse_merge(const struct vocab *v, const struct gguf_string *s,
                               struct merge *out, struct reason *why)
{
    const char *space = s->len > 0 ? memchr(s->data, ' ', s->len) : NULL;
    char joined[2 * 4096];
    size_t left_len, right_len;

    if (space == NULL || s->len > sizeof joined)
        return fail_param(why, ST_CORRUPT, merges_key, "merge %u is not a pair of tokens",
                          out->rank);
    left_len = (size_t)(space - s->data);
    right_len = s->len - left_len - 1;
    memcpy(joined, s->data, left_len);
    memcpy(joined + left_len, space + 1, right_len);
    out->left = vocab_find_plain(v, s->data, left_len);
    out->right = vocab_find_plain(v, space + 1, right_len);
    out->result = vocab_find_plain(v, joined, left_len + right_len);
    if (out->left == -1 || out->right == -1 || out->result == -1)
        return fail_param(why, ST_CORRUPT, merges_key,
                          "merge %u names a token that the vocabulary lacks, or a control token",
                          out->rank);
    return ST_OK;
}

static enum status add_listed(struct merges *m, const struct vocab *v, const struct gguf_string *s,
                              uint32_t rank, struct reason *why)
{
    struct merge parsed = {.rank = rank}, *slot;
    enum status status = parse_merge(v, s, &parsed, why);

    if (status != ST_OK)
        return status;
    slot = merges_slot(m, parsed.left, parsed.right);
    if (slot->result != -1)
        return fail_param(why, ST_CORRUPT, merges_key, "merges %u and %u are the same pair",
                          slot->rank, rank);
    *slot = parsed;
    return ST_OK;
}

enum status merges_from_list(struct merges *m, const struct vocab *v, const struct gguf *g,
                             struct reason *why)
{
    enum gguf_type type = GGUF_ARRAY;
    struct gguf_string *texts;
    size_t n = 0;
    enum status s;

    if (!gguf_array(g, merges_key, &type, &n) || type != GGUF_STRING)
        return fail_param(why, ST_CORRUPT, merges_key, "the file has no list of merges (%s)",
                          merges_key);
    s = make_table(m, n, why);
    if (s != ST_OK)
        return s;
    texts = calloc(n + 1, sizeof *texts);
    if (texts == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory for the merges");
    (void)gguf_array_strings(g, merges_key, texts, n); /* they are there: see above */
    for (size_t i = 0; i < n && s == ST_OK; i++)
        s = add_listed(m, v, &texts[i], (uint32_t)i, why);
    free(texts);
    return s;
}

/* ---- from scores ---- */

static bool is_scored(const struct vocab *v, uint32_t id)
{
    enum token_type type = v->tokens[id].type;

    return type == TOKEN_NORMAL || type == TOKEN_USER_DEFINED;
}

static int by_score(const void *a, const void *b)
{
    const struct vocab_token *x = *(const struct vocab_token *const *)a;
    const struct vocab_token *y = *(const struct vocab_token *const *)b;

    return (x->score < y->score) - (x->score > y->score);
}

/* ranks[id]: how many scores are better. Tokens of one score share a rank, so that the leftmost
 * goes first. */
static bool rank_scores(const struct vocab *v, uint32_t *ranks)
{
    const struct vocab_token **sorted = calloc(v->n, sizeof *sorted);
    uint32_t rank = 0;

    if (sorted == NULL)
        return false;
    for (uint32_t i = 0; i < v->n; i++)
        sorted[i] = &v->tokens[i];
    qsort(sorted, v->n, sizeof *sorted, by_score);
    for (uint32_t i = 0; i < v->n; i++) {
        rank += i > 0 && sorted[i]->score < sorted[i - 1]->score;
        ranks[sorted[i] - v->tokens] = rank;
    }
    free(sorted);
    return true;
}

/* Every way to part token `id` into two tokens; with a table they are noted there. Returns how many
 * there are. */
static size_t part_token(struct merges *m, const struct vocab *v, uint32_t id, uint32_t rank)
{
    const struct vocab_token *t = &v->tokens[id];
    size_t n = 0;

    for (uint32_t at = 1; at < t->text_len; at++) {
        struct merge found = {.result = (int32_t)id, .rank = rank};

        if (((unsigned char)t->text[at] & 0xC0) == 0x80)
            continue; /* within a character */
        found.left = vocab_find_plain(v, t->text, at);
        if (found.left == -1)
            continue;
        found.right = vocab_find_plain(v, t->text + at, t->text_len - at);
        if (found.right == -1)
            continue;
        n++;
        if (m->slots != NULL)
            *merges_slot(m, found.left, found.right) = found;
    }
    return n;
}

static size_t part_tokens(struct merges *m, const struct vocab *v, const uint32_t *ranks)
{
    size_t n = 0;

    for (uint32_t i = 0; i < v->n; i++)
        if (is_scored(v, i))
            n += part_token(m, v, i, ranks[i]);
    return n;
}

static enum status check_lengths(const struct vocab *v, struct reason *why)
{
    for (uint32_t i = 0; i < v->n; i++)
        if (is_scored(v, i) && v->tokens[i].text_len > SCORED_BYTES_MAX)
            return fail_param(why, ST_TOO_LARGE, scores_key,
                              "token %u has %u bytes; at most %d in a vocabulary with scores", i,
                              v->tokens[i].text_len, SCORED_BYTES_MAX);
    return ST_OK;
}

enum status merges_from_scores(struct merges *m, const struct vocab *v, struct reason *why)
{
    uint32_t *ranks = calloc(v->n, sizeof *ranks);
    enum status s = check_lengths(v, why);

    if (ranks == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory for the scores");
    if (!rank_scores(v, ranks))
        s = fail(why, ST_NO_MEMORY, "out of memory for the scores");
    if (s == ST_OK)
        s = make_table(m, part_tokens(m, v, ranks), why); /* no table yet: they are counted */
    if (s == ST_OK)
        (void)part_tokens(m, v, ranks);
    free(ranks);
    return s;
}
