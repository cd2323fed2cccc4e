#include "engine/core/orphans.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include "engine/core/conn.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define CAP 8

static const struct conn living = {.fd = 1}, other = {.fd = 2};

/* Ids with the same last half share a bucket. */
static struct id id_of(uint32_t n)
{
    struct id id = {{(uint8_t)n}};

    id.bytes[15] = (uint8_t)(n % 3);
    return id;
}

static void add(struct orphans *o, uint32_t n, const struct conn *conn)
{
    const struct wire_final end = {
        .prompt_tokens = 100 + n, .cached_tokens = n, .output_tokens = 1000 + n};
    struct id id = id_of(n);

    orphans_add(o, &id, conn, &end);
}

static bool has(const struct orphans *o, uint32_t n)
{
    struct id id = id_of(n);
    const struct wire_settled *end = orphans_find(o, &id);

    if (end == NULL)
        return false;
    assert_true(end->is_known && id_equal(&end->request, &id));
    assert_int_equal(end->prompt_tokens, 100 + n);
    assert_int_equal(end->cached_tokens, n);
    assert_int_equal(end->output_tokens, 1000 + n);
    return true;
}

static void forget(struct orphans *o, uint32_t n)
{
    struct id id = id_of(n);

    orphans_forget(o, &id);
}

static int set_up(void **state)
{
    static struct orphans o;

    assert_int_equal(orphans_init(&o, CAP), ST_OK);
    *state = &o;
    return 0;
}

static int tear_down(void **state)
{
    orphans_dispose(*state);
    return 0;
}

static void an_end_is_found_until_it_is_forgotten(void **state)
{
    struct orphans *o = *state;

    for (uint32_t n = 0; n < CAP; n++)
        add(o, n, n % 2 == 0 ? &living : NULL);
    for (uint32_t n = 0; n < CAP; n++)
        assert_true(has(o, n));
    forget(o, 4);
    forget(o, 5);
    forget(o, 5);
    forget(o, 77);
    for (uint32_t n = 0; n < CAP; n++)
        assert_int_equal(has(o, n), n != 4 && n != 5);
    assert_int_equal(o->told.n + o->orphaned.n, CAP - 2);
}

static void the_oldest_orphan_goes_when_it_is_full(void **state)
{
    struct orphans *o = *state;

    for (uint32_t n = 0; n < CAP + 3; n++)
        add(o, n, NULL);
    for (uint32_t n = 0; n < CAP + 3; n++)
        assert_int_equal(has(o, n), n >= 3);
}

static void ends_of_the_living_do_not_push_out_orphans(void **state)
{
    struct orphans *o = *state;

    add(o, 0, NULL);
    for (uint32_t n = 1; n < 100; n++)
        add(o, n, &living);
    assert_true(has(o, 0));
    assert_false(has(o, 92));
    assert_true(has(o, 93) && has(o, 99));
}

static void many_orphans_leave_half_to_the_living(void **state)
{
    struct orphans *o = *state;

    for (uint32_t n = 0; n < 4; n++)
        add(o, n, &living);
    for (uint32_t n = 4; n < 100; n++)
        add(o, n, NULL);
    for (uint32_t n = 0; n < 4; n++)
        assert_true(has(o, n));
    assert_false(has(o, 95));
    assert_true(has(o, 96) && has(o, 99));
}

static void the_ends_of_a_connection_that_closes_are_orphans(void **state)
{
    struct orphans *o = *state;

    add(o, 0, &living);
    add(o, 1, &other);
    add(o, 2, &living);
    orphans_leave(o, &living);
    assert_int_equal(o->told.n, 1);
    assert_int_equal(o->orphaned.n, 2);
    for (uint32_t n = 3; n < 100; n++)
        add(o, n, &other);
    assert_true(has(o, 0) && has(o, 2));
    assert_false(has(o, 1));
}

static void an_id_that_comes_again_is_replaced(void **state)
{
    struct orphans *o = *state;
    const struct wire_final end = {.output_tokens = 7};
    struct id id = id_of(1);

    add(o, 1, NULL);
    orphans_add(o, &id, &living, &end);
    assert_int_equal(orphans_find(o, &id)->output_tokens, 7);
    assert_int_equal(o->told.n, 1);
    assert_int_equal(o->orphaned.n, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_end_is_found_until_it_is_forgotten),
        TEST(the_oldest_orphan_goes_when_it_is_full),
        TEST(ends_of_the_living_do_not_push_out_orphans),
        TEST(many_orphans_leave_half_to_the_living),
        TEST(the_ends_of_a_connection_that_closes_are_orphans),
        TEST(an_id_that_comes_again_is_replaced),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
