#include "app/cmd_usage.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "app/config.h"
#include "base/size.h"
#include "billing/billing.h"
#include "store/pg.h"

static const char help[] =
    "usage: sluice usage --config FILE [OPTION...]\n"
    "\n"
    "  --config FILE     the gateway's configuration: where Postgres is\n"
    "  --conninfo TEXT   instead: a libpq connection string\n"
    "  --tenant NAME     only this tenant's rows\n"
    "  --start TIME      rows admitted at TIME or later\n"
    "  --end TIME        rows admitted before TIME\n"
    "  --format FORMAT   csv (default) or jsonl, a line per request\n"
    "  --summary         sums per tenant, model and outcome instead of rows\n"
    "  --json            for programs: rows as JSON lines, the summary and the totals as JSON\n"
    "  --out FILE        into FILE instead of standard output\n"
    "  --dead-letters    instead: the rows that Postgres refused, a JSON line each\n"
    "  --retry-dead-letters  post those now, once the cause is gone; 1 when any is left\n"
    "\n"
    "TIME is UTC: 2025-01-31, 2025-01-31T12:00:00Z, or seconds since 1970.\n"
    "The totals of the rows go to standard error.\n";

struct options {
    const char *config, *conninfo, *out;
    struct usage_report report;
    bool summary, json;
    bool dead_letters, retry;
};

/* True with *out when all of `text` is a time. */
static bool parse_time(const char *text, int64_t *out)
{
    static const char *const forms[] = {"%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d"};
    const char *end;
    char *rest;

    for (size_t i = 0; i < COUNT_OF(forms); i++) {
        struct tm tm = {.tm_isdst = 0};
        int day;

        end = strptime(text, forms[i], &tm);
        if (end != NULL && *end == '\0') {
            day = tm.tm_mday;
            *out = timegm(&tm);
            return tm.tm_mday == day; /* the 31st of a short month becomes another day */
        }
    }
    errno = 0;
    *out = strtoll(text, &rest, 10);
    return errno == 0 && rest != text && *rest == '\0' && *out >= 0;
}

/* 0 or an exit code. */
static int use_option(struct options *o, int option)
{
    switch (option) {
    case 'c':
        o->config = optarg;
        return 0;
    case 'C':
        o->conninfo = optarg;
        return 0;
    case 't':
        o->report.tenant = optarg;
        return 0;
    case 'f':
        o->report.format = optarg;
        return 0;
    case 'o':
        o->out = optarg;
        return 0;
    case 'S':
        o->summary = true;
        return 0;
    case 'j':
        o->json = true;
        return 0;
    case 'd':
        o->dead_letters = true;
        return 0;
    case 'r':
        o->retry = true;
        return 0;
    case 's':
    case 'e':
        if (parse_time(optarg, option == 's' ? &o->report.start_s : &o->report.end_s))
            return 0;
        fprintf(stderr, "\"%s\" is not a time (2025-01-31, 2025-01-31T12:00:00Z or seconds)\n",
                optarg);
        return 2;
    default:
        fputs(help, stderr);
        return 2;
    }
}

/* False with an exit code when there is nothing to do. */
static bool parse_options(int argc, char **argv, struct options *o, int *rc)
{
    static const struct option names[] = {
        {"config", required_argument, NULL, 'c'},
        {"conninfo", required_argument, NULL, 'C'},
        {"tenant", required_argument, NULL, 't'},
        {"format", required_argument, NULL, 'f'},
        {"start", required_argument, NULL, 's'},
        {"end", required_argument, NULL, 'e'},
        {"out", required_argument, NULL, 'o'},
        {"summary", no_argument, NULL, 'S'},
        {"json", no_argument, NULL, 'j'},
        {"dead-letters", no_argument, NULL, 'd'},
        {"retry-dead-letters", no_argument, NULL, 'r'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int option;

    optind = 1;
    while ((option = getopt_long(argc, argv, "", names, NULL)) != -1) {
        *rc = 0;
        if (option == 'h')
            fputs(help, stdout);
        else
            *rc = use_option(o, option);
        if (option == 'h' || *rc != 0)
            return false;
    }
    *rc = 2;
    if (optind == argc && (o->config != NULL || o->conninfo != NULL))
        return true;
    fputs(help, stderr);
    return false;
}

static void print_totals(const struct usage_totals *t, bool as_json)
{
    char money[MONEY_TEXT_BYTES];

    money_format(t->cost_nanos, money);
    if (t->mixed_currencies)
        snprintf(money, sizeof money, "several currencies");
    fprintf(stderr,
            as_json ? "{\"rows\":%" PRId64 ",\"prompt_tokens\":%" PRId64
                      ",\"cached_tokens\":%" PRId64 ",\"output_tokens\":%" PRId64
                      ",\"cost\":\"%s\",\"currency\":\"%s\"}\n"
                    : "total: %" PRId64 " rows, %" PRId64 " prompt tokens (%" PRId64
                      " cached), %" PRId64 " output tokens, cost %s %s\n",
            t->rows, t->prompt_tokens, t->cached_tokens, t->output_tokens, money,
            t->mixed_currencies ? "" : t->currency);
}

static enum status write_dead_letters(struct pg *pg, int fd, struct reason *why)
{
    int64_t n = 0;
    enum status s = dead_letters_write(pg, fd, &n, why);

    if (s == ST_OK)
        fprintf(stderr, "total: %" PRId64 " dead letters\n", n);
    return s;
}

/* What no report counts must not go unseen. */
static enum status warn_of_dead_letters(struct pg *pg, struct reason *why)
{
    int64_t n = 0;
    enum status s = dead_letters_count(pg, &n, why);

    if (s == ST_OK && n > 0)
        fprintf(stderr, "rows refused by Postgres, set aside: %" PRId64 " (see --dead-letters)\n",
                n);
    return s;
}

static enum status write_report(const struct options *o, struct pg *pg, int fd, struct reason *why)
{
    struct usage_report r = o->report;
    struct usage_totals totals;
    enum status s;

    if (o->summary) {
        r.format = o->json ? "json" : "table";
        return usage_summary_write(pg, &r, fd, why);
    }
    if (r.format == NULL)
        r.format = o->json ? "jsonl" : "csv";
    s = usage_report_write(pg, &r, fd, &totals, why);
    if (s == ST_OK)
        print_totals(&totals, o->json);
    return s;
}

static enum status write_usage(const struct options *o, struct pg *pg, int fd, struct reason *why)
{
    enum status s;

    if (o->dead_letters)
        return write_dead_letters(pg, fd, why);
    s = write_report(o, pg, fd, why);
    return s == ST_OK ? warn_of_dead_letters(pg, why) : s;
}

static enum status retry_dead_letters(struct pg *pg, struct reason *why)
{
    struct dead_letter_retry done;
    enum status s = dead_letters_retry(pg, &done, why);

    printf("posted %" PRId64 ", refused again %" PRId64 "\n", done.posted, done.refused);
    if (s == ST_OK && done.refused > 0)
        s = fail(why, ST_CONFLICT, "Postgres still refuses rows: --dead-letters says why");
    return s;
}

/* Pipes and devices take the rows themselves: no other file may come in their place. */
static bool is_special(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

static enum status write_to_special(const struct options *o, struct pg *pg, struct reason *why)
{
    int fd = open(o->out, O_WRONLY | O_CLOEXEC);
    enum status s;

    if (fd == -1)
        return fail(why, ST_IO, "%s: %s", o->out, strerror(errno));
    s = write_usage(o, pg, fd, why);
    close(fd);
    return s;
}

/* The file is complete or not there: it is written under another name first. */
static enum status write_to_file(const struct options *o, struct pg *pg, struct reason *why)
{
    char temp[4096];
    enum status s;
    int fd;

    if (snprintf(temp, sizeof temp, "%s.part", o->out) >= (int)sizeof temp)
        return fail(why, ST_INVALID, "%s: the name is too long", o->out);
    fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd == -1)
        return fail(why, ST_IO, "%s: %s", temp, strerror(errno));
    s = write_usage(o, pg, fd, why);
    if (s == ST_OK && fsync(fd) == -1)
        s = fail(why, ST_IO, "%s: %s", temp, strerror(errno));
    close(fd);
    if (s == ST_OK && rename(temp, o->out) == -1)
        s = fail(why, ST_IO, "%s: %s", o->out, strerror(errno));
    if (s != ST_OK)
        unlink(temp);
    return s;
}

static enum status write_out(const struct options *o, struct pg *pg, struct reason *why)
{
    if (o->out == NULL)
        return write_usage(o, pg, STDOUT_FILENO, why);
    return is_special(o->out) ? write_to_special(o, pg, why) : write_to_file(o, pg, why);
}

static enum status run(const struct options *o, struct reason *why)
{
    struct config *cfg = NULL;
    struct pg *pg = NULL;
    enum status s = ST_OK;

    if (o->conninfo == NULL)
        s = config_load(o->config, &cfg, why);
    if (s == ST_OK)
        s = pg_open(cfg != NULL ? cfg->postgres_conninfo : o->conninfo, &pg, why);
    if (s == ST_OK)
        s = o->retry ? retry_dead_letters(pg, why) : write_out(o, pg, why);
    pg_close(pg);
    config_free(cfg);
    return s;
}

int cmd_usage(int argc, char **argv)
{
    struct options o = {.config = NULL};
    struct reason why = {.text = ""};
    enum status s;
    int rc;

    if (!parse_options(argc, argv, &o, &rc))
        return rc;
    s = run(&o, &why);
    if (s == ST_OK)
        return 0;
    fprintf(stderr, "sluice usage: %s\n", why.text[0] != '\0' ? why.text : status_text(s));
    return s == ST_INVALID ? 2 : 1;
}
