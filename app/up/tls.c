#include "app/up/tls.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdio.h>

#include "app/supervise/files.h"

#define DAY_S         86400L
#define VALID_S       (3650 * DAY_S)
#define SERIAL_BYTES  16
#define COMMON_NAME   "localhost"
#define SUBJECT_NAMES "DNS:localhost,IP:127.0.0.1,IP:::1"

/* ---- what is there ---- */

static X509 *read_cert(const char *path)
{
    FILE *f = fopen(path, "re");
    X509 *cert = NULL;

    if (f == NULL)
        return NULL;
    cert = PEM_read_X509(f, NULL, NULL, NULL);
    fclose(f);
    return cert;
}

static EVP_PKEY *read_key(const char *path)
{
    FILE *f = fopen(path, "re");
    EVP_PKEY *key = NULL;

    if (f == NULL)
        return NULL;
    key = PEM_read_PrivateKey(f, NULL, NULL, NULL);
    fclose(f);
    return key;
}

static bool is_good_pair(const char *cert_path, const char *key_path)
{
    X509 *cert = read_cert(cert_path);
    EVP_PKEY *key = read_key(key_path);
    time_t tomorrow = time(NULL) + DAY_S;
    bool good = cert != NULL && key != NULL && X509_check_private_key(cert, key) == 1 &&
                X509_cmp_time(X509_get0_notAfter(cert), &tomorrow) > 0;

    X509_free(cert);
    EVP_PKEY_free(key);
    return good;
}

/* ---- a new one ---- */

static bool add_extension(X509 *cert, int nid, const char *value)
{
    X509V3_CTX context;
    X509_EXTENSION *extension;
    bool added;

    X509V3_set_ctx(&context, cert, cert, NULL, NULL, 0);
    extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    added = extension != NULL && X509_add_ext(cert, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return added;
}

static bool set_serial(X509 *cert)
{
    unsigned char bytes[SERIAL_BYTES];
    BIGNUM *number;
    bool set;

    if (RAND_bytes(bytes, sizeof bytes) != 1)
        return false;
    bytes[0] &= 0x7F; /* positive (RFC 5280, 4.1.2.2) */
    number = BN_bin2bn(bytes, sizeof bytes, NULL);
    set = number != NULL && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert)) != NULL;
    BN_free(number);
    return set;
}

/* Itself its issuer, and an end entity: a client trusts this certificate, not an authority whose
 * key would lie on this disk. */
static bool fill(X509 *cert, EVP_PKEY *key)
{
    X509_NAME *name = X509_get_subject_name(cert);

    return X509_set_version(cert, X509_VERSION_3) == 1 && set_serial(cert) &&
           X509_gmtime_adj(X509_getm_notBefore(cert), -DAY_S) != NULL &&
           X509_gmtime_adj(X509_getm_notAfter(cert), VALID_S) != NULL &&
           X509_set_pubkey(cert, key) == 1 &&
           X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)COMMON_NAME,
                                      -1, -1, 0) == 1 &&
           X509_set_issuer_name(cert, name) == 1 &&
           add_extension(cert, NID_subject_alt_name, SUBJECT_NAMES) &&
           add_extension(cert, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(cert, NID_key_usage, "critical,digitalSignature") &&
           add_extension(cert, NID_ext_key_usage, "serverAuth") &&
           X509_sign(cert, key, EVP_sha256()) > 0;
}

static enum status write_pem(BIO *pem, const char *path, mode_t mode, struct reason *why)
{
    char *text = NULL;
    long len = BIO_get_mem_data(pem, &text);

    return file_write(path, text, len > 0 ? (size_t)len : 0, mode, why);
}

static enum status write_pair(X509 *cert, EVP_PKEY *key, const char *cert_path,
                              const char *key_path, struct reason *why)
{
    BIO *cert_pem = BIO_new(BIO_s_mem()), *key_pem = BIO_new(BIO_s_secmem());
    enum status st;

    if (cert_pem == NULL || key_pem == NULL || PEM_write_bio_X509(cert_pem, cert) != 1 ||
        PEM_write_bio_PrivateKey(key_pem, key, NULL, NULL, 0, NULL, NULL) != 1)
        st = fail(why, ST_NO_MEMORY, "the certificate can't be written");
    else
        st = write_pem(key_pem, key_path, 0600, why);
    if (st == ST_OK)
        st = write_pem(cert_pem, cert_path, 0644, why);
    BIO_free(cert_pem);
    BIO_free(key_pem);
    return st;
}

enum status tls_make(const char *cert_path, const char *key_path, struct reason *why)
{
    EVP_PKEY *key = NULL;
    X509 *cert = NULL;
    enum status st;

    if (is_good_pair(cert_path, key_path))
        return ST_OK;
    key = EVP_EC_gen("P-256");
    cert = X509_new();
    if (key == NULL || cert == NULL || !fill(cert, key))
        st = fail(why, ST_INTERNAL, "OpenSSL made no certificate");
    else
        st = write_pair(cert, key, cert_path, key_path, why);
    X509_free(cert);
    EVP_PKEY_free(key);
    return st;
}
