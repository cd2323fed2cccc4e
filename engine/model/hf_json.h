/* A cursor over JSON text (RFC 8259) that builds no tree: a tokenizer.json has a million values and
 * a stranger's header may have more, and what is read of them goes straight to where it belongs. It
 * uses no memory but for strings that have escapes. After the first fault `failed` stays set and
 * everything returns false. Borrows the text, which must be valid UTF-8: who read the file has
 * looked. One thread at a time. Small documents of free form are jansson's (base/json.h). */
#ifndef ENGINE_MODEL_HF_JSON_H
#define ENGINE_MODEL_HF_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

struct hf_span {
    const char *text; /* NULL: absent */
    size_t len;
};

struct hf_json {
    const char *text;
    size_t len, pos;
    int depth;
    bool first; /* no element of the innermost container was read yet */
    bool failed;
};

void hf_json_init(struct hf_json *j, const char *text, size_t len);

/* An object: enter, then while (hf_json_member(j, &key)) read or skip the value. Both loops leave
 * the container when they return false without a fault. Keys are raw: escapes are not decoded. */
bool hf_json_enter_object(struct hf_json *j);
bool hf_json_member(struct hf_json *j, struct hf_span *key);
/* An array, likewise. */
bool hf_json_enter_array(struct hf_json *j);
bool hf_json_element(struct hf_json *j);

/* What lies between the quotes, escapes as they are. */
bool hf_json_string(struct hf_json *j, struct hf_span *raw);
/* A whole number from 0, without fraction or exponent. */
bool hf_json_u64(struct hf_json *j, uint64_t *out);
bool hf_json_number(struct hf_json *j, double *out);
bool hf_json_bool(struct hf_json *j, bool *out);
/* True, and reads it, where the next value is null; false leaves it (and is no fault). */
bool hf_json_null(struct hf_json *j);
/* The first byte of the next value: '{', '[', '"', 't', 'f', 'n', '-' or a digit; 0 at the end. */
char hf_json_peek(struct hf_json *j);
/* Any value, checked; *value (may be NULL) is its text. */
bool hf_json_skip(struct hf_json *j, struct hf_span *value);
/* Nothing but white space is left. */
bool hf_json_end(struct hf_json *j);

/* The string that raw spells: raw itself where it has no escapes, else in the arena. False: a half
 * of a surrogate pair, U+0000, or no memory. */
bool hf_json_text(struct arena *a, struct hf_span raw, struct hf_span *out);
bool hf_span_is(struct hf_span s, const char *text);

/* Members of an object that are wanted, by name; the others are checked and passed over. */
struct hf_pick {
    const char *key;
    struct hf_span *value; /* the value's text; .text is NULL where the object lacks it */
};
/* `text` must be an object and nothing else. `what` names it in reasons. */
MUST_CHECK enum status hf_json_pick(struct hf_span text, const struct hf_pick *picks, size_t n,
                                    const char *what, struct reason *why);
/* Where the cursor failed, for people. */
enum status hf_json_fail(const struct hf_json *j, const char *what, struct reason *why);

#endif
