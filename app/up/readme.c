#include "app/up/readme.h"

#include <stdbool.h>
#include <string.h>

#include "app/supervise/files.h"
#include "base/buf.h"

enum status readme_write(const struct layout *l, struct reason *why)
{
    char path[LAYOUT_PATH_MAX];
    bool apart = strcmp(l->home, l->dir) != 0;
    struct buf text;
    enum status st;

    buf_init(&text);
    buf_printf(
        &text,
        "This folder belongs to `sluice up`. To start over, stop it and remove the folder%s%s.\n"
        "\n"
        "sluice.yaml       the gateway's and the engine's configuration: yours to edit\n"
        "demo.key          API key of the tenant \"demo\"\n"
        "admin.key         API key that reads every tenant's usage\n"
        "pepper            secret behind all API keys: keep it with the database\n"
        "tls.crt, tls.key  self-signed certificate for localhost\n"
        "journal/          usage that may not be in the database yet\n"
        "log/              what each process said\n"
        "%s/postgres/      the database: tenants, keys, prices, usage\n"
        "%s/redis/         rate limits\n"
        "%s/               sockets\n",
        apart ? " and " : "", apart ? l->home : "", l->home, l->home, l->sockets);
    st = text.failed ? fail(why, ST_NO_MEMORY, "out of memory")
                     : file_write(layout_path(l, "README", path), text.data, text.len, 0644, why);
    buf_dispose(&text);
    return st;
}
