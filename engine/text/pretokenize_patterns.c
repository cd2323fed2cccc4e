/* Each row says what the tokenizer.json of the models of its name does: normal form, patterns,
 * whether a pre-token that is a token is merged at all. The name "default" is not here: it says
 * that the converter didn't know. */
#include "engine/text/pretokenize_patterns.h"

#include <string.h>

#include "base/size.h"

/* Unicode's White_Space, spelled out: PCRE2's \s has U+180E besides, which lost the property in
 * Unicode 6.3. To be used inside a class. */
#define WS                                                                                         \
    "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{"    \
    "205f}\\x{3000}"

/* What most patterns end with. */
#define LINES_AND_SPACES "[" WS "]*[\\r\\n]+|[" WS "]+(?![^" WS "])|[" WS "]+"
#define CONTRACTIONS     "(?i:'s|'t|'re|'ve|'m|'ll|'d)"

/* Hugging Face's Digits: one numeric character at a time, or a run. */
#define DIGIT  "\\p{N}"
#define DIGITS "\\p{N}+"

/* GPT-2's (Hugging Face: ByteLevel, use_regex). */
#define GPT2                                                                                       \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|[" WS "]+(?![^" WS       \
    "])|[" WS "]+"

/* Llama 3's; Qwen's differs in how many digits go together. */
#define LLAMA3_WITH(digits)                                                                        \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" WS                               \
                 "\\p{L}\\p{N}]+[\\r\\n]*|" LINES_AND_SPACES

/* Qwen 3.5's: marks belong to words, too. */
#define QWEN35                                                                                     \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS                           \
                 "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES_AND_SPACES

/* OpenAI's o200k and those after it: a word is capitals and then small letters. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K_WITH(endings, digits)                                                                \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" endings "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER \
    "*" endings "|" digits "| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n/]*|" LINES_AND_SPACES

/* DeepSeek's first: letters of scripts with case. */
#define CASED                                                                                                                                                                                                           \
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-"                                                                            \
    "ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-"                                                                                                                                                                        \
    "ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-" \
    "ꞎꭰ-"                                                                                                                                                                                                           \
    "ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-"                                                                                                                        \
    "𞥃"
#define SPACE_OR_NOT "[" WS "]?"
/* Ideographs, kana, Hangul. */
#define CJK "[一-龥ࠀ-一가-\\x{d7ff}]+"
/* Spaces at the very end: from the first of a run only, or a long run would take quadratic time. */
#define LAST_SPACES "(?<![" WS "])[" WS "]+\\z"
/* DeepSeek V3's third. */
#define DEEPSEEK3                                                                                  \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}"    \
    "\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES_AND_SPACES

/* Falcon's: runs of punctuation, and after GPT-2's pattern the digits of what is then spelled in
 * the byte alphabet, where some bytes look like digits (superscripts and fractions of Latin-1). */
#define PUNCTUATION "[!-/:-@\\[-`{-~\\p{P}]+"
#define THREES      "[0-9][0-9][0-9]"

/* Bloom's: no sentence mark within a word. */
#define BLOOM " ?[^(" WS "|.,!?…。，、।۔،)]+"

#define NOTHING                                                                                    \
    {                                                                                              \
        .whole_first = false                                                                       \
    }
#define NFC                                                                                        \
    {                                                                                              \
        .nfc = true                                                                                \
    }

static const struct pretokenize_row rows[] = {
    {"gpt-2", {GPT2}, NULL, NOTHING},
    {"gpt2", {GPT2}, NULL, NOTHING},
    {"phi-2", {GPT2}, NULL, NOTHING},
    {"jais", {GPT2}, NULL, NOTHING},
    {"gpt-neox", {GPT2}, NULL, NFC},
    {"mpt", {GPT2}, NULL, NFC},
    {"olmo", {GPT2}, NULL, NFC},
    {"starcoder", {DIGIT, GPT2}, NULL, NOTHING},
    {"refact", {DIGIT, GPT2}, NULL, NOTHING},
    {"smollm", {DIGIT, GPT2}, NULL, NOTHING},
    {"command-r", {DIGIT, GPT2}, NULL, NFC},
    {"llama-bpe", {LLAMA3_WITH("\\p{N}{1,3}")}, NULL, {.whole_first = true, .adds_bos = true}},
    {"llama3", {LLAMA3_WITH("\\p{N}{1,3}")}, NULL, {.whole_first = true, .adds_bos = true}},
    {"llama-v3", {LLAMA3_WITH("\\p{N}{1,3}")}, NULL, {.whole_first = true, .adds_bos = true}},
    {"dbrx", {LLAMA3_WITH("\\p{N}{1,3}")}, NULL, NOTHING},
    {"smaug-bpe", {LLAMA3_WITH("\\p{N}{1,3}")}, NULL, {.whole_first = true}},
    {"qwen2", {LLAMA3_WITH(DIGIT)}, NULL, NFC},
    {"deepseek-r1-qwen", {LLAMA3_WITH(DIGIT)}, NULL, NFC},
    {"stablelm2", {LLAMA3_WITH(DIGIT)}, NULL, NFC},
    {"qwen35", {QWEN35}, NULL, NFC},
    {"gpt-4o", {O200K_WITH(CONTRACTIONS "?", "\\p{N}{1,3}")}, NULL, NOTHING},
    {"tekken", {O200K_WITH("", DIGIT)}, NULL, {.whole_first = true}},
    {"deepseek-llm",
     {"[\\r\\n]", SPACE_OR_NOT "[" CASED "]+", SPACE_OR_NOT "[!-/:-~！-／：-～‘-‟\\x{3000}-。]+",
      LAST_SPACES, CJK, DIGITS},
     NULL,
     NOTHING},
    {"deepseek-coder",
     {"[\\r\\n]", SPACE_OR_NOT "\\p{L}+", SPACE_OR_NOT "\\p{P}+", CJK, DIGIT},
     NULL,
     NOTHING},
    {"deepseek-v3", {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3}, NULL, NOTHING},
    {"falcon", {PUNCTUATION, GPT2, THREES}, NULL, NOTHING},
    {"bloom", {BLOOM}, NULL, NOTHING},
};

const struct pretokenize_row *pretokenize_find(const struct gguf_string *name)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (name->len == strlen(rows[i].name) && memcmp(name->data, rows[i].name, name->len) == 0)
            return &rows[i];
    return NULL;
}
