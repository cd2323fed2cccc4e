#include "app/cmd_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/local_run.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"

#define BATCHES_MAX 16
#define BATCH_MAX   256
#define CHUNK_ROWS  256u /* tokens of one prefill step */

struct bench {
    struct local_options local;
    long long prompt_tokens, gen_tokens;
    uint32_t batches[BATCHES_MAX];
    uint32_t n_batches;
    double prefill_s;             /* of one prompt */
    double decode_s[BATCHES_MAX]; /* of all steps */
    uint32_t most;                /* the largest batch */
    char device[64];
};

static int usage(FILE *to, int code)
{
    fputs("usage: sluice bench --model PATH [--prompt-tokens N] [--gen-tokens N] [--batch LIST]\n"
          "  --prompt-tokens N  tokens of each prompt (default 256)\n"
          "  --gen-tokens N     decode steps measured (default 32)\n"
          "  --batch LIST       sequences decoded together (default 1,8,32)\n" LOCAL_HELP_TEXT,
          to);
    return code;
}

static bool parse_batches(struct bench *b, const char *list)
{
    char copy[128], *save = NULL, *word;
    long long n;

    b->n_batches = 0;
    b->most = 0;
    if ((size_t)snprintf(copy, sizeof copy, "%s", list) >= sizeof copy)
        return false;
    for (word = strtok_r(copy, ",", &save); word != NULL; word = strtok_r(NULL, ",", &save)) {
        if (b->n_batches == BATCHES_MAX || !local_number(word, 1, BATCH_MAX, &n))
            return false;
        b->batches[b->n_batches++] = (uint32_t)n;
        b->most = n > b->most ? (uint32_t)n : b->most;
    }
    return b->n_batches > 0;
}

enum { PROMPT_TOKENS = LOCAL_END, GEN_TOKENS, BATCH };
static const struct option options[] = {
    LOCAL_OPTIONS,
    {"prompt-tokens", required_argument, NULL, PROMPT_TOKENS},
    {"gen-tokens", required_argument, NULL, GEN_TOKENS},
    {"batch", required_argument, NULL, BATCH},
    {NULL, 0, NULL, 0},
};

static bool take_number(struct bench *b, int c)
{
    switch (c) {
    case PROMPT_TOKENS:
        return local_number(optarg, 1, 1 << 20, &b->prompt_tokens);
    case GEN_TOKENS:
        return local_number(optarg, 1, 1 << 20, &b->gen_tokens);
    default: /* BATCH */
        return parse_batches(b, optarg);
    }
}

static bool take_option(struct bench *b, int c)
{
    if (c != PROMPT_TOKENS && c != GEN_TOKENS && c != BATCH)
        return local_option(&b->local, c, optarg);
    if (take_number(b, c))
        return true;
    fprintf(stderr, "%s is not a value that this option takes\n", optarg);
    return false;
}

/* Any ids do: the work doesn't depend on them. These don't repeat soon. */
static void fill_prompt(int32_t *ids, uint32_t n, uint32_t n_vocab)
{
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (int32_t)((i * 2654435761u + 12345u) % n_vocab);
}

static enum status decode(struct bench *b, struct local_run *r, uint32_t batch, double *seconds)
{
    struct local_feed feeds[BATCH_MAX];
    int32_t ids[BATCH_MAX];
    int64_t start = clock_mono_ns();

    for (uint32_t i = 0; i < batch; i++)
        ids[i] = (int32_t)i % (int32_t)r->model->shape.n_vocab;
    for (uint32_t t = 0; t < (uint32_t)b->gen_tokens; t++) {
        enum status s;

        for (uint32_t i = 0; i < batch; i++)
            feeds[i] = (struct local_feed){.sequence = i,
                                           .ids = &ids[i],
                                           .n = 1,
                                           .position = (uint32_t)b->prompt_tokens + t,
                                           .want = WANT_LAST,
                                           .output_index = t};
        s = local_step(r, feeds, batch, false);
        if (s != ST_OK)
            return s;
        for (uint32_t i = 0; i < batch; i++)
            ids[i] = r->output.results[i].id >= 0 ? r->output.results[i].id : 0;
    }
    *seconds = (double)(clock_mono_ns() - start) * 1e-9;
    return ST_OK;
}

/* Every sequence is prefilled once; decoding overwrites the same positions for each batch size. The
 * last prompt's time is reported: the first ones warm the memory. */
static enum status measure(struct bench *b, struct local_run *r)
{
    int32_t *ids = calloc((size_t)b->prompt_tokens, sizeof *ids);
    enum status s = ids == NULL ? ST_NO_MEMORY : ST_OK;
    uint32_t n_prompts = b->most > 2 ? b->most : 2;

    if (s == ST_OK)
        fill_prompt(ids, (uint32_t)b->prompt_tokens, r->model->shape.n_vocab);
    for (uint32_t i = 0; i < n_prompts && s == ST_OK; i++) {
        int64_t start = clock_mono_ns();

        s = local_prefill(r, i % b->most, ids, (uint32_t)b->prompt_tokens);
        b->prefill_s = (double)(clock_mono_ns() - start) * 1e-9;
    }
    for (uint32_t i = 0; i < b->n_batches && s == ST_OK; i++)
        s = decode(b, r, b->batches[i], &b->decode_s[i]);
    free(ids);
    return s;
}

static double decode_rate(const struct bench *b, uint32_t i)
{
    return (double)b->batches[i] * (double)b->gen_tokens / b->decode_s[i];
}

static void print_text(const struct bench *b)
{
    printf("device   %s\n", b->device);
    printf("prefill  %lld tokens  %9.1f tokens/s\n", b->prompt_tokens,
           (double)b->prompt_tokens / b->prefill_s);
    for (uint32_t i = 0; i < b->n_batches; i++)
        printf("decode   batch %-4u   %9.1f tokens/s  %7.2f ms/step\n", b->batches[i],
               decode_rate(b, i), b->decode_s[i] * 1e3 / (double)b->gen_tokens);
}

static void print_json(const struct bench *b)
{
    struct buf out;

    buf_init(&out);
    buf_puts(&out, "{\"device\":");
    json_put_cstr(&out, b->device);
    buf_printf(&out, ",\"prompt_tokens\":%lld,\"gen_tokens\":%lld,\"prefill_tokens_per_s\":%.2f",
               b->prompt_tokens, b->gen_tokens, (double)b->prompt_tokens / b->prefill_s);
    buf_puts(&out, ",\"decode\":[");
    for (uint32_t i = 0; i < b->n_batches; i++)
        buf_printf(&out, "%s{\"batch\":%u,\"tokens_per_s\":%.2f,\"step_ms\":%.3f}",
                   i == 0 ? "" : ",", b->batches[i], decode_rate(b, i),
                   b->decode_s[i] * 1e3 / (double)b->gen_tokens);
    buf_puts(&out, "]}");
    puts(buf_cstr(&out));
    buf_dispose(&out);
}

static int run(struct bench *b)
{
    uint32_t rows = CHUNK_ROWS > b->most ? CHUNK_ROWS : b->most;
    struct reason why = {.text = ""};
    struct local_run r;
    enum status s;

    s = local_run_open(&r, &b->local, b->most, (uint32_t)(b->prompt_tokens + b->gen_tokens), rows,
                       &why);
    if (s != ST_OK) {
        fprintf(stderr, "sluice bench: %s\n", why.text);
        return EXIT_FAILED;
    }
    snprintf(b->device, sizeof b->device, "%s", r.device->ops->describe(r.device));
    s = measure(b, &r);
    local_run_close(&r);
    if (s != ST_OK) {
        fprintf(stderr, "sluice bench: %s\n", status_text(s));
        return EXIT_FAILED;
    }
    if (b->local.json)
        print_json(b);
    else
        print_text(b);
    return 0;
}

int cmd_bench(int argc, char **argv)
{
    struct bench b = {.prompt_tokens = 256, .gen_tokens = 32};
    int c;

    (void)parse_batches(&b, "1,8,32");
    optind = 0;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == LOCAL_HELP)
            return usage(stdout, 0);
        if (!take_option(&b, c))
            return usage(stderr, EXIT_USAGE);
    }
    if (b.local.model_path == NULL || optind != argc)
        return usage(stderr, EXIT_USAGE);
    return run(&b);
}
