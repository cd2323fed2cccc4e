#include "engine/core/kv_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static void test_the_default_is_four_contexts(void **state)
{
    uint32_t n;

    (void)state;
    assert_int_equal(
        kv_plan_pages(&(struct kv_request){.context_tokens = 8190, .page_bytes = 1000}, &n, NULL),
        ST_OK);
    assert_int_equal(n, 4 * 512);
}

static void test_the_default_has_a_bound_but_holds_one_context(void **state)
{
    struct kv_request r = {.context_tokens = 1 << 20, .page_bytes = 1 << 12};
    uint32_t n;

    (void)state;
    assert_int_equal(kv_plan_pages(&r, &n, NULL), ST_OK);
    assert_int_equal(n, KV_DEFAULT_BYTES / r.page_bytes);
    r.page_bytes = 1 << 20;
    assert_int_equal(kv_plan_pages(&r, &n, NULL), ST_OK);
    assert_int_equal(n, 1 << 16);
}

static void test_less_than_a_context_is_refused_with_the_arithmetic(void **state)
{
    struct kv_request r = {.context_tokens = 8192, .page_bytes = 1 << 20, .kv_bytes = 64 << 20};
    struct reason why;
    uint32_t n;

    (void)state;
    assert_int_equal(kv_plan_pages(&r, &n, &why), ST_INVALID);
    assert_non_null(strstr(why.text, "512 KV pages of 1048576 bytes (512 MiB)"));
    assert_non_null(strstr(why.text, "64 MiB hold only 64"));
}

static void test_more_than_there_is_is_refused(void **state)
{
    struct kv_request r = {.context_tokens = 512,
                           .page_bytes = 1 << 20,
                           .kv_bytes = (size_t)64 << 20,
                           .other_bytes = (size_t)10 << 20,
                           .room.available_bytes = (size_t)70 << 20};
    struct reason why;
    uint32_t n;

    (void)state;
    assert_int_equal(kv_plan_pages(&r, &n, &why), ST_NO_MEMORY);
    assert_non_null(strstr(why.text, "only 70 MiB are available"));
    r.room.available_bytes = (size_t)80 << 20;
    assert_int_equal(kv_plan_pages(&r, &n, &why), ST_OK);
    assert_int_equal(n, 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_default_is_four_contexts),
        cmocka_unit_test(test_the_default_has_a_bound_but_holds_one_context),
        cmocka_unit_test(test_less_than_a_context_is_refused_with_the_arithmetic),
        cmocka_unit_test(test_more_than_there_is_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
