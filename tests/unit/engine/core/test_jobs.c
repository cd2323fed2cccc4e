/* Jobs over a real scheduler and a real connection; the test is the device, and says what each
 * choice samples. */
#include "engine/core/jobs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/size.h"
#include "engine/core/job.h"
#include "tests/lib/gguf_build.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define CHOICES  4
#define BYTE(c)  (TINY_BYTE0 + (unsigned char)(c))
#define HELLO    (TINY_MERGE0 + 3)
#define MAX_ROWS 64

struct heard {
    struct buf text, spelled; /* spelled: bytes of the tokens whose samples came */
    uint32_t n_entries, n_samples;
    enum engine_finish finish;
};

struct rig {
    struct buf file;
    struct gguf *gguf;
    struct tokenizer *tokenizer;
    struct scheduler *scheduler;
    struct jobs jobs;
    struct conn conn;
    int fd; /* the gateway's */
    int64_t now_us;
    /* What choices sample: the bytes of a text, or ids; then dots. */
    const char *says[CHOICES];
    const int32_t *ids[CHOICES];
    size_t n_ids[CHOICES];
    uint32_t nan_choice, nan_at; /* nan_at 0: none */
    bool fails;                  /* the device, in the next step */
    /* What the gateway heard. */
    struct buf in;
    struct heard heard[CHOICES];
    uint32_t n_finals, prompt_tokens, output_tokens, n_steps;
    size_t longest_frame;
    uint32_t n_prompt_samples;
    int32_t prompt_ids[MAX_ROWS]; /* of the first of them */
    struct wire_final end;
};

static const int32_t prompt[] = {BYTE('a'), BYTE('b'), BYTE('c'), BYTE('d')};

static void open_tokenizer(struct rig *r)
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

static void open_conn(struct rig *r)
{
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    conn_init(&r->conn, fds[0], 1 << 30);
    r->fd = fds[1];
}

static void rig_open(struct rig *r, uint32_t max_sequences, uint32_t queue_max)
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

/* Every test ends here: no job, page or sequence is left. */
static void rig_close(struct rig *r)
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
    for (size_t i = 0; i < CHOICES; i++) {
        buf_dispose(&r->heard[i].text);
        buf_dispose(&r->heard[i].spelled);
    }
}

/* ---- the gateway ---- */

static struct wire_submit request(uint32_t n_choices, uint32_t max_tokens)
{
    return (struct wire_submit){.job = 1,
                                .tenant = 1,
                                .weight = 1000,
                                .max_tokens = max_tokens,
                                .n_choices = n_choices,
                                .sampling = {.top_p = 1.0f},
                                .n_prompt = COUNT_OF(prompt),
                                .prompt = prompt};
}

static void submit(struct rig *r, const struct wire_submit *v)
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

static void cancel(struct rig *r, uint64_t job)
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

static void hear_samples(struct rig *r, const struct wire_step_entry *e)
{
    struct heard *h = &r->heard[e->choice];

    for (uint32_t i = 0; i < e->n_tokens; i++) {
        const struct token_sample *t = &e->tokens[i];
        size_t len;
        const char *piece = tokenizer_piece(r->tokenizer, t->id, &len);

        assert_true(t->logprob == -(float)t->id);
        assert_true(t->n_tops == 1 && t->tops[0].id == t->id + 1);
        if (e->is_prompt) {
            if (r->n_prompt_samples < MAX_ROWS)
                r->prompt_ids[r->n_prompt_samples] = t->id;
            r->n_prompt_samples++;
            continue;
        }
        buf_append(&h->spelled, piece, len);
        h->n_samples++;
    }
}

static void hear_entry(struct rig *r, const struct wire_step_entry *e)
{
    struct heard *h = &r->heard[e->choice];

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

static void hear_frame(struct rig *r, const struct wire_frame *f)
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

static void listen_to_engine(struct rig *r)
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

static int32_t pick(const struct rig *r, uint32_t choice, uint32_t at)
{
    if (r->ids[choice] != NULL)
        return at < r->n_ids[choice] ? r->ids[choice][at] : BYTE('.');
    return r->says[choice] != NULL && at < strlen(r->says[choice]) ? BYTE(r->says[choice][at])
                                                                   : BYTE('.');
}

static void sample(const struct rig *r, const struct scheduled_step *step, uint32_t row,
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
    if (r->nan_at != 0 && s->sampling.choice == r->nan_choice && at >= r->nan_at)
        result->status = ST_INTERNAL;
    out->n++;
}

/* One step and its frames; false: there was nothing to do. */
static bool turn(struct rig *r)
{
    static struct step_result results[MAX_ROWS];
    static struct token_logprob tops[MAX_ROWS * TOP_LOGPROBS_MAX];
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
    listen_to_engine(r);
    return step != NULL;
}

static void run(struct rig *r)
{
    while (turn(r))
        continue;
}

static const struct heard *text_is(struct rig *r, uint32_t choice, const char *want)
{
    assert_string_equal(buf_cstr(&r->heard[choice].text), want);
    return &r->heard[choice];
}

/* The bytes of the sent tokens are the text. */
static void spells_its_text(struct rig *r, uint32_t choice, const char *want)
{
    text_is(r, choice, want);
    assert_string_equal(buf_cstr(&r->heard[choice].spelled), want);
}

/* ---- choices ---- */

static void test_each_choice_has_its_text_and_its_finish(void **state)
{
    static const int32_t ends_itself[] = {BYTE('d'), TINY_IM_END};
    struct wire_submit v = request(4, 3);
    struct text_span stop = {"2", 1, false};
    struct rig r;

    (void)state;
    rig_open(&r, 8, 8);
    r.says[0] = "abc";
    r.says[1] = "123";
    r.says[2] = "xyz";
    r.ids[3] = ends_itself;
    r.n_ids[3] = COUNT_OF(ends_itself);
    v.stops[0] = stop;
    v.n_stops = 1;
    submit(&r, &v);
    run(&r);
    assert_int_equal(text_is(&r, 0, "abc")->finish, ENGINE_FINISH_LENGTH);
    assert_int_equal(text_is(&r, 1, "1")->finish, ENGINE_FINISH_STOP);
    assert_int_equal(text_is(&r, 2, "xyz")->finish, ENGINE_FINISH_LENGTH);
    assert_int_equal(text_is(&r, 3, "d")->finish, ENGINE_FINISH_STOP);
    assert_int_equal(r.n_finals, 1);
    assert_int_equal(r.end.status, ST_OK);
    assert_int_equal(r.end.finish, ENGINE_FINISH_LENGTH);
    assert_int_equal(r.end.prompt_tokens, COUNT_OF(prompt));
    assert_int_equal(r.end.output_tokens, 3 + 2 + 3 + 2);
    assert_int_equal(r.output_tokens, r.end.output_tokens);
    rig_close(&r);
}

static void test_a_cancel_ends_all_choices_with_one_end(void **state)
{
    struct wire_submit v = request(3, 100);
    struct rig r;

    (void)state;
    rig_open(&r, 8, 8);
    submit(&r, &v);
    while (r.output_tokens < 10)
        assert_true(turn(&r));
    cancel(&r, 1);
    cancel(&r, 1); /* crossed with its end: no fault */
    run(&r);
    assert_int_equal(r.n_finals, 1);
    assert_int_equal(r.end.status, ST_CANCELLED);
    assert_int_equal(r.end.finish, ENGINE_FINISH_NONE);
    assert_int_equal(r.end.prompt_tokens, COUNT_OF(prompt));
    assert_int_equal(r.end.output_tokens, r.output_tokens);
    rig_close(&r);
}

static void test_nan_in_one_choice_ends_them_all_and_costs_nothing(void **state)
{
    struct wire_submit v = request(3, 100);
    struct rig r;

    (void)state;
    rig_open(&r, 8, 8);
    r.nan_choice = 1;
    r.nan_at = 4;
    submit(&r, &v);
    run(&r);
    assert_int_equal(r.n_finals, 1);
    assert_int_equal(r.end.status, ST_INTERNAL);
    assert_int_equal(r.end.prompt_tokens + r.end.output_tokens, 0);
    assert_true(r.output_tokens >= 3 * 4 && r.output_tokens <= 3 * 5 + 1);
    rig_close(&r);
}

static void test_a_choice_that_is_done_does_not_hide_the_failure_of_another(void **state)
{
    static const int32_t ends_itself[] = {TINY_IM_END};
    struct wire_submit v = request(2, 100);
    struct rig r;

    (void)state;
    rig_open(&r, 8, 8);
    r.ids[0] = ends_itself;
    r.n_ids[0] = 1;
    r.nan_choice = 1;
    r.nan_at = 4;
    submit(&r, &v);
    run(&r);
    assert_int_equal(text_is(&r, 0, "")->finish, ENGINE_FINISH_STOP);
    assert_int_equal(r.n_finals, 1);
    assert_int_equal(r.end.status, ST_INTERNAL);
    assert_int_equal(r.end.prompt_tokens + r.end.output_tokens, 0);
    rig_close(&r);
}

static void test_a_failed_step_ends_all_choices_with_one_end(void **state)
{
    struct wire_submit v = request(3, 100);
    struct rig r;

    (void)state;
    rig_open(&r, 8, 8);
    submit(&r, &v);
    while (r.output_tokens < 10)
        assert_true(turn(&r));
    r.fails = true;
    run(&r);
    assert_int_equal(r.n_finals, 1);
    assert_int_equal(r.end.status, ST_INTERNAL);
    assert_int_equal(r.end.output_tokens, r.output_tokens); /* as for one choice: these were sent */
    rig_close(&r);
}

static void test_a_queue_without_room_for_all_choices_takes_none(void **state)
{
    struct wire_submit v = request(4, 8);
    struct rig r;

    (void)state;
    rig_open(&r, 1, 3);
    submit(&r, &v);
    assert_int_equal(r.jobs.n, 0);
    assert_false(turn(&r));
    assert_int_equal(r.n_finals, 1);
    assert_int_equal(r.end.status, ST_OVERLOADED);
    assert_in_range(r.end.retry_after_ms, 1000, 60000);
    v.n_choices = 3;
    r.n_finals = 0;
    submit(&r, &v);
    run(&r);
    assert_int_equal(r.n_finals, 1);
    assert_int_equal(r.end.status, ST_OK);
    assert_int_equal(r.end.output_tokens, 3 * 8);
    rig_close(&r);
}

static void test_more_choices_than_slots_all_get_their_turn(void **state)
{
    struct wire_submit v = request(4, 2);
    struct rig r;

    (void)state;
    rig_open(&r, 1, 8);
    for (uint32_t i = 0; i < CHOICES; i++)
        r.says[i] = (const char *[]){"aa", "bb", "cc", "dd"}[i];
    submit(&r, &v);
    run(&r);
    text_is(&r, 0, "aa");
    text_is(&r, 3, "dd");
    assert_int_equal(r.end.status, ST_OK);
    assert_int_equal(r.end.prompt_tokens, COUNT_OF(prompt));
    rig_close(&r);
}

/* The connection is lost after so many steps: queued, in its prefill, decoding. */
static void lose_connection_after(int n_turns)
{
    struct wire_submit v = request(3, 100);
    struct rig r;

    rig_open(&r, 2, 8);
    submit(&r, &v);
    while (n_turns-- > 0)
        assert_true(turn(&r));
    r.output_tokens = 0;
    jobs_drop(&r.jobs, &r.conn, r.now_us);
    run(&r);
    assert_int_equal(r.n_finals + r.output_tokens, 0); /* nobody is told */
    rig_close(&r);
}

static void test_jobs_of_a_lost_connection_end_at_any_point(void **state)
{
    (void)state;
    for (int n = 0; n < 8; n++)
        lose_connection_after(n);
}

static void test_an_id_outside_the_vocabulary_is_refused_wherever_it_stands(void **state)
{
    static const int32_t outside[] = {TINY_VOCAB};
    static const struct logit_bias bias[] = {{1, 1.0f}, {TINY_VOCAB, 1.0f}};
    struct wire_submit v[] = {request(1, 8), request(1, 8), request(1, 8)};
    struct rig r;

    (void)state;
    rig_open(&r, 1, 3);
    v[0].prompt = outside;
    v[0].n_prompt = 1;
    v[1].stop_ids = outside;
    v[1].n_stop_ids = 1;
    v[2].sampling.bias = bias;
    v[2].sampling.n_bias = 2;
    for (uint32_t i = 0; i < COUNT_OF(v); i++) {
        r.n_finals = 0;
        submit(&r, &v[i]);
        assert_false(turn(&r));
        assert_int_equal(r.n_finals, 1);
        assert_int_equal(r.end.status, ST_INVALID);
    }
    rig_close(&r);
}

/* ---- ends ---- */

static void test_a_stop_id_ends_a_choice_and_gives_no_text(void **state)
{
    static const int32_t stop_ids[] = {BYTE('!'), BYTE('x')};
    struct wire_submit v = request(2, 8);
    struct rig r;

    (void)state;
    rig_open(&r, 8, 8);
    v.stop_ids = stop_ids;
    v.n_stop_ids = COUNT_OF(stop_ids);
    v.ignore_eos = true; /* stop ids end it all the same */
    v.sampling.want_logprobs = true;
    v.sampling.top_logprobs = 1;
    r.says[0] = "hi!..";
    submit(&r, &v);
    run(&r);
    spells_its_text(&r, 0, "hi");
    assert_int_equal(r.heard[0].finish, ENGINE_FINISH_STOP);
    spells_its_text(&r, 1, "........");
    assert_int_equal(r.heard[1].finish, ENGINE_FINISH_LENGTH);
    assert_int_equal(r.end.output_tokens, 3 + 8);
    rig_close(&r);
}

static void test_stop_strings_are_not_looked_for_before_min_tokens(void **state)
{
    struct wire_submit v = request(1, 12);
    struct rig r;

    (void)state;
    rig_open(&r, 8, 8);
    v.sampling.min_tokens = 5;
    v.stops[0] = (struct text_span){"ab", 2, false};
    v.n_stops = 1;
    r.says[0] = "xabxabxabx"; /* the second begins before and ends after: it is none either */
    submit(&r, &v);
    run(&r);
    text_is(&r, 0, "xabxabx");
    assert_int_equal(r.heard[0].finish, ENGINE_FINISH_STOP);
    assert_int_equal(r.end.output_tokens, 9);
    rig_close(&r);
}

static void test_a_stop_string_that_half_a_character_completes_is_a_stop(void **state)
{
    struct wire_submit v = request(1, 3);
    struct rig r;

    (void)state;
    rig_open(&r, 8, 8);
    v.stops[0] = (struct text_span){"\uFFFD", 3, false};
    v.n_stops = 1;
    r.says[0] = "a\xF0\x9F";
    submit(&r, &v);
    run(&r);
    text_is(&r, 0, "a");
    assert_int_equal(r.heard[0].finish, ENGINE_FINISH_STOP);
    assert_int_equal(r.end.finish, ENGINE_FINISH_STOP);
    assert_int_equal(r.end.output_tokens, 3);
    rig_close(&r);
}

static bool holds(const struct sampling *s, int32_t id)
{
    for (uint32_t i = 0; i < s->n_end_ids; i++)
        if (s->end_ids[i] == id)
            return true;
    return false;
}

static void test_what_min_tokens_forbids_is_every_id_that_would_end_the_choice(void **state)
{
    static const int32_t stop_ids[] = {BYTE('!')};
    struct wire_submit v = request(2, 1);
    const struct sampling *s;
    struct rig r;

    (void)state;
    rig_open(&r, 8, 8);
    v.stop_ids = stop_ids;
    v.n_stop_ids = 1;
    for (int ignore_eos = 0; ignore_eos < 2; ignore_eos++) {
        v.ignore_eos = ignore_eos != 0;
        submit(&r, &v);
        s = &r.conn.jobs->choices[1].sequence.sampling;
        assert_true(holds(s, BYTE('!')));
        assert_int_equal(holds(s, TINY_IM_END), !v.ignore_eos);
        assert_int_equal(s->choice, 1);
        cancel(&r, 1);
    }
    listen_to_engine(&r);
    rig_close(&r);
}

static void test_the_deadline_in_the_queue_is_the_first_choices(void **state)
{
    struct wire_submit v = request(2, 1);
    struct rig r;

    (void)state;
    rig_open(&r, 8, 8);
    v.queue_max_ms = 7;
    submit(&r, &v);
    assert_int_equal(r.conn.jobs->choices[0].sequence.queue_deadline_us, r.now_us + 7000);
    assert_int_equal(r.conn.jobs->choices[1].sequence.queue_deadline_us, 0);
    assert_ptr_equal(r.conn.jobs->choices[1].sequence.leader, &r.conn.jobs->choices[0].sequence);
    assert_null(r.conn.jobs->choices[0].sequence.leader);
    run(&r);
    rig_close(&r);
}

static void test_a_job_that_waited_too_long_ends_whole_and_says_when_to_retry(void **state)
{
    struct wire_submit v = request(3, 8);
    struct rig r;

    (void)state;
    rig_open(&r, 8, 8);
    v.queue_max_ms = 7;
    submit(&r, &v);
    r.now_us += 7001;
    run(&r);
    assert_int_equal(r.n_finals, 1);
    assert_int_equal(r.end.status, ST_TIMEOUT);
    assert_int_equal(r.end.prompt_tokens + r.end.output_tokens, 0);
    assert_in_range(r.end.retry_after_ms, 1000, 60000);
    assert_true(r.end.queue_us >= 7000);
    rig_close(&r);
}

static void test_pages_are_of_the_salt_in_the_frame_and_of_this_engine(void **state)
{
    struct wire_submit v = request(2, 1);
    const struct cache_domain *first, *second;
    struct rig r;

    (void)state;
    rig_open(&r, 8, 8);
    memset(v.salt, 0xA5, sizeof v.salt);
    submit(&r, &v);
    first = r.conn.jobs->choices[0].sequence.cache;
    second = r.conn.jobs->choices[1].sequence.cache;
    assert_ptr_equal(first, second);
    assert_memory_equal(first->salt, v.salt, sizeof v.salt);
    assert_string_equal(first->revision, "r1");
    assert_true(first->mode == DEVICE_EXACT && first->kv_type == 3 && !first->has_adapter);
    run(&r);
    rig_close(&r);
}

/* ---- log-probabilities ---- */

static struct wire_submit with_logprobs(uint32_t max_tokens, const char *stop)
{
    struct wire_submit v = request(1, max_tokens);

    v.sampling.want_logprobs = true;
    v.sampling.top_logprobs = 1;
    v.ignore_eos = true;
    if (stop != NULL) {
        v.stops[0] = (struct text_span){stop, strlen(stop), false};
        v.n_stops = 1;
    }
    return v;
}

static void test_samples_wait_for_a_stop_string_that_does_not_come(void **state)
{
    struct wire_submit v = with_logprobs(8, "llama");
    struct rig r;

    (void)state;
    rig_open(&r, 8, 8);
    r.says[0] = "hell!llx";
    submit(&r, &v);
    while (r.heard[0].n_entries < 4)
        turn(&r);
    spells_its_text(&r, 0, "he"); /* "ll" is held back, and so are its samples */
    turn(&r);
    spells_its_text(&r, 0, "hell!");
    run(&r);
    spells_its_text(&r, 0, "hell!llx");
    assert_int_equal(r.heard[0].n_samples, 8);
    rig_close(&r);
}

static void test_no_sample_comes_of_a_token_that_a_stop_string_cut_off(void **state)
{
    struct wire_submit v = with_logprobs(12, "llama");
    struct rig r;

    (void)state;
    rig_open(&r, 8, 8);
    r.says[0] = "a llama.";
    submit(&r, &v);
    run(&r);
    spells_its_text(&r, 0, "a ");
    assert_int_equal(r.heard[0].n_samples, 2);
    assert_int_equal(r.end.output_tokens, 7);
    rig_close(&r);
}

static void test_a_token_that_a_stop_string_cuts_in_two_has_no_sample(void **state)
{
    static const int32_t ids[] = {BYTE('a'), HELLO};
    struct wire_submit v = with_logprobs(12, "lo");
    struct rig r;

    (void)state;
    rig_open(&r, 8, 8);
    r.ids[0] = ids;
    r.n_ids[0] = COUNT_OF(ids);
    submit(&r, &v);
    run(&r);
    text_is(&r, 0, "ahel");
    assert_string_equal(buf_cstr(&r.heard[0].spelled), "a");
    rig_close(&r);
}

static void test_samples_of_an_emoji_come_with_its_last_byte(void **state)
{
    struct wire_submit v = with_logprobs(6, NULL);
    struct rig r;

    (void)state;
    rig_open(&r, 8, 8);
    r.says[0] = "a\U0001F600b";
    submit(&r, &v);
    while (r.heard[0].n_entries < 4)
        turn(&r);
    assert_int_equal(text_is(&r, 0, "a")->n_samples, 1);
    turn(&r);
    spells_its_text(&r, 0, "a\U0001F600");
    assert_int_equal(r.heard[0].n_samples, 5);
    run(&r);
    spells_its_text(&r, 0, "a\U0001F600b");
    rig_close(&r);
}

static void test_samples_that_were_held_back_come_at_the_end(void **state)
{
    struct wire_submit v = with_logprobs(4, "llama");
    struct rig r;

    (void)state;
    rig_open(&r, 8, 8);
    r.says[0] = "ball";
    submit(&r, &v);
    run(&r);
    spells_its_text(&r, 0, "ball");
    assert_int_equal(r.heard[0].n_samples, 4);
    rig_close(&r);
}

static void test_half_an_emoji_at_the_end_brings_its_samples(void **state)
{
    struct wire_submit v = with_logprobs(3, NULL);
    struct rig r;

    (void)state;
    rig_open(&r, 8, 8);
    r.says[0] = "a\xF0\x9F";
    submit(&r, &v);
    run(&r);
    assert_int_equal(text_is(&r, 0, "a\uFFFD")->n_samples, 3);
    assert_string_equal(buf_cstr(&r.heard[0].spelled), "a\xF0\x9F");
    rig_close(&r);
}

static void test_tokens_without_text_have_no_sample(void **state)
{
    static const int32_t ids[] = {BYTE('a'), TINY_IM_START, TINY_IM_END, BYTE('b')};
    struct wire_submit v = with_logprobs(4, NULL);
    struct rig r;

    (void)state;
    rig_open(&r, 8, 8);
    r.ids[0] = ids;
    r.n_ids[0] = COUNT_OF(ids);
    submit(&r, &v);
    run(&r);
    spells_its_text(&r, 0, "ab");
    assert_int_equal(r.end.output_tokens, 4);
    rig_close(&r);
}

/* A byte a token: with the last one the queue of samples is full. */
static void test_the_longest_stop_string_holds_back_no_more_than_the_queue_holds(void **state)
{
    static char stop[STOP_STRING_BYTES_MAX + 1], text[STOP_STRING_BYTES_MAX + 4];
    struct wire_submit v;
    struct rig r;

    (void)state;
    memset(stop, 'a', STOP_STRING_BYTES_MAX);
    memset(text, 'a', STOP_STRING_BYTES_MAX - 1);
    memcpy(text + STOP_STRING_BYTES_MAX - 1, "\U0001F600", 5); /* and a character in four tokens */
    v = with_logprobs(sizeof text - 1, stop);
    rig_open(&r, 8, 8);
    r.says[0] = text;
    submit(&r, &v);
    run(&r);
    assert_int_equal(r.heard[0].n_samples, sizeof text - 1);
    assert_int_equal(r.end.status, ST_OK);
    rig_close(&r);
}

static void test_scores_of_the_prompt_come_once_before_everything_else(void **state)
{
    struct wire_submit v = request(2, 3);
    struct rig r;

    (void)state;
    rig_open(&r, 8, 8);
    v.sampling.want_prompt_logprobs = true;
    v.sampling.top_logprobs = 1;
    submit(&r, &v);
    assert_true(r.conn.jobs->choices[0].sequence.sampling.want_prompt_logprobs);
    assert_false(r.conn.jobs->choices[1].sequence.sampling.want_prompt_logprobs);
    while (r.n_prompt_samples < COUNT_OF(prompt) - 1) {
        assert_int_equal(r.prompt_tokens + r.output_tokens, 0); /* its prefill is not complete */
        assert_true(turn(&r));
    }
    run(&r);
    assert_int_equal(r.n_prompt_samples, COUNT_OF(prompt) - 1);
    assert_memory_equal(r.prompt_ids, prompt + 1, sizeof prompt - sizeof prompt[0]);
    text_is(&r, 0, "...");
    text_is(&r, 1, "...");
    assert_int_equal(r.heard[0].n_samples, 0);
    assert_int_equal(r.end.prompt_tokens, COUNT_OF(prompt));
    rig_close(&r);
}

static void test_a_prompt_alone_has_scores_and_a_finish(void **state)
{
    struct wire_submit v = request(1, 0);
    struct rig r;

    (void)state;
    rig_open(&r, 8, 8);
    v.sampling.want_prompt_logprobs = true;
    v.sampling.top_logprobs = 1;
    submit(&r, &v);
    run(&r);
    assert_int_equal(r.n_prompt_samples, COUNT_OF(prompt) - 1);
    assert_int_equal(text_is(&r, 0, "")->finish, ENGINE_FINISH_LENGTH);
    assert_int_equal(r.end.status, ST_OK);
    assert_int_equal(r.end.prompt_tokens, COUNT_OF(prompt));
    assert_int_equal(r.end.output_tokens, 0);
    rig_close(&r);
}

static void test_a_step_with_many_samples_comes_in_several_frames(void **state)
{
    const struct token_logprob top = {6, -9.0f};
    const struct token_sample t = {5, -5.0f, &top, 1};
    struct wire_submit v = request(1, 4);
    struct rig r;

    (void)state;
    rig_open(&r, 8, 8);
    v.sampling.want_prompt_logprobs = true;
    submit(&r, &v);
    for (uint32_t i = 1; i <= 20000; i++)
        jobs_events.on_score(&r.jobs, &r.conn.jobs->choices[0].sequence, i, &t);
    listen_to_engine(&r);
    assert_int_equal(r.n_prompt_samples, 20000);
    assert_true(r.n_steps > 1);
    assert_true(r.longest_frame < (size_t)300 << 10);
    cancel(&r, 1);
    listen_to_engine(&r);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_choice_has_its_text_and_its_finish),
        cmocka_unit_test(test_a_cancel_ends_all_choices_with_one_end),
        cmocka_unit_test(test_nan_in_one_choice_ends_them_all_and_costs_nothing),
        cmocka_unit_test(test_a_choice_that_is_done_does_not_hide_the_failure_of_another),
        cmocka_unit_test(test_a_failed_step_ends_all_choices_with_one_end),
        cmocka_unit_test(test_a_queue_without_room_for_all_choices_takes_none),
        cmocka_unit_test(test_more_choices_than_slots_all_get_their_turn),
        cmocka_unit_test(test_jobs_of_a_lost_connection_end_at_any_point),
        cmocka_unit_test(test_an_id_outside_the_vocabulary_is_refused_wherever_it_stands),
        cmocka_unit_test(test_a_stop_id_ends_a_choice_and_gives_no_text),
        cmocka_unit_test(test_a_stop_string_that_half_a_character_completes_is_a_stop),
        cmocka_unit_test(test_stop_strings_are_not_looked_for_before_min_tokens),
        cmocka_unit_test(test_what_min_tokens_forbids_is_every_id_that_would_end_the_choice),
        cmocka_unit_test(test_the_deadline_in_the_queue_is_the_first_choices),
        cmocka_unit_test(test_a_job_that_waited_too_long_ends_whole_and_says_when_to_retry),
        cmocka_unit_test(test_pages_are_of_the_salt_in_the_frame_and_of_this_engine),
        cmocka_unit_test(test_samples_wait_for_a_stop_string_that_does_not_come),
        cmocka_unit_test(test_no_sample_comes_of_a_token_that_a_stop_string_cut_off),
        cmocka_unit_test(test_a_token_that_a_stop_string_cuts_in_two_has_no_sample),
        cmocka_unit_test(test_samples_of_an_emoji_come_with_its_last_byte),
        cmocka_unit_test(test_samples_that_were_held_back_come_at_the_end),
        cmocka_unit_test(test_half_an_emoji_at_the_end_brings_its_samples),
        cmocka_unit_test(test_tokens_without_text_have_no_sample),
        cmocka_unit_test(test_the_longest_stop_string_holds_back_no_more_than_the_queue_holds),
        cmocka_unit_test(test_scores_of_the_prompt_come_once_before_everything_else),
        cmocka_unit_test(test_a_prompt_alone_has_scores_and_a_finish),
        cmocka_unit_test(test_a_step_with_many_samples_comes_in_several_frames),
    };

    log_init("test", LOG_ERROR + 1); /* refusals are on purpose here */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
