/* Against jinja2 itself: tests/data/templates/cases.json, made by tools/oracle_template.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/template.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

struct outcome {
    enum status status;
    struct reason why;
    struct rendered text;
};

static struct outcome render(const json_t *source, const json_t *in, long long now_s)
{
    const struct template_input input = {
        .messages = json_object_get(in, "messages"),
        .tools = json_object_get(in, "tools"),
        .documents = json_object_get(in, "documents"),
        .extra = json_object_get(in, "extra"),
        .bos_token = json_string_value(json_object_get(in, "bos")),
        .eos_token = json_string_value(json_object_get(in, "eos")),
        .add_generation_prompt = json_is_true(json_object_get(in, "gen")),
        .continue_final_message = json_is_true(json_object_get(in, "continue")),
        .now_s = now_s,
    };
    struct outcome o = {0};
    struct template *t = NULL;

    o.status = template_new(json_string_value(source), json_string_length(source), &t, &o.why);
    if (o.status == ST_OK)
        o.status = template_render(t, &input, &o.text, &o.why);
    template_free(t);
    return o;
}

static void check_text(const char *name, const struct outcome *o, const json_t *want)
{
    if (o->status != ST_OK)
        fail_msg("%s: %s", name, o->why.text);
    if (o->text.len != json_string_length(want) ||
        memcmp(o->text.text, json_string_value(want), o->text.len) != 0)
        fail_msg("%s:\n%s\nwant:\n%s", name, o->text.text, json_string_value(want));
}

static void check_failure(const char *name, const struct outcome *o, const json_t *message)
{
    if (o->status != ST_INVALID && o->status != ST_UNSUPPORTED)
        fail_msg("%s: %s, but jinja2 fails", name, status_name(o->status));
    if (json_is_string(message) && strcmp(o->why.text, json_string_value(message)) != 0)
        fail_msg("%s: \"%s\", want \"%s\"", name, o->why.text, json_string_value(message));
}

static void check_spans(const char *name, const struct rendered *r)
{
    size_t end = 0;

    for (size_t i = 0; i < r->n_spans; i++) {
        if (r->spans[i].start != end || r->spans[i].len == 0)
            fail_msg("%s: span %zu does not follow", name, i);
        end += r->spans[i].len;
    }
    assert_int_equal(end, r->len);
}

static void renders_what_jinja2_renders(void **state)
{
    json_error_t err;
    json_t *data = json_load_file("tests/data/templates/cases.json", JSON_ALLOW_NUL, &err), *c;
    const json_t *inputs = json_object_get(data, "inputs");
    const json_t *templates = json_object_get(data, "templates");
    long long now_s = json_integer_value(json_object_get(data, "now"));
    size_t i;

    (void)state;
    assert_true(json_array_size(json_object_get(data, "cases")) >= 150);
    json_array_foreach(json_object_get(data, "cases"), i, c)
    {
        const char *name = json_string_value(json_object_get(c, "name"));
        const char *template = json_string_value(json_object_get(c, "template"));
        size_t input = (size_t)json_integer_value(json_object_get(c, "input"));
        struct outcome o =
            render(json_object_get(templates, template), json_array_get(inputs, input), now_s);

        if (json_object_get(c, "text") != NULL)
            check_text(name, &o, json_object_get(c, "text"));
        else
            check_failure(name, &o, json_object_get(c, "error"));
        check_spans(name, &o.text);
        rendered_dispose(&o.text);
    }
    json_decref(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renders_what_jinja2_renders),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
