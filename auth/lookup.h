/* What Postgres says about one key. Blocking: for pool threads. */
#ifndef AUTH_LOOKUP_H
#define AUTH_LOOKUP_H

#include "auth/auth.h"
#include "auth/keys.h"

/* All that a check needs; immutable once loaded. */
struct key_record {
    struct principal principal;
    uint8_t mac[KEY_MAC_BYTES];
    char pepper_id[PEPPER_ID_CHARS + 1];
    int64_t expires_at_ms; /* Unix; 0: never */
    bool key_disabled, project_disabled, tenant_disabled;
};

/* *found false: there is no such key. *position is the change log's in the same snapshot: what was
 * logged up to it is in the record. */
MUST_CHECK enum status lookup_key(struct pg *pg, const char *public_id, bool *found,
                                  struct key_record *out, int64_t *position);

#endif
