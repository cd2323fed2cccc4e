#include "engine/core/calibrate.h"

#include <stdlib.h>

#include "base/clock.h"
#include "engine/core/sequence.h"

#define ROWS_MAX   32   /* of a measured chunk */
#define DEPTH_MAX  2048 /* tokens of the longest sequence; so deep that attention shows */
#define ROWS_LEAST 2

/* Bounds of what is believed. A row is 1/256 of a step of one at least: less is lost in the noise,
 * and bounds no step. The work of a row is 2 multiplications per weight, 24 d^2 in each layer of
 * width d, against 4 d for a token that it attends to: 1/6d, or 1/128 where attention is slow. */
#define ROW_PART      256
#define ATTENDED_PART 128

struct probe {
    struct device *device;
    struct device_step step;
    struct step_output output;
    int32_t *tokens; /* (depth), all 0 */
    uint32_t depth;
    int64_t deadline_ns;
};

static enum status probe_init(struct probe *p, struct device *d, const struct calibrate_limits *l)
{
    uint32_t most =
        l->n_pages < DEPTH_MAX / KV_PAGE_TOKENS ? l->n_pages * KV_PAGE_TOKENS : DEPTH_MAX;

    *p = (struct probe){.device = d, .depth = most < l->max_context ? most : l->max_context};
    p->step.rows = calloc(ROWS_MAX, sizeof p->step.rows[0]);
    p->step.sequences = calloc(1, sizeof p->step.sequences[0]);
    p->step.pages = calloc(sequence_pages_for(p->depth), sizeof p->step.pages[0]);
    p->tokens = calloc(p->depth, sizeof p->tokens[0]);
    p->output.results = calloc(ROWS_MAX, sizeof p->output.results[0]);
    p->output.tops = calloc((size_t)ROWS_MAX * TOP_LOGPROBS_MAX, sizeof p->output.tops[0]);
    if (p->step.rows == NULL || p->step.sequences == NULL || p->step.pages == NULL ||
        p->tokens == NULL || p->output.results == NULL || p->output.tops == NULL)
        return ST_NO_MEMORY;
    p->step.n_sequences = 1;
    p->step.n_pages = p->step.sequences[0].n_pages = sequence_pages_for(p->depth);
    for (uint32_t i = 0; i < p->step.n_pages; i++)
        p->step.pages[i] = i;
    return ST_OK;
}

static void probe_dispose(struct probe *p)
{
    free(p->step.rows);
    free(p->step.sequences);
    free(p->step.pages);
    free(p->tokens);
    free(p->output.results);
    free(p->output.tops);
}

/* n rows from `position`; the last one samples, if it is to. */
static enum status run(struct probe *p, uint32_t position, uint32_t n, bool samples, int64_t *ns)
{
    static const struct sampling greedy = {.top_p = 1};
    const struct device_ops *ops = p->device->ops;
    int64_t start;
    uint64_t ticket;
    enum status s = ops->slot_set(p->device, 0, &greedy, p->tokens, position + n, position + n);

    p->step.n_rows = n;
    for (uint32_t i = 0; i < n; i++)
        p->step.rows[i] = (struct step_row){.position = position + i};
    p->step.rows[n - 1].want = samples ? ROW_SAMPLE : ROW_NOTHING;
    start = clock_mono_ns();
    if (s == ST_OK)
        s = ops->submit(p->device, &p->step, &ticket);
    if (s == ST_OK)
        s = ops->complete(p->device, ticket, &p->output);
    *ns = clock_mono_ns() - start;
    return s;
}

/* As many as the time that is left would allow if a row took as long as a step of one. */
static uint32_t choose_rows(const struct probe *p, const struct calibrate_limits *l, int64_t one_ns)
{
    int64_t left = p->deadline_ns - clock_mono_ns(), n = one_ns > 0 ? left / one_ns : ROWS_MAX;
    uint32_t most = l->max_rows < ROWS_MAX ? l->max_rows : ROWS_MAX;

    most = most < p->depth ? most : p->depth;
    n = n < ROWS_LEAST ? ROWS_LEAST : n;
    return n < most ? (uint32_t)n : most;
}

static int64_t median(const int64_t *ns, uint32_t n)
{
    int64_t sorted[CALIBRATE_ROUNDS] = {0};

    for (uint32_t i = 0, at; i < n; i++) {
        for (at = i; at > 0 && sorted[at - 1] > ns[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = ns[i];
    }
    return sorted[n / 2];
}

static uint64_t bounded(int64_t ns, uint64_t most)
{
    return ns < 0 ? 0 : (uint64_t)ns < most ? (uint64_t)ns : most;
}

static int64_t clamp(int64_t v, int64_t least, int64_t most)
{
    return v < least ? least : v > most ? most : v;
}

struct cost calibrate_fit(const struct calibrate_times *t)
{
    int64_t took[CALIBRATE_STEPS], row, attended = 0;

    for (int i = 0; i < CALIBRATE_STEPS; i++)
        took[i] = median(t->ns[i], t->n_rounds);
    row = took[CALIBRATE_ONE] / 2; /* where a step can't have two rows */
    if (t->n_rows > 1)
        row = (took[CALIBRATE_CHUNK] - took[CALIBRATE_ONE]) / (t->n_rows - 1);
    row = clamp(row, 1 + took[CALIBRATE_ONE] / ROW_PART, 1 + took[CALIBRATE_ONE]);
    if (t->position > 0)
        attended =
            (took[CALIBRATE_DEEP] - took[CALIBRATE_CHUNK]) / ((int64_t)t->n_rows * t->position);
    return (struct cost){
        .base_ns = bounded(took[CALIBRATE_ONE] - row, COST_NS_MAX),
        .row_ns = bounded(row, COST_NS_MAX),
        .attended_ns = bounded(clamp(attended, 0, row / ATTENDED_PART), COST_ATTENDED_NS_MAX),
        .logits_ns = bounded(took[CALIBRATE_SAMPLED] - took[CALIBRATE_ONE], COST_NS_MAX)};
}

/* One after the other, so that what changes meanwhile changes all of them. What lies before the
 * deep rows was never computed; nothing is sampled from it. */
static enum status measure_round(struct probe *p, struct calibrate_times *t)
{
    const uint32_t i = t->n_rounds;
    enum status s = run(p, 0, 1, false, &t->ns[CALIBRATE_ONE][i]);

    if (s == ST_OK)
        s = run(p, 0, 1, true, &t->ns[CALIBRATE_SAMPLED][i]);
    if (s == ST_OK && t->n_rows > 1)
        s = run(p, 0, t->n_rows, false, &t->ns[CALIBRATE_CHUNK][i]);
    if (s == ST_OK && t->position > 0)
        s = run(p, t->position, t->n_rows, false, &t->ns[CALIBRATE_DEEP][i]);
    t->n_rounds++;
    return s;
}

static enum status measure(struct probe *p, const struct calibrate_limits *l, struct cost *out)
{
    struct calibrate_times t = {0};
    int64_t one;
    enum status s = run(p, 0, 1, true, &one); /* touches weights and buffers, however long */

    p->deadline_ns = clock_mono_ns() + CALIBRATE_US * 1000ll;
    if (s == ST_OK)
        s = run(p, 0, 1, false, &one);
    if (s != ST_OK)
        return s;
    t.n_rows = choose_rows(p, l, one);
    t.position = t.n_rows > 1 ? p->depth - t.n_rows : 0;
    do {
        s = measure_round(p, &t);
    } while (s == ST_OK && t.n_rounds < CALIBRATE_ROUNDS && clock_mono_ns() < p->deadline_ns);
    *out = calibrate_fit(&t);
    return s;
}

enum status calibrate(struct device *d, const struct calibrate_limits *limits, struct cost *out)
{
    struct probe p;
    enum status s = probe_init(&p, d, limits);

    if (s == ST_OK)
        s = measure(&p, limits, out);
    probe_dispose(&p);
    if (s != ST_OK)
        *out =
            cost_cautious((uint64_t)limits->step_us * 1000, limits->max_sequences + KV_PAGE_TOKENS);
    return s;
}
