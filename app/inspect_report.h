/* What `sluice inspect` says of a model: gathered once, then printed for people or for programs.
 * One thread. */
#ifndef APP_INSPECT_REPORT_H
#define APP_INSPECT_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/core/device.h"
#include "engine/model/model.h"
#include "engine/text/tokenizer.h"

struct type_use {
    uint64_t tensors, bytes;
};

struct inspect_report {
    const struct model *model;         /* borrowed, as the next two */
    const struct tokenizer *tokenizer; /* of the model */
    bool is_folder;
    uint32_t n_files; /* with weights */
    uint64_t parameters;
    struct type_use types[TENSOR_TYPES];
    struct gguf_string tokenizer_kind, pre_tokenizer, template; /* length 0: none */
    char template_fault[320];                                   /* empty: it is understood */
    uint32_t context_tokens;                                    /* of the plans */
    struct device_plan fast, exact; /* one sequence of the whole context on the CPU */
};

/* context_tokens 0: the model's own. ST_TOO_LONG: more than that. */
MUST_CHECK enum status inspect_report_make(struct inspect_report *r, const struct model *m,
                                           const struct tokenizer *t, uint32_t context_tokens,
                                           struct reason *why);
void inspect_report_print(const struct inspect_report *r);
/* One JSON object. False: out of memory, or standard output failed. */
MUST_CHECK bool inspect_report_print_json(const struct inspect_report *r);

#endif
