#include "app/admin.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/config.h"

#define PEPPER_BYTES_MAX 4096

bool admin_options_suffice(const struct admin_options *o, bool with_pepper)
{
    return o->config != NULL || (o->conninfo != NULL && (!with_pepper || o->pepper_file != NULL));
}

/* Its form is checked where it is used (key_create). */
static enum status read_pepper(const char *path, char **out, struct reason *why)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    char text[PEPPER_BYTES_MAX];
    ssize_t n = -1;

    if (fd != -1 && fstat(fd, &st) == 0 && (st.st_mode & S_IROTH) != 0) {
        close(fd);
        return fail(why, ST_FORBIDDEN, "%s: everyone may read it; chmod 600 it", path);
    }
    if (fd != -1) {
        n = read(fd, text, sizeof text - 1);
        close(fd);
    }
    if (n == -1)
        return fail(why, ST_NOT_FOUND, "%s: %s", path, strerror(errno));
    text[n] = '\0';
    text[strcspn(text, " \t\r\n")] = '\0';
    free(*out);
    *out = strdup(text);
    OPENSSL_cleanse(text, sizeof text);
    return *out != NULL ? ST_OK : fail(why, ST_NO_MEMORY, "out of memory");
}

static enum status set_pepper(struct admin *a, const char *text, struct reason *why)
{
    a->pepper = strdup(text);
    return a->pepper != NULL ? ST_OK : fail(why, ST_NO_MEMORY, "out of memory");
}

enum status admin_init(struct admin *a, const struct admin_options *o, bool with_pepper,
                       struct reason *why)
{
    struct config *config = NULL;
    const char *conninfo = o->conninfo;
    enum status s = ST_OK;

    *a = (struct admin){0};
    if (o->config != NULL)
        s = config_load(o->config, &config, why);
    if (s == ST_OK)
        s = set_pepper(a, config != NULL && with_pepper ? config->auth_pepper : "", why);
    if (s == ST_OK && with_pepper && o->pepper_file != NULL)
        s = read_pepper(o->pepper_file, &a->pepper, why);
    if (s == ST_OK && conninfo == NULL && config != NULL)
        conninfo = config->postgres_conninfo;
    if (s == ST_OK)
        s = pg_open(conninfo, &a->pg, why);
    config_free(config);
    if (s != ST_OK)
        admin_dispose(a);
    return s;
}

void admin_dispose(struct admin *a)
{
    pg_close(a->pg);
    if (a->pepper != NULL)
        OPENSSL_cleanse(a->pepper, strlen(a->pepper));
    free(a->pepper);
    *a = (struct admin){0};
}

int admin_failed(const char *command, enum status s, const struct reason *why)
{
    fprintf(stderr, "sluice %s: %s\n", command, why->text[0] != '\0' ? why->text : status_text(s));
    return 1;
}
