#include "engine/model/hf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"
#include "engine/model/hf_config.h"
#include "engine/model/hf_generation.h"
#include "engine/model/hf_tokenizer.h"
#include "engine/model/hf_weights.h"

/* config.json has some kB and is parsed to a tree; the largest tokenizer.json in use has 35 MB. */
#define CONFIG_BYTES_MAX    ((size_t)1 << 20)
#define TOKENIZER_BYTES_MAX ((size_t)256 << 20)
#define SMALL_BYTES_MAX     ((size_t)16 << 20)
/* llama3 has one, longrope two. */
#define ROPE_TENSORS_MAX 2

enum file { CONFIG, TOKENIZER, TOKENIZER_CONFIG, SPECIAL_MAP, GENERATION, TEMPLATE, N_FILES };

static const struct {
    const char *name;
    size_t max;
} files[N_FILES] = {
    [CONFIG] = {"config.json", CONFIG_BYTES_MAX},
    [TOKENIZER] = {"tokenizer.json", TOKENIZER_BYTES_MAX},
    [TOKENIZER_CONFIG] = {"tokenizer_config.json", SMALL_BYTES_MAX},
    [SPECIAL_MAP] = {"special_tokens_map.json", SMALL_BYTES_MAX},
    [GENERATION] = {"generation_config.json", SMALL_BYTES_MAX},
    [TEMPLATE] = {"chat_template.jinja", SMALL_BYTES_MAX},
};

/* A folder while it is read. */
struct folder {
    int dir;
    struct owned_part texts[N_FILES]; /* zeros: absent */
    struct hf_config *config;
    struct hf_weights weights;
    struct reason *why;
};

static struct hf_span text_of(const struct folder *f, enum file which)
{
    return (struct hf_span){(const char *)f->texts[which].part.bytes, f->texts[which].part.len};
}

static enum status map_texts(struct folder *f)
{
    for (int i = 0; i < N_FILES; i++) {
        struct reason detail = {0};
        enum status s = hf_text_map(f->dir, files[i].name, files[i].max, &f->texts[i], &detail);

        if (s == ST_NOT_FOUND && i == CONFIG)
            return fail(f->why, s, "the folder has no %s, so it is no model", files[i].name);
        if (s != ST_OK && s != ST_NOT_FOUND)
            return fail(f->why, s, "%s", detail.text);
    }
    return ST_OK;
}

static enum status read_config(struct folder *f)
{
    struct hf_span text = text_of(f, CONFIG);
    struct hf_config *c = malloc(sizeof *c);
    enum status s;

    if (c == NULL)
        return fail(f->why, ST_NO_MEMORY, "out of memory");
    s = hf_config_read(c, text.text, text.len, f->why);
    if (s != ST_OK) {
        free(c);
        return s;
    }
    f->config = c;
    return ST_OK;
}

/* A tensor by its GGUF name; NULL: none. */
static const struct tensor *find_tensor(const struct folder *f, const char *gguf_name)
{
    char name[HF_NAME_BYTES];

    for (size_t i = 0; i < f->weights.n; i++)
        for (size_t k = 0; k < f->weights.shards[i].names.n; k++) {
            const struct tensor *t = &f->weights.shards[i].tensors[k];

            if (hf_arch_place(f->config->arch, t->name, name) == HF_PLACE_KNOWN &&
                strcmp(name, gguf_name) == 0)
                return t;
        }
    return NULL;
}

/* Before a table is made for so many tokens. */
static enum status check_vocab_size(const struct folder *f)
{
    const struct tensor *t = find_tensor(f, "token_embd.weight");

    if (t == NULL)
        return fail(f->why, ST_CORRUPT, "the folder lacks the tensor model.embed_tokens.weight");
    if (t->dims[1] != f->config->n_vocab)
        return fail_param(f->why, ST_CORRUPT, "vocab_size",
                          "config.json: vocab_size is %u, but the embedding has %llu rows",
                          f->config->n_vocab, (unsigned long long)t->dims[1]);
    return ST_OK;
}

static enum status write_metadata(const struct folder *f, struct buf *out)
{
    const struct hf_tokenizer_files texts = {
        .tokenizer = text_of(f, TOKENIZER),
        .config = text_of(f, TOKENIZER_CONFIG),
        .special_map = text_of(f, SPECIAL_MAP),
        .generation = text_of(f, GENERATION),
        .model = text_of(f, CONFIG),
        .chat_template = text_of(f, TEMPLATE),
    };
    struct hf_meta m;
    enum status s;

    hf_meta_init(&m, f->config->arch->gguf);
    s = hf_config_put(f->config, &m, f->why);
    if (s == ST_OK)
        s = hf_tokenizer_put(&texts, f->config->n_vocab, &m, f->why);
    if (s == ST_OK)
        s = hf_generation_put(texts.generation, &m, f->why);
    if (s == ST_OK && hf_meta_finish(&m, out) != ST_OK)
        s = fail(f->why, ST_NO_MEMORY, "out of memory for the metadata");
    hf_meta_dispose(&m);
    return s;
}

/* The translated metadata, parsed: the heap block becomes the first part. */
static enum status make_gguf(const struct folder *f, struct gguf **out)
{
    struct owned_part part = {.memory = PART_HEAP};
    struct buf bytes;
    enum status s;

    buf_init(&bytes);
    s = write_metadata(f, &bytes);
    if (s != ST_OK) {
        buf_dispose(&bytes);
        return s;
    }
    part.part.bytes = (const uint8_t *)bytes.data;
    part.part.len = bytes.len;
    return gguf_open_part(&part, out, f->why);
}

/* Adds t under another name. */
static enum status add_tensor(const struct folder *f, struct gguf *g, const struct tensor *t,
                              const char *name)
{
    struct tensor copy = *t;

    copy.name = arena_strndup(&g->arena, name, strlen(name));
    if (copy.name == NULL)
        return fail(f->why, ST_NO_MEMORY, "out of memory for names");
    if (!name_index_add(&g->names, copy.name))
        return fail(f->why, ST_CORRUPT, "two tensors are %s", name);
    g->tensors[g->names.n - 1] = copy;
    return ST_OK;
}

static enum status place_tensor(const struct folder *f, struct gguf *g, const struct tensor *t)
{
    char name[HF_NAME_BYTES];

    switch (hf_arch_place(f->config->arch, t->name, name)) {
    case HF_PLACE_IGNORED:
        return ST_OK;
    case HF_PLACE_NONE:
        return fail(f->why, ST_UNSUPPORTED, "tensor %.120s is not part of a %s", t->name,
                    f->config->arch->class_name);
    case HF_PLACE_KNOWN:
        break;
    }
    /* A tied model's own copy of its embedding, which transformers passes over, too. */
    if (f->config->tied && strcmp(name, "output.weight") == 0)
        return ST_OK;
    return add_tensor(f, g, t, name);
}

static enum status add_rope_tensors(const struct folder *f, struct gguf *g)
{
    const struct hf_rope *rope = &f->config->rope;
    const uint32_t n = rope->dims / 2;

    for (size_t i = 0; i < ROPE_TENSORS_MAX; i++) {
        float *values = arena_array(&g->arena, n, sizeof *values);
        const struct tensor t = {.type = TENSOR_F32,
                                 .n_dims = 1,
                                 .dims = {n, 1, 1, 1},
                                 .data = values,
                                 .bytes = n * sizeof *values};
        const char *name = values != NULL ? hf_rope_tensor(rope, i, values) : NULL;
        enum status s;

        if (values == NULL)
            return fail(f->why, ST_NO_MEMORY, "out of memory for RoPE's factors");
        if (name == NULL)
            return ST_OK;
        s = add_tensor(f, g, &t, name);
        if (s != ST_OK)
            return s;
    }
    return ST_OK;
}

static enum status add_tensors(const struct folder *f, struct gguf *g)
{
    size_t n = hf_weights_n_tensors(&f->weights) + ROPE_TENSORS_MAX;
    enum status s = ST_OK;

    g->tensors = arena_array(&g->arena, n, sizeof *g->tensors);
    if (g->tensors == NULL || !name_index_init(&g->names, &g->arena, n))
        return fail(f->why, ST_NO_MEMORY, "out of memory for %zu tensors", n);
    for (size_t i = 0; i < f->weights.n; i++)
        for (size_t k = 0; k < f->weights.shards[i].names.n && s == ST_OK; k++)
            s = place_tensor(f, g, &f->weights.shards[i].tensors[k]);
    if (s == ST_OK)
        s = add_rope_tensors(f, g);
    if (s == ST_OK && !f->config->tied && gguf_tensor(g, "output.weight") == NULL)
        s = fail(f->why, ST_CORRUPT,
                 "the folder lacks the tensor lm_head.weight, and tie_word_embeddings is false");
    return s;
}

/* The mappings of the shards go over to g. */
static enum status take_parts(struct folder *f, struct gguf *g)
{
    struct owned_part *parts = realloc(g->parts, (1 + f->weights.n) * sizeof *parts);

    if (parts == NULL)
        return fail(f->why, ST_NO_MEMORY, "out of memory");
    g->parts = parts;
    for (size_t i = 0; i < f->weights.n; i++) {
        g->parts[g->n_parts++] = f->weights.parts[i];
        f->weights.parts[i] = (struct owned_part){0};
    }
    return ST_OK;
}

static enum status read_folder(struct folder *f, struct gguf **out)
{
    struct gguf *g = NULL;
    enum status s = map_texts(f);

    if (s == ST_OK)
        s = read_config(f);
    if (s == ST_OK)
        s = hf_weights_open(&f->weights, f->dir, f->why);
    if (s == ST_OK)
        s = check_vocab_size(f);
    if (s == ST_OK)
        s = make_gguf(f, &g);
    if (s == ST_OK)
        s = add_tensors(f, g);
    if (s == ST_OK)
        s = take_parts(f, g);
    if (s != ST_OK) {
        gguf_close(g);
        return s;
    }
    *out = g;
    return ST_OK;
}

enum status hf_open(const char *path, struct gguf **out, struct reason *why)
{
    struct folder f = {.why = why};
    enum status s;

    f.dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f.dir == -1)
        return fail(why, errno == ENOENT ? ST_NOT_FOUND : ST_IO, "cannot open %s: %s", path,
                    strerror(errno));
    s = read_folder(&f, out);
    close(f.dir);
    for (int i = 0; i < N_FILES; i++)
        part_dispose(&f.texts[i]);
    if (f.config != NULL)
        hf_config_dispose(f.config);
    free(f.config);
    hf_weights_dispose(&f.weights);
    return s;
}
