/* The device on tiny models: right (against a plain reference in double), and invariant bit for
 * bit, for each instruction set, weight type and mode. */
#include "base/buf.h"
#include "engine/cpu/cpu.h"
#include "engine/model/model.h"
#include "tests/lib/gguf_build.h"
#include "tests/unit/engine/cpu/reference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_ROWS   64u
#define MAX_SEQ    4u
#define SEQ_TOKENS 320u /* past one attention split of 256 */
#define SEQ_PAGES  (SEQ_TOKENS / KV_PAGE_TOKENS)

/* One for each way of computing: floats; bytes and nibbles, with and without a minimum;
 * super-blocks; split blocks; tables. Every type is held against the reference. */
static const enum tensor_type some_types[] = {TENSOR_F32,  TENSOR_F16,  TENSOR_BF16,
                                              TENSOR_Q8_0, TENSOR_Q4_1, TENSOR_Q5_0,
                                              TENSOR_Q4_K, TENSOR_Q6_K, TENSOR_IQ4_NL};
/* ThreadSanitizer looks at who touches what, and computes slowly: floats and one packed type are
 * enough for that. */
static bool is_looked_at(enum tensor_type type)
{
#ifdef __SANITIZE_THREAD__
    return type == TENSOR_F32 || type == TENSOR_Q4_1;
#else
    (void)type;
    return true;
#endif
}

static const char *const all_isas[] = {"scalar", "avx2", "avx512"};

struct rig {
    struct buf file;
    struct model *model;
    struct device *device;
    struct step_row rows[MAX_ROWS];
    struct step_sequence sequences[MAX_SEQ];
    uint32_t pages[MAX_SEQ * SEQ_PAGES];
    struct device_step step;
    struct step_result results[MAX_ROWS];
    struct token_logprob tops[MAX_ROWS * TOP_LOGPROBS_MAX];
    struct step_output output; /* into the two above */
};

struct rig_options {
    enum tensor_type type;
    const char *isa;
    enum device_mode mode;
    unsigned n_threads;
};

static struct device_config config_of(const struct rig *r, const struct rig_options *o)
{
    return (struct device_config){.model = r->model,
                                  .mode = o->mode,
                                  .isa = o->isa,
                                  .n_threads = o->n_threads,
                                  .max_rows = MAX_ROWS,
                                  .max_sequences = MAX_SEQ,
                                  .max_context = SEQ_TOKENS,
                                  .n_pages = MAX_SEQ * SEQ_PAGES};
}

static void set_slot(struct rig *r, uint32_t slot, const struct sampling *s)
{
    const int32_t prompt = 0;

    assert_int_equal(r->device->ops->slot_set(r->device, slot, s, &prompt, 1, 1), ST_OK);
}

static void rig_open_file(struct rig *r, const struct rig_options *o)
{
    struct device_config cfg;
    struct reason why = {.text = ""};

    r->output = (struct step_output){.results = r->results, .tops = r->tops};

    if (model_open_memory(r->file.data, r->file.len, &r->model, &why) != ST_OK)
        fail_msg("%s", why.text);
    cfg = config_of(r, o);
    if (cpu_device_ops.open(&cfg, &r->device, &why) != ST_OK)
        fail_msg("%s", why.text);
    /* Page tables run backwards and interleave: nothing may rely on neighbours. */
    for (uint32_t s = 0; s < MAX_SEQ; s++) {
        r->sequences[s] =
            (struct step_sequence){.slot = s, .first_page = s * SEQ_PAGES, .n_pages = SEQ_PAGES};
        for (uint32_t p = 0; p < SEQ_PAGES; p++)
            r->pages[s * SEQ_PAGES + p] = (SEQ_PAGES - 1 - p) * MAX_SEQ + s;
        set_slot(r, s, &(struct sampling){.temperature = 0, .top_p = 1});
    }
}

static void rig_open(struct rig *r, const struct rig_options *o)
{
    /* Odd sizes: rows that are no multiple of 8 groups, 3 query heads for each KV head. */
    struct tiny_model_options t = {.type = o->type,
                                   .n_embd = 96,
                                   .n_heads = 6,
                                   .n_kv_heads = 2,
                                   .n_ff = 160,
                                   .untied = true,
                                   .seed = 5};
    uint32_t elements, bytes;

    memset(r, 0, sizeof *r);
    buf_init(&r->file);
    if (tensor_type_block(o->type, &elements, &bytes) && elements == 256) {
        t.n_layers = 1;
        t.n_embd = t.n_ff = 256;
        t.n_heads = 8;
    }
    tiny_model_build(&t, &r->file);
    rig_open_file(r, o);
}

static void rig_close(struct rig *r)
{
    if (r->device != NULL)
        r->device->ops->close(r->device);
    model_close(r->model);
    buf_dispose(&r->file);
}

static void begin(struct rig *r)
{
    r->step = (struct device_step){.n_sequences = MAX_SEQ,
                                   .n_pages = MAX_SEQ * SEQ_PAGES,
                                   .rows = r->rows,
                                   .sequences = r->sequences,
                                   .pages = r->pages,
                                   .want_logits = true};
}

static void add(struct rig *r, uint32_t sequence, const int32_t *ids, uint32_t position, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        r->rows[r->step.n_rows++] = (struct step_row){
            .id = ids[i], .position = position + i, .sequence = sequence, .want = ROW_SAMPLE};
}

static void run(struct rig *r)
{
    uint64_t ticket;

    assert_int_equal(r->device->ops->submit(r->device, &r->step, &ticket), ST_OK);
    assert_int_equal(r->device->ops->complete(r->device, ticket, &r->output), ST_OK);
    assert_int_equal(r->output.n, r->step.n_rows);
}

static const float *logits(struct rig *r, uint32_t row)
{
    const float *p = r->device->ops->logits(r->device, row);

    assert_non_null(p);
    return p;
}

static void prompt(int32_t *ids, uint32_t n, uint32_t salt)
{
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (int32_t)((i * 7919u + salt * 104729u + i * i) % TINY_VOCAB);
}

/* Logits of all tokens of ids as sequence `s`, `chunk` at a time: out (n, TINY_VOCAB). */
static void run_chunked(struct rig *r, uint32_t s, const int32_t *ids, uint32_t n, uint32_t chunk,
                        float *out)
{
    for (uint32_t at = 0; at < n; at += chunk) {
        uint32_t part = n - at < chunk ? n - at : chunk;

        begin(r);
        add(r, s, ids + at, at, part);
        run(r);
        for (uint32_t i = 0; i < part; i++)
            memcpy(out + (size_t)(at + i) * TINY_VOCAB, logits(r, i), TINY_VOCAB * sizeof *out);
    }
}

#define N 45u /* tokens of most sequences here: three pages, the last one partly */

static void check_chunks(struct rig *r, const float *want, const int32_t *ids)
{
    static const uint32_t chunks[] = {1, 3, 7, 16, N};
    static float got[N * TINY_VOCAB];

    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        run_chunked(r, (uint32_t)i % MAX_SEQ, ids, N, chunks[i], got);
        assert_memory_equal(got, want, sizeof got);
    }
}

/* The sequence one token at a time while others come along in chunks of changing size. */
static void check_company(struct rig *r, const float *want, const int32_t *ids)
{
    int32_t other[3][N];
    uint32_t at[3] = {0};

    for (uint32_t s = 0; s < 3; s++)
        prompt(other[s], N, s + 10);
    for (uint32_t t = 0; t < N; t++) {
        uint32_t mine = 0;

        begin(r);
        for (uint32_t s = 0; s < 3; s++) {
            uint32_t n = (t * 5 + s * 3) % 4;

            n = n < N - at[s] ? n : N - at[s];
            if (s == 2)
                add(r, 3, ids + t, t, 1);
            add(r, s, other[s] + at[s], at[s], n);
            at[s] += n;
        }
        for (uint32_t i = 0; i < r->step.n_rows; i++)
            if (r->rows[i].sequence == 3)
                mine = i;
        run(r);
        assert_memory_equal(logits(r, mine), want + (size_t)t * TINY_VOCAB,
                            TINY_VOCAB * sizeof(float));
    }
}

static void check_invariance(const char *isa, enum tensor_type type, enum device_mode mode)
{
    static float want[N * TINY_VOCAB];
    int32_t ids[N];
    struct rig r;

    prompt(ids, N, 1);
    for (unsigned n_threads = 1; n_threads <= 3; n_threads++) {
        rig_open(&r, &(struct rig_options){type, isa, mode, n_threads});
        if (n_threads == 1)
            run_chunked(&r, 0, ids, N, N, want);
        check_chunks(&r, want, ids);
        check_company(&r, want, ids);
        rig_close(&r);
    }
}

static void test_logits_do_not_depend_on_the_batch(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof all_isas / sizeof all_isas[0]; i++) {
        if (!cpu_has_isa(all_isas[i])) {
            printf("[ NOTE     ] this machine has no %s: not run\n", all_isas[i]);
            continue;
        }
        for (size_t t = 0; t < sizeof some_types / sizeof some_types[0]; t++) {
            if (!is_looked_at(some_types[t]))
                continue;
            check_invariance(all_isas[i], some_types[t], DEVICE_FAST);
            check_invariance(all_isas[i], some_types[t], DEVICE_EXACT);
        }
    }
}

static double log_total(const double *x)
{
    double max = x[0], sum = 0;

    for (uint32_t i = 1; i < TINY_VOCAB; i++)
        max = x[i] > max ? x[i] : max;
    for (uint32_t i = 0; i < TINY_VOCAB; i++)
        sum += exp(x[i] - max);
    return max + log(sum);
}

/* Mean |difference| of all log-probabilities of a row. */
static double row_difference(const float *got, const double *want)
{
    double copy[TINY_VOCAB], a, b, sum = 0;

    for (uint32_t i = 0; i < TINY_VOCAB; i++)
        copy[i] = got[i];
    a = log_total(copy);
    b = log_total(want);
    for (uint32_t i = 0; i < TINY_VOCAB; i++)
        sum += fabs((got[i] - a) - (want[i] - b));
    return sum / TINY_VOCAB;
}

#define LONG_N 300u

static double difference(const struct rig_options *o, const int32_t *ids, const double *want)
{
    static float got[LONG_N * TINY_VOCAB];
    double sum = 0;
    struct rig r;

    rig_open(&r, o);
    run_chunked(&r, 1, ids, LONG_N, 50, got);
    for (uint32_t t = 0; t < LONG_N; t++)
        sum += row_difference(got + (size_t)t * TINY_VOCAB, want + (size_t)t * TINY_VOCAB);
    rig_close(&r);
    return sum / LONG_N;
}

static void check_against_reference(enum tensor_type type)
{
    static double want[LONG_N * TINY_VOCAB];
    int32_t ids[LONG_N];
    struct rig r;

    prompt(ids, LONG_N, 3);
    rig_open(&r, &(struct rig_options){type, "scalar", DEVICE_EXACT, 1});
    reference_logits(r.model, ids, LONG_N, want);
    rig_close(&r);
    for (size_t i = 0; i < sizeof all_isas / sizeof all_isas[0]; i++) {
        double fast, exact;

        if (!cpu_has_isa(all_isas[i]))
            continue;
        exact = difference(&(struct rig_options){type, all_isas[i], DEVICE_EXACT, 2}, ids, want);
        fast = difference(&(struct rig_options){type, all_isas[i], DEVICE_FAST, 2}, ids, want);
        printf("[ NOTE     ] %s, %s: mean difference %.1e exact, %.1e fast\n", all_isas[i],
               tensor_type_name(type), exact, fast);
        assert_true(exact < 1e-5);
        assert_true(fast < 0.1);
    }
}

static void test_logits_are_right(void **state)
{
    uint32_t elements, bytes;

    (void)state;
    for (uint32_t type = 0; type < TENSOR_TYPES; type++)
        if (tensor_type_block(type, &elements, &bytes) && is_looked_at(type))
            check_against_reference(type);
}

static void test_splits_do_not_depend_on_chunks(void **state)
{
    static float a[LONG_N * TINY_VOCAB], b[LONG_N * TINY_VOCAB];
    int32_t ids[LONG_N];
    struct rig r;

    (void)state;
    prompt(ids, LONG_N, 4);
    rig_open(&r, &(struct rig_options){TENSOR_Q4_1, "auto", DEVICE_FAST, 2});
    run_chunked(&r, 0, ids, LONG_N, 64, a);
    run_chunked(&r, 1, ids, LONG_N, 1, b);
    assert_memory_equal(a, b, sizeof a);
    run_chunked(&r, 2, ids, LONG_N, 37, b);
    assert_memory_equal(a, b, sizeof a);
    rig_close(&r);
}

static void test_a_row_may_name_what_an_earlier_ticket_sampled(void **state)
{
    int32_t ids[4] = {9, 20, 31, 42}, sampled;
    float want[TINY_VOCAB];
    struct device_step second;
    struct step_row row;
    uint64_t first, ticket;
    struct rig r;

    (void)state;
    rig_open(&r, &(struct rig_options){TENSOR_Q8_0, "auto", DEVICE_FAST, 2});
    begin(&r);
    add(&r, 0, ids, 0, 4);
    run(&r);
    sampled = r.results[3].id;
    begin(&r);
    add(&r, 0, &sampled, 4, 1);
    run(&r);
    memcpy(want, logits(&r, 0), sizeof want);

    begin(&r);
    add(&r, 1, ids, 0, 4);
    assert_int_equal(r.device->ops->submit(r.device, &r.step, &first), ST_OK);
    row = (struct step_row){
        .id = 3, .ticket = first, .position = 4, .sequence = 1, .want = ROW_SAMPLE};
    second = r.step;
    second.rows = &row;
    second.n_rows = 1;
    assert_int_equal(r.device->ops->submit(r.device, &second, &ticket), ST_OK);
    assert_int_equal(r.device->ops->complete(r.device, ticket, &r.output), ST_INVALID);
    assert_int_equal(r.device->ops->complete(r.device, first, &r.output), ST_OK);
    assert_int_equal(r.output.n, 4);
    assert_int_equal(r.device->ops->complete(r.device, ticket, &r.output), ST_OK);
    assert_int_equal(r.output.n, 1);
    assert_memory_equal(logits(&r, 0), want, sizeof want);
    rig_close(&r);
}

/* A token whose embedding is NaN fails its own sequence, and the rows that depend on it. */
static void test_a_damaged_row_fails_alone(void **state)
{
    static float want[N * TINY_VOCAB];
    const int32_t bad = 77;
    int32_t ids[N];
    const struct tensor *t;
    struct rig r;

    (void)state;
    prompt(ids, N, 1);
    for (uint32_t i = 0; i < N; i++)
        ids[i] = ids[i] == bad ? 1 : ids[i];
    rig_open(&r, &(struct rig_options){TENSOR_Q8_0, "auto", DEVICE_FAST, 2});
    run_chunked(&r, 0, ids, N, N, want);
    t = r.model->token_embd;
    memset((char *)r.file.data + ((const char *)t->data - r.file.data) +
               (size_t)bad * (t->bytes / t->dims[1]),
           0x7f, 2); /* the first block's scale */
    begin(&r);
    add(&r, 1, &bad, 0, 1);
    add(&r, 2, ids, 0, N);
    run(&r);
    assert_int_equal(r.results[0].status, ST_INTERNAL);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(r.results[1 + i].status, ST_OK);
        assert_memory_equal(logits(&r, 1 + i), want + (size_t)i * TINY_VOCAB,
                            TINY_VOCAB * sizeof(float));
    }
    begin(&r); /* the same buffers' rows serve others afterwards */
    add(&r, 3, ids, 0, N);
    run(&r);
    assert_memory_equal(logits(&r, N - 1), want + (size_t)(N - 1) * TINY_VOCAB,
                        TINY_VOCAB * sizeof(float));
    rig_close(&r);
}

static void test_copied_pages_continue_the_sequence(void **state)
{
    static float want[N * TINY_VOCAB];
    uint32_t from[3], to[3];
    int32_t ids[N];
    struct rig r;

    (void)state;
    prompt(ids, N, 6);
    rig_open(&r, &(struct rig_options){TENSOR_F16, "auto", DEVICE_FAST, 2});
    run_chunked(&r, 0, ids, N, N, want);
    for (uint32_t p = 0; p < 3; p++) {
        from[p] = r.pages[p];
        to[p] = r.pages[SEQ_PAGES + p];
    }
    assert_int_equal(r.device->ops->copy_pages(r.device, from, to, 3), ST_OK);
    begin(&r);
    add(&r, 1, ids + N - 1, N - 1, 1);
    run(&r);
    assert_memory_equal(logits(&r, 0), want + (size_t)(N - 1) * TINY_VOCAB,
                        TINY_VOCAB * sizeof(float));
    to[0] = MAX_SEQ * SEQ_PAGES;
    assert_int_equal(r.device->ops->copy_pages(r.device, from, to, 1), ST_INVALID);
    rig_close(&r);
}

static void test_steps_that_do_not_fit_are_refused(void **state)
{
    const int32_t ids[2] = {1, 2}, high = TINY_VOCAB;
    uint64_t ticket;
    struct rig r;

    (void)state;
    rig_open(&r, &(struct rig_options){TENSOR_F32, "auto", DEVICE_FAST, 1});
#define REFUSED(change)                                                                            \
    begin(&r);                                                                                     \
    add(&r, 0, ids, 0, 2);                                                                         \
    change;                                                                                        \
    assert_int_equal(r.device->ops->submit(r.device, &r.step, &ticket), ST_INVALID)
    REFUSED(r.step.n_rows = 0);
    REFUSED(r.step.n_rows = MAX_ROWS + 1);
    REFUSED(r.rows[1].id = high);
    REFUSED(r.rows[1].id = -1);
    REFUSED(r.rows[1].position = 2);
    REFUSED(r.rows[1].sequence = MAX_SEQ);
    REFUSED(r.rows[0].position = SEQ_TOKENS; r.rows[1].position = SEQ_TOKENS + 1);
    REFUSED(r.rows[0].ticket = 55);
    REFUSED(r.sequences[2].slot = MAX_SEQ);
    r.sequences[2].slot = 2;
    REFUSED(r.sequences[2].n_pages = r.step.n_pages + 1);
    r.sequences[2].n_pages = SEQ_PAGES;
    REFUSED(r.pages[7] = MAX_SEQ * SEQ_PAGES);
    rig_close(&r);
}

/* Weights are repacked one matrix after the other while nothing else is to do, or when they are
 * first needed: in the middle of it steps give the same. */
static void test_steps_give_the_same_before_and_after_warming(void **state)
{
    int32_t ids[4] = {9, 20, 31, 42};
    float cold[4 * TINY_VOCAB];
    struct rig r;
    uint32_t n_warm = 0;

    (void)state;
    rig_open(&r, &(struct rig_options){TENSOR_Q4_1, "auto", DEVICE_FAST, 2});
    assert_true(r.device->ops->warm(r.device));
    for (int again = 0; again < 2; again++) {
        begin(&r);
        add(&r, 0, ids, 0, 4);
        run(&r);
        if (again == 0)
            memcpy(cold, logits(&r, 0), sizeof cold);
        /* The first step needed every matrix. */
        assert_false(r.device->ops->warm(r.device));
    }
    assert_memory_equal(cold, logits(&r, 0), sizeof cold);
    rig_close(&r);
    rig_open(&r, &(struct rig_options){TENSOR_Q4_1, "auto", DEVICE_FAST, 2});
    while (r.device->ops->warm(r.device))
        n_warm++;
    assert_int_equal(n_warm, 7 * r.model->shape.n_layers + 1);
    begin(&r);
    add(&r, 0, ids, 0, 4);
    run(&r);
    assert_memory_equal(cold, logits(&r, 0), sizeof cold);
    rig_close(&r);
}

static void test_sampling_belongs_to_the_slot(void **state)
{
    const struct sampling warm = {.temperature = 1.5f, .top_p = 1, .seed = 11};
    int32_t ids[2] = {3, 4}, id;
    struct sampler_scratch *scratch = sampler_scratch_new(TINY_VOCAB);
    struct rig r;

    (void)state;
    rig_open(&r, &(struct rig_options){TENSOR_Q4_1, "auto", DEVICE_FAST, 2});
    set_slot(&r, 2, &warm);
    r.sequences[2].output_index = 5;
    begin(&r);
    add(&r, 0, ids, 0, 2);
    add(&r, 2, ids, 0, 2);
    run(&r);
    assert_int_equal(sampler_pick(&warm, 5, logits(&r, 3), TINY_VOCAB, scratch, &id), ST_OK);
    assert_int_equal(r.results[3].id, id);
    assert_memory_equal(logits(&r, 1), logits(&r, 3), TINY_VOCAB * sizeof(float));
    sampler_scratch_free(scratch);
    rig_close(&r);
}

static void test_the_plan_and_the_name_say_what_runs(void **state)
{
    struct device_config cfg;
    struct device_plan plan;
    struct device *d = NULL;
    struct reason why;
    struct rig r;

    (void)state;
    rig_open(&r, &(struct rig_options){TENSOR_Q4_1, "scalar", DEVICE_EXACT, 2});
    assert_string_equal(r.device->ops->describe(r.device), "cpu scalar exact 2 threads");
    cfg = config_of(&r, &(struct rig_options){TENSOR_Q4_1, "auto", DEVICE_FAST, 1});
    cfg.n_pages = 0;
    cfg.kv_bytes = 1 << 20;
    assert_int_equal(cpu_device_ops.plan(&cfg, &plan, &why), ST_OK);
    /* 2 layers, 2 KV heads, K and V, 16 tokens, 16 dimensions, 2 bytes */
    assert_int_equal(plan.kv_page_bytes, 2 * 2 * 2 * 16 * 16 * 2);
    assert_int_equal(plan.n_pages, (1 << 20) / plan.kv_page_bytes);
    assert_true(plan.weight_bytes > r.file.len);
    cfg.kv_type = KV_F16;
    assert_int_equal(cpu_device_ops.plan(&cfg, &plan, &why), ST_OK);
    assert_int_equal(plan.kv_page_bytes, 2 * 2 * 2 * 16 * 16 * 2);
    cfg.kv_type = KV_Q8; /* a byte each, and a scale of 4 for each token */
    assert_int_equal(cpu_device_ops.plan(&cfg, &plan, &why), ST_OK);
    assert_int_equal(plan.kv_page_bytes, 2 * 2 * 2 * 16 * (16 + 4));
    cfg.mode = DEVICE_EXACT;
    assert_int_equal(cpu_device_ops.open(&cfg, &d, &why), ST_UNSUPPORTED);
    assert_non_null(strstr(why.text, "F32"));
    cfg.mode = DEVICE_FAST;
    cfg.isa = "mmx";
    assert_int_equal(cpu_device_ops.open(&cfg, &d, &why), ST_UNSUPPORTED);
    assert_non_null(strstr(why.text, "mmx"));
    if (!cpu_has_isa("avx512")) {
        cfg.isa = "avx512";
        assert_int_equal(cpu_device_ops.open(&cfg, &d, &why), ST_UNSUPPORTED);
    }
    assert_null(d);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits_are_right),
        cmocka_unit_test(test_logits_do_not_depend_on_the_batch),
        cmocka_unit_test(test_splits_do_not_depend_on_chunks),
        cmocka_unit_test(test_a_row_may_name_what_an_earlier_ticket_sampled),
        cmocka_unit_test(test_a_damaged_row_fails_alone),
        cmocka_unit_test(test_copied_pages_continue_the_sequence),
        cmocka_unit_test(test_steps_that_do_not_fit_are_refused),
        cmocka_unit_test(test_steps_give_the_same_before_and_after_warming),
        cmocka_unit_test(test_sampling_belongs_to_the_slot),
        cmocka_unit_test(test_the_plan_and_the_name_say_what_runs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
