#include "app/cmd_inspect.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "engine/model/model.h"
#include "engine/text/tokenizer.h"

/* Type ids end below this (tensor_type_name). */
#define TYPES_MAX   64
#define CONTEXT_MAX ((uint32_t)1 << 24)

struct type_use {
    uint64_t tensors, bytes;
};

/* What is shown, as text and as JSON. */
struct report {
    const struct model *model;
    const struct tokenizer *tokenizer;
    uint64_t parameters;
    struct type_use types[TYPES_MAX];
    struct gguf_string kind, pre;
    bool has_template;
    uint32_t context; /* tokens for the KV memory below */
    uint64_t kv_f16_bytes, kv_f32_bytes;
};

struct inspect {
    const char *path;
    bool json;
    uint32_t context; /* 0: the model's */
};

static int usage(FILE *to, int code)
{
    fputs("usage: sluice inspect PATH [--context N] [--json]\n"
          "  PATH         GGUF file or Hugging Face folder\n"
          "  --context N  tokens to state the KV memory for (default: the model's context)\n"
          "  --json       for programs\n",
          to);
    return code;
}

static bool parse_context(const char *s, uint32_t *out)
{
    char *end;
    unsigned long long v;

    errno = 0;
    v = strtoull(s, &end, 10);
    if (s[0] < '0' || s[0] > '9' || *end != 0 || errno != 0 || v == 0 || v > CONTEXT_MAX)
        return false;
    *out = (uint32_t)v;
    return true;
}

enum { CONTEXT = 256, JSON, HELP };
static const struct option options[] = {
    {"context", required_argument, NULL, CONTEXT},
    {"json", no_argument, NULL, JSON},
    {"help", no_argument, NULL, HELP},
    {NULL, 0, NULL, 0},
};

/* -1: go on; else the exit code. */
static int parse_options(int argc, char **argv, struct inspect *o)
{
    int c;

    optind = 0;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == HELP)
            return usage(stdout, 0);
        if (c == JSON)
            o->json = true;
        else if (c != CONTEXT || !parse_context(optarg, &o->context))
            return usage(stderr, 2);
    }
    if (optind + 1 != argc)
        return usage(stderr, 2);
    o->path = argv[optind];
    return -1;
}

static void count_tensors(struct report *r)
{
    const struct gguf *g = r->model->gguf;

    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct tensor *t = gguf_tensor_at(g, i);

        r->parameters += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
        r->types[t->type].tensors++;
        r->types[t->type].bytes += t->bytes;
    }
}

static struct report make_report(const struct model *m, const struct tokenizer *t, uint32_t context)
{
    const struct model_shape *p = &m->shape;
    struct report r = {.model = m, .tokenizer = t};
    uint64_t values;

    count_tensors(&r);
    (void)gguf_get_string(m->gguf, "tokenizer.ggml.model", &r.kind);
    (void)gguf_get_string(m->gguf, "tokenizer.ggml.pre", &r.pre);
    r.has_template = gguf_has(m->gguf, "tokenizer.chat_template");
    r.context = context != 0 ? context : p->context_tokens;
    /* A key and a value of each KV head in each layer for every token. */
    values = (uint64_t)2 * p->n_layers * p->n_kv_heads * p->head_dim * r.context;
    r.kv_f16_bytes = 2 * values;
    r.kv_f32_bytes = 4 * values;
    return r;
}

static void print_mib(const char *what, uint64_t bytes)
{
    printf("%-18s%.1f MiB\n", what, (double)bytes / (1 << 20));
}

static void print_special(const struct report *r, const char *what, int32_t id)
{
    size_t len;

    if (id != -1)
        printf("%-18s%d %s\n", what, id, tokenizer_piece(r->tokenizer, id, &len));
}

static const char *scaling_name(enum rope_scaling s)
{
    static const char *const names[] = {[ROPE_PLAIN] = "none",
                                        [ROPE_LINEAR] = "linear",
                                        [ROPE_YARN] = "yarn",
                                        [ROPE_LONGROPE] = "longrope"};

    return names[s];
}

static void print_rope(const struct model_rope *p)
{
    printf("%-18s%u dimensions, base %g", "rope", p->dims, (double)p->base);
    if (p->window_base != 0.0f)
        printf(" (%g in windowed layers)", (double)p->window_base);
    if (p->divisors != NULL)
        printf(", scaled by a table (llama3)");
    if (p->scaling != ROPE_PLAIN)
        printf(", %s scaling by %g from %u tokens", scaling_name(p->scaling), (double)p->factor,
               p->original_context);
    putchar('\n');
}

static uint32_t n_windowed(const struct model *m)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < m->shape.n_layers; i++)
        n += m->layers[i].windowed;
    return n;
}

static void print_text(const struct report *r)
{
    const struct model_shape *p = &r->model->shape;

    printf("%-18s%s\n%-18s%s\n", "architecture", r->model->arch->name, "name", r->model->name);
    printf("%-18s%.1f million\n", "parameters", (double)r->parameters / 1e6);
    printf("%-18s%u layers, width %u, feed-forward %u\n", "shape", p->n_layers, p->n_embd, p->n_ff);
    printf("%-18s%u query, %u KV, %u dimensions each\n", "heads", p->n_heads, p->n_kv_heads,
           p->head_dim);
    print_rope(&p->rope);
    if (p->window != 0)
        printf("%-18s%u tokens in %u of %u layers\n", "window", p->window, n_windowed(r->model),
               p->n_layers);
    printf("%-18s%u tokens\n", "context", p->context_tokens);
    print_mib("file", gguf_file_bytes(r->model->gguf));
    for (uint32_t i = 0; i < TYPES_MAX; i++)
        if (r->types[i].tensors > 0)
            printf("  %-16s%" PRIu64 " tensors, %.1f MiB\n", tensor_type_name(i),
                   r->types[i].tensors, (double)r->types[i].bytes / (1 << 20));
    printf("%-18s%s\n", "output", r->model->output == r->model->token_embd ? "tied" : "its own");
    printf("%-18s%.*s, pre-tokenizer %.*s, %u tokens\n", "tokenizer", (int)r->kind.len,
           r->kind.data, (int)r->pre.len, r->pre.data, tokenizer_n_vocab(r->tokenizer));
    print_special(r, "  bos", tokenizer_bos_id(r->tokenizer));
    print_special(r, "  eos", tokenizer_eos_id(r->tokenizer));
    for (uint32_t i = 0; i < tokenizer_n_vocab(r->tokenizer); i++)
        if (tokenizer_is_eog(r->tokenizer, (int32_t)i))
            print_special(r, "  ends a turn", (int32_t)i);
    printf("%-18s%s\n", "chat template", r->has_template ? "yes" : "no");
    printf("%-18s%.1f MiB in F16, %.1f MiB in F32, for %u tokens\n", "KV memory",
           (double)r->kv_f16_bytes / (1 << 20), (double)r->kv_f32_bytes / (1 << 20), r->context);
    printf("%-18s%s\n", "revision", r->model->revision);
}

static json_t *id_or_null(int32_t id)
{
    return id != -1 ? json_integer(id) : json_null();
}

static json_t *shape_json(const struct model_shape *p)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s, s:f, s:I, s:f}",
                     "n_layers", (json_int_t)p->n_layers, "n_embd", (json_int_t)p->n_embd, "n_ff",
                     (json_int_t)p->n_ff, "n_heads", (json_int_t)p->n_heads, "n_kv_heads",
                     (json_int_t)p->n_kv_heads, "head_dim", (json_int_t)p->head_dim,
                     "context_tokens", (json_int_t)p->context_tokens, "rope_dims",
                     (json_int_t)p->rope.dims, "rope_base", (double)p->rope.base, "rope_scaling",
                     scaling_name(p->rope.scaling), "rope_factor", (double)p->rope.factor, "window",
                     (json_int_t)p->window, "norm_eps", (double)p->norm_eps);
}

static json_t *types_json(const struct report *r)
{
    json_t *all = json_object();

    for (uint32_t i = 0; i < TYPES_MAX; i++)
        if (r->types[i].tensors > 0)
            json_object_set_new(all, tensor_type_name(i),
                                json_pack("{s:I, s:I}", "tensors", (json_int_t)r->types[i].tensors,
                                          "bytes", (json_int_t)r->types[i].bytes));
    return all;
}

static json_t *tokenizer_json(const struct report *r)
{
    json_t *eog = json_array();

    for (uint32_t i = 0; i < tokenizer_n_vocab(r->tokenizer); i++)
        if (tokenizer_is_eog(r->tokenizer, (int32_t)i))
            json_array_append_new(eog, json_integer(i));
    return json_pack("{s:s%, s:s%, s:I, s:o, s:o, s:o}", "kind", r->kind.data, r->kind.len, "pre",
                     r->pre.data, r->pre.len, "n_vocab",
                     (json_int_t)tokenizer_n_vocab(r->tokenizer), "bos_id",
                     id_or_null(tokenizer_bos_id(r->tokenizer)), "eos_id",
                     id_or_null(tokenizer_eos_id(r->tokenizer)), "eog_ids", eog);
}

static bool print_json(const struct report *r)
{
    const struct gguf *g = r->model->gguf;
    json_t *all =
        json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:b, s:o, s:o, s:b, s:{s:I, s:I, s:I}}",
                  "architecture", r->model->arch->name, "name", r->model->name, "revision",
                  r->model->revision, "gguf_version", (json_int_t)gguf_version(g), "file_bytes",
                  (json_int_t)gguf_file_bytes(g), "tensors", (json_int_t)gguf_n_tensors(g),
                  "parameters", (json_int_t)r->parameters, "shape", shape_json(&r->model->shape),
                  "tied_output", r->model->output == r->model->token_embd, "types", types_json(r),
                  "tokenizer", tokenizer_json(r), "chat_template", r->has_template, "kv_memory",
                  "context_tokens", (json_int_t)r->context, "f16_bytes",
                  (json_int_t)r->kv_f16_bytes, "f32_bytes", (json_int_t)r->kv_f32_bytes);
    bool printed = all != NULL && json_dumpf(all, stdout, JSON_INDENT(2)) == 0;

    json_decref(all);
    putchar('\n');
    return printed;
}

static enum status print_report(const struct inspect *o, const struct report *r, struct reason *why)
{
    bool printed = true;

    if (o->json)
        printed = print_json(r);
    else
        print_text(r);
    if (!printed || fflush(stdout) != 0 || ferror(stdout))
        return fail(why, ST_IO, "cannot write to standard output");
    return ST_OK;
}

static enum status run(const struct inspect *o, struct reason *why)
{
    struct tokenizer *t = NULL;
    struct model *m = NULL;
    struct report r;
    enum status s = model_open(o->path, &m, why);

    if (s == ST_OK)
        s = tokenizer_new(m->gguf, &t, why);
    if (s == ST_OK) {
        r = make_report(m, t, o->context);
        s = print_report(o, &r, why);
    }
    tokenizer_free(t);
    model_close(m);
    return s;
}

int cmd_inspect(int argc, char **argv)
{
    struct inspect o = {0};
    struct reason why = {{0}, {0}};
    int code = parse_options(argc, argv, &o);

    if (code != -1)
        return code;
    if (run(&o, &why) == ST_OK)
        return 0;
    fprintf(stderr, "sluice inspect: %s\n", why.text);
    return 1;
}
