#include "app/cmd_tokenize.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/size.h"
#include "engine/model/model.h"
#include "engine/text/tokenizer.h"

/* A text is read whole. */
#define TEXT_BYTES_MAX ((size_t)256 << 20)
#define BENCH_RUNS     7

struct tokenize {
    const char *model, *file; /* file NULL: standard input */
    bool control;             /* control tokens in the text are parsed */
    bool bench;               /* the speed is printed instead of the ids */
};

static int usage(FILE *to, int code)
{
    fputs("usage: sluice tokenize --model PATH [--file FILE] [--no-special] [--json] [--bench]\n"
          "  --model PATH  GGUF file or Hugging Face folder\n"
          "  --file FILE   text to read (default: standard input)\n"
          "  --no-special  control tokens in the text are plain text, as in what users send\n"
          "  --json        {\"ids\": [...]}, which is also the default\n"
          "  --bench       how fast the text is tokenized on one thread, best of several times\n"
          "No BOS token is added.\n",
          to);
    return code;
}

enum { MODEL = 256, TEXT_FILE, NO_SPECIAL, JSON, BENCH, HELP };
static const struct option options[] = {
    {"model", required_argument, NULL, MODEL},
    {"file", required_argument, NULL, TEXT_FILE},
    {"no-special", no_argument, NULL, NO_SPECIAL},
    {"json", no_argument, NULL, JSON},
    {"bench", no_argument, NULL, BENCH},
    {"help", no_argument, NULL, HELP},
    {NULL, 0, NULL, 0},
};

/* -1: go on; else the exit code. */
static int parse_options(int argc, char **argv, struct tokenize *t)
{
    int c;

    optind = 0;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case MODEL:
            t->model = optarg;
            break;
        case TEXT_FILE:
            t->file = optarg;
            break;
        case NO_SPECIAL:
            t->control = false;
            break;
        case JSON:
            break;
        case BENCH:
            t->bench = true;
            break;
        case HELP:
            return usage(stdout, 0);
        default:
            return usage(stderr, 2);
        }
    }
    return t->model != NULL && optind == argc ? -1 : usage(stderr, 2);
}

static enum status read_stream(FILE *f, const char *name, struct buf *text, struct reason *why)
{
    char chunk[65536];
    size_t n;

    text->limit = TEXT_BYTES_MAX;
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0)
        buf_append(text, chunk, n);
    if (ferror(f))
        return fail(why, ST_IO, "cannot read %s: %s", name, strerror(errno));
    if (text->failed)
        return fail(why, ST_TOO_LARGE, "%s is larger than %zu bytes", name, TEXT_BYTES_MAX);
    return ST_OK;
}

static enum status read_text(const struct tokenize *t, struct buf *text, struct reason *why)
{
    enum status s;
    FILE *f;

    if (t->file == NULL)
        return read_stream(stdin, "standard input", text, why);
    f = fopen(t->file, "rb");
    if (f == NULL)
        return fail(why, ST_IO, "cannot open %s: %s", t->file, strerror(errno));
    s = read_stream(f, t->file, text, why);
    fclose(f);
    return s;
}

static enum status print_ids(const struct token_ids *ids, struct reason *why)
{
    enum status s = ST_OK;
    struct buf out;

    buf_init(&out);
    buf_puts(&out, "{\"ids\": [");
    for (size_t i = 0; i < ids->n; i++) {
        if (i > 0)
            buf_puts(&out, ", ");
        json_put_int(&out, ids->ids[i]);
    }
    buf_puts(&out, "]}\n");
    if (out.failed)
        s = fail(why, ST_NO_MEMORY, "out of memory");
    else if (fwrite(out.data, 1, out.len, stdout) != out.len || fflush(stdout) != 0)
        s = fail(why, ST_IO, "cannot write to standard output: %s", strerror(errno));
    buf_dispose(&out);
    return s;
}

/* The best of some runs: what disturbs one only makes it slower. */
static enum status print_speed(const struct tokenizer *tokenizer, const struct text_span *span)
{
    struct token_ids ids = {0};
    int64_t best_ns = INT64_MAX;
    enum status s = ST_OK;

    for (int i = 0; i < BENCH_RUNS && s == ST_OK; i++) {
        int64_t start_ns = clock_mono_ns();

        ids.n = 0;
        s = tokenizer_encode(tokenizer, span, 1, false, SIZE_MAX, &ids);
        best_ns = int64_min(best_ns, clock_mono_ns() - start_ns);
    }
    if (s == ST_OK)
        printf("{\"bytes\": %zu, \"tokens\": %zu, \"seconds\": %.6f}\n", span->len, ids.n,
               (double)best_ns / 1e9);
    token_ids_dispose(&ids);
    return s;
}

static enum status encode_and_print(const struct tokenize *t, const struct tokenizer *tokenizer,
                                    struct reason *why)
{
    struct token_ids ids = {0};
    struct buf text;
    enum status s;

    buf_init(&text);
    s = read_text(t, &text, why);
    if (s == ST_OK) {
        const struct text_span span = {text.data, text.len, t->control};

        s = t->bench ? print_speed(tokenizer, &span)
                     : tokenizer_encode(tokenizer, &span, 1, false, SIZE_MAX, &ids);
        if (s != ST_OK)
            (void)fail(why, s, "%s",
                       s == ST_INVALID ? "the text is not valid UTF-8" : status_text(s));
    }
    if (s == ST_OK && !t->bench)
        s = print_ids(&ids, why);
    token_ids_dispose(&ids);
    buf_dispose(&text);
    return s;
}

static enum status run(const struct tokenize *t, struct reason *why)
{
    struct tokenizer *tokenizer = NULL;
    struct gguf *g = NULL;
    enum status s = model_open_file(t->model, &g, why);

    if (s == ST_OK)
        s = tokenizer_new(g, &tokenizer, why);
    if (s == ST_OK)
        s = encode_and_print(t, tokenizer, why);
    tokenizer_free(tokenizer);
    gguf_close(g);
    return s;
}

int cmd_tokenize(int argc, char **argv)
{
    struct tokenize t = {.control = true};
    struct reason why = {{0}, {0}};
    int code = parse_options(argc, argv, &t);

    if (code != -1)
        return code;
    if (run(&t, &why) == ST_OK)
        return 0;
    fprintf(stderr, "sluice tokenize: %s\n", why.text);
    return 1;
}
