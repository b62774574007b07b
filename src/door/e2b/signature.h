/* SPDX-License-Identifier: Apache-2.0 */
/* The signatures of URLs that give one file without a token: "v1_" and base64 of a SHA-256. Pure; fuzzed. */
#ifndef CORDON_E2B_SIGNATURE_H
#define CORDON_E2B_SIGNATURE_H

#include <stdbool.h>
#include <stdint.h>

#define CORDON_E2B_SIGNATURE_TEXT 48

struct cordon_e2b_signed {
    const char *path, *operation, *user; /* as in the query; operation: "read" or "write"; user "" when not given */
    const char *expiration;              /* as in the query; NULL: none */
};
/* to: the signature's text; false when it could not be made. */
bool cordon_e2b_sign(const struct cordon_e2b_signed *what, const char *token, char to[CORDON_E2B_SIGNATURE_TEXT]);
/* In constant time. Says nothing about the expiration. */
bool cordon_e2b_signature_ok(const struct cordon_e2b_signed *what, const char *token, const char *signature);
/* Unix seconds; a text that is no such number counts as expired. */
bool cordon_e2b_signature_expired(const char *expiration, int64_t now_s);

#endif
