/* Between jobs.c and jobs_events.c only. */
#ifndef ENGINE_CORE_JOBS_PARTS_H
#define ENGINE_CORE_JOBS_PARTS_H

#include "engine/core/jobs.h"

/* From its connection, if it has one still: nothing more is said about it. */
void jobs_unlink(struct job *job);
/* One reference less; the last one frees it. */
void jobs_leave_memory(struct jobs *j, struct job *job);
/* When the queue might take what it refuses now; 0: no such refusal. */
uint32_t jobs_retry_after_ms(const struct jobs *j, enum status status, uint64_t tenant);
/* For who claims the request, now or later. told: the connection that has its FINAL frame, or
 * NULL. */
void jobs_keep_end(struct jobs *j, struct job *job, const struct conn *told,
                   const struct wire_final *end);

#endif
