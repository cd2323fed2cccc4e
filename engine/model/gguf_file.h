/* What gguf.c (access), gguf_read.c (parsing), gguf_split.c and hf.c (models of several files)
 * share: a parsed file. Private to engine/model. */
#ifndef ENGINE_MODEL_GGUF_FILE_H
#define ENGINE_MODEL_GGUF_FILE_H

#include "base/arena.h"
#include "engine/model/gguf.h"

/* At a thousand layers a model has some ten thousand tensors. */
#define GGUF_TENSORS_MAX 65536

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

/* Whose the bytes of a part are: on closing left alone, unmapped or freed. */
enum part_memory { PART_BORROWED, PART_MAPPED, PART_HEAP };

struct owned_part {
    struct gguf_part part;
    enum part_memory memory;
};

struct gguf {
    struct owned_part *parts; /* n_parts; entries and keys lie in the first */
    size_t n_parts;
    const uint8_t *base; /* of the first part */
    size_t len;
    uint32_t version;
    uint32_t alignment;
    struct arena arena;
    struct name_index keys;
    struct gguf_entry *entries; /* keys.n */
    struct name_index names;
    struct tensor *tensors; /* names.n */
};

/* Maps a regular file by its name in the folder `dir` (AT_FDCWD: a path). `shown` is its name in
 * reasons. */
MUST_CHECK enum status part_map(int dir, const char *name, const char *shown,
                                struct owned_part *out, struct reason *why);
void part_dispose(struct owned_part *p); /* of zeros is fine */

/* Parses one part, as a whole file, into *out, which takes the part over; on failure, too. */
MUST_CHECK enum status gguf_open_part(const struct owned_part *part, struct gguf **out,
                                      struct reason *why);
/* Parses the first part into the rest of g and sets its data_start. On failure the arena holds what
 * was made so far. */
MUST_CHECK enum status gguf_read(struct gguf *g, struct reason *why);
/* A model of several files: opens those beside `path`, the first, whose parse is g, and adds their
 * tensors to it. A file that is no part of a split model is left as it is. */
MUST_CHECK enum status gguf_join_split(struct gguf *g, const char *path, struct reason *why);
/* Bytes of a scalar; 0 for strings and arrays. */
size_t gguf_type_bytes(enum gguf_type type);

MUST_CHECK bool name_index_init(struct name_index *x, struct arena *a, size_t capacity);
/* False: the name is there already. Room is the caller's promise (name_index_init's capacity). */
MUST_CHECK bool name_index_add(struct name_index *x, const char *name);
/* False: absent. */
bool name_index_find(const struct name_index *x, const char *name, size_t *index);

#endif
