#include "app/inspect_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "engine/cpu/cpu.h"
#include "engine/text/template.h"

/* Input rows of a step, as the engine has them by default: 64 of prompts beside 64 decodes. */
#define ROWS_DEFAULT 128

/* ---- gathering ---- */

/* Factors of RoPE come with the tensors and are no weights. */
static bool is_weight(const struct tensor *t)
{
    return strncmp(t->name, "rope_", 5) != 0;
}

static void count_tensors(struct inspect_report *r)
{
    const struct gguf *g = r->model->gguf;

    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct tensor *t = gguf_tensor_at(g, i);

        if (is_weight(t))
            r->parameters += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
        r->types[t->type].tensors++;
        r->types[t->type].bytes += t->bytes;
    }
}

/* A folder's first part is its metadata, translated in memory. */
static void count_files(struct inspect_report *r)
{
    uint32_t n = 0;

    while (gguf_part_at(r->model->gguf, n) != NULL)
        n++;
    r->is_folder = gguf_is_folder(r->model->gguf);
    r->n_files = r->is_folder ? n - 1 : n;
}

static void try_template(struct inspect_report *r)
{
    struct template *t = NULL;
    struct reason why = {{0}, {0}};

    if (!gguf_get_string(r->model->gguf, "tokenizer.chat_template", &r->template))
        return;
    if (template_new(r->template.data, r->template.len, &t, &why) != ST_OK)
        snprintf(r->template_fault, sizeof r->template_fault, "%s", why.text);
    template_free(t);
}

static enum status plan(const struct inspect_report *r, enum device_mode mode,
                        struct device_plan *out, struct reason *why)
{
    const uint32_t pages = (r->context_tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;
    const struct device_config cfg = {.model = r->model,
                                      .mode = mode,
                                      .isa = "auto",
                                      .max_rows = ROWS_DEFAULT,
                                      .max_sequences = 1,
                                      .max_context = r->context_tokens,
                                      .n_pages = pages};

    return cpu_device_ops.plan(&cfg, out, why);
}

enum status inspect_report_make(struct inspect_report *r, const struct model *m,
                                const struct tokenizer *t, uint32_t context_tokens,
                                struct reason *why)
{
    enum status s;

    *r = (struct inspect_report){.model = m, .tokenizer = t};
    if (context_tokens > m->shape.context_tokens)
        return fail(why, ST_TOO_LONG, "a context of %u tokens: the model was made for %u",
                    context_tokens, m->shape.context_tokens);
    r->context_tokens = context_tokens != 0 ? context_tokens : m->shape.context_tokens;
    count_tensors(r);
    count_files(r);
    (void)gguf_get_string(m->gguf, "tokenizer.ggml.model", &r->tokenizer_kind);
    (void)gguf_get_string(m->gguf, "tokenizer.ggml.pre", &r->pre_tokenizer);
    try_template(r);
    s = plan(r, DEVICE_FAST, &r->fast, why);
    return s == ST_OK ? plan(r, DEVICE_EXACT, &r->exact, why) : s;
}

static uint64_t kv_bytes(const struct device_plan *p)
{
    return (uint64_t)p->n_pages * p->kv_page_bytes;
}

static uint64_t repacked_bytes(const struct inspect_report *r, const struct device_plan *p)
{
    return p->weight_bytes - gguf_file_bytes(r->model->gguf);
}

static uint64_t all_bytes(const struct device_plan *p)
{
    return p->weight_bytes + kv_bytes(p) + p->scratch_bytes;
}

static const char *scaling_name(const struct model_rope *p)
{
    static const char *const names[] = {[ROPE_PLAIN] = "none",
                                        [ROPE_LINEAR] = "linear",
                                        [ROPE_YARN] = "yarn",
                                        [ROPE_LONGROPE] = "longrope"};

    /* The files say it by a table of divisors, whatever made them. */
    return p->scaling == ROPE_PLAIN && p->divisors != NULL ? "llama3" : names[p->scaling];
}

static uint32_t n_windowed(const struct model *m)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < m->shape.n_layers; i++)
        n += m->layers[i].windowed;
    return n;
}

/* ---- for people ---- */

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

static const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

/* Text of the file: what would steer a terminal is shown as its bytes. */
static void print_plain(const char *s)
{
    const size_t len = strlen(s);
    int n;

    for (size_t i = 0; i < len; i += (size_t)n) {
        uint32_t cp = 0;

        n = utf8_decode(s + i, len - i, &cp);
        if (n > 0 && cp >= 0x20 && cp != 0x7F && !(cp >= 0x80 && cp < 0xA0)) {
            printf("%.*s", n, s + i);
            continue;
        }
        n = n > 0 ? n : 1;
        for (int k = 0; k < n; k++)
            printf("\\x%02X", (unsigned char)s[i + (size_t)k]);
    }
}

static void print_special(const struct inspect_report *r, const char *what, int32_t id)
{
    size_t len;

    if (id == -1)
        return;
    printf("%-18s%d ", what, id);
    print_plain(tokenizer_piece(r->tokenizer, id, &len));
    putchar('\n');
}

static void print_file(const struct inspect_report *r)
{
    const struct gguf *g = r->model->gguf;

    if (r->is_folder)
        printf("%-18sHugging Face folder", "format");
    else
        printf("%-18sGGUF version %u", "format", gguf_version(g));
    printf(", %u file%s of weights, %.1f MiB\n", r->n_files, plural(r->n_files),
           mib(gguf_file_bytes(g)));
    for (uint32_t i = 0; i < TENSOR_TYPES; i++)
        if (r->types[i].tensors > 0)
            printf("  %-16s%" PRIu64 " tensor%s, %.1f MiB\n", tensor_type_name(i),
                   r->types[i].tensors, plural(r->types[i].tensors), mib(r->types[i].bytes));
}

static void print_rope(const struct model_rope *p)
{
    printf("%-18s%u dimensions, base %g", "rope", p->dims, (double)p->base);
    if (p->window_base != 0.0f)
        printf(" (%g in windowed layers)", (double)p->window_base);
    if (strcmp(scaling_name(p), "none") != 0)
        printf(", %s scaling", scaling_name(p));
    if (p->scaling == ROPE_LINEAR || p->scaling == ROPE_YARN)
        printf(" by %g", (double)p->factor);
    if (p->scaling == ROPE_YARN || p->scaling == ROPE_LONGROPE)
        printf(" from %u tokens", p->original_context);
    putchar('\n');
}

static void print_shape(const struct model *m)
{
    const struct model_shape *p = &m->shape;

    printf("%-18s%u layers, width %u, feed-forward %u\n", "shape", p->n_layers, p->n_embd, p->n_ff);
    printf("%-18s%u query, %u KV, %u dimensions each\n", "heads", p->n_heads, p->n_kv_heads,
           p->head_dim);
    print_rope(&p->rope);
    if (p->window != 0)
        printf("%-18s%u tokens in %u of %u layers\n", "window", p->window, n_windowed(m),
               p->n_layers);
    printf("%-18s%u tokens\n", "context", p->context_tokens);
    printf("%-18s%s\n", "output", m->output == m->token_embd ? "tied" : "its own");
}

static void print_text_side(const struct inspect_report *r)
{
    const struct tokenizer *t = r->tokenizer;

    printf("%-18s%.*s", "tokenizer", (int)r->tokenizer_kind.len, r->tokenizer_kind.data);
    if (r->pre_tokenizer.len > 0)
        printf(", pre-tokenizer %.*s", (int)r->pre_tokenizer.len, r->pre_tokenizer.data);
    printf(", %u tokens\n", tokenizer_n_vocab(t));
    print_special(r, "  bos", tokenizer_bos_id(t));
    print_special(r, "  eos", tokenizer_eos_id(t));
    for (uint32_t i = 0; i < tokenizer_n_vocab(t); i++)
        if (tokenizer_is_eog(t, (int32_t)i))
            print_special(r, "  ends a turn", (int32_t)i);
    if (r->template.data == NULL)
        printf("%-18snone\n", "chat template");
    else
        printf("%-18s%zu bytes%s%s\n", "chat template", r->template.len,
               r->template_fault[0] != 0 ? ", refused: " : "", r->template_fault);
}

static void print_plan(const struct inspect_report *r, const char *mode,
                       const struct device_plan *p, const char *kv_type)
{
    printf("  %-16s%.1f MiB: %.1f of the file, %.1f of repacked weights, %.1f of KV (%s), "
           "%.1f to work in\n",
           mode, mib(all_bytes(p)), mib(gguf_file_bytes(r->model->gguf)), mib(repacked_bytes(r, p)),
           mib(kv_bytes(p)), kv_type, mib(p->scratch_bytes));
}

void inspect_report_print(const struct inspect_report *r)
{
    printf("%-18s%s\n", "architecture", r->model->arch->name);
    if (r->model->name[0] != 0)
        printf("%-18s%s\n", "name", r->model->name);
    printf("%-18s%.1f million\n", "parameters", (double)r->parameters / 1e6);
    print_file(r);
    print_shape(r->model);
    print_text_side(r);
    printf("%-18sfor one sequence of %u tokens\n", "memory", r->context_tokens);
    print_plan(r, "fast mode", &r->fast, "F16");
    print_plan(r, "exact mode", &r->exact, "F32");
    printf("%-18s%s\n", "revision", r->model->revision);
}

/* ---- for programs ---- */

static json_t *id_or_null(int32_t id)
{
    return id != -1 ? json_integer(id) : json_null();
}

static json_t *shape_json(const struct model *m)
{
    const struct model_shape *p = &m->shape;

    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s, s:f, s:I, s:I, s:I, s:f}", "n_layers",
        (json_int_t)p->n_layers, "n_embd", (json_int_t)p->n_embd, "n_ff", (json_int_t)p->n_ff,
        "n_heads", (json_int_t)p->n_heads, "n_kv_heads", (json_int_t)p->n_kv_heads, "head_dim",
        (json_int_t)p->head_dim, "context_tokens", (json_int_t)p->context_tokens, "rope_dims",
        (json_int_t)p->rope.dims, "rope_base", (double)p->rope.base, "rope_scaling",
        scaling_name(&p->rope), "rope_factor", (double)p->rope.factor, "rope_original_context",
        (json_int_t)p->rope.original_context, "window", (json_int_t)p->window, "n_windowed",
        (json_int_t)n_windowed(m), "norm_eps", (double)p->norm_eps);
}

static json_t *types_json(const struct inspect_report *r)
{
    json_t *all = json_object();

    for (uint32_t i = 0; i < TENSOR_TYPES; i++)
        if (r->types[i].tensors > 0)
            json_object_set_new(all, tensor_type_name(i),
                                json_pack("{s:I, s:I}", "tensors", (json_int_t)r->types[i].tensors,
                                          "bytes", (json_int_t)r->types[i].bytes));
    return all;
}

/* Absent keys have no text to point at. */
static json_t *text_json(struct gguf_string s)
{
    return s.data != NULL ? json_stringn(s.data, s.len) : json_null();
}

static json_t *tokenizer_json(const struct inspect_report *r)
{
    const struct tokenizer *t = r->tokenizer;
    json_t *eog = json_array();

    for (uint32_t i = 0; i < tokenizer_n_vocab(t); i++)
        if (tokenizer_is_eog(t, (int32_t)i))
            json_array_append_new(eog, json_integer(i));
    return json_pack("{s:o, s:o, s:I, s:o, s:o, s:o}", "kind", text_json(r->tokenizer_kind), "pre",
                     text_json(r->pre_tokenizer), "n_vocab", (json_int_t)tokenizer_n_vocab(t),
                     "bos_id", id_or_null(tokenizer_bos_id(t)), "eos_id",
                     id_or_null(tokenizer_eos_id(t)), "eog_ids", eog);
}

static json_t *template_json(const struct inspect_report *r)
{
    if (r->template.data == NULL)
        return json_null();
    return json_pack("{s:I, s:o}", "bytes", (json_int_t)r->template.len, "fault",
                     r->template_fault[0] != 0 ? json_string(r->template_fault) : json_null());
}

static json_t *plan_json(const struct inspect_report *r, const struct device_plan *p)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "file_bytes",
                     (json_int_t)gguf_file_bytes(r->model->gguf), "repacked_bytes",
                     (json_int_t)repacked_bytes(r, p), "kv_bytes", (json_int_t)kv_bytes(p),
                     "work_bytes", (json_int_t)p->scratch_bytes, "bytes", (json_int_t)all_bytes(p));
}

bool inspect_report_print_json(const struct inspect_report *r)
{
    const struct gguf *g = r->model->gguf;
    json_t *all =
        json_pack("{s:s, s:s, s:s, s:s, s:o, s:I, s:I, s:I, s:I, s:o, s:b, s:o, s:o, s:o, s:{s:I, "
                  "s:o, s:o}}",
                  "architecture", r->model->arch->name, "name", r->model->name, "revision",
                  r->model->revision, "format", r->is_folder ? "folder" : "gguf", "gguf_version",
                  r->is_folder ? json_null() : json_integer(gguf_version(g)), "files",
                  (json_int_t)r->n_files, "file_bytes", (json_int_t)gguf_file_bytes(g), "tensors",
                  (json_int_t)gguf_n_tensors(g), "parameters", (json_int_t)r->parameters, "shape",
                  shape_json(r->model), "tied_output", r->model->output == r->model->token_embd,
                  "types", types_json(r), "tokenizer", tokenizer_json(r), "chat_template",
                  template_json(r), "memory", "context_tokens", (json_int_t)r->context_tokens,
                  "fast", plan_json(r, &r->fast), "exact", plan_json(r, &r->exact));
    bool printed = all != NULL && json_dumpf(all, stdout, JSON_INDENT(2)) == 0;

    json_decref(all);
    putchar('\n');
    return printed;
}
