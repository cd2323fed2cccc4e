#include "app/up/last_start.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/up/checks.h"
#include "app/up/config_write.h"
#include "app/supervise/files.h"

enum status last_start_read(const char *config, struct up_options *o, struct config **last,
                            struct reason *why)
{
    enum status st = ST_OK;

    *last = NULL;
    if (file_exists(config))
        st = config_load_engine(config, last, why);
    return st == ST_OK ? options_complete(o, *last, why) : st;
}

/* Whatever links lead to it. */
static bool is_file(const char *path, const char *real)
{
    char resolved[PATH_MAX];

    return realpath(path, resolved) != NULL && strcmp(resolved, real) == 0;
}

enum status last_start_model(const char *given, const struct config *last, struct model_choice *out,
                             struct reason *why)
{
    const char *path = given;
    enum status st;

    if (path != NULL && last != NULL && last->n_models > 1)
        return fail(
            why, ST_CONFLICT,
            "sluice.yaml has a list of models, which --model does not change: edit the file");
    if (path == NULL && last == NULL)
        return fail(why, ST_INVALID, "which model? give --model FILE.gguf");
    if (path == NULL)
        path = last->models[0].path;
    if (realpath(path, out->path) == NULL)
        return fail(why, ST_NOT_FOUND, "model %s: %s", path, strerror(errno));
    st = check_model(out->path, why);
    if (st != ST_OK)
        return st;
    config_model_id(out->path, out->id, sizeof out->id);
    if (last != NULL && is_file(last->models[0].path, out->path)) {
        snprintf(out->path, sizeof out->path, "%s", last->models[0].path);
        snprintf(out->id, sizeof out->id, "%s", last->models[0].id);
    }
    return ST_OK;
}
