/* What a slot keeps of its sequence. The mathematics has its own tests (engine/core); here greedy
 * ids are held against adjustments worked out from the tokens that the host knows. */
#include "tests/unit/engine/cpu/sampling_rig.h"

#include <malloc.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The largest of the logits after `penalized`, with the tokens that the host knows. */
static int32_t expected_id(const float *logits, const int32_t *tokens, uint32_t n)
{
    double best = -INFINITY;
    int32_t id = -1;

    for (int32_t t = 0; t < TINY_VOCAB; t++) {
        double x = (double)logits[t];
        uint32_t seen = 0, said = 0;

        for (uint32_t i = 0; i < n; i++) {
            seen += tokens[i] == t;
            said += tokens[i] == t && i >= N_PROMPT;
        }
        if (seen > 0)
            x = x > 0 ? x / 1.2 : x * 1.2;
        x -= 0.4 * said + (said > 0 ? 0.3 : 0);
        if (x > best) {
            best = x;
            id = t;
        }
    }
    return id;
}

static void test_the_device_remembers_what_it_sampled(void **state)
{
    int32_t tokens[TOKENS], plain[TOKENS];
    struct rig r;

    (void)state;
    rig_open(&r);
    generate(&r, 0, &greedy, plain);
    memcpy(tokens, prompt, sizeof prompt);
    set_slot(&r, 1, &penalized, tokens, N_PROMPT, N_PROMPT);
    for (uint32_t n = N_PROMPT; n < TOKENS; n++) {
        begin(&r);
        if (n == N_PROMPT)
            add(&r, 1, tokens, 0, n);
        else
            add(&r, 1, tokens + n - 1, n - 1, 1);
        r.sequences[1].output_index = n - N_PROMPT;
        run(&r);
        tokens[n] = r.results[0].id;
        assert_int_equal(tokens[n],
                         expected_id(r.ops->logits(r.device, r.results[0].row), tokens, n));
    }
    assert_memory_not_equal(tokens, plain, sizeof tokens);
    rig_close(&r);
}

/* The host learns of ids one step late; penalties must not. */
static void test_steps_in_flight_see_the_tokens_before_them(void **state)
{
    int32_t want[TOKENS], got[TOKENS];
    struct step_sequence sequences[2][MAX_SEQ];
    struct step_row rows[2];
    struct device_step steps[2];
    uint64_t tickets[2];
    struct rig r;

    (void)state;
    rig_open(&r);
    generate(&r, 0, &warm, want);
    memcpy(got, prompt, sizeof prompt);
    set_slot(&r, 1, &warm, prompt, N_PROMPT, N_PROMPT);
    begin(&r);
    add(&r, 1, prompt, 0, N_PROMPT);
    tickets[0] = submit(&r);
    for (uint32_t n = 1; n < N_OUT; n++) {
        struct device_step *step = &steps[n % 2];

        memcpy(sequences[n % 2], r.sequences, sizeof r.sequences);
        sequences[n % 2][1].output_index = n;
        rows[n % 2] = (struct step_row){.id = n == 1 ? (int32_t)N_PROMPT - 1 : 0,
                                        .ticket = tickets[(n + 1) % 2],
                                        .position = N_PROMPT + n - 1,
                                        .sequence = 1,
                                        .want = ROW_SAMPLE};
        *step = r.step;
        step->n_rows = 1;
        step->rows = &rows[n % 2];
        step->sequences = sequences[n % 2];
        assert_int_equal(r.ops->submit(r.device, step, &tickets[n % 2]), ST_OK);
        assert_int_equal(r.ops->complete(r.device, tickets[(n + 1) % 2], &r.output), ST_OK);
        got[N_PROMPT + n - 1] = r.results[0].id;
    }
    assert_memory_equal(got, want, (TOKENS - 1) * sizeof got[0]);
    rig_close(&r);
}

static void test_preempted_output_stays_output(void **state)
{
    int32_t want[TOKENS], got[TOKENS];
    struct rig r;

    (void)state;
    rig_open(&r);
    generate(&r, 0, &warm, want);
    for (uint32_t had = 0; had < N_OUT; had += 13) {
        memcpy(got, want, (N_PROMPT + had) * sizeof got[0]);
        set_slot(&r, 1, &warm, got, N_PROMPT, N_PROMPT + had);
        go_on(&r, 1, got, N_PROMPT + had, N_OUT);
        assert_memory_equal(got, want, sizeof want);
    }
    /* Taken for a prompt, the output would be free of two of the penalties. */
    set_slot(&r, 2, &warm, want, N_PROMPT + 26, N_PROMPT + 26);
    go_on(&r, 2, got, N_PROMPT + 26, N_OUT);
    assert_memory_not_equal(got, want, sizeof want);
    rig_close(&r);
}

static void test_a_slot_keeps_nothing_of_its_last_sequence(void **state)
{
    const struct logit_bias bias[] = {{.id = 30, .bias = 100}};
    int32_t ends[TINY_VOCAB], fresh[3][TOKENS], got[TOKENS];
    struct sampling loaded = warm;
    struct rig r;

    (void)state;
    for (int32_t i = 0; i < TINY_VOCAB; i++)
        ends[i] = i;
    rig_open(&r);
    generate(&r, 0, &greedy, fresh[0]);
    generate(&r, 1, &penalized, fresh[1]);
    generate(&r, 2, &warm, fresh[2]);
    loaded.bias = bias;
    loaded.n_bias = 1;
    loaded.min_tokens = 5;
    loaded.end_ids = ends;
    loaded.n_end_ids = 30;
    loaded.want_logprobs = true;
    generate(&r, 0, &loaded, got);
    generate(&r, 0, &greedy, got);
    assert_memory_equal(got, fresh[0], sizeof got);
    assert_int_equal(r.results[0].n_tops, 0);
    generate(&r, 0, &loaded, got);
    generate(&r, 0, &penalized, got);
    assert_memory_equal(got, fresh[1], sizeof got);
    generate(&r, 0, &warm, got);
    assert_memory_equal(got, fresh[2], sizeof got);
    rig_close(&r);
}

static void test_end_ids_are_held_back(void **state)
{
    struct sampling s = {.temperature = 0, .top_p = 1, .min_tokens = 4, .n_end_ids = 3};
    int32_t ends[3] = {-5, TINY_VOCAB + 7, 0}, tokens[TOKENS];
    struct rig r;

    (void)state;
    rig_open(&r);
    generate(&r, 0, &greedy, tokens);
    ends[2] = tokens[N_PROMPT]; /* what it would begin with */
    s.end_ids = ends;
    generate(&r, 0, &s, tokens);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_not_equal(tokens[N_PROMPT + i], ends[2]);
    rig_close(&r);
}

/* More distinct tokens than a context holds: no sequence has them. The row fails, and no memory
 * past the history is touched. */
static void test_a_slot_that_is_never_set_anew_fails_in_the_end(void **state)
{
    struct sampling s = warm;
    int32_t ids[SEQ_TOKENS];
    uint32_t n_ok = 0;
    struct rig r;

    (void)state;
    for (uint32_t i = 0; i < SEQ_TOKENS; i++)
        ids[i] = (int32_t)i;
    s.top_p = 1;
    rig_open(&r);
    set_slot(&r, 0, &s, ids, SEQ_TOKENS, SEQ_TOKENS);
    begin(&r);
    add(&r, 0, ids, 0, 1);
    do {
        r.sequences[0].output_index = n_ok++;
        run(&r);
    } while (r.results[0].status == ST_OK && n_ok < 1000);
    assert_int_equal(r.results[0].status, ST_INTERNAL);
    set_slot(&r, 0, &s, ids, 1, 1);
    run(&r);
    assert_int_equal(r.results[0].status, ST_OK);
    rig_close(&r);
}

static void test_the_plan_counts_what_slots_and_threads_take(void **state)
{
    struct device_plan plan, more;
    struct device_config cfg;
    struct rig r;

    (void)state;
    rig_open(&r);
    cfg = (struct device_config){.model = r.model,
                                 .isa = "auto",
                                 .n_threads = 2,
                                 .max_rows = MAX_ROWS,
                                 .max_sequences = MAX_SEQ,
                                 .max_context = SEQ_TOKENS,
                                 .n_pages = MAX_SEQ * SEQ_PAGES};
    assert_int_equal(cpu_device_ops.plan(&cfg, &plan, NULL), ST_OK);
    cfg.max_sequences += 10;
    assert_int_equal(cpu_device_ops.plan(&cfg, &more, NULL), ST_OK);
    /* A bias has an id and a float; a history an id and a count of each distinct token. */
    assert_true(more.scratch_bytes >= plan.scratch_bytes + 10 * 8 * (LOGIT_BIAS_MAX + SEQ_TOKENS));
    cfg.max_sequences -= 10;
    cfg.n_threads++;
    assert_int_equal(cpu_device_ops.plan(&cfg, &more, NULL), ST_OK);
    assert_true(more.scratch_bytes >= plan.scratch_bytes + 4 * 4 * TINY_VOCAB);
    rig_close(&r);
}

static size_t heap_bytes(void)
{
    struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

static void test_taking_a_slot_allocates_nothing(void **state)
{
    struct logit_bias bias[LOGIT_BIAS_MAX];
    int32_t ends[STOP_IDS_MAX] = {0}, many[SEQ_TOKENS] = {0};
    struct sampling s = warm;
    struct rig r;
    size_t before;

    (void)state;
    for (int32_t i = 0; i < LOGIT_BIAS_MAX; i++)
        bias[i] = (struct logit_bias){.id = i % TINY_VOCAB};
    s.bias = bias;
    s.n_bias = LOGIT_BIAS_MAX;
    s.end_ids = ends;
    s.n_end_ids = STOP_IDS_MAX;
    rig_open(&r);
    before = heap_bytes();
    for (uint32_t slot = 0; slot < MAX_SEQ; slot++)
        set_slot(&r, slot, &s, many, SEQ_TOKENS, SEQ_TOKENS);
    assert_int_equal(heap_bytes(), before);
    rig_close(&r);
}

/* min_tokens holds back every id there is. */
static void test_a_row_without_an_allowed_token_is_not_a_damaged_one(void **state)
{
    struct sampling s = {.temperature = 0, .top_p = 1, .min_tokens = 4, .n_end_ids = TINY_VOCAB};
    int32_t all[TINY_VOCAB];
    struct rig r;

    (void)state;
    for (int32_t id = 0; id < TINY_VOCAB; id++)
        all[id] = id;
    s.end_ids = all;
    rig_open(&r);
    set_slot(&r, 0, &greedy, prompt, N_PROMPT, N_PROMPT);
    set_slot(&r, 1, &s, prompt, N_PROMPT, N_PROMPT);
    begin(&r);
    add(&r, 0, prompt, 0, N_PROMPT);
    add(&r, 1, prompt, 0, N_PROMPT);
    run(&r);
    assert_int_equal(r.output.n, 2);
    assert_int_equal(r.results[0].status, ST_OK);
    assert_int_equal(r.results[1].status, ST_NO_CHOICE);
    rig_close(&r);
}

static void test_slots_that_do_not_fit_are_refused(void **state)
{
    const int32_t high = TINY_VOCAB, low = -1;
    const struct logit_bias beyond[] = {{.id = TINY_VOCAB, .bias = 9}, {.id = -1, .bias = 9}};
    int32_t want[TOKENS], got[TOKENS], many[SEQ_TOKENS + 1] = {0};
    struct sampling s = greedy;
    struct rig r;

    (void)state;
    rig_open(&r);
    generate(&r, 0, &greedy, want);
    s.bias = beyond;
    s.n_bias = 2;
    generate(&r, 0, &s, got);
    assert_memory_equal(got, want, sizeof got);
#define REFUSED(...) assert_int_equal(r.ops->slot_set(r.device, __VA_ARGS__), ST_INVALID)
    REFUSED(MAX_SEQ, &greedy, prompt, 1, 1);
    REFUSED(0, &greedy, prompt, 2, 1);
    REFUSED(0, &warm, many, 1, SEQ_TOKENS + 1);
    REFUSED(0, &warm, &high, 1, 1);
    REFUSED(0, &warm, &low, 0, 1);
    s.n_bias = LOGIT_BIAS_MAX + 1;
    REFUSED(0, &s, prompt, 1, 1);
#undef REFUSED
    set_slot(&r, 0, &warm, many, SEQ_TOKENS, SEQ_TOKENS);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_device_remembers_what_it_sampled),
        cmocka_unit_test(test_steps_in_flight_see_the_tokens_before_them),
        cmocka_unit_test(test_preempted_output_stays_output),
        cmocka_unit_test(test_a_slot_keeps_nothing_of_its_last_sequence),
        cmocka_unit_test(test_end_ids_are_held_back),
        cmocka_unit_test(test_a_slot_that_is_never_set_anew_fails_in_the_end),
        cmocka_unit_test(test_the_plan_counts_what_slots_and_threads_take),
        cmocka_unit_test(test_taking_a_slot_allocates_nothing),
        cmocka_unit_test(test_a_row_without_an_allowed_token_is_not_a_damaged_one),
        cmocka_unit_test(test_slots_that_do_not_fit_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
