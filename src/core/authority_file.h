/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of this installation's authority for hosts whose requests get headers (CORDON_EGRESS_CA), in STATE/egress:
 * ca.key (0600) and ca.pem. Folder and files belong to who started the daemon, not to the gateway: it can neither read
 * the key nor have another one believed.
 */
#ifndef CORDON_CORE_AUTHORITY_FILE_H
#define CORDON_CORE_AUTHORITY_FILE_H

#include "base/buf.h"
#include "base/error.h"

#define CORDON_AUTHORITY_KEY "ca.key"
#define CORDON_AUTHORITY_CERTIFICATE "ca.pem"

/* Appends a file's text. state: the state folder's path. 0; -ENOENT without err when it is not there; INFRASTRUCTURE
 * when it is, and others could have written it, or (the key) could read it. */
int cordon_authority_file_read(const char *state, const char *name, struct cordon_buf *to, struct cordon_error *err);
/* Makes the folder where it is missing, and the file in it, whole or not at all; replaces one that is there. */
int cordon_authority_file_write(const char *state, const char *name, const void *data, size_t size,
                                struct cordon_error *err);

#endif
