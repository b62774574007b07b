/* SPDX-License-Identifier: Apache-2.0 */
/* Secrets at rest: AES-256-GCM under a key that was given (CORDON_SECRET_KEY), or lies beside the database, in
 * STATE/secret.key (mode 0600, made when it is first needed). Whoever copies the database alone has no secret of it. */
#ifndef CORDON_STORE_SECRET_H
#define CORDON_STORE_SECRET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/secret_key.h"

struct cordon_secret_key {
    bool given; /* by CORDON_SECRET_KEY; else it is the folder's */
    unsigned char bytes[CORDON_SECRET_KEY_SIZE];
};

/* The key of the folder (a descriptor). make: one that is missing is made; else that is an error, since a new key opens
 * nothing. The caller wipes it. 0, or negative with err. */
int cordon_secret_key_load(int folder, bool make, struct cordon_secret_key *ret, struct cordon_error *err);

/* name is bound to the text: a sealed text that was moved to another name does not open. Appends to `to`. */
int cordon_secret_seal(const struct cordon_secret_key *key, const char *name, const char *text, size_t size,
                       struct cordon_buf *to, struct cordon_error *err);
/* INFRASTRUCTURE where the key is another one or the bytes were changed. */
int cordon_secret_open(const struct cordon_secret_key *key, const char *name, const void *sealed, size_t size,
                       struct cordon_buf *to, struct cordon_error *err);

#endif
