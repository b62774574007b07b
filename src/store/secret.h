/* SPDX-License-Identifier: Apache-2.0 */
/* Secrets at rest: AES-256-GCM under a key that lies beside the database, in STATE/secret.key (mode 0600, made when it
 * is first needed). Whoever copies the database alone has no secret of it. */
#ifndef CORDON_STORE_SECRET_H
#define CORDON_STORE_SECRET_H

#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"

#define CORDON_SECRET_KEY_SIZE 32

/* Reads the key of the folder, or makes one. folder: a descriptor. 0, or negative with err. */
int cordon_secret_key_load(int folder, unsigned char key[CORDON_SECRET_KEY_SIZE], struct cordon_error *err);

/* name is bound to the text: a sealed text that was moved to another name does not open. Appends to `to`. */
int cordon_secret_seal(const unsigned char key[CORDON_SECRET_KEY_SIZE], const char *name, const char *text, size_t size,
                       struct cordon_buf *to, struct cordon_error *err);
/* INFRASTRUCTURE where the key is another one or the bytes were changed. */
int cordon_secret_open(const unsigned char key[CORDON_SECRET_KEY_SIZE], const char *name, const void *sealed,
                       size_t size, struct cordon_buf *to, struct cordon_error *err);

#endif
