#include "app/config_models.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

#define PATH_BYTES_MAX 4000
/* sun_path holds 108 bytes with its NUL (unix(7)). */
#define SOCKET_PATH_MAX 107
/* As billing and the prices' table have room for. */
#define NAME_BYTES_MAX 95
/* Of a number that an item did not give: no key allows it. */
#define UNSAID (-1)

static const char *const defaults[] = {"openai", "model", NULL};
static const char *const switches[] = {"on", "off", NULL};

#define AT(field) offsetof(struct config_model, field)

static const struct config_key own_keys[] = {
    {.name = "model.path",
     .kind = CONFIG_PATH,
     .offset = AT(path),
     .min = 1,
     .max = PATH_BYTES_MAX,
     .help = "The model: a GGUF file or a Hugging Face folder."},
    {.name = "model.id",
     .kind = CONFIG_NAME,
     .offset = AT(id),
     .min = 1,
     .max = NAME_BYTES_MAX,
     .help = "How clients name the model. A price of that name, or of `*`, must exist: requests "
             "for a model without one are refused."},
    {.name = "model.aliases",
     .kind = CONFIG_NAMES,
     .fallback = "",
     .offset = AT(aliases),
     .min = 1,
     .max = NAME_BYTES_MAX,
     .help = "Further names. Answers, usage and prices name the id."},
    {.name = "model.socket",
     .kind = CONFIG_PATH,
     .fallback = "engine.socket",
     .offset = AT(socket),
     .min = 1,
     .max = SOCKET_PATH_MAX,
     .help = "Unix socket of this model's engine. Of several models each has its own: by default "
             "`engine.socket` with the id before its extension (`engine.ID.sock`)."},
    {.name = "model.required",
     .kind = CONFIG_CHOICE,
     .fallback = "off",
     .offset = AT(required),
     .choices = switches,
     .help = "`on`: while its engine is away the gateway is not ready, and it doesn't start where "
             "the model's file can't be opened. `/readyz` needs at least one model in any case."},
    {.name = "model.context_tokens",
     .kind = CONFIG_INT,
     .fallback = "0",
     .offset = AT(context_tokens),
     .max = 1 << 24,
     .help = "Longest prompt and output of a request together. 0: what the file says."},
    {.name = "model.default_max_tokens",
     .kind = CONFIG_INT,
     .fallback = "0",
     .offset = AT(default_max_tokens),
     .max = 1 << 24,
     .help = "Output tokens of a request that names no maximum. 0: what the context leaves."},
    {.name = "model.generation_defaults",
     .kind = CONFIG_CHOICE,
     .fallback = "openai",
     .offset = AT(generation_defaults),
     .choices = defaults,
     .help = "What a request leaves open of temperature, top_p, top_k, min_p and "
             "repetition_penalty: OpenAI's defaults, or those of the model's own generation "
             "config, where it has them."},
};

/* Keys of section engine that a model may have of its own; the row there says what is allowed. */
static const struct {
    const char *name, *engine_name;
    size_t offset;
} shared_keys[] = {
    {"model.mode", "engine.mode", AT(mode)},
    {"model.kv_type", "engine.kv_type", AT(kv_type)},
    {"model.threads", "engine.threads", AT(threads)},
    {"model.max_sequences", "engine.max_sequences", AT(max_sequences)},
    {"model.kv_mb", "engine.kv_mb", AT(kv_mb)},
    {"model.queue_max", "engine.queue_max", AT(queue_max)},
    {"model.tenant_queue_max", "engine.tenant_queue_max", AT(tenant_queue_max)},
    {"model.idle_unload_s", "engine.idle_unload_s", AT(idle_unload_s)},
};

/* ---- the table ---- */

static const struct config_key *engine_row(size_t shared)
{
    const char *name = shared_keys[shared].engine_name;
    const struct config_key *k = config_key_find("engine", strchr(name, '.') + 1);

    assert(k != NULL);
    return k;
}

bool config_model_key_at(size_t i, struct config_key *out)
{
    if (i < COUNT_OF(own_keys)) {
        *out = own_keys[i];
        return true;
    }
    i -= COUNT_OF(own_keys);
    if (i >= COUNT_OF(shared_keys))
        return false;
    *out = *engine_row(i);
    out->name = shared_keys[i].name;
    out->offset = shared_keys[i].offset;
    out->fallback = shared_keys[i].engine_name;
    out->help = "For this model alone.";
    return true;
}

int config_model_key_find(const char *key, struct config_key *out)
{
    for (int i = 0; config_model_key_at((size_t)i, out); i++)
        if (strcmp(strchr(out->name, '.') + 1, key) == 0)
            return i;
    return -1;
}

void config_models_markdown(struct buf *out)
{
    struct config_key k;

    buf_puts(out,
             "\n## model\n\n"
             "One model; or several as a list `models`, whose items have the same keys without "
             "`model.`, each served by\nits own engine (`sluice engine --config FILE "
             "--model-id ID`):\n\n"
             "```yaml\nmodels:\n  - path: large.gguf\n    id: large\n    aliases: [chat, "
             "latest]\n  - path: small.gguf\n    id: small\n    kv_mb: 256\n```\n\n"
             "| key | allowed | default | what it does |\n|---|---|---|---|\n");
    for (size_t i = 0; config_model_key_at(i, &k); i++)
        config_key_row(&k, out);
}

/* ---- items ---- */

static char **text_of(struct config_model *m, const struct config_key *k)
{
    return (char **)(void *)((char *)m + k->offset);
}

static int64_t *number_of(struct config_model *m, const struct config_key *k)
{
    return (int64_t *)(void *)((char *)m + k->offset);
}

enum status config_models_add(struct config *c)
{
    struct config_model *all, *m;
    struct config_key k;

    if (c->n_models == CONFIG_MODELS_MAX)
        return ST_TOO_LARGE;
    all = reallocarray(c->models, c->n_models + 1, sizeof *all);
    if (all == NULL)
        return ST_NO_MEMORY;
    c->models = all;
    m = &all[c->n_models++];
    memset(m, 0, sizeof *m);
    for (size_t i = 0; config_model_key_at(i, &k); i++)
        if (k.kind == CONFIG_INT)
            *number_of(m, &k) = UNSAID;
    return ST_OK;
}

enum status config_model_add_alias(struct config_model *m, const char *alias)
{
    char **all;

    if (m->n_aliases == CONFIG_ALIASES_MAX)
        return ST_TOO_LARGE;
    all = reallocarray(m->aliases, m->n_aliases + 1, sizeof *all);
    if (all == NULL)
        return ST_NO_MEMORY;
    m->aliases = all;
    all[m->n_aliases] = strdup(alias);
    if (all[m->n_aliases] == NULL)
        return ST_NO_MEMORY;
    m->n_aliases++;
    return ST_OK;
}

static size_t count_name(const struct config_model *m, const char *name)
{
    size_t n = m->id != NULL && strcmp(m->id, name) == 0;

    for (size_t i = 0; i < m->n_aliases; i++)
        n += strcmp(m->aliases[i], name) == 0;
    return n;
}

size_t config_models_count_name(const struct config *c, const char *name)
{
    size_t n = 0;

    for (size_t i = 0; i < c->n_models; i++)
        n += count_name(&c->models[i], name);
    return n;
}

static void free_model(struct config_model *m)
{
    struct config_key k;

    for (size_t i = 0; config_model_key_at(i, &k); i++)
        if (k.kind != CONFIG_INT && k.kind != CONFIG_NAMES)
            free(*text_of(m, &k));
    for (size_t i = 0; i < m->n_aliases; i++)
        free(m->aliases[i]);
    free(m->aliases);
}

void config_models_free(struct config *c)
{
    for (size_t i = 0; i < c->n_models; i++)
        free_model(&c->models[i]);
    free(c->models);
}

/* ---- completing ---- */

enum status config_models_check(const struct config *c, const char *file, struct reason *why)
{
    if (c->n_models == 0)
        return fail_param(why, ST_INVALID, "model", "%s: model.path is missing", file);
    for (size_t i = 0; i < c->n_models; i++) {
        const struct config_model *m = &c->models[i];
        const char *missing = m->path == NULL ? "model.path" : m->id == NULL ? "model.id" : NULL;

        if (missing != NULL && c->n_models == 1)
            return fail_param(why, ST_INVALID, missing, "%s: %s is missing", file, missing);
        if (missing != NULL)
            return fail_param(why, ST_INVALID, missing, "%s: %s is missing in item %zu of models",
                              file, missing, i + 1);
    }
    return ST_OK;
}

/* engine.sock and "a/b" give engine.a-b.sock. */
static void put_own_socket(struct buf *out, const char *socket, const char *id)
{
    const char *name = strrchr(socket, '/'), *dot;

    name = name != NULL ? name + 1 : socket;
    dot = strrchr(name, '.');
    if (dot == NULL || dot == name)
        dot = name + strlen(name);
    buf_append(out, socket, (size_t)(dot - socket));
    buf_putc(out, '.');
    for (const char *s = id; *s != '\0'; s++)
        buf_putc(out, isalnum((unsigned char)*s) || strchr("._-", *s) != NULL ? *s : '-');
    buf_puts(out, dot);
}

static enum status choose_socket(const struct config *c, struct config_model *m, const char *file,
                                 struct reason *why)
{
    enum status s = ST_OK;
    struct buf path;

    if (m->socket != NULL)
        return ST_OK;
    buf_init(&path);
    if (c->n_models == 1)
        buf_puts(&path, c->engine_socket);
    else
        put_own_socket(&path, c->engine_socket, m->id);
    if (path.len > SOCKET_PATH_MAX)
        s = fail_param(why, ST_INVALID, "model.socket",
                       "%s: the socket of model %s would be %s, %zu bytes of at most %d: give it a "
                       "model.socket",
                       file, m->id, buf_cstr(&path), path.len, SOCKET_PATH_MAX);
    else
        m->socket = strdup(buf_cstr(&path));
    buf_dispose(&path);
    return s == ST_OK && m->socket == NULL ? ST_NO_MEMORY : s;
}

/* The value of the engine's key, or of the model's own default. */
static enum status fill(const struct config *c, struct config_model *m, const struct config_key *k,
                        const struct config_key *from)
{
    if (k->kind == CONFIG_INT) {
        if (*number_of(m, k) == UNSAID && from != NULL)
            memcpy(number_of(m, k), (const char *)c + from->offset, sizeof(int64_t));
        else if (*number_of(m, k) == UNSAID)
            *number_of(m, k) = strtoll(k->fallback, NULL, 10);
        return ST_OK;
    }
    if (k->kind != CONFIG_CHOICE || *text_of(m, k) != NULL)
        return ST_OK;
    if (from != NULL)
        *text_of(m, k) = strdup(*(char *const *)(const void *)((const char *)c + from->offset));
    else
        *text_of(m, k) = strdup(k->fallback);
    return *text_of(m, k) != NULL ? ST_OK : ST_NO_MEMORY;
}

static enum status complete(const struct config *c, struct config_model *m, const char *file,
                            struct reason *why)
{
    enum status s = choose_socket(c, m, file, why);
    struct config_key k;

    for (size_t i = 0; s == ST_OK && config_model_key_at(i, &k); i++)
        s = fill(c, m, &k, i < COUNT_OF(own_keys) ? NULL : engine_row(i - COUNT_OF(own_keys)));
    return s;
}

enum status config_models_complete(struct config *c, const char *file, struct reason *why)
{
    for (size_t i = 0; i < c->n_models; i++) {
        struct config_model *m = &c->models[i];
        enum status s = complete(c, m, file, why);

        if (s != ST_OK)
            return s;
        for (size_t k = 0; k < i; k++)
            if (strcmp(c->models[k].socket, m->socket) == 0)
                return fail_param(why, ST_INVALID, "model.socket",
                                  "%s: models %s and %s would share the socket %s: give one of "
                                  "them a model.socket",
                                  file, c->models[k].id, m->id, m->socket);
    }
    return ST_OK;
}

const struct config_model *config_model_find(const struct config *c, const char *name)
{
    for (size_t i = 0; i < c->n_models; i++)
        if (count_name(&c->models[i], name) > 0)
            return &c->models[i];
    return NULL;
}

void config_models_put_ids(const struct config *c, struct buf *out)
{
    for (size_t i = 0; i < c->n_models; i++)
        buf_printf(out, "%s%s", i > 0 ? ", " : "", c->models[i].id);
}
