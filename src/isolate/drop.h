/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CORDON_ISOLATE_DROP_H
#define CORDON_ISOLATE_DROP_H

#include <sys/types.h>

/* Gives up all privilege for good: user and group (as root, and where uid is not 0, the only id that a small namespace
 * may have; else they stay), no groups, no capabilities, no_new_privs, not dumpable. For a role's own process, before
 * it has threads. 0 or negative errno. */
int cordon_drop_privileges(uid_t uid, gid_t gid);

#endif
