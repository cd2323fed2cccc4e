/* Requests of several choices, and what they may ask for, through the gateway's link, a socket and
 * an engine process on the fake device: its ids are known, so the texts are. */
#include "engine/backend/backend.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"
#include "engine/cpu/cpu.h"
#include "engine/text/detok.h"
#include "tests/lib/engine_rig.h"
#include "tests/lib/fake_device.h"
#include "tests/lib/gguf_build.h"
#include "tests/lib/poll_loop.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define SEED       7
#define TOKENS_MAX 64

static const int32_t prompt[] = {10, 20, 30, 40, 50, 60, 70, 80, 90, 100};

/* What a choice samples, and what becomes of it. */
struct expected {
    int32_t tokens[COUNT_OF(prompt) + TOKENS_MAX];
    struct buf text, spelled;
    uint32_t n_output;
    enum engine_finish finish;
};

static struct gguf *gguf;
static struct tokenizer *tokenizer;

static struct engine_submit request(uint32_t n_choices, uint32_t max_tokens)
{
    return (struct engine_submit){.prompt = prompt,
                                  .n_prompt = COUNT_OF(prompt),
                                  .max_tokens = max_tokens,
                                  .n_choices = n_choices,
                                  .tenant = 1,
                                  .sampling.seed = SEED,
                                  .ignore_eos = true};
}

static void rig_up(struct engine_rig *r)
{
    memset(&fake_device_script, 0, sizeof fake_device_script);
    engine_rig_open(r, &fake_device_ops);
    engine_rig_start(r);
    engine_rig_await_ready(r);
    if (tokenizer != NULL)
        return;
    assert_int_equal(gguf_open(r->model_path, &gguf, NULL), ST_OK);
    assert_int_equal(tokenizer_new(gguf, &tokenizer, NULL), ST_OK);
}

static int close_tokenizer(void **state)
{
    (void)state;
    tokenizer_free(tokenizer);
    gguf_close(gguf);
    return 0;
}

static void spell(struct expected *e, int32_t id)
{
    size_t len;
    const char *piece = tokenizer_piece(tokenizer, id, &len);

    if (!tokenizer_is_control(tokenizer, id))
        buf_append(&e->spelled, piece, len);
}

static bool is_stop_id(const struct engine_submit *s, int32_t id)
{
    for (uint32_t i = 0; i < s->n_stop_ids; i++)
        if (s->stop_ids[i] == id)
            return true;
    return false;
}

/* By the definition: ids one after the other, until a stop id, a stop string or the length. The
 * spelling is right where no stop string ended it. */
static void expect(struct expected *e, const struct engine_submit *s, uint32_t choice)
{
    struct text_span stops[STOP_STRINGS_MAX];
    struct detok *d;

    memset(e, 0, sizeof *e);
    memcpy(e->tokens, prompt, sizeof prompt);
    for (size_t i = 0; i < s->n_stops; i++)
        stops[i] = (struct text_span){s->stops[i].text, s->stops[i].len, false};
    assert_int_equal(detok_new(tokenizer, stops, s->n_stops, &d), ST_OK);
    detok_follow(d, prompt[COUNT_OF(prompt) - 1]);
    while (e->finish == ENGINE_FINISH_NONE) {
        uint32_t n = COUNT_OF(prompt) + e->n_output;
        int32_t id = fake_device_pick(e->tokens, n, SEED + choice, e->n_output, TINY_VOCAB);

        e->tokens[n] = id;
        e->n_output++;
        if (is_stop_id(s, id)) {
            e->finish = ENGINE_FINISH_STOP;
            break;
        }
        spell(e, id);
        if (detok_feed(d, id, &e->text))
            e->finish = ENGINE_FINISH_STOP;
        else if (e->n_output == s->max_tokens)
            e->finish = ENGINE_FINISH_LENGTH;
    }
    detok_flush(d, &e->text);
    detok_free(d);
}

static void expected_dispose(struct expected *e)
{
    buf_dispose(&e->text);
    buf_dispose(&e->spelled);
}

static void is_same(const struct buf *got, const struct buf *want)
{
    assert_int_equal(got->len, want->len);
    assert_memory_equal(got->data, want->data, want->len);
}

/* Runs it and compares every choice's text and finish, and the counts. */
static void check(struct engine_rig *r, struct rig_job *j, struct engine_submit *s)
{
    uint32_t n_output = 0;

    assert_int_equal(rig_job_submit(r, j, s), ST_OK);
    rig_job_await(r, j);
    assert_int_equal(j->end.status, ST_OK);
    for (uint32_t i = 0; i < s->n_choices; i++) {
        struct expected e;

        expect(&e, s, i);
        is_same(&j->choices[i].text, &e.text);
        assert_int_equal(j->choices[i].finish, e.finish);
        n_output += e.n_output;
        if (s->sampling.want_logprobs && s->n_stops == 0)
            is_same(&j->choices[i].spelled, &e.spelled);
        expected_dispose(&e);
    }
    assert_int_equal(j->end.usage.prompt_tokens, COUNT_OF(prompt));
    assert_int_equal(j->end.usage.output_tokens, n_output);
    assert_int_equal(j->usage.output_tokens, n_output);
}

static void test_each_choice_gives_what_its_index_and_the_seed_say(void **state)
{
    struct engine_submit s = request(4, 40);
    struct rig_job j = {0};
    struct engine_rig r;

    (void)state;
    rig_up(&r);
    check(&r, &j, &s);
    assert_int_equal(j.end.finish, ENGINE_FINISH_LENGTH);
    assert_int_equal(j.end.usage.output_tokens, 4 * 40);
    engine_rig_await_idle(&r);
    rig_job_dispose(&j);
    engine_rig_close(&r);
}

/* Two ASCII characters of a text that another has not. */
static struct engine_stop_string stop_of_one_alone(const struct buf *text, const struct buf *other)
{
    for (const char *at = text->data; at + 1 < text->data + text->len; at++)
        if ((unsigned char)at[0] < 0x80 && (unsigned char)at[1] < 0x80 &&
            memmem(other->data, other->len, at, 2) == NULL)
            return (struct engine_stop_string){at, 2};
    fail_msg("the fake device says too little");
    return (struct engine_stop_string){NULL, 0};
}

static void test_a_stop_string_ends_the_choices_that_say_it(void **state)
{
    struct engine_submit s = request(4, 40);
    struct engine_stop_string stop;
    struct rig_job j = {0};
    struct expected zeroth, second;
    struct engine_rig r;

    (void)state;
    rig_up(&r);
    expect(&zeroth, &s, 0);
    expect(&second, &s, 2);
    stop = stop_of_one_alone(&second.text, &zeroth.text);
    s.stops = &stop;
    s.n_stops = 1;
    s.sampling.want_logprobs = true;
    check(&r, &j, &s);
    assert_int_equal(j.choices[2].finish, ENGINE_FINISH_STOP);
    assert_int_equal(j.choices[0].finish, ENGINE_FINISH_LENGTH);
    assert_int_equal(j.end.finish, ENGINE_FINISH_LENGTH);
    expected_dispose(&zeroth);
    expected_dispose(&second);
    rig_job_dispose(&j);
    engine_rig_close(&r);
}

static void test_stop_ids_end_the_choices_that_sample_them(void **state)
{
    struct engine_submit s = request(3, 40);
    struct expected first;
    struct rig_job j = {0};
    struct engine_rig r;
    int32_t ids[3];

    (void)state;
    rig_up(&r);
    expect(&first, &s, 1);
    ids[0] = ids[2] = first.tokens[COUNT_OF(prompt) + 20]; /* named twice, and not in order */
    ids[1] = 0;
    s.stop_ids = ids;
    s.n_stop_ids = COUNT_OF(ids);
    s.sampling.want_logprobs = true;
    check(&r, &j, &s);
    assert_int_equal(j.choices[1].finish, ENGINE_FINISH_STOP);
    expected_dispose(&first);
    rig_job_dispose(&j);
    engine_rig_close(&r);
}

static void test_samples_spell_the_text_of_their_choice(void **state)
{
    struct engine_submit s = request(3, 50);
    struct rig_job j = {0};
    struct engine_rig r;

    (void)state;
    rig_up(&r);
    s.sampling.want_logprobs = true;
    s.sampling.top_logprobs = TOP_LOGPROBS_MAX;
    check(&r, &j, &s);
    for (int i = 0; i < 3; i++) {
        assert_true(j.choices[i].n_samples > 40);
        assert_int_equal(j.choices[i].n_tops, j.choices[i].n_samples * TOP_LOGPROBS_MAX);
    }
    rig_job_dispose(&j);
    engine_rig_close(&r);
}

static void test_a_prompt_alone_ends_every_choice_by_length(void **state)
{
    struct engine_submit s = request(2, 0);
    struct rig_job j = {0};
    struct engine_rig r;

    (void)state;
    rig_up(&r);
    assert_int_equal(rig_job_submit(&r, &j, &s), ST_OK);
    rig_job_await(&r, &j);
    assert_int_equal(j.end.finish, ENGINE_FINISH_LENGTH);
    assert_int_equal(j.choices[0].finish, ENGINE_FINISH_LENGTH);
    assert_int_equal(j.choices[1].finish, ENGINE_FINISH_LENGTH);
    assert_int_equal(j.end.usage.prompt_tokens, COUNT_OF(prompt));
    assert_int_equal(j.end.usage.output_tokens, 0);
    rig_job_dispose(&j);
    engine_rig_close(&r);
}

/* Of a prompt that takes several steps, with and without something after it. */
static void check_scores(uint32_t n_choices, uint32_t max_tokens)
{
    struct engine_submit s = request(n_choices, max_tokens);
    struct rig_job j = {0};
    struct engine_rig r;
    int32_t ids[100];

    for (uint32_t i = 0; i < COUNT_OF(ids); i++)
        ids[i] = (int32_t)(i * 7 % TINY_VOCAB);
    rig_up(&r);
    s.prompt = ids;
    s.n_prompt = COUNT_OF(ids);
    s.sampling.want_prompt_logprobs = true;
    s.sampling.top_logprobs = 5;
    assert_int_equal(rig_job_submit(&r, &j, &s), ST_OK);
    rig_job_await(&r, &j);
    assert_int_equal(j.end.status, ST_OK);
    assert_int_equal(j.end.usage.prompt_tokens, COUNT_OF(ids));
    assert_int_equal(j.end.usage.output_tokens, n_choices * max_tokens);
    assert_int_equal(j.n_prompt_samples, COUNT_OF(ids) - 1);
    assert_int_equal(j.n_prompt_tops, 5 * (COUNT_OF(ids) - 1));
    for (uint32_t i = 1; i < COUNT_OF(ids); i++) {
        assert_int_equal(j.prompt_samples[i - 1].id, ids[i]);
        assert_true(j.prompt_samples[i - 1].logprob == fake_device_score(ids, i, ids[i]));
    }
    assert_int_equal(j.choices[0].n_samples, 0); /* not asked for */
    rig_job_dispose(&j);
    engine_rig_close(&r);
}

static void test_scores_of_the_prompt_come_once_each(void **state)
{
    (void)state;
    check_scores(1, 0);
    check_scores(3, 10);
}

/* The same prompt again; how much of it was found in the cache. */
static uint32_t cached_with_salt(struct engine_rig *r, uint8_t salt, bool want_scores)
{
    struct engine_submit s = request(2, 4);
    struct rig_job j = {0};
    int32_t ids[100];
    uint32_t cached;

    for (uint32_t i = 0; i < COUNT_OF(ids); i++)
        ids[i] = (int32_t)(i * 7 % TINY_VOCAB);
    s.prompt = ids;
    s.n_prompt = COUNT_OF(ids);
    s.sampling.want_prompt_logprobs = want_scores;
    memset(s.cache_salt, salt, sizeof s.cache_salt);
    assert_int_equal(rig_job_submit(r, &j, &s), ST_OK);
    rig_job_await(r, &j);
    assert_int_equal(j.end.status, ST_OK);
    assert_int_equal(j.end.usage.prompt_tokens, COUNT_OF(ids));
    cached = j.end.usage.cached_tokens;
    assert_int_equal(j.usage.cached_tokens, cached);
    rig_job_dispose(&j);
    return cached;
}

static void test_a_prompt_is_found_again_by_its_own_salt_alone(void **state)
{
    struct engine_stats st;
    struct engine_rig r;

    (void)state;
    memset(&fake_device_script, 0, sizeof fake_device_script);
    engine_rig_open(&r, &fake_device_ops);
    r.cfg.prefix_cache = true;
    r.cfg.prefix_cache_permille = 1000;
    engine_rig_start(&r);
    engine_rig_await_ready(&r);
    assert_int_equal(cached_with_salt(&r, 1, false), 0); /* what choices share is not cached yet */
    assert_int_equal(cached_with_salt(&r, 1, false), 96);
    assert_int_equal(cached_with_salt(&r, 2, false), 0);
    assert_int_equal(cached_with_salt(&r, 2, false), 96);
    assert_int_equal(cached_with_salt(&r, 2, true), 0); /* its scores need every row */
    engine_rig_await_idle(&r);
    engine_stats(r.engine, &st);
    assert_true(st.prefix_hit_tokens >= 2 * 96 && st.prefix_query_tokens > st.prefix_hit_tokens);
    engine_rig_close(&r);
}

static void test_a_cancel_in_the_middle_ends_all_choices(void **state)
{
    struct engine_submit s = request(3, 400);
    struct rig_job j = {.cancel_after = 7};
    struct engine_rig r;

    (void)state;
    memset(&fake_device_script, 0, sizeof fake_device_script);
    engine_rig_open(&r, &fake_device_ops);
    r.cfg.credit_bytes = 300; /* it can't be done before the loop turns */
    engine_rig_start(&r);
    engine_rig_await_ready(&r);
    assert_int_equal(rig_job_submit(&r, &j, &s), ST_OK);
    rig_job_await(&r, &j);
    assert_int_equal(j.n_frames, 7);
    assert_int_equal(j.end.status, ST_CANCELLED);
    assert_true(j.end.usage.output_tokens >= 7);
    assert_int_equal(j.end.usage.prompt_tokens, COUNT_OF(prompt));
    engine_rig_await_idle(&r);
    rig_job_dispose(&j);
    engine_rig_close(&r);
}

static void test_nan_in_one_choice_fails_its_job_alone_and_costs_nothing(void **state)
{
    struct engine_submit bad = request(3, 50), good = request(2, 50);
    struct rig_job j = {0}, k = {0};
    struct engine_rig r;

    (void)state;
    rig_up(&r);
    fake_device_script.nan_seed = bad.sampling.seed = 99;
    fake_device_script.nan_choice = 2;
    fake_device_script.nan_after = 5;
    assert_int_equal(rig_job_submit(&r, &j, &bad), ST_OK);
    check(&r, &k, &good);
    rig_job_await(&r, &j);
    assert_int_equal(j.end.status, ST_INTERNAL);
    assert_int_equal(j.end.usage.prompt_tokens + j.end.usage.output_tokens, 0);
    engine_rig_await_idle(&r);
    rig_job_dispose(&j);
    rig_job_dispose(&k);
    engine_rig_close(&r);
}

static void test_a_queue_without_room_for_all_choices_is_full(void **state)
{
    struct engine_submit s = request(8, 10);
    struct rig_job j = {0};
    struct engine_rig r;

    (void)state;
    memset(&fake_device_script, 0, sizeof fake_device_script);
    engine_rig_open(&r, &fake_device_ops);
    r.cfg.queue_max = 7;
    engine_rig_start(&r);
    engine_rig_await_ready(&r);
    assert_int_equal(rig_job_submit(&r, &j, &s), ST_OK);
    rig_job_await(&r, &j);
    assert_int_equal(j.end.status, ST_OVERLOADED);
    assert_int_equal(j.n_frames, 0);
    assert_in_range(j.end.retry_after_ms, 1000, 60000);
    engine_rig_await_idle(&r);
    rig_job_dispose(&j);
    engine_rig_close(&r);
}

/* The client leaves when so many steps were computed: while the job is queued behind another,
 * prefilling (32 rows a step, of a prompt of 200) and decoding. */
static void leave_after_frames(uint32_t n_frames, uint32_t n_behind)
{
    struct engine_submit s = request(3, 400);
    struct rig_job j[2] = {{0}, {0}};
    static int32_t ids[200];
    struct engine_rig r;

    memset(&fake_device_script, 0, sizeof fake_device_script);
    engine_rig_open(&r, &fake_device_ops);
    r.cfg.credit_bytes = 300;
    r.cfg.max_sequences = 3;
    engine_rig_start(&r);
    engine_rig_await_ready(&r);
    s.prompt = ids;
    s.n_prompt = COUNT_OF(ids);
    for (uint32_t i = 0; i <= n_behind; i++)
        assert_int_equal(rig_job_submit(&r, &j[i], &s), ST_OK);
    while (j[0].n_frames < n_frames)
        poll_loop_turn(r.loop, 1000);
    engine_cancel(j[n_behind].job);
    rig_job_await(&r, &j[n_behind]);
    assert_int_equal(j[n_behind].end.status, ST_CANCELLED);
    engine_link_close(r.link); /* and then everybody */
    assert_int_equal(engine_link_open(r.engine, r.loop, &r.link), ST_OK);
    engine_rig_await_idle(&r);
    rig_job_dispose(&j[0]);
    rig_job_dispose(&j[1]);
    engine_rig_close(&r);
}

static void test_a_client_that_leaves_frees_all_its_choices(void **state)
{
    (void)state;
    leave_after_frames(1, 1);  /* queued */
    leave_after_frames(0, 0);  /* prefilling, or not even begun */
    leave_after_frames(10, 0); /* decoding */
}

/* ---- what the engine's decoder would refuse ---- */

static void too_many_choices(struct engine_submit *s)
{
    s->n_choices = 1000000;
}

static void no_such_class(struct engine_submit *s)
{
    s->priority = ENGINE_PRIORITIES;
}

static void wait_of_the_past(struct engine_submit *s)
{
    s->queue_max_ms = -1;
}

static void weight_of_a_crowd(struct engine_submit *s)
{
    s->weight = UINT32_MAX;
}

static void min_p_nan(struct engine_submit *s)
{
    s->sampling.min_p = NAN;
}

static void repetition_of_3(struct engine_submit *s)
{
    s->sampling.repetition_penalty = 3;
}

static void frequency_nan(struct engine_submit *s)
{
    s->sampling.frequency_penalty = NAN;
}

static void presence_infinite(struct engine_submit *s)
{
    s->sampling.presence_penalty = -INFINITY;
}

static void a_thousand_tops(struct engine_submit *s)
{
    s->sampling.want_logprobs = true;
    s->sampling.top_logprobs = 1000;
}

static void bias_twice(struct engine_submit *s)
{
    static const struct logit_bias twice[] = {{5, 1}, {2, 1}, {5, 2}};

    s->sampling.bias = twice;
    s->sampling.n_bias = COUNT_OF(twice);
}

static void bias_nan(struct engine_submit *s)
{
    static const struct logit_bias nan[] = {{5, NAN}};

    s->sampling.bias = nan;
    s->sampling.n_bias = 1;
}

static void too_many_biases(struct engine_submit *s)
{
    s->sampling.n_bias = LOGIT_BIAS_MAX + 1;
}

static void negative_stop_id(struct engine_submit *s)
{
    static const int32_t negative[] = {3, -1};

    s->stop_ids = negative;
    s->n_stop_ids = COUNT_OF(negative);
}

static void too_many_stop_ids(struct engine_submit *s)
{
    s->n_stop_ids = STOP_IDS_MAX + 1;
}

static void ten_thousand_stop_strings(struct engine_submit *s)
{
    s->n_stops = 10000;
}

static void empty_stop_string(struct engine_submit *s)
{
    static const struct engine_stop_string empty = {"", 0};

    s->stops = &empty;
    s->n_stops = 1;
}

static void empty_prompt(struct engine_submit *s)
{
    s->n_prompt = 0;
}

static void negative_prompt_id(struct engine_submit *s)
{
    static const int32_t negative[] = {-1};

    s->prompt = negative;
    s->n_prompt = 1;
}

static void test_what_the_engine_would_refuse_fails_its_job_alone(void **state)
{
    void (*const bad[])(struct engine_submit *
                        s) = {too_many_choices,   no_such_class,     wait_of_the_past,
                              weight_of_a_crowd,  min_p_nan,         repetition_of_3,
                              frequency_nan,      presence_infinite, a_thousand_tops,
                              bias_twice,         bias_nan,          too_many_biases,
                              negative_stop_id,   too_many_stop_ids, empty_prompt,
                              negative_prompt_id, empty_stop_string, ten_thousand_stop_strings};
    struct engine_submit good = request(2, 50);
    struct rig_job j = {0};
    struct engine_rig r;

    (void)state;
    rig_up(&r);
    good.sampling.min_p = 0.5f;
    assert_int_equal(rig_job_submit(&r, &j, &good), ST_OK);
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct engine_submit s = request(1, 4);
        struct engine_job *job;

        s.revision = r.revision;
        s.weight = 1000;
        s.sampling.top_p = 1;
        bad[i](&s);
        if (engine_submit(r.link, &s, &job) != ST_INVALID)
            fail_msg("case %zu is sent", i);
    }
    rig_job_await(&r, &j);
    assert_int_equal(j.end.status, ST_OK);
    assert_true(engine_link_is_ready(r.link));
    rig_job_dispose(&j);
    engine_rig_close(&r);
}

static void test_biases_need_no_order(void **state)
{
    static const struct logit_bias biases[] = {{200, 1}, {3, -1}, {100, 0.5f}};
    struct engine_submit s = request(2, 10);
    struct rig_job j = {0};
    struct engine_rig r;

    (void)state;
    rig_up(&r);
    s.sampling.bias = biases;
    s.sampling.n_bias = COUNT_OF(biases);
    check(&r, &j, &s); /* the fake device has no logits to add them to */
    rig_job_dispose(&j);
    engine_rig_close(&r);
}

/* ---- with mathematics ---- */

static void test_eight_choices_of_one_seed_differ_and_repeat(void **state)
{
    struct engine_submit s = request(8, 24);
    struct rig_job j[2] = {{0}, {0}};
    struct engine_rig r;

    (void)state;
    engine_rig_open(&r, &cpu_device_ops);
    engine_rig_start(&r);
    engine_rig_await_ready(&r);
    s.sampling.temperature = 1;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rig_job_submit(&r, &j[i], &s), ST_OK);
        rig_job_await(&r, &j[i]);
        assert_int_equal(j[i].end.status, ST_OK);
    }
    for (int a = 0; a < 8; a++) {
        const struct buf *text = &j[0].choices[a].text;

        is_same(text, &j[1].choices[a].text);
        for (int b = 0; b < a; b++)
            assert_false(j[0].choices[b].text.len == text->len &&
                         memcmp(j[0].choices[b].text.data, text->data, text->len) == 0);
    }
    rig_job_dispose(&j[0]);
    rig_job_dispose(&j[1]);
    engine_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_choice_gives_what_its_index_and_the_seed_say),
        cmocka_unit_test(test_a_stop_string_ends_the_choices_that_say_it),
        cmocka_unit_test(test_stop_ids_end_the_choices_that_sample_them),
        cmocka_unit_test(test_samples_spell_the_text_of_their_choice),
        cmocka_unit_test(test_a_prompt_alone_ends_every_choice_by_length),
        cmocka_unit_test(test_scores_of_the_prompt_come_once_each),
        cmocka_unit_test(test_a_prompt_is_found_again_by_its_own_salt_alone),
        cmocka_unit_test(test_a_cancel_in_the_middle_ends_all_choices),
        cmocka_unit_test(test_nan_in_one_choice_fails_its_job_alone_and_costs_nothing),
        cmocka_unit_test(test_a_queue_without_room_for_all_choices_is_full),
        cmocka_unit_test(test_a_client_that_leaves_frees_all_its_choices),
        cmocka_unit_test(test_what_the_engine_would_refuse_fails_its_job_alone),
        cmocka_unit_test(test_biases_need_no_order),
        cmocka_unit_test(test_eight_choices_of_one_seed_differ_and_repeat),
    };

    log_init("test", LOG_ERROR + 1); /* broken connections are on purpose here */
    return cmocka_run_group_tests(tests, NULL, close_tokenizer);
}
