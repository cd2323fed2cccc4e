/* Requests that a gateway left open when it died: the engine, which outlives it, says how they
 * ended, and their final records are written with its exact counts; without its word with those of
 * the last progress record. Until then they stay open in the journal, so the next gateway finds
 * them again if this one dies too. When they ended stays what that record says: the engine tells
 * no time. Nothing waits for any of this. Belongs to the first loop's thread. */
#ifndef API_ADOPTION_H
#define API_ADOPTION_H

#include <stddef.h>
#include <stdint.h>

#include "api/api.h"

struct adoption;

struct adoption_config {
    struct loop *loop;
    struct engine *engine;
    struct engine_link *link;
    struct billing *billing;
    int64_t wait_ms;                        /* for the engine's word */
    const struct api_interrupted *requests; /* copied; those without is_held are passed over */
    size_t n;
};

/* ST_NO_MEMORY: they stay open in the journal. */
MUST_CHECK enum status adoption_start(const struct adoption_config *cfg, struct adoption **out);
/* What the engine has not answered yet ends with what is known. */
void adoption_settle(struct adoption *a);
/* Requests whose final record is not written yet. */
size_t adoption_left(const struct adoption *a);
/* Once none is left, and before the link closes. NULL is fine. */
void adoption_free(struct adoption *a);

#endif
