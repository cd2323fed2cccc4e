/* All parameters together, on random rows and on an adversary's, against their definitions. */
#include "engine/core/adjust.h"
#include "engine/core/sampler.h"
#include "tests/lib/splitmix64.h"
#include "tests/unit/engine/core/sampling_reference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define VOCAB    300u
#define TOKENS   120u
#define BIASES   6u
#define END_IDS  3u
#define N_CASES  4000u
#define BOUNDARY 1e-5 /* float weights: so near to a limit either side is right */

static struct sampler_scratch *scratch;
static struct history history;

static int setup(void **state)
{
    (void)state;
    scratch = sampler_scratch_new(REFERENCE_VOCAB);
    return scratch != NULL && history_init(&history, VOCAB, 0x7f4a7c15) == ST_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    sampler_scratch_free(scratch);
    history_dispose(&history);
    return 0;
}

static uint64_t random_state;

static uint32_t below(uint32_t n)
{
    return (uint32_t)((splitmix64(&random_state) >> 32) * n >> 32);
}

static float between(float from, float to)
{
    return from + (to - from) * (float)below(1 << 20) / (float)(1 << 20);
}

struct case_ {
    uint32_t n_vocab, n_prompt, n_tokens, output_index;
    float logits[VOCAB];
    int32_t tokens[TOKENS];
    struct logit_bias bias[BIASES];
    int32_t end_ids[END_IDS];
    uint32_t mask[(VOCAB + 31) / 32];
    bool masked;
    struct sampling sampling;
};

static void random_logits(struct case_ *c)
{
    uint32_t kind = below(6);

    for (uint32_t i = 0; i < c->n_vocab; i++) {
        float v = between(-6, 6);

        c->logits[i] = kind == 1   ? 2.5f                      /* all equal */
                       : kind == 2 ? (float)below(3) - 1       /* ties, zeros */
                       : kind == 3 ? v * 500                   /* far past what weighs anything */
                       : kind == 4 ? -20 + v                   /* all negative */
                       : kind == 5 ? v + (i % 50 == 7 ? 9 : 0) /* a few that lead */
                                   : v;
        if (kind != 1 && below(9) == 0 && i > 0)
            c->logits[i] = -INFINITY;
    }
}

static void random_lists(struct case_ *c)
{
    uint32_t n_bias = below(3) == 0 ? below(BIASES) : 0;

    for (uint32_t i = 0; i < n_bias && i < c->n_vocab; i++) /* ids distinct */
        c->bias[c->sampling.n_bias++] = (struct logit_bias){.id = (int32_t)i,
                                                            .bias = below(2) == 0 ? between(-3, 3)
                                                                    : below(2)    ? 100
                                                                                  : -100};
    for (uint32_t i = 0; i < END_IDS; i++)
        c->end_ids[i] = (int32_t)below(c->n_vocab);
    c->masked = below(4) == 0;
    for (uint32_t i = 0; i < (VOCAB + 31) / 32; i++)
        c->mask[i] = below(3) == 0 ? UINT32_MAX : below(UINT32_MAX);
    c->sampling.bias = c->bias;
    c->sampling.end_ids = c->end_ids;
    c->sampling.n_end_ids = below(END_IDS + 1);
}

static void random_case(struct case_ *c)
{
    static const uint32_t sizes[] = {1, 2, 3, 5, 31, 32, 33, 100, VOCAB};
    static const float temperatures[] = {0, 0.01f, 0.3f, 1, 2},
                       top_ps[] = {1, 1, 0.9f, 0.5f, 1e-6f}, min_ps[] = {0, 0, 0.02f, 0.3f, 1},
                       repetitions[] = {0, 1, 1.3f, 2, 0.6f};

    memset(c, 0, sizeof *c);
    c->n_vocab = sizes[below(sizeof sizes / sizeof sizes[0])];
    c->n_tokens = below(TOKENS);
    c->n_prompt = below(c->n_tokens + 1);
    c->output_index = c->n_tokens - c->n_prompt;
    for (uint32_t i = 0; i < c->n_tokens; i++) /* some come often */
        c->tokens[i] = (int32_t)below(below(2) == 0 ? c->n_vocab : 1 + c->n_vocab / 20);
    c->sampling = (struct sampling){.temperature = temperatures[below(5)],
                                    .top_p = top_ps[below(5)],
                                    .top_k = (int32_t)(below(2) == 0 ? 0 : below(2 * c->n_vocab)),
                                    .min_p = min_ps[below(5)],
                                    .repetition_penalty = repetitions[below(5)],
                                    .frequency_penalty = below(2) == 0 ? 0 : between(-2, 2),
                                    .presence_penalty = below(2) == 0 ? 0 : between(-2, 2),
                                    .min_tokens = below(2) == 0 ? 0 : below(TOKENS),
                                    .seed = below(UINT32_MAX),
                                    .choice = below(8)};
    random_logits(c);
    random_lists(c);
}

/* One id's logit before temperature, straight from the definitions. */
static double expected_logit(const struct case_ *c, int32_t id)
{
    const struct sampling *s = &c->sampling;
    double x = (double)c->logits[id];
    uint32_t in_all = 0, in_output = 0;

    for (uint32_t i = 0; i < s->n_bias; i++)
        if (s->bias[i].id == id)
            x += (double)s->bias[i].bias;
    for (uint32_t i = 0; i < s->n_end_ids && c->output_index < s->min_tokens; i++)
        if (s->end_ids[i] == id)
            x = -INFINITY;
    if (c->masked && (c->mask[id / 32] >> id % 32 & 1) == 0)
        x = -INFINITY;
    for (uint32_t i = 0; i < c->n_tokens; i++)
        if (c->tokens[i] == id) {
            in_all++;
            in_output += i >= c->n_prompt;
        }
    if (in_all > 0 && s->repetition_penalty > 0)
        x = x > 0 ? x / (double)s->repetition_penalty : x * (double)s->repetition_penalty;
    x -= (double)s->frequency_penalty * in_output;
    if (in_output > 0)
        x -= (double)s->presence_penalty;
    return x;
}

static void adjust_case(const struct case_ *c, float *logits)
{
    struct adjustment a = {.sampling = &c->sampling,
                           .output_index = c->output_index,
                           .mask = c->masked ? c->mask : NULL};

    history_clear(&history);
    for (uint32_t i = 0; i < c->n_tokens; i++)
        assert_true(i < c->n_prompt ? history_add_prompt(&history, c->tokens[i])
                                    : history_add_output(&history, c->tokens[i]));
    if (sampling_has_penalties(&c->sampling))
        a.history = &history;
    memcpy(logits, c->logits, c->n_vocab * sizeof *logits);
    if (adjust_is_needed(&a))
        adjust_logits(&a, logits, c->n_vocab);
}

static void test_adjusted_logits_are_as_defined(void **state)
{
    static struct case_ c;
    float got[VOCAB];

    (void)state;
    random_state = 1;
    for (uint32_t i = 0; i < N_CASES; i++) {
        random_case(&c);
        adjust_case(&c, got);
        for (uint32_t id = 0; id < c.n_vocab; id++) {
            double want = expected_logit(&c, (int32_t)id);

            if (isinf(want))
                assert_true(got[id] == -INFINITY);
            else
                assert_true(fabs((double)got[id] - want) <= 1e-6 * (200 + fabs(want)));
        }
    }
}

/* Whether `id` is what u draws by inversion from the kept candidates, taken in ascending ids where
 * nothing needs their order and descending by probability where it does. */
static bool inverts(const struct reference_kept *kept, bool by_id, int32_t id, double u)
{
    double before = 0, own = -1;

    for (uint32_t i = 0; i < kept->n; i++) {
        double p = kept->weights[i] / kept->total;

        if (kept->ids[i] == id)
            own = p;
        else if (by_id ? kept->ids[i] < id : own < 0)
            before += p;
    }
    return own > 1e-30 && u > before - BOUNDARY && u < before + own + BOUNDARY;
}

static bool is_right(const struct case_ *c, const float *logits, int32_t id)
{
    static struct reference_kept kept;
    const struct sampling *s = &c->sampling;
    double u = sampler_uniform(s->seed, s->choice, c->output_index);
    bool by_id = s->top_p >= 1 && (s->top_k <= 0 || (uint32_t)s->top_k >= c->n_vocab);

    for (int side = -1; side <= 1; side++) {
        reference_keep(s, logits, c->n_vocab, side * BOUNDARY, &kept);
        if (inverts(&kept, by_id, id, u))
            return true;
    }
    return false;
}

static void test_drawn_ids_are_as_defined(void **state)
{
    static struct case_ c;
    uint32_t drawn = 0, impossible = 0;
    float logits[VOCAB];

    (void)state;
    random_state = 2;
    for (uint32_t i = 0; i < N_CASES; i++) {
        uint32_t best = 0;
        enum status st;
        int32_t id = -1;

        random_case(&c);
        adjust_case(&c, logits);
        for (uint32_t t = 1; t < c.n_vocab; t++)
            best = logits[t] > logits[best] ? t : best;
        st = sampler_pick(&c.sampling, c.output_index, logits, c.n_vocab, scratch, &id);
        if (logits[best] == -INFINITY) { /* nothing is allowed */
            assert_int_equal(st, ST_NO_CHOICE);
            impossible++;
            continue;
        }
        assert_int_equal(st, ST_OK);
        if (c.sampling.temperature == 0)
            assert_int_equal(id, best);
        else
            assert_true(is_right(&c, logits, id));
        drawn++;
    }
    assert_true(drawn > N_CASES / 2 && impossible > 0);
}

/* Penalties and bias through to the draws: chi-square against the definition. */
static void test_adjusted_draws_follow_the_distribution(void **state)
{
    static struct case_ c;
    static float want[VOCAB], logits[VOCAB];

    (void)state;
    random_state = 3;
    for (int i = 0; i < 12; i++) {
        int seen[VOCAB] = {0};

        do
            random_case(&c);
        while (c.n_vocab != 100 || c.sampling.temperature < 0.2f || c.masked ||
               !sampling_has_penalties(&c.sampling));
        adjust_case(&c, logits);
        for (uint32_t id = 0; id < c.n_vocab; id++)
            want[id] = (float)expected_logit(&c, (int32_t)id);
        for (uint32_t d = 0; d < REFERENCE_DRAWS; d++) {
            int32_t id;

            assert_int_equal(sampler_pick(&c.sampling, d, logits, c.n_vocab, scratch, &id), ST_OK);
            seen[id]++;
        }
        assert_true(reference_accepts(&c.sampling, want, c.n_vocab, seen));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adjusted_logits_are_as_defined),
        cmocka_unit_test(test_drawn_ids_are_as_defined),
        cmocka_unit_test(test_adjusted_draws_follow_the_distribution),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
