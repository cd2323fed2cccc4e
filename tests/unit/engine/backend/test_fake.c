/* The script that stands for an engine in tests of what is above it must behave as an engine does.
 */
#include "engine/backend/fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include "base/buf.h"
#include "base/size.h"
#include "tests/lib/poll_loop.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define CHOICES 3

struct heard {
    char order[64]; /* choice digits, as deltas came */
    struct buf text[CHOICES];
    enum engine_finish finish[CHOICES];
    uint32_t n_samples, n_tops, n_prompt_samples, n_ends;
    struct engine_usage so_far;
    struct engine_end end;
};

struct rig {
    struct fake_script script;
    struct backend_target target;
    struct loop *loop;
    struct backend_link *link;
    struct engine_job *job;
    struct heard heard;
};

static const char *const texts[] = {"a", "b", "c"};

static void open_rig(struct rig *r)
{
    memset(r, 0, sizeof *r);
    r->script = (struct fake_script){.is_ready = true, .texts = texts, .n_texts = COUNT_OF(texts)};
    r->target.arg = &r->script;
    r->loop = poll_loop_new();
    assert_int_equal(fake_backend_ops.link_open(&r->target, r->loop, &r->link), ST_OK);
}

static void close_rig(struct rig *r)
{
    fake_backend_ops.link_close(r->link);
    poll_loop_free(r->loop);
    for (size_t i = 0; i < CHOICES; i++)
        buf_dispose(&r->heard.text[i]);
}

static void on_delta(void *arg, const struct engine_delta *d, const struct engine_usage *so_far)
{
    struct heard *h = &((struct rig *)arg)->heard;

    assert_int_equal(h->finish[d->choice], ENGINE_FINISH_NONE);
    h->so_far = *so_far;
    if (d->is_prompt) {
        h->n_prompt_samples += d->n_tokens;
        return;
    }
    h->order[strlen(h->order)] = (char)('0' + d->choice);
    buf_append(&h->text[d->choice], d->text, d->len);
    h->finish[d->choice] = d->finish;
    h->n_samples += d->n_tokens;
    for (uint32_t i = 0; i < d->n_tokens; i++)
        h->n_tops += d->tokens[i].n_tops;
}

static void on_end(void *arg, const struct engine_end *end)
{
    struct heard *h = &((struct rig *)arg)->heard;

    h->end = *end;
    h->n_ends++;
}

static void submit(struct rig *r, struct engine_submit *s)
{
    s->arg = r;
    s->on_delta = on_delta;
    s->on_end = on_end;
    s->n_prompt = 5;
    assert_int_equal(r->link->ops->submit(r->link, s, &r->job), ST_OK);
}

static bool has_ended(void *arg)
{
    return ((struct rig *)arg)->heard.n_ends > 0;
}

static void await_end(struct rig *r)
{
    assert_true(poll_loop_run_until(r->loop, has_ended, r, 5000));
}

static void test_choices_speak_by_turns_and_finish_with_their_last_text(void **state)
{
    static const char *const long_texts[] = {"x", "y", "z", "!"}, *const short_texts[] = {"1"};
    static const struct fake_choice choices[] = {
        {short_texts, COUNT_OF(short_texts), ENGINE_FINISH_STOP},
        {long_texts, COUNT_OF(long_texts), ENGINE_FINISH_STOP}};
    struct engine_submit s = {.n_choices = 3, .max_tokens = 3};
    struct rig r;

    (void)state;
    open_rig(&r);
    r.script.choices = choices;
    r.script.n_choices = COUNT_OF(choices);
    submit(&r, &s);
    await_end(&r);
    assert_string_equal(r.heard.order, "0121212");
    assert_string_equal(buf_cstr(&r.heard.text[0]), "1");
    assert_string_equal(buf_cstr(&r.heard.text[1]), "xyz");
    assert_string_equal(buf_cstr(&r.heard.text[2]), "abc");
    assert_int_equal(r.heard.finish[0], ENGINE_FINISH_STOP);
    assert_int_equal(r.heard.finish[1], ENGINE_FINISH_LENGTH);
    assert_int_equal(r.heard.end.status, ST_OK);
    assert_int_equal(r.heard.end.finish, ENGINE_FINISH_LENGTH);
    assert_int_equal(r.heard.end.usage.output_tokens, 7);
    assert_int_equal(r.heard.end.usage.prompt_tokens, 5);
    close_rig(&r);
}

static void test_samples_come_where_they_are_asked_for(void **state)
{
    static const struct token_logprob tops[] = {{1, -1.0f}, {2, -2.0f}};
    static const struct token_sample samples[] = {{1, -1.0f, tops, 2}, {2, -2.0f, tops, 2}};
    struct engine_submit asks = {.n_choices = 1,
                                 .max_tokens = 8,
                                 .sampling = {.want_logprobs = true,
                                              .top_logprobs = 1,
                                              .want_prompt_logprobs = true}},
                         silent = {.n_choices = 1, .max_tokens = 8};
    struct rig r;

    (void)state;
    open_rig(&r);
    r.script.samples = r.script.prompt_samples = samples;
    r.script.n_samples = r.script.n_prompt_samples = COUNT_OF(samples);
    submit(&r, &asks);
    await_end(&r);
    assert_int_equal(r.heard.n_samples, 2); /* the third text has none */
    assert_int_equal(r.heard.n_tops, 2);
    assert_int_equal(r.heard.n_prompt_samples, 2);
    r.heard.n_ends = r.heard.n_samples = r.heard.n_prompt_samples = 0;
    r.heard.finish[0] = ENGINE_FINISH_NONE;
    submit(&r, &silent);
    await_end(&r);
    assert_int_equal(r.heard.n_samples + r.heard.n_prompt_samples, 0);
    close_rig(&r);
}

static void test_a_prompt_alone_has_a_finish(void **state)
{
    struct engine_submit s = {.n_choices = 2, .max_tokens = 0};
    struct rig r;

    (void)state;
    open_rig(&r);
    submit(&r, &s);
    await_end(&r);
    assert_string_equal(r.heard.order, "01");
    assert_int_equal(r.heard.finish[1], ENGINE_FINISH_LENGTH);
    assert_int_equal(r.heard.end.usage.prompt_tokens, 5);
    assert_int_equal(r.heard.end.usage.output_tokens, 0);
    close_rig(&r);
}

static void test_a_bad_end_leaves_choices_unfinished_and_says_when_to_retry(void **state)
{
    struct engine_submit s = {.n_choices = 2, .max_tokens = 8};
    struct rig r;

    (void)state;
    open_rig(&r);
    r.script.end_status = ST_TIMEOUT;
    r.script.retry_after_ms = 2500;
    submit(&r, &s);
    await_end(&r);
    assert_string_equal(r.heard.order, "010101");
    assert_int_equal(r.heard.finish[0], ENGINE_FINISH_NONE);
    assert_int_equal(r.heard.end.status, ST_TIMEOUT);
    assert_int_equal(r.heard.end.finish, ENGINE_FINISH_NONE);
    assert_int_equal(r.heard.end.retry_after_ms, 2500);
    close_rig(&r);
}

static bool has_said_all(void *arg)
{
    return ((struct rig *)arg)->heard.so_far.output_tokens == 6;
}

static void test_a_stalled_job_ends_by_its_cancel(void **state)
{
    struct engine_submit s = {.n_choices = 2, .max_tokens = 8};
    struct rig r;

    (void)state;
    open_rig(&r);
    r.script.stalls = true;
    submit(&r, &s);
    assert_true(poll_loop_run_until(r.loop, has_said_all, &r, 5000));
    assert_int_equal(r.heard.finish[0], ENGINE_FINISH_NONE);
    fake_backend_ops.cancel(r.job);
    await_end(&r);
    assert_int_equal(r.heard.end.status, ST_CANCELLED);
    assert_int_equal(r.heard.end.usage.output_tokens, 6);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choices_speak_by_turns_and_finish_with_their_last_text),
        cmocka_unit_test(test_samples_come_where_they_are_asked_for),
        cmocka_unit_test(test_a_prompt_alone_has_a_finish),
        cmocka_unit_test(test_a_bad_end_leaves_choices_unfinished_and_says_when_to_retry),
        cmocka_unit_test(test_a_stalled_job_ends_by_its_cancel),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
