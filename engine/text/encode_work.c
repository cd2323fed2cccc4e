#include "engine/text/encode_work.h"

#include <stdlib.h>

#include "engine/text/token_ids.h"

enum status encode_work_init(struct encode_work *w, size_t text_bytes, size_t max_tokens,
                             struct token_ids *out)
{
    *w = (struct encode_work){.out = out, .max_tokens = max_tokens};
    buf_init(&w->normal);
    buf_init(&w->spare);
    return piece_cache_init(&w->cache, text_bytes);
}

void encode_work_dispose(struct encode_work *w)
{
    piece_cache_dispose(&w->cache);
    merge_work_dispose(&w->merge);
    pretokenize_scratch_free(w->cut);
    buf_dispose(&w->normal);
    buf_dispose(&w->spare);
    free(w->lattice);
}

enum status encode_work_add(struct encode_work *w, int32_t id)
{
    return token_ids_add(w->out, id, w->max_tokens);
}

enum status encode_work_check(const struct encode_work *w, size_t len, size_t piece_max)
{
    if (w->out->n > w->max_tokens || len / piece_max > w->max_tokens - w->out->n)
        return ST_TOO_LARGE;
    /* Positions are 32 bits wide. */
    return len <= INT32_MAX ? ST_OK : ST_TOO_LARGE;
}

enum status encode_work_piece(struct encode_work *w, const char *text, size_t len,
                              enum status (*encode)(const void *model, struct encode_work *w,
                                                    const char *text, size_t len),
                              const void *model)
{
    struct cached_piece *slot = piece_cache_slot(&w->cache, text, len);
    const size_t first = w->out->n;
    enum status s;

    if (slot != NULL && piece_cache_holds(&w->cache, slot, text, len))
        return token_ids_repeat(w->out, slot->first_id, slot->n_ids, w->max_tokens);
    s = encode(model, w, text, len);
    if (s == ST_OK && slot != NULL)
        *slot = (struct cached_piece){.text = text,
                                      .len = (uint32_t)len,
                                      .epoch = w->cache.epoch,
                                      .n_ids = (uint32_t)(w->out->n - first),
                                      .first_id = first};
    return s;
}
