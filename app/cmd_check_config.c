#include "app/cmd_check_config.h"

#include <stdio.h>
#include <string.h>

#include "app/config.h"
#include "app/config_keys.h"
#include "app/memory.h"
#include "base/buf.h"

static int print_keys(void)
{
    struct buf text;
    int rc = 1;

    buf_init(&text);
    config_keys_markdown(&text);
    if (!text.failed && fwrite(text.data, 1, text.len, stdout) == text.len && fflush(stdout) == 0)
        rc = 0;
    buf_dispose(&text);
    return rc;
}

static int complain(enum status st, const struct reason *why)
{
    fprintf(stderr, "%s\n", why->text[0] != '\0' ? why->text : status_text(st));
    return 1;
}

static int check_file(const char *path)
{
    struct config *c = NULL;
    struct reason why = {0};
    enum status st = config_load(path, &c, &why);

    if (st != ST_OK)
        return complain(st, &why);
    printf("%s: ok\n", path);
    config_free(c);
    return 0;
}

/* As the engine reads the file: secrets are of no use here. */
static int check_memory(const char *path)
{
    struct config *c = NULL;
    struct reason why = {0};
    struct buf table;
    enum status st = config_load_engine(path, &c, &why);

    if (st != ST_OK)
        return complain(st, &why);
    buf_init(&table);
    st = memory_check_all(c, &table, &why);
    fputs(buf_cstr(&table), stdout);
    buf_dispose(&table);
    config_free(c);
    return st == ST_OK ? 0 : complain(st, &why);
}

static const char usage_text[] =
    "usage: sluice check-config FILE\n"
    "       sluice check-config --memory FILE  what its engines need, and whether it is there\n"
    "       sluice check-config --keys         every key, as Markdown\n";

int cmd_check_config(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--keys") == 0)
        return print_keys();
    if (argc == 3 && strcmp(argv[1], "--memory") == 0)
        return check_memory(argv[2]);
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(usage_text, stdout);
        return 0;
    }
    if (argc == 2 && argv[1][0] != '-')
        return check_file(argv[1]);
    fputs(usage_text, stderr);
    return 2;
}
