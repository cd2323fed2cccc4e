#define PCRE2_CODE_UNIT_WIDTH 8
#include "engine/text/pretokenize.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/printable.h"
#include "engine/text/pretokenize_patterns.h"

struct pretokenizer {
    pcre2_code *stages[PRETOKENIZE_STAGES_MAX];
    size_t n_stages;
};

struct pretokenize_scratch {
    pcre2_match_data
        *match[PRETOKENIZE_STAGES_MAX]; /* a stage runs inside the loop of the one before */
};

static enum status fail_name(const struct gguf_string *name, struct reason *why)
{
    char shown[64];

    printable(name->data, name->len, shown, sizeof shown);
    return fail_param(why, ST_UNSUPPORTED, "tokenizer.ggml.pre",
                      "pre-tokenizer \"%s\" (tokenizer.ggml.pre) is not supported; supported are, "
                      "among others, gpt-2, llama-bpe, qwen2, deepseek-v3, gpt-4o, smollm, falcon, "
                      "starcoder, tekken",
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

static bool add_stages(struct pretokenizer *p, const struct pretokenize_row *row)
{
    for (size_t i = 0; i < PRETOKENIZE_STAGES_MAX && row->patterns[i] != NULL; i++)
        if (!add_stage(p, row->patterns[i]))
            return false;
    return true;
}

enum status pretokenizer_new(const struct gguf_string *name, struct pretokenizer **out,
                             struct pretokenizer_traits *traits, struct reason *why)
{
    const struct pretokenize_row *row = pretokenize_find(name);
    struct pretokenizer *p;

    if (row == NULL)
        return fail_name(name, why);
    p = calloc(1, sizeof *p);
    if (p == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory");
    if (!add_stages(p, row)) {
        pretokenizer_free(p);
        return fail(why, ST_INTERNAL, "a pattern of pre-tokenizer %s does not compile", row->name);
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
    for (size_t i = 0; i < PRETOKENIZE_STAGES_MAX; i++)
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
 * own, so that a look-ahead sees its end. Recursion is PRETOKENIZE_STAGES_MAX deep. */
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
