#include "app/cmd_render.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/local_run.h"
#include "base/clock.h"
#include "base/json.h"
#include "engine/model/gguf.h"
#include "engine/text/template.h"
#include "engine/text/tokenizer.h"

/* Above the body limit of the API: whatever a request can hold can be tried here. */
#define MESSAGES_BYTES_MAX ((size_t)64 << 20)

struct render {
    const char *model, *messages; /* paths */
    bool add_generation_prompt, json;
};

static int usage(FILE *to, int code)
{
    fputs("usage: sluice render --model PATH --messages FILE [--no-generation-prompt] [--json]\n"
          "  --model PATH            model file (GGUF) whose chat template is used\n"
          "  --messages FILE         JSON: an array of messages, or an object with `messages` and\n"
          "                          further variables (tools, ...); -: standard input\n"
          "  --no-generation-prompt  end after the last message\n"
          "  --json                  {\"text\", \"spans\": [{\"start\", \"len\", "
          "\"from_template\"}]}\n"
          "The text is printed as it is, without a newline after it.\n",
          to);
    return code;
}

enum { MODEL = 256, MESSAGES, NO_GENERATION_PROMPT, JSON, HELP };
static const struct option options[] = {
    {"model", required_argument, NULL, MODEL},
    {"messages", required_argument, NULL, MESSAGES},
    {"no-generation-prompt", no_argument, NULL, NO_GENERATION_PROMPT},
    {"json", no_argument, NULL, JSON},
    {"help", no_argument, NULL, HELP},
    {NULL, 0, NULL, 0},
};

/* -1: go on; else the exit code. */
static int parse_options(int argc, char **argv, struct render *r)
{
    int c;

    optind = 0;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case MODEL:
            r->model = optarg;
            break;
        case MESSAGES:
            r->messages = optarg;
            break;
        case NO_GENERATION_PROMPT:
            r->add_generation_prompt = false;
            break;
        case JSON:
            r->json = true;
            break;
        case HELP:
            return usage(stdout, 0);
        default:
            return usage(stderr, EXIT_USAGE);
        }
    }
    return r->model != NULL && r->messages != NULL && optind == argc ? -1
                                                                     : usage(stderr, EXIT_USAGE);
}

static enum status read_messages(const char *path, json_t **doc, struct reason *why)
{
    char *text = NULL;
    size_t len;
    enum status s = local_read(path, MESSAGES_BYTES_MAX, &text, &len, why);

    if (s == ST_OK)
        s = json_parse(text, len, JSON_DEPTH_MAX, doc, why);
    free(text);
    return s;
}

/* The document is the array of messages, or an object that holds it among other variables. */
static enum status split_document(const json_t *doc, struct template_input *in, struct reason *why)
{
    in->messages = json_is_object(doc) ? json_object_get(doc, "messages") : doc;
    in->extra = json_is_object(doc) ? doc : NULL;
    if (!json_is_array(in->messages))
        return fail(why, ST_INVALID, "the messages are not an array, nor an object with one");
    for (size_t i = 0; i < json_array_size(in->messages); i++) {
        const json_t *m = json_array_get(in->messages, i);

        if (!json_is_object(m) || !json_is_string(json_object_get(m, "role")))
            return fail(why, ST_INVALID, "message %zu is not an object with a role", i);
    }
    return ST_OK;
}

static void put_json(struct buf *out, const struct rendered *r)
{
    buf_puts(out, "{\"text\": ");
    json_put_string(out, r->text, r->len);
    buf_puts(out, ", \"spans\": [");
    for (size_t i = 0; i < r->n_spans; i++)
        buf_printf(out, "%s{\"start\": %zu, \"len\": %zu, \"from_template\": %s}",
                   i == 0 ? "" : ", ", r->spans[i].start, r->spans[i].len,
                   r->spans[i].from_template ? "true" : "false");
    buf_puts(out, "]}\n");
}

static enum status print(const struct render *r, const struct rendered *text, struct reason *why)
{
    enum status s = ST_OK;
    struct buf out;

    buf_init(&out);
    if (r->json)
        put_json(&out, text);
    else
        buf_append(&out, text->text, text->len);
    if (out.failed)
        s = fail(why, ST_NO_MEMORY, "out of memory");
    else if (fwrite(out.data, 1, out.len, stdout) != out.len || fflush(stdout) != 0)
        s = fail(why, ST_IO, "cannot write to standard output: %s", strerror(errno));
    buf_dispose(&out);
    return s;
}

static enum status load_template(const struct gguf *g, struct template **out, struct reason *why)
{
    struct gguf_string source;

    if (!gguf_get_string(g, "tokenizer.chat_template", &source))
        return fail(why, ST_NOT_FOUND, "the model file has no chat template");
    return template_new(source.data, source.len, out, why);
}

static enum status render_and_print(const struct render *r, const struct gguf *g,
                                    const struct tokenizer *tokenizer, const json_t *doc,
                                    struct reason *why)
{
    struct template_input in = {
        .bos_token = tokenizer_bos_text(tokenizer),
        .eos_token = tokenizer_eos_text(tokenizer),
        .add_generation_prompt = r->add_generation_prompt,
        .now_s = clock_wall_ms() / 1000,
    };
    struct rendered text = {0};
    struct template *t = NULL;
    enum status s = split_document(doc, &in, why);

    if (s == ST_OK)
        s = load_template(g, &t, why);
    if (s == ST_OK)
        s = template_render(t, &in, &text, why);
    if (s == ST_OK)
        s = print(r, &text, why);
    rendered_dispose(&text);
    template_free(t);
    return s;
}

static enum status run(const struct render *r, struct reason *why)
{
    struct tokenizer *tokenizer = NULL;
    struct gguf *g = NULL;
    json_t *doc = NULL;
    enum status s = read_messages(r->messages, &doc, why);

    if (s == ST_OK)
        s = gguf_open(r->model, &g, why);
    if (s == ST_OK)
        s = tokenizer_new(g, &tokenizer, why);
    if (s == ST_OK)
        s = render_and_print(r, g, tokenizer, doc, why);
    tokenizer_free(tokenizer);
    gguf_close(g);
    json_decref(doc);
    return s;
}

int cmd_render(int argc, char **argv)
{
    struct render r = {.add_generation_prompt = true};
    struct reason why = {{0}, {0}};
    int code = parse_options(argc, argv, &r);

    if (code != -1)
        return code;
    if (run(&r, &why) == ST_OK)
        return 0;
    fprintf(stderr, "sluice render: %s\n", why.text);
    return EXIT_FAILED;
}
