/* Values of a file's keys, which gguf_read has checked. */
#include "engine/model/gguf.h"

#include <string.h>

#include "base/reader.h"
#include "engine/model/gguf_file.h"

static const struct gguf_entry *find(const struct gguf *g, const char *key)
{
    size_t i;

    return name_index_find(&g->keys, key, &i) ? &g->entries[i] : NULL;
}

static const struct gguf_entry *find_array(const struct gguf *g, const char *key)
{
    const struct gguf_entry *e = find(g, key);

    return e != NULL && e->type == GGUF_ARRAY ? e : NULL;
}

/* A reader at element i of a value that gguf_read has checked. */
static struct reader element(const struct gguf *g, const struct gguf_entry *e, size_t i)
{
    struct reader r;

    reader_init(&r, g->base, g->len);
    r.pos = e->offset + i * gguf_type_bytes(e->element);
    return r;
}

/* Any integer that an int64 can hold. */
static bool read_integer(struct reader r, enum gguf_type type, int64_t *out)
{
    uint64_t u64;
    uint8_t u8;

    switch (type) {
    case GGUF_U8:
        *out = reader_u8(&r);
        return true;
    case GGUF_I8:
        u8 = reader_u8(&r);
        *out = u8 <= INT8_MAX ? u8 : u8 - 256;
        return true;
    case GGUF_U16:
        *out = reader_u16(&r);
        return true;
    case GGUF_I16:
        *out = (int16_t)reader_u16(&r);
        return true;
    case GGUF_U32:
        *out = reader_u32(&r);
        return true;
    case GGUF_I32:
        *out = (int32_t)reader_u32(&r);
        return true;
    case GGUF_U64:
        u64 = reader_u64(&r);
        *out = (int64_t)u64;
        return u64 <= INT64_MAX;
    case GGUF_I64:
        *out = (int64_t)reader_u64(&r);
        return true;
    default:
        return false;
    }
}

bool gguf_get_u32(const struct gguf *g, const char *key, uint32_t *out)
{
    const struct gguf_entry *e = find(g, key);
    int64_t v;

    if (e == NULL || !read_integer(element(g, e, 0), e->type, &v) || v < 0 || v > UINT32_MAX)
        return false;
    *out = (uint32_t)v;
    return true;
}

bool gguf_get_f32(const struct gguf *g, const char *key, float *out)
{
    const struct gguf_entry *e = find(g, key);
    struct reader r;
    uint64_t bits;
    double wide;

    if (e == NULL || (e->type != GGUF_F32 && e->type != GGUF_F64))
        return false;
    r = element(g, e, 0);
    if (e->type == GGUF_F32) {
        *out = reader_f32(&r);
        return true;
    }
    bits = reader_u64(&r);
    memcpy(&wide, &bits, sizeof wide);
    *out = (float)wide;
    return true;
}

bool gguf_get_bool(const struct gguf *g, const char *key, bool *out)
{
    const struct gguf_entry *e = find(g, key);

    if (e == NULL || e->type != GGUF_BOOL)
        return false;
    *out = g->base[e->offset] != 0;
    return true;
}

bool gguf_get_string(const struct gguf *g, const char *key, struct gguf_string *out)
{
    const struct gguf_entry *e = find(g, key);

    if (e == NULL || e->type != GGUF_STRING)
        return false;
    *out = (struct gguf_string){(const char *)g->base + e->offset, e->n};
    return true;
}

bool gguf_has(const struct gguf *g, const char *key)
{
    return find(g, key) != NULL;
}

bool gguf_array(const struct gguf *g, const char *key, enum gguf_type *type, size_t *n)
{
    const struct gguf_entry *e = find_array(g, key);

    if (e == NULL)
        return false;
    *type = e->element;
    *n = e->n;
    return true;
}

static struct gguf_string next_string(struct reader *r)
{
    size_t len = (size_t)reader_u64(r);

    return (struct gguf_string){reader_bytes(r, len), len};
}

bool gguf_array_string(const struct gguf *g, const char *key, size_t i, struct gguf_string *out)
{
    const struct gguf_entry *e = find_array(g, key);
    struct reader r;

    if (e == NULL || e->element != GGUF_STRING || i >= e->n)
        return false;
    r = element(g, e, 0);
    for (size_t k = 0; k <= i; k++)
        *out = next_string(&r);
    return true;
}

bool gguf_array_strings(const struct gguf *g, const char *key, struct gguf_string *out, size_t n)
{
    const struct gguf_entry *e = find_array(g, key);
    struct reader r;

    if (e == NULL || e->element != GGUF_STRING || n > e->n)
        return false;
    r = element(g, e, 0);
    for (size_t i = 0; i < n; i++)
        out[i] = next_string(&r);
    return true;
}

bool gguf_array_i32(const struct gguf *g, const char *key, size_t i, int32_t *out)
{
    const struct gguf_entry *e = find_array(g, key);
    int64_t v;

    if (e == NULL || i >= e->n || !read_integer(element(g, e, i), e->element, &v) ||
        v < INT32_MIN || v > INT32_MAX)
        return false;
    *out = (int32_t)v;
    return true;
}

bool gguf_array_bool(const struct gguf *g, const char *key, size_t i)
{
    const struct gguf_entry *e = find_array(g, key);

    return e != NULL && e->element == GGUF_BOOL && i < e->n && g->base[e->offset + i] != 0;
}

bool gguf_array_f32(const struct gguf *g, const char *key, size_t i, float *out)
{
    const struct gguf_entry *e = find_array(g, key);
    struct reader r;

    if (e == NULL || e->element != GGUF_F32 || i >= e->n)
        return false;
    r = element(g, e, i);
    *out = reader_f32(&r);
    return true;
}

bool gguf_array_bytes(const struct gguf *g, const char *key, const void **out, size_t *n)
{
    const struct gguf_entry *e = find_array(g, key);

    if (e == NULL || (e->element != GGUF_U8 && e->element != GGUF_I8))
        return false;
    *out = g->base + e->offset;
    *n = e->n;
    return true;
}
