#include "engine/core/philox.h"
#include "engine/core/sampler.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VOCAB 1000u

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

/* The distribution that temperature, top_k and top_p define, by a plain sort. */
static const float *sort_key;
static int by_logit(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;

    if (sort_key[x] != sort_key[y])
        return sort_key[x] > sort_key[y] ? -1 : 1;
    return x - y;
}

static void expected(const struct sampling *p, const float *logits, uint32_t n, double *out)
{
    int order[VOCAB];
    double total = 0, reached = 0, w[VOCAB];
    uint32_t keep = p->top_k > 0 && (uint32_t)p->top_k < n ? (uint32_t)p->top_k : n, i;

    for (i = 0; i < n; i++) {
        order[i] = (int)i;
        out[i] = 0;
    }
    sort_key = logits;
    qsort(order, n, sizeof order[0], by_logit);
    for (i = 0; i < keep; i++) {
        w[i] = exp(((double)logits[order[i]] - logits[order[0]]) / p->temperature);
        total += w[i];
    }
    for (i = 0; i < keep && reached < p->top_p * total; i++)
        reached += w[i];
    keep = i;
    for (i = 0; i < keep; i++)
        out[order[i]] = w[i] / reached;
}

/* Chi-square over the ids that expect at least 5 draws; the bound is the mean plus 5 deviations. */
static void check_distribution(const struct sampling *p, const float *logits, uint32_t n)
{
    enum { DRAWS = 20000 };
    static double want[VOCAB];
    static int seen[VOCAB];
    double chi = 0, pooled = DRAWS, pooled_seen = DRAWS;
    int cells = 0;

    expected(p, logits, n, want);
    for (uint32_t i = 0; i < n; i++)
        seen[i] = 0;
    for (uint32_t d = 0; d < DRAWS; d++)
        seen[pick(p, d, logits, n)]++;
    for (uint32_t i = 0; i < n; i++) {
        double e = want[i] * DRAWS;

        if (want[i] == 0)
            assert_int_equal(seen[i], 0);
        if (e < 5)
            continue;
        chi += (seen[i] - e) * (seen[i] - e) / e;
        pooled -= e;
        pooled_seen -= seen[i];
        cells++;
    }
    if (pooled >= 5)
        chi += (pooled_seen - pooled) * (pooled_seen - pooled) / pooled;
    assert_true(chi < cells + 5 * sqrt(2.0 * cells) + 5);
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
        cmocka_unit_test(test_logprob_is_log_softmax),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
