#include "quota/script.h"

#include <string.h>

#include "base/embedded.h"

static enum status append_file(struct buf *b, const char *name)
{
    for (const struct embedded_file *f = embedded_files; f->name != NULL; f++) {
        if (strcmp(f->name, name) == 0) {
            buf_append(b, f->data, (size_t)(f->end - f->data));
            return b->failed ? ST_NO_MEMORY : ST_OK;
        }
    }
    return ST_NOT_FOUND;
}

enum status quota_script_init(struct quota_script *s, const char *name)
{
    enum status st;

    buf_init(&s->source);
    st = append_file(&s->source, "quota/bucket.lua");
    if (st == ST_OK)
        st = append_file(&s->source, name);
    if (st == ST_OK)
        redis_script_init(&s->redis, name, s->source.data, s->source.len);
    return st;
}

void quota_script_dispose(struct quota_script *s)
{
    buf_dispose(&s->source);
}
