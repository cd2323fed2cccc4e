#include "engine/model/hf_special.h"

#include <stdio.h>
#include <string.h>

#include "base/size.h"

/* Models name up to some dozen tokens that end a turn. */
#define EOG_MAX 64
/* Names of templates become parts of keys. */
#define TEMPLATE_NAME_MAX 64

static const char config_name[] = "tokenizer_config.json";

/* The text of a special token: a string, or an object with its content. Absent stays absent. */
static enum status token_text(struct arena *a, struct hf_span value, struct hf_span *out,
                              struct reason *why)
{
    struct hf_span content = {0}, raw;
    const struct hf_pick pick = {"content", &content};
    struct hf_json j;
    enum status s;

    if (value.text == NULL || hf_span_is(value, "null"))
        return ST_OK;
    if (value.text[0] == '{') {
        s = hf_json_pick(value, &pick, 1, "a special token", why);
        if (s != ST_OK)
            return s;
        value = content;
    }
    hf_json_init(&j, value.text != NULL ? value.text : "", value.len);
    if (!hf_json_string(&j, &raw) || !hf_json_text(a, raw, out))
        return hf_json_fail(&j, "a special token", why);
    return ST_OK;
}

/* 1: true, 0: false, -1: the file doesn't say. */
static int read_flag(struct hf_span value)
{
    return hf_span_is(value, "true") ? 1 : hf_span_is(value, "false") ? 0 : -1;
}

/* Special tokens by the part they play. */
enum part { BOS, EOS, PAD, N_PARTS };

struct special {
    const struct hf_tokenizer_files *files;
    struct hf_vocab *vocab;
    struct hf_meta *meta;
    struct reason *why;
    int64_t ids[N_PARTS]; /* -1: none */
    int adds_bos, adds_eos;
};

/* A token that the vocabulary lacks plays no part: transformers would add it behind the embedding.
 */
static enum status find_part(struct special *sp, struct hf_span value, enum part part)
{
    struct hf_span text = {0};
    enum status s = token_text(&sp->vocab->arena, value, &text, sp->why);

    if (s == ST_OK && text.text != NULL && sp->ids[part] == -1)
        sp->ids[part] = hf_vocab_find(sp->vocab, text);
    return s;
}

/* tokenizer_config.json, or special_tokens_map.json, which has less of the same. */
static enum status read_parts(struct special *sp, struct hf_span file, const char *name)
{
    struct hf_span parts[N_PARTS], adds_bos, adds_eos;
    const struct hf_pick picks[] = {
        {"bos_token", &parts[BOS]},   {"eos_token", &parts[EOS]},   {"pad_token", &parts[PAD]},
        {"add_bos_token", &adds_bos}, {"add_eos_token", &adds_eos},
    };
    enum status s;

    if (file.text == NULL)
        return ST_OK;
    s = hf_json_pick(file, picks, COUNT_OF(picks), name, sp->why);
    for (int i = 0; i < N_PARTS && s == ST_OK; i++)
        s = find_part(sp, parts[i], (enum part)i);
    if (s != ST_OK)
        return s;
    if (sp->adds_bos == -1)
        sp->adds_bos = read_flag(adds_bos);
    if (sp->adds_eos == -1)
        sp->adds_eos = read_flag(adds_eos);
    return ST_OK;
}

struct id_list {
    int64_t ids[EOG_MAX];
    size_t n;
};

/* An id past the embedding is left out: nothing gives it. Small copies of a model often keep the
 * ids of the large one. */
static bool add_id(struct id_list *l, const struct hf_vocab *v, uint64_t id)
{
    if (id >= v->n)
        return true;
    for (size_t i = 0; i < l->n; i++)
        if (l->ids[i] == (int64_t)id)
            return true;
    if (l->n == EOG_MAX)
        return false;
    l->ids[l->n++] = (int64_t)id;
    return true;
}

/* A number, a list of numbers, or null. */
static bool read_ids(struct hf_span value, const struct hf_vocab *v, struct id_list *l)
{
    struct hf_json j;
    uint64_t id;

    if (value.text == NULL || hf_span_is(value, "null"))
        return true;
    hf_json_init(&j, value.text, value.len);
    if (value.text[0] != '[')
        return hf_json_u64(&j, &id) && add_id(l, v, id);
    if (hf_json_enter_array(&j))
        while (hf_json_element(&j))
            if (!hf_json_u64(&j, &id) || !add_id(l, v, id))
                return false;
    return hf_json_end(&j);
}

/* The ids under one key of generation_config.json and config.json, in that order. */
static enum status read_config_ids(struct special *sp, const char *key, struct id_list *l)
{
    const struct {
        struct hf_span text;
        const char *name;
    } files[] = {
        {sp->files->generation, "generation_config.json"},
        {sp->files->model, "config.json"},
    };

    for (size_t i = 0; i < COUNT_OF(files); i++) {
        struct hf_span value = {0};
        const struct hf_pick pick = {key, &value};
        enum status s = ST_OK;

        if (files[i].text.text != NULL)
            s = hf_json_pick(files[i].text, &pick, 1, files[i].name, sp->why);
        if (s != ST_OK)
            return s;
        if (!read_ids(value, sp->vocab, l))
            return fail_param(sp->why, ST_CORRUPT, key,
                              "%s: %s is not the id of a token, or a list of up to %d of them",
                              files[i].name, key, EOG_MAX);
    }
    return ST_OK;
}

/* A token that the tokenizer's files don't name may stand in the model's. */
static enum status fall_back(struct special *sp, const char *key, enum part part)
{
    struct id_list l = {.n = 0};
    enum status s = read_config_ids(sp, key, &l);

    if (s == ST_OK && sp->ids[part] == -1 && l.n > 0)
        sp->ids[part] = l.ids[0];
    return s;
}

static void put_id(struct special *sp, const char *key, int64_t id)
{
    if (id != -1)
        hf_meta_u32(sp->meta, key, (uint32_t)id);
}

static enum status put_parts(struct special *sp, const struct hf_pipeline *p)
{
    const bool adds_bos = p->has_template ? p->bos_id != -1 : sp->adds_bos == 1,
               adds_eos = p->has_template ? p->eos_id != -1 : sp->adds_eos == 1;

    if (p->bos_id != -1)
        sp->ids[BOS] = p->bos_id;
    if (p->eos_id != -1)
        sp->ids[EOS] = p->eos_id;
    if (sp->ids[BOS] >= sp->vocab->n || sp->ids[EOS] >= sp->vocab->n)
        return fail(sp->why, ST_CORRUPT, "tokenizer.json: the post_processor names no token");
    if ((adds_bos && sp->ids[BOS] == -1) || (adds_eos && sp->ids[EOS] == -1))
        return fail_param(sp->why, ST_CORRUPT, "add_bos_token",
                          "%s asks for a BOS or EOS token and names none", config_name);
    put_id(sp, "tokenizer.ggml.bos_token_id", sp->ids[BOS]);
    put_id(sp, "tokenizer.ggml.eos_token_id", sp->ids[EOS]);
    put_id(sp, "tokenizer.ggml.padding_token_id", sp->ids[PAD]);
    hf_meta_bool(sp->meta, "tokenizer.ggml.add_bos_token", adds_bos);
    hf_meta_bool(sp->meta, "tokenizer.ggml.add_eos_token", adds_eos);
    return ST_OK;
}

static enum status put_eog(struct special *sp)
{
    struct id_list l = {.n = 0};
    enum status s = read_config_ids(sp, "eos_token_id", &l);

    if (s != ST_OK || l.n == 0)
        return s;
    (void)hf_meta_array(sp->meta, "sluice.eog_token_ids", GGUF_I32, l.n);
    for (size_t i = 0; i < l.n; i++)
        buf_put_u32(&sp->meta->kv, (uint32_t)l.ids[i]);
    return ST_OK;
}

enum status hf_special_put(const struct hf_tokenizer_files *f, struct hf_vocab *v,
                           const struct hf_pipeline *p, struct hf_meta *m, struct reason *why)
{
    struct special sp = {.files = f,
                         .vocab = v,
                         .meta = m,
                         .why = why,
                         .ids = {-1, -1, -1},
                         .adds_bos = -1,
                         .adds_eos = -1};
    enum status s = read_parts(&sp, f->config, config_name);

    if (s == ST_OK)
        s = read_parts(&sp, f->special_map, "special_tokens_map.json");
    if (s == ST_OK)
        s = fall_back(&sp, "bos_token_id", BOS);
    if (s == ST_OK)
        s = fall_back(&sp, "eos_token_id", EOS);
    if (s == ST_OK)
        s = put_parts(&sp, p);
    return s == ST_OK ? put_eog(&sp) : s;
}

/* Letters, digits and underscores. */
static bool is_template_name(struct hf_span s)
{
    for (size_t i = 0; i < s.len; i++)
        if ((s.text[i] < 'a' || s.text[i] > 'z') && (s.text[i] < 'A' || s.text[i] > 'Z') &&
            (s.text[i] < '0' || s.text[i] > '9') && s.text[i] != '_')
            return false;
    return s.len > 0 && s.len <= TEMPLATE_NAME_MAX;
}

/* `raw` is a JSON string; name "default" (or none) is the template that a request gets. */
static enum status put_template(struct arena *a, struct hf_span name, struct hf_span value,
                                struct hf_meta *m, struct reason *why)
{
    char key[32 + TEMPLATE_NAME_MAX] = "tokenizer.chat_template";
    struct hf_span raw, text;
    struct hf_json j;

    hf_json_init(&j, value.text != NULL ? value.text : "", value.len);
    if (!hf_json_string(&j, &raw) || !hf_json_text(a, raw, &text))
        return fail_param(why, ST_CORRUPT, "chat_template", "%s: a chat template is not one string",
                          config_name);
    if (name.text != NULL && !hf_span_is(name, "default"))
        snprintf(key, sizeof key, "tokenizer.chat_template.%.*s", (int)name.len, name.text);
    hf_meta_string(m, key, text.text, text.len);
    return ST_OK;
}

/* [{"name": "default", "template": "..."}, ...] */
static enum status put_named(struct arena *a, struct hf_span list, struct hf_meta *m,
                             struct reason *why)
{
    struct hf_span item = {0}, quoted, name, source;
    const struct hf_pick picks[] = {{"name", &quoted}, {"template", &source}};
    struct hf_json j, inner;
    enum status s = ST_OK;

    hf_json_init(&j, list.text, list.len);
    if (!hf_json_enter_array(&j))
        return hf_json_fail(&j, "chat_template", why);
    while (s == ST_OK && hf_json_element(&j) && hf_json_skip(&j, &item)) {
        s = hf_json_pick(item, picks, COUNT_OF(picks), "a chat template", why);
        if (s != ST_OK)
            return s;
        hf_json_init(&inner, quoted.text != NULL ? quoted.text : "", quoted.len);
        if (!hf_json_string(&inner, &name) || !is_template_name(name))
            return fail_param(why, ST_CORRUPT, "chat_template",
                              "%s: a chat template's name is no plain word", config_name);
        s = put_template(a, name, source, m, why);
    }
    return s;
}

enum status hf_templates_put(const struct hf_tokenizer_files *f, struct arena *a, struct hf_meta *m,
                             struct reason *why)
{
    struct hf_span value = {0};
    const struct hf_pick pick = {"chat_template", &value};
    enum status s = ST_OK;

    if (f->chat_template.text != NULL) {
        hf_meta_string(m, "tokenizer.chat_template", f->chat_template.text, f->chat_template.len);
        return ST_OK;
    }
    if (f->config.text != NULL)
        s = hf_json_pick(f->config, &pick, 1, config_name, why);
    if (s != ST_OK || value.text == NULL || hf_span_is(value, "null"))
        return s;
    if (value.text[0] == '[')
        return put_named(a, value, m, why);
    return put_template(a, (struct hf_span){0}, value, m, why);
}
