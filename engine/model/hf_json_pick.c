/* Members of an object that somebody looks for, by name. */
#include "engine/model/hf_json.h"

static const struct hf_pick *find_pick(const struct hf_pick *picks, size_t n, struct hf_span key)
{
    for (size_t i = 0; i < n; i++)
        if (hf_span_is(key, picks[i].key))
            return &picks[i];
    return NULL;
}

enum status hf_json_pick(struct hf_span text, const struct hf_pick *picks, size_t n,
                         const char *what, struct reason *why)
{
    struct hf_span key = {0};
    struct hf_json j;

    for (size_t i = 0; i < n; i++)
        *picks[i].value = (struct hf_span){0};
    hf_json_init(&j, text.text, text.len);
    if (hf_json_enter_object(&j)) {
        while (hf_json_member(&j, &key)) {
            const struct hf_pick *p = find_pick(picks, n, key);

            if (p != NULL && p->value->text != NULL)
                return fail(why, ST_CORRUPT, "%.100s has %s twice", what, p->key);
            if (!hf_json_skip(&j, p != NULL ? p->value : NULL))
                break;
        }
    }
    return hf_json_end(&j) ? ST_OK : hf_json_fail(&j, what, why);
}
