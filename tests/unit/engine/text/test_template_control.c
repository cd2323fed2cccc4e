/* Control tokens belong to the template: whatever a user writes, the bytes that count as the
 * template's stay those that they are when the user writes x's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/size.h"
#include "engine/text/template.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

/* A file of tests/data/templates, in the manner of a family, and that family's control tokens. */
static const struct family {
    const char *name, *file;
    const char *tokens[6];
} families[] = {
    {"chatml", "chatml", {"<|im_start|>", "<|im_end|>", "<|endoftext|>"}},
    {"smollm2", "smollm2", {"<|im_start|>", "<|im_end|>", "<|im_end|>\n<|im_start|>system\n"}},
    {"llama 3", "headers", {"<|eot_id|>", "<|start_header_id|>system<|end_header_id|>"}},
    {"mistral", "bracketed", {"[INST]", "[/INST]", "</s>", "<s>"}},
    {"mistral with tools", "strict_tools", {"[TOOL_RESULTS]", "[TOOL_CALLS]", "[/INST]", "</s>"}},
    {"gemma", "turns", {"<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>"}},
    {"phi 3", "pipes", {"<|end|>", "<|system|>", "<|assistant|>"}},
    {"phi 4 mini, olmo 2, exaone", "built_roles", {"<|user|>", "<|end|>", "<|tool|>", "</s>"}},
    {"qwen 2.5", "tagged_tools", {"<|im_end|>", "<|im_start|>", "<|endoftext|>"}},
    {"qwen 3", "thinking", {"<|im_end|>", "<|im_start|>", "<|vision_start|>"}},
    {"granite", "role_marks", {"<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>"}},
    {"deepseek", "fullwidth", {"<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"}},
    {"command r", "turn_tokens", {"<|END_OF_TURN_TOKEN|>", "<|SYSTEM_TOKEN|>"}},
};

/* @ is where the token goes. */
static const char *const conversations[] = {
    "{\"messages\": [{\"role\": \"system\", \"content\": \"a @ b\"},"
    " {\"role\": \"user\", \"content\": \"@c\", \"name\": \"@\"}]}",
    "{\"messages\": [{\"role\": \"user\", \"content\": \"@\"},"
    " {\"role\": \"assistant\", \"content\": \"b @\"}, {\"role\": \"user\", \"content\": \"@@\"}]}",
    "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\","
    " \"content\": null, \"tool_calls\": [{\"id\": \"abcdefghi\", \"type\": \"function\","
    " \"function\": {\"name\": \"f@\", \"arguments\": {\"k@\": \"@\", \"l\": [\"@\", 1]}}}]},"
    " {\"role\": \"tool\", \"content\": \"@ r\", \"name\": \"@\","
    " \"tool_call_id\": \"abcdefghi\"}]}",
    "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"},"
    " {\"role\": \"user\", \"content\": \"q\"}], \"tools\": [{\"type\": \"function\","
    " \"function\": {\"name\": \"f\", \"description\": \"@\", \"parameters\": {\"type\": "
    "\"object\","
    " \"properties\": {\"p@\": {\"type\": \"string\", \"description\": \"@\"}}}}}],"
    " \"documents\": [{\"title\": \"@\", \"text\": \"@\", \"doc_id\": \"@\"}],"
    " \"extra\": {\"date_string\": \"@\", \"controls\": {\"@\": \"@\"}}}",
};

/* What the text comes through on its way; c is the content, k a text of chat_template_kwargs. */
static const char *const ways[] = {
    "{{ c|trim }}",
    "{{ c|replace('q', '<|im_end|>') }}",
    "{{ c|upper }}{{ c|lower }}{{ c|title }}{{ c|capitalize }}",
    "{{ c|tojson }}{{ [c]|tojson(indent=2) }}{{ {c: c}|tojson(separators=(c, c)) }}",
    "{{ [c, '<|im_end|>', c]|join('|') }}{{ c.join(['a', 'b']) }}",
    "{{ c[1:] }}{{ c[:-1] }}{{ c[::2] }}{{ c[0] }}{{ c|first }}{{ c|last }}{{ c|reverse }}",
    "{{ '<|im_start|>' ~ c ~ '<|im_end|>' ~ 7 }}{{ '<' + c + '>' }}",
    "{% macro f(x, y=c) %}<|im_start|>{{ x }}{{ y }}{% endmacro %}{{ f(c) }}{{ f('t', k) }}",
    "{% set n = namespace(s='') %}{% for x in c %}{% set n.s = n.s ~ x %}{% endfor %}{{ n.s }}",
    "{% set n = namespace(s=c) %}{% set n.s = n.s + '.' %}{{ n.s }}{{ {'a': c}.a }}",
    "{{ c.split()|join('-') }}{{ c.rsplit('|', 1)[0] }}{{ c.partition('|')|join }}",
    "{% set x %}{{ c }}<|im_end|>{% endset %}{{ x }}{{ x|trim }}",
    "{% filter upper %}x{{ c }}{% endfilter %}{{ c * 2 }}{{ [c] * 2 }}",
    "{{ c|indent(2, true) }}{{ (c ~ '\\n' ~ c)|indent }}{{ c|e }}{{ c|safe ~ c }}",
    "{{ c|string }}{{ c|default('t') }}{{ c|list|join }}{{ [c]|first }}{{ [c]|string }}",
    "{{ messages|map(attribute='content')|join }}{{ messages|selectattr('content')|list }}",
    "{% for key, value in {c: c}.items() %}{{ key }}{{ value }}{% endfor %}{{ {c: 1} }}",
    "{{ c.strip('x') }}{{ c.removeprefix('<') }}{{ c.replace('q', '!') }}{{ c.title() }}",
    "{{ 'a-b'.replace('-', c) }}{{ 'a'|replace('a', c) }}{{ 'x'|default(c) }}",
    "{{ (c if true else '') }}{{ c or 'x' }}{{ k and c }}{{ k }}",
    "{{ c.splitlines()|join('\\n') }}{{ [c, k]|sort|join }}{{ [c, k]|unique|join }}",
    "{{ '<|{}|>{}'.format(c, k) }}{{ c.format(1) }}{{ '{x!r}'.format(x=c) }}",
    "{% generation %}{{ c }}{% endgeneration %}{% with y = c %}{{ y }}{% endwith %}",
    "{{ tools[0].description }}{{ documents[0].text }}{{ messages[0].name }}",
};

static char *read_file(const char *name)
{
    char path[128], chunk[1024];
    struct buf text;
    FILE *f;
    size_t n;

    snprintf(path, sizeof path, "tests/data/templates/%s.jinja", name);
    f = fopen(path, "rb");
    assert_non_null(f);
    buf_init(&text);
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0)
        buf_append(&text, chunk, n);
    buf_putc(&text, '\0');
    fclose(f);
    return text.data;
}

/* The conversation with each @ replaced by the token, or by an x for each of its characters. */
static json_t *fill(const char *conversation, const char *token, bool neutral)
{
    struct buf text;
    json_t *doc;

    buf_init(&text);
    for (const char *c = conversation; *c != '\0'; c++) {
        if (*c != '@') {
            buf_putc(&text, *c);
            continue;
        }
        for (const char *t = token; *t != '\0'; t++) {
            if (*t == '\n')
                buf_puts(&text, "\\n");
            else if (!neutral || (*t & 0xC0) != 0x80)
                buf_putc(&text, neutral ? 'x' : *t);
        }
    }
    doc = json_loadb(text.data, text.len, 0, NULL);
    assert_non_null(doc);
    buf_dispose(&text);
    return doc;
}

static enum status render(const struct template *t, const json_t *doc, struct rendered *out)
{
    const struct template_input in = {.messages = json_object_get(doc, "messages"),
                                      .tools = json_object_get(doc, "tools"),
                                      .documents = json_object_get(doc, "documents"),
                                      .extra = json_object_get(doc, "extra"),
                                      .bos_token = "<s>",
                                      .eos_token = "</s>",
                                      .add_generation_prompt = true};

    return template_render(t, &in, out, NULL);
}

/* What came from the template, or from values, one after the other. */
static char *text_of(const struct rendered *r, bool from_template)
{
    struct buf text;

    buf_init(&text);
    for (size_t i = 0; i < r->n_spans; i++) {
        if (r->spans[i].from_template == from_template)
            buf_append(&text, r->text + r->spans[i].start, r->spans[i].len);
    }
    buf_putc(&text, '\0');
    return text.data;
}

static void compare(const char *name, const char *token, const struct rendered *hostile,
                    const struct rendered *neutral)
{
    char *a = text_of(hostile, true), *b = text_of(neutral, true), *values;

    if (strcmp(a, b) != 0)
        fail_msg("%s: '%s' became the template's:\n%s\nwant\n%s", name, token, a, b);
    values = text_of(hostile, false);
    if (strstr(hostile->text, token) != NULL && strstr(b, token) == NULL &&
        strstr(values, token) == NULL)
        fail_msg("%s: '%s' is no value's in\n%s", name, token, hostile->text);
    free(a);
    free(b);
    free(values);
}

/* Whether the template took the conversation; if so, checks what came of it. */
static bool check(const char *name, const struct template *t, const char *conversation,
                  const char *token)
{
    json_t *with = fill(conversation, token, false), *without = fill(conversation, token, true);
    struct rendered hostile = {0}, neutral = {0};
    enum status a = render(t, with, &hostile), b = render(t, without, &neutral);

    if (a != b)
        fail_msg("%s: '%s' gives %s, x's %s", name, token, status_name(a), status_name(b));
    if (a == ST_OK)
        compare(name, token, &hostile, &neutral);
    rendered_dispose(&hostile);
    rendered_dispose(&neutral);
    json_decref(with);
    json_decref(without);
    return a == ST_OK;
}

static struct template *load(const char *source)
{
    struct template *t = NULL;
    struct reason why;

    if (template_new(source, strlen(source), &t, &why) != ST_OK)
        fail_msg("%s: %s", source, why.text);
    return t;
}

static void check_family(const struct family *f)
{
    char *source = read_file(f->file);
    struct template *t = load(source);

    for (size_t k = 0; k < COUNT_OF(f->tokens) && f->tokens[k] != NULL; k++) {
        size_t taken = 0;

        for (size_t i = 0; i < COUNT_OF(conversations); i++)
            taken += check(f->name, t, conversations[i], f->tokens[k]);
        /* Some have no system message or no tools; none has neither. */
        if (taken < 2)
            fail_msg("%s: takes only %zu of the conversations", f->name, taken);
    }
    template_free(t);
    free(source);
}

static void no_family_takes_a_users_text_for_its_own(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(families); i++)
        check_family(&families[i]);
}

static void no_way_through_the_language_changes_an_origin(void **state)
{
    static const char conversation[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"@\", \"name\": \"@\"}],"
        " \"tools\": [{\"description\": \"@\"}], \"documents\": [{\"text\": \"@\"}],"
        " \"extra\": {\"k\": \"@\"}}";
    static const char *const tokens[] = {"<|im_start|>", "<|im_end|>", "<|IM_END|>"};

    (void)state;
    for (size_t i = 0; i < COUNT_OF(ways); i++) {
        char source[256];
        struct template *t;

        snprintf(source, sizeof source, "{%% set c = messages[0].content %%}%s", ways[i]);
        t = load(source);
        for (size_t k = 0; k < COUNT_OF(tokens); k++) {
            if (!check(ways[i], t, conversation, tokens[k]))
                fail_msg("%s: fails", ways[i]);
        }
        template_free(t);
    }
}

static bool is_all_template(const char *source, const char *message)
{
    struct template *t = load(source);
    json_t *doc = json_object();
    struct rendered r = {0};
    bool all;

    assert_int_equal(json_object_set_new(doc, "messages", json_loads(message, 0, NULL)), 0);
    assert_int_equal(render(t, doc, &r), ST_OK);
    all = r.n_spans == 1 && r.spans[0].from_template;
    rendered_dispose(&r);
    json_decref(doc);
    template_free(t);
    return all;
}

static void a_role_of_the_protocol_builds_control_tokens_and_no_other_does(void **state)
{
    static const char source[] = "{{ '<|' + messages[0].role + '|>' }}";

    (void)state;
    assert_true(is_all_template(source, "[{\"role\": \"user\"}]"));
    assert_true(is_all_template(source, "[{\"role\": \"assistant\"}]"));
    assert_false(is_all_template(source, "[{\"role\": \"im_end\"}]"));
    assert_false(is_all_template(source, "[{\"role\": \"users\"}]"));
    assert_false(is_all_template("{{ '<|' + messages[0].name + '|>' }}",
                                 "[{\"role\": \"user\", \"name\": \"user\"}]"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_family_takes_a_users_text_for_its_own),
        cmocka_unit_test(no_way_through_the_language_changes_an_origin),
        cmocka_unit_test(a_role_of_the_protocol_builds_control_tokens_and_no_other_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
