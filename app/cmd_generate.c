#include "app/cmd_generate.h"

#include <float.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/local_run.h"
#include "base/buf.h"
#include "base/id.h"
#include "base/json.h"
#include "base/size.h"
#include "engine/text/detok.h"

#define CHUNK_ROWS 256u /* tokens of one prefill step */

struct generate {
    struct local_options local;
    const char *prompt;
    long long max_tokens;
    struct sampling sampling;
    bool control; /* control tokens in the prompt are parsed */
    bool seeded;
    struct token_ids ids;       /* the prompt's */
    struct token_ids generated; /* room for max_tokens */
    struct buf text;            /* all that came out */
    const char *finish_reason;
};

static int usage(FILE *to, int code)
{
    fputs("usage: sluice generate --model PATH --prompt TEXT [OPTION...]\n"
          "  --prompt TEXT      what to continue; no chat template is applied\n"
          "  --max-tokens N     most tokens to generate (default 128)\n"
          "  --temperature T    0 (greedy, the default) to 2\n"
          "  --top-p P          above 0 to 1 (default 1: off)\n"
          "  --top-k K          0 (default): off\n"
          "  --min-p P          0 (off, the default) to 1: of the most probable token's share\n"
          "  --repetition-penalty R  above 0 to 2 (default 1: off), over prompt and output\n"
          "  --frequency-penalty F   -2 to 2 (default 0), over the output\n"
          "  --presence-penalty F    -2 to 2 (default 0), over the output\n"
          "  --seed N           the same seed gives the same tokens (default: random)\n"
          "  --no-special       control tokens in the prompt are plain text\n" LOCAL_HELP_TEXT,
          to);
    return code;
}

enum {
    PROMPT = LOCAL_END,
    MAX_TOKENS,
    TEMPERATURE,
    TOP_P,
    TOP_K,
    MIN_P,
    REPETITION_PENALTY,
    FREQUENCY_PENALTY,
    PRESENCE_PENALTY,
    SEED,
    NO_SPECIAL
};
static const struct option options[] = {
    LOCAL_OPTIONS,
    {"prompt", required_argument, NULL, PROMPT},
    {"max-tokens", required_argument, NULL, MAX_TOKENS},
    {"temperature", required_argument, NULL, TEMPERATURE},
    {"top-p", required_argument, NULL, TOP_P},
    {"top-k", required_argument, NULL, TOP_K},
    {"min-p", required_argument, NULL, MIN_P},
    {"repetition-penalty", required_argument, NULL, REPETITION_PENALTY},
    {"frequency-penalty", required_argument, NULL, FREQUENCY_PENALTY},
    {"presence-penalty", required_argument, NULL, PRESENCE_PENALTY},
    {"seed", required_argument, NULL, SEED},
    {"no-special", no_argument, NULL, NO_SPECIAL},
    {NULL, 0, NULL, 0},
};

static bool real_number(const char *text, float min, float max, float *out)
{
    char *end;
    float v = strtof(text, &end); /* "nan" is in no range */

    if (end == text || *end != '\0' || !(v >= min && v <= max))
        return false;
    *out = v;
    return true;
}

/* Values of the API's, api/params.c; what divides or must leave a token is more than 0 there, too.
 */
static const struct real_option {
    int option;
    float min, max;
    size_t offset; /* in struct sampling */
} real_options[] = {
    {TEMPERATURE, 0, 2, offsetof(struct sampling, temperature)},
    {TOP_P, FLT_TRUE_MIN, 1, offsetof(struct sampling, top_p)},
    {MIN_P, 0, 1, offsetof(struct sampling, min_p)},
    {REPETITION_PENALTY, FLT_TRUE_MIN, 2, offsetof(struct sampling, repetition_penalty)},
    {FREQUENCY_PENALTY, -2, 2, offsetof(struct sampling, frequency_penalty)},
    {PRESENCE_PENALTY, -2, 2, offsetof(struct sampling, presence_penalty)},
};

static const struct real_option *find_real(int option)
{
    for (size_t i = 0; i < COUNT_OF(real_options); i++)
        if (real_options[i].option == option)
            return &real_options[i];
    return NULL;
}

static bool take_number(struct generate *g, int c)
{
    const struct real_option *real = find_real(c);
    long long n;

    if (real != NULL)
        return real_number(optarg, real->min, real->max,
                           (void *)((char *)&g->sampling + real->offset));
    switch (c) {
    case MAX_TOKENS:
        return local_number(optarg, 1, INT32_MAX, &g->max_tokens);
    case TOP_K:
        if (!local_number(optarg, 0, INT32_MAX, &n))
            return false;
        g->sampling.top_k = (int32_t)n;
        return true;
    default: /* SEED */
        g->seeded = local_number(optarg, INT64_MIN, INT64_MAX, &n);
        g->sampling.seed = g->seeded ? (uint64_t)n : 0;
        return g->seeded;
    }
}

static bool take_option(struct generate *g, int c)
{
    switch (c) {
    case PROMPT:
        g->prompt = optarg;
        return true;
    case NO_SPECIAL:
        g->control = false;
        return true;
    case MAX_TOKENS:
    case TEMPERATURE:
    case TOP_P:
    case TOP_K:
    case MIN_P:
    case REPETITION_PENALTY:
    case FREQUENCY_PENALTY:
    case PRESENCE_PENALTY:
    case SEED:
        if (take_number(g, c))
            return true;
        fprintf(stderr, "%s is not a value that this option takes\n", optarg);
        return false;
    default:
        return local_option(&g->local, c, optarg);
    }
}

/* Text leaves as it is generated, unless the JSON object at the end carries it. */
static void emit(struct generate *g, size_t from)
{
    if (g->local.json)
        return;
    if (g->text.len > from)
        fwrite(g->text.data + from, 1, g->text.len - from, stdout);
    fflush(stdout);
}

static void keep_token(struct generate *g, struct detok *d, int32_t id)
{
    size_t from = g->text.len;

    g->generated.ids[g->generated.n++] = id;
    detok_feed(d, id, &g->text);
    emit(g, from);
}

/* One token at a time until an end-of-generation token, max_tokens or the context's end. */
static enum status decode(struct generate *g, struct local_run *r, const struct tokenizer *t,
                          struct detok *d)
{
    enum status st = local_prefill(r, 0, g->ids.ids, (uint32_t)g->ids.n);

    g->finish_reason = "length";
    for (uint32_t n = 0; st == ST_OK; n++) {
        struct local_feed feed = {.n = 1, .want = WANT_LAST, .output_index = n + 1};
        int32_t id = r->output.results[0].id;

        st = r->output.results[0].status;
        if (st != ST_OK)
            break;
        if (tokenizer_is_eog(t, id)) {
            g->finish_reason = "stop";
            break;
        }
        keep_token(g, d, id);
        if (n + 1 == (uint32_t)g->max_tokens)
            break;
        feed.ids = &id;
        feed.position = (uint32_t)g->ids.n + n;
        st = local_step(r, &feed, 1, false);
    }
    return st;
}

static void print_json(struct generate *g)
{
    struct buf b;

    buf_init(&b);
    buf_puts(&b, "{\"ids\":[");
    for (size_t i = 0; i < g->generated.n; i++)
        buf_printf(&b, "%s%d", i == 0 ? "" : ",", g->generated.ids[i]);
    buf_puts(&b, "],\"text\":");
    json_put_string(&b, buf_cstr(&g->text), g->text.len); /* a token may be a NUL byte */
    buf_puts(&b, ",\"finish_reason\":");
    json_put_cstr(&b, g->finish_reason);
    buf_printf(&b, ",\"prompt_tokens\":%zu}", g->ids.n);
    puts(buf_cstr(&b));
    buf_dispose(&b);
}

static enum status run_on(struct generate *g, struct local_run *r, const struct tokenizer *t,
                          struct reason *why)
{
    struct detok *d;
    enum status st = detok_new(t, NULL, 0, &d);
    size_t from;

    if (st != ST_OK)
        return fail(why, st, "%s", status_text(st));
    st = r->device->ops->slot_set(r->device, 0, &g->sampling, g->ids.ids, (uint32_t)g->ids.n,
                                  (uint32_t)g->ids.n);
    if (st == ST_OK)
        st = decode(g, r, t, d);
    if (st != ST_OK) {
        fail(why, st, "the model gave no finite logits: %s", status_text(st));
    } else {
        from = g->text.len;
        detok_flush(d, &g->text);
        emit(g, from);
        if (g->local.json)
            print_json(g);
        else
            putchar('\n');
    }
    detok_free(d);
    return st;
}

/* Encodes the prompt and cuts max_tokens to what the context leaves. */
static enum status prepare(struct generate *g, const struct model *m, const struct tokenizer *t,
                           struct reason *why)
{
    const struct text_span span = {
        .text = g->prompt, .len = strlen(g->prompt), .control = g->control};
    uint32_t context = m->shape.context_tokens;
    enum status st = tokenizer_encode(t, &span, 1, true, context, &g->ids);

    if (st != ST_OK)
        return fail(why, st, "the prompt: %s", status_text(st));
    if (g->ids.n == 0)
        return fail(why, ST_INVALID, "the prompt has no tokens");
    if (g->ids.n >= context)
        return fail(why, ST_TOO_LONG, "the prompt has %zu tokens, the context %u", g->ids.n,
                    context);
    if (g->max_tokens > (long long)(context - g->ids.n))
        g->max_tokens = (long long)(context - g->ids.n);
    g->generated.ids = calloc((size_t)g->max_tokens, sizeof *g->generated.ids);
    g->generated.cap = (size_t)g->max_tokens;
    return g->generated.ids != NULL ? ST_OK : fail(why, ST_NO_MEMORY, "no memory for tokens");
}

static enum status run(struct generate *g, struct reason *why)
{
    struct tokenizer *t = NULL;
    struct model *m = NULL;
    struct local_run r;
    enum status st = model_open(g->local.model_path, &m, why);

    if (st == ST_OK)
        st = tokenizer_new(m->gguf, &t, why);
    if (st == ST_OK)
        st = prepare(g, m, t, why);
    if (st == ST_OK)
        st = local_run_open(&r, &g->local, 1, (uint32_t)(g->ids.n + (size_t)g->max_tokens),
                            CHUNK_ROWS, why);
    if (st == ST_OK) {
        st = run_on(g, &r, t, why);
        local_run_close(&r);
    }
    tokenizer_free(t);
    model_close(m);
    return st;
}

int cmd_generate(int argc, char **argv)
{
    struct generate g = {.max_tokens = 128,
                         .control = true,
                         .sampling = {.temperature = 0, .top_p = 1, .repetition_penalty = 1}};
    struct reason why = {.text = ""};
    enum status st;
    int c;

    optind = 0;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == LOCAL_HELP)
            return usage(stdout, 0);
        if (!take_option(&g, c))
            return usage(stderr, EXIT_USAGE);
    }
    if (g.local.model_path == NULL || g.prompt == NULL || optind != argc)
        return usage(stderr, EXIT_USAGE);
    if (!g.seeded)
        random_bytes(&g.sampling.seed, sizeof g.sampling.seed);
    buf_init(&g.text);
    st = run(&g, &why);
    if (st != ST_OK)
        fprintf(stderr, "sluice generate: %s\n", why.text);
    buf_dispose(&g.text);
    token_ids_dispose(&g.ids);
    token_ids_dispose(&g.generated);
    return st == ST_OK ? 0 : EXIT_FAILED;
}
