/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This installation's authority, for hosts whose requests get headers within TLS. Made once into STATE/egress
 * (core/authority_file.h); the egress process reads it before it gives up its privileges, and signs a certificate for
 * each such host when a guest first connects to it.
 */
#ifndef CORDON_EGRESS_AUTHORITY_H
#define CORDON_EGRESS_AUTHORITY_H

#include <openssl/ssl.h>

#include "base/error.h"

/* Makes key and certificate where they are missing or nearly over. state: the folder's path. Leaves the key in this
 * process's memory as little as can be: call it in a process that ends. */
int cordon_authority_make(const char *state, struct cordon_error *err);

struct cordon_authority;
/* Reads it, and the authorities that servers are verified by (SSL_CERT_FILE, else the host's). */
int cordon_authority_load(const char *state, struct cordon_authority **ret, struct cordon_error *err);
void cordon_authority_free(struct cordon_authority *authority);

/* A connection's end towards the guest, which takes itself for the host `name`; NULL: no memory. Speaks HTTP/1.1. */
SSL *cordon_authority_guest(struct cordon_authority *authority, const char *name);
/* …and towards the server, which must prove that it is `name`. */
SSL *cordon_authority_server(struct cordon_authority *authority, const char *name);

#endif
