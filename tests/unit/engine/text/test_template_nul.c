/* NUL bytes in templates: one is a character as any other, and ends neither a name nor an escape.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/text/template.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

/* A source with its length, so that NUL bytes are part of it. */
#define SOURCE(literal) literal, sizeof literal - 1

static enum status render(const char *source, size_t len, struct rendered *out, struct reason *why)
{
    const struct template_input in = {.messages = json_array()};
    struct template *t = NULL;
    enum status s = template_new(source, len, &t, why);

    if (s == ST_OK)
        s = template_render(t, &in, out, why);
    template_free(t);
    json_decref((json_t *)(uintptr_t)in.messages);
    return s;
}

static void assert_text(const char *source, size_t len, const char *want, size_t want_len)
{
    struct rendered r = {0};
    struct reason why = {0};

    if (render(source, len, &r, &why) != ST_OK)
        fail_msg("%s: %s", source, why.text);
    assert_int_equal(r.len, want_len);
    assert_memory_equal(r.text, want, want_len);
    rendered_dispose(&r);
}

static void assert_refused(const char *source, size_t len, const char *reason)
{
    struct rendered r = {0};
    struct reason why = {0};

    assert_int_not_equal(render(source, len, &r, &why), ST_OK);
    if (strstr(why.text, reason) == NULL)
        fail_msg("%s: \"%s\" lacks \"%s\"", source, why.text, reason);
}

static void a_nul_byte_comes_through(void **state)
{
    (void)state;
    assert_text(SOURCE("a\0b{{ 'c\\0d' }}"), SOURCE("a\0bc\0d"));
    assert_text(SOURCE("{{ 'a\0b'|upper }}"), SOURCE("A\0B"));
}

static void a_nul_byte_is_no_digit_and_no_kind_of_escape(void **state)
{
    (void)state;
    /* As Python's, an unknown escape stays as it is. */
    assert_text(SOURCE("{{ '\\\0' }}"), SOURCE("\\\0"));
    assert_text(SOURCE("{{ '\\1\0' }}"), SOURCE("\1\0"));
    assert_refused(SOURCE("{{ '\\x4\0' }}"), "bad escape");
    assert_refused(SOURCE("{{ '\\u004\0' }}"), "bad escape");
}

static void a_nul_byte_ends_no_name(void **state)
{
    (void)state;
    assert_text(SOURCE("{{ {'a': 1}['items\\0'] is defined }}"), SOURCE("False"));
    assert_text(SOURCE("{{ {'a': 1}['items'] is defined }}"), SOURCE("True"));
    assert_text(SOURCE("{% for i in [1] %}{{ loop['index\\0'] is defined }}{% endfor %}"),
                SOURCE("False"));
    assert_text(SOURCE("{{ 'upper\\0' is filter }}{{ 'none\\0x' is test }}"), SOURCE("FalseFalse"));
    assert_refused(SOURCE("{{ [[1]]|map('first\\0x')|list }}"), "first");
    assert_refused(SOURCE("{% set f = 'first\\0x' %}{{ [[1]]|map(f)|list }}"), "no such filter");
    assert_refused(SOURCE("{{ strftime_now('%Y\\0') }}"), "strftime_now");
    /* A key is a text, not a name. */
    assert_text(SOURCE("{{ {'a\\0': 7}['a\\0'] }}{{ {'a\\0': 7}['a'] is defined }}"),
                SOURCE("7False"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_nul_byte_comes_through),
        cmocka_unit_test(a_nul_byte_is_no_digit_and_no_kind_of_escape),
        cmocka_unit_test(a_nul_byte_ends_no_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
