/* Tokenizer files of Hugging Face's format for tests, from parts, and what they are translated to.
 * Failures of memory abort, since a test has nothing better to do. One thread at a time. */
#ifndef TESTS_LIB_HF_SOURCE_H
#define TESTS_LIB_HF_SOURCE_H

#include "engine/model/hf_tokenizer.h"

#define HF_SOURCE_VOCAB 300 /* rows of the embedding */

#define HF_BYTES "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"
#define HF_BYTES_GPT2                                                                              \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}"
#define HF_REGEX(pattern)                                                                          \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern                                        \
    "\"},\"behavior\":\"Isolated\",\"invert\":false}"
#define HF_SEQUENCE(list)    "{\"type\":\"Sequence\",\"pretokenizers\":[" list "]}"
#define HF_NORMALIZERS(list) "{\"type\":\"Sequence\",\"normalizers\":[" list "]}"
/* As published tokenizer.json files spell them. */
#define HF_LLAMA3                                                                                  \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| "         \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define HF_QWEN2                                                                                   \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "              \
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
#define HF_GPT4O                                                                                   \
    "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*[\\\\p{Ll}\\\\"  \
    "p{Lm}\\\\p{Lo}\\\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{"  \
    "Lu}\\\\p{Lt}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]+[\\\\p{Ll}\\\\p{Lm}\\\\p{Lo}\\\\p{M}]*(?i:'s|'t|'re|" \
    "'ve|'m|'ll|'d)?|\\\\p{N}{1,3}| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n/]*|\\\\s*[\\\\r\\\\n]+|" \
    "\\\\s+(?!\\\\S)|\\\\s+"
#define HF_DEEPSEEK3                                                                               \
    HF_REGEX("\\\\p{N}{1,3}")                                                                      \
    "," HF_REGEX("[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+") "," HF_REGEX(                       \
        "[!\\\"#$%&'()*+,\\\\-./:;<=>?@\\\\[\\\\\\\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\\\p{L}\\\\p"  \
        "{P}\\\\p{S}]?[\\\\p{L}\\\\p{M}]+| ?[\\\\p{P}\\\\p{S}]+[\\r\\n]*|\\\\s*[\\r\\n]+|\\\\s+"   \
        "(?!\\\\S)|\\\\s+")
#define HF_SPACE   "\u2581"
#define HF_PREPEND "{\"type\":\"Prepend\",\"prepend\":\"" HF_SPACE "\"}"
#define HF_SPACES                                                                                  \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" HF_SPACE "\"}"
#define HF_METASPACE(scheme, split)                                                                \
    "{\"type\":\"Metaspace\",\"replacement\":\"" HF_SPACE "\",\"prepend_scheme\":\"" scheme        \
    "\",\"split\":" split "}"

/* Parts of tokenizer.json, and files beside it. NULL: a byte-level BPE of "a", "b" and "ab" with
 * GPT-2's pre-tokenizer, and no such file. */
struct hf_source {
    const char *normalizer, *pre_tokenizer, *post_processor, *decoder, *added, *model;
    const char *config, *generation, *model_config, *template;
};

/* Translates them to a GGUF file appended to *out, and opens it; what it borrows is *out. */
MUST_CHECK enum status hf_source_translate(const struct hf_source *s, struct buf *out,
                                           struct gguf **g, struct reason *why);
/* Appends the model of a SentencePiece BPE: <unk> 0, <s> 1, </s> 2, bytes from 3, U+2581 259, "a"
 * 260 and both together 261. */
void hf_source_space_bpe(struct buf *out);

#endif
