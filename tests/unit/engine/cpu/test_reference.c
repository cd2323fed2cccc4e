/* Exact mode on the demo model against a float32 reference in PyTorch
 * (tests/data/score/reference.json, made by tools/oracle_logprobs.py), and mutants of the forward
 * pass that this comparison must catch. Needs SLUICE_TEST_MODEL. */
#include "engine/cpu/forward.h"
#include "base/json.h"
#include "base/size.h"
#include "engine/cpu/cpu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CHUNK     64u
#define TOKENS    1024u
#define PAGES     (TOKENS / KV_PAGE_TOKENS)
#define MEAN_MAX  0.001 /* nat: of |difference| of the targets' log-probabilities */
#define REGRET    0.1   /* nat: how much worse our choice may be by the reference's own measure */
#define REFERENCE "tests/data/score/reference.json"

/* Sanitizers look at memory and threads: for that a few steps are enough, and they compute slowly.
 * The numbers are the plain build's to the bit. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COMPARED     96u
#define IS_SANITIZED true
#else
#define COMPARED     TOKENS
#define IS_SANITIZED false
#endif

static json_t *reference;

static bool have_model(void)
{
    const char *path = getenv("SLUICE_TEST_MODEL");

    return path != NULL && path[0] != '\0';
}

static int load(void **state)
{
    json_error_t err;

    (void)state;
    reference = json_load_file(REFERENCE, 0, &err);
    return reference == NULL ? -1 : 0;
}

static int unload(void **state)
{
    (void)state;
    json_decref(reference);
    return 0;
}

/* One sequence through a forward pass of the given kernels. */
struct run {
    struct model *file;
    struct model model; /* the file's, or changed by a mutant */
    struct kernels kernels;
    struct pool *pool;
    struct forward forward;
};

static void open_model(struct run *r)
{
    struct reason why = {{0}, {0}};

    memset(r, 0, sizeof *r);
    if (model_open(getenv("SLUICE_TEST_MODEL"), &r->file, &why) != ST_OK)
        fail_msg("%s", why.text);
    r->model = *r->file;
    r->kernels = *kernels_for("auto");
}

static void open_forward(struct run *r, enum device_mode mode)
{
    struct device_config cfg = {.model = &r->model,
                                .mode = mode,
                                .max_rows = CHUNK,
                                .max_sequences = 1,
                                .max_context = TOKENS};
    struct reason why = {{0}, {0}};

    assert_int_equal(pool_open(2, &r->pool, &why), ST_OK);
    if (forward_open(&r->forward, &cfg, &r->kernels, r->pool, PAGES, &why) != ST_OK)
        fail_msg("%s", why.text);
}

static void close_run(struct run *r)
{
    forward_close(&r->forward);
    pool_close(r->pool);
    model_close(r->file);
}

/* Calls on_row with the logits after each of the n ids. */
static void feed(struct run *r, const int32_t *ids, uint32_t n,
                 void (*on_row)(void *arg, uint32_t at, const float *logits), void *arg)
{
    uint32_t pages[PAGES], wanted[CHUNK];
    struct step_row rows[CHUNK];
    struct step_sequence seq = {.n_pages = PAGES};

    for (uint32_t i = 0; i < PAGES; i++)
        pages[i] = i;
    for (uint32_t at = 0; at < n; at += CHUNK) {
        uint32_t m = n - at < CHUNK ? n - at : CHUNK;
        struct device_step step = {.n_rows = m,
                                   .n_sequences = 1,
                                   .n_pages = PAGES,
                                   .rows = rows,
                                   .sequences = &seq,
                                   .pages = pages};

        for (uint32_t i = 0; i < m; i++) {
            rows[i] = (struct step_row){.id = ids[at + i], .position = at + i, .want = true};
            wanted[i] = i;
        }
        forward_run(&r->forward, &step, ids + at);
        forward_logits(&r->forward, wanted, m, 0);
        for (uint32_t i = 0; i < m; i++)
            on_row(arg, at + i, r->forward.logits.data + i * r->forward.logits.ld);
    }
}

static uint32_t read_ids(const json_t *array, int32_t *out, uint32_t at)
{
    for (size_t i = 0; i < json_array_size(array); i++)
        out[at++] = (int32_t)json_integer_value(json_array_get(array, i));
    return at;
}

/* ---- teacher-forced log-probabilities of the text ---- */

struct difference {
    const int32_t *ids;
    uint32_t n;
    const json_t *want;
    double sum, max;
};

static void compare_row(void *arg, uint32_t at, const float *logits)
{
    struct difference *d = arg;
    double diff;

    if (at + 1 == d->n)
        return;
    diff = fabs((double)sampler_logprob(logits, 49152, d->ids[at + 1]) -
                json_real_value(json_array_get(d->want, at + 1)));
    d->sum += isnan(diff) ? 1e9 : diff;
    if (!(diff <= d->max))
        d->max = diff;
}

static double mean_difference(struct run *r, const char *what)
{
    int32_t ids[TOKENS];
    struct difference d = {.ids = ids, .want = json_object_get(reference, "logprobs")};

    assert_true(json_array_size(d.want) <= TOKENS && json_array_size(d.want) >= 512);
    d.n = read_ids(json_object_get(reference, "ids"), ids, 0);
    d.n = d.n < COMPARED ? d.n : COMPARED;
    feed(r, ids, d.n, compare_row, &d);
    printf("%s: mean %.6f, maximum %.6f nat over %u tokens\n", what, d.sum / (d.n - 1), d.max,
           d.n - 1);
    return d.sum / (d.n - 1);
}

static void exact_mode_agrees_with_the_float32_reference(void **state)
{
    struct run r;

    (void)state;
    if (!have_model())
        skip();
    open_model(&r);
    open_forward(&r, DEVICE_EXACT);
    assert_true(mean_difference(&r, "exact") <= MEAN_MAX);
    close_run(&r);
}

/* Stated, with a bound that a broken kernel doesn't meet (docs/numerics.md has the figures). */
static void fast_mode_stays_near_it(void **state)
{
    struct run r;

    (void)state;
    if (!have_model())
        skip();
    open_model(&r);
    open_forward(&r, DEVICE_FAST);
    assert_true(mean_difference(&r, "fast") <= 0.1);
    close_run(&r);
}

/* ---- greedy choices ---- */

struct choices {
    uint32_t n_prompt;
    const json_t *top; /* per generated token: [[id, log-probability], …] best first */
    double worst;
};

static void judge_choice(void *arg, uint32_t at, const float *logits)
{
    struct choices *c = arg;
    const json_t *top = json_array_get(c->top, (size_t)at + 1 - c->n_prompt);
    int32_t best = 0;
    double regret = 1e9;

    if (at + 1 < c->n_prompt || top == NULL)
        return;
    for (int32_t i = 1; i < 49152; i++)
        if (logits[i] > logits[best])
            best = i;
    for (size_t i = 0; i < json_array_size(top); i++) {
        const json_t *pair = json_array_get(top, i);

        if (json_integer_value(json_array_get(pair, 0)) == best)
            regret = json_real_value(json_array_get(json_array_get(top, 0), 1)) -
                     json_real_value(json_array_get(pair, 1));
    }
    if (regret > c->worst)
        c->worst = regret;
}

static void check_choices(enum device_mode mode, const char *what)
{
    const json_t *greedy = json_object_get(reference, "greedy");
    double worst = 0;

    assert_int_equal(json_array_size(greedy), 3);
    for (size_t i = 0; i < json_array_size(greedy); i++) {
        const json_t *one = json_array_get(greedy, i);
        struct choices c = {.top = json_object_get(one, "top")};
        int32_t ids[TOKENS];
        uint32_t n;
        struct run r;

        c.n_prompt = read_ids(json_object_get(one, "prompt"), ids, 0);
        n = read_ids(json_object_get(one, "ids"), ids, c.n_prompt);
        assert_int_equal(n - c.n_prompt, 64);
        open_model(&r);
        open_forward(&r, mode);
        feed(&r, ids, n - 1, judge_choice, &c);
        close_run(&r);
        worst = c.worst > worst ? c.worst : worst;
    }
    printf("%s: our choice is at worst %.5f nat below the reference's\n", what, worst);
    assert_true(worst <= REGRET);
}

static void exact_choices_are_the_references(void **state)
{
    (void)state;
    if (!have_model() || IS_SANITIZED)
        skip();
    check_choices(DEVICE_EXACT, "exact");
}

static void fast_choices_are_nearly_the_references(void **state)
{
    (void)state;
    if (!have_model() || IS_SANITIZED)
        skip();
    check_choices(DEVICE_FAST, "fast");
}

/* ---- mutants: each must fail the comparison above ---- */

static const struct kernels *honest;
static float mutant_base;

/* Queries (the call with more heads) turned one position further than their keys. */
static void rope_shifted(float *x, uint32_t n_heads, uint32_t head_dim, const float *cos_row,
                         const float *sin_row, uint32_t rope_dims)
{
    honest->rope(x, n_heads, head_dim, cos_row, sin_row, rope_dims);
    for (uint32_t h = 0; n_heads > 3 && h < n_heads; h++)
        for (uint32_t i = 0; i < rope_dims; i += 2) {
            double angle = pow(mutant_base, -(double)i / rope_dims);
            float *p = x + (size_t)h * head_dim + i, a = p[0], b = p[1];

            p[0] = (float)(a * cos(angle) - b * sin(angle));
            p[1] = (float)(a * sin(angle) + b * cos(angle));
        }
}

static void rmsnorm_missing(const float *x, const float *weight, uint32_t n, float eps, float *out)
{
    (void)weight;
    (void)eps;
    memcpy(out, x, n * sizeof *x);
}

static void shift_position(struct run *r)
{
    mutant_base = r->model.shape.rope.base;
    r->kernels.rope = rope_shifted;
}

static void change_rope_base(struct run *r)
{
    r->model.shape.rope.base = 10000.0f;
}

static void drop_norms(struct run *r)
{
    r->kernels.rmsnorm = rmsnorm_missing;
}

static void mutants_are_caught(void **state)
{
    static const struct {
        const char *name;
        void (*mutate)(struct run *r);
    } mutants[] = {{"mutant: positions of queries shifted by one", shift_position},
                   {"mutant: RoPE base 10,000", change_rope_base},
                   {"mutant: norms missing", drop_norms}};

    (void)state;
    if (!have_model() || IS_SANITIZED)
        skip();
    honest = kernels_for("auto");
    for (size_t i = 0; i < COUNT_OF(mutants); i++) {
        struct run r;

        open_model(&r);
        mutants[i].mutate(&r);
        open_forward(&r, DEVICE_EXACT);
        assert_true(mean_difference(&r, mutants[i].name) > MEAN_MAX);
        close_run(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_mode_agrees_with_the_float32_reference),
        cmocka_unit_test(fast_mode_stays_near_it),
        cmocka_unit_test(exact_choices_are_the_references),
        cmocka_unit_test(fast_choices_are_nearly_the_references),
        cmocka_unit_test(mutants_are_caught),
    };

    return cmocka_run_group_tests(tests, load, unload);
}
