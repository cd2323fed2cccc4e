/* Redis's keys and the scripts' arguments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "quota/keys.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static void test_every_key_begins_with_the_tenant_s_tag_and_the_layout(void **state)
{
    const struct quota_ask ask = {.tenant_id = INT64_MAX, .project_id = 2, .key_id = 3};
    struct quota_words w;

    (void)state;
    quota_words_init(&w, &ask);
    for (int i = 0; i < QUOTA_KEYS; i++) {
        assert_int_equal(strncmp(w.keys[i].data, "{t9223372036854775807}:v1:", 26), 0);
        assert_int_equal(strlen(w.keys[i].data), w.keys[i].len);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(w.keys[i].data, w.keys[k].data);
    }
}

static void test_limits_come_in_order_and_within_what_is_exact(void **state)
{
    const struct quota_ask ask = {
        .tenant = {1, 2, 3}, .project = {0, -5, 6}, .key = {7, INT64_MAX, 9}};
    static const char *const expected[] = {"1", "2", "3", "0", "0", "6", "7", "100000000", "9"};
    struct quota_words w;

    (void)state;
    quota_words_init(&w, &ask);
    quota_words_add_limits(&w, &ask);
    assert_int_equal(w.n_args, 9);
    for (size_t i = 0; i < w.n_args; i++)
        assert_string_equal(w.args[i].data, expected[i]);
}

static void test_the_longest_words_fit(void **state)
{
    const struct quota_limits most = {INT64_MAX, INT64_MAX, INT64_MAX};
    const struct quota_ask ask = {.tenant_id = INT64_MIN,
                                  .project_id = INT64_MIN,
                                  .key_id = INT64_MIN,
                                  .tenant = most,
                                  .project = most,
                                  .key = most};
    struct quota_words w;

    (void)state;
    quota_words_init(&w, &ask);
    quota_words_add_id(&w, &ask.request);
    for (int i = 0; i < 3; i++)
        quota_words_add_int(&w, INT64_MIN);
    quota_words_add_limits(&w, &ask);
    assert_int_equal(w.n_args, 13);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_key_begins_with_the_tenant_s_tag_and_the_layout),
        cmocka_unit_test(test_limits_come_in_order_and_within_what_is_exact),
        cmocka_unit_test(test_the_longest_words_fit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
