/* billing_usage behind the glue: checks the query and runs it on the pool. */
#ifndef BILLING_USAGE_QUERY_H
#define BILLING_USAGE_QUERY_H

#include "billing/billing.h"

MUST_CHECK enum status usage_query_submit(struct pg_pool *pool, struct usage_query *q,
                                          int64_t now_s);

#endif
