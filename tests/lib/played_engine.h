/* An engine process played by the test, for any number of links: it greets, notes jobs and claims,
 * and ends, settles and hands over when it is told. Several may play at one path, one after the
 * other. Failures abort the test. One thread. */
#ifndef TESTS_LIB_PLAYED_ENGINE_H
#define TESTS_LIB_PLAYED_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "engine/wire/wire.h"

#define PLAYED_LINKS_MAX 8
#define PLAYED_JOBS_MAX  8

struct played_link {
    int fd; /* -1: it has closed */
    bool is_greeted;
    struct buf in;
};

struct played_job {
    struct played_link *link;
    uint64_t number;
};

struct played_engine {
    int listen_fd; /* -1: no longer at the path */
    const char *revision;
    uint32_t pid;
    size_t greets_max; /* links beyond wait for their answer */
    struct played_link links[PLAYED_LINKS_MAX];
    size_t n_links; /* that ever came */
    struct played_job jobs[PLAYED_JOBS_MAX];
    size_t n_jobs;
    struct wire_requests claimed; /* of the last CLAIM */
    size_t n_claims, n_released;
    struct played_link *claimant;
};

/* At the path, in place of whoever was there. `revision` is borrowed. */
void played_engine_open(struct played_engine *p, const char *path, const char *revision,
                        uint32_t pid);
/* Everything goes at once, as when a process dies. Harmless a second time. */
void played_engine_close(struct played_engine *p);

/* Answers what has come since. */
void played_engine_turn(struct played_engine *p);
size_t played_engine_n_open(const struct played_engine *p); /* links that are there */

/* HANDOVER to all that were greeted; it listens no more. */
void played_engine_hand_over(struct played_engine *p);
/* All noted jobs end well, after one token each. */
void played_engine_finish(struct played_engine *p);
/* To the claimant. */
void played_engine_settle(struct played_engine *p, const struct id *request, bool is_known);
/* To all that were greeted. */
void played_engine_tell_stats(struct played_engine *p, const struct wire_stats *v);

#endif
