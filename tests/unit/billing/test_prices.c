#include "billing/prices.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* By model (bytes), newest first, as the database gives them. */
static const struct price_row sample[] = {
    {"*", 100, {.id = 1}},      {"a", 300, {.id = 4}}, {"a", 200, {.id = 3}},
    {"future", 900, {.id = 6}}, {"z", 100, {.id = 5}},
};
#define N (sizeof sample / sizeof sample[0])

static void load(struct prices *p, size_t from)
{
    struct price_row *rows = malloc(sizeof sample);

    assert_non_null(rows);
    memcpy(rows, sample + from, sizeof sample - from * sizeof sample[0]);
    prices_replace(p, rows, N - from);
}

static int64_t id_of(struct prices *p, const char *model, int64_t now_us)
{
    struct price price = {.id = -1};

    assert_int_equal(prices_find(p, model, now_us, &price), ST_OK);
    return price.id;
}

static void before_the_first_load_there_is_no_answer(void **state)
{
    struct price price;
    struct prices p;

    (void)state;
    prices_init(&p);
    assert_int_equal(prices_find(&p, "a", 500, &price), ST_UNAVAILABLE);
    prices_dispose(&p);
}

static void the_price_in_force_at_the_time_is_taken(void **state)
{
    struct prices p;

    (void)state;
    prices_init(&p);
    load(&p, 0);
    assert_int_equal(id_of(&p, "a", 299), 3);
    assert_int_equal(id_of(&p, "a", 300), 4);
    assert_int_equal(id_of(&p, "z", 300), 5);
    prices_dispose(&p);
}

static void any_other_model_has_the_default_price(void **state)
{
    struct prices p;

    (void)state;
    prices_init(&p);
    load(&p, 0);
    assert_int_equal(id_of(&p, "unknown", 300), 1);
    assert_int_equal(id_of(&p, "future", 899), 1);
    assert_int_equal(id_of(&p, "future", 900), 6);
    prices_dispose(&p);
}

static void without_a_default_an_unknown_model_has_none(void **state)
{
    struct price price = {.id = 42};
    struct prices p;

    (void)state;
    prices_init(&p);
    load(&p, 1);
    assert_int_equal(prices_find(&p, "unknown", 300, &price), ST_NOT_FOUND);
    assert_int_equal(price.id, 42);
    prices_dispose(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(before_the_first_load_there_is_no_answer),
        cmocka_unit_test(the_price_in_force_at_the_time_is_taken),
        cmocka_unit_test(any_other_model_has_the_default_price),
        cmocka_unit_test(without_a_default_an_unknown_model_has_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
