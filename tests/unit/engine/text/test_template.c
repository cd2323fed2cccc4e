#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "engine/text/template.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

struct outcome {
    enum status status;
    struct reason why;
    struct rendered text;
};

static struct outcome load_and_render(const char *source, struct template_input in)
{
    struct outcome o = {0};
    struct template *t = NULL;

    o.status = template_new(source, strlen(source), &t, &o.why);
    if (o.status == ST_OK)
        o.status = template_render(t, &in, &o.text, &o.why);
    template_free(t);
    return o;
}

/* One message from a user, and further variables as JSON text. */
static struct outcome render_with(const char *source, const char *content, const char *extra)
{
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", content);
    json_t *more = json_loads(extra, 0, NULL);
    struct outcome o = load_and_render(
        source, (struct template_input){
                    .messages = messages, .extra = more, .bos_token = "<s>", .eos_token = "</s>"});

    assert_non_null(messages);
    assert_non_null(more);
    json_decref(messages);
    json_decref(more);
    return o;
}

static struct outcome render(const char *source)
{
    return render_with(source, "hi", "{}");
}

static void expect_failure(const char *source, enum status status, const char *text)
{
    struct outcome o = render(source);

    if (o.status != status)
        fail_msg("%s: %s (%s)", source, status_name(o.status), o.why.text);
    if (strstr(o.why.text, text) == NULL)
        fail_msg("%s: \"%s\" lacks \"%s\"", source, o.why.text, text);
    rendered_dispose(&o.text);
}

/* The text with the bytes of values as they are and those of the template as '.'. */
static void expect_values(const char *source, const char *content, const char *want)
{
    struct outcome o = render_with(source, content, "{\"list\": [\"x\", \"y\"]}");
    char *mask;

    if (o.status != ST_OK)
        fail_msg("%s: %s", source, o.why.text);
    mask = strdup(o.text.text);
    assert_non_null(mask);
    for (size_t i = 0; i < o.text.n_spans; i++) {
        if (o.text.spans[i].from_template)
            memset(mask + o.text.spans[i].start, '.', o.text.spans[i].len);
    }
    if (strcmp(mask, want) != 0)
        fail_msg("%s: %s, want %s", source, mask, want);
    free(mask);
    rendered_dispose(&o.text);
}

#define C "messages[0].content"

static void text_of_values_is_told_from_the_templates(void **state)
{
    (void)state;
    expect_values("<a>{{ " C " }}<b>", "<a>", "...<a>...");
    expect_values("{{ '<a>' + " C " + '<b>' }}", "u", "...u...");
    expect_values("{{ '<a>' ~ " C " ~ 1 ~ '<b>' }}", "u", "...u1...");
    expect_values("{{ bos_token }}{{ " C " }}{{ eos_token }}", "</s>", "...</s>....");
    expect_values("{{ messages[0].role }}", "u", "....");
}

static void origin_survives_what_is_done_to_a_text(void **state)
{
    (void)state;
    expect_values("{{ (' a' ~ " C " ~ 'b ')|trim }}", "u", ".u.");
    expect_values("{{ ('a' ~ " C " ~ 'b').strip('ab') }}", "ua", "u");
    expect_values("{{ ('a-' ~ " C " ~ '-b').split('-')|join('+') }}", "u-v", "..u.v..");
    expect_values("{{ " C ".replace('u', 'template') }}", "xuy", "x........y");
    expect_values("{{ 'abc'|replace('b', " C ") }}", "u", ".u.");
    expect_values("{{ ('ab' ~ " C " ~ 'cd')[1:-1] }}", "uv", ".uv.");
    expect_values("{{ ('ab' ~ " C " ~ 'cd')[::-1] }}", "uv", "..vu..");
    expect_values("{{ ('ab' ~ " C ")|upper }}", "uv", "..UV");
    expect_values("{{ ('a\n' ~ " C ")|indent(1) }}", "u\nv", "...u..v");
    expect_values("{{ ('<' ~ " C " ~ '>')|e }}", "<", "....&lt;....");
    expect_values("{{ ('a' ~ " C ") * 2 }}", "u", ".u.u");
    expect_values("{{ list|join(', ') }}", "u", "x..y");
}

static void origin_survives_blocks_macros_and_namespaces(void **state)
{
    (void)state;
    expect_values("{% set x %}[{{ " C " }}]{% endset %}{{ x }}{{ x }}", "u", ".u..u.");
    expect_values("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(" C ") }}{{ f('t') }}", "u",
                  ".u....");
    expect_values("{% filter trim %} a{{ " C " }} {% endfilter %}", "u ", ".u");
    expect_values("{% set n = namespace(s='') %}{% for c in " C
                  " %}{% set n.s = n.s ~ '-' ~ c %}{% endfor %}{{ n.s }}",
                  "uvw", ".u.v.w");
}

static void an_older_text_keeps_its_length_when_a_newer_one_grows_from_it(void **state)
{
    (void)state;
    expect_values("{% set a = 'x' ~ " C " %}{% set b = a ~ 'y' %}{% set c = a ~ 'z' %}"
                  "{{ a }},{{ b }},{{ c }},{{ b ~ b }}",
                  "u", ".u..u...u...u..u.");
}

static void a_macro_keeps_the_variables_of_where_it_was_defined(void **state)
{
    struct outcome o =
        render("{% set n = namespace() %}{% for i in [1, 2] %}"
               "{% macro f() %}{{ i }}{{ later }}{% endmacro %}{% set later = i * 10 %}"
               "{% if i == 1 %}{% set n.f = f %}{% endif %}{% endfor %}"
               "{% for i in [3, 4] %}{% set x = i %}{% endfor %}"
               "{% set f = n.f %}{{ f() }}");

    (void)state;
    assert_int_equal(o.status, ST_OK);
    assert_string_equal(o.text.text, "110");
    rendered_dispose(&o.text);
}

static void what_is_uncertain_counts_as_a_value(void **state)
{
    (void)state;
    expect_values("{{ ['a', 1] }}", "u", "['a', 1]");
    expect_values("{{ 'a'|tojson }}{{ 5 }}{{ none }}", "u", "\"a\"5None");
}

static void an_unknown_construct_is_refused_at_load_by_name(void **state)
{
    static const struct {
        const char *source, *name;
    } cases[] = {
        {"{% include 'x' %}", "'include'"},
        {"{% import 'x' as y %}", "'import'"},
        {"{% extends 'x' %}", "'extends'"},
        {"{% block b %}{% endblock %}", "'block'"},
        {"{% call f() %}{% endcall %}", "'call'"},
        {"{% for x in y recursive %}{% endfor %}", "'recursive'"},
        {"{{ x|wordwrap }}", "'wordwrap'"},
        {"{{ x|map('urlize') }}", "'urlize'"},
        {"{{ x|selectattr('a', 'strange') }}", "'strange'"},
        {"{{ x is strange }}", "'strange'"},
        {"{{ x.encode('utf-8') }}", "'encode'"},
        {"{% if x %}{% for y in x %}{{ y|urlize }}{% endfor %}{% endif %}", "'urlize'"},
        {"{{ '%s' % x }}", "% on a string"},
        {"{{ f(*x) }}", "'*arguments'"},
        {"{{ lipsum() }}", "'lipsum'"},
        {"{{ 99999999999999999999 }}", "64 bits"},
        {"{% macro f() %}{{ varargs }}{% endmacro %}", "'varargs'"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        expect_failure(cases[i].source, ST_UNSUPPORTED, cases[i].name);
}

static void a_syntax_error_is_refused_with_its_line(void **state)
{
    (void)state;
    expect_failure("a\nb {% if x %}\nc", ST_INVALID, "line 3");
    expect_failure("a\n{{ 1 + }}", ST_INVALID, "line 2");
    expect_failure("{% endfor %}", ST_INVALID, "'endfor'");
    expect_failure("{{ \xff }}", ST_INVALID, "UTF-8");
}

static void an_exception_of_the_template_comes_out_verbatim(void **state)
{
    struct outcome o = render("x{{ raise_exception('Roles must alternate!') }}y");

    (void)state;
    assert_int_equal(o.status, ST_INVALID);
    assert_string_equal(o.why.text, "Roles must alternate!");
}

static void a_failure_says_where_and_what(void **state)
{
    (void)state;
    expect_failure("\n\n{{ none.x.strip() }}", ST_INVALID,
                   "the chat template failed on line 3: 'None' has no attribute 'x'");
    expect_failure("{{ messages[0].content.x.y }}", ST_INVALID,
                   "'str object' has no attribute 'x'");
    expect_failure("{{ nobody.x }}", ST_INVALID, "'nobody' is undefined");
    expect_failure("{{ messages.append(1) }}", ST_INVALID, "unsafe");
}

static void a_failure_does_not_repeat_what_the_user_wrote(void **state)
{
    struct outcome o = render_with("{{ {}[" C "].x }}", "secret", "{}");

    (void)state;
    assert_int_equal(o.status, ST_INVALID);
    assert_null(strstr(o.why.text, "secret"));
}

static void recursion_of_macros_meets_the_bound(void **state)
{
    (void)state;
    expect_failure("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", ST_TOO_LARGE, "macros");
    expect_failure("{% macro f(x=f()) %}{% endmacro %}{{ f() }}", ST_TOO_LARGE, "macros");
}

static void loops_meet_the_bound_on_steps(void **state)
{
    (void)state;
    expect_failure(
        "{% set l = range(9999) %}{% for a in l %}{% for b in l %}{% endfor %}{% endfor %}",
        ST_TIMEOUT, "steps");
}

/* Over all of int64: the items are in it, some slices' bounds are not. */
static void ranges_reach_the_ends_of_the_integers(void **state)
{
    (void)state;
    expect_values(
        "{{ range(-9223372036854775807, 9223372036854775807, 4611686018427387904)|list }}", "",
        "[-9223372036854775807, -4611686018427387903, 1, 4611686018427387905]");
    expect_failure(
        "{{ range(-9223372036854775807, 9223372036854775807, 4611686018427387904)[::9] }}",
        ST_INVALID, "64 bits");
}

static void memory_and_output_are_bounded(void **state)
{
    (void)state;
    expect_failure("{{ 'x' * 99999999999 }}", ST_TOO_LARGE, "");
    expect_failure("{{ [1] * 99999999 }}", ST_TOO_LARGE, "memory");
    expect_failure("{% set n = namespace(s='xxxxxxxxxxxxxxxx') %}{% for i in range(60) %}"
                   "{% set n.s = n.s ~ n.s %}{% endfor %}",
                   ST_TOO_LARGE, "");
    expect_failure("{% for i in range(99) %}{{ 'x' * 9999999 }}{% endfor %}", ST_TOO_LARGE, "");
    expect_failure("{{ range(200000) }}", ST_INVALID, "range");
    expect_failure("{{ strftime_now('%Y' * 1000) }}", ST_INVALID, "strftime_now");
}

static void output_stops_at_the_callers_limit(void **state)
{
    json_t *messages = json_array();
    struct template_input in = {.messages = messages, .output_max_bytes = 10};
    struct outcome fits = load_and_render("0123456789", in);
    struct outcome over = load_and_render("0123456789{{ 1 }}", in);

    (void)state;
    assert_int_equal(fits.status, ST_OK);
    assert_int_equal(over.status, ST_TOO_LARGE);
    rendered_dispose(&fits.text);
    json_decref(messages);
}

static char *repeat(const char *before, const char *piece, size_t n, const char *after)
{
    size_t len = strlen(piece);
    char *s = malloc(strlen(before) + n * len + strlen(after) + 1), *p;

    assert_non_null(s);
    p = stpcpy(s, before);
    for (size_t i = 0; i < n; i++)
        p = stpcpy(p, piece);
    strcpy(p, after);
    return s;
}

static void deep_nesting_is_refused_not_recursed_into(void **state)
{
    static const struct {
        const char *before, *piece, *after;
    } cases[] = {
        {"{{ ", "(", "1 }}"},      {"{{ ", "[", "1 }}"},
        {"{{ ", "not ", "1 }}"},   {"{{ ", "-", "1 }}"},
        {"{{ 1", "+1", " }}"},     {"{{ x", ".x", " }}"},
        {"{{ x", "|trim", " }}"},  {"{{ x", "[0]", " }}"},
        {"", "{% if 1 %}", ""},    {"{{ 1", " if 1 else 1", " }}"},
        {"{{ 1", " and 1", " }}"}, {"{% set ", "(", "x %}"},
        {"{{ x", "()", " }}"},     {"{{ 1", " if 1", " }}"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char *s = repeat(cases[i].before, cases[i].piece, 20000, cases[i].after);

        expect_failure(s, ST_TOO_LARGE, "deep");
        free(s);
    }
}

static void deep_values_are_refused_not_recursed_into(void **state)
{
    static const char build[] = "{% set n = namespace(v=[]) %}{% for i in range(5000) %}"
                                "{% set n.v = [n.v] %}{% endfor %}";
    static const char *const uses[] = {"{{ n.v }}", "{{ n.v|tojson }}", "{{ n.v == [n.v] }}"};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(uses); i++) {
        char *s = repeat(build, uses[i], 1, "");

        expect_failure(s, ST_TOO_LARGE, "nested too deeply");
        free(s);
    }
    expect_failure("{% set n = namespace() %}{% set n.n = n %}{{ n }}", ST_TOO_LARGE, "nested");
}

static void many_elifs_are_no_nesting(void **state)
{
    char *s = repeat("{% if 0 %}", "{% elif 0 %}x", 5000, "{% else %}end{% endif %}");
    struct outcome o = render(s);

    (void)state;
    assert_int_equal(o.status, ST_OK);
    assert_string_equal(o.text.text, "end");
    rendered_dispose(&o.text);
    free(s);
}

static void a_long_chain_of_appends_takes_no_more_than_its_length(void **state)
{
    struct outcome o = render("{% set n = namespace(s='') %}{% for i in range(50000) %}"
                              "{% set n.s = n.s + 'abcdefghij' %}{% endfor %}{{ n.s }}");

    (void)state;
    assert_int_equal(o.status, ST_OK);
    assert_int_equal(o.text.len, 500000);
    rendered_dispose(&o.text);
}

static void content_that_is_null_or_a_list_reaches_the_template(void **state)
{
    json_t *messages =
        json_loads("[{\"content\": null}, {\"content\": [{\"text\": \"t\"}]}]", 0, NULL);
    struct outcome o =
        load_and_render("{{ messages[0].content is none }} {{ messages[1].content[0].text }}",
                        (struct template_input){.messages = messages});

    (void)state;
    assert_int_equal(o.status, ST_OK);
    assert_string_equal(o.text.text, "True t");
    rendered_dispose(&o.text);
    json_decref(messages);
}

static void extra_variables_can_not_take_a_name_of_ours(void **state)
{
    static const char *const names[] = {"messages",     "tools",
                                        "documents",    "add_generation_prompt",
                                        "bos_token",    "continue_final_message",
                                        "eos_token",    "raise_exception",
                                        "strftime_now", "namespace",
                                        "range",        "dict"};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char extra[64];
        struct outcome o;

        snprintf(extra, sizeof extra, "{\"more\": 5, \"%s\": 7}", names[i]);
        o = render_with("x", "u", extra);
        assert_int_equal(o.status, ST_INVALID);
        assert_string_equal(o.why.param, "chat_template_kwargs");
        assert_non_null(strstr(o.why.text, names[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_of_values_is_told_from_the_templates),
        cmocka_unit_test(origin_survives_what_is_done_to_a_text),
        cmocka_unit_test(origin_survives_blocks_macros_and_namespaces),
        cmocka_unit_test(an_older_text_keeps_its_length_when_a_newer_one_grows_from_it),
        cmocka_unit_test(a_macro_keeps_the_variables_of_where_it_was_defined),
        cmocka_unit_test(what_is_uncertain_counts_as_a_value),
        cmocka_unit_test(an_unknown_construct_is_refused_at_load_by_name),
        cmocka_unit_test(a_syntax_error_is_refused_with_its_line),
        cmocka_unit_test(an_exception_of_the_template_comes_out_verbatim),
        cmocka_unit_test(a_failure_says_where_and_what),
        cmocka_unit_test(a_failure_does_not_repeat_what_the_user_wrote),
        cmocka_unit_test(recursion_of_macros_meets_the_bound),
        cmocka_unit_test(loops_meet_the_bound_on_steps),
        cmocka_unit_test(ranges_reach_the_ends_of_the_integers),
        cmocka_unit_test(memory_and_output_are_bounded),
        cmocka_unit_test(output_stops_at_the_callers_limit),
        cmocka_unit_test(deep_nesting_is_refused_not_recursed_into),
        cmocka_unit_test(deep_values_are_refused_not_recursed_into),
        cmocka_unit_test(many_elifs_are_no_nesting),
        cmocka_unit_test(a_long_chain_of_appends_takes_no_more_than_its_length),
        cmocka_unit_test(content_that_is_null_or_a_list_reaches_the_template),
        cmocka_unit_test(extra_variables_can_not_take_a_name_of_ours),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
