/* The cache of keys: bounds, and answers that a change overtook. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "auth/directory.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static struct directory d;

static const char *id_of(int i)
{
    static char id[KEY_PUBLIC_ID_CHARS + 1];

    snprintf(id, sizeof id, "id%08d", i);
    return id;
}

static struct key_record record_of(int64_t tenant_id)
{
    return (struct key_record){.principal = {.tenant_id = tenant_id}};
}

static void load(int i, int64_t tenant_id)
{
    struct directory_entry *e = directory_start(&d, id_of(i));
    struct key_record r = record_of(tenant_id);

    assert_non_null(e);
    directory_finish(&d, e, tenant_id != 0 ? &r : NULL, 0);
}

static int setup(void **state)
{
    (void)state;
    return directory_init(&d, 100, 42) == ST_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    directory_dispose(&d);
    return 0;
}

static void test_the_least_recently_used_key_goes_first(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++)
        load(i, 1);
    assert_non_null(directory_find(&d, id_of(0)));
    load(100, 1);
    assert_non_null(directory_find(&d, id_of(0)));
    assert_null(directory_find(&d, id_of(1)));
    assert_int_equal(d.lists[ENTRY_PRESENT].n, 100);
}

static void test_made_up_ids_push_out_no_key(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++)
        load(i, 1);
    for (int i = 1000; i < 20000; i++)
        load(i, 0);
    assert_int_equal(d.lists[ENTRY_PRESENT].n, 100);
    assert_true(d.lists[ENTRY_ABSENT].n <= 100 / 4 + 1);
}

static void test_lookups_are_bounded(void **state)
{
    int n = 0;

    (void)state;
    while (n < 10000 && directory_start(&d, id_of(n)) != NULL)
        n++;
    assert_int_equal(n, 256);
}

static void test_a_change_overtakes_a_lookup(void **state)
{
    struct directory_entry *e = directory_start(&d, id_of(1));

    (void)state;
    directory_forget_key(&d, id_of(1), 7);
    assert_false(directory_is_current(&d, e, 6)); /* from before the change: ask again */
    assert_true(directory_is_current(&d, e, 7));
    directory_forget_tenant(&d, 99, 8); /* any tenant: whose key it is isn't known yet */
    assert_false(directory_is_current(&d, e, 7));
    assert_true(directory_is_current(&d, e, 8));
}

static void test_a_new_start_overtakes_every_lookup(void **state)
{
    struct directory_entry *e = directory_start(&d, id_of(1));

    (void)state;
    directory_forget_key(&d, id_of(1), 1000);
    directory_forget_all(&d);
    assert_false(directory_is_current(&d, e, 5000));
    /* asked after it: positions of the new log may be lower */
    assert_true(directory_is_current(&d, e, 3));
}

static void test_forgetting_a_tenant_leaves_the_others(void **state)
{
    (void)state;
    load(1, 1);
    load(2, 2);
    load(3, 1);
    directory_forget_tenant(&d, 1, 5);
    assert_null(directory_find(&d, id_of(1)));
    assert_non_null(directory_find(&d, id_of(2)));
    assert_null(directory_find(&d, id_of(3)));
}

static void test_a_key_that_was_absent_is_forgotten_when_it_appears(void **state)
{
    (void)state;
    load(1, 0);
    directory_forget_key(&d, id_of(1), 5);
    assert_null(directory_find(&d, id_of(1)));
}

int main(void)
{
#define DIRECTORY_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        DIRECTORY_TEST(test_the_least_recently_used_key_goes_first),
        DIRECTORY_TEST(test_made_up_ids_push_out_no_key),
        DIRECTORY_TEST(test_lookups_are_bounded),
        DIRECTORY_TEST(test_a_change_overtakes_a_lookup),
        DIRECTORY_TEST(test_a_new_start_overtakes_every_lookup),
        DIRECTORY_TEST(test_forgetting_a_tenant_leaves_the_others),
        DIRECTORY_TEST(test_a_key_that_was_absent_is_forgotten_when_it_appears),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
