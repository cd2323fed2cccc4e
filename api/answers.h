/* Answers that wait for their clients, counted together: what is collected of those that are sent
 * whole, and what streams hold for readers that lag. Each is bounded by itself, but not their
 * number times that; so there is a bound for the process. Where it is passed, the loop with the
 * largest answer ends that one, and new requests are refused until there is room.
 *
 * The total is atomic, for all threads; a list of answers belongs to its loop's thread. Counted are
 * bytes in use: a buffer may have reserved twice that, and an answer that is written out as JSON
 * stands in memory up to three times for that moment. Pure: knows no request. */
#ifndef API_ANSWERS_H
#define API_ANSWERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct answers {            /* of the process */
    size_t max;             /* bytes */
    _Atomic size_t held, n; /* bytes; answers that hold any */
};

enum answer_state {
    ANSWER_WHOLE,
    ANSWER_ENDED, /* early, to make room; a rest may be on its way */
    ANSWER_CUT,   /* its connection, too: nothing more can be done */
};

struct answer {
    struct answer *prev, *next; /* of the list, while it holds bytes */
    size_t held;
    enum answer_state state;
};

struct answer_list { /* of a loop */
    struct answers *all;
    struct answer *first;
};

/* What it holds now; 0 at its end, at the latest. */
void answers_hold(struct answer_list *l, struct answer *a, size_t bytes);
/* Nothing new may be begun. */
bool answers_are_full(const struct answers *all);
/* The one that must end: the largest of the list, while too much is held in all. NULL: none must,
 * or a larger one is another loop's (it is below the mean of all). */
struct answer *answers_excess(const struct answer_list *l);

#endif
