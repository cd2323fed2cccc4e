#include "app/engine_cores.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"

/* One core for all others needs at least two for the engine: with two in all it would lose half. */
#define SHARED_CORES_MAX 2
#define NICE_LOWEST      19

static unsigned first_of(const cpu_set_t *set)
{
    unsigned i = 0;

    while (i < CPU_SETSIZE && !CPU_ISSET(i, set))
        i++;
    return i;
}

/* A number below CPU_SETSIZE at *at, which moves past it. */
static bool take_core(const char **at, unsigned *out)
{
    char *end;
    unsigned long n;

    if (!isdigit((unsigned char)**at))
        return false;
    errno = 0;
    n = strtoul(*at, &end, 10);
    if (errno != 0 || n >= CPU_SETSIZE)
        return false;
    *at = end;
    *out = (unsigned)n;
    return true;
}

static bool take_range(const char **at, cpu_set_t *set)
{
    unsigned from, to;

    if (!take_core(at, &from))
        return false;
    to = from;
    if (**at == '-') {
        ++*at;
        if (!take_core(at, &to) || to < from)
            return false;
    }
    for (unsigned i = from; i <= to; i++)
        CPU_SET(i, set);
    return true;
}

static bool take_list(const char *spec, cpu_set_t *set)
{
    CPU_ZERO(set);
    while (take_range(&spec, set)) {
        if (*spec == '\0')
            return true;
        if (*spec++ != ',')
            return false;
    }
    return false;
}

static enum status choose_list(const char *spec, const cpu_set_t *allowed, cpu_set_t *out,
                               struct reason *why)
{
    cpu_set_t both;

    if (!take_list(spec, out))
        return fail_param(why, ST_INVALID, "engine.cores",
                          "engine.cores is auto, off or a list such as 1-3,5, not \"%s\"", spec);
    CPU_AND(&both, out, allowed);
    if (!CPU_EQUAL(&both, out))
        return fail_param(why, ST_INVALID, "engine.cores",
                          "engine.cores \"%s\": this process may use %d cores, and not all of "
                          "these are among them",
                          spec, CPU_COUNT(allowed));
    return ST_OK;
}

enum status engine_cores_choose(const char *spec, const cpu_set_t *allowed,
                                struct engine_cores *out, struct reason *why)
{
    cpu_set_t set = *allowed;
    enum status st = ST_OK;

    if (strcmp(spec, "auto") == 0 && CPU_COUNT(allowed) > SHARED_CORES_MAX)
        CPU_CLR(first_of(allowed), &set);
    else if (strcmp(spec, "auto") != 0 && strcmp(spec, "off") != 0)
        st = choose_list(spec, allowed, &set, why);
    if (st != ST_OK)
        return st;
    *out = (struct engine_cores){
        .set = set, .n = (unsigned)CPU_COUNT(&set), .is_pinned = !CPU_EQUAL(&set, allowed)};
    return ST_OK;
}

/* Compared with its parent's; lower than the lowest is the lowest. Returns what it is now. */
static int give_way(int nice)
{
    int now = getpriority(PRIO_PROCESS, 0);

    now = now + nice < NICE_LOWEST ? now + nice : NICE_LOWEST;
    if (setpriority(PRIO_PROCESS, 0, now) == -1)
        log_warn(NULL, "engine.nice", "%s", strerror(errno));
    return getpriority(PRIO_PROCESS, 0);
}

enum status engine_cores_apply(const char *spec, int nice, struct engine_cores *out,
                               struct reason *why)
{
    cpu_set_t allowed;
    enum status st;

    *out = (struct engine_cores){0};
    if (sched_getaffinity(0, sizeof allowed, &allowed) == -1) {
        log_warn(NULL, "engine.cores", "not known, not pinned: %s", strerror(errno));
        return ST_OK;
    }
    st = engine_cores_choose(spec, &allowed, out, why);
    if (st != ST_OK)
        return st;
    if (!out->is_pinned)
        out->nice = give_way(nice);
    else if (sched_setaffinity(0, sizeof out->set, &out->set) == -1)
        return fail(why, ST_IO, "cannot choose cores: %s", strerror(errno));
    return ST_OK;
}

void engine_cores_log(const struct engine_cores *c)
{
    if (c->is_pinned)
        log_info(NULL, "engine.cores", "own=%u", c->n);
    else if (c->n > 0)
        log_info(NULL, "engine.cores", "shared=%u nice=%d", c->n, c->nice);
}
