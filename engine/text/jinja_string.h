/* Strings of the template interpreter: immutable UTF-8 that remembers, byte by byte, whether it is
 * the template's own text or came from a value of the request (struct jinja_run). Everything lives
 * in the arena of the template or of the render. Failures are sticky in struct jinja, as in
 * base/buf.h: a function that fails returns an empty string and its caller may go on. */
#ifndef ENGINE_TEXT_JINJA_STRING_H
#define ENGINE_TEXT_JINJA_STRING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;
struct jinja;
struct jtext;

/* Bytes up to `end` (and from the run before it) have one origin. An `end` past the string's length
 * means its length, so that a string may share the runs of a longer one. */
struct jinja_run {
    size_t end;
    bool from_template;
};

struct jstr {
    const char *data; /* valid UTF-8, not NUL-terminated */
    size_t len;
    const struct jinja_run *runs; /* at least one, also in an empty string */
    size_t n_runs;
    struct jtext *tail; /* the growing buffer that it is the whole of, or NULL */
    bool markup;        /* came through |safe or |escape: |escape leaves it alone */
};

extern const struct jstr js_empty;
/* A string over borrowed bytes of one origin; false as *out in constant initializers. */
struct jstr js_of(const char *data, size_t len, bool from_template);
const struct jstr *js_new(struct jinja *j, const char *data, size_t len, bool from_template);
const struct jstr *js_cstr(struct jinja *j, const char *s);
/* Its text NUL-terminated, to be looked up in tables of names. NULL: out of memory, or it holds a
 * NUL byte, which no name does. */
const char *js_name(struct arena *a, const struct jstr *s);
/* Bytes [from, to): both at character borders. */
const struct jstr *js_slice(struct jinja *j, const struct jstr *s, size_t from, size_t to);
/* Amortized O(length of b) when `a` was itself the result of a js_concat. */
const struct jstr *js_concat(struct jinja *j, const struct jstr *a, const struct jstr *b);
bool js_equal(const struct jstr *a, const struct jstr *b);
bool js_is(const struct jstr *s, const char *text);
/* <0, 0, >0 in code point order. */
int js_compare(const struct jstr *a, const struct jstr *b);
/* Code points, and the byte offset of code point i (the length when there are fewer). */
size_t js_count(struct jinja *j, const struct jstr *s);
size_t js_offset(struct jinja *j, const struct jstr *s, size_t i);
/* First occurrence at or after byte `from`; SIZE_MAX: none. */
size_t js_find(struct jinja *j, const struct jstr *s, const struct jstr *sub, size_t from);
size_t js_rfind(struct jinja *j, const struct jstr *s, const struct jstr *sub);
/* Origin of the byte at pos. *end receives where its run ends. */
bool js_origin(const struct jstr *s, size_t pos, size_t *end);

/* A string being built. */
struct jtext {
    struct jinja *j;
    char *data;
    size_t len, cap;
    struct jinja_run *runs;
    size_t n_runs, cap_runs;
};

void jt_init(struct jtext *t, struct jinja *j);
void jt_add(struct jtext *t, const char *data, size_t len, bool from_template);
void jt_add_cp(struct jtext *t, uint32_t cp, bool from_template);
void jt_add_slice(struct jtext *t, const struct jstr *s, size_t from, size_t to);
void jt_add_str(struct jtext *t, const struct jstr *s);
/* The text so far; the builder must not be used afterwards. */
const struct jstr *jt_finish(struct jtext *t);

#endif
