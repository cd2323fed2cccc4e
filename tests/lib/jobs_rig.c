#include "tests/lib/jobs_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define JOBS_RIG_ROOM 8 /* more than any test has choices at one time */

const int32_t jobs_rig_prompt[JOBS_RIG_PROMPT] = {JOBS_RIG_BYTE('a'), JOBS_RIG_BYTE('b'),
                                                  JOBS_RIG_BYTE('c'), JOBS_RIG_BYTE('d')};

static void open_tokenizer(struct jobs_rig *r)
{
    const struct tiny_model_options o = {0};
    struct gguf_build b;

    gguf_build_init(&b);
    tiny_model_vocabulary(&b, &o);
    gguf_build_finish(&b, &r->file);
    gguf_build_dispose(&b);
    assert_int_equal(gguf_open_memory(r->file.data, r->file.len, &r->gguf, NULL), ST_OK);
    assert_int_equal(tokenizer_new(r->gguf, &r->tokenizer, NULL), ST_OK);
}

static void open_conn(struct jobs_rig *r)
{
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    conn_init(&r->conn, fds[0], 1 << 30);
    r->fd = fds[1];
}

void jobs_rig_open(struct jobs_rig *r, uint32_t max_sequences, uint32_t queue_max)
{
    const struct scheduler_config cfg = {.max_sequences = max_sequences,
                                         .prefill_rows = 2,
                                         .max_context = 512,
                                         .n_pages = 128,
                                         .queue_max = queue_max,
                                         .depth = 1};
    const struct cache_domain cache = {.revision = "r1", .mode = DEVICE_EXACT, .kv_type = 3};

    memset(r, 0, sizeof *r);
    open_tokenizer(r);
    open_conn(r);
    assert_int_equal(jobs_init(&r->jobs, r->tokenizer, &cache), ST_OK);
    assert_int_equal(scheduler_new(&cfg, &jobs_events, &r->jobs, &r->scheduler), ST_OK);
    r->jobs.scheduler = r->scheduler;
    r->now_us = 1000;
}

void jobs_rig_close(struct jobs_rig *r)
{
    struct scheduler_stats st;

    scheduler_stats(r->scheduler, &st);
    assert_int_equal(r->jobs.n, 0);
    assert_int_equal(st.running + st.waiting + st.pages_used, 0);
    scheduler_free(r->scheduler);
    jobs_dispose(&r->jobs);
    conn_dispose(&r->conn);
    close(r->fd);
    tokenizer_free(r->tokenizer);
    gguf_close(r->gguf);
    buf_dispose(&r->file);
    buf_dispose(&r->in);
    for (size_t i = 0; i < JOBS_RIG_CHOICES; i++) {
        buf_dispose(&r->heard[i].text);
        buf_dispose(&r->heard[i].spelled);
    }
}

/* ---- the gateway ---- */

struct wire_submit jobs_rig_request(uint32_t n_choices, uint32_t max_tokens)
{
    return (struct wire_submit){.job = 1,
                                .tenant = 1,
                                .weight = 1000,
                                .max_tokens = max_tokens,
                                .n_choices = n_choices,
                                .sampling = {.top_p = 1.0f},
                                .n_prompt = JOBS_RIG_PROMPT,
                                .prompt = jobs_rig_prompt};
}

void jobs_rig_submit(struct jobs_rig *r, const struct wire_submit *v)
{
    struct wire_frame f;
    struct buf frame;
    size_t used;

    buf_init(&frame);
    wire_put_submit(&frame, v);
    assert_int_equal(wire_scan(frame.data, frame.len, &f, &used), WIRE_SCAN_FRAME);
    assert_int_equal(jobs_submit(&r->jobs, &r->conn, &f, r->now_us), ST_OK);
    buf_dispose(&frame);
}

void jobs_rig_open_saying(struct jobs_rig *r, const struct wire_submit *v, const char *text)
{
    jobs_rig_open(r, JOBS_RIG_ROOM, JOBS_RIG_ROOM);
    r->says[0] = text;
    jobs_rig_submit(r, v);
}

void jobs_rig_open_sampling(struct jobs_rig *r, const struct wire_submit *v, const int32_t *ids,
                            size_t n)
{
    jobs_rig_open(r, JOBS_RIG_ROOM, JOBS_RIG_ROOM);
    r->ids[0] = ids;
    r->n_ids[0] = n;
    jobs_rig_submit(r, v);
}

void jobs_rig_cancel(struct jobs_rig *r, uint64_t job)
{
    struct wire_frame f;
    struct buf frame;
    size_t used;

    buf_init(&frame);
    wire_put_cancel(&frame, job);
    assert_int_equal(wire_scan(frame.data, frame.len, &f, &used), WIRE_SCAN_FRAME);
    assert_int_equal(jobs_cancel(&r->jobs, &r->conn, &f, r->now_us), ST_OK);
    buf_dispose(&frame);
}

static void hear_samples(struct jobs_rig *r, const struct wire_step_entry *e)
{
    struct jobs_heard *h = &r->heard[e->choice];

    for (uint32_t i = 0; i < e->n_tokens; i++) {
        const struct token_sample *t = &e->tokens[i];
        size_t len;
        const char *piece = tokenizer_piece(r->tokenizer, t->id, &len);

        assert_true(t->logprob == -(float)t->id);
        assert_true(t->n_tops == 1 && t->tops[0].id == t->id + 1);
        if (e->is_prompt) {
            if (r->n_prompt_samples < JOBS_RIG_ROWS)
                r->prompt_ids[r->n_prompt_samples] = t->id;
            r->n_prompt_samples++;
            continue;
        }
        buf_append(&h->spelled, piece, len);
        h->n_samples++;
    }
}

static void hear_entry(struct jobs_rig *r, const struct wire_step_entry *e)
{
    struct jobs_heard *h = &r->heard[e->choice];

    assert_int_equal(r->n_finals, 0);
    assert_int_equal(h->finish, ENGINE_FINISH_NONE);
    assert_true(e->output_tokens >= r->output_tokens && e->prompt_tokens >= r->prompt_tokens);
    r->prompt_tokens = e->prompt_tokens;
    r->output_tokens = e->output_tokens;
    hear_samples(r, e);
    if (e->is_prompt)
        return;
    buf_append(&h->text, e->text, e->text_len);
    h->finish = (enum engine_finish)e->finish;
    h->n_entries++;
}

static void hear_frame(struct jobs_rig *r, const struct wire_frame *f)
{
    struct wire_step_entry e;
    struct wire_step step;
    struct buf scratch;

    if (f->type == WIRE_FINAL) {
        assert_int_equal(wire_get_final(f, &r->end), ST_OK);
        r->n_finals++;
        return;
    }
    assert_int_equal(f->type, WIRE_STEP);
    r->n_steps++;
    r->longest_frame = f->len > r->longest_frame ? f->len : r->longest_frame;
    buf_init(&scratch);
    assert_int_equal(wire_get_step(f, &scratch, &step), ST_OK);
    while (wire_step_next(&step, &e))
        hear_entry(r, &e);
    buf_dispose(&scratch);
}

void jobs_rig_listen(struct jobs_rig *r)
{
    struct wire_frame f;
    char some[4096];
    ssize_t n;
    size_t used;

    do {
        conn_flush(&r->conn);
        while ((n = recv(r->fd, some, sizeof some, 0)) > 0)
            buf_append(&r->in, some, (size_t)n);
    } while (conn_wants_write(&r->conn));
    while (wire_scan(r->in.data, r->in.len, &f, &used) == WIRE_SCAN_FRAME) {
        hear_frame(r, &f);
        buf_consume(&r->in, used);
    }
    assert_int_equal(r->in.len, 0);
}

/* ---- the device ---- */

static int32_t pick(const struct jobs_rig *r, uint32_t choice, uint32_t at)
{
    if (r->ids[choice] != NULL)
        return at < r->n_ids[choice] ? r->ids[choice][at] : JOBS_RIG_BYTE('.');
    return r->says[choice] != NULL && at < strlen(r->says[choice])
               ? JOBS_RIG_BYTE(r->says[choice][at])
               : JOBS_RIG_BYTE('.');
}

static void sample(const struct jobs_rig *r, const struct scheduled_step *step, uint32_t row,
                   struct step_output *out)
{
    const struct step_row *in = &step->step.rows[row];
    const struct sequence *s = step->entries[in->sequence].sequence;
    struct step_result *result = &out->results[out->n];
    uint32_t at = step->step.sequences[in->sequence].output_index;

    *result = (struct step_result){.row = row, .n_tops = 1};
    result->id = in->want == ROW_SCORE ? in->target : pick(r, s->sampling.choice, at);
    result->logprob = -(float)result->id;
    out->tops[out->n * TOP_LOGPROBS_MAX] = (struct token_logprob){result->id + 1, -9.0f};
    if (s->sampling.choice == r->bad_choice && at >= r->bad_at)
        result->status = r->bad_status;
    out->n++;
}

bool jobs_rig_turn(struct jobs_rig *r)
{
    static struct step_result results[JOBS_RIG_ROWS];
    static struct token_logprob tops[JOBS_RIG_ROWS * TOP_LOGPROBS_MAX];
    struct step_output out = {.results = results, .tops = tops};
    struct scheduled_step *step = scheduler_build(r->scheduler, r->now_us);

    r->now_us += 1000;
    if (step != NULL) {
        scheduler_submitted(r->scheduler, step, 1);
        for (uint32_t i = 0; i < step->step.n_rows; i++)
            if (step->step.rows[i].want != ROW_NOTHING)
                sample(r, step, i, &out);
        if (r->fails)
            scheduler_fail(r->scheduler, step, r->now_us);
        else
            scheduler_apply(r->scheduler, step, &out, r->now_us);
    }
    jobs_settle(&r->jobs, r->now_us);
    jobs_rig_listen(r);
    return step != NULL;
}

void jobs_rig_run(struct jobs_rig *r)
{
    while (jobs_rig_turn(r))
        continue;
}

const struct jobs_heard *jobs_rig_text_is(struct jobs_rig *r, uint32_t choice, const char *want)
{
    assert_string_equal(buf_cstr(&r->heard[choice].text), want);
    return &r->heard[choice];
}

void jobs_rig_spells(struct jobs_rig *r, uint32_t choice, const char *want)
{
    jobs_rig_text_is(r, choice, want);
    assert_string_equal(buf_cstr(&r->heard[choice].spelled), want);
}
