/* The text of /metrics, read by a parser: what it says of what was counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/metrics_text.h"
#include "api/request_meter.h"
#include "base/size.h"
#include "tests/lib/prom_text.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define N_LOOPS 2

/* ---- what is counted in a test ---- */

static const struct engine_model small = {.id = "small"};
static const struct engine_model odd = {.id = "o\"d\\d\n"};
static const uint32_t contexts[] = {2048, 100};

struct rig {
    struct metrics loops[N_LOOPS];
    const struct metrics *pointers[N_LOOPS];
    struct engine_stats engine, engines[2]; /* all together, and of each model */
    struct billing_stats billing;
};

static int setup(void **state)
{
    struct rig *r = calloc(1, sizeof *r);

    for (size_t i = 0; i < N_LOOPS; i++) {
        assert_int_equal(metrics_init(&r->loops[i], 2), ST_OK);
        r->loops[i].models[0].model = &small;
        r->loops[i].models[1].model = &odd;
        r->pointers[i] = &r->loops[i];
    }
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;

    for (size_t i = 0; i < N_LOOPS; i++)
        metrics_dispose(&r->loops[i]);
    free(r);
    return 0;
}

static struct prom_page *page_of(struct rig *r)
{
    struct metrics_view v = {.loops = r->pointers,
                             .n_loops = N_LOOPS,
                             .engine = &r->engine,
                             .engines = r->engines,
                             .context_tokens = contexts,
                             .billing = &r->billing,
                             .wall_ms = 1700000000042};
    struct prom_page *p;
    struct buf b;

    buf_init(&b);
    metrics_text_put(&b, &v);
    p = prom_parse(&b);
    buf_dispose(&b);
    return p;
}

/* A request of one choice: prompt, then a token each at the given times. */
static struct request_meter meter_after(struct rig *r, size_t loop, const int64_t *times, size_t n)
{
    struct request_meter m = {0};
    struct engine_usage u = {.prompt_tokens = 7};

    request_meter_begin(&m, metrics_of_model(&r->loops[loop], &small), 1000000);
    for (size_t i = 0; i < n; i++) {
        u.output_tokens++;
        request_meter_tokens(&m, 0, &u, times[i]);
    }
    return m;
}

static void end_meter(struct request_meter *m, enum status s, enum engine_finish finish,
                      uint32_t prompt, uint32_t output, int64_t now_us)
{
    struct engine_end end = {.status = s,
                             .finish = finish,
                             .usage = {.prompt_tokens = prompt, .output_tokens = output},
                             .queue_us = 250000,
                             .prefill_us = 400000,
                             .decode_us = 1500001};

    request_meter_end(m, &end, true, now_us);
}

/* ---- tests ---- */

static void test_every_metric_of_vllm_has_its_name_and_type(void **state)
{
    static const char *const wanted[][2] = {
        {"vllm:num_requests_running", "gauge"},
        {"vllm:num_requests_waiting", "gauge"},
        {"vllm:kv_cache_usage_perc", "gauge"},
        {"vllm:cache_config_info", "gauge"},
        {"vllm:lora_requests_info", "gauge"},
        {"vllm:num_preemptions_total", "counter"},
        {"vllm:prompt_tokens_total", "counter"},
        {"vllm:generation_tokens_total", "counter"},
        {"vllm:prefix_cache_queries_total", "counter"},
        {"vllm:prefix_cache_hits_total", "counter"},
        {"vllm:corrupted_requests_total", "counter"},
        {"vllm:request_success_total", "counter"},
        {"vllm:time_to_first_token_seconds", "histogram"},
        {"vllm:inter_token_latency_seconds", "histogram"},
        {"vllm:e2e_request_latency_seconds", "histogram"},
        {"vllm:request_queue_time_seconds", "histogram"},
        {"vllm:request_prefill_time_seconds", "histogram"},
        {"vllm:request_decode_time_seconds", "histogram"},
        {"vllm:request_prompt_tokens", "histogram"},
        {"vllm:request_generation_tokens", "histogram"},
    };
    struct prom_page *p = page_of(*state);

    for (size_t i = 0; i < COUNT_OF(wanted); i++) {
        size_t k = 0;

        while (k < p->n_families && strcmp(p->families[k], wanted[i][0]) != 0)
            k++;
        assert_true(k < p->n_families);
        assert_string_equal(p->types[k], wanted[i][1]);
    }
    free(p);
}

static void test_what_routers_read_appears_once_whatever_the_models(void **state)
{
    struct rig *r = *state;
    struct prom_page *p;

    r->engine =
        (struct engine_stats){.running = 3, .waiting = 5, .pages_used = 25, .pages_total = 100};
    p = page_of(r);
    assert_int_equal(prom_number(p, "vllm:num_requests_running", "model_name=\"small\""), 3);
    assert_int_equal(prom_number(p, "vllm:num_requests_waiting", "engine=\"0\""), 5);
    assert_string_equal(prom_find(p, "vllm:kv_cache_usage_perc", "")->value, "0.250000");
    assert_string_equal(prom_find(p, "vllm:cache_config_info", "")->labels,
                        "block_size=\"16\",num_gpu_blocks=\"100\",engine=\"0\"");
    assert_string_equal(prom_find(p, "vllm:lora_requests_info", "")->labels,
                        "max_lora=\"0\",running_lora_adapters=\"\",waiting_lora_adapters=\"\"");
    assert_string_equal(prom_find(p, "vllm:lora_requests_info", "")->value, "1700000000.042");
    free(p);
}

static void test_the_engines_numbers_are_passed_on_by_model(void **state)
{
    struct rig *r = *state;
    struct prom_page *p;

    r->engines[0] = (struct engine_stats){.connected = true,
                                          .preemptions = 9,
                                          .prefix_query_tokens = 1000,
                                          .prefix_hit_tokens = 160,
                                          .not_finite = 2,
                                          .running = 3};
    r->engines[1] = (struct engine_stats){.prefix_query_tokens = 70, .waiting = 4, .rows_max = 6};
    p = page_of(r);
    assert_int_equal(prom_number(p, "vllm:num_preemptions_total", "\"small\""), 9);
    assert_int_equal(prom_number(p, "vllm:prefix_cache_queries_total", "\"small\""), 1000);
    assert_int_equal(prom_number(p, "vllm:prefix_cache_queries_total", "\"o"), 70);
    assert_int_equal(prom_number(p, "vllm:prefix_cache_hits_total", "\"small\""), 160);
    assert_int_equal(prom_number(p, "vllm:corrupted_requests_total", "\"small\""), 2);
    assert_int_equal(prom_number(p, "sluice_engine_up", "\"small\""), 1);
    assert_int_equal(prom_number(p, "sluice_engine_up", "\"o"), 0);
    assert_int_equal(prom_number(p, "sluice_engine_running", "\"small\""), 3);
    assert_int_equal(prom_number(p, "sluice_engine_waiting", "\"o"), 4);
    assert_int_equal(prom_number(p, "sluice_engine_rows_max", "\"o"), 6);
    free(p);
}

static void test_names_in_labels_are_escaped(void **state)
{
    struct prom_page *p = page_of(*state);

    prom_find(p, "vllm:prompt_tokens_total", "model_name=\"o\\\"d\\\\d\\n\",engine=\"0\"");
    free(p);
}

static void test_tokens_and_ends_add_up_over_loops(void **state)
{
    static const int64_t times[] = {1200000, 1300000, 1450000};
    struct rig *r = *state;
    struct request_meter a = meter_after(r, 0, times, 3), b = meter_after(r, 1, times, 2);
    struct prom_page *p;

    end_meter(&a, ST_OK, ENGINE_FINISH_STOP, 7, 3, 2000000);
    end_meter(&b, ST_CANCELLED, ENGINE_FINISH_NONE, 7, 5, 2000000); /* three more on the way */
    p = page_of(r);
    assert_int_equal(prom_number(p, "vllm:prompt_tokens_total", "\"small\""), 14);
    assert_int_equal(prom_number(p, "vllm:generation_tokens_total", "\"small\""), 8);
    assert_int_equal(prom_number(p, "vllm:prompt_tokens_total", "\"o"), 0);
    assert_int_equal(prom_number(p, "vllm:request_success_total",
                                 "\"small\",engine=\"0\",finished_reason=\"stop\""),
                     1);
    assert_int_equal(prom_number(p, "vllm:request_success_total",
                                 "\"small\",engine=\"0\",finished_reason=\"abort\""),
                     1);
    assert_int_equal(prom_number(p, "vllm:request_prompt_tokens_sum", "\"small\""), 14);
    assert_string_equal(prom_find(p, "vllm:request_generation_tokens_sum", "\"small\"")->value,
                        "8.0");
    free(p);
}

static void test_the_times_of_a_request(void **state)
{
    static const int64_t times[] = {1200000, 1300000, 1450000};
    struct rig *r = *state;
    struct request_meter m = meter_after(r, 0, times, 3);
    struct prom_page *p;

    end_meter(&m, ST_OK, ENGINE_FINISH_LENGTH, 7, 3, 3500000);
    p = page_of(r);
    assert_string_equal(prom_find(p, "vllm:time_to_first_token_seconds_sum", "\"small\"")->value,
                        "0.2");
    assert_int_equal(prom_number(p, "vllm:time_to_first_token_seconds_count", "\"small\""), 1);
    assert_string_equal(prom_find(p, "vllm:inter_token_latency_seconds_sum", "\"small\"")->value,
                        "0.25");
    assert_int_equal(prom_number(p, "vllm:inter_token_latency_seconds_count", "\"small\""), 2);
    assert_string_equal(prom_find(p, "vllm:e2e_request_latency_seconds_sum", "\"small\"")->value,
                        "2.5");
    assert_string_equal(prom_find(p, "vllm:request_queue_time_seconds_sum", "\"small\"")->value,
                        "0.25");
    assert_string_equal(prom_find(p, "vllm:request_prefill_time_seconds_sum", "\"small\"")->value,
                        "0.4");
    assert_string_equal(prom_find(p, "vllm:request_decode_time_seconds_sum", "\"small\"")->value,
                        "1.500001");
    free(p);
}

/* Gaps up to a bound of the histogram. */
static double gaps_up_to(const struct prom_page *p, const char *bound)
{
    char labels[64];

    snprintf(labels, sizeof labels, "\"small\",engine=\"0\",le=\"%s\"", bound);
    return prom_number(p, "vllm:inter_token_latency_seconds_bucket", labels);
}

static void check_gaps(const struct prom_page *p, int n, const char *sum)
{
    assert_int_equal(prom_number(p, "vllm:inter_token_latency_seconds_count", "\"small\""), n);
    assert_string_equal(prom_find(p, "vllm:inter_token_latency_seconds_sum", "\"small\"")->value,
                        sum);
}

/* Frames that were read together are steps of the same length, not one long one and some of none.
 */
static void test_tokens_that_are_read_together_share_the_time(void **state)
{
    static const int64_t times[] = {1500000, 1500000, 1700000, 1700000,
                                    1700000, 1700000, 1800000, 1800000};
    struct rig *r = *state;
    struct request_meter m = meter_after(r, 0, times, COUNT_OF(times));
    struct prom_page *p;

    end_meter(&m, ST_OK, ENGINE_FINISH_LENGTH, 7, COUNT_OF(times), 1900000);
    p = page_of(r);
    check_gaps(p, 7, "0.3");
    /* five in 200 ms, one of them of the first read, then two in 100 ms */
    assert_int_equal(gaps_up_to(p, "0.025"), 0);
    assert_int_equal(gaps_up_to(p, "0.05"), 7);
    free(p);
}

static void test_tokens_of_one_delta_share_the_time(void **state)
{
    struct rig *r = *state;
    struct request_meter m = {0};
    struct prom_page *p;

    request_meter_begin(&m, metrics_of_model(&r->loops[0], &small), 0);
    request_meter_tokens(&m, 0, &(struct engine_usage){7, 0, 1}, 500000);
    request_meter_tokens(&m, 0, &(struct engine_usage){7, 0, 5}, 700000); /* four in 200 ms */
    end_meter(&m, ST_OK, ENGINE_FINISH_LENGTH, 7, 5, 800000);
    p = page_of(r);
    check_gaps(p, 4, "0.2");
    assert_int_equal(gaps_up_to(p, "0.05"), 4);
    free(p);
}

static void test_all_tokens_in_one_read_have_no_time_between(void **state)
{
    static const int64_t times[] = {1500000, 1500000, 1500000};
    struct rig *r = *state;
    struct request_meter m = meter_after(r, 0, times, 3);
    struct prom_page *p;

    end_meter(&m, ST_OK, ENGINE_FINISH_LENGTH, 7, 3, 1600000);
    p = page_of(r);
    check_gaps(p, 2, "0.0");
    free(p);
}

static void test_choices_have_gaps_of_their_own(void **state)
{
    struct rig *r = *state;
    struct request_meter m = {0};
    struct prom_page *p;

    request_meter_begin(&m, metrics_of_model(&r->loops[0], &small), 0);
    for (uint32_t step = 1; step <= 2; step++)
        for (uint32_t choice = 0; choice < 3; choice++)
            request_meter_tokens(&m, choice,
                                 &(struct engine_usage){7, 0, 3 * (step - 1) + choice + 1},
                                 100000 * step);
    end_meter(&m, ST_OK, ENGINE_FINISH_LENGTH, 7, 6, 300000);
    p = page_of(r);
    assert_int_equal(prom_number(p, "vllm:time_to_first_token_seconds_count", "\"small\""), 1);
    check_gaps(p, 3, "0.3");
    free(p);
}

/* An engine that bills nothing for what it told of takes no count back. */
static void test_counters_never_fall(void **state)
{
    static const int64_t times[] = {1200000, 1300000};
    struct rig *r = *state;
    struct request_meter m = meter_after(r, 0, times, 2);
    struct prom_page *p;

    end_meter(&m, ST_INTERNAL, ENGINE_FINISH_NONE, 0, 0, 2000000);
    p = page_of(r);
    assert_int_equal(prom_number(p, "vllm:prompt_tokens_total", "\"small\""), 7);
    assert_int_equal(prom_number(p, "vllm:generation_tokens_total", "\"small\""), 2);
    assert_int_equal(prom_number(p, "vllm:request_success_total",
                                 "\"small\",engine=\"0\",finished_reason=\"error\""),
                     1);
    assert_int_equal(prom_number(p, "vllm:request_queue_time_seconds_count", "\"small\""), 0);
    free(p);
}

static void test_a_phase_that_was_not_reached_is_not_observed(void **state)
{
    struct rig *r = *state;
    struct request_meter m = meter_after(r, 0, NULL, 0);
    struct prom_page *p;

    end_meter(&m, ST_CANCELLED, ENGINE_FINISH_NONE, 0, 0, 2000000);
    p = page_of(r);
    assert_int_equal(prom_number(p, "vllm:time_to_first_token_seconds_count", "\"small\""), 0);
    assert_int_equal(prom_number(p, "vllm:request_queue_time_seconds_count", "\"small\""), 1);
    assert_int_equal(prom_number(p, "vllm:request_prefill_time_seconds_count", "\"small\""), 0);
    assert_int_equal(prom_number(p, "vllm:request_decode_time_seconds_count", "\"small\""), 0);
    assert_int_equal(prom_number(p, "vllm:request_prompt_tokens_count", "\"small\""), 1);
    free(p);
}

/* A value on a bound belongs to it; bounds ascend, counts too, and the last one is the count. */
static void test_buckets_are_cumulative_and_inclusive(void **state)
{
    static const char family[] = "vllm:time_to_first_token_seconds_bucket";
    static const char of_small[] = "model_name=\"small\"";
    struct rig *r = *state;
    struct histogram *h = &r->loops[1].models[0].histograms[MODEL_HISTOGRAM_FIRST_TOKEN];
    const struct histogram_scale *scale = &metric_scales[SCALE_FIRST_TOKEN];
    double last_bound = -1, last_count = -1;
    size_t n = 0;
    struct prom_page *p;

    for (unsigned i = 0; i < scale->n; i++) {
        histogram_observe(h, scale, scale->bounds[i], 1);
        histogram_observe(h, scale, scale->bounds[i] + 1, 1);
    }
    p = page_of(r);
    for (size_t i = 0; i < p->n; i++) {
        const struct prom_sample *s = &p->samples[i];
        double bound;

        if (strcmp(s->name, family) != 0 || strstr(s->labels, of_small) == NULL)
            continue;
        bound = strtod(strstr(s->labels, "le=\"") + 4, NULL); /* reads +Inf, too */
        assert_true(bound > last_bound);
        assert_true(s->number > last_count);
        assert_int_equal(s->number, n < scale->n ? 2 * n + 1 : 2 * scale->n);
        last_bound = bound;
        last_count = s->number;
        n++;
    }
    assert_int_equal(n, scale->n + 1);
    assert_int_equal(prom_number(p, "vllm:time_to_first_token_seconds_count", of_small),
                     2 * scale->n);
    prom_find(p, family, "\"small\",engine=\"0\",le=\"0.001\"");
    prom_find(p, family, "\"small\",engine=\"0\",le=\"1.0\"");
    prom_find(p, family, "\"small\",engine=\"0\",le=\"2560.0\"");
    free(p);
}

static void test_token_buckets_end_at_the_model_context(void **state)
{
    struct prom_page *p = page_of(*state);
    size_t n = 0;

    for (size_t i = 0; i < p->n; i++)
        n += strcmp(p->samples[i].name, "vllm:request_prompt_tokens_bucket") == 0;
    /* 1 to 2000 of 2048 tokens, 1 to 100 of 100, and +Inf of each */
    assert_int_equal(n, 11 + 1 + 7 + 1);
    prom_find(p, "vllm:request_prompt_tokens_bucket", "\"small\",engine=\"0\",le=\"2000.0\"");
    free(p);
}

static void test_long_sums_have_no_exponent(void **state)
{
    struct rig *r = *state;
    struct histogram *h = &r->loops[0].models[0].histograms[MODEL_HISTOGRAM_E2E];
    struct prom_page *p;

    histogram_observe(h, &metric_scales[SCALE_REQUEST], INT64_C(123456789012345678), 1);
    histogram_observe(h, &metric_scales[SCALE_REQUEST], -5, 1); /* a clock's fault: as 0 */
    p = page_of(r);
    assert_string_equal(prom_find(p, "vllm:e2e_request_latency_seconds_sum", "\"small\"")->value,
                        "123456789012.345678");
    assert_int_equal(prom_number(p, "vllm:e2e_request_latency_seconds_count", "\"small\""), 2);
    free(p);
}

static void test_requests_by_route_and_status(void **state)
{
    struct rig *r = *state;
    struct prom_page *p;

    metrics_request(&r->loops[0], 0, 200);
    metrics_request(&r->loops[1], 0, 200);
    metrics_request(&r->loops[0], 0, 418);
    metrics_add(&r->loops[0], METRIC_LIMITED, 4);
    p = page_of(r);
    assert_int_equal(prom_count(p, "sluice_requests_total"), 2);
    assert_int_equal(prom_number(p, "sluice_requests_total", "status=\"200\""), 2);
    assert_int_equal(prom_number(p, "sluice_requests_total", "status=\"other\""), 1);
    assert_int_equal(prom_number(p, "sluice_limited_total", ""), 4);
    free(p);
}

int main(void)
{
#define RIGGED(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        RIGGED(test_every_metric_of_vllm_has_its_name_and_type),
        RIGGED(test_what_routers_read_appears_once_whatever_the_models),
        RIGGED(test_the_engines_numbers_are_passed_on_by_model),
        RIGGED(test_names_in_labels_are_escaped),
        RIGGED(test_tokens_and_ends_add_up_over_loops),
        RIGGED(test_the_times_of_a_request),
        RIGGED(test_tokens_that_are_read_together_share_the_time),
        RIGGED(test_tokens_of_one_delta_share_the_time),
        RIGGED(test_all_tokens_in_one_read_have_no_time_between),
        RIGGED(test_choices_have_gaps_of_their_own),
        RIGGED(test_counters_never_fall),
        RIGGED(test_a_phase_that_was_not_reached_is_not_observed),
        RIGGED(test_buckets_are_cumulative_and_inclusive),
        RIGGED(test_token_buckets_end_at_the_model_context),
        RIGGED(test_long_sums_have_no_exponent),
        RIGGED(test_requests_by_route_and_status),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
