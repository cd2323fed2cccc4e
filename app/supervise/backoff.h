/* How long to wait before a process that died is started again: 100 ms, doubling to 10 s, from the
 * beginning once it had lived for 30 s. Pure. */
#ifndef APP_SUPERVISE_BACKOFF_H
#define APP_SUPERVISE_BACKOFF_H

#include <stdint.h>

#define BACKOFF_FIRST_MS   100
#define BACKOFF_MAX_MS     10000
#define BACKOFF_HEALTHY_MS 30000

struct backoff {
    int64_t delay_ms; /* of the last death; 0: none yet */
    unsigned deaths;  /* in a row, each before it was healthy */
};

/* Takes note of a death after `lived_ms` and returns the delay until the next start. */
int64_t backoff_next(struct backoff *b, int64_t lived_ms);

#endif
