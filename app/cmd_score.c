#include "app/cmd_score.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/local_run.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/utf8.h"

#define FILE_BYTES_MAX ((size_t)16 << 20)
#define TOP            5
#define CHUNK_ROWS     64u /* their logits are kept: 12 MB at a vocabulary of 49152 */

struct likely {
    int32_t id;
    float logprob;
};

struct score {
    struct local_options local;
    const char *file, *ids_file;
    bool control; /* control tokens in the text are parsed */
    struct token_ids ids;
    float *logprobs;           /* (n): of each token; the first has none */
    struct likely (*top)[TOP]; /* (n): the likeliest in its place, best first */
    uint32_t n_top;            /* TOP, or the vocabulary where that is smaller */
};

static int usage(FILE *to, int code)
{
    fputs("usage: sluice score --model PATH (--file FILE | --tokens IDSFILE) [--no-special]\n"
          "  --file FILE        text to score (\"-\": standard input)\n"
          "  --tokens IDSFILE   a JSON list of token ids, or what sluice tokenize prints\n"
          "  --no-special       control tokens in the text are plain text\n" LOCAL_HELP_TEXT
          "No BOS token is added.\n",
          to);
    return code;
}

enum { TEXT_FILE = LOCAL_END, IDS_FILE, NO_SPECIAL };
static const struct option options[] = {
    LOCAL_OPTIONS,
    {"file", required_argument, NULL, TEXT_FILE},
    {"tokens", required_argument, NULL, IDS_FILE},
    {"no-special", no_argument, NULL, NO_SPECIAL},
    {NULL, 0, NULL, 0},
};

static bool take_option(struct score *s, int c)
{
    switch (c) {
    case TEXT_FILE:
        s->file = optarg;
        return true;
    case IDS_FILE:
        s->ids_file = optarg;
        return true;
    case NO_SPECIAL:
        s->control = false;
        return true;
    default:
        return local_option(&s->local, c, optarg);
    }
}

static enum status ids_of_json(const json_t *root, const struct model *m, struct token_ids *out,
                               struct reason *why)
{
    const json_t *list = json_is_object(root) ? json_object_get(root, "ids") : root;
    size_t n = json_array_size(list);

    if (!json_is_array(list) || n > m->shape.context_tokens)
        return fail(why, ST_INVALID, "expected a list of at most %u token ids",
                    m->shape.context_tokens);
    out->ids = calloc(n + 1, sizeof *out->ids);
    if (out->ids == NULL)
        return fail(why, ST_NO_MEMORY, "no memory for %zu ids", n);
    out->cap = n + 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);

        if (!json_is_integer(v) || json_integer_value(v) < 0 ||
            json_integer_value(v) >= m->shape.n_vocab)
            return fail(why, ST_INVALID, "entry %zu is not a token id of this model", i);
        out->ids[out->n++] = (int32_t)json_integer_value(v);
    }
    return ST_OK;
}

static enum status read_ids(struct score *s, const struct model *m, struct reason *why)
{
    json_t *root = NULL;
    char *text = NULL;
    size_t len;
    enum status st = local_read(s->ids_file, FILE_BYTES_MAX, &text, &len, why);

    if (st == ST_OK)
        st = json_parse(text, len, JSON_DEPTH_MAX, &root, why);
    if (st == ST_OK)
        st = ids_of_json(root, m, &s->ids, why);
    json_decref(root);
    free(text);
    return st;
}

static enum status tokenize(struct score *s, const struct model *m, struct reason *why)
{
    struct tokenizer *t = NULL;
    char *text = NULL;
    size_t len;
    enum status st = local_read(s->file, FILE_BYTES_MAX, &text, &len, why);

    if (st == ST_OK)
        st = tokenizer_new(m->gguf, &t, why);
    if (st == ST_OK) {
        const struct text_span span = {.text = text, .len = len, .control = s->control};

        st = tokenizer_encode(t, &span, 1, false, m->shape.context_tokens, &s->ids);
        if (st != ST_OK)
            fail(why, st, "%s: %s", s->file, status_text(st));
    }
    tokenizer_free(t);
    free(text);
    return st;
}

/* Insertion into the best few: most ids fail the first comparison. */
static void find_top(const float *logits, uint32_t n_vocab, uint32_t n_top, struct likely *top)
{
    uint32_t n = 0;

    for (uint32_t id = 0; id < n_vocab; id++) {
        uint32_t at = n < n_top ? n : n_top;

        if (at == n_top && logits[id] <= top[n_top - 1].logprob)
            continue;
        if (n < n_top)
            n++;
        else
            at--;
        for (; at > 0 && top[at - 1].logprob < logits[id]; at--)
            top[at] = top[at - 1];
        top[at] = (struct likely){.id = (int32_t)id, .logprob = logits[id]};
    }
}

/* The row that read token t tells about token t + 1. */
static void keep_row(struct score *s, uint32_t next, const float *logits, uint32_t n_vocab)
{
    struct likely *top = s->top[next];
    double best, logit;

    find_top(logits, n_vocab, s->n_top, top);
    logit = top[0].logprob;
    best = sampler_logprob(logits, n_vocab, top[0].id);
    s->logprobs[next] = (float)(best + (logits[s->ids.ids[next]] - logit));
    for (uint32_t i = 0; i < s->n_top; i++)
        top[i].logprob = (float)(best + (top[i].logprob - logit));
}

static enum status score_chunk(struct score *s, struct local_run *r, uint32_t at, uint32_t n)
{
    struct local_feed feed = {.ids = s->ids.ids + at, .n = n, .position = at, .want = WANT_ALL};
    enum status st = local_step(r, &feed, 1, true);

    for (uint32_t i = 0; i < n && st == ST_OK; i++) {
        st = r->output.results[i].status;
        if (st == ST_OK)
            keep_row(s, at + i + 1, r->device->ops->logits(r->device, i), r->model->shape.n_vocab);
    }
    return st;
}

/* The last token is never read: nothing follows it. */
static enum status score_all(struct score *s, struct local_run *r, struct reason *why)
{
    uint32_t n = (uint32_t)s->ids.n;
    enum status st = ST_OK;

    s->n_top = r->model->shape.n_vocab < TOP ? r->model->shape.n_vocab : TOP;
    s->logprobs = calloc(n, sizeof *s->logprobs);
    s->top = calloc(n, sizeof *s->top);
    if (s->logprobs == NULL || s->top == NULL)
        return fail(why, ST_NO_MEMORY, "no memory for %u tokens", n);
    for (uint32_t at = 0; at + 1 < n && st == ST_OK; at += CHUNK_ROWS)
        st = score_chunk(s, r, at, n - 1 - at < CHUNK_ROWS ? n - 1 - at : CHUNK_ROWS);
    if (st != ST_OK)
        fail(why, st, "the model gave no finite logits: %s", status_text(st));
    return st;
}

static double mean(const struct score *s)
{
    double sum = 0;

    for (size_t i = 1; i < s->ids.n; i++)
        sum += s->logprobs[i];
    return s->ids.n > 1 ? sum / (double)(s->ids.n - 1) : 0;
}

static void print_json(const struct score *s)
{
    struct buf b;

    buf_init(&b);
    buf_puts(&b, "{\"ids\":[");
    for (size_t i = 0; i < s->ids.n; i++)
        buf_printf(&b, "%s%d", i == 0 ? "" : ",", s->ids.ids[i]);
    buf_puts(&b, "],\"logprobs\":[null");
    for (size_t i = 1; i < s->ids.n; i++)
        buf_printf(&b, ",%.6f", s->logprobs[i]);
    buf_puts(&b, "],\"top\":[null");
    for (size_t i = 1; i < s->ids.n; i++) {
        buf_puts(&b, ",[");
        for (uint32_t k = 0; k < s->n_top; k++)
            buf_printf(&b, "%s[%d,%.6f]", k == 0 ? "" : ",", s->top[i][k].id, s->top[i][k].logprob);
        buf_puts(&b, "]");
    }
    buf_printf(&b, "],\"mean\":%.6f}", mean(s));
    puts(buf_cstr(&b));
    buf_dispose(&b);
}

/* A piece as a JSON string: one line, whatever it holds; bytes of a broken character as U+FFFD. */
static void put_piece(struct buf *b, const struct tokenizer *t, int32_t id)
{
    size_t len;
    const char *piece = tokenizer_piece(t, id, &len);

    if (utf8_is_valid(piece, len))
        json_put_string(b, piece, len);
    else
        buf_puts(b, "\"\xef\xbf\xbd\"");
}

static enum status print_table(const struct score *s, const struct model *m, struct reason *why)
{
    struct tokenizer *t;
    enum status st = tokenizer_new(m->gguf, &t, why);
    struct buf b;

    if (st != ST_OK)
        return st;
    buf_init(&b);
    for (size_t i = 0; i < s->ids.n; i++) {
        buf_printf(&b, "%6zu %7d ", i, s->ids.ids[i]);
        if (i == 0)
            buf_puts(&b, "        -  ");
        else
            buf_printf(&b, "%9.4f  ", s->logprobs[i]);
        put_piece(&b, t, s->ids.ids[i]);
        for (uint32_t k = 0; k < s->n_top && i > 0; k++) {
            buf_puts(&b, k == 0 ? "   | " : "  ");
            put_piece(&b, t, s->top[i][k].id);
            buf_printf(&b, " %.3f", s->top[i][k].logprob);
        }
        buf_putc(&b, '\n');
    }
    buf_printf(&b, "mean %.6f over %zu tokens\n", mean(s), s->ids.n > 0 ? s->ids.n - 1 : 0);
    fputs(buf_cstr(&b), stdout);
    buf_dispose(&b);
    tokenizer_free(t);
    return ST_OK;
}

/* The ids must be known before the device is opened for that many; the model's file is mapped
 * twice for it, which costs nothing. */
static enum status load_ids(struct score *s, struct reason *why)
{
    struct model *m;
    enum status st = model_open(s->local.model_path, &m, why);

    if (st != ST_OK)
        return st;
    st = s->ids_file != NULL ? read_ids(s, m, why) : tokenize(s, m, why);
    model_close(m);
    if (st == ST_OK && s->ids.n == 0)
        return fail(why, ST_INVALID, "there are no tokens to score");
    return st;
}

static enum status run(struct score *s, struct reason *why)
{
    struct local_run r;
    enum status st = load_ids(s, why);

    if (st == ST_OK)
        st = local_run_open(&r, &s->local, 1, (uint32_t)s->ids.n, CHUNK_ROWS, why);
    if (st != ST_OK)
        return st;
    st = score_all(s, &r, why);
    if (st == ST_OK && s->local.json)
        print_json(s);
    else if (st == ST_OK)
        st = print_table(s, r.model, why);
    local_run_close(&r);
    return st;
}

int cmd_score(int argc, char **argv)
{
    struct score s = {.control = true};
    struct reason why = {.text = ""};
    enum status st;
    int c;

    optind = 0;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == LOCAL_HELP)
            return usage(stdout, 0);
        if (!take_option(&s, c))
            return usage(stderr, EXIT_USAGE);
    }
    if (s.local.model_path == NULL || (s.file == NULL) == (s.ids_file == NULL) || optind != argc)
        return usage(stderr, EXIT_USAGE);
    st = run(&s, &why);
    if (st != ST_OK)
        fprintf(stderr, "sluice score: %s\n", why.text);
    token_ids_dispose(&s.ids);
    free(s.logprobs);
    free(s.top);
    return st == ST_OK ? 0 : EXIT_FAILED;
}
