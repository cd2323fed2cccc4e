/* What gguf.c (access) and gguf_read.c (parsing) share: a parsed file. Private to engine/model. */
#ifndef ENGINE_MODEL_GGUF_FILE_H
#define ENGINE_MODEL_GGUF_FILE_H

#include "base/arena.h"
#include "engine/model/gguf.h"

/* Names to their index: open addressing, at most half full, over names that live in the arena. */
struct name_index {
    const char **names; /* by index */
    uint32_t *slots;    /* index + 1; 0: free */
    size_t n;           /* names entered */
    size_t mask;        /* slots - 1 */
};

struct gguf_entry {
    enum gguf_type type;
    enum gguf_type element; /* of an array; else the type itself */
    size_t n;               /* elements of an array, bytes of a string, else 1 */
    size_t offset;          /* first byte of the value, past any length */
};

struct gguf {
    const uint8_t *base;
    size_t len;
    bool mapped; /* base is ours to unmap */
    uint32_t version;
    uint32_t alignment;
    size_t data_start;
    struct arena arena;
    struct name_index keys;
    struct gguf_entry *entries; /* keys.n */
    struct name_index names;
    struct tensor *tensors; /* names.n */
};

/* Parses g->base[0..len) into the rest of g. On failure the arena holds what was made so far. */
MUST_CHECK enum status gguf_read(struct gguf *g, struct reason *why);
/* Bytes of a scalar; 0 for strings and arrays. */
size_t gguf_type_bytes(enum gguf_type type);

MUST_CHECK bool name_index_init(struct name_index *x, struct arena *a, size_t capacity);
/* False: the name is there already. Room is the caller's promise (name_index_init's capacity). */
MUST_CHECK bool name_index_add(struct name_index *x, const char *name);
/* False: absent. */
bool name_index_find(const struct name_index *x, const char *name, size_t *index);

#endif
