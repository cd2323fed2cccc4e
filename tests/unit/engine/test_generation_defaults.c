/* What a model's makers sample with: from GGUF's keys, and from a folder's generation_config.json.
 */
#include "engine/generation_defaults.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/size.h"
#include "engine/model/hf_generation.h"
#include "tests/lib/gguf_build.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static void read_bytes(const struct buf *bytes, struct engine_defaults *out)
{
    struct reason why;
    struct gguf *g;

    assert_int_equal(gguf_open_memory(bytes->data, bytes->len, &g, &why), ST_OK);
    generation_defaults_read(g, out);
    gguf_close(g);
}

static void are_all(const struct engine_defaults *d, float temperature, float top_p, float min_p,
                    float penalty, int32_t top_k)
{
    assert_true(d->temperature == temperature && d->top_p == top_p && d->min_p == min_p);
    assert_true(d->repetition_penalty == penalty);
    assert_int_equal(d->top_k, top_k);
}

/* Values that a float holds exactly. */
static void gguf_keys_are_read(void **state)
{
    struct engine_defaults d;
    struct gguf_build b;
    struct buf bytes;

    (void)state;
    gguf_build_init(&b);
    gguf_build_f32(&b, "general.sampling.temp", 0.75F);
    gguf_build_f32(&b, "general.sampling.top_p", 0.5F);
    gguf_build_f32(&b, "general.sampling.min_p", 0);
    gguf_build_f32(&b, "general.sampling.penalty_repeat", 1.25F);
    gguf_build_u32(&b, "general.sampling.top_k", 20);
    buf_init(&bytes);
    gguf_build_finish(&b, &bytes);
    read_bytes(&bytes, &d);
    are_all(&d, 0.75F, 0.5F, 0, 1.25F, 20);
    buf_dispose(&bytes);
    gguf_build_dispose(&b);
}

static void what_no_request_may_have_counts_as_absent(void **state)
{
    static const struct {
        const char *key;
        float value;
    } bad[] = {
        {"general.sampling.temp", 2.5F},
        {"general.sampling.temp", -0.5F},
        {"general.sampling.top_p", 0},
        {"general.sampling.top_p", 1.5F},
        {"general.sampling.min_p", -1},
        {"general.sampling.penalty_repeat", 0},
        {"general.sampling.temp", __builtin_nanf("")},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct engine_defaults d;
        struct gguf_build b;
        struct buf bytes;

        gguf_build_init(&b);
        gguf_build_f32(&b, bad[i].key, bad[i].value);
        buf_init(&bytes);
        gguf_build_finish(&b, &bytes);
        read_bytes(&bytes, &d);
        are_all(&d, -1, -1, -1, -1, -1);
        buf_dispose(&bytes);
        gguf_build_dispose(&b);
    }
}

static enum status translate(const char *json, struct engine_defaults *out, struct reason *why)
{
    struct hf_span text = {json, json != NULL ? strlen(json) : 0};
    struct hf_meta m;
    struct buf bytes;
    enum status s;

    buf_init(&bytes);
    hf_meta_init(&m, "llama");
    s = hf_generation_put(text, &m, why);
    assert_int_equal(hf_meta_finish(&m, &bytes), ST_OK);
    if (s == ST_OK)
        read_bytes(&bytes, out);
    hf_meta_dispose(&m);
    buf_dispose(&bytes);
    return s;
}

static void a_folder_s_generation_config_becomes_those_keys(void **state)
{
    struct engine_defaults d;
    struct reason why;

    (void)state;
    assert_int_equal(
        translate("{\"do_sample\":true,\"temperature\":0.5,\"top_p\":0.25,\"top_k\":20,"
                  "\"min_p\":0.125,\"repetition_penalty\":1.5,\"eos_token_id\":[1]}",
                  &d, &why),
        ST_OK);
    are_all(&d, 0.5F, 0.25F, 0.125F, 1.5F, 20);
    assert_int_equal(translate("{\"temperature\":null,\"top_k\":-1}", &d, &why), ST_OK);
    are_all(&d, -1, -1, -1, -1, 0);
    assert_int_equal(translate(NULL, &d, &why), ST_OK);
    are_all(&d, -1, -1, -1, -1, -1);
}

static void no_sampling_is_greedy(void **state)
{
    struct engine_defaults d;
    struct reason why;

    (void)state;
    assert_int_equal(translate("{\"do_sample\":false,\"temperature\":0.5}", &d, &why), ST_OK);
    assert_true(d.temperature == 0);
}

static void a_wrong_type_is_refused_by_name(void **state)
{
    static const struct {
        const char *json, *param;
    } bad[] = {
        {"{\"temperature\":\"hot\"}", "temperature"},
        {"{\"top_p\":[1]}", "top_p"},
        {"{\"top_k\":true}", "top_k"},
        {"{\"top_k\":1e12}", "top_k"},
        {"{\"top_k\":-2}", "top_k"},
        {"{\"repetition_penalty\":{}}", "repetition_penalty"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct engine_defaults d;
        struct reason why = {0};

        assert_int_equal(translate(bad[i].json, &d, &why), ST_CORRUPT);
        assert_string_equal(why.param, bad[i].param);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf_keys_are_read),
        cmocka_unit_test(what_no_request_may_have_counts_as_absent),
        cmocka_unit_test(a_folder_s_generation_config_becomes_those_keys),
        cmocka_unit_test(no_sampling_is_greedy),
        cmocka_unit_test(a_wrong_type_is_refused_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
