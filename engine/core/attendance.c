#include "engine/core/attendance.h"

#include "base/log.h"

void attendance_init(struct attendance *a, int64_t orphan_ms, int64_t now_ms)
{
    *a = (struct attendance){.orphan_ms = orphan_ms, .seen_ms = now_ms};
}

/* Has it had the time to say what it is? */
static bool is_settled(const struct conn *c, int64_t now_ms)
{
    return now_ms - c->since_ms >= ATTENDANCE_GREETING_MS;
}

bool attendance_is_over(struct attendance *a, struct conn *const *conns, uint32_t n, int64_t now_ms)
{
    bool any = false;

    for (uint32_t i = 0; i < n; i++) {
        struct conn *c = conns[i];

        if (!c->greeted && !c->broken && is_settled(c, now_ms)) {
            log_warn(NULL, "engine.conn", "no greeting in %d ms: closed", ATTENDANCE_GREETING_MS);
            c->broken = true;
        }
        if (!c->greeted || c->is_monitor || c->broken)
            continue;
        any = true;
        /* A monitor has greeted a moment before it says so: that is no gateway's visit. */
        if (is_settled(c, now_ms))
            a->seen_ms = now_ms;
    }
    if (!any && a->is_leaving)
        return true;
    return !any && a->orphan_ms != 0 && now_ms - a->seen_ms >= a->orphan_ms;
}

int64_t attendance_due_ms(const struct attendance *a)
{
    return a->orphan_ms != 0 ? a->seen_ms + a->orphan_ms : INT64_MAX;
}
