#include "app/up/last_start.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/up/checks.h"
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

static enum status take(const char *path, struct model_choice *out, struct reason *why)
{
    enum status st;

    if (realpath(path, out->path) == NULL)
        return fail(why, ST_NOT_FOUND, "model %s: %s", path, strerror(errno));
    st = check_model(out->path, why);
    if (st == ST_OK)
        config_model_id(out->path, out->id, sizeof out->id);
    return st;
}

/* As the configuration has it, where it is the file that stands there. */
static bool keep(const struct config_model *last, struct model_choice *out)
{
    if (!is_file(last->path, out->path))
        return false;
    snprintf(out->path, sizeof out->path, "%s", last->path);
    snprintf(out->id, sizeof out->id, "%s", last->id);
    return true;
}

static enum status one_model(const char *given, const struct config *last, struct model_choice *out,
                             struct reason *why)
{
    const char *path = given;
    enum status st;

    if (given != NULL && last != NULL && last->n_models > 1)
        return fail(
            why, ST_CONFLICT,
            "sluice.yaml has a list of models, which --model does not change: edit the file");
    if (path == NULL && last != NULL)
        path = last->models[0].path;
    if (path == NULL)
        return fail(why, ST_INVALID, "which model? give --model FILE.gguf");
    st = take(path, out, why);
    if (st == ST_OK && last != NULL)
        (void)keep(&last->models[0], out);
    return st;
}

/* ---- several ---- */

static const struct model_choice *namesake(const struct model_choice *all, size_t n, size_t i)
{
    for (size_t k = 0; k < n; k++)
        if (k != i && strcmp(all[k].id, all[i].id) == 0)
            return &all[k];
    return NULL;
}

/* Two quantizations of one model are told apart by these. */
static enum status name_apart(struct model_choice *all, size_t n, struct reason *why)
{
    bool shared[UP_MODELS_MAX];

    for (size_t i = 0; i < n; i++)
        shared[i] = namesake(all, n, i) != NULL;
    for (size_t i = 0; i < n; i++)
        if (shared[i])
            config_model_full_id(all[i].path, all[i].id, sizeof all[i].id);
    for (size_t i = 0; i < n; i++)
        if (namesake(all, n, i) != NULL)
            return fail(why, ST_INVALID, "two models would have one name: %s and %s", all[i].path,
                        namesake(all, n, i)->path);
    return ST_OK;
}

static enum status as_listed(const struct config *last, struct model_choice *all, size_t n,
                             struct reason *why)
{
    bool same = last->n_models == n;

    for (size_t i = 0; i < n && same; i++)
        same = keep(&last->models[i], &all[i]);
    return same ? ST_OK
                : fail(why, ST_CONFLICT,
                       "sluice.yaml has other models, and several --model do not change them: "
                       "edit the file");
}

enum status last_start_models(const struct up_options *o, const struct config *last,
                              struct model_choice out[UP_MODELS_MAX], size_t *n, struct reason *why)
{
    enum status st = ST_OK;

    *n = o->n_models > 1 ? o->n_models : 1;
    if (*n == 1)
        return one_model(o->n_models == 1 ? o->models[0] : NULL, last, out, why);
    for (size_t i = 0; i < *n && st == ST_OK; i++)
        st = take(o->models[i], &out[i], why);
    if (st != ST_OK)
        return st;
    return last != NULL ? as_listed(last, out, *n, why) : name_apart(out, *n, why);
}
