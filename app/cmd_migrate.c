#include "app/cmd_migrate.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>

#include "app/admin.h"
#include "base/buf.h"
#include "base/embedded.h"
#include "base/json.h"
#include "store/migrate.h"

static const char help[] =
    "usage: sluice migrate --config FILE [--json]\n"
    "\n"
    "  --config FILE     the gateway's configuration: where Postgres is\n"
    "  --conninfo TEXT   instead: a libpq connection string\n"
    "  --json            for programs: {\"applied\": [FILE, ...]}\n"
    "\n"
    "Applies the migrations that the database lacks, each whole or not at all.\n";

struct options {
    struct admin_options admin;
    bool json, help;
};

struct progress {
    bool json;
    struct buf names; /* JSON, comma-separated */
};

static bool parse_options(int argc, char **argv, struct options *o)
{
    static const struct option names[] = {
        {"config", required_argument, NULL, 'c'},
        {"conninfo", required_argument, NULL, 'C'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int option;

    optind = 1;
    while ((option = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (option == '?')
            return false;
        if (option == 'c')
            o->admin.config = optarg;
        else if (option == 'C')
            o->admin.conninfo = optarg;
        o->json = o->json || option == 'j';
        o->help = o->help || option == 'h';
    }
    return o->help || (optind == argc && admin_options_suffice(&o->admin, false));
}

static void on_applied(void *arg, const char *name)
{
    struct progress *p = arg;

    if (!p->json) {
        printf("applied %s\n", name);
        return;
    }
    if (p->names.len > 0)
        buf_putc(&p->names, ',');
    json_put_cstr(&p->names, name);
}

static int run(const struct options *o)
{
    struct progress p = {.json = o->json};
    struct reason why = {0};
    struct admin a;
    int n = 0;
    enum status s = admin_init(&a, &o->admin, false, &why);

    if (s != ST_OK)
        return admin_failed("migrate", s, &why);
    buf_init(&p.names);
    s = migrate(a.pg, embedded_files, on_applied, &p, &n, &why);
    admin_dispose(&a);
    if (o->json)
        printf("{\"applied\":[%s]}\n", buf_cstr(&p.names));
    else if (s == ST_OK && n == 0)
        puts("the database is up to date");
    buf_dispose(&p.names);
    return s == ST_OK ? 0 : admin_failed("migrate", s, &why);
}

int cmd_migrate(int argc, char **argv)
{
    struct options o = {0};

    if (!parse_options(argc, argv, &o)) {
        fputs(help, stderr);
        return 2;
    }
    if (o.help) {
        fputs(help, stdout);
        return 0;
    }
    return run(&o);
}
