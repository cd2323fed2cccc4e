#include "app/supervise/backoff.h"

#include "base/size.h"

int64_t backoff_next(struct backoff *b, int64_t lived_ms)
{
    if (lived_ms >= BACKOFF_HEALTHY_MS) {
        b->delay_ms = 0;
        b->deaths = 0;
    }
    b->deaths++;
    b->delay_ms = b->delay_ms == 0 ? BACKOFF_FIRST_MS : int64_min(b->delay_ms * 2, BACKOFF_MAX_MS);
    return b->delay_ms;
}
