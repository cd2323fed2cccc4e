#include "billing/money.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static int64_t cost_of(const struct price *p, int64_t input, int64_t cached, int64_t output)
{
    int64_t nanos = -1;

    assert_int_equal(money_cost(p, input, cached, output, &nanos), ST_OK);
    return nanos;
}

static int64_t reserve_of(const struct price *p, int64_t input, int64_t output)
{
    int64_t nanos = -1;

    assert_int_equal(money_reserve(p, input, output, &nanos), ST_OK);
    return nanos;
}

static void halves_go_up_and_less_goes_down(void **state)
{
    (void)state;
    for (int64_t rest = 0; rest < 1000000; rest += 1) {
        struct price p = {.input_nanos = 7000000 + rest, .currency = "USD"};

        assert_int_equal(cost_of(&p, 1, 0, 0), 7 + (rest >= 500000));
        assert_int_equal(reserve_of(&p, 1, 0), 7 + (rest > 0));
    }
}

/* 0.4 + 0.4 + 0.4 nanos are 1.2: rounded once that is 1, part by part it would be 0. */
static void a_row_is_rounded_once(void **state)
{
    const struct price p = {.input_nanos = 400000, .cached_nanos = 400000, .output_nanos = 400000};

    (void)state;
    assert_int_equal(cost_of(&p, 1, 1, 1), 1);
    assert_int_equal(reserve_of(&p, 1, 1), 1);
    assert_int_equal(reserve_of(&p, 2, 1), 2);
}

static void each_kind_of_token_has_its_price(void **state)
{
    const struct price p = {.input_nanos = 100000000,
                            .cached_nanos = 50000000,
                            .output_nanos = 400000000,
                            .request_nanos = 7};

    (void)state;
    assert_int_equal(cost_of(&p, 1000, 0, 0), 100007);
    assert_int_equal(cost_of(&p, 0, 1000, 0), 50007);
    assert_int_equal(cost_of(&p, 0, 0, 1000), 400007);
    assert_int_equal(cost_of(&p, 1000, 1000, 1000), 550007);
}

static void nothing_generated_costs_nothing_not_even_the_request(void **state)
{
    const struct price p = {.request_nanos = 1000000};

    (void)state;
    assert_int_equal(cost_of(&p, 0, 0, 0), 0);
    assert_int_equal(cost_of(&p, 1, 0, 0), 1000000);
    assert_int_equal(cost_of(&p, 0, 0, 1), 1000000);
}

static void a_reservation_covers_every_cost_within_it(void **state)
{
    const struct price p = {
        .input_nanos = 333333, .cached_nanos = 333333, .output_nanos = 777777, .request_nanos = 3};

    (void)state;
    for (int64_t input = 0; input < 40; input++)
        for (int64_t cached = 0; cached <= input; cached++)
            for (int64_t output = 0; output < 40; output++)
                assert_true(cost_of(&p, input - cached, cached, output) <=
                            reserve_of(&p, input, output));
}

static void the_largest_sums_that_fit_are_exact(void **state)
{
    const struct price one = {.input_nanos = 1000000}; /* a nano a token */
    const struct price all = {.input_nanos = INT64_MAX};

    (void)state;
    assert_int_equal(cost_of(&one, INT64_MAX, 0, 0), INT64_MAX);
    assert_int_equal(cost_of(&all, 1000000, 0, 0), INT64_MAX);
    assert_int_equal(reserve_of(&one, INT64_MAX, 0), INT64_MAX);
}

static void more_than_fits_is_refused_and_leaves_the_result(void **state)
{
    const struct price one = {.input_nanos = 1000000, .output_nanos = 1000000};
    const struct price half = {.input_nanos = 1000000, .output_nanos = 500000};
    const struct price all = {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, "USD"};
    int64_t nanos = 42;

    (void)state;
    assert_int_equal(money_cost(&one, INT64_MAX, 0, 1, &nanos), ST_TOO_LARGE);
    assert_int_equal(money_cost(&half, INT64_MAX, 0, 1, &nanos), ST_TOO_LARGE);
    assert_int_equal(money_cost(&all, INT64_MAX, INT64_MAX, INT64_MAX, &nanos), ST_TOO_LARGE);
    assert_int_equal(money_reserve(&all, INT64_MAX, INT64_MAX, &nanos), ST_TOO_LARGE);
    assert_int_equal(nanos, 42);
}

static void negative_counts_and_prices_are_refused(void **state)
{
    const struct price good = {.input_nanos = 1};
    const struct price bad[] = {
        {.input_nanos = -1}, {.cached_nanos = -1}, {.output_nanos = -1}, {.request_nanos = -1}};
    int64_t nanos = 42;

    (void)state;
    assert_int_equal(money_cost(&good, -1, 0, 0, &nanos), ST_INVALID);
    assert_int_equal(money_cost(&good, 0, -1, 0, &nanos), ST_INVALID);
    assert_int_equal(money_cost(&good, 0, 0, INT64_MIN, &nanos), ST_INVALID);
    assert_int_equal(money_reserve(&good, -1, 0, &nanos), ST_INVALID);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(money_cost(&bad[i], 1, 1, 1, &nanos), ST_INVALID);
    assert_int_equal(nanos, 42);
}

static void text_is_decimal_with_two_to_nine_places(void **state)
{
    static const struct {
        int64_t nanos;
        const char *text;
    } cases[] = {
        {0, "0.00"},
        {1, "0.000000001"},
        {-1, "-0.000000001"},
        {350, "0.00000035"},
        {123450, "0.00012345"},
        {10000000, "0.01"},
        {100000000, "0.10"},
        {120000000, "0.12"},
        {123000000, "0.123"},
        {1000000000, "1.00"},
        {999999999, "0.999999999"},
        {1000000001, "1.000000001"},
        {INT64_MAX, "9223372036.854775807"},
        {INT64_MIN, "-9223372036.854775808"},
    };
    char text[MONEY_TEXT_BYTES];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        money_format(cases[i].nanos, text);
        assert_string_equal(text, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_go_up_and_less_goes_down),
        cmocka_unit_test(a_row_is_rounded_once),
        cmocka_unit_test(each_kind_of_token_has_its_price),
        cmocka_unit_test(nothing_generated_costs_nothing_not_even_the_request),
        cmocka_unit_test(a_reservation_covers_every_cost_within_it),
        cmocka_unit_test(the_largest_sums_that_fit_are_exact),
        cmocka_unit_test(more_than_fits_is_refused_and_leaves_the_result),
        cmocka_unit_test(negative_counts_and_prices_are_refused),
        cmocka_unit_test(text_is_decimal_with_two_to_nine_places),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
