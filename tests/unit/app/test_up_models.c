/* `sluice up` with one model, with several, and at the starts that follow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/up/last_start.h"
#include "app/supervise/files.h"
#include "base/log.h"
#include "base/size.h"
#include "tests/lib/gguf_build.h"
#include "tests/lib/test_folder.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static const struct layout layout = {
    .dir = "/d", .engine_socket = "/s/engine.sock", .redis_socket = "/s/redis.sock"};

/* What stands in the group's folder. */
static const char *const files[] = {"Small.Q4_0.gguf", "Small.Q8_0.gguf", "other.gguf",
                                    "more/other.gguf"};

static const char *file(size_t i)
{
    return in_test_folder(files[i]);
}

static struct up_options given(size_t n, const size_t *which)
{
    struct up_options o = {.n_models = n};

    for (size_t i = 0; i < n; i++)
        o.models[i] = file(which[i]);
    return o;
}

#define GIVEN(...) given(COUNT_OF(((const size_t[]){__VA_ARGS__})), (const size_t[]){__VA_ARGS__})

static struct model_choice chosen[UP_MODELS_MAX];
static size_t n_chosen;
static struct reason why;

static enum status choose(struct up_options o, const struct config *last)
{
    return last_start_models(&o, last, chosen, &n_chosen, &why);
}

/* The configuration that a first start with what was chosen leaves; the caller frees it. */
static struct config *written(void)
{
    const struct config_values v = {.layout = &layout,
                                    .model_path = chosen[0].path,
                                    .model_id = chosen[0].id,
                                    .models = chosen,
                                    .n_models = n_chosen,
                                    .conninfo = "host=/s dbname=sluice",
                                    .port = 1,
                                    .tls_port = 2,
                                    .admin_port = 3};
    struct config *c = NULL;
    struct buf text, again;

    buf_init(&text);
    buf_init(&again);
    config_put(&text, &v);
    if (config_parse(buf_cstr(&text), text.len, "c", "/d", &c, &why) != ST_OK)
        fail_msg("%s", why.text);
    /* A start with the same changes nothing. */
    assert_int_equal(config_update(&again, buf_cstr(&text), text.len, &v, &why), ST_OK);
    assert_string_equal(buf_cstr(&again), buf_cstr(&text));
    buf_dispose(&again);
    buf_dispose(&text);
    return c;
}

static void every_model_option_is_one_more(void **state)
{
    const char *argv[2 + 2 * (UP_MODELS_MAX + 1) + 1] = {"up", "--dir", "d"};
    struct up_options o;

    (void)state;
    for (size_t i = 3; i < COUNT_OF(argv); i += 2) {
        argv[i] = "--model";
        argv[i + 1] = i == 3 ? "a" : "b";
    }
    assert_int_equal(options_parse(&o, 7, (char **)argv, &why), ST_OK);
    assert_int_equal(o.n_models, 2);
    assert_string_equal(o.models[0], "a");
    assert_string_equal(o.models[1], "b");
    assert_int_equal(options_parse(&o, 3, (char **)argv, &why), ST_OK);
    assert_int_equal(o.n_models, 0);
    assert_int_equal(options_parse(&o, COUNT_OF(argv) - 2, (char **)argv, &why), ST_OK);
    assert_int_equal(o.n_models, UP_MODELS_MAX);
    assert_int_equal(options_parse(&o, COUNT_OF(argv), (char **)argv, &why), ST_INVALID);
    assert_non_null(strstr(why.text, "--model"));
}

static void one_model_is_a_section_and_may_be_another_later(void **state)
{
    struct config *last;

    (void)state;
    assert_int_equal(choose(GIVEN(0), NULL), ST_OK);
    assert_int_equal(n_chosen, 1);
    assert_string_equal(chosen[0].path, file(0));
    assert_string_equal(chosen[0].id, "small");
    last = written();
    assert_int_equal(last->n_models, 1);
    assert_string_equal(last->models[0].socket, "/s/engine.sock");
    assert_int_equal(choose(GIVEN(2), last), ST_OK);
    assert_string_equal(chosen[0].id, "other");
    assert_int_equal(choose((struct up_options){.n_models = 0}, last), ST_OK);
    assert_string_equal(chosen[0].path, file(0));
    config_free(last);
    assert_int_equal(choose((struct up_options){.n_models = 0}, NULL), ST_INVALID);
}

static void several_make_a_list_with_names_from_their_files(void **state)
{
    struct config *c;

    (void)state;
    assert_int_equal(choose(GIVEN(0, 2), NULL), ST_OK);
    assert_int_equal(n_chosen, 2);
    c = written();
    assert_int_equal(c->n_models, 2);
    assert_string_equal(c->models[0].path, file(0));
    assert_string_equal(c->models[0].id, "small");
    assert_string_equal(c->models[1].path, file(2));
    assert_string_equal(c->models[1].id, "other");
    assert_string_not_equal(c->models[0].socket, c->models[1].socket);
    config_free(c);
}

static void quantizations_of_one_model_are_named_apart(void **state)
{
    (void)state;
    assert_int_equal(choose(GIVEN(0, 1, 2), NULL), ST_OK);
    assert_string_equal(chosen[0].id, "small.q4_0");
    assert_string_equal(chosen[1].id, "small.q8_0");
    assert_string_equal(chosen[2].id, "other");
}

static void two_of_one_name_are_refused(void **state)
{
    (void)state;
    assert_int_equal(choose(GIVEN(2, 3), NULL), ST_INVALID);
    assert_non_null(strstr(why.text, "one name"));
    assert_int_equal(choose(GIVEN(2, 2), NULL), ST_INVALID);
}

static void a_list_is_the_same_again_or_a_persons(void **state)
{
    struct config *last;

    (void)state;
    assert_int_equal(choose(GIVEN(0, 2), NULL), ST_OK);
    last = written();
    free(last->models[1].id);
    last->models[1].id = strdup("house-model");
    /* The same again keeps the names that it has there, as none at all does. */
    assert_int_equal(choose(GIVEN(0, 2), last), ST_OK);
    assert_string_equal(chosen[1].id, "house-model");
    assert_int_equal(choose((struct up_options){.n_models = 0}, last), ST_OK);
    assert_string_equal(chosen[0].id, "small");
    assert_int_equal(choose(GIVEN(2, 0), last), ST_CONFLICT);
    assert_int_equal(choose(GIVEN(0, 2, 1), last), ST_CONFLICT);
    assert_int_equal(choose(GIVEN(0, 1), last), ST_CONFLICT);
    assert_int_equal(choose(GIVEN(0), last), ST_CONFLICT);
    assert_non_null(strstr(why.text, "edit the file"));
    config_free(last);
    /* Nor does one model become a list. */
    assert_int_equal(choose(GIVEN(0), NULL), ST_OK);
    last = written();
    assert_int_equal(choose(GIVEN(0, 2), last), ST_CONFLICT);
    config_free(last);
}

static void a_file_that_is_no_model_is_named(void **state)
{
    struct up_options o = GIVEN(0, 1);

    (void)state;
    o.models[1] = in_test_folder("away.gguf");
    assert_int_equal(choose(o, NULL), ST_NOT_FOUND);
    assert_non_null(strstr(why.text, "away.gguf"));
}

static int make_models(void **state)
{
    log_init("test", LOG_ERROR);
    if (test_folder_make(state) != 0 || folder_make(in_test_folder("more"), 0700, NULL) != ST_OK)
        return -1;
    for (size_t i = 0; i < COUNT_OF(files); i++)
        tiny_model_write(NULL, file(i));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_option_is_one_more),
        cmocka_unit_test(one_model_is_a_section_and_may_be_another_later),
        cmocka_unit_test(several_make_a_list_with_names_from_their_files),
        cmocka_unit_test(quantizations_of_one_model_are_named_apart),
        cmocka_unit_test(two_of_one_name_are_refused),
        cmocka_unit_test(a_list_is_the_same_again_or_a_persons),
        cmocka_unit_test(a_file_that_is_no_model_is_named),
    };

    return cmocka_run_group_tests(tests, make_models, test_folder_remove);
}
