/* Jobs of one link by the number that frames name them with. A number is a slot and a generation,
 * so that a number of the past finds nothing. Belongs to the link's thread. */
#ifndef ENGINE_BACKEND_JOB_TABLE_H
#define ENGINE_BACKEND_JOB_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct job_slot {
    void *job;           /* NULL: free */
    uint32_t generation; /* of the number handed out last */
    uint32_t next_free;
};

struct job_table {
    struct job_slot *slots;
    uint32_t n_slots, first_free, n_jobs;
};

void job_table_init(struct job_table *t);
void job_table_dispose(struct job_table *t);

MUST_CHECK enum status job_table_add(struct job_table *t, void *job, uint64_t *number);
void *job_table_find(const struct job_table *t, uint64_t number); /* NULL: none */
void job_table_remove(struct job_table *t, uint64_t number);
/* Some job at or after slot *at, which moves behind it; NULL past the end. */
void *job_table_next(const struct job_table *t, uint32_t *at);

#endif
