/* What a row may want of the device, and what it may be told: scores, log-probabilities, masks. */
#include "tests/unit/engine/cpu/sampling_rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static double exact_logprob(const float *logits, int32_t id)
{
    double sum = 0;

    for (uint32_t i = 0; i < TINY_VOCAB; i++)
        sum += exp((double)logits[i] - (double)logits[id]);
    return -log(sum);
}

/* The tops against the raw logits: right values, in order, and none outside is larger. */
static void check_tops(const float *logits, const struct token_logprob *tops, uint32_t n)
{
    bool is_top[TINY_VOCAB] = {false};

    for (uint32_t i = 0; i < n; i++) {
        assert_true(fabs((double)tops[i].logprob - exact_logprob(logits, tops[i].id)) < 1e-5);
        if (i > 0)
            assert_true(logits[tops[i - 1].id] >= logits[tops[i].id]);
        is_top[tops[i].id] = true;
    }
    for (uint32_t i = 0; i < TINY_VOCAB; i++)
        assert_true(is_top[i] || n == 0 || logits[i] <= logits[tops[n - 1].id]);
}

static void test_score_rows_tell_of_their_targets(void **state)
{
    struct sampling s = {.temperature = 1, .top_p = 1, .seed = 1, .top_logprobs = 4};
    struct rig r;

    (void)state;
    rig_open(&r);
    set_slot(&r, 0, &s, prompt, N_PROMPT, N_PROMPT);
    begin(&r);
    add(&r, 0, prompt, 0, N_PROMPT);
    for (uint32_t i = 0; i + 1 < N_PROMPT; i++) {
        r.rows[i].want = ROW_SCORE;
        r.rows[i].target = prompt[i + 1];
    }
    r.rows[2].want = ROW_NOTHING;
    run(&r);
    assert_int_equal(r.output.n, N_PROMPT - 1);
    for (uint32_t i = 0; i + 1 < r.output.n; i++) {
        const struct step_result *q = &r.results[i];
        const float *logits = r.ops->logits(r.device, q->row);

        assert_int_equal(q->row, i < 2 ? i : i + 1);
        assert_int_equal(q->status, ST_OK);
        assert_int_equal(q->id, prompt[q->row + 1]);
        assert_true(fabs((double)q->logprob - exact_logprob(logits, q->id)) < 1e-5);
        assert_int_equal(q->n_tops, 4);
        check_tops(logits, r.tops + i * TOP_LOGPROBS_MAX, 4);
    }
    assert_int_equal(r.results[r.output.n - 1].n_tops, 0); /* a sampled one wasn't asked about */
    rig_close(&r);
}

/* What is reported is about the raw logits, whatever bias and penalties did to the choice. */
static void test_logprobs_are_raw_and_change_no_id(void **state)
{
    const struct logit_bias bias[] = {{.id = 30, .bias = 2.5f}, {.id = 99, .bias = -100}};
    struct sampling s = warm;
    int32_t without[TOKENS], with[TOKENS];
    struct rig r;

    (void)state;
    rig_open(&r);
    s.bias = bias;
    s.n_bias = 2;
    generate(&r, 0, &s, without);
    s.want_logprobs = true;
    s.top_logprobs = TOP_LOGPROBS_MAX;
    memcpy(with, prompt, sizeof prompt);
    set_slot(&r, 1, &s, with, N_PROMPT, N_PROMPT);
    for (uint32_t n_out = 1; n_out <= N_OUT; n_out++) {
        const float *logits;

        if (n_out > 1)
            set_slot(&r, 1, &s, with, N_PROMPT, N_PROMPT + n_out - 1);
        go_on(&r, 1, with, N_PROMPT + n_out - 1, n_out);
        logits = r.ops->logits(r.device, r.results[0].row);
        assert_true(fabs((double)r.results[0].logprob - exact_logprob(logits, r.results[0].id)) <
                    1e-5);
        assert_int_equal(r.results[0].n_tops, TOP_LOGPROBS_MAX);
        check_tops(logits, r.tops, TOP_LOGPROBS_MAX);
    }
    assert_memory_equal(with, without, sizeof with);
    rig_close(&r);
}

static void test_masked_rows_sample_what_is_allowed(void **state)
{
    uint32_t some[WORDS] = {0}, none[WORDS] = {0};
    struct row_mask masks[2] = {{.row = 0, .bits = some}, {.row = 1, .bits = none}};
    const struct sampling hot = {.temperature = 2, .top_p = 1, .seed = 8};
    struct rig r;

    (void)state;
    rig_open(&r);
    for (uint32_t s = 0; s < MAX_SEQ; s++)
        set_slot(&r, s, &hot, prompt, 1, 1);
    r.sequences[0].masked = r.sequences[1].masked = true;
    some[200 / 32] |= 1u << 200 % 32;
    some[TINY_VOCAB / 32 - 1] |= 1u << 31; /* the vocabulary's last id */
    for (uint32_t i = 0; i < 50; i++) {
        uint64_t ticket;

        r.sequences[0].output_index = i;
        begin(&r);
        for (uint32_t s = 0; s < MAX_SEQ; s++)
            add(&r, s, prompt, 0, 1);
        ticket = submit(&r);
        assert_int_equal(r.ops->constrain(r.device, ticket, masks, 2), ST_OK);
        assert_int_equal(r.ops->complete(r.device, ticket, &r.output), ST_OK);
        assert_int_equal(r.results[0].status, ST_OK);
        assert_true(r.results[0].id == 200 || r.results[0].id == TINY_VOCAB - 1);
        assert_int_equal(r.results[1].status, ST_NO_CHOICE); /* nothing is allowed */
        assert_int_equal(r.results[2].status, ST_OK);
    }
    rig_close(&r);
}

static void test_a_step_without_its_masks_fails_alone(void **state)
{
    const uint32_t all[WORDS] = {[0 ... WORDS - 1] = UINT32_MAX};
    int32_t want;
    uint64_t ticket;
    struct rig r;

    (void)state;
    rig_open(&r);
    set_slot(&r, 0, &greedy, prompt, 1, 1);
    begin(&r);
    add(&r, 0, prompt, 0, N_PROMPT);
    run(&r);
    want = r.results[0].id;
    r.sequences[0].masked = true;
    ticket = submit(&r);
    assert_int_equal(r.ops->complete(r.device, ticket, &r.output), ST_INVALID);
    ticket = submit(&r); /* the mask of another ticket is none of this one's */
    assert_int_equal(r.ops->constrain(r.device, ticket, &(struct row_mask){N_PROMPT - 1, all}, 1),
                     ST_OK);
    assert_int_equal(r.ops->complete(r.device, ticket, &r.output), ST_OK);
    assert_int_equal(r.results[0].id, want);
    for (int i = 0; i < 2; i++) {
        ticket = submit(&r);
        assert_int_equal(r.ops->complete(r.device, ticket, &r.output), ST_INVALID);
    }
    rig_close(&r);
}

static void test_masks_that_do_not_fit_are_refused(void **state)
{
    const uint32_t all[WORDS] = {[0 ... WORDS - 1] = UINT32_MAX};
    struct row_mask masks[2] = {{.row = N_PROMPT - 1, .bits = all}, {.row = 0, .bits = all}};
    uint64_t ticket;
    struct rig r;

    (void)state;
    rig_open(&r);
    set_slot(&r, 0, &greedy, prompt, 1, 1);
    r.sequences[0].masked = true;
    begin(&r);
    add(&r, 0, prompt, 0, N_PROMPT);
    add(&r, 1, prompt, 0, 1);
    ticket = submit(&r);
    assert_int_equal(r.ops->constrain(r.device, ticket + 1, masks, 1), ST_INVALID);
    assert_int_equal(r.ops->constrain(r.device, ticket - 1, masks, 1), ST_INVALID);
    for (int i = 0; i < 4; i++) { /* a row that wants nothing, none, one not masked, one twice */
        masks[1].row = (uint32_t[]){0, 5000, N_PROMPT, N_PROMPT - 1}[i];
        assert_int_equal(r.ops->constrain(r.device, ticket, masks, 2), ST_INVALID);
    }
    assert_int_equal(r.ops->constrain(r.device, ticket, masks, 1), ST_OK);
    assert_int_equal(r.ops->constrain(r.device, ticket, masks, 1), ST_INVALID);
    assert_int_equal(r.ops->complete(r.device, ticket, &r.output), ST_OK);
    rig_close(&r);
}

/* A token whose embedding is NaN: its rows fail whatever they want, their neighbours don't. */
static void test_damaged_rows_fail_alone_whatever_they_want(void **state)
{
    const int32_t bad = 250;
    int32_t want[TOKENS], got[TOKENS];
    const uint32_t one[WORDS] = {[1] = 1};
    const struct row_mask mask = {.row = 1, .bits = one};
    struct sampling s = warm;
    const struct tensor *t;
    uint64_t ticket;
    struct rig r;

    (void)state;
    rig_open(&r);
    generate(&r, 0, &warm, want);
    t = r.model->token_embd;
    memset((char *)r.file.data + ((const char *)t->data - r.file.data) +
               (size_t)bad * (t->bytes / t->dims[1]),
           0xff, t->bytes / t->dims[1]);
    s.want_logprobs = true;
    s.top_logprobs = 5;
    set_slot(&r, 0, &warm, prompt, N_PROMPT, N_PROMPT);
    set_slot(&r, 1, &s, &bad, 1, 1);
    set_slot(&r, 2, &s, &bad, 1, 1);
    r.sequences[1].masked = true;
    begin(&r);
    add(&r, 2, &bad, 0, 1);
    add(&r, 1, &bad, 0, 1);
    add(&r, 0, prompt, 0, N_PROMPT);
    r.rows[0].want = ROW_SCORE;
    r.sequences[0].output_index = 0;
    ticket = submit(&r);
    assert_int_equal(r.ops->constrain(r.device, ticket, &mask, 1), ST_OK);
    assert_int_equal(r.ops->complete(r.device, ticket, &r.output), ST_OK);
    assert_int_equal(r.results[0].status, ST_INTERNAL);
    assert_int_equal(r.results[1].status, ST_INTERNAL);
    assert_int_equal(r.results[2].status, ST_OK);
    assert_int_equal(r.results[2].id, want[N_PROMPT]);
    r.sequences[1].masked = false;
    generate(&r, 1, &warm, got); /* its slot serves the next one */
    assert_memory_equal(got, want, sizeof got);
    rig_close(&r);
}

static void test_steps_that_do_not_fit_are_refused(void **state)
{
    uint64_t ticket;
    struct rig r;

    (void)state;
    rig_open(&r);
#define REFUSED(status, change)                                                                    \
    begin(&r);                                                                                     \
    add(&r, 0, prompt, 0, 2);                                                                      \
    change;                                                                                        \
    assert_int_equal(r.ops->submit(r.device, &r.step, &ticket), status)
    REFUSED(ST_INVALID, r.rows[0].want = ROW_SCORE + 1);
    REFUSED(ST_INVALID, r.rows[0].want = ROW_SCORE; r.rows[0].target = -1);
    REFUSED(ST_INVALID, r.rows[0].want = ROW_SCORE; r.rows[0].target = TINY_VOCAB);
    REFUSED(ST_INVALID, r.rows[0].want = ROW_SAMPLE; r.sequences[0].masked = true);
    r.sequences[0].masked = false;
    REFUSED(ST_UNSUPPORTED, r.sequences[1].adapter = 1);
#undef REFUSED
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_score_rows_tell_of_their_targets),
        cmocka_unit_test(test_logprobs_are_raw_and_change_no_id),
        cmocka_unit_test(test_masked_rows_sample_what_is_allowed),
        cmocka_unit_test(test_a_step_without_its_masks_fails_alone),
        cmocka_unit_test(test_masks_that_do_not_fit_are_refused),
        cmocka_unit_test(test_damaged_rows_fail_alone_whatever_they_want),
        cmocka_unit_test(test_steps_that_do_not_fit_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
