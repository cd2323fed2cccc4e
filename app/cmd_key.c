#include "app/cmd_key.h"

#include <errno.h>
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "app/admin.h"
#include "app/key_text.h"
#include "auth/auth.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/size.h"

#define EXPIRY_MAX_S (36500 * INT64_C(86400))

static const char help[] =
    "usage: sluice key create --config FILE --tenant NAME [OPTION...]\n"
    "       sluice key list --config FILE [--tenant NAME] [--json]\n"
    "       sluice key disable|enable|expire --config FILE PUBLIC_ID\n"
    "\n"
    "  --config FILE         the gateway's configuration: where Postgres and the pepper are\n"
    "  --conninfo TEXT       instead: a libpq connection string\n"
    "  --pepper-file FILE    instead: the secret under which keys are stored (create only)\n"
    "  --json                for programs\n"
    "create:\n"
    "  --tenant NAME         made when missing\n"
    "  --project NAME        made when missing (default)\n"
    "  --name TEXT           a label\n"
    "  --rpm N               the key's requests a minute (0: no limit)\n"
    "  --tpm N               the key's tokens a minute\n"
    "  --concurrency N       the key's requests at a time\n"
    "  --tenant-rpm N, --tenant-tpm N, --tenant-concurrency N\n"
    "                        the same for all keys of the tenant together; left as it is if "
    "absent\n"
    "  --scopes LIST         of inference, usage, platform, control-tokens (inference,usage)\n"
    "  --priority CLASS      of high, normal, low: whose requests the engine takes first (normal)\n"
    "  --expires TIME        30d, 12h, 30m, 90s from now, or 2026-01-31T12:00:00Z\n"
    "\n"
    "create prints the key on standard output, this once: only a hash of it is stored.\n";

struct options {
    struct admin_options admin;
    struct key_spec spec;
    bool json, help;
    const char *public_id;
};

/* ---- reading options ---- */

static bool parse_count(const char *text, int64_t *out)
{
    char *rest;

    errno = 0;
    *out = strtoll(text, &rest, 10);
    if (errno == 0 && rest != text && *rest == '\0' && *out >= 0)
        return true;
    fprintf(stderr, "\"%s\" is not a whole number\n", text);
    return false;
}

static bool parse_duration(const char *text, int64_t *out_s)
{
    static const struct {
        char unit;
        int64_t seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    char *rest;
    int64_t n;

    errno = 0;
    n = strtoll(text, &rest, 10);
    if (errno != 0 || rest == text || n <= 0 || strlen(rest) != 1)
        return false;
    for (size_t i = 0; i < COUNT_OF(units); i++)
        if (units[i].unit == *rest)
            return !__builtin_mul_overflow(n, units[i].seconds, out_s) && *out_s <= EXPIRY_MAX_S;
    return false;
}

/* What follows the seconds: "Z", "+02:00", "-05:30". */
static bool parse_offset(const char *text, int64_t *out_s)
{
    int hours, minutes, used = 0;
    char sign;

    *out_s = 0;
    if (strcmp(text, "Z") == 0 || strcmp(text, "z") == 0)
        return true;
    if (sscanf(text, "%c%2d:%2d%n", &sign, &hours, &minutes, &used) != 3 || used != 6 ||
        text[6] != '\0' || (sign != '+' && sign != '-') || hours > 23 || minutes > 59)
        return false;
    *out_s = (hours * 60 + minutes) * (sign == '+' ? 60 : -60);
    return true;
}

bool parse_expiry(const char *text, int64_t now_s, int64_t *out_s)
{
    struct tm tm = {0};
    int64_t offset_s, s;
    const char *rest;
    int day;

    if (parse_duration(text, &s))
        return !__builtin_add_overflow(now_s, s, out_s);
    rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (rest == NULL || !parse_offset(rest, &offset_s))
        return false;
    day = tm.tm_mday;
    *out_s = timegm(&tm) - offset_s;
    return tm.tm_mday == day; /* the 31st of a short month becomes another day */
}

static bool use_expiry(const char *text, int64_t *out_s)
{
    int64_t now_s = clock_wall_ms() / 1000;

    if (!parse_expiry(text, now_s, out_s)) {
        fprintf(stderr, "\"%s\" is no time: 30d, 12h, or 2026-01-31T12:00:00Z\n", text);
        return false;
    }
    if (*out_s > now_s)
        return true;
    fprintf(stderr, "\"%s\" is past\n", text);
    return false;
}

enum option_id {
    OPT_CONFIG = 1,
    OPT_CONNINFO,
    OPT_PEPPER_FILE,
    OPT_TENANT,
    OPT_PROJECT,
    OPT_NAME,
    OPT_RPM,
    OPT_TPM,
    OPT_CONCURRENCY,
    OPT_TENANT_RPM,
    OPT_TENANT_TPM,
    OPT_TENANT_CONCURRENCY,
    OPT_SCOPES,
    OPT_PRIORITY,
    OPT_EXPIRES,
    OPT_JSON,
    OPT_HELP,
    OPT_COUNT
};

static bool use_option(struct options *o, int id)
{
    const char **const texts[OPT_COUNT] = {
        [OPT_CONFIG] = &o->admin.config,           [OPT_CONNINFO] = &o->admin.conninfo,
        [OPT_PEPPER_FILE] = &o->admin.pepper_file, [OPT_TENANT] = &o->spec.tenant,
        [OPT_PROJECT] = &o->spec.project,          [OPT_NAME] = &o->spec.name};
    int64_t *const counts[OPT_COUNT] = {[OPT_RPM] = &o->spec.key_limits.requests_per_min,
                                        [OPT_TPM] = &o->spec.key_limits.tokens_per_min,
                                        [OPT_CONCURRENCY] = &o->spec.key_limits.concurrency,
                                        [OPT_TENANT_RPM] = &o->spec.tenant_limits.requests_per_min,
                                        [OPT_TENANT_TPM] = &o->spec.tenant_limits.tokens_per_min,
                                        [OPT_TENANT_CONCURRENCY] =
                                            &o->spec.tenant_limits.concurrency};

    if (id <= 0 || id >= OPT_COUNT)
        return false;
    if (texts[id] != NULL)
        *texts[id] = optarg;
    o->json = o->json || id == OPT_JSON;
    o->help = o->help || id == OPT_HELP;
    if (counts[id] != NULL)
        return parse_count(optarg, counts[id]);
    if (id == OPT_SCOPES)
        return key_parse_scopes(optarg, &o->spec.scopes);
    if (id == OPT_PRIORITY)
        return key_parse_priority(optarg, &o->spec.priority);
    if (id == OPT_EXPIRES)
        return use_expiry(optarg, &o->spec.expires_at_s);
    return true;
}

static bool parse_options(int argc, char **argv, struct options *o)
{
    static const struct option names[] = {
        {"config", required_argument, NULL, OPT_CONFIG},
        {"conninfo", required_argument, NULL, OPT_CONNINFO},
        {"pepper-file", required_argument, NULL, OPT_PEPPER_FILE},
        {"tenant", required_argument, NULL, OPT_TENANT},
        {"project", required_argument, NULL, OPT_PROJECT},
        {"name", required_argument, NULL, OPT_NAME},
        {"rpm", required_argument, NULL, OPT_RPM},
        {"tpm", required_argument, NULL, OPT_TPM},
        {"concurrency", required_argument, NULL, OPT_CONCURRENCY},
        {"tenant-rpm", required_argument, NULL, OPT_TENANT_RPM},
        {"tenant-tpm", required_argument, NULL, OPT_TENANT_TPM},
        {"tenant-concurrency", required_argument, NULL, OPT_TENANT_CONCURRENCY},
        {"scopes", required_argument, NULL, OPT_SCOPES},
        {"priority", required_argument, NULL, OPT_PRIORITY},
        {"expires", required_argument, NULL, OPT_EXPIRES},
        {"json", no_argument, NULL, OPT_JSON},
        {"help", no_argument, NULL, OPT_HELP},
        {NULL, 0, NULL, 0},
    };
    int id;

    *o = (struct options){.spec = {.project = "default",
                                   .name = "",
                                   .scopes = SCOPE_INFERENCE | SCOPE_USAGE,
                                   .priority = KEY_PRIORITY_NORMAL,
                                   .tenant_limits = {-1, -1, -1}}};
    optind = 1;
    while ((id = getopt_long(argc, argv, "", names, NULL)) != -1)
        if (!use_option(o, id))
            return false;
    if (optind < argc)
        o->public_id = argv[optind++];
    return optind == argc;
}

/* ---- writing ---- */

static int print_buf(const char *command, struct buf *b)
{
    bool ok = !b->failed && (b->len == 0 || fwrite(b->data, 1, b->len, stdout) == b->len) &&
              fflush(stdout) == 0;

    if (!ok)
        fprintf(stderr, "sluice %s: standard output could not be written\n", command);
    return ok ? 0 : 1;
}

/* ---- the subcommands ---- */

static int print_created(const struct options *o, const char *key, const char *public_id)
{
    struct buf b;
    int rc;

    buf_init(&b);
    if (o->json) {
        buf_puts(&b, "{\"key\":");
        json_put_cstr(&b, key);
        key_put_member(&b, "public_id", public_id);
        key_put_member(&b, "tenant", o->spec.tenant);
        key_put_member(&b, "project", o->spec.project);
        key_put_member(&b, "priority", key_priority_name(o->spec.priority));
        buf_puts(&b, ",\"scopes\":[");
        key_put_scopes(&b, o->spec.scopes, "\"");
        buf_puts(&b, "]}\n");
    } else {
        buf_printf(&b, "%s\n", key);
    }
    rc = print_buf("key create", &b);
    if (rc != 0)
        fprintf(stderr, "the key %s was made, but is lost: disable it\n", public_id);
    else
        fprintf(stderr, "key %s of tenant %s; it is shown only now\n", public_id, o->spec.tenant);
    buf_dispose(&b);
    return rc;
}

static int run_create(struct admin *a, const struct options *o, const char *action)
{
    char key[KEY_TEXT_BYTES], public_id[KEY_TEXT_BYTES];
    struct reason why = {0};
    enum status s = key_create(a->pg, a->pepper, &o->spec, key, public_id, &why);

    (void)action;
    if (s != ST_OK)
        return admin_failed("key create", s, &why);
    return print_created(o, key, public_id);
}

static int run_list(struct admin *a, const struct options *o, const char *action)
{
    struct key_listing l;
    struct reason why = {0};
    enum status s;
    int rc;

    (void)action;
    key_listing_begin(&l, o->json);
    s = key_list(a->pg, o->spec.tenant, key_listing_add, &l, &why);
    key_listing_end(&l);
    rc = s == ST_OK ? print_buf("key list", &l.text) : admin_failed("key list", s, &why);
    buf_dispose(&l.text);
    return rc;
}

static int run_update(struct admin *a, const struct options *o, const char *action)
{
    struct reason why = {0};
    enum status s = key_update(a->pg, o->public_id, action, &why);

    if (s != ST_OK)
        return admin_failed("key", s, &why);
    if (o->json)
        printf("{\"public_id\":\"%s\",\"action\":\"%s\"}\n", o->public_id, action);
    else
        fprintf(stderr, "key %s: %s done; it holds everywhere within a second\n", o->public_id,
                action);
    return 0;
}

static const struct action {
    const char *name;
    int (*run)(struct admin *a, const struct options *o, const char *action);
    bool needs_tenant, needs_public_id, needs_pepper;
} actions[] = {
    {"create", run_create, true, false, true},   {"list", run_list, false, false, false},
    {"disable", run_update, false, true, false}, {"enable", run_update, false, true, false},
    {"expire", run_update, false, true, false},
};

static const struct action *find_action(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(actions); i++)
        if (strcmp(actions[i].name, name) == 0)
            return &actions[i];
    return NULL;
}

static bool is_complete(const struct action *action, const struct options *o)
{
    return action->needs_public_id == (o->public_id != NULL) &&
           (!action->needs_tenant || o->spec.tenant != NULL) &&
           admin_options_suffice(&o->admin, action->needs_pepper);
}

int cmd_key(int argc, char **argv)
{
    const struct action *action = argc > 1 ? find_action(argv[1]) : NULL;
    struct reason why = {0};
    struct options o;
    struct admin a;
    enum status s;
    bool parsed;
    int rc;

    if (action != NULL)
        argv[1] = argv[0]; /* getopt's sentences begin with it */
    parsed = parse_options(argc > 1 ? argc - 1 : argc, argc > 1 ? argv + 1 : argv, &o);
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || (parsed && o.help))) {
        fputs(help, stdout);
        return 0;
    }
    if (!parsed || action == NULL || !is_complete(action, &o)) {
        fputs(help, stderr);
        return 2;
    }
    s = admin_init(&a, &o.admin, action->needs_pepper, &why);
    if (s != ST_OK)
        return admin_failed("key", s, &why);
    rc = action->run(&a, &o, action->name);
    admin_dispose(&a);
    return rc;
}
