/* What of a request depends on its model: values that must lie within it, the defaults of its
 * makers, and the sampling that the engine is asked for. Pure; any thread. */
#ifndef API_PARAMS_MODEL_H
#define API_PARAMS_MODEL_H

#include "api/params.h"

/* Token ids within the vocabulary, max_tokens within the context, n within the queue; false: *e
 * names the field. */
MUST_CHECK bool params_check_model(const struct params *p, const struct engine_revision *r,
                                   struct api_error *e);
/* For the fields that the request leaves open. */
void params_use_defaults(struct params *p, const struct engine_defaults *d);
/* A request without a seed gets a random one. Lists are p's. */
void params_sampling(const struct params *p, struct sampling *out);

#endif
