#include "engine/model/gguf.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/reader.h"
#include "engine/model/gguf_file.h"

/* Tensors are read as floats and 64-bit words where their data lies. */
#define MEMORY_ALIGNMENT 8

void part_dispose(struct owned_part *p)
{
    if (p->memory == PART_MAPPED)
        munmap((void *)(uintptr_t)p->part.bytes, p->part.len);
    else if (p->memory == PART_HEAP)
        free((void *)(uintptr_t)p->part.bytes);
    *p = (struct owned_part){0};
}

enum status gguf_open_part(const struct owned_part *part, struct gguf **out, struct reason *why)
{
    struct gguf *g = calloc(1, sizeof *g);
    struct owned_part own = *part;
    enum status s;

    if (g != NULL)
        g->parts = calloc(1, sizeof *g->parts);
    if (g == NULL || g->parts == NULL) {
        free(g);
        part_dispose(&own);
        return fail(why, ST_NO_MEMORY, "out of memory");
    }
    g->parts[0] = own;
    g->n_parts = 1;
    g->base = own.part.bytes;
    g->len = own.part.len;
    arena_init(&g->arena, 0);
    s = gguf_read(g, why);
    if (s != ST_OK) {
        gguf_close(g);
        return s;
    }
    *out = g;
    return ST_OK;
}

/* Bytes have no others beside them. */
static enum status refuse_split(const struct gguf *g, struct reason *why)
{
    uint32_t parts = 0;

    if (gguf_get_u32(g, "split.count", &parts) && parts > 1)
        return fail_param(why, ST_UNSUPPORTED, "split.count",
                          "one of the %u files of a split model", parts);
    return ST_OK;
}

enum status gguf_open_memory(const void *data, size_t len, struct gguf **out, struct reason *why)
{
    const struct owned_part part = {.part = {.bytes = data, .len = len}};
    struct gguf *g = NULL;
    enum status s;

    if ((uintptr_t)data % MEMORY_ALIGNMENT != 0)
        return fail(why, ST_INVALID, "the bytes must be aligned to %d", MEMORY_ALIGNMENT);
    s = gguf_open_part(&part, &g, why);
    if (s != ST_OK)
        return s;
    assert(g != NULL);
    s = refuse_split(g, why);
    if (s != ST_OK) {
        gguf_close(g);
        return s;
    }
    *out = g;
    return ST_OK;
}

/* Private, so that nobody writes through it. A file cut while it is mapped still ends the process
 * (SIGBUS): the engine is a process of its own, and models are replaced by rename. */
static enum status map_file(int fd, const char *shown, struct owned_part *out, struct reason *why)
{
    struct stat st;
    void *p;

    if (fstat(fd, &st) == -1)
        return fail(why, ST_IO, "%s: %s", shown, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return fail(why, ST_INVALID, "%s is not a regular file", shown);
    if (st.st_size == 0)
        return fail(why, ST_CORRUPT, "%s is empty", shown);
    p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
        return fail(why, ST_IO, "cannot map %s: %s", shown, strerror(errno));
    *out =
        (struct owned_part){.part = {.bytes = p, .len = (size_t)st.st_size}, .memory = PART_MAPPED};
    return ST_OK;
}

enum status part_map(int dir, const char *name, const char *shown, struct owned_part *out,
                     struct reason *why)
{
    /* Non-blocking, or a FIFO of that name would hold us. */
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum status s;

    if (fd == -1)
        return fail(why, errno == ENOENT ? ST_NOT_FOUND : ST_IO, "cannot open %s: %s", shown,
                    strerror(errno));
    s = map_file(fd, shown, out, why);
    close(fd);
    return s;
}

enum status gguf_open(const char *path, struct gguf **out, struct reason *why)
{
    struct owned_part part = {0};
    struct gguf *g = NULL;
    enum status s = part_map(AT_FDCWD, path, path, &part, why);

    if (s == ST_OK)
        s = gguf_open_part(&part, &g, why);
    if (s == ST_OK)
        s = gguf_join_split(g, path, why);
    if (s != ST_OK) {
        gguf_close(g);
        return s;
    }
    *out = g;
    return ST_OK;
}

void gguf_close(struct gguf *g)
{
    if (g == NULL)
        return;
    for (size_t i = 0; i < g->n_parts; i++)
        part_dispose(&g->parts[i]);
    free(g->parts);
    arena_dispose(&g->arena);
    free(g);
}

uint32_t gguf_version(const struct gguf *g)
{
    return g->version;
}

bool gguf_is_folder(const struct gguf *g)
{
    return g->parts[0].memory == PART_HEAP;
}

size_t gguf_file_bytes(const struct gguf *g)
{
    size_t total = 0;

    for (size_t i = 0; i < g->n_parts; i++)
        total += g->parts[i].part.len; /* lie in memory at once: no overflow */
    return total;
}

const struct gguf_part *gguf_part_at(const struct gguf *g, size_t i)
{
    return i < g->n_parts ? &g->parts[i].part : NULL;
}

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

const char *gguf_key(const struct gguf *g, size_t i, enum gguf_type *type)
{
    if (i >= g->keys.n)
        return NULL;
    *type = g->entries[i].type;
    return g->keys.names[i];
}

size_t gguf_n_tensors(const struct gguf *g)
{
    return g->names.n;
}

const struct tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
    return i < g->names.n ? &g->tensors[i] : NULL;
}

const struct tensor *gguf_tensor(const struct gguf *g, const char *name)
{
    size_t i;

    return name_index_find(&g->names, name, &i) ? &g->tensors[i] : NULL;
}
