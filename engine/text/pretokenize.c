#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/text/pretokenize.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

#define STAGES_MAX 2

/* Unicode's White_Space, spelled out: PCRE2's \s has U+180E besides, which lost the property in
 * Unicode 6.3. To be used inside a class. */
#define WS                                                                                         \
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{"    \
    "205f}\\x{3000}"

/* One numeric character at a time (Hugging Face: Digits, individual_digits). */
static const char digits_pattern[] = "\\p{N}";
/* GPT-2's (Hugging Face: ByteLevel, use_regex). */
static const char gpt2_pattern[] = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS
                                   "\\p{L}\\p{N}]+|[" WS "]+(?![^" WS "])|[" WS "]+";
/* Llama 3's. */
static const char llama3_pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^" WS
    "\\p{L}\\p{N}]+[\\r\\n]*|[" WS "]*[\\r\\n]+|[" WS "]+(?![^" WS "])|[" WS "]+";

/* Each pattern cuts the pieces that the one before it left: matches and what lies between them. The
 * name "default" is not here: it says that the converter didn't know. */
static const struct row {
    const char *name;
    const char *patterns[STAGES_MAX];
    struct pretokenizer_traits traits;
} rows[] = {
    {"smollm", {digits_pattern, gpt2_pattern}, {false, false}},
    {"gpt-2", {gpt2_pattern}, {false, false}},
    {"gpt2", {gpt2_pattern}, {false, false}},
    {"llama-bpe", {llama3_pattern}, {true, true}},
    {"llama3", {llama3_pattern}, {true, true}},
    {"llama-v3", {llama3_pattern}, {true, true}},
};

struct pretokenizer {
    pcre2_code *stages[STAGES_MAX];
    size_t n_stages;
};

struct pretokenize_scratch {
    pcre2_match_data *match[STAGES_MAX]; /* a stage runs inside the loop of the one before */
};

static const struct row *find_row(const struct gguf_string *name)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (name->len == strlen(rows[i].name) && memcmp(name->data, rows[i].name, name->len) == 0)
            return &rows[i];
    return NULL;
}

static enum status fail_name(const struct gguf_string *name, struct reason *why)
{
    char shown[64];
    size_t n = name->len < sizeof shown - 1 ? name->len : sizeof shown - 1;

    for (size_t i = 0; i < n; i++)
        shown[i] = name->data[i] > 0x20 && name->data[i] < 0x7F ? name->data[i] : '?';
    shown[n] = 0;
    return fail_param(why, ST_UNSUPPORTED, "tokenizer.ggml.pre",
                      "pre-tokenizer \"%s\" (tokenizer.ggml.pre) is not supported; supported: "
                      "smollm, gpt-2, llama-bpe",
                      shown);
}

/* Without JIT (forbidden by a sandbox, or no such processor) PCRE2 interprets: slower, and the
 * same. */
static bool add_stage(struct pretokenizer *p, const char *pattern)
{
    PCRE2_SIZE at;
    int error;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &error, &at, NULL);

    if (code == NULL)
        return false;
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    p->stages[p->n_stages++] = code;
    return true;
}

enum status pretokenizer_new(const struct gguf_string *name, struct pretokenizer **out,
                             struct pretokenizer_traits *traits, struct reason *why)
{
    const struct row *row = find_row(name);
    struct pretokenizer *p;

    if (row == NULL)
        return fail_name(name, why);
    p = calloc(1, sizeof *p);
    if (p == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < STAGES_MAX && row->patterns[i] != NULL; i++) {
        if (!add_stage(p, row->patterns[i])) {
            pretokenizer_free(p);
            return fail(why, ST_INTERNAL, "the pattern of pre-tokenizer %s does not compile",
                        row->name);
        }
    }
    *traits = row->traits;
    *out = p;
    return ST_OK;
}

void pretokenizer_free(struct pretokenizer *p)
{
    if (p == NULL)
        return;
    for (size_t i = 0; i < p->n_stages; i++)
        pcre2_code_free(p->stages[i]);
    free(p);
}

struct pretokenize_scratch *pretokenize_scratch_new(const struct pretokenizer *p)
{
    struct pretokenize_scratch *x = calloc(1, sizeof *x);

    if (x == NULL)
        return NULL;
    for (size_t i = 0; i < p->n_stages; i++) {
        x->match[i] = pcre2_match_data_create(1, NULL);
        if (x->match[i] == NULL) {
            pretokenize_scratch_free(x);
            return NULL;
        }
    }
    return x;
}

void pretokenize_scratch_free(struct pretokenize_scratch *x)
{
    if (x == NULL)
        return;
    for (size_t i = 0; i < STAGES_MAX; i++)
        pcre2_match_data_free(x->match[i]);
    free(x);
}

struct cut {
    const struct pretokenizer *p;
    struct pretokenize_scratch *x;
    enum status (*on_piece)(void *arg, const char *s, size_t n);
    void *arg;
};

/* Cuts one piece by stage `stage` and hands the parts to the next. The piece is a subject of its
 * own, so that a look-ahead sees its end. Recursion is STAGES_MAX deep. */
static enum status cut_piece(const struct cut *c, size_t stage, const char *text, size_t len)
{
    size_t at = 0;
    enum status s = ST_OK;

    if (len == 0)
        return ST_OK;
    if (stage == c->p->n_stages)
        return c->on_piece(c->arg, text, len);
    while (at < len && s == ST_OK) {
        pcre2_match_data *match = c->x->match[stage];
        const PCRE2_SIZE *found = pcre2_get_ovector_pointer(match);
        /* The text was checked once: checking it at each match would make this quadratic. */
        int rc = pcre2_match(c->p->stages[stage], (PCRE2_SPTR)text, len, at,
                             PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match, NULL);
        size_t end;

        if (rc == PCRE2_ERROR_NOMATCH)
            return cut_piece(c, stage + 1, text + at, len - at);
        if (rc < 0)
            return rc == PCRE2_ERROR_NOMEMORY ? ST_NO_MEMORY : ST_TOO_LARGE;
        end = found[1];
        s = cut_piece(c, stage + 1, text + at, found[0] - at);
        if (s == ST_OK)
            s = cut_piece(c, stage + 1, text + found[0], end - found[0]);
        at = end;
    }
    return s;
}

enum status pretokenize(const struct pretokenizer *p, struct pretokenize_scratch *x,
                        const char *text, size_t len,
                        enum status (*on_piece)(void *arg, const char *s, size_t n), void *arg)
{
    const struct cut c = {p, x, on_piece, arg};

    return cut_piece(&c, 0, text, len);
}
