#include "api/tls.h"

#include <h2o.h>
#include <openssl/err.h>

/* In order of preference. */
static const h2o_iovec_t protocols[] = {{H2O_STRLIT("h2")}, {H2O_STRLIT("http/1.1")}, {NULL, 0}};

static enum status fail_ssl(struct reason *why, const char *what, const char *file)
{
    const char *text = ERR_reason_error_string(ERR_peek_last_error());

    ERR_clear_error();
    return fail(why, ST_INVALID, "%s %s can't be used: %s", what, file,
                text != NULL ? text : "unknown reason");
}

static enum status load(SSL_CTX *ctx, const char *cert, const char *key, struct reason *why)
{
    if (SSL_CTX_use_certificate_chain_file(ctx, cert) != 1)
        return fail_ssl(why, "TLS certificate", cert);
    if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1)
        return fail_ssl(why, "TLS key", key);
    if (SSL_CTX_check_private_key(ctx) != 1)
        return fail_ssl(why, "TLS key", key);
    return ST_OK;
}

enum status tls_open(const char *cert, const char *key, SSL_CTX **out, struct reason *why)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    enum status s;

    if (ctx == NULL)
        return fail(why, ST_NO_MEMORY, "no TLS context");
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE);
    /* Without it each idle connection holds 34 KB of OpenSSL's buffers. */
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    h2o_ssl_register_alpn_protocols(ctx, protocols);
    s = load(ctx, cert, key, why);
    if (s != ST_OK) {
        SSL_CTX_free(ctx);
        return s;
    }
    *out = ctx;
    return ST_OK;
}
