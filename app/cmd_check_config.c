#include "app/cmd_check_config.h"

#include <stdio.h>
#include <string.h>

#include "app/config.h"
#include "app/config_keys.h"
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

int cmd_check_config(int argc, char **argv)
{
    struct config *c = NULL;
    struct reason why = {0};
    enum status st;

    if (argc == 2 && strcmp(argv[1], "--keys") == 0)
        return print_keys();
    if (argc != 2 || argv[1][0] == '-') {
        fputs("usage: sluice check-config FILE\n"
              "       sluice check-config --keys    every key, as Markdown\n",
              argc == 2 && strcmp(argv[1], "--help") == 0 ? stdout : stderr);
        return argc == 2 && strcmp(argv[1], "--help") == 0 ? 0 : 2;
    }
    st = config_load(argv[1], &c, &why);
    if (st != ST_OK) {
        fprintf(stderr, "%s\n", why.text[0] != '\0' ? why.text : status_text(st));
        return 1;
    }
    printf("%s: ok\n", argv[1]);
    config_free(c);
    return 0;
}
