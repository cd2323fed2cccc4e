#include "engine/model/gguf.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
