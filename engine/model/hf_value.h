/* Reads values of config.json. The first failure stays, and later reads give their fallback: a
 * reader of a config looks at `status` once, at its end. One thread at a time. */
#ifndef ENGINE_MODEL_HF_VALUE_H
#define ENGINE_MODEL_HF_VALUE_H

#include "base/json.h"
#include "engine/model/hf_arch.h"

struct hf_reader {
    json_t *object;                    /* borrowed */
    const struct hf_default *defaults; /* for keys that are absent (not for null) */
    struct reason *why;
    enum status status;
};

/* For a number that must be there. */
#define HF_REQUIRED (-1.0)

/* NULL: absent, or null. */
json_t *hf_value(const struct hf_reader *r, const char *key);
/* A whole number from 0 up to `max`. */
uint32_t hf_size(struct hf_reader *r, const char *key, double fallback, uint32_t max);
/* A finite number from 0. */
double hf_number(struct hf_reader *r, const char *key, double fallback);
bool hf_flag(struct hf_reader *r, const char *key, bool fallback);
/* NUL-terminated, borrowed from the document; `fallback` may be NULL. */
const char *hf_word(struct hf_reader *r, const char *key, const char *fallback);
/* Notes a failure unless there was one. */
void hf_refuse(struct hf_reader *r, enum status s, const char *key, const char *fmt, ...)
    PRINTF_LIKE(4, 5);

#endif
