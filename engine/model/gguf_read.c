/* The parser. Numbers from the file are trusted only after they were compared with the bytes left:
 * an array of n strings needs 8 n bytes, a tensor entry at least 24, and so on, so that no count
 * can make us allocate or loop beyond a small multiple of the file's own size. */
#include "engine/model/gguf_file.h"

#include <stdlib.h>
#include <string.h>

#include "base/reader.h"
#include "base/size.h"
#include "base/utf8.h"

/* Real files have some dozens of keys. */
#define KEYS_MAX 65536
/* The format's own limits are 65535 and 64 bytes. */
#define KEY_BYTES_MAX         1024
#define TENSOR_NAME_BYTES_MAX 64
/* 32 unless the file says otherwise; more than a large page is nobody's wish. */
#define ALIGNMENT_DEFAULT 32
#define ALIGNMENT_MIN     8
#define ALIGNMENT_MAX     ((uint32_t)2 << 20)
/* Name length, type and one byte of value; name length, dims count, one dim, type, offset. */
#define ENTRY_BYTES_MIN  13
#define TENSOR_BYTES_MIN 32

/* 0: not a scalar. */
static const uint8_t type_bytes[] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2,  [GGUF_I16] = 2,    [GGUF_U32] = 4,
    [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_STRING] = 0, [GGUF_ARRAY] = 0,
    [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

size_t gguf_type_bytes(enum gguf_type type)
{
    return type_bytes[type];
}

static enum status fail_short(struct reason *why, const char *where)
{
    return fail(why, ST_CORRUPT, "the file ends inside its %s", where);
}

/* Names are printed and compared: text without control characters. */
static bool is_plain_name(const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7F)
            return false;
    return len > 0 && utf8_is_valid(s, len);
}

/* A length-prefixed string; NULL when it runs past the end. */
static const char *read_string(struct reader *r, size_t *len)
{
    uint64_t n = reader_u64(r);

    *len = (size_t)n;
    return reader_bytes(r, (size_t)n);
}

static enum status read_name(struct gguf *g, struct reader *r, size_t max, const char *where,
                             const char **out, struct reason *why)
{
    size_t len;
    const char *s = read_string(r, &len);

    if (s == NULL)
        return fail_short(why, where);
    if (len > max)
        return fail(why, ST_TOO_LARGE, "a name in the %s has %zu bytes; at most %zu are allowed",
                    where, len, max);
    if (!is_plain_name(s, len))
        return fail(why, ST_CORRUPT, "a name in the %s is empty or no plain text", where);
    *out = arena_strndup(&g->arena, s, len);
    return *out != NULL ? ST_OK : fail(why, ST_NO_MEMORY, "out of memory for names");
}

static enum status read_header(struct gguf *g, struct reader *r, uint64_t *n_tensors,
                               uint64_t *n_keys, struct reason *why)
{
    const char *magic = reader_bytes(r, 4);

    g->version = reader_u32(r);
    if (magic == NULL || memcmp(magic, "GGUF", 4) != 0)
        return fail(why, ST_INVALID, "not a GGUF file (its first bytes are not \"GGUF\")");
    if (r->failed)
        return fail_short(why, "header");
    /* Read backwards, a small version number is large and ends in zeros. */
    if (g->version != 0 && (g->version & 0xFFFF) == 0)
        return fail(why, ST_UNSUPPORTED, "a big-endian GGUF file; only little-endian is supported");
    if (g->version != 2 && g->version != 3)
        return fail(why, ST_UNSUPPORTED, "GGUF version %u; only 2 and 3 are supported", g->version);
    *n_tensors = reader_u64(r);
    *n_keys = reader_u64(r);
    if (r->failed)
        return fail_short(why, "header");
    if (*n_keys > KEYS_MAX || *n_keys > reader_left(r) / ENTRY_BYTES_MIN)
        return fail(why, ST_CORRUPT, "the header announces %llu metadata keys, more than can be",
                    (unsigned long long)*n_keys);
    if (*n_tensors > GGUF_TENSORS_MAX || *n_tensors > reader_left(r) / TENSOR_BYTES_MIN)
        return fail(why, ST_CORRUPT, "the header announces %llu tensors, more than can be",
                    (unsigned long long)*n_tensors);
    return ST_OK;
}

static bool read_type(struct reader *r, enum gguf_type *out)
{
    uint32_t type = reader_u32(r);

    if (r->failed || type >= COUNT_OF(type_bytes))
        return false;
    *out = type;
    return true;
}

/* Booleans are one byte of 0 or 1: anything else means that the file is not what it says. */
static bool bools_are_valid(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] > 1)
            return false;
    return true;
}

static enum status read_scalars(struct reader *r, struct gguf_entry *e, const char *key,
                                struct reason *why)
{
    const uint8_t *p = NULL;
    size_t bytes;

    e->offset = r->pos;
    if (size_mul(e->n, gguf_type_bytes(e->element), &bytes))
        p = reader_bytes(r, bytes);
    if (p == NULL)
        return fail_param(why, ST_CORRUPT, key, "the value of %s runs past the end of the file",
                          key);
    if (e->element == GGUF_BOOL && !bools_are_valid(p, e->n))
        return fail_param(why, ST_CORRUPT, key, "%s has a boolean that is neither 0 nor 1", key);
    return ST_OK;
}

static enum status read_array(struct reader *r, struct gguf_entry *e, const char *key,
                              struct reason *why)
{
    uint64_t n;
    size_t len;

    if (!read_type(r, &e->element))
        return fail_param(why, ST_CORRUPT, key, "%s has elements of no known type", key);
    n = reader_u64(r);
    if (r->failed || n > reader_left(r))
        return fail_param(why, ST_CORRUPT, key, "the array %s is longer than the file", key);
    e->n = (size_t)n;
    if (e->element == GGUF_ARRAY)
        return fail_param(why, ST_UNSUPPORTED, key, "%s is an array of arrays", key);
    if (e->element != GGUF_STRING)
        return read_scalars(r, e, key, why);
    e->offset = r->pos;
    for (size_t i = 0; i < e->n; i++)
        if (read_string(r, &len) == NULL)
            return fail_param(why, ST_CORRUPT, key, "%s runs past the end of the file", key);
    return ST_OK;
}

static enum status read_value(struct reader *r, struct gguf_entry *e, const char *key,
                              struct reason *why)
{
    if (!read_type(r, &e->type))
        return fail_param(why, ST_CORRUPT, key, "%s has a value of no known type", key);
    e->element = e->type;
    if (e->type == GGUF_ARRAY)
        return read_array(r, e, key, why);
    e->n = 1;
    if (e->type != GGUF_STRING)
        return read_scalars(r, e, key, why);
    if (read_string(r, &e->n) == NULL)
        return fail_param(why, ST_CORRUPT, key, "the value of %s runs past the end of the file",
                          key);
    e->offset = r->pos - e->n;
    return ST_OK;
}

static enum status read_metadata(struct gguf *g, struct reader *r, size_t n, struct reason *why)
{
    const char *key = NULL;
    enum status s;

    g->entries = arena_array(&g->arena, n, sizeof *g->entries);
    if (g->entries == NULL || !name_index_init(&g->keys, &g->arena, n))
        return fail(why, ST_NO_MEMORY, "out of memory for %zu metadata keys", n);
    for (size_t i = 0; i < n; i++) {
        s = read_name(g, r, KEY_BYTES_MAX, "metadata", &key, why);
        if (s == ST_OK)
            s = read_value(r, &g->entries[i], key, why);
        if (s != ST_OK)
            return s;
        if (!name_index_add(&g->keys, key))
            return fail_param(why, ST_CORRUPT, key, "%s is there twice", key);
    }
    return ST_OK;
}

static enum status read_alignment(struct gguf *g, struct reason *why)
{
    const char *key = "general.alignment";

    g->alignment = ALIGNMENT_DEFAULT;
    if (!gguf_has(g, key))
        return ST_OK;
    if (!gguf_get_u32(g, key, &g->alignment) || g->alignment < ALIGNMENT_MIN ||
        g->alignment > ALIGNMENT_MAX || (g->alignment & (g->alignment - 1)) != 0)
        return fail_param(why, ST_CORRUPT, key, "%s is not a power of two from %d to %u", key,
                          ALIGNMENT_MIN, ALIGNMENT_MAX);
    return ST_OK;
}

static enum status fail_type(struct reason *why, const char *name, uint32_t type)
{
    const char *type_name = tensor_type_name(type);
    char supported[128];

    tensor_type_list(supported, sizeof supported);
    if (type_name == NULL)
        return fail(why, ST_UNSUPPORTED, "tensor %s has the unknown type %u; supported: %s", name,
                    type, supported);
    return fail(why, ST_UNSUPPORTED, "tensor %s has type %s; supported: %s", name, type_name,
                supported);
}

/* Sets t->bytes from its dims and type. */
static enum status measure_tensor(struct tensor *t, struct reason *why)
{
    uint32_t block_elements, block_bytes;
    size_t elements = 1;

    if (!tensor_type_block(t->type, &block_elements, &block_bytes))
        return fail_type(why, t->name, t->type);
    for (uint32_t i = 0; i < t->n_dims; i++)
        if (t->dims[i] == 0 || !size_mul(elements, t->dims[i], &elements))
            return fail(why, ST_CORRUPT, "tensor %s has a dimension of 0 or too many elements",
                        t->name);
    if (t->dims[0] % block_elements != 0)
        return fail(why, ST_CORRUPT, "tensor %s has rows of %llu elements, no multiple of %s's %u",
                    t->name, (unsigned long long)t->dims[0], tensor_type_name(t->type),
                    block_elements);
    if (!size_mul(elements / block_elements, block_bytes, &t->bytes))
        return fail(why, ST_CORRUPT, "tensor %s has too many elements", t->name);
    return ST_OK;
}

/* Reads one row of the tensor table; *offset counts from the start of the tensor data. */
static enum status read_tensor(struct gguf *g, struct reader *r, struct tensor *t, uint64_t *offset,
                               struct reason *why)
{
    enum status s = read_name(g, r, TENSOR_NAME_BYTES_MAX, "tensor table", &t->name, why);

    if (s != ST_OK)
        return s;
    if (!name_index_add(&g->names, t->name))
        return fail(why, ST_CORRUPT, "tensor %s is there twice", t->name);
    t->n_dims = reader_u32(r);
    if (!r->failed && (t->n_dims == 0 || t->n_dims > TENSOR_DIMS_MAX))
        return fail(why, ST_CORRUPT, "tensor %s has %u dimensions, not 1 to %d", t->name, t->n_dims,
                    TENSOR_DIMS_MAX);
    for (uint32_t i = 0; i < TENSOR_DIMS_MAX; i++)
        t->dims[i] = i < t->n_dims ? reader_u64(r) : 1;
    t->type = reader_u32(r);
    *offset = reader_u64(r);
    if (r->failed)
        return fail_short(why, "tensor table");
    return measure_tensor(t, why);
}

static enum status place_tensor(const struct gguf *g, struct tensor *t, uint64_t offset,
                                struct reason *why)
{
    const size_t start = g->parts[0].part.data_start, left = g->len - start;

    if (offset % g->alignment != 0)
        return fail(why, ST_CORRUPT, "tensor %s begins at %llu, no multiple of the alignment %u",
                    t->name, (unsigned long long)offset, g->alignment);
    if (offset > left || t->bytes > left - offset)
        return fail(why, ST_CORRUPT, "tensor %s lies past the end of the file (cut short?)",
                    t->name);
    t->data = g->base + start + offset;
    return ST_OK;
}

static int compare_places(const void *a, const void *b)
{
    const struct tensor *const *x = a, *const *y = b;

    return ((*x)->data > (*y)->data) - ((*x)->data < (*y)->data);
}

/* Tensors that share bytes are a trick, not a model: what one check says of the one would not hold
 * for the other. */
static enum status check_overlaps(struct gguf *g, struct reason *why)
{
    const struct tensor **sorted = calloc(g->names.n, sizeof(struct tensor *));
    enum status s = ST_OK;

    if (sorted == NULL && g->names.n > 0)
        return fail(why, ST_NO_MEMORY, "out of memory for the tensor table");
    for (size_t i = 0; i < g->names.n; i++)
        sorted[i] = &g->tensors[i];
    if (g->names.n > 0)
        qsort(sorted, g->names.n, sizeof(struct tensor *), compare_places);
    for (size_t i = 1; i < g->names.n && s == ST_OK; i++) {
        const struct tensor *t = sorted[i - 1];

        if ((const uint8_t *)t->data + t->bytes > (const uint8_t *)sorted[i]->data)
            s = fail(why, ST_CORRUPT, "tensors %s and %s overlap", t->name, sorted[i]->name);
    }
    free(sorted);
    return s;
}

/* The data begins at the first multiple of the alignment after the table. A file without tensors
 * may end right after its metadata. */
static enum status find_data(struct gguf *g, const struct reader *r, struct reason *why)
{
    size_t start;

    if (!size_add(r->pos, g->alignment - 1, &start))
        return fail_short(why, "tensor table");
    start &= ~((size_t)g->alignment - 1);
    if (start > g->len && g->names.n == 0)
        start = g->len;
    g->parts[0].part.data_start = start;
    return start <= g->len ? ST_OK : fail_short(why, "tensor table");
}

static enum status read_and_place(struct gguf *g, struct reader *r, uint64_t *offsets, size_t n,
                                  struct reason *why)
{
    enum status s = ST_OK;

    for (size_t i = 0; i < n && s == ST_OK; i++)
        s = read_tensor(g, r, &g->tensors[i], &offsets[i], why);
    if (s == ST_OK)
        s = find_data(g, r, why);
    for (size_t i = 0; i < n && s == ST_OK; i++)
        s = place_tensor(g, &g->tensors[i], offsets[i], why);
    return s == ST_OK ? check_overlaps(g, why) : s;
}

static enum status read_tensors(struct gguf *g, struct reader *r, size_t n, struct reason *why)
{
    uint64_t *offsets;
    enum status s;

    g->tensors = arena_array(&g->arena, n, sizeof *g->tensors);
    if (g->tensors == NULL || !name_index_init(&g->names, &g->arena, n))
        return fail(why, ST_NO_MEMORY, "out of memory for %zu tensors", n);
    offsets = calloc(n + 1, sizeof *offsets);
    if (offsets == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory for %zu tensors", n);
    s = read_and_place(g, r, offsets, n, why);
    free(offsets);
    return s;
}

enum status gguf_read(struct gguf *g, struct reason *why)
{
    uint64_t n_tensors = 0, n_keys = 0;
    struct reader r;
    enum status s;

    reader_init(&r, g->base, g->len);
    s = read_header(g, &r, &n_tensors, &n_keys, why);
    if (s == ST_OK)
        s = read_metadata(g, &r, (size_t)n_keys, why);
    if (s == ST_OK)
        s = read_alignment(g, why);
    return s == ST_OK ? read_tensors(g, &r, (size_t)n_tensors, why) : s;
}
