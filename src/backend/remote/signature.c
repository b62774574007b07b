/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/remote/signature.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"

#define DIGEST 32u

static void hex(const unsigned char digest[DIGEST], char to[2 * DIGEST + 1])
{
    for (size_t i = 0; i < DIGEST; i++)
        (void)snprintf(to + 2 * i, 3, "%02x", digest[i]); /* fits */
}

static int mac(const void *key, size_t key_size, const char *text, unsigned char to[DIGEST])
{
    unsigned size = DIGEST;
    return HMAC(EVP_sha256(), key, (int)key_size, (const unsigned char *)text, strlen(text), to, &size) ? 0 : -ENOMEM;
}

static int canonical(const struct cordon_signature_input *in, const char *names, unsigned char digest[DIGEST])
{
    struct cordon_buf text = CORDON_BUF_INIT(65536);
    unsigned size = DIGEST;
    bool token = in->token && *in->token;
    (void)cordon_buf_appendf(&text, "%s\n%s\n%s\n", in->method, *in->path ? in->path : "/", in->query); /* sticky */
    (void)cordon_buf_appendf(&text, "host:%s\nx-acs-content-sha256:UNSIGNED-PAYLOAD\nx-acs-date:%s\n", in->host,
                             in->time);
    if (token)
        (void)cordon_buf_appendf(&text, "x-acs-security-token:%s\n", in->token);
    (void)cordon_buf_appendf(&text, "\n%s\nUNSIGNED-PAYLOAD", names);
    int r = text.failed                                                                ? -EINVAL
            : EVP_Digest(text.data, text.size, digest, &size, EVP_sha256(), NULL) == 1 ? 0
                                                                                       : -ENOMEM;
    cordon_buf_wipe(&text);
    return r;
}

int cordon_signature(const struct cordon_signature_input *in, char to[CORDON_SIGNATURE_TEXT])
{
    bool token = in->token && *in->token;
    const char *names =
        token ? "host;x-acs-content-sha256;x-acs-date;x-acs-security-token" : "host;x-acs-content-sha256;x-acs-date";
    unsigned char digest[DIGEST], key[DIGEST], next[DIGEST];
    char text[128], sum[2 * DIGEST + 1], date[9], first[256];
    if (strlen(in->time) != 20 || strlen(in->secret) + sizeof "aliyun_v4" > sizeof first)
        return -EINVAL;
    (void)snprintf(date, sizeof date, "%.4s%.2s%.2s", in->time, in->time + 5, in->time + 8); /* fits */
    int r = canonical(in, names, digest);
    if (r < 0)
        return r;
    hex(digest, sum);
    (void)snprintf(text, sizeof text, "AGENTRUN4-HMAC-SHA256\n%s", sum); /* two lines, and no more */
    (void)snprintf(first, sizeof first, "aliyun_v4%s", in->secret);      /* fits: checked */
    const char *chain[] = {date, in->region, "agentrun", "aliyun_v4_request", text};
    r = mac(first, strlen(first), chain[0], key);
    for (size_t i = 1; r == 0 && i < sizeof chain / sizeof *chain; i++) {
        r = mac(key, DIGEST, chain[i], next);
        memcpy(key, next, DIGEST);
    }
    hex(key, sum);
    OPENSSL_cleanse(first, sizeof first);
    OPENSSL_cleanse(key, sizeof key);
    int size =
        snprintf(to, CORDON_SIGNATURE_TEXT,
                 "AGENTRUN4-HMAC-SHA256 Credential=%s/%s/%s/agentrun/aliyun_v4_request,SignedHeaders=%s,Signature=%s",
                 in->key_id, date, in->region, names, sum);
    return r < 0 ? r : size < 0 || size >= CORDON_SIGNATURE_TEXT ? -EINVAL : 0;
}
