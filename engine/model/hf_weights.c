#include "engine/model/hf_weights.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "engine/model/hf_json.h"

/* The largest published models come in some hundred shards. */
#define SHARDS_MAX       1024
#define INDEX_BYTES_MAX  ((size_t)64 << 20)
#define SHARD_NAME_BYTES 128

static const char single_name[] = "model.safetensors";
static const char index_name[] = "model.safetensors.index.json";
static const char suffix[] = ".safetensors";

enum status hf_text_map(int dir, const char *name, size_t max, struct owned_part *out,
                        struct reason *why)
{
    struct owned_part part = {0};
    enum status s = part_map(dir, name, name, &part, why);

    if (s != ST_OK)
        return s;
    if (part.part.len > max)
        s = fail(why, ST_TOO_LARGE, "%s has %zu bytes; at most %zu are allowed", name,
                 part.part.len, max);
    else if (!utf8_is_valid((const char *)part.part.bytes, part.part.len))
        s = fail(why, ST_CORRUPT, "%s is not valid UTF-8", name);
    if (s != ST_OK) {
        part_dispose(&part);
        return s;
    }
    *out = part;
    return ST_OK;
}

/* Maps shard number w->n and reads its header. */
static enum status open_shard(struct hf_weights *w, int dir, const char *name, struct reason *why)
{
    struct owned_part *part = &w->parts[w->n];
    struct reason detail = {0};
    enum status s = part_map(dir, name, name, part, why);

    if (s != ST_OK)
        return s;
    s = safetensors_read(&w->shards[w->n], part->part.bytes, part->part.len, &detail);
    if (s != ST_OK) {
        part_dispose(part);
        return fail(why, s, "%.100s: %.200s", name, detail.text);
    }
    part->part.data_start = w->shards[w->n].data_start;
    w->n++;
    return ST_OK;
}

static enum status make_room(struct hf_weights *w, size_t n, struct reason *why)
{
    assert(n > 0);
    w->parts = calloc(n, sizeof *w->parts);
    w->shards = calloc(n, sizeof *w->shards);
    return w->parts != NULL && w->shards != NULL ? ST_OK : fail(why, ST_NO_MEMORY, "out of memory");
}

/* model.safetensors.index.json, being read. */
struct index {
    struct hf_span map;        /* the text of weight_map */
    struct name_index files;   /* distinct shards */
    struct name_index tensors; /* all tensors */
    struct arena *arena;
    struct reason *why;
};

static enum status fail_index(const struct index *x)
{
    return fail(x->why, ST_CORRUPT, "%s: weight_map is no list of file names by tensor",
                index_name);
}

/* Only files of the folder itself: no path leads elsewhere. */
static bool is_shard_name(struct hf_span s)
{
    const size_t n = sizeof suffix - 1;

    for (size_t i = 0; i < s.len; i++)
        if (s.text[i] <= 0x20 || s.text[i] >= 0x7F || s.text[i] == '/' || s.text[i] == '\\')
            return false;
    return s.len > n && s.len <= SHARD_NAME_BYTES && s.text[0] != '.' &&
           memcmp(s.text + s.len - n, suffix, n) == 0;
}

/* Calls `visit` for each entry of weight_map, names NUL-terminated and in the arena. */
static enum status each_entry(struct index *x,
                              enum status (*visit)(struct index *x, void *arg, const char *tensor,
                                                   const char *file),
                              void *arg)
{
    struct hf_span key = {0}, file;
    struct hf_json j;
    enum status s = ST_OK;

    hf_json_init(&j, x->map.text, x->map.len);
    if (!hf_json_enter_object(&j))
        return fail_index(x);
    while (s == ST_OK && hf_json_member(&j, &key) && hf_json_string(&j, &file)) {
        char *tensor, *shard;

        if (!is_shard_name(file))
            return fail(x->why, ST_INVALID,
                        "%s names a shard that is no *.safetensors of the folder", index_name);
        tensor = arena_strndup(x->arena, key.text, key.len);
        shard = arena_strndup(x->arena, file.text, file.len);
        if (tensor == NULL || shard == NULL)
            return fail(x->why, ST_NO_MEMORY, "out of memory for the index");
        s = visit(x, arg, tensor, shard);
    }
    return s == ST_OK && j.failed ? fail_index(x) : s;
}

static enum status note_entry(struct index *x, void *arg, const char *tensor, const char *file)
{
    size_t unused;

    (void)arg;
    if (x->tensors.n == GGUF_TENSORS_MAX)
        return fail(x->why, ST_TOO_LARGE, "%s lists more than %d tensors", index_name,
                    GGUF_TENSORS_MAX);
    if (!name_index_add(&x->tensors, tensor))
        return fail(x->why, ST_CORRUPT, "%s: tensor %.200s is there twice", index_name, tensor);
    if (name_index_find(&x->files, file, &unused))
        return ST_OK;
    if (x->files.n == SHARDS_MAX)
        return fail(x->why, ST_TOO_LARGE, "%s lists more than %d shards", index_name, SHARDS_MAX);
    return name_index_add(&x->files, file) ? ST_OK : fail_index(x);
}

static enum status check_entry(struct index *x, void *arg, const char *tensor, const char *file)
{
    const struct hf_weights *w = arg;
    size_t shard, unused;

    if (name_index_find(&x->files, file, &shard) &&
        name_index_find(&w->shards[shard].names, tensor, &unused))
        return ST_OK;
    return fail(x->why, ST_CORRUPT, "tensor %.120s is not in %.100s, where %s puts it", tensor,
                file, index_name);
}

/* What a shard has and the index doesn't list would be loaded by nobody else. */
static enum status check_shards(const struct index *x, const struct hf_weights *w)
{
    size_t unused;

    for (size_t i = 0; i < w->n; i++)
        for (size_t k = 0; k < w->shards[i].names.n; k++)
            if (!name_index_find(&x->tensors, w->shards[i].names.names[k], &unused))
                return fail(x->why, ST_CORRUPT, "tensor %.120s of %.100s is not in %s",
                            w->shards[i].names.names[k], x->files.names[i], index_name);
    if (hf_weights_n_tensors(w) != x->tensors.n)
        return fail(x->why, ST_CORRUPT, "a tensor is in two shards");
    return ST_OK;
}

static enum status open_shards(struct hf_weights *w, int dir, struct index *x)
{
    enum status s = each_entry(x, note_entry, NULL);

    if (s == ST_OK && x->files.n == 0)
        s = fail(x->why, ST_CORRUPT, "%s lists no tensors", index_name);
    if (s == ST_OK)
        s = make_room(w, x->files.n, x->why);
    for (size_t i = 0; i < x->files.n && s == ST_OK; i++)
        s = open_shard(w, dir, x->files.names[i], x->why);
    if (s == ST_OK)
        s = each_entry(x, check_entry, w);
    return s == ST_OK ? check_shards(x, w) : s;
}

/* `text` is the index. */
static enum status open_listed(struct hf_weights *w, int dir, const struct gguf_part *text,
                               struct reason *why)
{
    struct index x = {.arena = &w->arena, .why = why};
    const struct hf_pick pick = {"weight_map", &x.map};
    enum status s = hf_json_pick((struct hf_span){(const char *)text->bytes, text->len}, &pick, 1,
                                 index_name, why);

    if (s != ST_OK)
        return s;
    if (x.map.text == NULL)
        return fail(why, ST_CORRUPT, "%s has no weight_map", index_name);
    if (!name_index_init(&x.files, &w->arena, SHARDS_MAX) ||
        !name_index_init(&x.tensors, &w->arena, GGUF_TENSORS_MAX))
        return fail(why, ST_NO_MEMORY, "out of memory for the index");
    return open_shards(w, dir, &x);
}

/* The whole file goes first, as with transformers. */
static enum status open_any(struct hf_weights *w, int dir, struct reason *why)
{
    struct owned_part text = {0};
    struct reason detail = {0};
    enum status s = make_room(w, 1, &detail);

    if (s == ST_OK)
        s = open_shard(w, dir, single_name, &detail);
    if (s != ST_NOT_FOUND)
        return s == ST_OK ? s : fail(why, s, "%s", detail.text);
    free(w->parts);
    free(w->shards);
    w->parts = NULL;
    w->shards = NULL;
    s = hf_text_map(dir, index_name, INDEX_BYTES_MAX, &text, why);
    if (s == ST_NOT_FOUND)
        return fail(why, s, "the folder has neither %s nor %s", single_name, index_name);
    if (s == ST_OK)
        s = open_listed(w, dir, &text.part, why);
    part_dispose(&text);
    return s;
}

enum status hf_weights_open(struct hf_weights *w, int dir, struct reason *why)
{
    enum status s;

    *w = (struct hf_weights){0};
    arena_init(&w->arena, 0);
    s = open_any(w, dir, why);
    if (s != ST_OK)
        hf_weights_dispose(w);
    return s;
}

void hf_weights_dispose(struct hf_weights *w)
{
    for (size_t i = 0; i < w->n; i++) {
        part_dispose(&w->parts[i]);
        safetensors_dispose(&w->shards[i]);
    }
    free(w->parts);
    free(w->shards);
    arena_dispose(&w->arena);
    *w = (struct hf_weights){0};
}

size_t hf_weights_n_tensors(const struct hf_weights *w)
{
    size_t n = 0;

    for (size_t i = 0; i < w->n; i++)
        n += w->shards[i].names.n;
    return n;
}
