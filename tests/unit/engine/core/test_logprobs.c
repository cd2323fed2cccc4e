#include "engine/core/logprobs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#define VOCAB 1003u /* not a multiple of the vector's lanes */

enum shape { SPREAD, FLAT, RISING, TIED, PEAKED, FORBIDDEN, HUGE_RANGE, SHAPES };

static void fill(float *logits, uint32_t n, enum shape shape)
{
    for (uint32_t i = 0; i < n; i++) {
        static const float levels[3] = {1, 2.5f, -4};

        logits[i] = 5 * sinf((float)i * 1.7f) - 0.01f * (float)(i % 97);
        if (shape == FLAT)
            logits[i] = -1.5f;
        if (shape == RISING)
            logits[i] = (float)i * 0.01f;
        if (shape == TIED)
            logits[i] = levels[i * 7 % 3];
        if (shape == PEAKED)
            logits[i] = i == n / 2 ? 60 : logits[i];
        if (shape == FORBIDDEN && i % 3 != 1 && n > 1)
            logits[i] = -INFINITY;
        if (shape == HUGE_RANGE)
            logits[i] *= 3000;
    }
}

static double exact_logprob(const float *logits, uint32_t n, uint32_t id)
{
    double max = -INFINITY, sum = 0;

    for (uint32_t i = 0; i < n; i++)
        max = (double)logits[i] > max ? (double)logits[i] : max;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - max);
    return (double)logits[id] - max - log(sum);
}

static const uint32_t sizes[] = {1, 2, 3, 4, 5, 31, 64, VOCAB};

static void test_values_are_the_log_softmax(void **state)
{
    float logits[VOCAB];
    struct logprobs l;
    double worst = 0;

    (void)state;
    for (size_t z = 0; z < sizeof sizes / sizeof sizes[0]; z++)
        for (enum shape shape = 0; shape < SHAPES; shape++) {
            double sum = 0;

            fill(logits, sizes[z], shape);
            assert_int_equal(logprobs_init(&l, logits, sizes[z]), ST_OK);
            for (uint32_t i = 0; i < sizes[z]; i++) {
                double want = exact_logprob(logits, sizes[z], i);
                double got = (double)logprobs_at(&l, (int32_t)i);

                assert_true(got <= 0);
                sum += exp(got);
                if (isinf(want)) {
                    assert_true(isinf(got));
                    continue;
                }
                worst = fmax(worst, fabs(got - want) / fmax(1, fabs(want)));
            }
            assert_true(fabs(sum - 1) < 1e-5);
        }
    printf("[ NOTE     ] largest difference %.1e\n", worst);
    assert_true(worst < 5e-7);
}

/* Each place by one plain search over all that are not yet taken. */
static void check_tops(const float *logits, uint32_t n_vocab, uint32_t n)
{
    struct token_logprob tops[TOP_LOGPROBS_MAX];
    bool taken[VOCAB] = {false};
    struct logprobs l;
    uint32_t got;

    assert_int_equal(logprobs_init(&l, logits, n_vocab), ST_OK);
    got = logprobs_tops(&l, n, tops);
    for (uint32_t place = 0; place < n && place < TOP_LOGPROBS_MAX; place++) {
        uint32_t best = UINT32_MAX;

        for (uint32_t i = 0; i < n_vocab; i++)
            if (!taken[i] && logits[i] > -INFINITY &&
                (best == UINT32_MAX || logits[i] > logits[best]))
                best = i;
        if (best == UINT32_MAX) {
            assert_int_equal(got, place);
            return;
        }
        assert_true(place < got);
        taken[best] = true;
        assert_int_equal(tops[place].id, best);
        assert_true(tops[place].logprob == logprobs_at(&l, (int32_t)best));
    }
    assert_int_equal(got, n < TOP_LOGPROBS_MAX ? n : TOP_LOGPROBS_MAX);
}

static void test_tops_are_the_most_probable_in_order(void **state)
{
    static const uint32_t counts[] = {0, 1, 2, 5, TOP_LOGPROBS_MAX, TOP_LOGPROBS_MAX + 980};
    float logits[VOCAB];

    (void)state;
    for (size_t z = 0; z < sizeof sizes / sizeof sizes[0]; z++)
        for (enum shape shape = 0; shape < SHAPES; shape++) {
            fill(logits, sizes[z], shape);
            for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
                check_tops(logits, sizes[z], counts[c]);
        }
}

static void test_damaged_rows_have_none(void **state)
{
    static const float bad[] = {NAN, -NAN, INFINITY};
    float logits[11];
    struct logprobs l;

    (void)state;
    for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++)
        for (uint32_t at = 0; at < 11; at++) {
            fill(logits, 11, SPREAD);
            logits[at] = bad[b];
            assert_int_equal(logprobs_init(&l, logits, 11), ST_INTERNAL);
        }
    for (uint32_t i = 0; i < 11; i++)
        logits[i] = -INFINITY;
    assert_int_equal(logprobs_init(&l, logits, 11), ST_INTERNAL);
    assert_int_equal(logprobs_init(&l, logits, 0), ST_INTERNAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_are_the_log_softmax),
        cmocka_unit_test(test_tops_are_the_most_probable_in_order),
        cmocka_unit_test(test_damaged_rows_have_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
