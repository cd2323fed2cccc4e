#include "engine/model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/utf8.h"
#include "engine/model/hf.h"
#include "engine/model/model_file.h"

/* general.name for logs and listings: printable, cut at a character. */
static void read_name(struct model *m)
{
    struct gguf_string name = {"", 0};
    size_t n = 0;

    (void)gguf_get_string(m->gguf, "general.name", &name);
    for (size_t i = 0; i < name.len;) {
        uint32_t cp = 0;
        int len = utf8_decode(name.data + i, name.len - i, &cp);

        if (len > 0 && cp >= 0x20 && cp != 0x7F && !(cp >= 0x80 && cp < 0xA0)) {
            if (n + (size_t)len >= sizeof m->name)
                break;
            memcpy(m->name + n, name.data + i, (size_t)len);
            n += (size_t)len;
        }
        i += len > 0 ? (size_t)len : 1;
    }
    m->name[n] = 0;
}

static enum status check_and_bind(struct model *m, struct reason *why)
{
    enum status s = model_check_keys(m->gguf, &m->arch, why);

    if (s == ST_OK)
        s = model_read_shape(m, why);
    if (s == ST_OK)
        s = model_bind(m, why);
    if (s != ST_OK)
        return s;
    read_name(m);
    return model_hash(m->gguf, m->revision, why);
}

/* A folder is checked under the names of the format that it was translated to. */
static void explain_names(const struct gguf *g, struct reason *why)
{
    size_t n;

    if (why == NULL || !gguf_is_folder(g))
        return;
    n = strlen(why->text);
    snprintf(why->text + n, sizeof why->text - n,
             " (in GGUF's names, to which a folder's translate)");
}

/* Takes over g. */
static enum status open_gguf(struct gguf *g, struct model **out, struct reason *why)
{
    struct model *m = calloc(1, sizeof *m);
    enum status s;

    if (m == NULL) {
        gguf_close(g);
        return fail(why, ST_NO_MEMORY, "out of memory");
    }
    m->gguf = g;
    s = check_and_bind(m, why);
    if (s != ST_OK) {
        explain_names(g, why);
        model_close(m);
        return s;
    }
    *out = m;
    return ST_OK;
}

static bool is_folder(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

enum status model_open_file(const char *path, struct gguf **out, struct reason *why)
{
    return is_folder(path) ? hf_open(path, out, why) : gguf_open(path, out, why);
}

enum status model_open(const char *path, struct model **out, struct reason *why)
{
    struct gguf *g = NULL;
    enum status s = model_open_file(path, &g, why);

    return s == ST_OK ? open_gguf(g, out, why) : s;
}

enum status model_open_memory(const void *data, size_t len, struct model **out, struct reason *why)
{
    struct gguf *g = NULL;
    enum status s = gguf_open_memory(data, len, &g, why);

    return s == ST_OK ? open_gguf(g, out, why) : s;
}

void model_close(struct model *m)
{
    if (m == NULL)
        return;
    gguf_close(m->gguf);
    free(m->layers);
    free(m);
}
