/* Split models: NAME-00001-of-0000N.gguf to NAME-0000N-of-0000N.gguf, as ggml's gguf-split writes
 * them. Each is a GGUF file of its own with split.no (from 0), split.count and split.tensors.count;
 * the first one has the model's metadata, and each has some of the tensors. */
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model/gguf_file.h"

/* The largest published models come in some hundred files. */
#define PARTS_MAX  1024
#define PATH_BYTES 4096
/* "-00001-of-00002.gguf" */
#define SUFFIX_BYTES 20

static const char count_key[] = "split.count";
static const char number_key[] = "split.no";
static const char tensors_key[] = "split.tensors.count";

/* Being joined. `split` and `n_tensors` are what the first file says. */
struct join {
    struct gguf *g;
    const char *path;
    uint32_t n_parts, n_tensors;
    struct tensor *tensors; /* room for n_tensors */
    struct name_index names;
    struct reason *why;
};

/* The path of part `number` (from 1), by the path of any part; false: it has no such name. */
static bool part_path(const char *path, uint32_t number, uint32_t n_parts, char out[PATH_BYTES])
{
    size_t len = strlen(path);
    char said[SUFFIX_BYTES + 1];

    if (len <= SUFFIX_BYTES || len >= PATH_BYTES)
        return false;
    len -= SUFFIX_BYTES;
    snprintf(said, sizeof said, "-%05u-of-%05u.gguf", 1u, n_parts);
    /* All but the number must be as it should. */
    if (strncmp(path + len + 6, said + 6, SUFFIX_BYTES - 6) != 0 || path[len] != '-' ||
        strspn(path + len + 1, "0123456789") != 5)
        return false;
    snprintf(out, PATH_BYTES, "%.*s-%05u-of-%05u.gguf", (int)len, path, number, n_parts);
    return true;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash != NULL ? slash + 1 : path;
}

/* Only the first file may be given: it has the metadata. */
static enum status check_first(struct join *j)
{
    char first[PATH_BYTES];
    uint32_t number = 0;

    if (j->n_parts > PARTS_MAX)
        return fail_param(j->why, ST_TOO_LARGE, count_key, "%s is %u; at most %d are supported",
                          count_key, j->n_parts, PARTS_MAX);
    if (!gguf_get_u32(j->g, number_key, &number) || number >= j->n_parts)
        return fail_param(j->why, ST_CORRUPT, number_key, "%s is no number below %s", number_key,
                          count_key);
    if (!part_path(j->path, 1, j->n_parts, first))
        return fail_param(j->why, ST_INVALID, count_key,
                          "a part of a split model must be named NAME-%05u-of-%05u.gguf",
                          number + 1, j->n_parts);
    if (number != 0 || strcmp(j->path, first) != 0)
        return fail_param(j->why, ST_INVALID, number_key,
                          "part %u of a split model; give the first one, %.200s", number + 1,
                          base_name(first));
    if (!gguf_get_u32(j->g, tensors_key, &j->n_tensors))
        return fail_param(j->why, ST_CORRUPT, tensors_key, "the split model lacks %s", tensors_key);
    return ST_OK;
}

/* Copies the tensors of `part` behind those that are there. */
static enum status add_tensors(struct join *j, const struct gguf *part, const char *shown)
{
    for (size_t i = 0; i < gguf_n_tensors(part); i++) {
        struct tensor t = *gguf_tensor_at(part, i);

        if (j->names.n == j->n_tensors)
            return fail_param(j->why, ST_CORRUPT, tensors_key,
                              "the parts have more tensors than %s says (%u)", tensors_key,
                              j->n_tensors);
        t.name = arena_strndup(&j->g->arena, t.name, strlen(t.name));
        if (t.name == NULL)
            return fail(j->why, ST_NO_MEMORY, "out of memory for names");
        if (!name_index_add(&j->names, t.name))
            return fail(j->why, ST_CORRUPT, "tensor %s of %s is in another part, too", t.name,
                        shown);
        j->tensors[j->names.n - 1] = t;
    }
    return ST_OK;
}

/* A file of another split of the same name would mix two models. */
static enum status check_part(const struct join *j, const struct gguf *part, uint32_t number,
                              const char *shown)
{
    const struct {
        const char *key;
        uint32_t want;
    } keys[] = {{number_key, number}, {count_key, j->n_parts}, {tensors_key, j->n_tensors}};
    uint32_t said = 0;

    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (!gguf_get_u32(part, keys[i].key, &said) || said != keys[i].want)
            return fail_param(j->why, ST_CORRUPT, keys[i].key, "%.200s: %s is not %u", shown,
                              keys[i].key, keys[i].want);
    return ST_OK;
}

static enum status open_part(const struct join *j, uint32_t number, struct gguf **out,
                             char path[PATH_BYTES])
{
    struct owned_part part = {0};
    struct reason detail = {0};
    enum status s;

    if (!part_path(j->path, number + 1, j->n_parts, path))
        return fail(j->why, ST_INTERNAL, "a path grew while it was used");
    s = part_map(AT_FDCWD, path, path, &part, j->why);
    if (s != ST_OK)
        return s;
    s = gguf_open_part(&part, out, &detail);
    return s == ST_OK ? s : fail(j->why, s, "%.100s: %.200s", base_name(path), detail.text);
}

/* The mapping moves to g; the rest of the part is of no use once its tensors are copied. */
static enum status join_part(struct join *j, uint32_t number)
{
    struct gguf *part = NULL;
    char path[PATH_BYTES];
    enum status s = open_part(j, number, &part, path);

    if (s != ST_OK)
        return s;
    assert(part != NULL);
    s = check_part(j, part, number, base_name(path));
    if (s == ST_OK)
        s = add_tensors(j, part, base_name(path));
    if (s == ST_OK) {
        j->g->parts[j->g->n_parts++] = part->parts[0];
        part->n_parts = 0;
    }
    gguf_close(part);
    return s;
}

/* The count of tensors is the file's word: no more than the format's reader takes. */
static enum status make_tables(struct join *j)
{
    struct owned_part *parts;

    if (j->n_tensors > GGUF_TENSORS_MAX)
        return fail_param(j->why, ST_CORRUPT, tensors_key, "%s is %u; at most %d are supported",
                          tensors_key, j->n_tensors, GGUF_TENSORS_MAX);
    j->tensors = arena_array(&j->g->arena, j->n_tensors, sizeof *j->tensors);
    parts = realloc(j->g->parts, j->n_parts * sizeof *parts);
    if (parts != NULL)
        j->g->parts = parts;
    if (parts == NULL || j->tensors == NULL ||
        !name_index_init(&j->names, &j->g->arena, j->n_tensors))
        return fail(j->why, ST_NO_MEMORY, "out of memory for %u tensors", j->n_tensors);
    return ST_OK;
}

enum status gguf_join_split(struct gguf *g, const char *path, struct reason *why)
{
    struct join j = {.g = g, .path = path, .why = why};
    enum status s;

    if (!gguf_get_u32(g, count_key, &j.n_parts) || j.n_parts <= 1)
        return ST_OK;
    s = check_first(&j);
    if (s == ST_OK)
        s = make_tables(&j);
    if (s == ST_OK)
        s = add_tensors(&j, g, base_name(path));
    for (uint32_t i = 1; i < j.n_parts && s == ST_OK; i++)
        s = join_part(&j, i);
    if (s != ST_OK)
        return s;
    if (j.names.n != j.n_tensors)
        return fail_param(why, ST_CORRUPT, tensors_key, "the parts have %zu tensors; %s says %u",
                          j.names.n, tensors_key, j.n_tensors);
    g->tensors = j.tensors;
    g->names = j.names;
    return ST_OK;
}
