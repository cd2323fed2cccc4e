/* Keys as texts: names of scopes and priorities, and the list of `sluice key list`. One thread at a
 * time. */
#ifndef APP_KEY_TEXT_H
#define APP_KEY_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "auth/auth.h"
#include "base/buf.h"

/* A comma-separated list; false: said on standard error which word is none. */
bool key_parse_scopes(const char *text, uint32_t *out);
bool key_parse_priority(const char *text, enum key_priority *out);

const char *key_priority_name(enum key_priority p);
/* Names with commas, each in `quote`s. */
void key_put_scopes(struct buf *b, uint32_t bits, const char *quote);
/* ,"name":"value", or null. */
void key_put_member(struct buf *b, const char *name, const char *value);

struct key_listing {
    struct buf text;
    bool json;
    size_t n;
};

/* Begin, each key (`arg` is the listing), end; the text is the caller's to print and to dispose of.
 */
void key_listing_begin(struct key_listing *l, bool json);
void key_listing_add(void *arg, const struct key_info *k);
void key_listing_end(struct key_listing *l);

#endif
