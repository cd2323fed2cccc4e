/* Who is there: connections that don't greet are let go, and an engine that no gateway has needed
 * for long ends. Monitors are no gateways. Pure but for conn.broken; time is passed in. */
#ifndef ENGINE_CORE_ATTENDANCE_H
#define ENGINE_CORE_ATTENDANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/core/conn.h"

/* A greeting comes with the connection, and a monitor says at once that it is one. */
#define ATTENDANCE_GREETING_MS 5000

struct attendance {
    int64_t orphan_ms; /* 0: it waits for ever */
    int64_t seen_ms;   /* when a gateway was there last, or the start */
    bool is_leaving;   /* it isn't needed: it ends as soon as the last gateway has left */
};

void attendance_init(struct attendance *a, int64_t orphan_ms, int64_t now_ms);
/* Marks as broken who should have greeted by now. True: no gateway is there, and none has been for
 * orphan_ms, or it is leaving. */
bool attendance_is_over(struct attendance *a, struct conn *const *conns, uint32_t n,
                        int64_t now_ms);
/* When that can be true first; INT64_MAX: never. */
int64_t attendance_due_ms(const struct attendance *a);

#endif
