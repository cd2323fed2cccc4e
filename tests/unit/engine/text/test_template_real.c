/* Chat templates of real models, from the cache (tools/fetch_templates.sh): what comes out is what
 * jinja2 makes of them (tests/data/templates/real.json, made by tools/oracle_template.py --real).
 * Skipped where the cache has none. */
#include <openssl/sha.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "engine/text/template.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

struct real {
    json_t *data;
    char folder[512];
};

static void find_folder(const char *of, char *out, size_t room)
{
    const char *own = getenv("SLUICE_CACHE"), *xdg = getenv("XDG_CACHE_HOME");

    if (own != NULL && own[0] != '\0')
        snprintf(out, room, "%s/%s", own, of);
    else if (xdg != NULL && xdg[0] != '\0')
        snprintf(out, room, "%s/sluice/%s", xdg, of);
    else
        snprintf(out, room, "%s/.cache/sluice/%s", getenv("HOME"), of);
}

/* False: the cache has no templates. */
static bool real_open(struct real *r)
{
    const char *made_by, *of;

    r->data = json_load_file("tests/data/templates/real.json", JSON_ALLOW_NUL, NULL);
    made_by = json_string_value(json_object_get(r->data, "made_by"));
    assert_non_null(made_by);
    of = strrchr(made_by, ' ') + 1; /* its last word is the folder */
    find_folder(of, r->folder, sizeof r->folder);
    return access(r->folder, R_OK) == 0;
}

static void hex_sha256(const char *text, size_t len, char out[65])
{
    unsigned char sum[SHA256_DIGEST_LENGTH];

    SHA256((const unsigned char *)text, len, sum);
    for (size_t i = 0; i < sizeof sum; i++)
        sprintf(out + 2 * i, "%02x", sum[i]);
}

/* The template of that name, whose sum must be the one that the expected texts were made of. */
static void read_template(const struct real *r, const char *name, struct buf *out)
{
    char path[700], sum[65];
    FILE *f;
    int c;

    snprintf(path, sizeof path, "%s/%s.jinja", r->folder, name);
    f = fopen(path, "rb");
    if (f == NULL)
        fail_msg("%s is not there", path);
    while ((c = fgetc(f)) != EOF)
        buf_putc(out, (char)c);
    fclose(f);
    hex_sha256(out->data, out->len, sum);
    assert_string_equal(
        sum, json_string_value(json_object_get(json_object_get(r->data, "templates"), name)));
}

static enum status render(const struct real *r, const struct template *t, const json_t *c,
                          struct rendered *out, struct reason *why)
{
    const json_t *in = json_array_get(json_object_get(r->data, "inputs"),
                                      (size_t)json_integer_value(json_object_get(c, "input")));
    const struct template_input input = {
        .messages = json_object_get(in, "messages"),
        .tools = json_object_get(in, "tools"),
        .documents = json_object_get(in, "documents"),
        .extra = json_object_get(in, "extra"),
        .bos_token = json_string_value(json_object_get(in, "bos")),
        .eos_token = json_string_value(json_object_get(in, "eos")),
        .add_generation_prompt = json_is_true(json_object_get(in, "gen")),
        .continue_final_message = json_is_true(json_object_get(in, "continue")),
        .now_s = json_integer_value(json_object_get(r->data, "now")),
    };

    return template_render(t, &input, out, why);
}

/* t is NULL where the template was refused at load: then jinja2 must refuse it too. */
static void check(const struct real *r, const struct template *t, const json_t *c)
{
    char name[200];
    const char *want = json_string_value(json_object_get(c, "sha256"));
    struct rendered out = {0};
    struct reason why = {{0}, {0}};
    enum status s = t == NULL ? ST_UNSUPPORTED : render(r, t, c, &out, &why);
    char sum[65] = "";

    snprintf(name, sizeof name, "%s, input %lld", json_string_value(json_object_get(c, "template")),
             (long long)json_integer_value(json_object_get(c, "input")));
    if (s == ST_OK)
        hex_sha256(out.text, out.len, sum);
    if (want == NULL && s == ST_OK)
        fail_msg("%s: jinja2 fails, and this came out:\n%s", name, out.text);
    if (want != NULL && s != ST_OK)
        fail_msg("%s: %s", name, why.text);
    if (want != NULL && strcmp(sum, want) != 0)
        fail_msg("%s: jinja2 gives another text than:\n%s", name, out.text);
    rendered_dispose(&out);
}

/* NULL: refused, and said why. */
static struct template *load(const struct real *r, const char *name)
{
    struct template *t = NULL;
    struct reason why = {{0}, {0}};
    struct buf source;

    buf_init(&source);
    read_template(r, name, &source);
    if (template_new(source.data, source.len, &t, &why) != ST_OK)
        print_message("%s: %s\n", name, why.text);
    buf_dispose(&source);
    return t;
}

/* The cases of one template stand together. */
static void real_templates_render_as_jinja2_renders_them(void **state)
{
    struct template *t = NULL;
    const char *loaded = "";
    struct real r;
    const json_t *c;
    size_t i;

    (void)state;
    if (!real_open(&r)) {
        json_decref(r.data);
        print_message("no templates in %s: run tools/fetch_templates.sh\n", r.folder);
        skip();
    }
    json_array_foreach(json_object_get(r.data, "cases"), i, c)
    {
        const char *name = json_string_value(json_object_get(c, "template"));

        if (strcmp(name, loaded) != 0) {
            template_free(t);
            t = load(&r, name);
            loaded = name;
        }
        check(&r, t, c);
    }
    template_free(t);
    json_decref(r.data);
}

/* What came from the template when a user and an assistant write `word`; empty when it fails. */
static void template_text(const struct template *t, const char *word, struct buf *out)
{
    json_t *messages =
        json_pack("[{s:s, s:s+}, {s:s, s:s+}, {s:s, s:s}]", "role", "user", "content", "a ", word,
                  "role", "assistant", "content", word, " b", "role", "user", "content", word);
    const struct template_input in = {.messages = messages,
                                      .bos_token = "<s>",
                                      .eos_token = "</s>",
                                      .add_generation_prompt = true};
    struct rendered r = {0};

    assert_non_null(messages);
    if (template_render(t, &in, &r, NULL) == ST_OK) {
        for (size_t i = 0; i < r.n_spans; i++) {
            if (r.spans[i].from_template)
                buf_append(out, r.text + r.spans[i].start, r.spans[i].len);
        }
    }
    rendered_dispose(&r);
    json_decref(messages);
}

static void check_tokens(const struct template *t, const char *name)
{
    static const char *const tokens[] = {"<|im_end|>",
                                         "<|im_start|>",
                                         "<|eot_id|>",
                                         "<|start_header_id|>",
                                         "</s>",
                                         "[INST]",
                                         "[/INST]",
                                         "[TOOL_CALLS]",
                                         "<start_of_turn>",
                                         "<|end|>",
                                         "<|user|>",
                                         "<|assistant|>",
                                         "<|END_OF_TURN_TOKEN|>",
                                         "<｜User｜>",
                                         "<|return|>",
                                         "<|end_of_role|>",
                                         "[gMASK]",
                                         "<|observation|>",
                                         "<|im_middle|>",
                                         "<turn|>"};
    struct buf neutral;

    buf_init(&neutral);
    template_text(t, "word", &neutral);
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        struct buf hostile;

        buf_init(&hostile);
        template_text(t, tokens[i], &hostile);
        if (strcmp(buf_cstr(&hostile), buf_cstr(&neutral)) != 0)
            fail_msg("%s: '%s' of a user changed what is the template's:\n%s\nfrom\n%s", name,
                     tokens[i], buf_cstr(&hostile), buf_cstr(&neutral));
        buf_dispose(&hostile);
    }
    buf_dispose(&neutral);
}

static void real_templates_take_no_users_text_for_their_own(void **state)
{
    struct real r;
    const char *name;
    json_t *sum;

    (void)state;
    if (!real_open(&r)) {
        json_decref(r.data);
        skip();
    }
    json_object_foreach(json_object_get(r.data, "templates"), name, sum)
    {
        struct template *t = load(&r, name);

        if (t != NULL)
            check_tokens(t, name);
        template_free(t);
    }
    json_decref(r.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_templates_render_as_jinja2_renders_them),
        cmocka_unit_test(real_templates_take_no_users_text_for_their_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
