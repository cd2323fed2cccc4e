/* A self-signed certificate for this machine, made once: P-256, ten years, for localhost,
 * 127.0.0.1 and ::1. */
#ifndef APP_UP_TLS_H
#define APP_UP_TLS_H

#include "base/status.h"

/* Keeps a pair that is there and belongs together and has a day left; else makes a new one (key
 * mode 0600). */
MUST_CHECK enum status tls_make(const char *cert_path, const char *key_path, struct reason *why);

#endif
