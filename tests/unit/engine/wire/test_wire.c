#include "engine/wire/wire.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "base/size.h"

static struct buf frame, scratch;

static int setup(void **state)
{
    (void)state;
    buf_init(&frame);
    buf_init(&scratch);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    buf_dispose(&frame);
    buf_dispose(&scratch);
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

static struct wire_submit submit_example(void)
{
    return (struct wire_submit){
        .job = 0x0123456789ABCDEFull,
        .request = {{1, 2, 3, 15}},
        .tenant = 42,
        .weight = 1000,
        .max_tokens = 128,
        .sampling = {.temperature = 0.7f, .top_p = 0.9f, .top_k = 40, .seed = ~0ull, .choice = 3},
        .ignore_eos = true,
        .n_stops = 2,
        .stops = {{"\n\n", 2, false}, {"END", 3, false}},
        .n_prompt = COUNT_OF(prompt),
        .prompt = prompt,
    };
}

static void put_step_example(void)
{
    wire_step_begin(&frame, 9);
    wire_step_add(&frame, &(struct wire_step_entry){.job = 1,
                                                    .prompt_tokens = 5,
                                                    .cached_tokens = 2,
                                                    .output_tokens = 3,
                                                    .text = "hi",
                                                    .text_len = 2});
    wire_step_add(&frame, &(struct wire_step_entry){.job = 2, .text = "", .output_tokens = 1});
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
    assert_true(out.job == in.job && out.tenant == 42 && out.weight == 1000);
    assert_true(id_equal(&out.request, &in.request));
    assert_int_equal(out.max_tokens, 128);
    assert_true(out.sampling.temperature == 0.7f && out.sampling.top_p == 0.9f);
    assert_true(out.sampling.top_k == 40 && out.sampling.seed == ~0ull && out.sampling.choice == 3);
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
    assert_int_equal(wire_get_step(&f, &s), ST_OK);
    assert_true(s.step == 9 && s.n_entries == 2);
    assert_true(wire_step_next(&s, &e));
    assert_true(e.job == 1 && e.prompt_tokens == 5 && e.cached_tokens == 2 && e.output_tokens == 3);
    assert_int_equal(e.text_len, 2);
    assert_memory_equal(e.text, "hi", 2);
    assert_true(wire_step_next(&s, &e));
    assert_true(e.job == 2 && e.text_len == 0 && e.output_tokens == 1);
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
    struct wire_final fin = {5, ST_OK, ENGINE_FINISH_STOP, 10, 4, 3, 100, 200, 300}, fin_out;
    struct wire_stats st = {1, 2, 3, 4, 5, 6, 7, 8, 9, -1}, st_out;
    struct wire_frame f;

    (void)state;
    wire_put_final(&frame, &fin);
    f = scanned(WIRE_FINAL);
    assert_int_equal(wire_get_final(&f, &fin_out), ST_OK);
    assert_true(fin_out.job == 5 && fin_out.finish == ENGINE_FINISH_STOP);
    assert_true(fin_out.prompt_tokens == 10 && fin_out.output_tokens == 3);
    assert_true(fin_out.queue_us == 100 && fin_out.decode_us == 300);
    buf_clear(&frame);
    wire_put_stats(&frame, &st);
    f = scanned(WIRE_STATS);
    assert_int_equal(wire_get_stats(&f, &st_out), ST_OK);
    assert_true(st_out.rows_max == 5 && st_out.preemptions == 9 && st_out.last_step_age_ms == -1);
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
        return wire_get_step(f, &step);
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
}

static void test_values_out_of_range_are_refused(void **state)
{
    static const int32_t negative[] = {1, -1};
    const float temperatures[] = {-0.1f, 2.1f, NAN, INFINITY}, top_ps[] = {0.0f, 1.1f, NAN};
    struct wire_submit v;

    (void)state;
    for (size_t i = 0; i < COUNT_OF(temperatures); i++) {
        v = submit_example();
        v.sampling.temperature = temperatures[i];
        refuse_submit(&v);
    }
    for (size_t i = 0; i < COUNT_OF(top_ps); i++) {
        v = submit_example();
        v.sampling.top_p = top_ps[i];
        refuse_submit(&v);
    }
    v = submit_example();
    v.sampling.top_k = -1;
    refuse_submit(&v);
    v = submit_example();
    v.weight = 0;
    refuse_submit(&v);
    v = submit_example();
    v.n_prompt = 0;
    refuse_submit(&v);
    v = submit_example();
    v.prompt = negative;
    v.n_prompt = 2;
    refuse_submit(&v);
    v = submit_example();
    v.stops[0].len = 0;
    refuse_submit(&v);
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
        cmocka_unit_test_setup_teardown(test_values_out_of_range_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_counts_past_the_frame_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_scan_waits_for_the_whole_frame, setup, teardown),
        cmocka_unit_test_setup_teardown(test_scan_refuses_an_impossible_length_at_once, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
