/* The order of a row of logits: descending, ties by ascending id. Pure, nothing is allocated. */
#ifndef ENGINE_CORE_LOGITS_H
#define ENGINE_CORE_LOGITS_H

#include <stdint.h>

#include "base/status.h"

/* The largest logit's lowest id. ST_INTERNAL when one is NaN or +infinity; ST_NO_CHOICE when n is 0
 * or all are -infinity (some may be: tokens that are forbidden). */
MUST_CHECK enum status logits_top(const float *logits, uint32_t n, uint32_t *top);

/* Sorts ids[0..n). Heap sort: in place and never quadratic, since the logits may be an
 * adversary's. */
void logits_sort(const float *logits, uint32_t *ids, uint32_t n);

/* The first n ids of all n_vocab in order, n <= n_vocab, into ids: one pass, with a heap of n. */
void logits_first(const float *logits, uint32_t n_vocab, uint32_t *ids, uint32_t n);

#endif
