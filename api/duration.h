/* Durations as OpenAI's x-ratelimit-reset headers write them: "0s", "17ms", "1s", "1.5s", "6m0s",
 * "1h0m3s". Pure. */
#ifndef API_DURATION_H
#define API_DURATION_H

#include <stdint.h>

#define DURATION_TEXT_BYTES 40

/* Below a second in whole milliseconds; from a minute on in whole seconds, rounded up, so that a
 * client that waits so long never comes too early. Negative counts as 0. */
void duration_format(int64_t ms, char out[DURATION_TEXT_BYTES]);

#endif
