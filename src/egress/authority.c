/* SPDX-License-Identifier: Apache-2.0 */
/* Making the authority, and signing with it. Certificates of hosts are for one key of this process, and kept. */
#include "egress/authority.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/fd.h"
#include "core/authority_file.h"
#include "core/egress_rule.h"

#define HOST_AUTHORITIES "/etc/ssl/certs/ca-certificates.crt"
#define PEM_MAX (64u << 10)
#define DAY_S 86400L
#define AUTHORITY_DAYS 3650L
#define HOST_DAYS 7L
#define RENEW_DAYS 30L /* before its end the authority is made anew */
#define CACHED 256u

struct minted {
    char name[CORDON_EGRESS_NAME_SIZE];
    X509 *certificate;
    time_t until;
};

struct cordon_authority {
    X509 *certificate;
    EVP_PKEY *key, *host_key;
    SSL_CTX *guests, *servers;
    struct minted cache[CACHED];
    unsigned next; /* which gives way */
};

static void free_key(EVP_PKEY **key)
{
    EVP_PKEY_free(*key);
}

static void free_certificate(X509 **certificate)
{
    X509_free(*certificate);
}

static void free_bio(BIO **bio)
{
    BIO_free(*bio);
}

#define autokey __attribute__((cleanup(free_key)))
#define autocertificate __attribute__((cleanup(free_certificate)))
#define autobio __attribute__((cleanup(free_bio)))

static int refused(const char *what, struct cordon_error *err)
{
    char why[160];
    ERR_error_string_n(ERR_get_error(), why, sizeof why);
    return cordon_fail(err, -EIO, CORDON_ERROR_INFRASTRUCTURE, "the authority for hosts with headers: %s: %s", what,
                       why);
}

/* --- certificates --- */

static bool extend(X509 *certificate, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    bool good = extension && X509_add_ext(certificate, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return good;
}

static bool set_serial(X509 *certificate)
{
    unsigned char random[16];
    if (RAND_bytes(random, sizeof random) != 1)
        return false;
    random[0] &= 0x7f;
    BIGNUM *number = BN_bin2bn(random, sizeof random, NULL);
    bool good = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate));
    BN_free(number);
    return good;
}

static X509 *begin(EVP_PKEY *key, const char *common_name, long days)
{
    X509 *certificate = X509_new();
    X509_NAME *name = certificate ? X509_get_subject_name(certificate) : NULL;
    /* Clocks differ: a day back. A name longer than a common name may be stands in the alternative names only. */
    if (name && X509_set_version(certificate, X509_VERSION_3) && set_serial(certificate) &&
        X509_gmtime_adj(X509_getm_notBefore(certificate), -DAY_S) &&
        X509_gmtime_adj(X509_getm_notAfter(certificate), days * DAY_S) && X509_set_pubkey(certificate, key) &&
        (strlen(common_name) > 64 ||
         X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)common_name, -1, -1, 0)))
        return certificate;
    X509_free(certificate);
    return NULL;
}

static X509 *make_authority(EVP_PKEY *key)
{
    X509 *certificate = begin(key, "Cordon egress authority of this installation", AUTHORITY_DAYS);
    if (certificate && X509_set_issuer_name(certificate, X509_get_subject_name(certificate)) &&
        extend(certificate, certificate, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
        extend(certificate, certificate, NID_key_usage, "critical,keyCertSign") &&
        extend(certificate, certificate, NID_subject_key_identifier, "hash") &&
        X509_sign(certificate, key, EVP_sha256()))
        return certificate;
    X509_free(certificate);
    return NULL;
}

/* name is one of letters, digits, dots, "-" and "_" (cordon_egress_name_read), so nothing of it is grammar here. */
static X509 *make_host(struct cordon_authority *authority, const char *name)
{
    char names[CORDON_EGRESS_NAME_SIZE + 8];
    X509 *certificate = begin(authority->host_key, name, HOST_DAYS);
    (void)snprintf(names, sizeof names, "DNS:%s", name); /* fits */
    if (certificate && X509_set_issuer_name(certificate, X509_get_subject_name(authority->certificate)) &&
        extend(certificate, authority->certificate, NID_basic_constraints, "critical,CA:FALSE") &&
        extend(certificate, authority->certificate, NID_key_usage, "critical,digitalSignature") &&
        extend(certificate, authority->certificate, NID_ext_key_usage, "serverAuth") &&
        extend(certificate, authority->certificate, NID_subject_alt_name, names) &&
        extend(certificate, authority->certificate, NID_authority_key_identifier, "keyid:always") &&
        X509_sign(certificate, authority->key, EVP_sha256()))
        return certificate;
    X509_free(certificate);
    return NULL;
}

/* --- the files --- */

static int read_file(const char *state, const char *name, BIO **ret, struct cordon_buf *text, struct cordon_error *err)
{
    int r = cordon_authority_file_read(state, name, text, err);
    if (r == 0 && !(*ret = BIO_new_mem_buf(text->data, (int)text->size)))
        r = cordon_fail_errno(err, -ENOMEM, "read the authority for hosts with headers");
    return r;
}

static int read_files(const char *state, X509 **certificate, EVP_PKEY **key, struct cordon_error *err)
{
    struct cordon_buf texts[2] = {CORDON_BUF_INIT(PEM_MAX), CORDON_BUF_INIT(PEM_MAX)};
    autobio BIO *first = NULL;
    autobio BIO *second = NULL;
    int r = read_file(state, CORDON_AUTHORITY_CERTIFICATE, &first, &texts[0], err);
    if (r == 0)
        r = read_file(state, CORDON_AUTHORITY_KEY, &second, &texts[1], err);
    if (r == 0) {
        *certificate = PEM_read_bio_X509(first, NULL, NULL, NULL);
        *key = PEM_read_bio_PrivateKey(second, NULL, NULL, NULL);
        if (!*certificate || !*key || X509_check_private_key(*certificate, *key) != 1)
            r = refused("STATE/egress/ca.pem and ca.key do not belong together (remove both to have them made anew)",
                        err);
    }
    cordon_buf_wipe(&texts[0]);
    cordon_buf_wipe(&texts[1]);
    return r;
}

static int write_file(const char *state, const char *name, BIO *from, struct cordon_error *err)
{
    char *data = NULL;
    long size = BIO_get_mem_data(from, &data);
    return cordon_authority_file_write(state, name, data, (size_t)size, err);
}

static int make_files(const char *state, struct cordon_error *err)
{
    autokey EVP_PKEY *key = EVP_EC_gen("P-256");
    autocertificate X509 *certificate = key ? make_authority(key) : NULL;
    autobio BIO *secret = BIO_new(BIO_s_secmem());
    autobio BIO *open = BIO_new(BIO_s_mem());
    if (!certificate || !secret || !open || !PEM_write_bio_X509(open, certificate) ||
        !PEM_write_bio_PrivateKey(secret, key, NULL, NULL, 0, NULL, NULL))
        return refused("it could not be made", err);
    int r = write_file(state, CORDON_AUTHORITY_KEY, secret, err);
    return r < 0 ? r : write_file(state, CORDON_AUTHORITY_CERTIFICATE, open, err);
}

int cordon_authority_make(const char *state, struct cordon_error *err)
{
    autokey EVP_PKEY *key = NULL;
    autocertificate X509 *certificate = NULL;
    int r = read_files(state, &certificate, &key, err);
    time_t soon = time(NULL) + RENEW_DAYS * DAY_S;
    if (r == 0 && X509_cmp_time(X509_get0_notAfter(certificate), &soon) > 0)
        return 0;
    return r == 0 || r == -ENOENT ? make_files(state, err) : r;
}

/* --- its use --- */

/* HTTP/1.1 is what we read. A guest that names protocols without it gets none. */
static int choose(SSL *ssl, const unsigned char **out, unsigned char *size, const unsigned char *in,
                  unsigned int in_size, void *context)
{
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *chosen = NULL;
    if (SSL_select_next_proto(&chosen, size, ours, sizeof ours - 1, in, in_size) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static void set_up(SSL_CTX *context)
{
    (void)SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION); /* can't fail, like the rest */
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_mode(context,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    (void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_num_tickets(context, 0);
}

static int make_contexts(struct cordon_authority *authority, struct cordon_error *err)
{
    static const unsigned char http[] = "\x08http/1.1";
    const char *named = getenv("SSL_CERT_FILE");
    const char *path = named && *named ? named : HOST_AUTHORITIES;
    authority->guests = SSL_CTX_new(TLS_server_method());
    authority->servers = SSL_CTX_new(TLS_client_method());
    authority->host_key = EVP_EC_gen("P-256");
    if (!authority->guests || !authority->servers || !authority->host_key)
        return refused("TLS can not be set up", err);
    set_up(authority->guests);
    SSL_CTX_set_alpn_select_cb(authority->guests, choose, NULL);
    set_up(authority->servers);
    SSL_CTX_set_verify(authority->servers, SSL_VERIFY_PEER, NULL);
    X509_STORE *store = SSL_CTX_get_cert_store(authority->servers);
    (void)X509_STORE_set_flags(store, X509_V_FLAG_TRUSTED_FIRST | X509_V_FLAG_PARTIAL_CHAIN); /* can't fail */
    if (X509_STORE_load_file(store, path) != 1)
        return cordon_fail(err, -ENOENT, CORDON_ERROR_UNAVAILABLE,
                           "CORDON_EGRESS_CA: no trusted authorities could be read from %.200s, by which servers are "
                           "verified: install ca-certificates, or name a file with SSL_CERT_FILE",
                           path);
    return SSL_CTX_set_alpn_protos(authority->servers, http, sizeof http - 1) == 0 ? 0 : refused("ALPN", err);
}

int cordon_authority_load(const char *state, struct cordon_authority **ret, struct cordon_error *err)
{
    struct cordon_authority *authority = calloc(1, sizeof *authority);
    if (!authority)
        return cordon_fail_errno(err, -ENOMEM, "read the authority for hosts with headers");
    int r = read_files(state, &authority->certificate, &authority->key, err);
    if (r == -ENOENT)
        r = cordon_fail(err, r, CORDON_ERROR_INFRASTRUCTURE, "CORDON_EGRESS_CA: %.300s/egress has no authority", state);
    if (r == 0)
        r = make_contexts(authority, err);
    if (r < 0) {
        cordon_authority_free(authority);
        return r;
    }
    *ret = authority;
    return 0;
}

void cordon_authority_free(struct cordon_authority *authority)
{
    if (!authority)
        return;
    for (size_t i = 0; i < CACHED; i++)
        X509_free(authority->cache[i].certificate);
    X509_free(authority->certificate);
    EVP_PKEY_free(authority->key);
    EVP_PKEY_free(authority->host_key);
    SSL_CTX_free(authority->guests);
    SSL_CTX_free(authority->servers);
    free(authority);
}

/* Borrowed; NULL: no memory. */
static X509 *certificate_of(struct cordon_authority *authority, const char *name)
{
    time_t now = time(NULL);
    struct minted *place = NULL;
    for (size_t i = 0; i < CACHED && !place; i++)
        if (authority->cache[i].certificate && strcmp(authority->cache[i].name, name) == 0)
            place = &authority->cache[i];
    if (place && place->until > now)
        return place->certificate;
    X509 *fresh = make_host(authority, name);
    if (!fresh)
        return NULL;
    if (!place)
        place = &authority->cache[authority->next++ % CACHED];
    X509_free(place->certificate);
    *place = (struct minted){.certificate = fresh, .until = now + (HOST_DAYS - 1) * DAY_S};
    (void)snprintf(place->name, sizeof place->name, "%s", name); /* fits */
    return fresh;
}

SSL *cordon_authority_guest(struct cordon_authority *authority, const char *name)
{
    X509 *certificate = certificate_of(authority, name);
    SSL *ssl = certificate ? SSL_new(authority->guests) : NULL;
    if (ssl && SSL_use_certificate(ssl, certificate) == 1 && SSL_use_PrivateKey(ssl, authority->host_key) == 1) {
        SSL_set_accept_state(ssl);
        return ssl;
    }
    SSL_free(ssl);
    return NULL;
}

SSL *cordon_authority_server(struct cordon_authority *authority, const char *name)
{
    SSL *ssl = SSL_new(authority->servers);
    void *told = (void *)(uintptr_t)name; /* what SSL_set_tlsext_host_name does, which is a macro: it is copied */
    if (ssl && SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, told) == 1 &&
        SSL_set1_host(ssl, name) == 1) {
        SSL_set_connect_state(ssl);
        return ssl;
    }
    SSL_free(ssl);
    return NULL;
}
