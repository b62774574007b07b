/* SPDX-License-Identifier: Apache-2.0 */
/* CORDON_SECRET_KEY: the key by which stored secrets are sealed, where an operator keeps it elsewhere than in the state
 * folder. */
#ifndef CORDON_BASE_SECRET_KEY_H
#define CORDON_BASE_SECRET_KEY_H

#include <stdbool.h>

#define CORDON_SECRET_KEY_NAME "CORDON_SECRET_KEY"
#define CORDON_SECRET_KEY_SIZE 32
#define CORDON_SECRET_KEY_TEXT 65 /* 64 hex digits + NUL; base64 is shorter */

/* 64 hex digits, or standard base64 of 32 bytes. False: it is neither, and key is as it was. */
bool cordon_secret_key_read(const char *text, unsigned char key[CORDON_SECRET_KEY_SIZE]);

/* Takes the key out of this process's environment, so that no child inherits it, and wipes it where it stood: what
 * /proc/PID/environ shows is that memory. For when the environment was read, with one thread. */
void cordon_secret_key_hide(void);

#endif
