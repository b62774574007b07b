/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the remote backends: what is read once, while all files can be read. */
#ifndef CORDON_BACKEND_REMOTE_SETUP_H
#define CORDON_BACKEND_REMOTE_SETUP_H

#include "base/error.h"
#include "core/settings.h"

/* The private key and the trusted host keys, when a host is set. */
int cordon_ssh_setup(struct cordon_error *err);
/* A copy of the trusted host keys is put into the folder. */
int cordon_ssh_confined(const char *folder, struct cordon_error *err);

#endif
