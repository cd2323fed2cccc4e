/* One row of the table of fields: how a field of the body is read. The table is in params.c; the
 * readers (param_take_*, param_pass_*, param_only_*) are grouped by what they do in param_field.c,
 * params_sampling.c and params_neutral.c. A reader gets a value that is there and not null, and
 * returns false with *e. Private to api/params*.c. */
#ifndef API_PARAM_FIELD_H
#define API_PARAM_FIELD_H

#include "api/params.h"

struct param_field {
    const char *name;
    unsigned endpoints; /* bits of enum endpoint */
    bool (*apply)(const struct param_field *f, json_t *v, struct params *p, struct api_error *e);
    int64_t min, max; /* of numbers */
    size_t offset;    /* take_*: where in struct params */
    unsigned given;   /* the bit of params.given that it sets */
    int64_t neutral;  /* only_*: the one value that needs no support */
    const char *neutral_text;
};

/* ---- param_field.c: what all readers share ---- */

bool param_wrong_type(const struct param_field *f, const char *want, const json_t *got,
                      struct api_error *e);
bool param_unsupported(const struct param_field *f, struct api_error *e);
bool param_int(const struct param_field *f, const json_t *v, int64_t *out, struct api_error *e);
bool param_real(const struct param_field *f, const json_t *v, double *out, struct api_error *e);

/* Into a bool, an int64_t or a double at f->offset. */
bool param_take_bool(const struct param_field *f, json_t *v, struct params *p, struct api_error *e);
bool param_take_int(const struct param_field *f, json_t *v, struct params *p, struct api_error *e);
bool param_take_real(const struct param_field *f, json_t *v, struct params *p, struct api_error *e);

/* ---- params_sampling.c: how tokens are chosen, and what is told of them ---- */

bool param_take_seed(const struct param_field *f, json_t *v, struct params *p, struct api_error *e);
bool param_take_top_k(const struct param_field *f, json_t *v, struct params *p,
                      struct api_error *e);
bool param_take_repetition(const struct param_field *f, json_t *v, struct params *p,
                           struct api_error *e);
bool param_take_logit_bias(const struct param_field *f, json_t *v, struct params *p,
                           struct api_error *e);
bool param_take_stop_ids(const struct param_field *f, json_t *v, struct params *p,
                         struct api_error *e);
/* The completions' form of log-probabilities: a count, which also asks for them. */
bool param_take_logprobs(const struct param_field *f, json_t *v, struct params *p,
                         struct api_error *e);
/* What fields say together: after all of them were read. */
bool params_check_together(enum endpoint endpoint, const struct params *p, struct api_error *e);

/* ---- params_neutral.c: accepted without effect, or only with the value that has none ---- */

bool param_pass_text(const struct param_field *f, json_t *v, struct params *p, struct api_error *e);
bool param_pass_object(const struct param_field *f, json_t *v, struct params *p,
                       struct api_error *e);
bool param_pass_bool(const struct param_field *f, json_t *v, struct params *p, struct api_error *e);
bool param_only_bool(const struct param_field *f, json_t *v, struct params *p, struct api_error *e);
/* neutral_text: words separated by "|". */
bool param_only_text(const struct param_field *f, json_t *v, struct params *p, struct api_error *e);
bool param_only_empty(const struct param_field *f, json_t *v, struct params *p,
                      struct api_error *e);
bool param_only_text_format(const struct param_field *f, json_t *v, struct params *p,
                            struct api_error *e);
bool param_only_text_modality(const struct param_field *f, json_t *v, struct params *p,
                              struct api_error *e);
bool param_never(const struct param_field *f, json_t *v, struct params *p, struct api_error *e);

#endif
