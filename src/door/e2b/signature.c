/* SPDX-License-Identifier: Apache-2.0 */
#include "door/e2b/signature.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <string.h>

#include "base/buf.h"

#define HASH 32u

static bool hash(const struct cordon_e2b_signed *what, const char *token, unsigned char to[HASH])
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    const char *const parts[] = {what->path,
                                 ":",
                                 what->operation,
                                 ":",
                                 what->user,
                                 ":",
                                 token,
                                 what->expiration ? ":" : "",
                                 what->expiration ? what->expiration : ""};
    bool ok = context && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1;
    for (size_t i = 0; ok && i < sizeof parts / sizeof *parts; i++)
        ok = EVP_DigestUpdate(context, parts[i], strlen(parts[i])) == 1;
    ok = ok && EVP_DigestFinal_ex(context, to, NULL) == 1;
    EVP_MD_CTX_free(context);
    return ok;
}

bool cordon_e2b_sign(const struct cordon_e2b_signed *what, const char *token, char to[CORDON_E2B_SIGNATURE_TEXT])
{
    unsigned char digest[HASH];
    struct cordon_buf text = CORDON_BUF_INIT(64);
    bool ok = hash(what, token, digest) && cordon_buf_appends(&text, "v1_") == 0 &&
              cordon_buf_base64(&text, digest, sizeof digest) == 0 && text.size < CORDON_E2B_SIGNATURE_TEXT;
    if (ok) {
        memcpy(to, text.data, text.size);
        to[text.size] = '\0';
        to[strcspn(to, "=")] = '\0';
    }
    cordon_buf_done(&text);
    return ok;
}

bool cordon_e2b_signature_ok(const struct cordon_e2b_signed *what, const char *token, const char *signature)
{
    char good[CORDON_E2B_SIGNATURE_TEXT], given[CORDON_E2B_SIGNATURE_TEXT] = "";
    size_t size = strlen(signature);
    if (!*token || size >= sizeof given || !cordon_e2b_sign(what, token, good))
        return false;
    memcpy(given, signature, size + 1);
    size_t length = strcspn(given, "=");
    given[length] = '\0';
    return length == strlen(good) && CRYPTO_memcmp(given, good, length) == 0;
}

bool cordon_e2b_signature_expired(const char *expiration, int64_t now_s)
{
    int64_t at = 0;
    size_t size = strlen(expiration);
    if (!size || size > 12 || strspn(expiration, "0123456789") != size)
        return true;
    for (; *expiration; expiration++)
        at = at * 10 + (*expiration - '0');
    return at < now_s;
}
