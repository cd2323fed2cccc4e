/* The same request gives the same bits - logits and sampled ids - whatever happens around it:
 * alone, in a full batch, in any chunking, from a prefix that another sequence computed, after
 * preemption, at any number of threads. Each case for each quantization, mode, KV type and
 * instruction set. Then mutants: orders of summation that depend on the batch, as faults of this
 * kind do, must not pass the same comparison. */
#include "base/buf.h"
#include "base/size.h"
#include "engine/cpu/cpu.h"
#include "engine/cpu/forward.h"
#include "engine/cpu/kv_q8.h"
#include "engine/model/model.h"
#include "tests/lib/gguf_build.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define ROWS       32u
#define SEQUENCES  8u
#define PROMPT     262u /* past one attention split of 256 tokens */
#define OUTPUT     12u
#define TOKENS     (PROMPT + OUTPUT)
#define SEQ_PAGES  ((TOKENS + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS)
#define SEQ_TOKENS (SEQ_PAGES * KV_PAGE_TOKENS)
#define WINDOW     40u
#define SUBJECT    2u /* the sequence that the request runs as, unless a case says otherwise */
#define DONOR      5u
#define SECOND     7u

struct setting {
    const char *name;
    enum tensor_type type;
    enum device_mode mode;
    enum kv_type kv_type;
    bool windowed; /* the first layer sees only WINDOW tokens */
};

static const struct setting settings[] = {
    {"Q4_1 fast f16", TENSOR_Q4_1, DEVICE_FAST, KV_F16, false},
    {"Q4_1 fast q8", TENSOR_Q4_1, DEVICE_FAST, KV_Q8, false},
    {"Q4_1 exact f32", TENSOR_Q4_1, DEVICE_EXACT, KV_AUTO, false},
    {"Q8_0 fast f16, windowed", TENSOR_Q8_0, DEVICE_FAST, KV_F16, true},
    {"Q8_0 fast q8, windowed", TENSOR_Q8_0, DEVICE_FAST, KV_Q8, true},
    {"Q8_0 exact f32, windowed", TENSOR_Q8_0, DEVICE_EXACT, KV_AUTO, true},
    {"Q4_K fast f16", TENSOR_Q4_K, DEVICE_FAST, KV_F16, false},
    {"Q4_K fast q8", TENSOR_Q4_K, DEVICE_FAST, KV_Q8, false},
    {"Q4_K exact f32", TENSOR_Q4_K, DEVICE_EXACT, KV_AUTO, false},
};

/* Sanitizers look at memory and threads, and compute slowly: there one quantization, and threads
 * that outnumber the cores of a small machine. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define N_SETTINGS 2u
static const unsigned thread_counts[] = {3};
#else
#define N_SETTINGS COUNT_OF(settings)
static const unsigned thread_counts[] = {2, 3, 4};
#endif

struct rig {
    struct buf file;
    struct model *model;
    struct device *device;
    struct step_row rows[ROWS];
    struct step_sequence sequences[SEQUENCES];
    uint32_t pages[SEQUENCES * SEQ_PAGES];
    uint32_t company_at[SEQUENCES]; /* tokens that each of the others has */
    struct device_step step;
    struct step_result results[ROWS];
    struct token_logprob tops[ROWS * TOP_LOGPROBS_MAX];
    struct step_output output; /* into the two above */
};

/* The request, as one run of it goes. */
struct request {
    uint32_t sequence;
    uint32_t n;                 /* ids known: the prompt's and the sampled ones */
    uint32_t at;                /* of them in KV */
    uint32_t first_row, n_rows; /* in the step that is being made */
    int32_t ids[TOKENS + 1];
    float logits[TOKENS][TINY_VOCAB];
    bool have[TOKENS]; /* logits of this token's row were computed */
};

static void set_tables(struct rig *r)
{
    /* Page tables run backwards and interleave: nothing may rely on neighbours. */
    for (uint32_t s = 0; s < SEQUENCES; s++) {
        r->sequences[s] =
            (struct step_sequence){.slot = s, .first_page = s * SEQ_PAGES, .n_pages = SEQ_PAGES};
        for (uint32_t p = 0; p < SEQ_PAGES; p++)
            r->pages[s * SEQ_PAGES + p] = (SEQ_PAGES - 1 - p) * SEQUENCES + s;
    }
}

static void set_sampling(struct rig *r)
{
    const struct sampling s = {.temperature = 0.9f, .top_p = 0.95f, .seed = 77};
    const int32_t prompt = 0;

    r->output = (struct step_output){.results = r->results, .tops = r->tops};
    for (uint32_t i = 0; i < SEQUENCES; i++)
        assert_int_equal(r->device->ops->slot_set(r->device, i, &s, &prompt, 1, 1), ST_OK);
}

static void build_model(const struct setting *s, struct buf *file)
{
    /* Odd sizes: rows that are no multiple of 8 groups, 3 query heads for each KV head. Blocks of
     * 256 elements need even ones. */
    const struct tiny_model_options odd = {.type = s->type,
                                           .n_embd = 96,
                                           .n_heads = 6,
                                           .n_kv_heads = 2,
                                           .n_ff = 160,
                                           .untied = true,
                                           .seed = 5};
    const struct tiny_model_options even = {.type = s->type,
                                            .n_layers = 1,
                                            .n_embd = 256,
                                            .n_heads = 8,
                                            .n_kv_heads = 2,
                                            .n_ff = 256,
                                            .untied = true,
                                            .seed = 6};

    buf_init(file);
    tiny_model_build(s->type == TENSOR_Q4_K ? &even : &odd, file);
}

static struct model *open_model(const struct setting *s, const struct buf *file)
{
    struct reason why = {.text = ""};
    struct model *m = NULL;

    if (model_open_memory(file->data, file->len, &m, &why) != ST_OK)
        fail_msg("%s", why.text);
    if (s->windowed) {
        m->shape.window = WINDOW;
        m->layers[0].windowed = true;
    }
    return m;
}

static void rig_open(struct rig *r, const struct setting *s, const char *isa, unsigned n_threads)
{
    struct reason why = {.text = ""};
    struct device_config cfg = {.mode = s->mode,
                                .kv_type = s->kv_type,
                                .isa = isa,
                                .n_threads = n_threads,
                                .max_rows = ROWS,
                                .max_sequences = SEQUENCES,
                                .max_context = SEQ_TOKENS,
                                .n_pages = SEQUENCES * SEQ_PAGES};

    memset(r, 0, sizeof *r);
    build_model(s, &r->file);
    r->model = open_model(s, &r->file);
    cfg.model = r->model;
    if (cpu_device_ops.open(&cfg, &r->device, &why) != ST_OK)
        fail_msg("%s", why.text);
    set_tables(r);
    set_sampling(r);
}

static void rig_close(struct rig *r)
{
    r->device->ops->close(r->device);
    model_close(r->model);
    buf_dispose(&r->file);
}

static int32_t some_id(uint32_t i, uint32_t salt)
{
    return (int32_t)((i * 7919u + salt * 104729u + i * i) % TINY_VOCAB);
}

static void begin_request(struct request *q, uint32_t sequence)
{
    memset(q, 0, sizeof *q);
    q->sequence = sequence;
    q->n = PROMPT;
    for (uint32_t i = 0; i < PROMPT; i++)
        q->ids[i] = some_id(i, 1);
}

static bool is_done(const struct request *q)
{
    return q->at == TOKENS;
}

static void begin_step(struct rig *r)
{
    r->step = (struct device_step){.n_sequences = SEQUENCES,
                                   .n_pages = SEQUENCES * SEQ_PAGES,
                                   .rows = r->rows,
                                   .sequences = r->sequences,
                                   .pages = r->pages,
                                   .want_logits = true};
}

static void add_row(struct rig *r, uint32_t sequence, int32_t id, uint32_t position, uint8_t want)
{
    assert_true(r->step.n_rows < ROWS);
    r->rows[r->step.n_rows++] =
        (struct step_row){.id = id, .position = position, .sequence = sequence, .want = want};
}

/* The next n of the request's ids, or as many as are known. */
static void add_request(struct rig *r, struct request *q, uint32_t n)
{
    q->first_row = r->step.n_rows;
    q->n_rows = n < q->n - q->at ? n : q->n - q->at;
    r->sequences[q->sequence].output_index = q->n - PROMPT;
    for (uint32_t i = 0; i < q->n_rows; i++)
        add_row(r, q->sequence, q->ids[q->at + i], q->at + i, ROW_SAMPLE);
}

/* n tokens of something else; a sequence that is full begins anew. */
static void add_company(struct rig *r, uint32_t sequence, uint32_t n)
{
    if (r->company_at[sequence] + n > SEQ_TOKENS)
        r->company_at[sequence] = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t position = r->company_at[sequence]++;

        add_row(r, sequence, some_id(position, 10 + sequence), position, ROW_NOTHING);
    }
}

static void run_step(struct rig *r)
{
    uint64_t ticket;

    assert_int_equal(r->device->ops->submit(r->device, &r->step, &ticket), ST_OK);
    assert_int_equal(r->device->ops->complete(r->device, ticket, &r->output), ST_OK);
}

/* Keeps the logits of the request's rows; past its last known id comes the sampled one. */
static void take_results(struct rig *r, struct request *q)
{
    const struct step_result *result = r->results;

    while (result->row != q->first_row)
        result++;
    for (uint32_t i = 0; i < q->n_rows; i++, q->at++) {
        const float *logits = r->device->ops->logits(r->device, result[i].row);

        assert_int_equal(result[i].status, ST_OK);
        memcpy(q->logits[q->at], logits, sizeof q->logits[q->at]);
        q->have[q->at] = true;
    }
    if (q->at == q->n)
        q->ids[q->n++] = result[q->n_rows - 1].id;
}

/* On to `end` tokens, at most `chunk` a step, nobody else there. */
static void run_to(struct rig *r, struct request *q, uint32_t end, uint32_t chunk)
{
    while (q->at < end) {
        begin_step(r);
        add_request(r, q, chunk < end - q->at ? chunk : end - q->at);
        run_step(r);
        take_results(r, q);
    }
}

/* First token (or id) where two runs of the request differ, TOKENS + 1 where they don't. Rows that
 * a run took from a cache have no logits. */
static uint32_t first_difference(const struct request *a, const struct request *b)
{
    for (uint32_t i = 0; i <= TOKENS; i++) {
        if (a->ids[i] != b->ids[i])
            return i;
        if (i < TOKENS && a->have[i] && b->have[i] &&
            memcmp(a->logits[i], b->logits[i], sizeof a->logits[i]) != 0)
            return i;
    }
    return TOKENS + 1;
}

/* The cases. Each compares a finished run of the request, or several, with `want`. */
struct cell {
    const struct setting *setting;
    const char *isa;
    unsigned n_threads;
    const char *name; /* of the case */
    const struct request *want;
};

static void check(const struct cell *c, const struct request *got)
{
    uint32_t at = first_difference(c->want, got);

    if (at <= TOKENS)
        fail_msg("%s, %s, %u threads: %s differs at token %u", c->isa, c->setting->name,
                 c->n_threads, c->name, at);
}

static void alone(struct rig *r, const struct cell *c)
{
    static struct request q;

    begin_request(&q, SUBJECT);
    run_to(r, &q, TOKENS, ROWS);
    check(c, &q);
}

/* Every step full to the last row and sequence, the request's rows in the midst. */
static void in_a_full_batch(struct rig *r, const struct cell *c)
{
    static struct request q;

    begin_request(&q, SUBJECT);
    for (uint32_t step = 0; !is_done(&q); step++) {
        begin_step(r);
        for (uint32_t s = 0; s < SEQUENCES - 1; s++)
            if (s == SUBJECT)
                add_request(r, &q, 4 + step % 17);
            else
                add_company(r, s, 1 + (step + 5 * s) % 2);
        add_company(r, SEQUENCES - 1, ROWS - r->step.n_rows);
        run_step(r);
        take_results(r, &q);
    }
    check(c, &q);
}

static void in_any_chunks(struct rig *r, const struct cell *c)
{
    static const uint32_t chunks[] = {1, 3, 16};
    static struct request q;

    for (size_t i = 0; i < COUNT_OF(chunks); i++) {
        begin_request(&q, (uint32_t)i % SEQUENCES);
        run_to(r, &q, TOKENS, chunks[i]);
        check(c, &q);
    }
    begin_request(&q, SUBJECT);
    for (uint32_t n = 1; !is_done(&q); n = n * 37 % 53) /* 37 generates all of 1..52 */
        run_to(r, &q, q.at + n < TOKENS ? q.at + n : TOKENS, ROWS);
    check(c, &q);
}

/* The pages of the first `prefix` tokens are those that another sequence filled, and goes on with
 * in the same steps. */
static void check_prefix(struct rig *r, const struct cell *c, const struct request *filled,
                         uint32_t prefix)
{
    static struct request donor, q;

    donor = *filled;
    begin_request(&q, SUBJECT);
    for (uint32_t p = 0; p < prefix / KV_PAGE_TOKENS; p++)
        r->pages[SUBJECT * SEQ_PAGES + p] = r->pages[DONOR * SEQ_PAGES + p];
    q.at = prefix;
    while (!is_done(&q)) {
        begin_step(r);
        add_request(r, &donor, is_done(&donor) ? 0 : 1);
        add_request(r, &q, 10);
        run_step(r);
        if (donor.n_rows > 0)
            take_results(r, &donor);
        take_results(r, &q);
    }
    check(c, &q);
    set_tables(r);
}

static void from_a_cached_prefix(struct rig *r, const struct cell *c)
{
    static struct request donor;

    begin_request(&donor, DONOR);
    run_to(r, &donor, PROMPT, 23);
    check_prefix(r, c, &donor, 5 * KV_PAGE_TOKENS);
    check_prefix(r, c, &donor, 256);
}

/* Others overwrite the pages that the request has written; it begins again in other ones. */
static void preempt(struct rig *r, struct request *q, uint32_t to)
{
    r->company_at[q->sequence] = 0;
    for (uint32_t t = 0; t < q->at; t += KV_PAGE_TOKENS) {
        begin_step(r);
        add_company(r, q->sequence, KV_PAGE_TOKENS);
        run_step(r);
    }
    q->sequence = to;
    q->at = 0;
}

static void after_preemption(struct rig *r, const struct cell *c)
{
    static struct request q;

    begin_request(&q, SUBJECT);
    run_to(r, &q, 100, 30);
    preempt(r, &q, SECOND);
    run_to(r, &q, PROMPT + 5, 27);
    preempt(r, &q, DONOR);
    run_to(r, &q, TOKENS, 29);
    check(c, &q);
}

/* The sixth case is the number of threads: what these are held against ran on one. Each runs on
 * another number; the first and cheapest on every one. */
static const struct {
    const char *name;
    void (*run)(struct rig *r, const struct cell *c);
} cases[] = {
    {"alone", alone},
    {"in a full batch", in_a_full_batch},
    {"in any chunks", in_any_chunks},
    {"from a cached prefix", from_a_cached_prefix},
    {"after preemption", after_preemption},
};

static void check_setting(size_t at, const char *isa)
{
    const struct setting *s = &settings[at];
    static struct request want;
    static struct rig r;

    rig_open(&r, s, isa, 1);
    begin_request(&want, SUBJECT);
    run_to(&r, &want, TOKENS, ROWS);
    rig_close(&r);
    for (size_t t = 0; t < COUNT_OF(thread_counts); t++) {
        rig_open(&r, s, isa, thread_counts[t]);
        for (size_t i = 0; i < COUNT_OF(cases); i++)
            if (i == 0 || (i + at) % COUNT_OF(thread_counts) == t)
                cases[i].run(&r, &(struct cell){s, isa, thread_counts[t], cases[i].name, &want});
        rig_close(&r);
    }
}

static void test_the_same_request_gives_the_same_bits(void **state)
{
    const char *isa = *state;

    if (!cpu_has_isa(isa)) {
        printf("[ NOTE     ] this machine has no %s: not run\n", isa);
        skip();
    }
    for (size_t i = 0; i < N_SETTINGS; i++)
        check_setting(i, isa);
}

static void test_the_name_tells_the_kv_type(void **state)
{
    static struct rig r;

    (void)state;
    for (size_t i = 0; i < N_SETTINGS; i++) {
        rig_open(&r, &settings[i], "auto", 1);
        assert_true((strstr(r.device->ops->describe(r.device), " kv-q8 ") != NULL) ==
                    (settings[i].kv_type == KV_Q8));
        rig_close(&r);
    }
}

/* One token far away is another: later rows tell, whatever the KV type; all of them but where
 * one layer gives it so little weight that rounding hides it. */
static void test_a_changed_token_is_noticed(void **state)
{
    static struct request a, b;
    static struct rig r;

    (void)state;
    for (size_t i = 0; i < N_SETTINGS; i++) {
        uint32_t differ = 0;

        rig_open(&r, &settings[i], "auto", 2);
        begin_request(&a, SUBJECT);
        run_to(&r, &a, TOKENS, ROWS);
        begin_request(&b, SUBJECT);
        b.ids[3] = (b.ids[3] + 1) % TINY_VOCAB;
        run_to(&r, &b, TOKENS, ROWS);
        for (uint32_t t = 0; t < PROMPT; t++)
            differ += memcmp(a.logits[t], b.logits[t], sizeof a.logits[t]) != 0;
        assert_memory_equal(a.logits[2], b.logits[2], sizeof a.logits[2]);
        assert_int_equal(first_difference(&a, &b), 3);
        assert_true(differ > PROMPT / 3);
        rig_close(&r);
    }
}

/* Mutants: kernels as they must not be. Their forward pass runs without the device. */

static const struct kernels *right;

/* A path of its own for few queries, summed from the other end. */
static void qk_page_by_queries(const float *const *q, float *const *scores, uint32_t n_queries,
                               const void *k_part, uint32_t head_dim)
{
    const int8_t *k = q8_codes_of(k_part);

    if (n_queries == QK_QUERIES) {
        right->kv_q8.qk_page(q, scores, n_queries, k_part, head_dim);
        return;
    }
    for (uint32_t i = 0; i < n_queries; i++)
        for (uint32_t t = 0; t < KV_TOKENS; t++) {
            float acc = 0;

            for (uint32_t d = head_dim; d-- > 0;)
                acc += q[i][d] * (float)k[d * KV_TOKENS + t];
            scores[i][t] = acc * q8_scales_of(k_part)[t];
        }
}

/* A scale for the page: that of the last token written serves all before it too. */
static void store_by_page(void *k_part, void *v_part, uint32_t t, const float *k, const float *v,
                          uint32_t head_dim, uint32_t head_pad)
{
    right->kv_q8.store(k_part, v_part, t, k, v, head_dim, head_pad);
    for (uint32_t i = 0; i < t; i++)
        q8_scales(k_part)[i] = q8_scales(k_part)[t];
}

/* Weights of a product split in halves, but only for a lone row. */
static void dot_rows_by_columns(const float *w, size_t ldw, uint32_t n_rows, const float *x,
                                size_t ldx, uint32_t n_cols, size_t k_pad,
                                const struct outputs *out)
{
    size_t half = k_pad / 2 / ACT_ALIGN * ACT_ALIGN;
    struct outputs rest = *out;

    if (n_cols > 1 || half == 0) {
        right->dot_rows(w, ldw, n_rows, x, ldx, n_cols, k_pad, out);
        return;
    }
    right->dot_rows(w, ldw, n_rows, x, ldx, n_cols, half, out);
    rest.add = true;
    right->dot_rows(w + half, ldw, n_rows, x + half, ldx, n_cols, k_pad - half, &rest);
}

/* Logits of the last row of the prompt, `chunk` tokens at a time. */
static void forward_last(const struct setting *s, const struct kernels *kernels, uint32_t chunk,
                         float out[TINY_VOCAB])
{
    struct buf file;
    struct model *m;
    struct forward f;
    struct pool *pool;
    struct reason why;
    struct step_row rows[ROWS];
    struct step_sequence sequence = {.n_pages = SEQ_PAGES};
    uint32_t pages[SEQ_PAGES], last = 0;
    struct device_config cfg = {.mode = s->mode,
                                .kv_type = s->kv_type,
                                .max_rows = ROWS,
                                .max_sequences = 1,
                                .max_context = SEQ_TOKENS};

    build_model(s, &file);
    cfg.model = m = open_model(s, &file);
    assert_int_equal(pool_open(1, &pool, &why), ST_OK);
    assert_int_equal(forward_open(&f, &cfg, kernels, pool, SEQ_PAGES, &why), ST_OK);
    for (uint32_t i = 0; i < SEQ_PAGES; i++)
        pages[i] = i;
    for (uint32_t at = 0; at < PROMPT; at += chunk) {
        uint32_t n = PROMPT - at < chunk ? PROMPT - at : chunk;
        struct device_step step = {.n_rows = n,
                                   .n_sequences = 1,
                                   .n_pages = SEQ_PAGES,
                                   .rows = rows,
                                   .sequences = &sequence,
                                   .pages = pages};
        int32_t ids[ROWS];

        for (uint32_t i = 0; i < n; i++) {
            ids[i] = some_id(at + i, 1);
            rows[i] = (struct step_row){.id = ids[i], .position = at + i};
        }
        forward_run(&f, &step, ids);
        last = n - 1;
    }
    forward_logits(&f, &last, 1, 0);
    memcpy(out, f.logits.data, TINY_VOCAB * sizeof *out);
    forward_close(&f);
    pool_close(pool);
    model_close(m);
    buf_dispose(&file);
}

static bool chunks_agree(const struct setting *s, const struct kernels *kernels)
{
    float whole[TINY_VOCAB], single[TINY_VOCAB];

    forward_last(s, kernels, ROWS, whole);
    forward_last(s, kernels, 1, single);
    return memcmp(whole, single, sizeof whole) == 0;
}

static void test_orders_that_depend_on_the_batch_are_noticed(void **state)
{
    const struct setting *q8 = &settings[1];
    const struct setting floats = {"F32 exact", TENSOR_F32, DEVICE_EXACT, KV_AUTO, false};
    struct kernels mutant;

    (void)state;
    right = kernels_for("auto");
    assert_true(chunks_agree(q8, right));
    assert_true(chunks_agree(&floats, right));
    mutant = *right;
    mutant.kv_q8.qk_page = qk_page_by_queries;
    assert_false(chunks_agree(q8, &mutant));
    mutant = *right;
    mutant.kv_q8.store = store_by_page;
    assert_false(chunks_agree(q8, &mutant));
    mutant = *right;
    mutant.dot_rows = dot_rows_by_columns;
    assert_false(chunks_agree(&floats, &mutant));
}

#define FOR_ISA(isa)                                                                               \
    {                                                                                              \
        "test_the_same_request_gives_the_same_bits " isa,                                          \
            test_the_same_request_gives_the_same_bits, NULL, NULL, (void *)(uintptr_t)isa          \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        FOR_ISA("scalar"),
        FOR_ISA("avx2"),
        FOR_ISA("avx512"),
        cmocka_unit_test(test_the_name_tells_the_kv_type),
        cmocka_unit_test(test_a_changed_token_is_noticed),
        cmocka_unit_test(test_orders_that_depend_on_the_batch_are_noticed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
