/* sluice key create | list | disable | enable | expire */
#ifndef APP_CMD_KEY_H
#define APP_CMD_KEY_H

#include <stdbool.h>
#include <stdint.h>

int cmd_key(int argc, char **argv);

/* "90s", "30m", "12h", "30d" from now, or RFC 3339 ("2026-01-31T12:00:00Z", with Z or an offset):
 * Unix seconds. */
bool parse_expiry(const char *text, int64_t now_s, int64_t *out_s);

#endif
