/* A bump allocator for things that die together (a parsed template, a tokenizer, a request's text
 * work). Bounded: past `limit` bytes allocation fails. Owner: whoever declared it. One thread at a
 * time. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *blocks;
    size_t used;  /* bytes handed out, over all blocks */
    size_t limit; /* 0: none */
};

void arena_init(struct arena *a, size_t limit_bytes);
void arena_dispose(struct arena *a);
/* 16-byte aligned, zeroed; NULL when the limit or memory is reached. */
void *arena_alloc(struct arena *a, size_t bytes);
/* As arena_alloc, for `count` elements, checked against overflow. */
void *arena_array(struct arena *a, size_t count, size_t bytes_each);
/* NUL-terminated copy of `len` bytes. */
char *arena_strndup(struct arena *a, const char *s, size_t len);

#endif
