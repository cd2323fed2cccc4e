#include "engine/core/calibrate.h"

#include <stdlib.h>

#include "base/clock.h"
#include "engine/core/sequence.h"

#define ROWS_MAX   32   /* of a measured chunk */
#define DEPTH_MAX  2048 /* tokens of the longest sequence; so deep that attention shows */
#define REPEATS    2    /* the quickest counts: whatever disturbs only makes it slower */
#define ROWS_LEAST 2

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

static enum status quickest(struct probe *p, uint32_t position, uint32_t n, bool samples,
                            int64_t *ns)
{
    enum status s = ST_OK;

    *ns = INT64_MAX;
    for (int i = 0; i < REPEATS && s == ST_OK; i++) {
        int64_t took;

        s = run(p, position, n, samples, &took);
        *ns = took < *ns ? took : *ns;
        if (clock_mono_ns() > p->deadline_ns)
            break;
    }
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

/* n rows at the greatest depth: what they take more than at the beginning, per token that they
 * attend to more. What lies before them was never computed; nothing is sampled from it. */
static enum status measure_attended(struct probe *p, uint32_t n, int64_t first_ns, int64_t *out)
{
    uint32_t position = p->depth - n;
    int64_t took = first_ns;
    enum status s = position > 0 ? quickest(p, position, n, false, &took) : ST_OK;

    *out = position > 0 ? (took - first_ns) / ((int64_t)n * position) : 0;
    return s;
}

static uint64_t bounded(int64_t ns, uint64_t most)
{
    return ns < 0 ? 0 : (uint64_t)ns < most ? (uint64_t)ns : most;
}

static enum status measure(struct probe *p, const struct calibrate_limits *l, struct cost *out)
{
    int64_t one, sampled, chunk, row, attended = 0;
    enum status s = run(p, 0, 1, true, &one); /* touches weights and buffers, however long */
    uint32_t n;

    p->deadline_ns = clock_mono_ns() + CALIBRATE_US * 1000ll;
    if (s == ST_OK)
        s = quickest(p, 0, 1, false, &one);
    if (s == ST_OK)
        s = quickest(p, 0, 1, true, &sampled);
    if (s != ST_OK)
        return s;
    n = choose_rows(p, l, one);
    row = one / 2; /* where a step can't have two rows */
    if (n > 1) {
        s = quickest(p, 0, n, false, &chunk);
        row = (chunk - one) / (n - 1);
    }
    if (s == ST_OK && n > 1)
        s = measure_attended(p, n, chunk, &attended);
    row = row < one ? row : one;
    *out = (struct cost){.base_ns = bounded(one - row, COST_NS_MAX),
                         .row_ns = bounded(row, COST_NS_MAX),
                         .attended_ns = bounded(attended, COST_ATTENDED_NS_MAX),
                         .logits_ns = bounded(sampled - one, COST_NS_MAX)};
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
