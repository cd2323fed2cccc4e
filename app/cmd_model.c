#include "app/cmd_model.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "app/config.h"
#include "app/config_models.h"
#include "app/supervise/control.h"
#include "base/json.h"
#include "base/log.h"
#include "base/size.h"

#define EXIT_FAILED 1
#define EXIT_USAGE  2

/* The supervisor answers within a turn. */
#define ANSWER_S     10
#define ANSWER_DEPTH 4
/* Of 64 models, with their reasons. */
#define ANSWER_BYTES_MAX (1 << 16)
#define LOOK_AGAIN_MS    100

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

/* ---- one request ---- */

static enum status connect_to(const char *path, int *out, struct reason *why)
{
    const struct timeval patience = {.tv_sec = ANSWER_S};
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    _Static_assert(sizeof a.sun_path >= CONTROL_PATH_BYTES, "every path fits");
    if (fd == -1)
        return fail(why, ST_IO, "no socket: %s", strerror(errno));
    memcpy(a.sun_path, path, strlen(path) + 1);
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == -1 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == -1 ||
        connect(fd, (const struct sockaddr *)&a, sizeof a) == -1) {
        enum status st =
            errno == EACCES
                ? fail(why, ST_FORBIDDEN, "%s: no right to ask there; run as its user", path)
                : fail(why, ST_UNAVAILABLE,
                       "no supervisor listens at %s: start sluice serve --with-engine or sluice up",
                       path);
        close(fd);
        return st;
    }
    *out = fd;
    return ST_OK;
}

static enum status exchange(int fd, const struct buf *request, struct buf *answer,
                            struct reason *why)
{
    ssize_t n = send(fd, request->data, request->len, MSG_NOSIGNAL);

    if (n != (ssize_t)request->len)
        return fail(why, ST_IO, "the supervisor does not listen: %s", strerror(errno));
    while (answer->len < ANSWER_BYTES_MAX && buf_reserve(answer, 4096)) {
        n = recv(fd, answer->data + answer->len, 4096, 0);
        if (n == -1 && errno == EINTR)
            continue;
        if (n == 0)
            return ST_OK;
        if (n == -1)
            break;
        answer->len += (size_t)n;
    }
    return fail(why, ST_IO, "the supervisor gave no answer");
}

static void put_request(struct buf *out, enum verb verb, const char *id)
{
    buf_puts(out, "{\"op\":");
    json_put_cstr(out, verbs[verb].name);
    if (verb != MODEL_LIST) {
        buf_puts(out, ",\"model\":");
        json_put_cstr(out, id);
    }
    buf_puts(out, "}\n");
}

static enum status read_answer(const struct buf *text, json_t **out, struct reason *why)
{
    json_t *o = NULL;
    const char *error;

    if (json_parse(text->data, text->len, ANSWER_DEPTH, &o, NULL) != ST_OK)
        return fail(why, ST_CORRUPT, "the supervisor's answer can't be read");
    if (json_is_true(json_object_get(o, "ok"))) {
        *out = o;
        return ST_OK;
    }
    error = json_string_value(json_object_get(o, "error"));
    (void)fail(why, ST_INVALID, "%s", error != NULL ? error : "the supervisor says no");
    json_decref(o);
    return ST_INVALID;
}

/* The states of all, for json_decref. */
static enum status ask(const char *path, enum verb verb, const char *id, json_t **out,
                       struct reason *why)
{
    struct buf request, answer;
    int fd = -1;
    enum status st = connect_to(path, &fd, why);

    if (st != ST_OK)
        return st;
    buf_init(&request);
    buf_init(&answer);
    put_request(&request, verb, id);
    st = request.failed ? ST_NO_MEMORY : exchange(fd, &request, &answer, why);
    if (st == ST_OK)
        st = read_answer(&answer, out, why);
    buf_dispose(&request);
    buf_dispose(&answer);
    close(fd);
    return st;
}

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
    enum status st = ask(path, verb, id, &answer, why);
    struct swap_progress p = begun(answer, verb, id);

    json_decref(answer);
    while (st == ST_OK || st == ST_OVERLOADED) {
        answer = NULL;
        st = ask(path, MODEL_LIST, NULL, &answer, why);
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

static enum status list(const char *path, struct reason *why)
{
    json_t *answer = NULL;
    enum status st = ask(path, MODEL_LIST, NULL, &answer, why);

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
    if (m != NULL)
        return change(path, o->verb, m->id, why);
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
