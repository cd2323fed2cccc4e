/* The patterns behind the names of tokenizer.ggml.pre. Private to engine/text. */
#ifndef ENGINE_TEXT_PRETOKENIZE_PATTERNS_H
#define ENGINE_TEXT_PRETOKENIZE_PATTERNS_H

#include "engine/text/pretokenize.h"

#define PRETOKENIZE_STAGES_MAX 6

/* Each pattern cuts the pieces that the one before it left: matches and what lies between them. */
struct pretokenize_row {
    const char *name;
    const char *patterns[PRETOKENIZE_STAGES_MAX];
    struct pretokenizer_traits traits;
};

/* NULL: an unknown name. */
const struct pretokenize_row *pretokenize_find(const struct gguf_string *name);

#endif
