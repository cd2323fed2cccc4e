/* Clocks. Monotonic for intervals, wall for records. Code takes `now_ms` as a parameter and reads a
 * clock once, at its edge. Any thread. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

/* Monotonic milliseconds, microseconds and nanoseconds since an arbitrary start. */
int64_t clock_mono_ms(void);
int64_t clock_mono_us(void);
int64_t clock_mono_ns(void);
/* Unix time in milliseconds and microseconds (UTC). */
int64_t clock_wall_ms(void);
int64_t clock_wall_us(void);

#endif
