#include "api/duration.h"

#include <inttypes.h>
#include <stdio.h>

static void format_long(int64_t ms, char *out)
{
    int64_t s = ms / 1000 + (ms % 1000 != 0);
    int64_t h = s / 3600, m = s / 60 % 60;

    if (h > 0)
        snprintf(out, DURATION_TEXT_BYTES, "%" PRId64 "h%" PRId64 "m%" PRId64 "s", h, m, s % 60);
    else
        snprintf(out, DURATION_TEXT_BYTES, "%" PRId64 "m%" PRId64 "s", m, s % 60);
}

void duration_format(int64_t ms, char out[DURATION_TEXT_BYTES])
{
    int part = (int)(ms % 1000), digits = 3;

    if (ms <= 0)
        snprintf(out, DURATION_TEXT_BYTES, "0s");
    else if (ms < 1000)
        snprintf(out, DURATION_TEXT_BYTES, "%dms", part);
    else if (ms > 59000)
        format_long(ms, out);
    else if (part == 0)
        snprintf(out, DURATION_TEXT_BYTES, "%" PRId64 "s", ms / 1000);
    else {
        for (; part % 10 == 0; part /= 10)
            digits--;
        snprintf(out, DURATION_TEXT_BYTES, "%" PRId64 ".%0*ds", ms / 1000, digits, part);
    }
}
