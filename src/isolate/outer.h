/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is around this process: a container, or a user namespace with fewer ids and capabilities than a host's root
 * has, and how to make do with it. Used by the warden's start, by the supervisor, and by the probes, which try things
 * in the way in which the warden does them.
 */
#ifndef CORDON_ISOLATE_OUTER_H
#define CORDON_ISOLATE_OUTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

/* Do all these ids exist in this process' user namespace, as uids and as gids? */
bool cordon_outer_has_ids(uid_t first, uint64_t count);
/* May it mount: CAP_SYS_ADMIN in its own user namespace? */
bool cordon_outer_may_mount(void);

/* For root without CAP_SYS_ADMIN: a user namespace with all the ids of this one under their own numbers, in which this
 * (single-threaded) process has every capability. Needs CAP_SETUID, CAP_SETGID, CAP_SETFCAP. */
int cordon_outer_enter_user(struct cordon_error *err);
/* For an ordinary user: one in which that user is 0, and nobody else is anybody. */
int cordon_outer_enter_alone(struct cordon_error *err);

/* Where control groups are mounted read-only, as containers have them: gives this process a mount namespace (and a
 * cgroup namespace) of its own in which they can be written, if the kernel lets it. Does nothing where they can be
 * already. What could not be had shows in cordon_cgroup_root_reason. */
void cordon_outer_open_cgroups(void);

/* The name of the AppArmor profile that confines this process, with its mode; "" if none does. */
void cordon_outer_apparmor(char *ret, size_t size);
/* Does this process run under a system call filter of somebody else? */
bool cordon_outer_has_filter(void);
/* Which parts of /proc are hidden or read-only, as containers have them, comma separated; "" where none is. */
void cordon_outer_masked_proc(char *ret, size_t size);

#endif
