#include "app/up/config_write.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "app/supervise/files.h"

/* As billing and the prices' table have room for. */
#define MODEL_ID_MAX 95
/* As config_load reads at most. */
#define FILE_BYTES_MAX (256 << 10)

/* ".Q4_1", ".IQ3_M", ".F16", ".BF16" at the name's end. */
static bool is_quantization(const char *s)
{
    static const char *const kinds[] = {"q", "iq", "f", "bf"};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t n = strlen(kinds[i]);

        if (strncmp(s, kinds[i], n) == 0 && isdigit((unsigned char)s[n]))
            return true;
    }
    return false;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n > m && strcmp(s + n - m, end) == 0;
}

void config_model_full_id(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/');

    if (size > MODEL_ID_MAX + 1)
        size = MODEL_ID_MAX + 1;
    snprintf(out, size, "%s", slash != NULL ? slash + 1 : path);
    for (char *s = out; *s != '\0'; s++)
        *s = isalnum((unsigned char)*s) || strchr("._-", *s) != NULL
                 ? (char)tolower((unsigned char)*s)
                 : '-';
    if (ends_with(out, ".gguf"))
        out[strlen(out) - strlen(".gguf")] = '\0';
}

void config_model_id(const char *path, char *out, size_t size)
{
    char *dot;

    config_model_full_id(path, out, size);
    dot = strrchr(out, '.');
    if (dot != NULL && dot != out && is_quantization(dot + 1))
        *dot = '\0';
}

/* ---- a new file ---- */

/* A YAML scalar in double quotes: any bytes of a path that are UTF-8. */
void config_put_quoted(struct buf *out, const char *text)
{
    buf_putc(out, '"');
    for (const unsigned char *s = (const unsigned char *)text; *s != '\0'; s++) {
        if (*s == '"' || *s == '\\')
            buf_printf(out, "\\%c", *s);
        else if (*s < 0x20 || *s == 0x7F)
            buf_printf(out, "\\x%02x", *s);
        else
            buf_putc(out, (char)*s);
    }
    buf_putc(out, '"');
}

static void put_text(struct buf *out, const char *key, const char *text)
{
    buf_printf(out, "  %s: ", key);
    config_put_quoted(out, text);
    buf_putc(out, '\n');
}

/* The one value that has no quotes: paths in it were quoted for libpq, and it is read by people. */
static bool is_plain(const char *conninfo)
{
    return strpbrk(conninfo, "#:'\"\\\n\t{}[],&*!|>%@`") == NULL;
}

static void put_model(struct buf *out, const struct config_values *v)
{
    buf_puts(
        out,
        "# Written by `sluice up` at its first start. It is yours: a later start changes only\n"
        "# model.path and model.id (--model), ports (--port and so on), the sockets and\n"
        "# postgres.conninfo, where they differ from what it runs. Every key: docs/config.md.\n"
        "model:\n");
    put_text(out, "path", v->model_path);
    put_text(out, "id", v->model_id);
}

static void put_models(struct buf *out, const struct config_values *v)
{
    buf_puts(
        out,
        "# Written by `sluice up` at its first start. It is yours: a later start changes only "
        "ports\n"
        "# (--port and so on), the sockets and postgres.conninfo, where they differ from what it\n"
        "# runs. Every key: docs/config.md.\n"
        "models:\n");
    for (size_t i = 0; i < v->n_models; i++) {
        buf_puts(out, "  - path: ");
        config_put_quoted(out, v->models[i].path);
        buf_puts(out, "\n  ");
        put_text(out, "id", v->models[i].id);
    }
}

void config_put(struct buf *out, const struct config_values *v)
{
    const struct layout *l = v->layout;

    if (v->n_models > 1)
        put_models(out, v);
    else
        put_model(out, v);
    buf_puts(out, "engine:\n");
    put_text(out, "socket", l->engine_socket);
    buf_printf(out, "server:\n  port: %d\n  tls_port: %d\n", v->port, v->tls_port);
    buf_puts(out, "  tls_cert: tls.crt\n  tls_key: tls.key\n");
    buf_printf(out, "  admin_port: %d\n", v->admin_port);
    buf_puts(out, "postgres:\n");
    if (is_plain(v->conninfo))
        buf_printf(out, "  conninfo: %s\n", v->conninfo);
    else
        put_text(out, "conninfo", v->conninfo);
    buf_puts(out, "redis:\n");
    put_text(out, "socket", l->redis_socket);
    buf_puts(out, "auth:\n  pepper_file: pepper\n");
    buf_puts(out, "billing:\n  journal_dir: journal\n");
}

/* ---- the file ---- */

static enum status read_file(const char *path, struct buf *out, struct reason *why)
{
    char part[4096];
    ssize_t n = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    while (fd != -1 && (n = read(fd, part, sizeof part)) > 0 && out->len <= FILE_BYTES_MAX)
        buf_append(out, part, (size_t)n);
    if (fd == -1 || n == -1)
        fail(why, ST_IO, "%s: %s", path, strerror(errno));
    if (fd != -1)
        close(fd);
    if (fd == -1 || n == -1)
        return ST_IO;
    return out->len <= FILE_BYTES_MAX ? ST_OK
                                      : fail(why, ST_TOO_LARGE, "%s: it is too large", path);
}

static enum status make_text(const char *path, const struct config_values *v, struct buf *old,
                             struct buf *text, struct reason *why)
{
    enum status st = ST_OK;

    if (file_exists(path)) {
        st = read_file(path, old, why);
        if (st == ST_OK)
            st = config_update(text, buf_cstr(old), old->len, v, why);
    } else {
        config_put(text, v);
    }
    if (st == ST_OK && (old->failed || text->failed))
        st = fail(why, ST_NO_MEMORY, "out of memory");
    return st;
}

enum status config_write(const struct config_values *v, struct reason *why)
{
    char path[LAYOUT_PATH_MAX];
    struct buf old, text;
    enum status st;

    buf_init(&old);
    buf_init(&text);
    layout_path(v->layout, "sluice.yaml", path);
    st = make_text(path, v, &old, &text, why);
    if (st == ST_OK && (old.len != text.len || memcmp(old.data, text.data, text.len) != 0))
        st = file_write(path, text.data, text.len, 0600, why);
    buf_dispose(&text);
    buf_dispose(&old);
    return st;
}
