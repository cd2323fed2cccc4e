#include "engine/model/gguf.h"

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

/* Takes over the mapping, if it is one. */
static enum status open_bytes(const void *data, size_t len, bool mapped, struct gguf **out,
                              struct reason *why)
{
    struct gguf *g = calloc(1, sizeof *g);
    enum status s;

    if (g == NULL) {
        if (mapped)
            munmap((void *)(uintptr_t)data, len);
        return fail(why, ST_NO_MEMORY, "out of memory");
    }
    *g = (struct gguf){.base = data, .len = len, .mapped = mapped};
    arena_init(&g->arena, 0);
    s = gguf_read(g, why);
    if (s != ST_OK) {
        gguf_close(g);
        return s;
    }
    *out = g;
    return ST_OK;
}

enum status gguf_open_memory(const void *data, size_t len, struct gguf **out, struct reason *why)
{
    if ((uintptr_t)data % MEMORY_ALIGNMENT != 0)
        return fail(why, ST_INVALID, "the bytes must be aligned to %d", MEMORY_ALIGNMENT);
    return open_bytes(data, len, false, out, why);
}

/* Private, so that nobody writes through it. A file cut while it is mapped still ends the process
 * (SIGBUS): the engine is a process of its own, and models are replaced by rename. */
static enum status map_file(int fd, const char *path, const void **data, size_t *len,
                            struct reason *why)
{
    struct stat st;
    void *p;

    if (fstat(fd, &st) == -1)
        return fail(why, ST_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return fail(why, ST_INVALID, "%s is not a regular file", path);
    if (st.st_size == 0)
        return fail(why, ST_CORRUPT, "%s is empty", path);
    p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
        return fail(why, ST_IO, "cannot map %s: %s", path, strerror(errno));
    *data = p;
    *len = (size_t)st.st_size;
    return ST_OK;
}

enum status gguf_open(const char *path, struct gguf **out, struct reason *why)
{
    /* Non-blocking, or a FIFO of that name would hold us. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const void *data = NULL;
    size_t len = 0;
    enum status s;

    if (fd == -1)
        return fail(why, errno == ENOENT ? ST_NOT_FOUND : ST_IO, "cannot open %s: %s", path,
                    strerror(errno));
    s = map_file(fd, path, &data, &len, why);
    close(fd);
    return s == ST_OK ? open_bytes(data, len, true, out, why) : s;
}

void gguf_close(struct gguf *g)
{
    if (g == NULL)
        return;
    if (g->mapped)
        munmap((void *)(uintptr_t)g->base, g->len);
    arena_dispose(&g->arena);
    free(g);
}

uint32_t gguf_version(const struct gguf *g)
{
    return g->version;
}

size_t gguf_file_bytes(const struct gguf *g)
{
    return g->len;
}

const void *gguf_bytes(const struct gguf *g)
{
    return g->base;
}

size_t gguf_data_start(const struct gguf *g)
{
    return g->data_start;
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
