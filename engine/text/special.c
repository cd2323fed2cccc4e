#include "engine/text/special.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"

static const char unknown_key[] = "tokenizer.ggml.unknown_token_id";
/* generation_config.json's EOS ids, where the file was made from a Hugging Face folder. */
static const char eog_list_key[] = "sluice.eog_token_ids";

static const char *const eog_keys[] = {
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
};

/* Files often name only one of them: control tokens with these texts end a turn, too. */
static const char *const eog_texts[] = {
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|end_of_text|>",
    "<|endofturn|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|eot|>",
    "<EOT>",
    "</s>",
    "<eos>",
    "<end_of_utterance>",
    "<|END_OF_TURN_TOKEN|>",
    "<\uFF5Cend\u2581of\u2581sentence\uFF5C>", /* DeepSeek's, with full-width bars */
};

/* By which known models begin a turn, or name whose it is. */
static const char *const turn_texts[] = {
    "<|im_start|>",
    "<start_of_turn>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|start_of_role|>",
    "<|end_of_role|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|start|>",
    "<|START_OF_TURN_TOKEN|>",
    "<\uFF5CUser\uFF5C>", /* DeepSeek's */
    "<\uFF5CAssistant\uFF5C>",
    "[INST]",
    "[/INST]",
};

enum status special_id(const struct vocab *v, const struct gguf *g, const char *key, int32_t *out,
                       struct reason *why)
{
    uint32_t id;

    *out = -1;
    if (!gguf_has(g, key))
        return ST_OK;
    if (!gguf_get_u32(g, key, &id) || id >= v->n)
        return fail_param(why, ST_CORRUPT, key, "%s names no token of the vocabulary", key);
    *out = (int32_t)id;
    return ST_OK;
}

static int32_t first_unknown(const struct vocab *v)
{
    for (uint32_t i = 0; i < v->n; i++)
        if (v->tokens[i].type == TOKEN_UNKNOWN)
            return (int32_t)i;
    return -1;
}

enum status special_unknown(const struct vocab *v, const struct gguf *g, int32_t *out,
                            struct reason *why)
{
    int32_t id, other;
    enum status s = special_id(v, g, unknown_key, &id, why);

    if (s == ST_OK && id == -1)
        id = first_unknown(v);
    for (size_t i = 0; i < COUNT_OF(eog_keys) && s == ST_OK; i++) {
        s = special_id(v, g, eog_keys[i], &other, why);
        if (s == ST_OK && other == id)
            id = -1;
    }
    if (s == ST_OK)
        *out = id;
    return s;
}

static void protect(struct vocab *v, int32_t id)
{
    if (id != -1 && v->tokens[id].type == TOKEN_USER_DEFINED)
        v->tokens[id].type = TOKEN_CONTROL;
}

static void protect_texts(struct vocab *v, const char *const *texts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        protect(v, vocab_find(v, texts[i], strlen(texts[i])));
}

enum status special_protect(struct vocab *v, const struct gguf *g, struct reason *why)
{
    enum gguf_type type;
    size_t n = 0;
    int32_t id;
    enum status s;

    protect_texts(v, eog_texts, COUNT_OF(eog_texts));
    protect_texts(v, turn_texts, COUNT_OF(turn_texts));
    s = special_id(v, g, "tokenizer.ggml.bos_token_id", &id, why);
    protect(v, id);
    for (size_t i = 0; i < COUNT_OF(eog_keys) && s == ST_OK; i++) {
        s = special_id(v, g, eog_keys[i], &id, why);
        protect(v, id);
    }
    (void)gguf_array(g, eog_list_key, &type, &n);
    for (size_t i = 0; i < n; i++)
        if (gguf_array_i32(g, eog_list_key, i, &id) && id >= 0 && (uint32_t)id < v->n)
            protect(v, id);
    return s;
}

static enum status mark_keys(const struct vocab *v, const struct gguf *g, bool *is_eog,
                             struct reason *why)
{
    for (size_t i = 0; i < COUNT_OF(eog_keys); i++) {
        int32_t id;
        enum status s = special_id(v, g, eog_keys[i], &id, why);

        if (s != ST_OK)
            return s;
        if (id != -1)
            is_eog[id] = true;
    }
    return ST_OK;
}

static enum status mark_list(const struct vocab *v, const struct gguf *g, bool *is_eog,
                             struct reason *why)
{
    enum gguf_type type;
    size_t n = 0;

    (void)gguf_array(g, eog_list_key, &type, &n);
    for (size_t i = 0; i < n; i++) {
        int32_t id = -1;

        if (!gguf_array_i32(g, eog_list_key, i, &id) || id < 0 || (uint32_t)id >= v->n)
            return fail_param(why, ST_CORRUPT, eog_list_key,
                              "entry %zu of %s names no token of the vocabulary", i, eog_list_key);
        is_eog[id] = true;
    }
    return ST_OK;
}

static int32_t find_control(const struct vocab *v, const char *text)
{
    int32_t id = vocab_find(v, text, strlen(text));

    return id != -1 && vocab_is_control(v, id) ? id : -1;
}

/* OpenAI's harmony format ends each message of a turn with <|end|> and the turn with <|return|> or
 * <|call|>. */
static bool ends_messages_only(const struct vocab *v, const char *text)
{
    return strcmp(text, "<|end|>") == 0 && find_control(v, "<|return|>") != -1 &&
           find_control(v, "<|call|>") != -1;
}

static void mark_texts(const struct vocab *v, bool *is_eog)
{
    for (size_t i = 0; i < COUNT_OF(eog_texts); i++) {
        int32_t id = find_control(v, eog_texts[i]);

        if (id != -1 && !ends_messages_only(v, eog_texts[i]))
            is_eog[id] = true;
    }
}

enum status special_eog(const struct vocab *v, const struct gguf *g, bool **out, struct reason *why)
{
    bool *is_eog = calloc(v->n, sizeof *is_eog);
    enum status s;

    if (is_eog == NULL)
        return fail(why, ST_NO_MEMORY, "out of memory");
    s = mark_keys(v, g, is_eog, why);
    if (s == ST_OK)
        s = mark_list(v, g, is_eog, why);
    if (s != ST_OK) {
        free(is_eog);
        return s;
    }
    mark_texts(v, is_eog);
    *out = is_eog;
    return ST_OK;
}
