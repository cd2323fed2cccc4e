/* A gateway that keeps to the protocol and claims requests of others, beside gateways that do as
 * they like; it asserts what claims.h promises it. For fuzz targets: failures are assert's. */
#ifndef TESTS_LIB_CLAIMANT_H
#define TESTS_LIB_CLAIMANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/id.h"

/* Requests of a run are numbered by a byte. */
#define CLAIMANT_REQUESTS 256

struct claimant {
    int fd;
    uint64_t run;
    struct buf in;
    struct {
        bool is_owed;     /* claimed since its last answer */
        bool has_ended;   /* it was answered with its end once, so it can't run any more */
        bool is_released; /* after it had ended: it stays unknown */
    } requests[CLAIMANT_REQUESTS];
};

/* The id of a run's request: different in each run, and no one of them is another with a byte
 * changed. */
struct id claimant_id(uint64_t run, uint8_t number);

void claimant_put_hello(struct buf *out);
/* Takes the connection, which doesn't block, and says HELLO. */
void claimant_open(struct claimant *c, int fd, uint64_t run);
/* Requests that are owed an answer are left out: then each claim has exactly one. */
void claimant_claim(struct claimant *c, const uint8_t *numbers, size_t n);
void claimant_release(struct claimant *c, const uint8_t *numbers, size_t n);
/* Reads what there is. */
void claimant_hear(struct claimant *c);
/* After everything has ended and was heard: nothing is owed. */
void claimant_close(struct claimant *c);

#endif
