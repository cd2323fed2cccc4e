#include "engine/wire/wire.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "base/size.h"

static struct buf frame, scratch, step_scratch;

static int setup(void **state)
{
    (void)state;
    buf_init(&frame);
    buf_init(&scratch);
    buf_init(&step_scratch);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    buf_dispose(&frame);
    buf_dispose(&scratch);
    buf_dispose(&step_scratch);
    return 0;
}

static struct wire_frame scanned(enum wire_type type)
{
    struct wire_frame f;
    size_t used;

    assert_int_equal(wire_scan(frame.data, frame.len, &f, &used), WIRE_SCAN_FRAME);
    assert_int_equal(used, frame.len);
    assert_int_equal(f.type, type);
    return f;
}

static const int32_t prompt[] = {1, 49151, 0, 7};
static const int32_t stop_ids[] = {0, 5, 9000};
static const struct logit_bias biases[] = {{2, -100.0f}, {3, 0.5f}, {49151, 100.0f}};

static const char stop_text[WIRE_STOP_BYTES_MAX + 1] = "\n\n";

static struct wire_submit submit_example(void)
{
    return (struct wire_submit){
        .job = 0x0123456789ABCDEFull,
        .request = {{1, 2, 3, 15}},
        .tenant = 42,
        .project = 43,
        .weight = 1000,
        .priority = 2,
        .queue_max_ms = 30000,
        .salt = {9, 8, 7, [31] = 1},
        .max_tokens = 128,
        .n_choices = 4,
        .sampling = {.temperature = 0.7f,
                     .top_p = 0.9f,
                     .top_k = 40,
                     .min_p = 0.05f,
                     .repetition_penalty = 1.1f,
                     .frequency_penalty = -2.0f,
                     .presence_penalty = 2.0f,
                     .min_tokens = 3,
                     .seed = ~0ull,
                     .bias = biases,
                     .n_bias = COUNT_OF(biases),
                     .want_logprobs = true,
                     .top_logprobs = 20},
        .ignore_eos = true,
        .n_stop_ids = COUNT_OF(stop_ids),
        .stop_ids = stop_ids,
        .n_stops = 2,
        .stops = {{stop_text, 2, false}, {"END", 3, false}},
        .n_prompt = COUNT_OF(prompt),
        .prompt = prompt,
    };
}

static const struct token_logprob tops[] = {{7, -0.25f}, {8, -1.5f}, {1, -INFINITY}};
static const struct token_sample samples[] = {{7, -0.25f, tops, 3}, {4, -3.0f, NULL, 0}};

static void put_step_example(void)
{
    wire_step_begin(&frame, 9);
    wire_step_add(&frame, &(struct wire_step_entry){.job = 1,
                                                    .choice = 127,
                                                    .finish = ENGINE_FINISH_LENGTH,
                                                    .prompt_tokens = 5,
                                                    .cached_tokens = 2,
                                                    .output_tokens = 3,
                                                    .text = "hi",
                                                    .text_len = 2,
                                                    .n_tokens = COUNT_OF(samples),
                                                    .tokens = samples});
    wire_step_add(&frame, &(struct wire_step_entry){.job = 2, .text = "", .output_tokens = 1});
    wire_step_add(&frame,
                  &(struct wire_step_entry){
                      .job = 3, .is_prompt = true, .text = "", .n_tokens = 1, .tokens = samples});
    wire_step_end(&frame);
}

static void test_submit_comes_back_as_it_was(void **state)
{
    struct wire_submit in = submit_example(), out;
    struct wire_frame f;

    (void)state;
    wire_put_submit(&frame, &in);
    f = scanned(WIRE_SUBMIT);
    assert_int_equal(wire_get_submit(&f, &scratch, &out), ST_OK);
    assert_true(out.job == in.job && out.tenant == 42 && out.project == 43 && out.weight == 1000);
    assert_true(out.priority == 2 && out.queue_max_ms == 30000 && out.n_choices == 4);
    assert_memory_equal(out.salt, in.salt, sizeof in.salt);
    assert_true(id_equal(&out.request, &in.request));
    assert_int_equal(out.max_tokens, 128);
    assert_true(out.sampling.temperature == 0.7f && out.sampling.top_p == 0.9f);
    assert_true(out.sampling.top_k == 40 && out.sampling.seed == ~0ull);
    assert_true(out.sampling.min_p == 0.05f && out.sampling.repetition_penalty == 1.1f);
    assert_true(out.sampling.frequency_penalty == -2.0f && out.sampling.presence_penalty == 2.0f);
    assert_int_equal(out.sampling.min_tokens, 3);
    assert_true(out.sampling.want_logprobs && !out.sampling.want_prompt_logprobs);
    assert_int_equal(out.sampling.top_logprobs, 20);
    assert_int_equal(out.sampling.n_bias, COUNT_OF(biases));
    assert_memory_equal(out.sampling.bias, biases, sizeof biases);
    assert_int_equal(out.n_stop_ids, COUNT_OF(stop_ids));
    assert_memory_equal(out.stop_ids, stop_ids, sizeof stop_ids);
    assert_true(out.ignore_eos);
    assert_int_equal(out.n_stops, 2);
    assert_int_equal(out.stops[1].len, 3);
    assert_memory_equal(out.stops[1].text, "END", 3);
    assert_int_equal(out.n_prompt, COUNT_OF(prompt));
    assert_memory_equal(out.prompt, prompt, sizeof prompt);
}

static void test_step_entries_come_back_in_order(void **state)
{
    struct wire_step_entry e;
    struct wire_frame f;
    struct wire_step s;

    (void)state;
    put_step_example();
    f = scanned(WIRE_STEP);
    assert_int_equal(wire_get_step(&f, &step_scratch, &s), ST_OK);
    assert_true(s.step == 9 && s.n_entries == 3);
    assert_true(wire_step_next(&s, &e));
    assert_true(e.job == 1 && e.prompt_tokens == 5 && e.cached_tokens == 2 && e.output_tokens == 3);
    assert_int_equal(e.text_len, 2);
    assert_memory_equal(e.text, "hi", 2);
    assert_true(e.choice == 127 && e.finish == ENGINE_FINISH_LENGTH && !e.is_prompt);
    assert_int_equal(e.n_tokens, 2);
    assert_true(e.tokens[0].id == 7 && e.tokens[0].logprob == -0.25f && e.tokens[0].n_tops == 3);
    assert_memory_equal(e.tokens[0].tops, tops, sizeof tops);
    assert_true(e.tokens[1].id == 4 && e.tokens[1].logprob == -3.0f && e.tokens[1].n_tops == 0);
    assert_true(wire_step_next(&s, &e));
    assert_true(e.job == 2 && e.text_len == 0 && e.output_tokens == 1 && e.n_tokens == 0);
    assert_true(e.choice == 0 && e.finish == ENGINE_FINISH_NONE && !e.is_prompt);
    assert_true(wire_step_next(&s, &e));
    assert_true(e.job == 3 && e.is_prompt && e.n_tokens == 1);
    assert_memory_equal(e.tokens[0].tops, tops, sizeof tops);
    assert_false(wire_step_next(&s, &e));
}

static void test_greetings_come_back_as_they_were(void **state)
{
    struct wire_hello hello = {1, 3, "v1-abc"}, hello_out;
    struct wire_welcome welcome = {.version = 2,
                                   .build = "b",
                                   .revision = "00ff",
                                   .device = "cpu scalar",
                                   .max_sequences = 64,
                                   .max_rows = 128,
                                   .max_context = 8192,
                                   .n_pages = 2048,
                                   .n_vocab = 288,
                                   .credit_bytes = 1 << 20,
                                   .pid = 77},
                        welcome_out;
    struct wire_frame f;

    (void)state;
    memset(&welcome_out, 0, sizeof welcome_out);
    wire_put_hello(&frame, &hello);
    f = scanned(WIRE_HELLO);
    assert_int_equal(wire_get_hello(&f, &hello_out), ST_OK);
    assert_true(hello_out.version_min == 1 && hello_out.version_max == 3);
    assert_string_equal(hello_out.build, "v1-abc");
    buf_clear(&frame);
    wire_put_welcome(&frame, &welcome);
    f = scanned(WIRE_WELCOME);
    assert_int_equal(wire_get_welcome(&f, &welcome_out), ST_OK);
    assert_string_equal(welcome_out.revision, "00ff");
    assert_string_equal(welcome_out.device, "cpu scalar");
    assert_true(welcome_out.max_context == 8192 && welcome_out.n_pages == 2048);
    assert_true(welcome_out.credit_bytes == 1 << 20 && welcome_out.pid == 77);
}

static void test_final_and_stats_come_back_as_they_were(void **state)
{
    struct wire_final fin = {5, ST_OK, ENGINE_FINISH_STOP, 10, 4, 3, 100, 200, 300, 0}, fin_out;
    struct wire_final full = {.job = 6, .status = ST_OVERLOADED, .retry_after_ms = 1500};
    struct wire_stats st = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, -1}, st_out;
    struct wire_frame f;

    (void)state;
    wire_put_final(&frame, &fin);
    f = scanned(WIRE_FINAL);
    assert_int_equal(wire_get_final(&f, &fin_out), ST_OK);
    assert_true(fin_out.job == 5 && fin_out.finish == ENGINE_FINISH_STOP);
    assert_true(fin_out.prompt_tokens == 10 && fin_out.output_tokens == 3);
    assert_true(fin_out.queue_us == 100 && fin_out.decode_us == 300);
    buf_clear(&frame);
    wire_put_final(&frame, &full);
    f = scanned(WIRE_FINAL);
    assert_int_equal(wire_get_final(&f, &fin_out), ST_OK);
    assert_true(fin_out.status == ST_OVERLOADED && fin_out.retry_after_ms == 1500);
    buf_clear(&frame);
    wire_put_stats(&frame, &st);
    f = scanned(WIRE_STATS);
    assert_int_equal(wire_get_stats(&f, &st_out), ST_OK);
    assert_true(st_out.rows_max == 5 && st_out.preemptions == 9 && st_out.last_step_age_ms == -1);
    assert_true(st_out.prefix_query_tokens == 10 && st_out.prefix_hit_tokens == 11);
    assert_int_equal(st_out.not_finite, 12);
}

/* Decodes a body of any type; the status alone matters. */
static enum status decode(const struct wire_frame *f)
{
    struct wire_welcome welcome;
    struct wire_refused refused;
    struct wire_submit submit;
    struct wire_hello hello;
    struct wire_final fin;
    struct wire_stats stats;
    struct wire_step step;
    uint64_t number;

    switch (f->type) {
    case WIRE_HELLO:
        return wire_get_hello(f, &hello);
    case WIRE_WELCOME:
        return wire_get_welcome(f, &welcome);
    case WIRE_REFUSED:
        return wire_get_refused(f, &refused);
    case WIRE_SUBMIT:
        return wire_get_submit(f, &scratch, &submit);
    case WIRE_CANCEL:
        return wire_get_cancel(f, &number);
    case WIRE_STEP:
        return wire_get_step(f, &step_scratch, &step);
    case WIRE_FINAL:
        return wire_get_final(f, &fin);
    case WIRE_STATS:
        return wire_get_stats(f, &stats);
    default:
        return wire_get_credit(f, &number);
    }
}

/* The body's exact bytes in a block of their own, so that a sanitizer sees a read past its end. */
static void refuse_all_other_lengths(void)
{
    struct wire_frame f = scanned((enum wire_type)(uint8_t)frame.data[4]);
    char *copy = test_calloc(f.len + 1, 1);

    memcpy(copy, f.body, f.len);
    f.body = (const uint8_t *)copy;
    assert_int_equal(decode(&f), ST_OK);
    f.len++;
    assert_int_equal(decode(&f), ST_CORRUPT);
    f.len--;
    test_free(copy);
    while (f.len > 0) {
        f.len--;
        copy = test_malloc(f.len + 1);
        memcpy(copy + 1, frame.data + WIRE_HEADER_BYTES, f.len);
        f.body = (const uint8_t *)copy + 1;
        assert_int_equal(decode(&f), ST_CORRUPT);
        test_free(copy);
    }
    buf_clear(&frame);
}

static void test_every_truncation_and_excess_is_refused(void **state)
{
    struct wire_submit submit = submit_example();

    (void)state;
    wire_put_hello(&frame, &(struct wire_hello){1, 1, "build"});
    refuse_all_other_lengths();
    wire_put_welcome(&frame,
                     &(struct wire_welcome){
                         .revision = "r", .max_sequences = 1, .max_context = 1, .credit_bytes = 1});
    refuse_all_other_lengths();
    wire_put_refused(&frame, &(struct wire_refused){ST_UNSUPPORTED, "version"});
    refuse_all_other_lengths();
    wire_put_submit(&frame, &submit);
    refuse_all_other_lengths();
    wire_put_cancel(&frame, 1);
    refuse_all_other_lengths();
    put_step_example();
    refuse_all_other_lengths();
    wire_put_final(&frame, &(struct wire_final){.status = ST_CANCELLED});
    refuse_all_other_lengths();
    wire_put_stats(&frame, &(struct wire_stats){0});
    refuse_all_other_lengths();
    wire_put_credit(&frame, 1);
    refuse_all_other_lengths();
}

static void refuse_submit(const struct wire_submit *v)
{
    struct wire_frame f;

    buf_clear(&frame);
    wire_put_submit(&frame, v);
    f = scanned(WIRE_SUBMIT);
    assert_int_equal(decode(&f), ST_CORRUPT);
    assert_false(wire_submit_is_valid(v));
}

/* A member of the example set to a bad value, one after the other. */
#define REFUSE(member, ...)                                                                        \
    do {                                                                                           \
        const __typeof__(submit_example().member) bad[] = {__VA_ARGS__};                           \
                                                                                                   \
        for (size_t i = 0; i < COUNT_OF(bad); i++) {                                               \
            struct wire_submit v = submit_example();                                               \
                                                                                                   \
            v.member = bad[i];                                                                     \
            refuse_submit(&v);                                                                     \
        }                                                                                          \
    } while (0)

static void test_sampling_out_of_range_is_refused(void **state)
{
    (void)state;
    REFUSE(sampling.temperature, -0.1f, 2.1f, NAN, INFINITY);
    REFUSE(sampling.top_p, 0.0f, 1.1f, -0.1f, NAN);
    REFUSE(sampling.top_k, -1, INT32_MIN);
    REFUSE(sampling.min_p, -0.1f, 1.1f, NAN);
    REFUSE(sampling.repetition_penalty, -0.1f, 2.1f, NAN);
    REFUSE(sampling.frequency_penalty, -2.1f, 2.1f, NAN, -INFINITY);
    REFUSE(sampling.presence_penalty, -2.1f, 2.1f, NAN);
    REFUSE(sampling.top_logprobs, TOP_LOGPROBS_MAX + 1, 255);
}

static void test_limits_of_a_job_are_kept(void **state)
{
    (void)state;
    REFUSE(weight, 0, WIRE_WEIGHT_MAX + 1);
    REFUSE(priority, ENGINE_PRIORITIES);
    REFUSE(queue_max_ms, WIRE_QUEUE_MS_MAX + 1);
    REFUSE(n_choices, 0, ENGINE_CHOICES_MAX + 1);
    REFUSE(n_prompt, 0);
    REFUSE(stops[0].len, 0, WIRE_STOP_BYTES_MAX + 1);
}

static void test_the_edges_of_what_may_be_asked_for_pass(void **state)
{
    struct wire_submit v = submit_example(), out;
    struct wire_frame f;

    (void)state;
    v.sampling.temperature = 2.0f;
    v.sampling.top_p = 1.0f;
    v.sampling.min_p = 1.0f;
    v.sampling.repetition_penalty = 2.0f;
    v.sampling.want_prompt_logprobs = true;
    v.queue_max_ms = WIRE_QUEUE_MS_MAX;
    v.weight = WIRE_WEIGHT_MAX;
    v.n_choices = ENGINE_CHOICES_MAX;
    v.max_tokens = 0;
    v.sampling.n_bias = v.n_stop_ids = v.n_stops = 0;
    assert_true(wire_submit_is_valid(&v));
    wire_put_submit(&frame, &v);
    f = scanned(WIRE_SUBMIT);
    assert_int_equal(wire_get_submit(&f, &scratch, &out), ST_OK);
    assert_true(out.n_choices == ENGINE_CHOICES_MAX && out.max_tokens == 0);
    assert_true(out.sampling.want_prompt_logprobs && out.sampling.n_bias == 0);
}

static void refuse_biases(const struct logit_bias *bias, uint32_t n)
{
    struct wire_submit v = submit_example();

    v.sampling.bias = bias;
    v.sampling.n_bias = n;
    refuse_submit(&v);
}

static void refuse_stop_ids(const int32_t *ids, uint32_t n)
{
    struct wire_submit v = submit_example();

    v.stop_ids = ids;
    v.n_stop_ids = n;
    refuse_submit(&v);
}

static void test_lists_of_ids_are_ascending_finite_and_bounded(void **state)
{
    static const struct logit_bias negative[] = {{-1, 0}}, twice[] = {{4, 1}, {4, 2}},
                                   falling[] = {{4, 1}, {3, 2}}, nan[] = {{4, NAN}},
                                   infinite[] = {{4, INFINITY}};
    static const int32_t bad_ids[][2] = {{-1, 2}, {2, -1}, {4, 4}, {4, 3}};
    static struct logit_bias many_biases[LOGIT_BIAS_MAX + 1];
    static int32_t many_ids[STOP_IDS_MAX + 1];
    struct wire_submit v = submit_example();

    (void)state;
    refuse_biases(negative, 1);
    refuse_biases(twice, 2);
    refuse_biases(falling, 2);
    refuse_biases(nan, 1);
    refuse_biases(infinite, 1);
    for (size_t i = 0; i < COUNT_OF(bad_ids); i++)
        refuse_stop_ids(bad_ids[i], 2);
    for (uint32_t i = 0; i < COUNT_OF(many_biases); i++)
        many_biases[i].id = (int32_t)i;
    for (uint32_t i = 0; i < COUNT_OF(many_ids); i++)
        many_ids[i] = (int32_t)i;
    refuse_biases(many_biases, COUNT_OF(many_biases));
    refuse_stop_ids(many_ids, COUNT_OF(many_ids));
    v.prompt = bad_ids[1];
    v.n_prompt = 2;
    refuse_submit(&v);
}

static void test_unknown_flags_of_a_job_are_refused(void **state)
{
    /* After job, request, tenant, project, weight, priority, queue_max_ms, salt, max_tokens and
     * n_choices. */
    const size_t at = WIRE_HEADER_BYTES + 8 + 16 + 8 + 8 + 4 + 1 + 4 + 32 + 4 + 1;
    struct wire_submit v = submit_example();
    struct wire_frame f;

    (void)state;
    wire_put_submit(&frame, &v);
    assert_int_equal(frame.data[at], 1 | 2); /* ignore_eos, want_logprobs */
    frame.data[at] = 8;
    f = scanned(WIRE_SUBMIT);
    assert_int_equal(decode(&f), ST_CORRUPT);
}

static void refuse_entry(const struct wire_step_entry *e)
{
    struct wire_frame f;

    buf_clear(&frame);
    wire_step_begin(&frame, 1);
    wire_step_add(&frame, e);
    wire_step_end(&frame);
    f = scanned(WIRE_STEP);
    assert_int_equal(decode(&f), ST_CORRUPT);
}

static void test_entries_that_contradict_themselves_are_refused(void **state)
{
    const struct token_logprob nan_top = {7, NAN};
    const struct token_sample bad[] = {
        {-1, -1.0f, NULL, 0}, {7, NAN, NULL, 0}, {7, INFINITY, NULL, 0}, {7, -1.0f, &nan_top, 1}};

    (void)state;
    refuse_entry(&(struct wire_step_entry){.text = "", .finish = ENGINE_FINISH_LENGTH + 1});
    refuse_entry(&(struct wire_step_entry){.text = "", .cached_tokens = 1});
    refuse_entry(&(struct wire_step_entry){.text = "x", .text_len = 1, .is_prompt = true});
    refuse_entry(
        &(struct wire_step_entry){.text = "", .finish = ENGINE_FINISH_STOP, .is_prompt = true});
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        refuse_entry(&(struct wire_step_entry){.text = "", .n_tokens = 1, .tokens = &bad[i]});
}

static void test_ends_that_contradict_themselves_are_refused(void **state)
{
    const struct wire_final bad[] = {{.status = ST_OK},
                                     {.status = ST_CANCELLED, .finish = ENGINE_FINISH_STOP},
                                     {.status = ST_CANCELLED, .retry_after_ms = 1},
                                     {.status = ST_CANCELLED, .cached_tokens = 1},
                                     {.status = STATUS_COUNT}};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        struct wire_frame f;

        buf_clear(&frame);
        wire_put_final(&frame, &bad[i]);
        f = scanned(WIRE_FINAL);
        assert_int_equal(decode(&f), ST_CORRUPT);
    }
}

/* Counts that claim more than the frame holds, at the offsets of the layout. */
static void test_counts_past_the_frame_are_refused(void **state)
{
    struct wire_submit v = submit_example();
    struct wire_frame f;

    (void)state;
    wire_put_submit(&frame, &v);
    memset(frame.data + frame.len - sizeof prompt - 4, 0xFF, 4); /* n_prompt */
    f = scanned(WIRE_SUBMIT);
    assert_int_equal(decode(&f), ST_CORRUPT);
    buf_clear(&frame);
    put_step_example();
    memset(frame.data + WIRE_HEADER_BYTES + 8, 0xFF, 4); /* n_entries */
    f = scanned(WIRE_STEP);
    assert_int_equal(decode(&f), ST_CORRUPT);
}

static void test_scan_waits_for_the_whole_frame(void **state)
{
    struct wire_frame f;
    size_t used;

    (void)state;
    wire_put_cancel(&frame, 3);
    for (size_t len = 0; len < frame.len; len++)
        assert_int_equal(wire_scan(frame.data, len, &f, &used), WIRE_SCAN_MORE);
    wire_put_credit(&frame, 4);
    assert_int_equal(wire_scan(frame.data, frame.len, &f, &used), WIRE_SCAN_FRAME);
    assert_int_equal(f.type, WIRE_CANCEL);
    assert_int_equal(wire_scan(frame.data + used, frame.len - used, &f, &used), WIRE_SCAN_FRAME);
    assert_int_equal(f.type, WIRE_CREDIT);
}

static void test_scan_refuses_an_impossible_length_at_once(void **state)
{
    static const uint8_t too_long[] = {1, 0, 0, 1}, too_short[] = {1, 0, 0, 0};
    struct wire_frame f;
    size_t used;

    (void)state;
    assert_int_equal(wire_scan(too_long, 4, &f, &used), WIRE_SCAN_CORRUPT);
    assert_int_equal(wire_scan(too_short, 4, &f, &used), WIRE_SCAN_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_submit_comes_back_as_it_was, setup, teardown),
        cmocka_unit_test_setup_teardown(test_step_entries_come_back_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_greetings_come_back_as_they_were, setup, teardown),
        cmocka_unit_test_setup_teardown(test_final_and_stats_come_back_as_they_were, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_every_truncation_and_excess_is_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_sampling_out_of_range_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limits_of_a_job_are_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_edges_of_what_may_be_asked_for_pass, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_lists_of_ids_are_ascending_finite_and_bounded, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_unknown_flags_of_a_job_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_entries_that_contradict_themselves_are_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_ends_that_contradict_themselves_are_refused, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_counts_past_the_frame_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_scan_waits_for_the_whole_frame, setup, teardown),
        cmocka_unit_test_setup_teardown(test_scan_refuses_an_impossible_length_at_once, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
