#include "engine/text/template_content.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/size.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static unsigned forms_of(const char *source)
{
    struct template *t = NULL;
    unsigned forms;

    assert_int_equal(template_new(source, strlen(source), &t, NULL), ST_OK);
    forms = template_content_forms(t);
    template_free(t);
    return forms;
}

#define C "messages[0].content"

static void a_template_shows_which_forms_of_content_it_takes(void **state)
{
    static const struct {
        const char *source;
        unsigned forms;
    } cases[] = {
        {"<u>{{ " C " }}", CONTENT_TEXT},
        {"<u>{{ " C "|tojson }}", CONTENT_TEXT},
        {"<u>{{ '' + " C " }}", CONTENT_TEXT}, /* fails on a list */
        {"{% for p in " C " %}{{ p.text }}{% endfor %}", CONTENT_PARTS},
        {"{{ " C "[0]['text'] }}", CONTENT_PARTS},
        {"{% if " C " is string %}{{ " C " }}{% else %}{{ " C "|map(attribute='text')|join }}"
         "{% endif %}",
         CONTENT_TEXT | CONTENT_PARTS},
        /* A list goes in, but does not come out as a string would. */
        {"{% if " C " is string %}{{ " C " }}{% else %}{{ " C "[0] }}{% endif %}", CONTENT_TEXT},
        {"no content", CONTENT_TEXT},
        {"{{ raise_exception('never') }}", CONTENT_TEXT},
        {"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
         CONTENT_TEXT},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        unsigned forms = forms_of(cases[i].source);

        if (forms != cases[i].forms)
            fail_msg("%s: %u, want %u", cases[i].source, forms, cases[i].forms);
    }
}

/* One message's content, in and out. */
static void expect_shape(unsigned forms, const char *content, const char *want)
{
    json_t *in = json_loads(content, JSON_DECODE_ANY, NULL), *shaped = NULL;
    json_t *expected = json_loads(want, JSON_DECODE_ANY, NULL);
    json_t *messages = json_pack("[{s:s, s:o, s:i}]", "role", "user", "content", in, "kept", 7);
    const json_t *out;

    assert_int_equal(template_shape_messages(forms, messages, &shaped), ST_OK);
    out = json_array_get(shaped, 0);
    if (!json_equal(json_object_get(out, "content"), expected))
        fail_msg("%s does not become %s", content, want);
    assert_int_equal(json_integer_value(json_object_get(out, "kept")), 7);
    assert_true(json_equal(json_object_get(json_array_get(messages, 0), "content"), in));
    json_decref(shaped);
    json_decref(messages);
    json_decref(expected);
}

static void content_is_brought_into_a_form_that_fits(void **state)
{
    static const char parts[] = "[{\"type\": \"text\", \"text\": \"a\"},"
                                " {\"type\": \"text\", \"text\": \"\\u00e9\"}]";
    static const char image[] = "[{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"image\"}]";

    (void)state;
    expect_shape(CONTENT_TEXT, "\"a\"", "\"a\"");
    expect_shape(CONTENT_TEXT, parts, "\"a\\u00e9\"");
    expect_shape(CONTENT_TEXT, "[]", "\"\"");
    expect_shape(CONTENT_TEXT, image, image);
    expect_shape(CONTENT_TEXT, "null", "null");
    expect_shape(CONTENT_PARTS, parts, parts);
    expect_shape(CONTENT_PARTS, "\"a\"", "[{\"type\": \"text\", \"text\": \"a\"}]");
    expect_shape(CONTENT_PARTS, "null", "null");
    expect_shape(CONTENT_TEXT | CONTENT_PARTS, parts, parts);
    expect_shape(CONTENT_TEXT | CONTENT_PARTS, "\"a\"", "\"a\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_template_shows_which_forms_of_content_it_takes),
        cmocka_unit_test(content_is_brought_into_a_form_that_fits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
