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

/* Hugging Face's Digits, individual_digits: one numeric character at a time. */
#define DIGIT "\\p{N}"

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
#define CASED                                                                                      \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-"        \
    "\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}"          \
    "\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}"         \
    "\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-"           \
    "\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}"        \
    "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}"        \
    "-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-"        \
    "\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{3b9}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-"         \
    "\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}"        \
    "\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}"          \
    "\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-"        \
    "\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-"         \
    "\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}"         \
    "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}"        \
    "-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-"             \
    "\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-"         \
    "\\x{118df}\\x{1e900}-\\x{1e943}"
#define SPACE_OR_NOT "[" WS "]?"
/* Ideographs, kana, Hangul. */
#define CJK "[一-龥ࠀ-一가-\\x{d7ff}]+"
/* Spaces at the very end: from the first of a run only, or a long run would take quadratic time. */
#define LAST_SPACES "(?<![" WS "])[" WS "]+\\z"
/* DeepSeek V3's third. */
#define DEEPSEEK3                                                                                  \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}"    \
    "\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES_AND_SPACES

/* Falcon's: runs of punctuation, and digits three by three. */
#define PUNCTUATION "[!-/:-@\\[-`{-~\\p{P}]+"
#define THREES      "[0-9][0-9][0-9]"

/* Bloom's: no sentence mark within a word. */
#define BLOOM " ?[^(" WS "|.,!?…。，、।۔،)]+"

/* clang-format off */
#define NOTHING {.nfc = false}
#define NFC     {.nfc = true}
/* clang-format on */

static const struct pretokenize_row rows[] = {
    {"gpt-2", {GPT2}, NOTHING},
    {"gpt2", {GPT2}, NOTHING},
    {"phi-2", {GPT2}, NOTHING},
    {"jais", {GPT2}, NOTHING},
    {"gpt-neox", {GPT2}, NFC},
    {"mpt", {GPT2}, NFC},
    {"olmo", {GPT2}, NFC},
    {"starcoder", {DIGIT, GPT2}, NOTHING},
    {"refact", {DIGIT, GPT2}, NOTHING},
    {"smollm", {DIGIT, GPT2}, NOTHING},
    {"command-r", {DIGIT, GPT2}, NFC},
    {"llama-bpe", {LLAMA3_WITH("\\p{N}{1,3}")}, {.whole_first = true, .adds_bos = true}},
    {"llama3", {LLAMA3_WITH("\\p{N}{1,3}")}, {.whole_first = true, .adds_bos = true}},
    {"llama-v3", {LLAMA3_WITH("\\p{N}{1,3}")}, {.whole_first = true, .adds_bos = true}},
    {"dbrx", {LLAMA3_WITH("\\p{N}{1,3}")}, NOTHING},
    {"smaug-bpe", {LLAMA3_WITH("\\p{N}{1,3}")}, {.whole_first = true}},
    {"qwen2", {LLAMA3_WITH(DIGIT)}, NFC},
    {"deepseek-r1-qwen", {LLAMA3_WITH(DIGIT)}, NFC},
    /* A folder with Qwen's pattern and no normalizer. */
    {"sluice.qwen2-as-given", {LLAMA3_WITH(DIGIT)}, NOTHING},
    {"stablelm2", {LLAMA3_WITH(DIGIT)}, NFC},
    {"qwen35", {QWEN35}, NOTHING},
    {"gpt-4o", {O200K_WITH(CONTRACTIONS "?", "\\p{N}{1,3}")}, NOTHING},
    {"tekken", {O200K_WITH("", DIGIT)}, {.whole_first = true}},
    {"deepseek-llm",
     {"[\\r\\n]", SPACE_OR_NOT "[" CASED "]+", SPACE_OR_NOT "[!-/:-~！-／：-～‘-‟\\x{3000}-。]+",
      LAST_SPACES, CJK, DIGIT},
     NOTHING},
    {"deepseek-coder",
     {"[\\r\\n]", SPACE_OR_NOT "\\p{L}+", SPACE_OR_NOT "\\p{P}+", CJK, DIGIT},
     NOTHING},
    {"deepseek-v3", {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3}, NOTHING},
    {"falcon", {PUNCTUATION, GPT2, THREES}, NOTHING},
    {"bloom", {BLOOM}, NOTHING},
};

const struct pretokenize_row *pretokenize_find(const struct gguf_string *name)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (name->len == strlen(rows[i].name) && memcmp(name->data, rows[i].name, name->len) == 0)
            return &rows[i];
    return NULL;
}
