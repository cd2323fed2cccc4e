#include "app/up/checks.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "app/supervise/alone.h"
#include "app/supervise/files.h"
#include "app/up/layout.h"
#include "app/up/probe.h"
#include "engine/engine.h"

/* A new cluster takes 40 MB, its log up to 256 MB (max_wal_size), the journal's segments 16 MB
 * each. A folder that is in use holds most of that already. */
#define SPACE_NEW_MB   384
#define SPACE_AGAIN_MB 64

enum status check_space(const char *folder, struct reason *why)
{
    char sign[LAYOUT_PATH_MAX];
    struct statvfs s;
    uint64_t free_mb;
    int need_mb;

    if (statvfs(folder, &s) == -1)
        return fail(why, ST_IO, "%s: %s", folder, strerror(errno));
    snprintf(sign, sizeof sign, "%.600s/sluice.yaml", folder);
    need_mb = file_exists(sign) ? SPACE_AGAIN_MB : SPACE_NEW_MB;
    free_mb = (uint64_t)s.f_bavail * s.f_frsize >> 20;
    if (free_mb < (uint64_t)need_mb)
        return fail(why, ST_NO_SPACE, "not enough space for %s: %d MB are needed, %llu MB are free",
                    folder, need_mb, (unsigned long long)free_mb);
    return ST_OK;
}

enum status check_model(const char *path, struct reason *why)
{
    const struct engine_model_config model = {.path = path, .id = "check"};
    struct engine_config cfg = {
        .models = &model, .n_models = 1, .text_threads = 1, .text_queue = 1};
    struct engine *e = NULL;
    struct reason inner = {0};
    enum status st;

    if (access(path, R_OK) == -1)
        return fail(why, ST_NOT_FOUND, "model %s: %s", path, strerror(errno));
    st = engine_open(&cfg, &e, &inner);
    if (st == ST_OK) {
        engine_close(e);
        return ST_OK;
    }
    /* The reason may name the file itself. */
    if (strstr(inner.text, path) != NULL)
        return fail(why, st, "%s", inner.text);
    return fail(why, st, "model %s: %s", path,
                inner.text[0] != '\0' ? inner.text : status_text(st));
}

enum status check_alone(const char *folder, struct reason *why)
{
    char path[LAYOUT_PATH_MAX];

    snprintf(path, sizeof path, "%.600s/lock", folder);
    return alone_take(path, folder, why);
}

enum status check_ports(const struct up_options *o, struct reason *why)
{
    enum status st = probe_port_free(o->port, "PORT= (--port)", why);

    if (st == ST_OK && o->tls_port != 0)
        st = probe_port_free(o->tls_port, "TLS_PORT= (--tls-port)", why);
    if (st == ST_OK && o->admin_port != 0)
        st = probe_port_free(o->admin_port, "ADMIN_PORT= (--admin-port)", why);
    return st;
}
