#include "engine/model/hf_chain.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"

/* U+2581, by which SentencePiece writes a space. */
#define SPACE "\xE2\x96\x81"
/* A precompiled character map has about 400 kB in base64; patterns have some hundred bytes. */
#define PART_BYTES_MAX ((size_t)2 << 20)

bool hf_chain_matches(const char *chain, const char *pattern)
{
    const char *any = strstr(pattern, HF_CHAIN_ANY);
    size_t head, tail, len = strlen(chain);

    if (any == NULL)
        return strcmp(chain, pattern) == 0;
    head = (size_t)(any - pattern);
    tail = strlen(any + 1);
    return len >= head + tail && memcmp(chain, pattern, head) == 0 &&
           strcmp(chain + len - tail, any + 1) == 0;
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s != NULL ? s : "";
}

static bool flag_of(const json_t *o, const char *key, bool fallback)
{
    const json_t *v = json_object_get(o, key);

    return json_is_boolean(v) ? json_is_true(v) : fallback;
}

static bool is(const json_t *o, const char *key, const char *want)
{
    return strcmp(text_of(o, key), want) == 0;
}

/* The kinds of a part's components: appends the spelling of one, false: it has none. */
struct speller {
    const char *what; /* "normalizer" */
    const char *list; /* a Sequence's list: "normalizers" */
    bool (*spell)(const json_t *component, struct buf *out, json_t **charsmap);
};

static enum status refuse(const struct speller *sp, const json_t *component, struct reason *why)
{
    char *json = json_dumps(component, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_SORT_KEYS);
    enum status s =
        fail_param(why, ST_UNSUPPORTED, sp->what, "tokenizer.json: the %s %.200s is not supported",
                   sp->what, json != NULL ? json : "(out of memory)");

    free(json);
    return s;
}

/* Recursion is as deep as the document, which json_parse bounds. */
static enum status spell_all(const struct speller *sp, const json_t *component, struct buf *out,
                             json_t **charsmap, struct reason *why)
{
    const json_t *list = json_object_get(component, sp->list), *inner;
    enum status s = ST_OK;
    size_t i;

    if (is(component, "type", "Sequence") && json_is_array(list)) {
        json_array_foreach(list, i, inner)
        {
            s = spell_all(sp, inner, out, charsmap, why);
            if (s != ST_OK)
                return s;
        }
        return ST_OK;
    }
    if (out->len > 0)
        buf_puts(out, " > ");
    return sp->spell(component, out, charsmap) ? ST_OK : refuse(sp, component, why);
}

/* *doc stays NULL for an absent part. */
static enum status parse_part(struct hf_span text, const char *what, json_t **doc,
                              struct reason *why)
{
    struct reason detail = {0};
    enum status s;

    if (text.text == NULL || hf_span_is(text, "null"))
        return ST_OK;
    if (text.len > PART_BYTES_MAX)
        return fail_param(why, ST_TOO_LARGE, what, "tokenizer.json: the %s has %zu bytes", what,
                          text.len);
    s = json_parse(text.text, text.len, JSON_DEPTH_MAX, doc, &detail);
    return s == ST_OK ? s
                      : fail_param(why, ST_CORRUPT, what, "tokenizer.json: the %s: %.200s", what,
                                   detail.text);
}

static enum status spell_part(const struct speller *sp, struct hf_span text, struct buf *out,
                              json_t **charsmap, struct reason *why)
{
    json_t *doc = NULL;
    enum status s = parse_part(text, sp->what, &doc, why);

    if (s == ST_OK && doc != NULL)
        s = spell_all(sp, doc, out, charsmap, why);
    json_decref(doc);
    return s;
}

/* Replace: spaces by U+2581, or runs of spaces by one. */
static bool spell_replace(const json_t *c, struct buf *out)
{
    const json_t *pattern = json_object_get(c, "pattern");
    const bool to_mark = is(c, "content", SPACE), to_space = is(c, "content", " ");

    if (is(pattern, "String", " ") && to_mark)
        buf_puts(out, "Spaces");
    else if (is(pattern, "Regex", " {2,}") && (to_mark || to_space))
        buf_puts(out, "Collapse");
    else
        return false;
    return true;
}

/* What engine/text's WordPiece does; strip_accents null follows lowercase. */
static bool is_plain_bert(const json_t *c)
{
    return flag_of(c, "lowercase", true) && flag_of(c, "clean_text", true) &&
           flag_of(c, "handle_chinese_chars", true) && flag_of(c, "strip_accents", true);
}

static bool spell_normalizer(const json_t *c, struct buf *out, json_t **charsmap)
{
    if (is(c, "type", "NFC"))
        buf_puts(out, "NFC");
    else if (is(c, "type", "Prepend") && is(c, "prepend", SPACE))
        buf_puts(out, "Prepend");
    else if (is(c, "type", "Replace"))
        return spell_replace(c, out);
    else if (is(c, "type", "Strip") && flag_of(c, "strip_right", true) &&
             !flag_of(c, "strip_left", true))
        buf_puts(out, "StripRight");
    else if (is(c, "type", "BertNormalizer") && is_plain_bert(c))
        buf_puts(out, "Bert");
    else if (is(c, "type", "Precompiled") && *charsmap == NULL &&
             json_is_string(json_object_get(c, "precompiled_charsmap"))) {
        *charsmap = json_incref(json_object_get(c, "precompiled_charsmap"));
        buf_puts(out, "Precompiled");
    } else
        return false;
    return true;
}

enum status hf_chain_normalizers(struct hf_span text, struct buf *out, json_t **charsmap,
                                 struct reason *why)
{
    static const struct speller sp = {"normalizer", "normalizers", spell_normalizer};

    return spell_part(&sp, text, out, charsmap, why);
}

/* Isolated cuts at both ends of a match; so does dropping what is left between the matches of the
 * inverted pattern, which is how tokenizers made from tiktoken's put it. */
static bool spell_split(const json_t *c, struct buf *out)
{
    const json_t *pattern = json_object_get(c, "pattern");
    const bool invert = flag_of(c, "invert", false);
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));

    if (is(pattern, "String", " ") && is(c, "behavior", "MergedWithPrevious") && !invert)
        buf_puts(out, "SplitSpace");
    else if (regex != NULL && is(c, "behavior", invert ? "Removed" : "Isolated"))
        buf_printf(out, "Split(%s)", regex);
    else
        return false;
    return true;
}

/* Older files have add_prefix_space instead of a scheme. */
static bool spell_metaspace(const json_t *c, struct buf *out)
{
    static const char *const schemes[] = {"always", "first", "never"};
    const char *scheme = text_of(c, "prepend_scheme");

    if (!is(c, "replacement", SPACE))
        return false;
    if (scheme[0] == 0)
        scheme = flag_of(c, "add_prefix_space", true) ? "always" : "never";
    for (size_t i = 0; i < COUNT_OF(schemes); i++) {
        if (strcmp(scheme, schemes[i]) != 0)
            continue;
        buf_printf(out, "Metaspace(%s%s)", scheme, flag_of(c, "split", true) ? ",split" : "");
        return true;
    }
    return false;
}

static bool spell_pre_tokenizer(const json_t *c, struct buf *out, json_t **charsmap)
{
    (void)charsmap;
    if (is(c, "type", "ByteLevel") && !flag_of(c, "add_prefix_space", true))
        buf_puts(out, flag_of(c, "use_regex", true) ? "Bytes(gpt2)" : "Bytes");
    else if (is(c, "type", "Digits"))
        buf_puts(out, flag_of(c, "individual_digits", false) ? "Digit" : "Digits");
    else if (is(c, "type", "Punctuation"))
        buf_printf(out, "Punctuation(%s)", text_of(c, "behavior"));
    else if (is(c, "type", "Split"))
        return spell_split(c, out);
    else if (is(c, "type", "Metaspace"))
        return spell_metaspace(c, out);
    else if (is(c, "type", "WhitespaceSplit"))
        buf_puts(out, "Words");
    else if (is(c, "type", "BertPreTokenizer"))
        buf_puts(out, "Bert");
    else
        return false;
    return true;
}

enum status hf_chain_pre_tokenizers(struct hf_span text, struct buf *out, struct reason *why)
{
    static const struct speller sp = {"pre_tokenizer", "pretokenizers", spell_pre_tokenizer};

    return spell_part(&sp, text, out, NULL, why);
}

/* Decoders that give the text of the pieces as engine/text has them: U+2581 for a space, bytes for
 * <0xNN>, "##" for the rest of a word, and no space before the first word. */
static bool spell_decoder(const json_t *c, struct buf *out, json_t **charsmap)
{
    static const char *const plain[] = {"ByteLevel", "ByteFallback", "Fuse"};
    const json_t *start = json_object_get(c, "start"), *stop = json_object_get(c, "stop");

    (void)out;
    (void)charsmap;
    for (size_t i = 0; i < COUNT_OF(plain); i++)
        if (is(c, "type", plain[i]))
            return true;
    if (is(c, "type", "Replace"))
        return is(json_object_get(c, "pattern"), "String", SPACE) && is(c, "content", " ");
    if (is(c, "type", "Strip"))
        return is(c, "content", " ") && json_integer_value(start) <= 1 &&
               json_integer_value(stop) == 0;
    return (is(c, "type", "Metaspace") && is(c, "replacement", SPACE)) ||
           (is(c, "type", "WordPiece") && is(c, "prefix", "##"));
}

enum status hf_chain_check_decoders(struct hf_span text, struct reason *why)
{
    static const struct speller sp = {"decoder", "decoders", spell_decoder};
    struct buf unused;
    enum status s;

    buf_init(&unused);
    s = spell_part(&sp, text, &unused, NULL, why);
    buf_dispose(&unused);
    return s;
}

/* What a post-processor puts around a text. */
struct around {
    bool has_template;
    int64_t before, behind; /* -1: none */
};

/* A special token of a template: the file gives its ids, of which there must be one. */
static bool special_token_id(const json_t *processor, const char *name, int64_t *id)
{
    const json_t *special = json_object_get(json_object_get(processor, "special_tokens"), name),
                 *ids = json_object_get(special, "ids");

    if (json_array_size(ids) != 1 || !json_is_integer(json_array_get(ids, 0)))
        return false;
    *id = json_integer_value(json_array_get(ids, 0));
    return *id >= 0 && *id <= INT32_MAX;
}

/* One special token at most, then the text, then one more at most. */
static bool read_template(const json_t *processor, struct around *a)
{
    const json_t *single = json_object_get(processor, "single"), *piece;
    bool seen_text = false;
    size_t i;

    a->has_template = true;
    json_array_foreach(single, i, piece)
    {
        const json_t *special = json_object_get(piece, "SpecialToken");
        int64_t *place = seen_text ? &a->behind : &a->before;

        if (is(json_object_get(piece, "Sequence"), "id", "A") && !seen_text)
            seen_text = true;
        else if (special == NULL || *place != -1 ||
                 !special_token_id(processor, text_of(special, "id"), place))
            return false;
    }
    return seen_text;
}

/* ["[SEP]", 102] */
static bool pair_id(const json_t *pair, int64_t *id)
{
    if (json_array_size(pair) != 2 || !json_is_integer(json_array_get(pair, 1)))
        return false;
    *id = json_integer_value(json_array_get(pair, 1));
    return *id >= 0 && *id <= INT32_MAX;
}

/* ByteLevel as a post-processor only moves offsets. */
static bool read_post_processor(const json_t *c, struct around *a)
{
    if (is(c, "type", "ByteLevel"))
        return true;
    if (a->has_template)
        return false;
    if (is(c, "type", "TemplateProcessing"))
        return read_template(c, a);
    if (!is(c, "type", "BertProcessing"))
        return false;
    a->has_template = true;
    return pair_id(json_object_get(c, "cls"), &a->before) &&
           pair_id(json_object_get(c, "sep"), &a->behind);
}

static enum status read_post_processors(const json_t *c, struct around *a, struct reason *why)
{
    static const struct speller names = {.what = "post_processor"};
    const json_t *list = json_object_get(c, "processors"), *inner;
    enum status s;
    size_t i;

    if (!is(c, "type", "Sequence") || !json_is_array(list))
        return read_post_processor(c, a) ? ST_OK : refuse(&names, c, why);
    json_array_foreach(list, i, inner)
    {
        s = read_post_processors(inner, a, why);
        if (s != ST_OK)
            return s;
    }
    return ST_OK;
}

enum status hf_chain_post_processors(struct hf_span text, bool *has_template, int64_t *bos_id,
                                     int64_t *eos_id, struct reason *why)
{
    struct around a = {.before = -1, .behind = -1};
    json_t *doc = NULL;
    enum status s = parse_part(text, "post_processor", &doc, why);

    if (s == ST_OK && doc != NULL)
        s = read_post_processors(doc, &a, why);
    json_decref(doc);
    if (s != ST_OK)
        return s;
    *has_template = a.has_template;
    *bos_id = a.before;
    *eos_id = a.behind;
    return ST_OK;
}
