#include "engine/text/spaces.h"

#include <string.h>

bool spaces_prefix(const struct gguf *g)
{
    bool adds = true;

    (void)gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", &adds);
    return adds;
}

struct spaces_where spaces_prefix_where(const struct gguf *g)
{
    struct spaces_where where = {false, false};

    (void)gguf_get_bool(g, "sluice.space_prefix.first_only", &where.first_only);
    (void)gguf_get_bool(g, "sluice.space_prefix.unless_space", &where.unless_space);
    return where;
}

bool spaces_prefix_goes(const struct spaces_where *where, bool at_beginning, const char *text,
                        size_t len)
{
    if (where->first_only && !at_beginning)
        return false;
    return !where->unless_space ||
           (text[0] != ' ' &&
            (len < VOCAB_SPACE_BYTES || memcmp(text, VOCAB_SPACE, VOCAB_SPACE_BYTES) != 0));
}

void spaces_escape(const char *text, size_t len, struct buf *out)
{
    while (len > 0) {
        const char *space = memchr(text, ' ', len);
        size_t n = space != NULL ? (size_t)(space - text) : len;

        buf_append(out, text, n);
        text += n;
        len -= n;
        if (space == NULL)
            continue;
        buf_append(out, VOCAB_SPACE, VOCAB_SPACE_BYTES);
        text++;
        len--;
    }
}

/* Length of the U+2581 at `at`; 0: there is none. */
static size_t space_length(const char *text, size_t len, size_t at)
{
    return len - at >= VOCAB_SPACE_BYTES && memcmp(text + at, VOCAB_SPACE, VOCAB_SPACE_BYTES) == 0
               ? VOCAB_SPACE_BYTES
               : 0;
}

/* Spaces, then what is none. */
static size_t word_length(const char *text, size_t len)
{
    size_t at = 0, n;

    while ((n = space_length(text, len, at)) > 0)
        at += n;
    while (at < len) {
        const char *lead = memchr(text + at, (unsigned char)VOCAB_SPACE[0], len - at);

        if (lead == NULL)
            return len;
        at = (size_t)(lead - text);
        if (space_length(text, len, at) > 0)
            return at;
        at++;
    }
    return at;
}

enum status spaces_cut(const struct vocab *v, struct encode_work *w, const char *text, size_t len,
                       enum status (*encode)(const void *model, struct encode_work *w,
                                             const char *text, size_t len),
                       const void *model)
{
    enum status s = ST_OK;

    for (size_t at = 0, n; at < len && s == ST_OK; at += n) {
        n = v->words_begin_with_space ? word_length(text + at, len - at) : len;
        s = encode_work_piece(w, text + at, n, encode, model);
    }
    return s;
}
