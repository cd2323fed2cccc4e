/* Hostile templates, on a large message: each ends at a bound, with an error that names it, after
 * little work. What a step may cost is what these are about: an operation over a long text or list
 * must be charged by its length. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/size.h"
#include "engine/text/template.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define CONTENT_BYTES (1u << 20)
/* A case takes well under a second of CPU, under the sanitizers a few; the faults took minutes. */
#define CPU_SECONDS_MAX 30
/* Of the whole program, which then ends by a signal: where a fault would take hours. */
#define CPU_SECONDS_LIMIT 600

static double cpu_seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static json_t *number_list(void)
{
    json_t *list = json_array();

    for (int i = 0; i < 20000; i++)
        assert_int_equal(json_array_append_new(list, json_integer(i)), 0);
    return list;
}

static json_t *large_object(void)
{
    json_t *object = json_object();

    for (int i = 0; i < 2000; i++) {
        char name[16];

        snprintf(name, sizeof name, "key%d", i);
        assert_int_equal(json_object_set_new(object, name, json_integer(i)), 0);
    }
    return object;
}

/* a and b are equal long texts, l and m equal long lists, d and e equal large objects. */
static json_t *long_values(void)
{
    char *text = malloc(CONTENT_BYTES + 1);
    json_t *values;

    assert_non_null(text);
    memset(text, 'A', CONTENT_BYTES);
    text[CONTENT_BYTES] = '\0';
    values = json_pack("{s:s, s:s, s:o, s:o, s:o, s:o}", "a", text, "b", text, "l", number_list(),
                       "m", number_list(), "d", large_object(), "e", large_object());
    assert_non_null(values);
    free(text);
    return values;
}

static enum status render(const char *source, const json_t *values, struct reason *why)
{
    const struct template_input in = {.messages = json_object_get(values, "none"), .extra = values};
    struct template *t = NULL;
    struct rendered r = {0};
    enum status s = template_new(source, strlen(source), &t, why);

    if (s == ST_OK)
        s = template_render(t, &in, &r, why);
    rendered_dispose(&r);
    template_free(t);
    return s;
}

/* `bound`: what the error names. */
static void expect_bound(const char *source, const json_t *values, const char *bound)
{
    struct reason why = {{0}, {0}};
    double start = cpu_seconds();
    enum status s = render(source, values, &why);
    double took = cpu_seconds() - start;

    if ((s != ST_TIMEOUT && s != ST_TOO_LARGE) || strstr(why.text, bound) == NULL)
        fail_msg("%.200s: %s (%s)", source, status_name(s), why.text);
    if (took > CPU_SECONDS_MAX)
        fail_msg("%.200s: took %.1f s", source, took);
}

/* Expressions that read much and keep little. */
static const char *const readers[] = {
    "a == b",
    "a < b",
    "a is eq b",
    "a is upper",
    "a is lower",
    "a.isupper()",
    "a.isalpha()",
    "a.startswith(b)",
    "a.endswith(b)",
    "'x'.strip(a)",
    "'xyz'.lstrip(a)",
    "'x'|trim(a)",
    "a.count('b')",
    "a.find('b')",
    "a.rfind('b')",
    "'b' in a",
    "a|length",
    "a[-1]",
    "a[500000:500001]",
    "{a: 1}[b]",
    "l == m",
    "l < m",
    "-1 in l",
    "l.count(-1)",
    "l|sum",
    "l|max",
    "l|first in m[19999:]",
    "(l, m) == (m, l)",
    "{'k': l} == {'k': m}",
    "loop.changed(a, l)",
    "d == e",
    "d.get('no')",
    "d.key1999",
    "'no' in d",
    "no_such_name",
};

static void work_over_long_values_is_charged_by_length(void **state)
{
    json_t *values = long_values();

    (void)state;
    for (size_t i = 0; i < COUNT_OF(readers); i++) {
        char source[256];

        snprintf(source, sizeof source,
                 "{%% for i in range(100000) %%}{%% for k in range(100) %%}"
                 "{%% set x = %s %%}{%% endfor %%}{%% endfor %%}",
                 readers[i]);
        expect_bound(source, values, "steps");
    }
    json_decref(values);
}

/* Expressions that make much. */
static const char *const makers[] = {
    "a|upper",
    "a|replace('A', 'BB')",
    "a|tojson",
    "a|e",
    "a|indent",
    "a|list",
    "a|reverse",
    "a[::-1]",
    "a[::2]",
    "a * 16",
    "a ~ b",
    "a.split('A')",
    "a.rsplit('A')",
    "a|title",
    "[a] * 1000000",
    "l + m",
    "l * 10",
    "l[::-1]",
    "l|sort",
    "l|unique|list",
    "l|map('string')|list",
    "l|select('gt', 5)|list",
    "l|tojson(indent=900)",
    "l|string",
    "d|dictsort",
    "d|items|list",
    "d.values()|list",
    "dict(d)",
    "d|tojson(sort_keys=true)",
    "range(100000)|list",
    "'%20d'|replace('', a)",
};

static void what_grows_meets_the_bound_on_memory_or_steps(void **state)
{
    json_t *values = long_values();

    (void)state;
    for (size_t i = 0; i < COUNT_OF(makers); i++) {
        char source[256];

        snprintf(source, sizeof source,
                 "{%% for i in range(100000) %%}{%% set x = %s %%}{%% endfor %%}", makers[i]);
        expect_bound(source, values, " t");
    }
    json_decref(values);
}

static void hostile_shapes_end_at_a_bound_that_the_error_names(void **state)
{
    static const struct {
        const char *source, *bound;
    } cases[] = {
        {"{% macro f(n) %}{{ f(n + 1) }}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}", "macros"},
        {"{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}",
         "macros"},
        {"{% macro f() %}{% set x %}{{ f() }}{% endset %}{% endmacro %}{{ f() }}", "macros"},
        {"{% for i in l %}{% for j in l %}{% for k in l %}{% endfor %}{% endfor %}{% endfor %}",
         "steps"},
        {"{% for i in range(100000) %}{{ a }}{% endfor %}", "too much text"},
        {"{{ 'x' * 999999999999 }}", "too often"},
        {"{{ a * 99 }}", "too often"},
        {"{% set n = namespace(s=a) %}{% for i in range(64) %}{% set n.s = n.s ~ n.s %}{% endfor "
         "%}",
         "memory"},
        {"{% set n = namespace(l=[0]) %}{% for i in range(64) %}{% set n.l = n.l + n.l %}"
         "{% endfor %}",
         "memory"},
        {"{% set n = namespace(v=()) %}{% for i in range(100000) %}{% set n.v = (n.v,) %}"
         "{% endfor %}{{ {n.v: 1} }}",
         "deeply"},
        {"{% set n = namespace(v=[]) %}{% for i in range(90000) %}{% set n.v = [n.v] %}{% endfor %}"
         "{{ n.v|tojson }}",
         "deeply"},
        {"{% set n = namespace(v=()) %}{% for i in range(90000) %}{% set n.v = (n.v,) %}{% endfor "
         "%}"
         "{{ n.v < (n.v,) }}",
         "deeply"},
    };
    json_t *values = long_values();

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        expect_bound(cases[i].source, values, cases[i].bound);
    json_decref(values);
}

/* `before`, then the piece so often, then `after`; %zu in the piece is its number. */
static char *repeat(const char *before, const char *piece, size_t n, const char *after)
{
    size_t room = strlen(before) + n * (strlen(piece) + 24) + strlen(after) + 1;
    char *s = malloc(room), *at;

    assert_non_null(s);
    at = s + sprintf(s, "%s", before);
    for (size_t i = 0; i < n; i++) {
        const char *number = strchr(piece, '#');

        if (number == NULL)
            at += sprintf(at, "%s", piece);
        else
            at += sprintf(at, "%.*s%zu%s", (int)(number - piece), piece, i, number + 1);
    }
    strcpy(at, after);
    return s;
}

static void many_names_and_arguments_are_charged_or_refused(void **state)
{
    static const struct {
        const char *before, *piece;
        size_t n;
        const char *after, *bound;
    } cases[] = {
        {"", "{% set v# = 1 %}", 20000,
         "{% for i in range(99999) %}{% for k in range(99) %}{{ nobody }}{% endfor %}{% endfor %}",
         "steps"},
        {"{% macro f(", "p#=1,", 5000, "z=1) %}{% endmacro %}{{ f() }}", "parameters"},
        {"{{ dict(", "p#=1,", 5000, "z=1) }}", "arguments"},
        {"{{ x|join(", "1,", 5000, "1) }}", "arguments"},
        {"{% if 1", " < 1", 100000, " %}{% endif %}", "too large"},
    };
    json_t *values = json_object();

    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char *source = repeat(cases[i].before, cases[i].piece, cases[i].n, cases[i].after);

        expect_bound(source, values, cases[i].bound);
        free(source);
    }
    json_decref(values);
}

int main(void)
{
    const struct rlimit limit = {CPU_SECONDS_LIMIT, CPU_SECONDS_LIMIT};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_over_long_values_is_charged_by_length),
        cmocka_unit_test(what_grows_meets_the_bound_on_memory_or_steps),
        cmocka_unit_test(hostile_shapes_end_at_a_bound_that_the_error_names),
        cmocka_unit_test(many_names_and_arguments_are_charged_or_refused),
    };

    if (setrlimit(RLIMIT_CPU, &limit) != 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
