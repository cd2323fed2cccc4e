/* What makes a new folder usable at once: the pepper, a first tenant with its key, and the
 * administrator's key, in files of mode 0600. */
#ifndef APP_UP_DEMO_H
#define APP_UP_DEMO_H

#include <stdbool.h>

#include "app/up/layout.h"
#include "base/status.h"

/* DIR/pepper, made where missing; keys made with a lost one are void, so their files go. */
MUST_CHECK enum status demo_pepper(const struct layout *l, struct reason *why);
/* Forgets the key files: the database that knew the keys is new. */
void demo_forget(const struct layout *l);
/* DIR/demo.key and DIR/admin.key: a file that is there and holds a key is kept. The schema is up to
 * date. */
MUST_CHECK enum status demo_keys(const struct layout *l, const char *conninfo, struct reason *why);

#endif
