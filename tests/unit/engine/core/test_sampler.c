#include "engine/core/philox.h"
#include "engine/core/sampler.h"
#include "tests/unit/engine/core/sampling_reference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VOCAB REFERENCE_VOCAB

static struct sampler_scratch *scratch;

static int setup(void **state)
{
    (void)state;
    scratch = sampler_scratch_new(VOCAB);
    return scratch == NULL ? -1 : 0;
}

static int teardown(void **state)
{
    (void)state;
    sampler_scratch_free(scratch);
    return 0;
}

static int32_t pick(const struct sampling *p, uint32_t index, const float *logits, uint32_t n)
{
    int32_t id = -1;

    assert_int_equal(sampler_pick(p, index, logits, n, scratch, &id), ST_OK);
    assert_in_range(id, 0, n - 1);
    return id;
}

/* Logits with a long tail and ties. */
static void fill(float *logits, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        logits[i] = 4.0f * sinf((float)i * 1.7f) - 0.01f * (float)(i % 97);
}

/* The published vectors (Random123's kat_vectors). */
static void test_philox_gives_the_published_bits(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], bits[4];
    } vectors[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        uint32_t c[4];

        memcpy(c, vectors[i].counter, sizeof c);
        philox4x32(c, vectors[i].key[0], vectors[i].key[1]);
        assert_memory_equal(c, vectors[i].bits, sizeof c);
    }
}

static void test_uniform_is_philox_of_its_arguments(void **state)
{
    double want = (double)((0x6627e8d5ull << 32 | 0xe169c58dull) >> 11) * 0x1p-53;

    (void)state;
    assert_true(sampler_uniform(0, 0, 0) == want);
    assert_true(sampler_uniform(1, 0, 0) != want);
    assert_true(sampler_uniform(0, 1, 0) != want);
    assert_true(sampler_uniform(0, 0, 1) != want);
    assert_true(sampler_uniform(1ull << 32, 0, 0) != want);
}

static void test_uniform_stays_in_range_and_is_even(void **state)
{
    int bins[16] = {0};

    (void)state;
    for (uint32_t i = 0; i < 16000; i++) {
        double u = sampler_uniform(42, 0, i);

        assert_true(u >= 0 && u < 1);
        bins[(int)(u * 16)]++;
    }
    for (int b = 0; b < 16; b++)
        assert_in_range(bins[b], 850, 1150); /* 5 standard deviations */
}

static void test_greedy_takes_the_lowest_of_equals(void **state)
{
    float logits[9] = {0, 1, 3, 2, 3, 3, -1, 0, 3};
    struct sampling p = {.temperature = 0, .top_p = 1};

    (void)state;
    assert_int_equal(pick(&p, 0, logits, 9), 2);
    logits[8] = 3.5f;
    assert_int_equal(pick(&p, 0, logits, 9), 8);
}

static void test_top_k_of_one_is_greedy(void **state)
{
    float logits[VOCAB];
    struct sampling greedy = {.temperature = 0, .top_p = 1};
    struct sampling p = {.temperature = 1.5f, .top_p = 1, .top_k = 1, .seed = 7};

    (void)state;
    fill(logits, VOCAB);
    for (uint32_t i = 0; i < 50; i++)
        assert_int_equal(pick(&p, i, logits, VOCAB), pick(&greedy, 0, logits, VOCAB));
}

static void test_tiny_temperature_is_greedy(void **state)
{
    float logits[VOCAB];
    struct sampling p = {.temperature = 1e-30f, .top_p = 0.5f, .seed = 7};

    (void)state;
    fill(logits, VOCAB);
    logits[500] = 9;
    assert_int_equal(pick(&p, 0, logits, VOCAB), 500);
}

static void test_damaged_logits_are_refused(void **state)
{
    static const float bad[] = {NAN, -NAN, INFINITY};
    struct sampling p = {.temperature = 1, .top_p = 1};
    float logits[VOCAB];
    int32_t id = 77;

    (void)state;
    for (size_t b = 0; b < 3; b++)
        for (uint32_t at = 0; at < 11; at++) {
            fill(logits, 11);
            logits[at] = bad[b];
            assert_int_equal(sampler_pick(&p, 0, logits, 11, scratch, &id), ST_INTERNAL);
        }
    for (uint32_t i = 0; i < 11; i++)
        logits[i] = -INFINITY;
    assert_int_equal(sampler_pick(&p, 0, logits, 11, scratch, &id), ST_NO_CHOICE);
    logits[10] = NAN;
    assert_int_equal(sampler_pick(&p, 0, logits, 11, scratch, &id), ST_INTERNAL);
    assert_int_equal(id, 77);
}

static void test_masked_tokens_are_never_drawn(void **state)
{
    struct sampling p = {.temperature = 2, .top_p = 1, .seed = 3};
    float logits[10];

    (void)state;
    for (int i = 0; i < 10; i++)
        logits[i] = i % 2 == 0 ? -INFINITY : 0.5f;
    for (uint32_t i = 0; i < 200; i++)
        assert_int_equal(pick(&p, i, logits, 10) % 2, 1);
    p.top_p = 0.999999f;
    for (uint32_t i = 0; i < 200; i++)
        assert_int_equal(pick(&p, i, logits, 10) % 2, 1);
}

static void check_distribution(const struct sampling *p, const float *logits, uint32_t n)
{
    static int seen[VOCAB];

    memset(seen, 0, sizeof seen);
    for (uint32_t d = 0; d < REFERENCE_DRAWS; d++)
        seen[pick(p, d, logits, n)]++;
    assert_true(reference_accepts(p, logits, n, seen));
}

static void test_draws_follow_the_distribution(void **state)
{
    static const struct sampling cases[] = {
        {.temperature = 1, .top_p = 1, .seed = 1},
        {.temperature = 0.7f, .top_p = 1, .seed = 2},
        {.temperature = 2, .top_p = 1, .seed = 3},
        {.temperature = 1, .top_p = 0.9f, .seed = 4},
        {.temperature = 1, .top_p = 0.3f, .seed = 5},
        {.temperature = 1, .top_p = 1, .top_k = 7, .seed = 6},
        {.temperature = 1.3f, .top_p = 0.8f, .top_k = 40, .seed = 7},
        {.temperature = 1, .top_p = 0.95f, .top_k = 5000, .seed = 8},
        {.temperature = 1, .top_p = 0.9f, .seed = 9, .choice = 3},
        {.temperature = 1, .top_p = 1, .min_p = 0.05f, .seed = 10},
        {.temperature = 1.7f, .top_p = 1, .min_p = 0.3f, .seed = 11},
        {.temperature = 1, .top_p = 0.7f, .min_p = 0.2f, .seed = 12},
        {.temperature = 1.3f, .top_p = 0.99f, .top_k = 60, .min_p = 0.1f, .seed = 13},
        {.temperature = 1, .top_p = 1e-6f, .min_p = 0.5f, .seed = 14},
    };
    float logits[VOCAB];

    (void)state;
    fill(logits, VOCAB);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_distribution(&cases[i], logits, VOCAB);
        check_distribution(&cases[i], logits, 13); /* an odd size: vector tails */
    }
}

static void test_equal_logits_keep_the_lowest_ids(void **state)
{
    struct sampling p = {.temperature = 1, .top_p = 1, .top_k = 3, .seed = 1};
    float logits[VOCAB];
    int seen[3] = {0};

    (void)state;
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = 1.25f;
    for (uint32_t i = 0; i < 300; i++) {
        int32_t id = pick(&p, i, logits, VOCAB);

        assert_in_range(id, 0, 2);
        seen[id]++;
    }
    assert_true(seen[0] > 50 && seen[1] > 50 && seen[2] > 50);
}

/* The smallest set whose weight reaches top_p, not the next larger one: sums of equal weights are
 * exact. */
static void test_top_p_ends_where_it_is_just_reached(void **state)
{
    struct sampling p = {.temperature = 1, .top_p = 0.5f, .seed = 1};
    const float logits[4] = {1.25f, 1.25f, 1.25f, 1.25f};

    (void)state;
    for (uint32_t i = 0; i < 100; i++)
        assert_in_range(pick(&p, i, logits, 4), 0, 1);
}

static void test_the_same_state_draws_the_same(void **state)
{
    struct sampling p = {.temperature = 1, .top_p = 0.9f, .top_k = 0, .seed = 99, .choice = 1};
    struct sampler_scratch *other = sampler_scratch_new(VOCAB);
    float logits[VOCAB];
    int32_t id;

    (void)state;
    fill(logits, VOCAB);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(sampler_pick(&p, i, logits, VOCAB, other, &id), ST_OK);
        assert_int_equal(id, pick(&p, i, logits, VOCAB));
    }
    sampler_scratch_free(other);
}

static void test_min_p_of_one_keeps_the_most_probable(void **state)
{
    const float logits[6] = {1, 3, 2.999999f, 3, 0, 3};
    struct sampling p = {.temperature = 2, .top_p = 1, .min_p = 1, .seed = 5};
    bool seen[6] = {false};

    (void)state;
    for (uint32_t i = 0; i < 200; i++) {
        p.top_k = i % 2 == 0 ? 0 : 5; /* by both ways to draw */
        seen[pick(&p, i, logits, 6)] = true;
    }
    assert_true(seen[1] && seen[3] && seen[5]);
    assert_false(seen[0] || seen[2] || seen[4]);
}

/* Independent draws of 40 tokens: equal ones would mean that the choice is not in the counter. */
static void test_choices_of_one_seed_differ_and_repeat(void **state)
{
    enum { CHOICES = 8, LENGTH = 40 };
    int32_t ids[2][CHOICES][LENGTH];
    float logits[VOCAB];

    (void)state;
    fill(logits, VOCAB);
    for (int run = 0; run < 2; run++)
        for (uint32_t c = 0; c < CHOICES; c++) {
            struct sampling p = {.temperature = 1, .top_p = 0.95f, .seed = 17, .choice = c};

            for (uint32_t i = 0; i < LENGTH; i++)
                ids[run][c][i] = pick(&p, i, logits, VOCAB);
        }
    assert_memory_equal(ids[0], ids[1], sizeof ids[0]);
    for (int a = 0; a < CHOICES; a++)
        for (int b = 0; b < a; b++)
            assert_memory_not_equal(ids[0][a], ids[0][b], sizeof ids[0][a]);
}

static void test_logprob_is_log_softmax(void **state)
{
    float logits[VOCAB];
    double sum = 0;

    (void)state;
    fill(logits, VOCAB);
    for (uint32_t i = 0; i < VOCAB; i++)
        sum += exp(sampler_logprob(logits, VOCAB, (int32_t)i));
    assert_true(fabs(sum - 1) < 1e-5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_gives_the_published_bits),
        cmocka_unit_test(test_uniform_is_philox_of_its_arguments),
        cmocka_unit_test(test_uniform_stays_in_range_and_is_even),
        cmocka_unit_test(test_greedy_takes_the_lowest_of_equals),
        cmocka_unit_test(test_top_k_of_one_is_greedy),
        cmocka_unit_test(test_tiny_temperature_is_greedy),
        cmocka_unit_test(test_damaged_logits_are_refused),
        cmocka_unit_test(test_masked_tokens_are_never_drawn),
        cmocka_unit_test(test_draws_follow_the_distribution),
        cmocka_unit_test(test_equal_logits_keep_the_lowest_ids),
        cmocka_unit_test(test_top_p_ends_where_it_is_just_reached),
        cmocka_unit_test(test_the_same_state_draws_the_same),
        cmocka_unit_test(test_min_p_of_one_keeps_the_most_probable),
        cmocka_unit_test(test_choices_of_one_seed_differ_and_repeat),
        cmocka_unit_test(test_logprob_is_log_softmax),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
