#include "engine/model/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/printable.h"
#include "base/reader.h"
#include "base/size.h"
#include "base/utf8.h"
#include "engine/model/hf_json.h"

/* The format's own limit. */
#define HEADER_BYTES_MAX 100000000
/* Longest names in use have about 80 bytes. */
#define NAME_BYTES_MAX 256

static const struct {
    const char *name;
    enum tensor_type type;
} dtypes[] = {{"F32", TENSOR_F32}, {"F16", TENSOR_F16}, {"BF16", TENSOR_BF16}};

/* A row of the header, as it is read. */
struct row {
    struct hf_span dtype;
    uint64_t shape[TENSOR_DIMS_MAX];
    uint64_t begin, end; /* from the start of the data */
    bool has_shape, has_offsets;
};

struct parse {
    struct safetensors *st;
    struct hf_json json;
    const uint8_t *data;
    size_t data_bytes;
    struct reason *why;
};

/* Where the header ends and the data begins. */
static enum status read_length(struct parse *p, const uint8_t *bytes, size_t len)
{
    struct reader r;
    uint64_t n;

    reader_init(&r, bytes, len);
    n = reader_u64(&r);
    if (r.failed)
        return fail(p->why, ST_CORRUPT, "the file is shorter than the length of its header");
    if (n > HEADER_BYTES_MAX)
        return fail(p->why, ST_TOO_LARGE, "a header of %llu bytes; at most %d are allowed",
                    (unsigned long long)n, HEADER_BYTES_MAX);
    if (n > reader_left(&r))
        return fail(p->why, ST_CORRUPT, "a header of %llu bytes runs past the end of the file",
                    (unsigned long long)n);
    p->st->data_start = r.pos + (size_t)n;
    p->data = bytes + p->st->data_start;
    p->data_bytes = len - p->st->data_start;
    hf_json_init(&p->json, (const char *)bytes + r.pos, (size_t)n);
    /* The format says so, and an odd first byte is how another file type gives itself away. */
    if (n == 0 || bytes[r.pos] != '{')
        return fail(p->why, ST_INVALID,
                    "not a safetensors file (its header does not begin with '{')");
    if (!utf8_is_valid(p->json.text, p->json.len))
        return fail(p->why, ST_CORRUPT, "the header is not valid UTF-8");
    return ST_OK;
}

static enum status fail_json(struct parse *p)
{
    return hf_json_fail(&p->json, "the header", p->why);
}

/* Counts the members of the header, and checks the JSON on the way. */
static enum status count_rows(struct parse *p, size_t *n)
{
    struct hf_json j = p->json;
    struct hf_span key;
    size_t rows = 0;

    if (hf_json_enter_object(&j))
        while (hf_json_member(&j, &key) && hf_json_skip(&j, NULL))
            rows++;
    if (!hf_json_end(&j)) {
        p->json = j;
        return fail_json(p);
    }
    if (rows > GGUF_TENSORS_MAX)
        return fail(p->why, ST_TOO_LARGE, "the header has %zu tensors; at most %d are supported",
                    rows, GGUF_TENSORS_MAX);
    *n = rows;
    return ST_OK;
}

/* The shape, its last dimension first. */
static enum status read_shape(struct parse *p, struct row *row, struct tensor *t)
{
    uint32_t n = 0;

    if (row->has_shape)
        return fail(p->why, ST_CORRUPT, "tensor %s has two shapes", t->name);
    row->has_shape = true;
    if (hf_json_enter_array(&p->json)) {
        while (hf_json_element(&p->json)) {
            if (n == TENSOR_DIMS_MAX)
                return fail(p->why, ST_UNSUPPORTED, "tensor %s has more than %d dimensions",
                            t->name, TENSOR_DIMS_MAX);
            if (!hf_json_u64(&p->json, &row->shape[n]))
                break;
            n++;
        }
    }
    if (p->json.failed)
        return fail_json(p);
    if (n == 0)
        return fail(p->why, ST_UNSUPPORTED, "tensor %s is a scalar; those are not supported",
                    t->name);
    t->n_dims = n;
    for (uint32_t i = 0; i < TENSOR_DIMS_MAX; i++)
        t->dims[i] = i < n ? row->shape[n - 1 - i] : 1;
    return ST_OK;
}

static enum status read_offsets(struct parse *p, struct row *row, struct tensor *t)
{
    if (row->has_offsets)
        return fail(p->why, ST_CORRUPT, "tensor %s has two ranges", t->name);
    row->has_offsets = true;
    if (!hf_json_enter_array(&p->json) || !hf_json_element(&p->json) ||
        !hf_json_u64(&p->json, &row->begin) || !hf_json_element(&p->json) ||
        !hf_json_u64(&p->json, &row->end) || hf_json_element(&p->json) || p->json.failed)
        return fail(p->why, ST_CORRUPT, "tensor %s: data_offsets are not two numbers", t->name);
    return ST_OK;
}

static enum status read_dtype(struct parse *p, struct row *row, struct tensor *t)
{
    char shown[32];

    if (row->dtype.text != NULL)
        return fail(p->why, ST_CORRUPT, "tensor %s has two dtypes", t->name);
    if (!hf_json_string(&p->json, &row->dtype))
        return fail_json(p);
    for (size_t i = 0; i < COUNT_OF(dtypes); i++) {
        if (hf_span_is(row->dtype, dtypes[i].name)) {
            t->type = dtypes[i].type;
            return ST_OK;
        }
    }
    printable(row->dtype.text, row->dtype.len, shown, sizeof shown);
    return fail(p->why, ST_UNSUPPORTED, "tensor %s has dtype %s; supported: F32, F16 and BF16",
                t->name, shown);
}

static enum status read_row(struct parse *p, struct row *row, struct tensor *t)
{
    struct hf_span key = {0};
    enum status s = ST_OK;

    if (!hf_json_enter_object(&p->json))
        return fail_json(p);
    while (s == ST_OK && hf_json_member(&p->json, &key)) {
        if (hf_span_is(key, "dtype"))
            s = read_dtype(p, row, t);
        else if (hf_span_is(key, "shape"))
            s = read_shape(p, row, t);
        else if (hf_span_is(key, "data_offsets"))
            s = read_offsets(p, row, t);
        else
            s = fail(p->why, ST_CORRUPT, "tensor %s has a member that is not of the format",
                     t->name);
    }
    if (s != ST_OK)
        return s;
    if (p->json.failed)
        return fail_json(p);
    if (row->dtype.text == NULL || !row->has_shape || !row->has_offsets)
        return fail(p->why, ST_CORRUPT, "tensor %s lacks its dtype, shape or data_offsets",
                    t->name);
    return ST_OK;
}

/* Sets t->bytes and t->data from what the row says. */
static enum status place(struct parse *p, const struct row *row, struct tensor *t)
{
    uint32_t elements, element_bytes;
    size_t n = 1;

    (void)tensor_type_block(t->type, &elements,
                            &element_bytes); /* the three types have blocks of 1 */
    for (uint32_t i = 0; i < t->n_dims; i++)
        if (t->dims[i] == 0 || !size_mul(n, (size_t)t->dims[i], &n))
            return fail(p->why, ST_CORRUPT, "tensor %s has a dimension of 0 or too many elements",
                        t->name);
    if (!size_mul(n, element_bytes, &t->bytes))
        return fail(p->why, ST_CORRUPT, "tensor %s has too many elements", t->name);
    if (row->end > p->data_bytes || row->begin > row->end)
        return fail(p->why, ST_CORRUPT, "tensor %s lies past the end of the file (cut short?)",
                    t->name);
    if (row->end - row->begin != t->bytes)
        return fail(p->why, ST_CORRUPT, "tensor %s has %llu bytes of data; its shape takes %zu",
                    t->name, (unsigned long long)(row->end - row->begin), t->bytes);
    t->data = p->data + row->begin;
    if ((uintptr_t)t->data % element_bytes != 0)
        return fail(p->why, ST_UNSUPPORTED,
                    "tensor %s begins at an address that is no multiple of its element's %u bytes",
                    t->name, element_bytes);
    return ST_OK;
}

static bool is_plain_name(struct hf_span s)
{
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.text[i] < 0x20 || s.text[i] == 0x7F)
            return false;
    return s.len > 0 && s.len <= NAME_BYTES_MAX;
}

/* Names are compared as they are spelled: one with escapes is nobody's. */
static enum status read_tensor(struct parse *p, struct hf_span name)
{
    struct tensor *t = &p->st->tensors[p->st->names.n];
    struct row row = {0};
    enum status s;

    if (!is_plain_name(name) || memchr(name.text, '\\', name.len) != NULL)
        return fail(p->why, ST_CORRUPT,
                    "a tensor's name is empty, longer than %d bytes or no plain text",
                    NAME_BYTES_MAX);
    t->name = arena_strndup(&p->st->arena, name.text, name.len);
    if (t->name == NULL)
        return fail(p->why, ST_NO_MEMORY, "out of memory for names");
    if (!name_index_add(&p->st->names, t->name))
        return fail(p->why, ST_CORRUPT, "tensor %s is there twice", t->name);
    s = read_row(p, &row, t);
    return s == ST_OK ? place(p, &row, t) : s;
}

/* Texts about the file. Only "format" says something about the weights: those of other frameworks
 * lie transposed. */
static enum status read_about(struct parse *p)
{
    struct hf_span key = {0}, value = {0};
    char shown[32];

    if (hf_json_enter_object(&p->json)) {
        while (hf_json_member(&p->json, &key) && hf_json_string(&p->json, &value)) {
            if (!hf_span_is(key, "format") || hf_span_is(value, "pt") || hf_span_is(value, "mlx"))
                continue;
            printable(value.text, value.len, shown, sizeof shown);
            return fail(p->why, ST_UNSUPPORTED, "weights in the format %s; only pt is supported",
                        shown);
        }
    }
    return p->json.failed ? fail_json(p) : ST_OK;
}

static int compare_places(const void *a, const void *b)
{
    const struct tensor *const *x = a, *const *y = b;

    return ((*x)->data > (*y)->data) - ((*x)->data < (*y)->data);
}

/* From the first byte of the data to the last, each belongs to one tensor. */
static enum status check_cover(const struct parse *p, const struct tensor **sorted)
{
    const struct safetensors *st = p->st;
    const uint8_t *at = p->data;

    for (size_t i = 0; i < st->names.n; i++)
        sorted[i] = &st->tensors[i];
    qsort(sorted, st->names.n, sizeof(struct tensor *), compare_places);
    for (size_t i = 0; i < st->names.n; i++) {
        const uint8_t *begin = sorted[i]->data;

        if (begin < at)
            return fail(p->why, ST_CORRUPT, "tensors %s and %s overlap", sorted[i - 1]->name,
                        sorted[i]->name);
        if (begin > at)
            return fail(p->why, ST_CORRUPT, "%zu bytes before tensor %s belong to no tensor",
                        (size_t)(begin - at), sorted[i]->name);
        at = begin + sorted[i]->bytes;
    }
    if (at != p->data + p->data_bytes)
        return fail(p->why, ST_CORRUPT, "the last %zu bytes belong to no tensor",
                    (size_t)(p->data + p->data_bytes - at));
    return ST_OK;
}

static enum status check_places(const struct parse *p)
{
    const struct tensor **sorted = calloc(p->st->names.n + 1, sizeof(struct tensor *));
    enum status s;

    if (sorted == NULL)
        return fail(p->why, ST_NO_MEMORY, "out of memory for the tensor table");
    s = check_cover(p, sorted);
    free(sorted);
    return s;
}

static enum status read_rows(struct parse *p, size_t n)
{
    struct hf_span key = {0};
    enum status s = ST_OK;
    bool has_about = false;

    p->st->tensors = arena_array(&p->st->arena, n, sizeof *p->st->tensors);
    if (p->st->tensors == NULL || !name_index_init(&p->st->names, &p->st->arena, n))
        return fail(p->why, ST_NO_MEMORY, "out of memory for %zu tensors", n);
    (void)hf_json_enter_object(&p->json); /* count_rows did */
    while (s == ST_OK && hf_json_member(&p->json, &key)) {
        if (!hf_span_is(key, "__metadata__"))
            s = read_tensor(p, key);
        else if (has_about)
            s = fail(p->why, ST_CORRUPT, "__metadata__ is there twice");
        else
            s = read_about(p);
        has_about |= hf_span_is(key, "__metadata__");
    }
    return s == ST_OK ? check_places(p) : s;
}

enum status safetensors_read(struct safetensors *st, const void *bytes, size_t len,
                             struct reason *why)
{
    struct parse p = {.st = st, .why = why};
    size_t n = 0;
    enum status s;

    *st = (struct safetensors){0};
    arena_init(&st->arena, 0);
    s = read_length(&p, bytes, len);
    if (s == ST_OK)
        s = count_rows(&p, &n);
    if (s == ST_OK)
        s = read_rows(&p, n);
    if (s != ST_OK)
        safetensors_dispose(st);
    return s;
}

void safetensors_dispose(struct safetensors *st)
{
    arena_dispose(&st->arena);
    *st = (struct safetensors){0};
}
