/* What changes logits before they are drawn from, on values worked out by hand. Random cases are
 * test_sampler_reference.c's. */
#include "engine/core/adjust.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define VOCAB 8

static struct history history;

static int setup(void **state)
{
    (void)state;
    return history_init(&history, VOCAB, 0x51ed270b) == ST_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    history_dispose(&history);
    return 0;
}

static void say(int32_t id, uint32_t in_prompt, uint32_t in_output)
{
    for (uint32_t i = 0; i < in_prompt; i++)
        assert_true(history_add_prompt(&history, id));
    for (uint32_t i = 0; i < in_output; i++)
        assert_true(history_add_output(&history, id));
}

static void adjusted(const struct sampling *s, float *logits)
{
    const struct adjustment a = {.sampling = s,
                                 .history = sampling_has_penalties(s) ? &history : NULL};

    adjust_logits(&a, logits, VOCAB);
}

#define ASSERT_LOGITS(logits, ...)                                                                 \
    do {                                                                                           \
        const float want_[VOCAB] = {__VA_ARGS__};                                                  \
        for (int i_ = 0; i_ < VOCAB; i_++)                                                         \
            if ((logits)[i_] != want_[i_])                                                         \
                fail_msg("id %d: %g, not %g", i_, (double)(logits)[i_], (double)want_[i_]);        \
    } while (0)

/* Hugging Face's: of prompt and output, once per id however often it came; a negative logit goes
 * down too. */
static void test_repetition_is_of_prompt_and_output_once(void **state)
{
    const struct sampling s = {.repetition_penalty = 2};
    float logits[VOCAB] = {4, 4, -3, -3, 4, 0, 4, -3};

    (void)state;
    history_clear(&history);
    say(0, 1, 0);
    say(1, 0, 1);
    say(2, 3, 50);
    say(3, 2, 0);
    say(4, 0, 50);
    say(5, 1, 1);
    adjusted(&s, logits);
    ASSERT_LOGITS(logits, 2, 2, -6, -6, 2, 0, 4, -3);
}

static void test_repetition_below_one_rewards(void **state)
{
    const struct sampling s = {.repetition_penalty = 0.5f};
    float logits[VOCAB] = {4, -3, 4, -3};

    (void)state;
    history_clear(&history);
    say(0, 1, 0);
    say(1, 0, 1);
    adjusted(&s, logits);
    ASSERT_LOGITS(logits, 8, -1.5f, 4, -3);
}

/* OpenAI's: what only the prompt has costs nothing. */
static void test_frequency_and_presence_are_of_the_output(void **state)
{
    const struct sampling frequency = {.frequency_penalty = 0.5f},
                          presence = {.presence_penalty = 1.5f};
    float logits[VOCAB] = {4, 4, 4, -3};

    (void)state;
    history_clear(&history);
    say(0, 20, 0);
    say(1, 0, 1);
    say(2, 7, 50);
    say(3, 0, 2);
    adjusted(&frequency, logits);
    ASSERT_LOGITS(logits, 4, 3.5f, -21, -4);
    adjusted(&presence, logits);
    ASSERT_LOGITS(logits, 4, 2, -22.5f, -5.5f);
}

static void test_negative_penalties_favour_what_was_said(void **state)
{
    const struct sampling s = {.frequency_penalty = -2, .presence_penalty = -1};
    float logits[VOCAB] = {1, 1};

    (void)state;
    history_clear(&history);
    say(1, 0, 3);
    adjusted(&s, logits);
    ASSERT_LOGITS(logits, 1, 8);
}

/* ((1 + 3) / 2) - 0.5 * 2 - 0.25: any other order gives another number. */
static void test_bias_then_repetition_then_the_others(void **state)
{
    const struct logit_bias bias[] = {{.id = 6, .bias = 3}};
    const struct sampling s = {.bias = bias,
                               .n_bias = 1,
                               .repetition_penalty = 2,
                               .frequency_penalty = 0.5f,
                               .presence_penalty = 0.25f};
    float logits[VOCAB] = {0, 0, 0, 0, 0, 0, 1, 1};

    (void)state;
    history_clear(&history);
    say(6, 1, 2);
    adjusted(&s, logits);
    ASSERT_LOGITS(logits, 0, 0, 0, 0, 0, 0, 0.75f, 1);
}

static void test_end_ids_wait_for_min_tokens(void **state)
{
    const struct logit_bias bias[] = {{.id = 1, .bias = 100}};
    const int32_t ends[] = {1, 4};
    const struct sampling s = {
        .bias = bias, .n_bias = 1, .min_tokens = 3, .end_ids = ends, .n_end_ids = 2};

    (void)state;
    for (uint32_t index = 0; index < 6; index++) {
        const struct adjustment a = {.sampling = &s, .output_index = index};
        float logits[VOCAB] = {0}, off = index < 3 ? -INFINITY : 0;

        adjust_logits(&a, logits, VOCAB);
        ASSERT_LOGITS(logits, 0, index < 3 ? -INFINITY : 100, 0, 0, off);
    }
}

static void test_a_mask_beats_any_bias(void **state)
{
    const struct logit_bias bias[] = {{.id = 33, .bias = 100}, {.id = 34, .bias = 100}};
    const uint32_t mask[2] = {UINT32_MAX, 1u << 2};
    const struct sampling s = {.bias = bias, .n_bias = 2};
    const struct adjustment a = {.sampling = &s, .mask = mask};
    float logits[37] = {0};

    (void)state;
    adjust_logits(&a, logits, 37);
    for (int i = 0; i < 32; i++)
        assert_true(logits[i] == 0);
    for (int i = 32; i < 37; i++)
        assert_true(logits[i] == (i == 34 ? 100 : -INFINITY));
}

/* A row that the model damaged must still be seen as damaged. */
static void test_what_is_damaged_stays_damaged(void **state)
{
    const struct logit_bias bias[] = {{.id = 0, .bias = -100}, {.id = 1, .bias = -100}};
    const int32_t ends[] = {2, 3};
    const uint32_t none = 0;
    const struct sampling s = {.bias = bias,
                               .n_bias = 2,
                               .min_tokens = 1,
                               .end_ids = ends,
                               .n_end_ids = 2,
                               .repetition_penalty = 2,
                               .frequency_penalty = 2};
    const struct adjustment a = {.sampling = &s, .history = &history, .mask = &none};
    float logits[VOCAB] = {NAN, INFINITY, NAN, INFINITY, NAN, INFINITY, -INFINITY, 0};

    (void)state;
    history_clear(&history);
    for (int32_t id = 0; id < VOCAB; id++)
        say(id, 1, 1);
    adjust_logits(&a, logits, VOCAB);
    for (int i = 0; i < 6; i++)
        assert_true(i % 2 == 0 ? isnan(logits[i]) : logits[i] == INFINITY);
    assert_true(logits[6] == -INFINITY && logits[7] == -INFINITY);
}

/* Else a request could make a sound row look damaged. */
static void test_nothing_finite_becomes_infinite(void **state)
{
    const struct logit_bias bias[] = {{.id = 1, .bias = FLT_MAX}};
    const struct sampling s = {.bias = bias, .n_bias = 1, .repetition_penalty = 1e-42f};
    float logits[VOCAB] = {9, FLT_MAX, -INFINITY};

    (void)state;
    history_clear(&history);
    say(0, 1, 0);
    say(1, 1, 0);
    say(2, 1, 0);
    adjusted(&s, logits);
    ASSERT_LOGITS(logits, FLT_MAX, FLT_MAX, -INFINITY);
}

static void test_what_is_off_needs_nothing(void **state)
{
    const int32_t ends[] = {1};
    const uint32_t mask = UINT32_MAX;
    struct sampling s = {.repetition_penalty = 1, .min_tokens = 2, .end_ids = ends, .n_end_ids = 1};

    (void)state;
    assert_false(sampling_has_penalties(&s));
    assert_false(adjust_is_needed(&(struct adjustment){.sampling = &s, .output_index = 2}));
    assert_true(adjust_is_needed(&(struct adjustment){.sampling = &s, .output_index = 1}));
    assert_true(
        adjust_is_needed(&(struct adjustment){.sampling = &s, .output_index = 2, .mask = &mask}));
    s = (struct sampling){.presence_penalty = -0.1f};
    assert_true(sampling_has_penalties(&s));
    s = (struct sampling){.frequency_penalty = 0.1f};
    assert_true(sampling_has_penalties(&s));
    s = (struct sampling){.repetition_penalty = 1.1f};
    assert_true(sampling_has_penalties(&s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repetition_is_of_prompt_and_output_once),
        cmocka_unit_test(test_repetition_below_one_rewards),
        cmocka_unit_test(test_frequency_and_presence_are_of_the_output),
        cmocka_unit_test(test_negative_penalties_favour_what_was_said),
        cmocka_unit_test(test_bias_then_repetition_then_the_others),
        cmocka_unit_test(test_end_ids_wait_for_min_tokens),
        cmocka_unit_test(test_a_mask_beats_any_bias),
        cmocka_unit_test(test_what_is_damaged_stays_damaged),
        cmocka_unit_test(test_nothing_finite_becomes_infinite),
        cmocka_unit_test(test_what_is_off_needs_nothing),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
