/* A device on a tiny model that generates as the scheduler would, one sequence at a time. Included
 * by the tests of what the device samples. */
#ifndef TESTS_UNIT_ENGINE_CPU_SAMPLING_RIG_H
#define TESTS_UNIT_ENGINE_CPU_SAMPLING_RIG_H

#include "base/buf.h"
#include "engine/cpu/cpu.h"
#include "engine/model/model.h"
#include "tests/lib/gguf_build.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define MAX_ROWS   32u
#define MAX_SEQ    3u
#define SEQ_TOKENS 96u
#define SEQ_PAGES  (SEQ_TOKENS / KV_PAGE_TOKENS)
#define N_PROMPT   7u
#define N_OUT      40u
#define TOKENS     (N_PROMPT + N_OUT)
#define WORDS      ((TINY_VOCAB + 31) / 32)

static const int32_t prompt[N_PROMPT] = {40, 77, 40, 120, 200, 77, 9};

struct rig {
    struct buf file;
    struct model *model;
    struct device *device;
    const struct device_ops *ops;
    struct step_row rows[MAX_ROWS];
    struct step_sequence sequences[MAX_SEQ];
    uint32_t pages[MAX_SEQ * SEQ_PAGES];
    struct device_step step;
    struct step_result results[MAX_ROWS];
    struct token_logprob tops[MAX_ROWS * TOP_LOGPROBS_MAX];
    struct step_output output; /* into the two above */
};

static inline void rig_open(struct rig *r)
{
    struct tiny_model_options t = {.type = TENSOR_F32, .untied = true, .seed = 5};
    struct device_config cfg = {.mode = DEVICE_FAST,
                                .isa = "auto",
                                .n_threads = 2,
                                .max_rows = MAX_ROWS,
                                .max_sequences = MAX_SEQ,
                                .max_context = SEQ_TOKENS,
                                .n_pages = MAX_SEQ * SEQ_PAGES};
    struct reason why = {.text = ""};

    memset(r, 0, sizeof *r);
    buf_init(&r->file);
    tiny_model_build(&t, &r->file);
    if (model_open_memory(r->file.data, r->file.len, &r->model, &why) != ST_OK)
        fail_msg("%s", why.text);
    cfg.model = r->model;
    if (cpu_device_ops.open(&cfg, &r->device, &why) != ST_OK)
        fail_msg("%s", why.text);
    r->ops = r->device->ops;
    r->output = (struct step_output){.results = r->results, .tops = r->tops};
    for (uint32_t i = 0; i < MAX_SEQ * SEQ_PAGES; i++)
        r->pages[i] = i;
    for (uint32_t s = 0; s < MAX_SEQ; s++)
        r->sequences[s] =
            (struct step_sequence){.slot = s, .first_page = s * SEQ_PAGES, .n_pages = SEQ_PAGES};
}

static inline void rig_close(struct rig *r)
{
    r->ops->close(r->device);
    model_close(r->model);
    buf_dispose(&r->file);
}

static inline void begin(struct rig *r)
{
    r->step = (struct device_step){.n_sequences = MAX_SEQ,
                                   .n_pages = MAX_SEQ * SEQ_PAGES,
                                   .rows = r->rows,
                                   .sequences = r->sequences,
                                   .pages = r->pages,
                                   .want_logits = true};
}

/* Rows of a sequence whose last one samples. */
static inline void add(struct rig *r, uint32_t sequence, const int32_t *ids, uint32_t position,
                       uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        r->rows[r->step.n_rows++] =
            (struct step_row){.id = ids[i],
                              .position = position + i,
                              .sequence = sequence,
                              .want = i + 1 == n ? ROW_SAMPLE : ROW_NOTHING};
}

static inline uint64_t submit(struct rig *r)
{
    uint64_t ticket;

    assert_int_equal(r->ops->submit(r->device, &r->step, &ticket), ST_OK);
    return ticket;
}

static inline void run(struct rig *r)
{
    assert_int_equal(r->ops->complete(r->device, submit(r), &r->output), ST_OK);
}

static inline void set_slot(struct rig *r, uint32_t slot, const struct sampling *s,
                            const int32_t *tokens, uint32_t n_prompt, uint32_t n_tokens)
{
    assert_int_equal(r->ops->slot_set(r->device, slot, s, tokens, n_prompt, n_tokens), ST_OK);
}

/* Prefills tokens[0..n) of a sequence whose slot is set, in chunks, and samples on until tokens
 * holds N_PROMPT + n_out of them. */
static inline void go_on(struct rig *r, uint32_t sequence, int32_t *tokens, uint32_t n,
                         uint32_t n_out)
{
    uint32_t at = 0;

    while (n < N_PROMPT + n_out) {
        uint32_t part = n - at < MAX_ROWS ? n - at : MAX_ROWS;

        begin(r);
        add(r, sequence, tokens + at, at, part);
        at += part;
        if (at < n)
            r->rows[part - 1].want = ROW_NOTHING;
        r->sequences[sequence].output_index = n - N_PROMPT;
        run(r);
        if (at < n)
            continue;
        assert_int_equal(r->output.n, 1);
        assert_int_equal(r->results[0].status, ST_OK);
        tokens[n++] = r->results[0].id;
    }
}

static inline void generate(struct rig *r, uint32_t slot, const struct sampling *s, int32_t *tokens)
{
    memcpy(tokens, prompt, sizeof prompt);
    set_slot(r, slot, s, tokens, N_PROMPT, N_PROMPT);
    go_on(r, slot, tokens, N_PROMPT, N_OUT);
}

static const struct sampling greedy = {.temperature = 0, .top_p = 1};
static const struct sampling penalized = {.temperature = 0,
                                          .top_p = 1,
                                          .repetition_penalty = 1.2f,
                                          .frequency_penalty = 0.4f,
                                          .presence_penalty = 0.3f};
static const struct sampling warm = {.temperature = 1,
                                     .top_p = 0.95f,
                                     .seed = 3,
                                     .repetition_penalty = 1.1f,
                                     .frequency_penalty = 0.5f,
                                     .presence_penalty = 0.2f};

#endif
