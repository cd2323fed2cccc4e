#include "engine/core/history.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const struct history_entry *entry_of(const struct history *h, int32_t id)
{
    for (uint32_t i = 0; i < h->n; i++)
        if (h->entries[i].id == id)
            return &h->entries[i];
    return NULL;
}

static void test_counts_are_those_of_a_plain_table(void **state)
{
    enum { VOCAB = 500, TOKENS = 4000 };
    uint32_t outputs[VOCAB] = {0}, distinct = 0;
    bool in_prompt[VOCAB] = {false};
    struct history h;

    (void)state;
    assert_int_equal(history_init(&h, VOCAB, 0x9e3779b97f4a7c15u), ST_OK);
    for (uint32_t i = 0; i < TOKENS; i++) {
        int32_t id = (int32_t)(i * i * 31u % VOCAB);

        if (i < TOKENS / 8) {
            in_prompt[id] = true;
            assert_true(history_add_prompt(&h, id));
        } else {
            outputs[id]++;
            assert_true(history_add_output(&h, id));
        }
    }
    for (int32_t id = 0; id < VOCAB; id++) {
        const struct history_entry *e = entry_of(&h, id);

        assert_int_equal(e != NULL, in_prompt[id] || outputs[id] > 0);
        if (e == NULL)
            continue;
        distinct++;
        assert_int_equal(e->in_prompt, in_prompt[id]);
        assert_int_equal(e->n_output, outputs[id]);
    }
    assert_int_equal(h.n, distinct); /* each id once */
    history_dispose(&h);
}

/* With this key every id of the vocabulary starts its search at the table's first place. */
static void test_ids_that_collide_stay_apart(void **state)
{
    struct history h;

    (void)state;
    assert_int_equal(history_init(&h, 300, 1), ST_OK);
    for (int round = 0; round < 2; round++)
        for (int32_t id = 0; id < 300; id++)
            assert_true(history_add_output(&h, id));
    assert_int_equal(h.n, 300);
    for (int32_t id = 0; id < 300; id++)
        assert_int_equal(entry_of(&h, id)->n_output, 2);
    history_dispose(&h);
}

static void test_a_full_history_still_counts_what_it_has(void **state)
{
    struct history h;

    (void)state;
    assert_int_equal(history_init(&h, 2, 12345), ST_OK);
    assert_true(history_add_prompt(&h, 5));
    assert_true(history_add_output(&h, 6));
    assert_false(history_add_output(&h, 7));
    assert_false(history_add_prompt(&h, 8));
    assert_true(history_add_output(&h, 5));
    assert_int_equal(h.n, 2);
    assert_int_equal(entry_of(&h, 5)->n_output, 1);
    assert_int_equal(entry_of(&h, 5)->in_prompt, 1);
    history_dispose(&h);
}

static void test_clearing_forgets_all(void **state)
{
    struct history h;

    (void)state;
    assert_int_equal(history_init(&h, 4, 99), ST_OK);
    for (int32_t id = 0; id < 4; id++)
        assert_true(history_add_output(&h, id));
    history_clear(&h);
    assert_int_equal(h.n, 0);
    assert_true(history_add_prompt(&h, 3));
    assert_int_equal(entry_of(&h, 3)->n_output, 0);
    for (int32_t id = 10; id < 13; id++)
        assert_true(history_add_output(&h, id));
    assert_null(entry_of(&h, 0));
    history_dispose(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_are_those_of_a_plain_table),
        cmocka_unit_test(test_ids_that_collide_stay_apart),
        cmocka_unit_test(test_a_full_history_still_counts_what_it_has),
        cmocka_unit_test(test_clearing_forgets_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
