/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What no error, log line or outcome may ever show. Whoever reads a secret (a key, a password) adds it here once;
 * cordon_fail, cordon_error_detail and cordon_log then mask it in all that they write, whoever calls them.
 */
#ifndef CORDON_BASE_SECRET_H
#define CORDON_BASE_SECRET_H

#include <stddef.h>

#define CORDON_SECRET_MIN 4     /* a shorter one would mask half of every sentence, and is none */
#define CORDON_SECRETS_MAX 1024 /* of a process's life: those that were replaced stay secret */

/* Copies it. One that is too short, there already, or beyond CORDON_SECRETS_MAX is not kept: 0, or -EINVAL, -ENOSPC,
 * -ENOMEM. Any thread. */
int cordon_secret_add(const char *text);
/* Puts *** where a secret stands in the text, or where its beginning does at the text's cut end. */
void cordon_secret_mask(char *text);
/* Wipes all; for the end of the process and for tests, with one thread. */
void cordon_secret_forget(void);

#endif
