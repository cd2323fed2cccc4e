#include "app/local_run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/size.h"
#include "engine/cpu/cpu.h"

bool local_number(const char *text, long long min, long long max, long long *out)
{
    char *end;
    long long v;

    errno = 0;
    v = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || v < min || v > max)
        return false;
    *out = v;
    return true;
}

static bool set_mode(struct local_options *o, const char *value)
{
    static const struct {
        const char *name;
        enum device_mode mode;
    } modes[] = {{"fast", DEVICE_FAST}, {"exact", DEVICE_EXACT}};

    for (size_t i = 0; i < COUNT_OF(modes); i++)
        if (strcmp(value, modes[i].name) == 0) {
            o->mode = modes[i].mode;
            return true;
        }
    fprintf(stderr, "--mode is fast or exact, not %s\n", value);
    return false;
}

bool local_kv_type(const char *name, enum kv_type *out)
{
    static const struct {
        const char *name;
        enum kv_type type;
    } types[] = {{"auto", KV_AUTO}, {"f16", KV_F16}, {"q8", KV_Q8}};

    for (size_t i = 0; i < COUNT_OF(types); i++)
        if (strcmp(name, types[i].name) == 0) {
            *out = types[i].type;
            return true;
        }
    return false;
}

static bool set_kv_type(struct local_options *o, const char *value)
{
    if (local_kv_type(value, &o->kv_type))
        return true;
    fprintf(stderr, "--kv-type is auto, f16 or q8, not %s\n", value);
    return false;
}

bool local_option(struct local_options *o, int option, const char *value)
{
    long long n;

    switch (option) {
    case LOCAL_MODEL:
        o->model_path = value;
        return true;
    case LOCAL_MODE:
        return set_mode(o, value);
    case LOCAL_KV_TYPE:
        return set_kv_type(o, value);
    case LOCAL_ISA:
        o->isa = value;
        return true;
    case LOCAL_THREADS:
        if (!local_number(value, 1, 256, &n)) {
            fprintf(stderr, "--threads is a number from 1 to 256, not %s\n", value);
            return false;
        }
        o->n_threads = (unsigned)n;
        return true;
    case LOCAL_JSON:
        o->json = true;
        return true;
    default: /* getopt_long has said what it didn't know */
        return false;
    }
}

enum status local_read(const char *path, size_t limit, char **text, size_t *len, struct reason *why)
{
    bool standard = strcmp(path, "-") == 0;
    FILE *f = standard ? stdin : fopen(path, "rb");
    char chunk[8192];
    struct buf b;
    size_t n;
    bool bad;

    if (f == NULL)
        return fail(why, ST_IO, "can't open %s: %s", path, strerror(errno));
    buf_init(&b);
    b.limit = limit;
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0)
        buf_append(&b, chunk, n);
    buf_cstr(&b); /* room for the NUL, also when empty */
    bad = ferror(f) != 0;
    if (!standard)
        fclose(f);
    if (bad || b.failed || !buf_reserve(&b, 0)) {
        buf_dispose(&b);
        return bad ? fail(why, ST_IO, "can't read %s", path)
                   : fail(why, ST_TOO_LARGE, "%s has more than %zu bytes", path, limit);
    }
    b.data[b.len] = '\0';
    *text = b.data;
    *len = b.len;
    return ST_OK;
}

static bool alloc_steps(struct local_run *r)
{
    r->rows = calloc(r->max_rows, sizeof *r->rows);
    r->output.results = calloc(r->max_rows, sizeof *r->output.results);
    r->output.tops = calloc((size_t)r->max_rows * TOP_LOGPROBS_MAX, sizeof *r->output.tops);
    r->sequences = calloc(r->n_sequences, sizeof *r->sequences);
    r->pages = calloc((size_t)r->n_sequences * r->pages_each, sizeof *r->pages);
    return r->rows != NULL && r->output.results != NULL && r->output.tops != NULL &&
           r->sequences != NULL && r->pages != NULL;
}

static enum status open_parts(struct local_run *r, const struct local_options *o,
                              struct reason *why)
{
    struct device_config cfg = {.mode = o->mode,
                                .kv_type = o->kv_type,
                                .isa = o->isa != NULL ? o->isa : "auto",
                                .n_threads = o->n_threads,
                                .max_rows = r->max_rows,
                                .max_sequences = r->n_sequences,
                                .max_context = r->pages_each * KV_PAGE_TOKENS,
                                .n_pages = r->n_sequences * r->pages_each};
    enum status s = model_open(o->model_path, &r->model, why);

    if (s != ST_OK)
        return s;
    cfg.model = r->model;
    if (r->max_tokens > r->model->shape.context_tokens)
        return fail(why, ST_TOO_LONG, "%u tokens: the model's context is %u", r->max_tokens,
                    r->model->shape.context_tokens);
    if (!alloc_steps(r))
        return fail(why, ST_NO_MEMORY, "no memory for %u sequences", r->n_sequences);
    return cpu_device_ops.open(&cfg, &r->device, why);
}

enum status local_run_open(struct local_run *r, const struct local_options *o, uint32_t n_sequences,
                           uint32_t max_tokens, uint32_t max_rows, struct reason *why)
{
    enum status s;

    *r = (struct local_run){.n_sequences = n_sequences,
                            .max_tokens = max_tokens,
                            .max_rows = max_rows,
                            .pages_each = (max_tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS};
    s = open_parts(r, o, why);
    if (s != ST_OK) {
        local_run_close(r);
        return s;
    }
    for (uint32_t i = 0; i < n_sequences * r->pages_each; i++)
        r->pages[i] = i;
    for (uint32_t i = 0; i < n_sequences; i++)
        r->sequences[i] = (struct step_sequence){
            .slot = i, .first_page = i * r->pages_each, .n_pages = r->pages_each};
    return ST_OK;
}

void local_run_close(struct local_run *r)
{
    if (r->device != NULL)
        r->device->ops->close(r->device);
    model_close(r->model);
    free(r->rows);
    free(r->output.results);
    free(r->output.tops);
    free(r->sequences);
    free(r->pages);
    *r = (struct local_run){0};
}

enum status local_step(struct local_run *r, const struct local_feed *feeds, uint32_t n_feeds,
                       bool want_logits)
{
    struct device_step step = {.n_sequences = r->n_sequences,
                               .n_pages = r->n_sequences * r->pages_each,
                               .rows = r->rows,
                               .sequences = r->sequences,
                               .pages = r->pages,
                               .want_logits = want_logits};
    uint64_t ticket;
    enum status s;

    for (uint32_t i = 0; i < n_feeds; i++) {
        const struct local_feed *f = &feeds[i];

        if (f->n > r->max_rows - step.n_rows)
            return ST_TOO_LARGE;
        r->sequences[f->sequence].output_index = f->output_index;
        for (uint32_t t = 0; t < f->n; t++)
            r->rows[step.n_rows++] = (struct step_row){
                .id = f->ids[t],
                .ticket = ROW_LITERAL,
                .position = f->position + t,
                .sequence = f->sequence,
                .want = f->want == WANT_ALL || (f->want == WANT_LAST && t + 1 == f->n)
                            ? ROW_SAMPLE
                            : ROW_NOTHING};
    }
    s = r->device->ops->submit(r->device, &step, &ticket);
    if (s != ST_OK)
        return s;
    return r->device->ops->complete(r->device, ticket, &r->output);
}

enum status local_prefill(struct local_run *r, uint32_t sequence, const int32_t *ids, uint32_t n)
{
    enum status s = ST_INVALID; /* an empty prompt has no next token */

    for (uint32_t at = 0; at < n; at += r->max_rows) {
        uint32_t part = n - at < r->max_rows ? n - at : r->max_rows;
        struct local_feed f = {.sequence = sequence,
                               .ids = ids + at,
                               .n = part,
                               .position = at,
                               .want = at + part == n ? WANT_LAST : WANT_NONE};

        s = local_step(r, &f, 1, false);
        if (s != ST_OK)
            return s;
    }
    return s;
}
