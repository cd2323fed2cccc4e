#include "app/config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/config_keys.h"
#include "app/config_models.h"
#include "app/config_yaml.h"
#include "base/buf.h"
#include "base/size.h"

/* A configuration has some sixty keys: a file past this is not one. */
#define CONFIG_BYTES_MAX (256u << 10)
/* A key for HMAC-SHA-256 of 32 bytes (RFC 2104: not shorter than the hash), in hex. */
#define PEPPER_HEX_MIN   64
#define PEPPER_BYTES_MAX 4096

static char **text_of(struct config *c, const struct config_key *k)
{
    return (char **)(void *)((char *)c + k->offset);
}

static enum status read_file(const char *path, size_t max, struct buf *out, struct reason *why)
{
    char chunk[4096];
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd == -1)
        return fail(why, errno == ENOENT ? ST_NOT_FOUND : ST_IO, "%s: %s", path, strerror(errno));
    while (out->len <= max && (n = read(fd, chunk, sizeof chunk)) > 0)
        buf_append(out, chunk, (size_t)n);
    OPENSSL_cleanse(chunk, sizeof chunk); /* it may have been the pepper */
    if (n == -1) {
        enum status st = fail(why, ST_IO, "%s: %s", path, strerror(errno));

        close(fd);
        return st;
    }
    close(fd);
    if (out->len > max)
        return fail(why, ST_TOO_LARGE, "%s is larger than %zu bytes", path, max);
    return out->failed ? ST_NO_MEMORY : ST_OK;
}

/* ---- what one key alone cannot say ---- */

/* An idle engine says something every second: it must be missed more than once. */
#define STALL_MS_MIN 3000

/* Of the engine's keys: also when the rest of the file is another process's. */
static enum status check_engine(const struct config *c, const char *name, struct reason *why)
{
    if (c->engine_stall_ms != 0 &&
        c->engine_stall_ms < int64_max(STALL_MS_MIN, 3 * c->engine_step_ms))
        return fail_param(why, ST_INVALID, "engine.stall_ms",
                          "%s: engine.stall_ms must be 0, or at least %d and three times "
                          "engine.step_ms",
                          name, STALL_MS_MIN);
    return ST_OK;
}

static enum status check_together(const struct config *c, const char *name, struct reason *why)
{
    if (c->tls_port != 0 && (c->tls_cert[0] == '\0' || c->tls_key[0] == '\0'))
        return fail_param(why, ST_INVALID, "server.tls_port",
                          "%s: server.tls_port needs server.tls_cert and server.tls_key", name);
    if (c->port == c->tls_port || c->port == c->admin_port ||
        (c->tls_port != 0 && c->tls_port == c->admin_port))
        return fail_param(why, ST_INVALID, "server.port",
                          "%s: server.port, server.tls_port and server.admin_port must differ",
                          name);
    if (c->buffered_max_bytes < c->body_max_bytes)
        return fail_param(why, ST_INVALID, "server.buffered_max_bytes",
                          "%s: server.buffered_max_bytes is below server.body_max_bytes", name);
    return check_engine(c, name, why);
}

static enum status check_required(struct config *c, bool engine, const char *name,
                                  struct reason *why)
{
    for (size_t i = 0; i < config_keys_count; i++) {
        const struct config_key *k = &config_keys[i];

        if (k->fallback == NULL && *text_of(c, k) == NULL && (k->engine || !engine))
            return fail_param(why, ST_INVALID, k->name, "%s: %s is missing", name, k->name);
    }
    return engine ? check_engine(c, name, why) : check_together(c, name, why);
}

static enum log_level level_of(const char *name)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    int level = 0;

    while (level < LOG_ERROR && strcmp(names[level], name) != 0)
        level++;
    return (enum log_level)level;
}

static enum status parse(const char *text, size_t len, const char *name, const char *dir,
                         bool engine, struct config **out, struct reason *why)
{
    struct config *c = calloc(1, sizeof *c);
    enum status st;

    if (c == NULL)
        return ST_NO_MEMORY;
    st = config_yaml_read(text, len, name, dir, c, why);
    if (st == ST_OK)
        st = config_models_check(c, name, why);
    if (st == ST_OK)
        st = check_required(c, engine, name, why);
    if (st == ST_OK)
        st = config_models_complete(c, name, why);
    if (st == ST_OK && (c->auth_pepper = strdup("")) == NULL)
        st = ST_NO_MEMORY;
    if (st != ST_OK) {
        config_free(c);
        return st;
    }
    c->log_level = level_of(c->log_level_name);
    *out = c;
    return ST_OK;
}

enum status config_parse(const char *text, size_t len, const char *name, const char *dir,
                         struct config **out, struct reason *why)
{
    return parse(text, len, name, dir, false, out, why);
}

/* ---- from files ---- */

static enum status load(const char *path, bool engine, struct config **out, struct reason *why)
{
    char real[PATH_MAX];
    struct buf text;
    enum status st;

    if (realpath(path, real) == NULL)
        return fail(why, errno == ENOENT ? ST_NOT_FOUND : ST_IO, "%s: %s", path, strerror(errno));
    buf_init(&text);
    st = read_file(real, CONFIG_BYTES_MAX, &text, why);
    *strrchr(real, '/') = '\0';
    if (st == ST_OK)
        st = parse(buf_cstr(&text), text.len, path, real, engine, out, why);
    if (text.data != NULL)
        OPENSSL_cleanse(text.data, text.len);
    buf_dispose(&text);
    return st;
}

static enum status check_pepper(const struct config *c, struct buf *text, struct reason *why)
{
    struct stat s;
    size_t n = strspn(buf_cstr(text), "0123456789abcdefABCDEF");

    /* A NUL byte would end the text for its users and hide what follows. */
    if (n < PEPPER_HEX_MIN || n != text->len)
        return fail_param(why, ST_INVALID, "auth.pepper_file",
                          "%s: auth.pepper_file must hold at least %d hex digits and nothing else",
                          c->auth_pepper_file, PEPPER_HEX_MIN);
    /* A group may read it (a service's group), everyone may not. */
    if (stat(c->auth_pepper_file, &s) == 0 && (s.st_mode & S_IROTH) != 0)
        return fail_param(why, ST_FORBIDDEN, "auth.pepper_file",
                          "%s: everyone may read auth.pepper_file; chmod 600 it",
                          c->auth_pepper_file);
    return ST_OK;
}

static bool ends_in_space(const struct buf *b)
{
    const char last = b->len > 0 ? b->data[b->len - 1] : 'x';

    return last == ' ' || last == '\r' || last == '\n';
}

static enum status load_pepper(struct config *c, struct reason *why)
{
    struct buf text;
    enum status st;

    buf_init(&text);
    st = read_file(c->auth_pepper_file, PEPPER_BYTES_MAX, &text, why);
    while (ends_in_space(&text))
        text.len--;
    if (st == ST_OK)
        st = check_pepper(c, &text, why);
    if (st == ST_OK) {
        free(c->auth_pepper);
        c->auth_pepper = strdup(buf_cstr(&text));
        st = c->auth_pepper == NULL ? ST_NO_MEMORY : ST_OK;
    }
    if (text.data != NULL)
        OPENSSL_cleanse(text.data, text.len);
    buf_dispose(&text);
    return st;
}

enum status config_load(const char *path, struct config **out, struct reason *why)
{
    struct config *c = NULL;
    enum status st = load(path, false, &c, why);

    if (c != NULL)
        st = load_pepper(c, why);
    if (st != ST_OK) {
        config_free(c);
        return st;
    }
    *out = c;
    return ST_OK;
}

static void wipe(char **text)
{
    if (*text != NULL)
        OPENSSL_cleanse(*text, strlen(*text));
    free(*text);
    *text = NULL;
}

enum status config_load_engine(const char *path, struct config **out, struct reason *why)
{
    struct config *c = NULL;
    enum status st = load(path, true, &c, why);

    if (st != ST_OK)
        return st;
    for (size_t i = 0; i < config_keys_count; i++)
        if (config_keys[i].secret)
            wipe(text_of(c, &config_keys[i]));
    *out = c;
    return ST_OK;
}

void config_free(struct config *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; i < config_keys_count; i++)
        if (config_keys[i].kind != CONFIG_INT)
            wipe(text_of(c, &config_keys[i]));
    wipe(&c->auth_pepper);
    config_models_free(c);
    free(c);
}
