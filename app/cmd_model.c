#include "app/cmd_model.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "app/config.h"
#include "app/config_models.h"
#include "app/supervise/control.h"
#include "app/supervise/control_ask.h"
#include "base/buf.h"
#include "base/log.h"
#include "base/size.h"

#define EXIT_FAILED 1
#define EXIT_USAGE  2

#define LOOK_AGAIN_MS 100

static const char usage_text[] =
    "usage: sluice model list --config FILE\n"
    "       sluice model load|unload|swap --config FILE ID\n"
    "\n"
    "Of a running sluice up or serve --with-engine, which reads the file that it was started "
    "with.\n"
    "unload ends the model's engine once its requests have ended (at most 20 s); requests for it\n"
    "get 503 until load starts it again. swap starts a second engine from the files as they are\n"
    "now, and when that is ready it takes the place of the first, which ends its requests. All "
    "wait\n"
    "for the outcome; exit code 1: another one. A restart of the supervisor loads every model.\n";

enum verb { MODEL_LIST, MODEL_LOAD, MODEL_UNLOAD, MODEL_SWAP };

/* What they wait for, and the states on the way there; swap so where it is a load. */
static const struct {
    const char *name, *done, *on_the_way;
} verbs[] = {
    [MODEL_LIST] = {"list", NULL, NULL},
    [MODEL_LOAD] = {"load", "ready", "loading"},
    [MODEL_UNLOAD] = {"unload", "unloaded", "unloading"},
    [MODEL_SWAP] = {"swap", "ready", "loading"},
};

struct model_options {
    enum verb verb;
    const char *config, *id;
};

/* ---- the verbs ---- */

static const char *text_of(const json_t *model, const char *key)
{
    const char *s = json_string_value(json_object_get(model, key));

    return s != NULL ? s : "";
}

static const char *swap_of(const json_t *model)
{
    return text_of(model, "swap");
}

/* Under the model's own line. */
static void print_swap(const json_t *m)
{
    int pid = (int)json_integer_value(json_object_get(m, "swap_pid"));

    if (strcmp(swap_of(m), "loading") == 0)
        printf("          pid %-8d its successor, loading\n", pid);
    else if (strcmp(swap_of(m), "retiring") == 0)
        printf("          pid %-8d the engine before it, ending its requests\n", pid);
    else if (strcmp(swap_of(m), "failed") == 0)
        printf("          its last swap failed: %s\n", text_of(m, "swap_reason"));
}

static void print_models(const json_t *answer)
{
    const json_t *all = json_object_get(answer, "models"), *m;
    size_t i;

    json_array_foreach(all, i, m)
    {
        int pid = (int)json_integer_value(json_object_get(m, "pid"));

        printf("%-9s ", text_of(m, "state"));
        if (pid != 0)
            printf("pid %-8d ", pid);
        else
            printf("%-12s ", "-");
        printf("%s", text_of(m, "id"));
        if (text_of(m, "reason")[0] != '\0')
            printf(": %s", text_of(m, "reason"));
        putchar('\n');
        print_swap(m);
    }
}

static const json_t *find(const json_t *answer, const char *id)
{
    const json_t *all = json_object_get(answer, "models"), *m;
    size_t i;

    json_array_foreach(all, i, m)
    {
        if (strcmp(text_of(m, "id"), id) == 0)
            return m;
    }
    return NULL;
}

/* ST_OVERLOADED: not yet. */
static enum status judge(const json_t *answer, enum verb verb, const char *id, struct reason *why)
{
    const json_t *m = find(answer, id);
    const char *state = m != NULL ? text_of(m, "state") : "gone";

    if (strcmp(state, verbs[verb].done) == 0)
        return ST_OK;
    if (strcmp(state, verbs[verb].on_the_way) == 0)
        return ST_OVERLOADED;
    return fail(why, ST_UNAVAILABLE, "%s is %s%s%s", id, state,
                m != NULL && text_of(m, "reason")[0] != '\0' ? ": " : "",
                m != NULL ? text_of(m, "reason") : "");
}

/* A swap of ours, as it goes on. */
struct swap_progress {
    json_int_t number;         /* which of the engine's it is; 0: none, it became a load */
    bool told_load, told_over; /* the lines that were printed */
};

static json_int_t number_of(const json_t *model)
{
    return json_integer_value(json_object_get(model, "swap_number"));
}

static void say_loading(struct swap_progress *p)
{
    if (!p->told_load)
        printf("the successor loads\n");
    p->told_load = true;
    fflush(stdout);
}

static void say_handed_over(struct swap_progress *p, const json_t *m)
{
    json_int_t ms = json_integer_value(json_object_get(m, "swap_ready_ms"));

    say_loading(p);
    if (!p->told_over)
        printf("ready after %.1f s\nhanded over\n", (double)ms / 1000);
    p->told_over = true;
    fflush(stdout);
}

/* ST_OVERLOADED: not yet over. */
static enum status judge_swap(const json_t *answer, struct swap_progress *p, const char *id,
                              struct reason *why)
{
    const json_t *m = find(answer, id);
    const char *state = m != NULL ? swap_of(m) : "";

    if (m == NULL || number_of(m) != p->number)
        return fail(why, ST_CONFLICT, "the supervisor has begun another swap of %s since", id);
    if (strcmp(state, "loading") == 0) {
        say_loading(p);
        return ST_OVERLOADED;
    }
    if (strcmp(state, "failed") == 0)
        return fail(why, ST_UNAVAILABLE,
                    "the successor of %s failed, and the engine that serves stays: %s", id,
                    text_of(m, "swap_reason"));
    say_handed_over(p, m);
    if (strcmp(state, "retiring") == 0)
        return ST_OVERLOADED;
    printf("the old engine has left%s%s\n", text_of(m, "swap_reason")[0] != '\0' ? ": " : "",
           text_of(m, "swap_reason"));
    return ST_OK;
}

/* Which swap the answer has begun. */
static struct swap_progress begun(const json_t *answer, enum verb verb, const char *id)
{
    const json_t *m = find(answer, id);
    bool is_swap = verb == MODEL_SWAP && m != NULL && strcmp(swap_of(m), "loading") == 0;

    return (struct swap_progress){.number = is_swap ? number_of(m) : 0};
}

static enum status change(const char *path, enum verb verb, const char *id, struct reason *why)
{
    const struct timespec pause = {.tv_nsec = LOOK_AGAIN_MS * 1000000L};
    json_t *answer = NULL;
    enum status st = control_ask(path, verbs[verb].name, id, &answer, why);
    struct swap_progress p = begun(answer, verb, id);

    json_decref(answer);
    while (st == ST_OK || st == ST_OVERLOADED) {
        answer = NULL;
        st = control_ask(path, "list", NULL, &answer, why);
        if (st == ST_OK)
            st = p.number != 0 ? judge_swap(answer, &p, id, why) : judge(answer, verb, id, why);
        json_decref(answer);
        if (st != ST_OVERLOADED)
            break;
        nanosleep(&pause, NULL);
    }
    if (st == ST_OK)
        printf("%s is %s\n", id, verbs[verb].done);
    return st;
}

/* By what the paths lead to. One that can't be looked at, or that an older supervisor doesn't tell,
 * is no reason to refuse. */
static bool is_another_file(const char *a, const char *b)
{
    struct stat at, bt;

    return stat(a, &at) == 0 && stat(b, &bt) == 0 &&
           (at.st_dev != bt.st_dev || at.st_ino != bt.st_ino);
}

/* The engine that load and swap start reads the supervisor's file: from another one nothing would
 * be taken over, and nobody would notice. */
static enum status check_file(const char *path, const struct model_options *o, struct reason *why)
{
    json_t *answer = NULL;
    enum status st = control_ask(path, "list", NULL, &answer, why);
    const char *theirs = json_string_value(json_object_get(answer, "config"));

    if (st == ST_OK && theirs != NULL && is_another_file(theirs, o->config))
        st = fail(why, ST_CONFLICT, "the supervisor was started with %s: change that, and give it",
                  theirs);
    json_decref(answer);
    return st;
}

static enum status list(const char *path, struct reason *why)
{
    json_t *answer = NULL;
    enum status st = control_ask(path, "list", NULL, &answer, why);

    if (st == ST_OK)
        print_models(answer);
    json_decref(answer);
    return st;
}

static enum status run(const struct model_options *o, const struct config *c, struct reason *why)
{
    char path[CONTROL_PATH_BYTES];
    enum status st = control_path(c->engine_socket, path, why);
    const struct config_model *m;
    struct buf ids;

    if (st != ST_OK || o->verb == MODEL_LIST)
        return st == ST_OK ? list(path, why) : st;
    m = config_model_find(c, o->id);
    if (m != NULL) {
        st = o->verb != MODEL_UNLOAD ? check_file(path, o, why) : ST_OK;
        return st == ST_OK ? change(path, o->verb, m->id, why) : st;
    }
    buf_init(&ids);
    config_models_put_ids(c, &ids);
    st = fail(why, ST_NOT_FOUND, "%s has no model %s, but %s", o->config, o->id, buf_cstr(&ids));
    buf_dispose(&ids);
    return st;
}

/* ---- the command ---- */

static bool take_options(struct model_options *o, int argc, char **argv)
{
    size_t verb = 0;

    *o = (struct model_options){.verb = MODEL_LIST};
    while (argc > 1 && verb < COUNT_OF(verbs) && strcmp(argv[1], verbs[verb].name) != 0)
        verb++;
    if (argc < 2 || verb == COUNT_OF(verbs))
        return false;
    o->verb = (enum verb)verb;
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--config") == 0 && i + 1 < argc)
            o->config = argv[++i];
        else if (argv[i][0] != '-' && o->id == NULL)
            o->id = argv[i];
        else
            return false;
    }
    return o->config != NULL && (o->id != NULL) == (o->verb != MODEL_LIST);
}

int cmd_model(int argc, char **argv)
{
    struct model_options o;
    struct config *c = NULL;
    struct reason why = {0};
    enum status st;

    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(usage_text, stdout);
        return 0;
    }
    if (!take_options(&o, argc, argv)) {
        fputs(usage_text, stderr);
        return EXIT_USAGE;
    }
    log_init("model", LOG_ERROR);
    st = config_load_engine(o.config, &c, &why);
    if (st == ST_OK)
        st = run(&o, c, &why);
    config_free(c);
    if (st == ST_OK)
        return 0;
    fprintf(stderr, "sluice model: %s\n", why.text[0] != '\0' ? why.text : status_text(st));
    return EXIT_FAILED;
}
