/* The TLS context of the public listener: 1.2 and 1.3, ALPN h2 and http/1.1. */
#ifndef API_TLS_H
#define API_TLS_H

#include <openssl/ssl.h>

#include "base/status.h"

/* PEM files. The reason names the file. The caller frees *out (SSL_CTX_free). */
MUST_CHECK enum status tls_open(const char *cert, const char *key, SSL_CTX **out,
                                struct reason *why);

#endif
