#include "app/cmd_inspect.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "app/inspect_report.h"
#include "app/untrusted.h"

#define CONTEXT_MAX ((uint32_t)1 << 24)

/* A vocabulary of 262,144 tokens takes 22 MiB and 0.1 s: no real file comes near these. A report
 * has a line per tensor and key. */
static const struct untrusted_limits untrusted_limits = {
    .cpu_s = 60, .data_bytes = (size_t)2 << 30, .output_bytes = (size_t)64 << 20};

struct inspect {
    const char *path;
    bool json, untrusted;
    uint32_t context; /* 0: the model's */
};

static int usage(FILE *to, int code)
{
    fputs("usage: sluice inspect PATH [--context N] [--json] [--untrusted]\n"
          "  PATH         GGUF file or Hugging Face folder\n"
          "  --context N  tokens to state the memory for (default: the model's context)\n"
          "  --json       for programs\n"
          "  --untrusted  in a process that can do nothing else, with a limit on memory and time\n",
          to);
    return code;
}

static bool parse_context(const char *s, uint32_t *out)
{
    char *end;
    unsigned long long v;

    errno = 0;
    v = strtoull(s, &end, 10);
    if (s[0] < '0' || s[0] > '9' || *end != 0 || errno != 0 || v == 0 || v > CONTEXT_MAX)
        return false;
    *out = (uint32_t)v;
    return true;
}

enum { CONTEXT = 256, JSON, UNTRUSTED, HELP };
static const struct option options[] = {
    {"context", required_argument, NULL, CONTEXT},
    {"json", no_argument, NULL, JSON},
    {"untrusted", no_argument, NULL, UNTRUSTED},
    {"help", no_argument, NULL, HELP},
    {NULL, 0, NULL, 0},
};

/* -1: go on; else the exit code. */
static int parse_options(int argc, char **argv, struct inspect *o)
{
    int c;

    optind = 0;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == HELP)
            return usage(stdout, 0);
        if (c == JSON)
            o->json = true;
        else if (c == UNTRUSTED)
            o->untrusted = true;
        else if (c != CONTEXT || !parse_context(optarg, &o->context))
            return usage(stderr, 2);
    }
    if (optind + 1 != argc)
        return usage(stderr, 2);
    o->path = argv[optind];
    return -1;
}

static enum status print_report(const struct inspect *o, const struct inspect_report *r,
                                struct reason *why)
{
    bool printed = true;

    if (o->json)
        printed = inspect_report_print_json(r);
    else
        inspect_report_print(r);
    if (!printed || fflush(stdout) != 0 || ferror(stdout))
        return fail(why, ST_IO, "cannot write to standard output");
    return ST_OK;
}

static enum status run(const struct inspect *o, struct reason *why)
{
    struct tokenizer *t = NULL;
    struct model *m = NULL;
    struct inspect_report r;
    enum status s = model_open(o->path, &m, why);

    if (s == ST_OK)
        s = tokenizer_new(m->gguf, &t, why);
    if (s == ST_OK)
        s = inspect_report_make(&r, m, t, o->context, why);
    if (s == ST_OK)
        s = print_report(o, &r, why);
    tokenizer_free(t);
    model_close(m);
    return s;
}

/* The exit code; `arg` is a struct inspect. */
static int inspect(void *arg)
{
    const struct inspect *o = arg;
    struct reason why = {{0}, {0}};

    if (run(o, &why) == ST_OK)
        return 0;
    fprintf(stderr, "sluice inspect: %s\n", why.text);
    return 1;
}

static int inspect_untrusted(struct inspect *o)
{
    const struct untrusted_work work = {
        .path = o->path, .run = inspect, .arg = o, .limits = untrusted_limits};
    struct reason why = {{0}, {0}};
    struct buf said;
    int code = 1;

    buf_init(&said);
    if (untrusted_run(&work, &said, &code, &why) != ST_OK)
        fprintf(stderr, "sluice inspect: %s: %s\n", o->path, why.text);
    else if (fwrite(said.data, 1, said.len, code == 0 ? stdout : stderr) != said.len ||
             fflush(stdout) != 0)
        code = 1;
    buf_dispose(&said);
    return code;
}

int cmd_inspect(int argc, char **argv)
{
    struct inspect o = {0};
    int code = parse_options(argc, argv, &o);

    if (code != -1)
        return code;
    return o.untrusted ? inspect_untrusted(&o) : inspect(&o);
}
