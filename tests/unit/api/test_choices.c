/* Choices and their log-probabilities, from deltas to OpenAI's shapes, over a vocabulary of the
 * test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "api/choices.h"
#include "base/json.h"
#include "base/size.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

/* 3 and 4 are halves of U+00E9; 5 is the whole of it. 7 has the same bytes as 1. */
static const char *const vocabulary[] = {"<s>",      "ab",  " cd", "\xC3", "\xA9",
                                         "\xC3\xA9", "\"x", "ab",  NULL};
#define LONG_TOKEN 8 /* 300 times 'y' */
#define LONG_TWIN  9 /* the same */
#define LONG_BYTES 300

static size_t bytes_of(const struct engine_revision *r, int32_t id, char *out, size_t cap)
{
    char text[LONG_BYTES + 1];
    size_t len;

    (void)r;
    memset(text, 'y', LONG_BYTES);
    text[LONG_BYTES] = '\0';
    if (id < LONG_TOKEN)
        snprintf(text, sizeof text, "%s", vocabulary[id]);
    len = strlen(text);
    memcpy(out, text, len < cap ? len : cap);
    return len;
}

static const struct token_source source = {.bytes = bytes_of};

static struct choices_config config_of(enum endpoint endpoint, uint32_t n, bool want_logprobs)
{
    return (struct choices_config){
        .endpoint = endpoint, .n = n, .want_logprobs = want_logprobs, .source = source};
}

static void add(struct choices *c, uint32_t choice, const char *text,
                const struct token_sample *tokens, uint32_t n_tokens)
{
    const struct engine_delta d = {.choice = choice,
                                   .text = text,
                                   .len = strlen(text),
                                   .tokens = tokens,
                                   .n_tokens = n_tokens};

    assert_int_equal(choices_add(c, &d), ST_OK);
}

static json_t *logprobs_of(const struct choices *c, uint32_t choice)
{
    struct reason why;
    struct buf b;
    json_t *doc = NULL;

    buf_init(&b);
    shape_logprobs_put(&b, choices_prompt_logprobs(c), choice_logprobs(c, &c->list[choice]));
    assert_false(b.failed);
    assert_int_equal(json_parse(b.data, b.len, 10, &doc, &why), ST_OK);
    buf_dispose(&b);
    return doc;
}

static json_t *member(json_t *list, size_t i, const char *name)
{
    return json_object_get(json_array_get(list, i), name);
}

static struct choices open_choices(enum endpoint endpoint, uint32_t n, bool want_logprobs)
{
    struct choices_config cfg = config_of(endpoint, n, want_logprobs);
    struct choices c;

    assert_int_equal(choices_init(&c, &cfg), ST_OK);
    return c;
}

static void same_json(json_t *got, const char *want_text)
{
    json_t *want = json_loads(want_text, JSON_DECODE_ANY, NULL);

    assert_non_null(want);
    if (!json_equal(got, want))
        fail_msg("%s, but want %s", json_dumps(got, JSON_ENCODE_ANY), want_text);
    json_decref(want);
}

/* A member of a choice's log-probabilities; NULL: all of them. */
static void same_logprobs(const struct choices *c, uint32_t choice, const char *name,
                          const char *want)
{
    json_t *doc = logprobs_of(c, choice);

    same_json(name != NULL ? json_object_get(doc, name) : doc, want);
    json_decref(doc);
}

static void a_chat_token_has_its_bytes_and_its_rivals(void **state)
{
    static const struct token_logprob tops[] = {{1, -0.25F}, {2, -1.5F}};
    static const struct token_sample t = {.id = 2, .logprob = -1.5F, .tops = tops, .n_tops = 2};
    struct choices c = open_choices(ENDPOINT_CHAT, 1, true);

    (void)state;
    add(&c, 0, " cd", &t, 1);
    same_logprobs(&c, 0, NULL,
                  "{\"refusal\":null,\"content\":[{\"token\":\" cd\",\"logprob\":-1.5,"
                  "\"bytes\":[32,99,100],\"top_logprobs\":["
                  "{\"token\":\"ab\",\"logprob\":-0.25,\"bytes\":[97,98]},"
                  "{\"token\":\" cd\",\"logprob\":-1.5,\"bytes\":[32,99,100]}]}]}");
    choices_dispose(&c);
}

static void half_a_character_is_replaced_and_its_bytes_are_exact(void **state)
{
    static const struct token_sample halves[] = {{.id = 3, .logprob = -1},
                                                 {.id = 4, .logprob = -2}};
    struct choices c = open_choices(ENDPOINT_CHAT, 1, true);
    json_t *doc, *content;

    (void)state;
    add(&c, 0, "\xC3\xA9", halves, 2);
    doc = logprobs_of(&c, 0);
    content = json_object_get(doc, "content");
    assert_string_equal(json_string_value(member(content, 0, "token")), "\xEF\xBF\xBD");
    same_json(member(content, 0, "bytes"), "[195]");
    same_json(member(content, 1, "bytes"), "[169]");
    json_decref(doc);
    choices_dispose(&c);
}

static void a_long_token_is_whole(void **state)
{
    static const struct token_sample t = {.id = LONG_TOKEN, .logprob = -1};
    struct choices c = open_choices(ENDPOINT_CHAT, 1, true);
    json_t *doc;

    (void)state;
    add(&c, 0, "y", &t, 1);
    doc = logprobs_of(&c, 0);
    assert_int_equal(json_array_size(member(json_object_get(doc, "content"), 0, "bytes")),
                     LONG_BYTES);
    json_decref(doc);
    choices_dispose(&c);
}

static void what_can_t_come_has_a_number_that_json_has(void **state)
{
    static const struct token_sample t = {.id = 1, .logprob = -__builtin_inff()};
    struct choices c = open_choices(ENDPOINT_COMPLETIONS, 1, true);

    (void)state;
    add(&c, 0, "ab", &t, 1);
    same_logprobs(&c, 0, "token_logprobs", "[-9999]");
    choices_dispose(&c);
}

static void completions_have_four_lists_and_no_key_twice(void **state)
{
    static const struct token_logprob tops[] = {{1, -0.5F}, {7, -1}, {3, -2}};
    static const struct token_sample tokens[] = {
        {.id = 2, .logprob = -4, .tops = tops, .n_tops = 3},
        {.id = 5, .logprob = -1},
        {.id = 6, .logprob = -1},
    };
    struct choices c = open_choices(ENDPOINT_COMPLETIONS, 1, true);

    (void)state;
    add(&c, 0, " cd", tokens, 1);
    add(&c, 0, "\xC3\xA9\"x", tokens + 1, 2);
    same_logprobs(&c, 0, NULL,
                  "{\"tokens\":[\" cd\",\"\\u00e9\",\"\\\"x\"],\"token_logprobs\":[-4,-1,-1],"
                  "\"top_logprobs\":[{\"ab\":-0.5,\"bytes:\\\\xc3\":-2,\" cd\":-4},"
                  "{\"\\u00e9\":-1},{\"\\\"x\":-1}],\"text_offset\":[0,3,4]}");
    choices_dispose(&c);
}

/* The chosen one among the tops, and another id with the same bytes. */
static void a_long_token_has_one_key_too(void **state)
{
    static const struct token_logprob tops[] = {{LONG_TOKEN, -0.5F}, {LONG_TWIN, -1}, {1, -2}};
    static const struct token_sample t = {
        .id = LONG_TOKEN, .logprob = -0.5F, .tops = tops, .n_tops = 3};
    struct choices c = open_choices(ENDPOINT_COMPLETIONS, 1, true);
    json_t *doc, *map;

    (void)state;
    add(&c, 0, "y", &t, 1);
    doc = logprobs_of(&c, 0); /* refuses a key that comes twice */
    map = json_array_get(json_object_get(doc, "top_logprobs"), 0);
    assert_int_equal(json_object_size(map), 2);
    json_decref(doc);
    choices_dispose(&c);
}

/* A BOS that the text doesn't have takes no room in it, and neither does a space before it. */
static void an_echoed_prompt_comes_before_every_choice(void **state)
{
    static const int32_t ids[] = {0, 2, 1};
    static const struct token_logprob top = {1, -0.5F};
    static const struct token_sample rest[] = {{.id = 2, .logprob = -2, .tops = &top, .n_tops = 1},
                                               {.id = 1, .logprob = -3}};
    static const struct token_sample own = {.id = 1, .logprob = -1};
    struct choices_config cfg = config_of(ENDPOINT_COMPLETIONS, 2, true);
    struct engine_delta prompt = {.tokens = rest, .n_tokens = 1, .is_prompt = true, .text = ""};
    struct choices c;
    json_t *doc;

    (void)state;
    cfg.prompt = ids;
    cfg.n_prompt = COUNT_OF(ids);
    cfg.text = "cdab";
    cfg.text_len = 4;
    assert_int_equal(choices_init(&c, &cfg), ST_OK);
    assert_int_equal(choices_add(&c, &prompt), ST_OK);
    prompt.tokens = &rest[1];
    assert_int_equal(choices_add(&c, &prompt), ST_OK);
    add(&c, 1, "ab", &own, 1);
    same_logprobs(&c, 1, NULL,
                  "{\"tokens\":[\"<s>\",\" cd\",\"ab\",\"ab\"],"
                  "\"token_logprobs\":[null,-2,-3,-1],"
                  "\"top_logprobs\":[null,{\"ab\":-0.5,\" cd\":-2},{\"ab\":-3},{\"ab\":-1}],"
                  "\"text_offset\":[0,0,2,4]}");
    doc = logprobs_of(&c, 0);
    assert_int_equal(json_array_size(json_object_get(doc, "tokens")), 3);
    json_decref(doc);
    choices_dispose(&c);
}

static void a_prompt_of_ids_is_spelled(void **state)
{
    static const int32_t ids[] = {1, 3, 4, 3, 2};
    struct choices_config cfg = config_of(ENDPOINT_COMPLETIONS, 1, false);
    struct choices c;

    (void)state;
    cfg.prompt = ids;
    cfg.n_prompt = COUNT_OF(ids);
    assert_int_equal(choices_init(&c, &cfg), ST_OK);
    assert_string_equal(buf_cstr(&c.echo), "ab\xC3\xA9\xEF\xBF\xBD cd");
    assert_null(choices_prompt_logprobs(&c));
    choices_dispose(&c);
}

/* Offsets of a prompt of ids and an output of ids, in one list. */
static void check_offsets(const int32_t *prompt, uint32_t n_prompt, const char *out,
                          const struct token_sample *tokens, uint32_t n_tokens, const char *want)
{
    struct choices_config cfg = config_of(ENDPOINT_COMPLETIONS, 1, true);
    struct engine_delta d = {.is_prompt = true, .text = "", .n_tokens = 1};
    struct choices c;

    cfg.prompt = prompt;
    cfg.n_prompt = n_prompt;
    assert_int_equal(choices_init(&c, &cfg), ST_OK);
    for (uint32_t i = 1; i < n_prompt; i++) {
        const struct token_sample t = {.id = prompt[i], .logprob = -1};

        d.tokens = &t;
        assert_int_equal(choices_add(&c, &d), ST_OK);
    }
    add(&c, 0, out, tokens, n_tokens);
    same_logprobs(&c, 0, "text_offset", want);
    choices_dispose(&c);
}

/* A token begins at the character that holds its first byte. */
static void offsets_go_on_after_what_is_no_utf_8(void **state)
{
    static const int32_t broken[] = {1, 3, 2, 4, 1}; /* ab U+FFFD cd U+FFFD ab */
    static const int32_t halves[] = {1, 3, 4, 2};    /* ab é cd */
    static const int32_t at_end[] = {2, 3};          /* cd U+FFFD */
    static const struct token_sample own[] = {{.id = 3}, {.id = 4}, {.id = 4}, {.id = 1}};

    (void)state;
    check_offsets(broken, 5, "", NULL, 0, "[0,2,3,6,7]");
    check_offsets(halves, 4, "", NULL, 0, "[0,2,2,3]");
    check_offsets(at_end, 2,
                  "\xC3\xA9\xEF\xBF\xBD"
                  "ab",
                  own, 4, "[0,3,4,4,5,6]");
}

/* As engine/text/detok.h drops it from the text. */
static void a_space_that_the_text_lacks_takes_no_room(void **state)
{
    static const struct token_sample own[] = {{.id = 2}, {.id = 2}, {.id = 1}};
    struct choices c = open_choices(ENDPOINT_COMPLETIONS, 1, true);

    (void)state;
    add(&c, 0, "cd cdab", own, 3);
    same_logprobs(&c, 0, "text_offset", "[0,2,5]");
    choices_dispose(&c);
}

static void ends_are_counted_once_per_choice(void **state)
{
    const struct engine_delta end = {.choice = 1, .text = "", .finish = ENGINE_FINISH_STOP};
    struct choices c = open_choices(ENDPOINT_CHAT, 2, false);

    (void)state;
    add(&c, 0, "a", NULL, 0);
    add(&c, 1, "b", NULL, 0);
    add(&c, 0, "c", NULL, 0);
    assert_int_equal(choices_add(&c, &end), ST_OK);
    assert_int_equal(choices_add(&c, &end), ST_OK);
    assert_int_equal(c.n_ended, 1);
    assert_string_equal(buf_cstr(&c.list[0].text), "ac");
    assert_string_equal(buf_cstr(&c.list[1].text), "b");
    assert_int_equal(c.list[1].finish, ENGINE_FINISH_STOP);
    assert_null(choice_logprobs(&c, &c.list[0]));
    choices_dispose(&c);
}

/* Adds a megabyte at a time: what a collected answer holds is bounded, a stream's is not. */
static enum status fill(bool is_streamed)
{
    static char text[1 << 20];
    struct choices_config cfg = config_of(ENDPOINT_CHAT, 2, false);
    const struct engine_delta d = {.choice = 1, .text = text, .len = sizeof text};
    enum status s = ST_OK;
    struct choices c;

    memset(text, 'x', sizeof text);
    cfg.is_streamed = is_streamed;
    assert_int_equal(choices_init(&c, &cfg), ST_OK);
    for (size_t i = 0; i <= ANSWER_BYTES_MAX / sizeof text && s == ST_OK; i++) {
        s = choices_add(&c, &d);
        if (is_streamed)
            choices_clear(&c, &c.list[1]);
    }
    choices_dispose(&c);
    return s;
}

static void a_collected_answer_is_bounded(void **state)
{
    (void)state;
    assert_int_equal(fill(false), ST_TOO_LARGE);
    assert_int_equal(fill(true), ST_OK);
}

static void the_prompt_of_every_choice_counts(void **state)
{
    static char text[1 << 20];
    static const int32_t id = 1;
    struct choices_config cfg = config_of(ENDPOINT_COMPLETIONS, 128, false);
    struct choices c;

    (void)state;
    memset(text, 'x', sizeof text);
    cfg.prompt = &id;
    cfg.n_prompt = 1;
    cfg.text = text;
    cfg.text_len = sizeof text;
    assert_int_equal(choices_init(&c, &cfg), ST_TOO_LARGE);
    choices_dispose(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chat_token_has_its_bytes_and_its_rivals),
        cmocka_unit_test(half_a_character_is_replaced_and_its_bytes_are_exact),
        cmocka_unit_test(a_long_token_is_whole),
        cmocka_unit_test(what_can_t_come_has_a_number_that_json_has),
        cmocka_unit_test(completions_have_four_lists_and_no_key_twice),
        cmocka_unit_test(a_long_token_has_one_key_too),
        cmocka_unit_test(an_echoed_prompt_comes_before_every_choice),
        cmocka_unit_test(a_prompt_of_ids_is_spelled),
        cmocka_unit_test(offsets_go_on_after_what_is_no_utf_8),
        cmocka_unit_test(a_space_that_the_text_lacks_takes_no_room),
        cmocka_unit_test(ends_are_counted_once_per_choice),
        cmocka_unit_test(a_collected_answer_is_bounded),
        cmocka_unit_test(the_prompt_of_every_choice_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
