#include "engine/core/fair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static struct fair_node *join(struct fair *f, uint64_t tenant, uint64_t project, uint32_t weight)
{
    const struct sequence q = {.tenant = tenant, .project = project, .weight = weight};
    struct fair_node *n = NULL;

    assert_int_equal(fair_join(f, &q, &n), ST_OK);
    return n;
}

static void leave(struct fair_node *n)
{
    fair_set_ready(n, false);
    fair_leave(n);
}

static void serve(struct fair_node *n, uint64_t cost)
{
    fair_choose(n);
    fair_charge(n, cost, 0);
}

static struct fair_node *first_of(struct fair_node *const *nodes, uint32_t n)
{
    struct fair_node *first = nodes[0];

    for (uint32_t i = 1; i < n; i++)
        if (fair_compare(nodes[i], first) < 0)
            first = nodes[i];
    return first;
}

static void test_service_is_divided_by_weight(void **state)
{
    uint64_t served[2] = {0};
    struct fair_node *n[2];
    struct fair f;

    (void)state;
    fair_init(&f);
    n[0] = join(&f, 1, 0, 1000);
    n[1] = join(&f, 2, 0, 3000);
    fair_set_ready(n[0], true);
    fair_set_ready(n[1], true);
    for (int i = 0; i < 4000; i++) {
        struct fair_node *next = first_of(n, 2);

        served[next == n[1]] += 10;
        serve(next, 10);
    }
    assert_in_range(served[0], 9990, 10010);
    assert_in_range(served[1], 29990, 30010);
    leave(n[0]);
    leave(n[1]);
    fair_dispose(&f);
}

static void test_idle_time_is_not_banked(void **state)
{
    struct fair_node *busy, *idle;
    struct fair f;

    (void)state;
    fair_init(&f);
    busy = join(&f, 1, 0, 1000);
    fair_set_ready(busy, true);
    serve(busy, 100000);
    idle = join(&f, 2, 0, 1000);
    fair_set_ready(idle, true);
    assert_int_equal(fair_lead(busy->parent, idle->parent), 0);
    leave(busy);
    leave(idle);
    fair_dispose(&f);
}

/* Both are known from before; the one has had nothing to ask for. */
static void test_one_that_comes_back_is_lifted(void **state)
{
    struct fair_node *busy, *idle, *other;
    struct fair f;

    (void)state;
    fair_init(&f);
    busy = join(&f, 1, 1, 1000);
    idle = join(&f, 2, 1, 1000);
    other = join(&f, 1, 2, 1000);
    fair_set_ready(busy, true);
    serve(busy, 1000);
    fair_set_ready(idle, true);
    fair_set_ready(other, true);
    assert_int_equal(fair_lead(busy->parent, idle->parent), 0);
    assert_int_equal(fair_lead(busy, other), 0);
    leave(busy);
    leave(idle);
    leave(other);
    fair_dispose(&f);
}

/* What it is served while nobody waits is no debt, also where it was admitted long before. */
static void test_service_while_nobody_waits_is_held_against_nobody(void **state)
{
    struct fair_node *busy, *late, *project;
    struct fair f;

    (void)state;
    fair_init(&f);
    busy = join(&f, 1, 1, 1000);
    fair_set_ready(busy, true);
    fair_choose(busy);
    fair_set_ready(busy, false);
    fair_charge(busy, 1000, 0);
    late = join(&f, 2, 1, 1000);
    fair_set_ready(late, true);
    project = join(&f, 1, 2, 1000);
    fair_set_ready(project, true);
    assert_int_equal(fair_lead(busy->parent, late->parent), 0);
    assert_int_equal(fair_lead(busy, project), 0);
    leave(late);
    leave(project);
    fair_charge(busy, 1000, 0);
    leave(busy);
    assert_null(fair_tenant(&f, 0, 1));
    fair_dispose(&f);
}

static void test_one_that_runs_without_waiting_holds_nobody_back(void **state)
{
    struct fair_node *slow, *busy, *fresh;
    struct fair f;

    (void)state;
    fair_init(&f);
    slow = join(&f, 1, 0, 1000); /* was admitted long ago, and asks for nothing more */
    busy = join(&f, 2, 0, 1000);
    fair_set_ready(busy, true);
    serve(busy, 100000);
    fair_choose(busy);
    fair_set_ready(busy, false);
    fresh = join(&f, 3, 0, 1000);
    fair_set_ready(fresh, true);
    assert_int_equal(fair_lead(fresh->parent, busy->parent), 0);
    leave(fresh);
    fresh = join(&f, 2, 7, 1000); /* and so for projects */
    fair_set_ready(fresh, true);
    assert_int_equal(fair_lead(fresh, busy), 0);
    leave(slow);
    leave(busy);
    leave(fresh);
    fair_dispose(&f);
}

static void test_debts_are_remembered_and_credits_forgotten(void **state)
{
    struct fair_node *debtor, *other;
    struct fair f;

    (void)state;
    fair_init(&f);
    debtor = join(&f, 1, 0, 1000);
    other = join(&f, 2, 0, 1000);
    fair_set_ready(other, true);
    fair_set_ready(debtor, true);
    serve(debtor, 500);
    serve(other, 100);
    leave(debtor);
    assert_non_null(fair_tenant(&f, 0, 1));
    debtor = join(&f, 1, 0, 1000);
    fair_set_ready(debtor, true);
    assert_int_equal(fair_lead(debtor->parent, other->parent), 400 * FAIR_TOKEN);
    serve(other, 1000);
    leave(debtor);
    assert_null(fair_tenant(&f, 0, 1));
    leave(other);
    fair_dispose(&f);
}

static void test_idle_tenants_are_bounded(void **state)
{
    struct fair_node *steady;
    struct fair f;

    (void)state;
    fair_init(&f);
    steady = join(&f, 0, 0, 1000);
    fair_set_ready(steady, true);
    for (uint64_t i = 1; i <= FAIR_IDLE_MAX + 500; i++) {
        struct fair_node *n = join(&f, i, 0, 1000);

        fair_set_ready(n, true);
        fair_charge(n, 100000 + i, 0);
        leave(n);
        assert_true(f.classes[0].n_idle <= FAIR_IDLE_MAX);
    }
    /* Those that owe most are the ones that are known still. */
    assert_null(fair_tenant(&f, 0, 1));
    assert_non_null(fair_tenant(&f, 0, FAIR_IDLE_MAX + 500));
    leave(steady);
    fair_dispose(&f);
}

static void test_projects_share_within_their_tenant(void **state)
{
    struct fair_node *n[3];
    uint64_t served[3] = {0};
    struct fair f;

    (void)state;
    fair_init(&f);
    n[0] = join(&f, 1, 1, 1000);
    n[1] = join(&f, 1, 2, 1000);
    n[2] = join(&f, 2, 1, 1000);
    for (int i = 0; i < 3; i++)
        fair_set_ready(n[i], true);
    for (int i = 0; i < 4000; i++) {
        struct fair_node *next = first_of(n, 3);

        for (int k = 0; k < 3; k++)
            served[k] += next == n[k];
        serve(next, 1);
    }
    assert_in_range(served[0], 998, 1002);
    assert_in_range(served[1], 998, 1002);
    assert_in_range(served[2], 1998, 2002);
    for (int i = 0; i < 3; i++)
        leave(n[i]);
    fair_dispose(&f);
}

static void test_counters_may_wrap(void **state)
{
    struct fair_node *a, *b;
    struct fair f;

    (void)state;
    fair_init(&f);
    a = join(&f, 1, 0, 1000);
    b = join(&f, 2, 0, 1000);
    a->parent->counter = UINT64_MAX - 100;
    b->parent->counter = UINT64_MAX - 50;
    fair_set_ready(a, true);
    fair_set_ready(b, true);
    serve(a, 1);
    assert_true(fair_compare(b, a) < 0);
    leave(a);
    leave(b);
    fair_dispose(&f);
}

static void test_classes_have_counters_of_their_own(void **state)
{
    const struct sequence low = {.tenant = 1, .weight = 1000, .priority = 2};
    struct fair_node *a, *b;
    struct fair f;

    (void)state;
    fair_init(&f);
    a = join(&f, 1, 0, 1000);
    assert_int_equal(fair_join(&f, &low, &b), ST_OK);
    fair_set_ready(a, true);
    fair_set_ready(b, true);
    serve(a, 1000000);
    assert_true(b->parent->counter != a->parent->counter);
    assert_true(fair_tenant(&f, 2, 1) == b->parent);
    leave(a);
    leave(b);
    fair_dispose(&f);
}

/* ---- classes ---- */

static struct fair_node *join_class(struct fair *f, uint32_t class, uint64_t tenant,
                                    uint32_t weight)
{
    const struct sequence q = {.tenant = tenant, .weight = weight, .priority = class};
    struct fair_node *n = NULL;

    assert_int_equal(fair_join(f, &q, &n), ST_OK);
    return n;
}

/* A class has its tenants' weights; of one in two classes each has a half, while it is in both. */
static void test_a_class_has_the_weight_of_its_tenants(void **state)
{
    struct fair_node *a, *b, *both, *again;
    struct fair f;

    (void)state;
    fair_init(&f);
    a = join_class(&f, 0, 1, 1000);
    b = join_class(&f, 2, 2, 3000);
    assert_int_equal(fair_share(&f.classes[0], 4000), 1000);
    assert_int_equal(fair_share(&f.classes[2], 4000), 3000);
    both = join_class(&f, 2, 1, 1000);
    again = join_class(&f, 2, 1, 2000); /* its weight is the newest one */
    assert_int_equal(f.classes[0].weight, 500);
    assert_int_equal(f.classes[2].weight, 3000 + 1000);
    leave(again);
    leave(a);
    assert_int_equal(f.classes[0].weight, 0);
    assert_int_equal(f.classes[2].weight, 3000 + 2000);
    leave(both);
    leave(b);
    assert_int_equal(f.classes[2].weight, 0);
    fair_dispose(&f);
}

static void test_work_counts_in_the_classes_that_it_is_charged_to(void **state)
{
    struct fair_node *n[PRIORITY_CLASSES], *other;
    struct fair f;

    (void)state;
    fair_init(&f);
    for (uint32_t i = 0; i < PRIORITY_CLASSES; i++)
        n[i] = join_class(&f, i, 1, 1000);
    other = join_class(&f, 1, 2, 1000);
    fair_charge(n[2], 10, 1u << 1 | 1u << 2);
    assert_int_equal(n[0]->parent->counter, 0);
    assert_int_equal(n[1]->parent->counter, 10 * FAIR_TOKEN);
    assert_int_equal(n[2]->parent->counter, 10 * FAIR_TOKEN);
    assert_int_equal(other->parent->counter, 0);
    assert_int_equal(f.classes[0].counter + f.classes[1].counter, 0);
    assert_true(f.classes[2].counter > 0);
    for (uint32_t i = 0; i < PRIORITY_CLASSES; i++)
        leave(n[i]);
    leave(other);
    fair_dispose(&f);
}

/* ---- rows thrown away ---- */

static void test_rows_thrown_away_are_paid_with_twice_as_many_new_ones(void **state)
{
    struct fair_node *n;
    struct fair f;

    (void)state;
    fair_init(&f);
    n = join(&f, 1, 0, 1000);
    fair_earn(n, 100);
    fair_throw_away(n, 150);
    assert_in_range(fair_owed_rows(n), 150 - 50 - 7, 100);
    fair_earn(n, 160);
    assert_in_range(fair_owed_rows(n), 1, 15);
    fair_earn(n, 30);
    assert_int_equal(fair_owed_rows(n), 0);
    fair_leave(n);
    fair_dispose(&f);
}

static void test_an_eighth_of_all_work_pays_for_who_does_not(void **state)
{
    struct fair_node *owes, *works;
    struct fair f;

    (void)state;
    fair_init(&f);
    owes = join(&f, 1, 0, 1000);
    works = join(&f, 2, 0, 1000);
    fair_throw_away(owes, 100);
    fair_earn(works, 1590);
    assert_int_equal(fair_owed_rows(owes), 1);
    fair_earn(works, 10);
    assert_int_equal(fair_owed_rows(owes), 0);
    fair_throw_away(owes, 100); /* takes what was there: it can't be had twice */
    assert_int_equal(fair_owed_rows(owes), 100);
    fair_leave(owes);
    fair_leave(works);
    fair_dispose(&f);
}

static void test_who_owes_rows_is_not_forgotten_and_saves_no_more_than_the_bound(void **state)
{
    struct fair_node *n;
    struct fair f;

    (void)state;
    fair_init(&f);
    n = join(&f, 1, 0, 1000);
    for (int i = 0; i < 10; i++)
        fair_earn(n, FAIR_SAVED_MAX);
    fair_throw_away(n, FAIR_SAVED_MAX);
    assert_int_equal(fair_owed_rows(n), 0); /* by what the whole class did, once */
    fair_throw_away(n, FAIR_SAVED_MAX);
    assert_int_equal(fair_owed_rows(n), FAIR_SAVED_MAX);
    fair_leave(n);
    n = join(&f, 1, 0, 1000);
    assert_int_equal(fair_owed_rows(n), FAIR_SAVED_MAX);
    fair_leave(n);
    fair_dispose(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_service_is_divided_by_weight),
        cmocka_unit_test(test_idle_time_is_not_banked),
        cmocka_unit_test(test_one_that_runs_without_waiting_holds_nobody_back),
        cmocka_unit_test(test_debts_are_remembered_and_credits_forgotten),
        cmocka_unit_test(test_idle_tenants_are_bounded),
        cmocka_unit_test(test_projects_share_within_their_tenant),
        cmocka_unit_test(test_counters_may_wrap),
        cmocka_unit_test(test_classes_have_counters_of_their_own),
        cmocka_unit_test(test_one_that_comes_back_is_lifted),
        cmocka_unit_test(test_service_while_nobody_waits_is_held_against_nobody),
        cmocka_unit_test(test_a_class_has_the_weight_of_its_tenants),
        cmocka_unit_test(test_work_counts_in_the_classes_that_it_is_charged_to),
        cmocka_unit_test(test_rows_thrown_away_are_paid_with_twice_as_many_new_ones),
        cmocka_unit_test(test_an_eighth_of_all_work_pays_for_who_does_not),
        cmocka_unit_test(test_who_owes_rows_is_not_forgotten_and_saves_no_more_than_the_bound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
