#include "app/up/config_write.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "app/supervise/files.h"

/* As billing and the prices' table have room for. */
#define MODEL_ID_MAX 95

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

void config_model_id(const char *path, char *out, size_t size)
{
    const char *slash = strrchr(path, '/');
    char *dot;

    if (size > MODEL_ID_MAX + 1)
        size = MODEL_ID_MAX + 1;
    snprintf(out, size, "%s", slash != NULL ? slash + 1 : path);
    for (char *s = out; *s != '\0'; s++)
        *s = isalnum((unsigned char)*s) || strchr("._-", *s) != NULL
                 ? (char)tolower((unsigned char)*s)
                 : '-';
    if (ends_with(out, ".gguf"))
        out[strlen(out) - strlen(".gguf")] = '\0';
    dot = strrchr(out, '.');
    if (dot != NULL && dot != out && is_quantization(dot + 1))
        *dot = '\0';
}

/* A YAML scalar in double quotes: any bytes of a path that are UTF-8. */
static void put_text(struct buf *out, const char *key, const char *text)
{
    buf_printf(out, "  %s: \"", key);
    for (const unsigned char *s = (const unsigned char *)text; *s != '\0'; s++) {
        if (*s == '"' || *s == '\\')
            buf_printf(out, "\\%c", *s);
        else if (*s < 0x20 || *s == 0x7F)
            buf_printf(out, "\\x%02x", *s);
        else
            buf_putc(out, (char)*s);
    }
    buf_puts(out, "\"\n");
}

/* The one value that has no quotes: paths in it were quoted for libpq, and it is read by people. */
static bool is_plain(const char *conninfo)
{
    return strpbrk(conninfo, "#:'\"\\\n\t{}[],&*!|>%@`") == NULL;
}

void config_put(struct buf *out, const struct config_values *v)
{
    const struct layout *l = v->layout;
    char id[MODEL_ID_MAX + 1];

    config_model_id(v->model_path, id, sizeof id);
    buf_puts(out, "# Written by `sluice up` at every start; every key: docs/config.md.\nmodel:\n");
    put_text(out, "path", v->model_path);
    put_text(out, "id", id);
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

enum status config_write(const struct config_values *v, struct reason *why)
{
    char path[LAYOUT_PATH_MAX];
    struct buf text;
    enum status st;

    buf_init(&text);
    config_put(&text, v);
    st = text.failed ? fail(why, ST_NO_MEMORY, "out of memory")
                     : file_write(layout_path(v->layout, "sluice.yaml", path), text.data, text.len,
                                  0600, why);
    buf_dispose(&text);
    return st;
}
