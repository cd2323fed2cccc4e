#include "engine/model/hf_pipeline.h"

#include <string.h>

#include "base/printable.h"
#include "base/size.h"
#include "engine/model/hf_chain.h"

/* Patterns as published tokenizers spell them; \r and \n in some are the characters themselves. */
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL         " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3       CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" TAIL
#define QWEN2        CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|" TAIL
#define UPPER        "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER        "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define SLASH_TAIL   " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define GPT4O                                                                                      \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" CONTRACTIONS "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER     \
    "+" LOWER "*" CONTRACTIONS "?|\\p{N}{1,3}|" SLASH_TAIL
#define TEKKEN                                                                                     \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER            \
    "*|\\p{N}|" SLASH_TAIL
#define DEEPSEEK3_WORDS                                                                            \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"             \
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
/* Han (U+4E00 to U+9FA5), and the kana beside it; DeepSeek's first ones have all from U+0800. */
#define HAN_KANA "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+"
#define CJK      "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+"
/* The letters with case of some scripts, as one class of 400 bytes. Its copies differ in characters
 * that normal form C changes, so that only its two ends are compared (HF_CHAIN_ANY between them).
 */
#define CASED "\\s?[A-Za-z\u00B5\u00C0-\u00D6" HF_CHAIN_ANY "\U0001E900-\U0001E943]+"
#define MARKS "\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+"

#define THEN           " > "
#define SPLIT(pattern) "Split(" pattern ")"

/* Byte-level BPE: the chain of pre-tokenizers, and what GGUF calls it. */
static const struct {
    const char *chain, *pre;
    bool nfc;           /* the normalizer must be NFC, or nothing */
    bool ignore_merges; /* GGUF's name implies it */
} byte_chains[] = {
    {"Bytes(gpt2)", "gpt-2", false, false},
    {"Bytes(gpt2)", "olmo", true, false},                 /* GPT-NeoX's and MPT's, too */
    {"Digit" THEN "Bytes(gpt2)", "smollm", false, false}, /* StarCoder's and Granite's, too */
    {"Digit" THEN "Bytes(gpt2)", "command-r", true, false},
    {SPLIT(LLAMA3) THEN "Bytes", "llama-bpe", false, true},
    {SPLIT(LLAMA3) THEN "Bytes", "dbrx", false, false},
    {SPLIT(QWEN2) THEN "Bytes", "qwen2", true, false},
    {SPLIT(QWEN2) THEN "Bytes", "sluice.qwen2-as-given", false, false},
    {SPLIT(GPT4O) THEN "Bytes", "gpt-4o", false, false},
    {SPLIT(TEKKEN) THEN "Bytes", "tekken", false, true},
    {SPLIT("\\p{N}{1,3}") THEN SPLIT(HAN_KANA) THEN SPLIT(DEEPSEEK3_WORDS) THEN "Bytes",
     "deepseek-v3", false, false},
    {SPLIT("[\r\n]") THEN SPLIT(CASED) THEN SPLIT(MARKS) THEN SPLIT("\\s+$") THEN SPLIT(CJK) THEN
     "Digit" THEN "Bytes",
     "deepseek-llm", false, false},
    {SPLIT("[\r\n]") THEN SPLIT("\\s?\\p{L}+") THEN SPLIT("\\s?\\p{P}+") THEN SPLIT(CJK) THEN
     "Digit" THEN "Bytes",
     "deepseek-coder", false, false},
    {"Punctuation(Contiguous)" THEN "Bytes(gpt2)" THEN "Digits" THEN SPLIT("[0-9][0-9][0-9]"),
     "falcon", false, false},
};

/* The other kinds: normalizers and pre-tokenizers, and what they do with spaces. */
static const struct {
    enum hf_kind kind;
    const char *normalizer, *pre_tokenizer;
    bool adds_space, first_only, to_words, collapses;
} space_chains[] = {
    /* Llama 1 and 2, TinyLlama, Phi-3 */
    {HF_SPACE_BPE, "Prepend" THEN "Spaces", "", true, false, false, false},
    /* Gemma: after its normalizer there is no space to split at */
    {HF_SPACE_BPE, "Spaces", "SplitSpace", false, false, false, false},
    {HF_SPACE_BPE, "Spaces", "", false, false, false, false},
    {HF_SPACE_BPE, "", "Metaspace(always)", true, false, true, false},
    {HF_SPACE_BPE, "", "Metaspace(first)", true, true, true, false},
    {HF_SPACE_BPE, "", "Metaspace(never)", false, false, false, false},
    /* T5, XLM-R */
    {HF_UNIGRAM, "Precompiled", "Words" THEN "Metaspace(always,split)", true, false, true, true},
    {HF_UNIGRAM, "Precompiled" THEN "Collapse", "Words" THEN "Metaspace(always,split)", true, false,
     true, true},
    {HF_UNIGRAM, "Precompiled" THEN "StripRight" THEN "Collapse", "Metaspace(always,split)", true,
     false, true, true},
    {HF_UNIGRAM, "Precompiled", "Metaspace(always,split)", true, false, true, false},
    {HF_UNIGRAM, "", "Words" THEN "Metaspace(always,split)", true, false, true, true},
    {HF_UNIGRAM, "", "Metaspace(always,split)", true, false, true, false},
    {HF_WORD_PIECE, "Bert", "Bert", false, false, false, false},
};

static enum status fail_chain(struct reason *why, const char *what, const char *chain)
{
    char shown[160];

    printable(chain, strlen(chain), shown, sizeof shown);
    return fail_param(why, ST_UNSUPPORTED, what, "tokenizer.json: the %s %s is not supported here",
                      what, chain[0] != 0 ? shown : "none");
}

static enum status find_byte_chain(struct hf_pipeline *p, const char *normalizer,
                                   const char *pre_tokenizer, bool ignore_merges,
                                   struct reason *why)
{
    const bool nfc = strcmp(normalizer, "NFC") == 0;
    bool known = false;

    if (!nfc && normalizer[0] != 0)
        return fail_chain(why, "normalizer", normalizer);
    for (size_t i = 0; i < COUNT_OF(byte_chains); i++) {
        if (!hf_chain_matches(pre_tokenizer, byte_chains[i].chain))
            continue;
        known = true;
        if (byte_chains[i].nfc != nfc || byte_chains[i].ignore_merges != ignore_merges)
            continue;
        p->pre = byte_chains[i].pre;
        return ST_OK;
    }
    if (!known)
        return fail_chain(why, "pre_tokenizer", pre_tokenizer);
    return fail_param(why, ST_UNSUPPORTED, "ignore_merges",
                      "tokenizer.json: this pre_tokenizer with normalizer %s and ignore_merges %s "
                      "is not supported",
                      nfc ? "NFC" : "null", ignore_merges ? "true" : "false");
}

static enum status find_space_chain(struct hf_pipeline *p, const char *normalizer,
                                    const char *pre_tokenizer, struct reason *why)
{
    bool known = false;

    for (size_t i = 0; i < COUNT_OF(space_chains); i++) {
        if (space_chains[i].kind != p->kind || strcmp(space_chains[i].normalizer, normalizer) != 0)
            continue;
        known = true;
        if (strcmp(space_chains[i].pre_tokenizer, pre_tokenizer) != 0)
            continue;
        p->normalizes = normalizer[0] != 0;
        p->adds_space = space_chains[i].adds_space;
        p->adds_space_first_only = space_chains[i].first_only;
        p->adds_space_to_words = space_chains[i].to_words;
        p->collapses_spaces = space_chains[i].collapses;
        return ST_OK;
    }
    return known ? fail_chain(why, "pre_tokenizer", pre_tokenizer)
                 : fail_chain(why, "normalizer", normalizer);
}

static enum status find_chains(struct hf_pipeline *p, bool ignore_merges, struct hf_span normalizer,
                               struct hf_span pre_tokenizer, struct reason *why)
{
    struct buf normal, pre;
    enum status s;

    buf_init(&normal);
    buf_init(&pre);
    s = hf_chain_normalizers(normalizer, &normal, &p->charsmap, why);
    if (s == ST_OK)
        s = hf_chain_pre_tokenizers(pre_tokenizer, &pre, why);
    if (s == ST_OK && (normal.failed || pre.failed))
        s = fail(why, ST_NO_MEMORY, "out of memory for the tokenizer's pipeline");
    else if (s == ST_OK && p->kind == HF_BYTE_BPE)
        s = find_byte_chain(p, buf_cstr(&normal), buf_cstr(&pre), ignore_merges, why);
    else if (s == ST_OK)
        s = find_space_chain(p, buf_cstr(&normal), buf_cstr(&pre), why);
    buf_dispose(&normal);
    buf_dispose(&pre);
    return s;
}

enum status hf_pipeline_read(struct hf_pipeline *p, enum hf_kind kind, bool ignore_merges,
                             const struct hf_pipeline_parts *parts, struct reason *why)
{
    enum status s;

    *p = (struct hf_pipeline){.kind = kind, .bos_id = -1, .eos_id = -1};
    s = find_chains(p, ignore_merges, parts->normalizer, parts->pre_tokenizer, why);
    if (s == ST_OK)
        s = hf_chain_post_processors(parts->post_processor, &p->has_template, &p->bos_id,
                                     &p->eos_id, why);
    if (s == ST_OK)
        s = hf_chain_check_decoders(parts->decoder, why);
    if (s != ST_OK)
        hf_pipeline_dispose(p);
    return s;
}

void hf_pipeline_dispose(struct hf_pipeline *p)
{
    json_decref(p->charsmap);
    p->charsmap = NULL;
}
