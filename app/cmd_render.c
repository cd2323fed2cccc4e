#include "app/cmd_render.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/local_run.h"
#include "base/clock.h"
#include "base/json.h"
#include "engine/model/model.h"
#include "engine/text/template.h"
#include "engine/text/template_content.h"
#include "engine/text/tokenizer.h"

/* Above the body limit of the API: whatever a request can hold can be tried here. */
#define MESSAGES_BYTES_MAX ((size_t)64 << 20)

struct render {
    const char *model, *template, *messages, *tools, *documents; /* paths */
    const char *kwargs;                                          /* JSON */
    bool no_generation_prompt, continue_final_message, as_is, json;
};

static int usage(FILE *to, int code)
{
    fputs(
        "usage: sluice render --model PATH --messages FILE [options]\n"
        "  --model PATH              GGUF file or Hugging Face folder whose chat template is used\n"
        "  --template FILE           this chat template instead, with the model's BOS and EOS\n"
        "  --messages FILE           JSON: an array of messages, or an object with `messages` and\n"
        "                            maybe `tools`, `documents`, `chat_template_kwargs` and\n"
        "                            further variables; -: standard input\n"
        "  --tools FILE              JSON: an array of tools\n"
        "  --documents FILE          JSON: an array of documents\n"
        "  --kwargs JSON             further variables: '{\"enable_thinking\": false}'\n"
        "  --no-generation-prompt    end after the last message\n"
        "  --continue-final-message  end in the last message, after its text\n"
        "  --as-is                   don't bring contents into the form that the template takes\n"
        "                            (a string, or text parts)\n"
        "  --json                    {\"text\", \"spans\": [{\"start\", \"len\", "
        "\"from_template\"}]}\n"
        "The text is printed as it is, without a newline after it.\n",
        to);
    return code;
}

/* From NO_GENERATION_PROMPT and from MODEL on in the order of the tables in parse_options. */
enum {
    HELP = 256,
    NO_GENERATION_PROMPT,
    CONTINUE,
    AS_IS,
    JSON,
    MODEL,
    TEMPLATE,
    MESSAGES,
    TOOLS,
    DOCUMENTS,
    KWARGS
};
static const struct option options[] = {
    {"model", required_argument, NULL, MODEL},
    {"template", required_argument, NULL, TEMPLATE},
    {"messages", required_argument, NULL, MESSAGES},
    {"tools", required_argument, NULL, TOOLS},
    {"documents", required_argument, NULL, DOCUMENTS},
    {"kwargs", required_argument, NULL, KWARGS},
    {"no-generation-prompt", no_argument, NULL, NO_GENERATION_PROMPT},
    {"continue-final-message", no_argument, NULL, CONTINUE},
    {"as-is", no_argument, NULL, AS_IS},
    {"json", no_argument, NULL, JSON},
    {"help", no_argument, NULL, HELP},
    {NULL, 0, NULL, 0},
};

/* -1: go on; else the exit code. */
static int parse_options(int argc, char **argv, struct render *r)
{
    const char **const texts[] = {&r->model, &r->template,  &r->messages,
                                  &r->tools, &r->documents, &r->kwargs};
    bool *const flags[] = {&r->no_generation_prompt, &r->continue_final_message, &r->as_is,
                           &r->json};
    int c;

    optind = 0;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c >= MODEL && c <= KWARGS)
            *texts[c - MODEL] = optarg;
        else if (c >= NO_GENERATION_PROMPT && c <= JSON)
            *flags[c - NO_GENERATION_PROMPT] = true;
        else
            return c == HELP ? usage(stdout, 0) : usage(stderr, EXIT_USAGE);
    }
    return r->model != NULL && r->messages != NULL && optind == argc ? -1
                                                                     : usage(stderr, EXIT_USAGE);
}

/* ---- input ---- */

/* What a template gets, owned; documents and tools NULL where there are none. */
struct input {
    json_t *messages, *tools, *documents, *extra;
};

static void input_dispose(struct input *in)
{
    json_decref(in->messages);
    json_decref(in->tools);
    json_decref(in->documents);
    json_decref(in->extra);
}

static enum status read_json(const char *path, json_t **doc, struct reason *why)
{
    char *text = NULL;
    size_t len;
    enum status s = local_read(path, MESSAGES_BYTES_MAX, &text, &len, why);

    if (s == ST_OK)
        s = json_parse(text, len, JSON_DEPTH_MAX, doc, why);
    free(text);
    return s;
}

/* Replaces *array by the file's. */
static enum status read_array(const char *path, const char *what, json_t **array,
                              struct reason *why)
{
    json_t *doc = NULL;
    enum status s = path == NULL ? ST_OK : read_json(path, &doc, why);

    if (s != ST_OK)
        return s;
    if (doc != NULL) {
        json_decref(*array);
        *array = doc;
    }
    return *array == NULL || json_is_array(*array)
               ? ST_OK
               : fail(why, ST_INVALID, "the %s are not an array", what);
}

/* Takes a member out of the object; NULL when it has none, or null. */
static json_t *take_member(json_t *object, const char *name)
{
    json_t *v = json_incref(json_object_get(object, name));

    json_object_del(object, name);
    if (!json_is_null(v))
        return v;
    json_decref(v);
    return NULL;
}

/* The document is the array of messages, or an object that holds it among other variables. */
static enum status split_document(json_t *doc, struct input *in, struct reason *why)
{
    json_t *kwargs;
    int failed;

    if (!json_is_object(doc)) {
        in->messages = doc;
        in->extra = json_object();
        return in->extra != NULL ? ST_OK : fail(why, ST_NO_MEMORY, "out of memory");
    }
    in->extra = doc;
    in->messages = take_member(doc, "messages");
    in->tools = take_member(doc, "tools");
    in->documents = take_member(doc, "documents");
    kwargs = take_member(doc, "chat_template_kwargs");
    failed = kwargs == NULL ? 0 : json_object_update(doc, kwargs);
    json_decref(kwargs);
    return failed == 0 ? ST_OK : fail(why, ST_INVALID, "chat_template_kwargs is not an object");
}

static enum status add_kwargs(const char *text, json_t *extra, struct reason *why)
{
    json_t *kwargs = NULL;
    enum status s =
        text == NULL ? ST_OK : json_parse(text, strlen(text), JSON_DEPTH_MAX, &kwargs, why);

    if (s == ST_OK && kwargs != NULL && json_object_update(extra, kwargs) != 0)
        s = fail(why, ST_INVALID, "the kwargs are not an object");
    json_decref(kwargs);
    return s;
}

static enum status check_messages(const json_t *messages, struct reason *why)
{
    if (!json_is_array(messages))
        return fail(why, ST_INVALID, "the messages are not an array, nor an object with one");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i);

        if (!json_is_object(m) || !json_is_string(json_object_get(m, "role")))
            return fail(why, ST_INVALID, "message %zu is not an object with a role", i);
    }
    return ST_OK;
}

static enum status read_input(const struct render *r, struct input *in, struct reason *why)
{
    json_t *doc = NULL;
    enum status s = read_json(r->messages, &doc, why);

    if (s == ST_OK)
        s = split_document(doc, in, why);
    if (s == ST_OK)
        s = check_messages(in->messages, why);
    if (s == ST_OK)
        s = read_array(r->tools, "tools", &in->tools, why);
    if (s == ST_OK)
        s = read_array(r->documents, "documents", &in->documents, why);
    return s == ST_OK ? add_kwargs(r->kwargs, in->extra, why) : s;
}

/* ---- output ---- */

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
    else if (fwrite(buf_cstr(&out), 1, out.len, stdout) != out.len || fflush(stdout) != 0)
        s = fail(why, ST_IO, "cannot write to standard output: %s", strerror(errno));
    buf_dispose(&out);
    return s;
}

/* ---- the template ---- */

/* A file may hold a second template for chats with tools, as Hugging Face's named ones. */
static bool find_template(const struct gguf *g, bool has_tools, struct gguf_string *out)
{
    return (has_tools && gguf_get_string(g, "tokenizer.chat_template.tool_use", out)) ||
           gguf_get_string(g, "tokenizer.chat_template", out);
}

static enum status load_template(const struct render *r, const struct gguf *g, bool has_tools,
                                 struct template **out, struct reason *why)
{
    struct gguf_string source;
    char *text = NULL;
    size_t len;
    enum status s;

    if (r->template != NULL) {
        s = local_read(r->template, MESSAGES_BYTES_MAX, &text, &len, why);
        if (s == ST_OK)
            s = template_new(text, len, out, why);
        free(text);
        return s;
    }
    if (!find_template(g, has_tools, &source))
        return fail(why, ST_NOT_FOUND, "the model file has no chat template");
    return template_new(source.data, source.len, out, why);
}

/* Contents as the server gives them to the template. */
static enum status shape(const struct render *r, const struct template *t, struct input *in)
{
    json_t *messages;
    enum status s =
        r->as_is ? ST_OK
                 : template_shape_messages(template_content_forms(t), in->messages, &messages);

    if (!r->as_is && s == ST_OK) {
        json_decref(in->messages);
        in->messages = messages;
    }
    return s;
}

static enum status render_and_print(const struct render *r, const struct template *t,
                                    const struct tokenizer *tokenizer, const struct input *given,
                                    struct reason *why)
{
    const struct template_input in = {
        .messages = given->messages,
        .tools = given->tools,
        .documents = given->documents,
        .extra = given->extra,
        .bos_token = tokenizer_bos_text(tokenizer),
        .eos_token = tokenizer_eos_text(tokenizer),
        .add_generation_prompt = !r->no_generation_prompt && !r->continue_final_message,
        .continue_final_message = r->continue_final_message,
        .now_s = clock_wall_ms() / 1000,
    };
    struct rendered text = {0};
    enum status s = template_render(t, &in, &text, why);

    if (s == ST_OK)
        s = print(r, &text, why);
    rendered_dispose(&text);
    return s;
}

static enum status run(const struct render *r, struct reason *why)
{
    struct tokenizer *tokenizer = NULL;
    struct template *t = NULL;
    struct gguf *g = NULL;
    struct input in = {0};
    enum status s = read_input(r, &in, why);

    if (s == ST_OK)
        s = model_open_file(r->model, &g, why);
    if (s == ST_OK)
        s = tokenizer_new(g, &tokenizer, why);
    if (s == ST_OK)
        s = load_template(r, g, in.tools != NULL, &t, why);
    if (s == ST_OK)
        s = shape(r, t, &in);
    if (s == ST_OK)
        s = render_and_print(r, t, tokenizer, &in, why);
    template_free(t);
    tokenizer_free(tokenizer);
    gguf_close(g);
    input_dispose(&in);
    return s;
}

int cmd_render(int argc, char **argv)
{
    struct render r = {0};
    struct reason why = {{0}, {0}};
    int code = parse_options(argc, argv, &r);

    if (code != -1)
        return code;
    if (run(&r, &why) == ST_OK)
        return 0;
    fprintf(stderr, "sluice render: %s\n", why.text);
    return EXIT_FAILED;
}
