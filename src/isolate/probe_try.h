/* SPDX-License-Identifier: Apache-2.0 */
/* Inside isolate: what a guest is made of, tried in children that end at once. Results are 0 or negative errno. */
#ifndef CORDON_ISOLATE_PROBE_TRY_H
#define CORDON_ISOLATE_PROBE_TRY_H

#include <stdbool.h>
#include <stddef.h>

enum cordon_try {
    CORDON_TRY_USER,
    CORDON_TRY_RANGE, /* a range of ids mapped, not one */
    CORDON_TRY_PID,
    CORDON_TRY_MOUNT,
    CORDON_TRY_IPC,
    CORDON_TRY_UTS,
    CORDON_TRY_CGROUP,
    CORDON_TRY_NETWORK,
    CORDON_TRY_LOOPBACK,
    CORDON_TRY_TMPFS,
    CORDON_TRY_PROC,
    CORDON_TRY__COUNT
};
#define CORDON_TRY_SKIPPED 1 /* what it builds on failed already */

/* Makes namespaces as a guest's are made: by an unprivileged uid, mapped by a warden in a child of this process. */
int cordon_try_guest(int results[CORDON_TRY__COUNT]);

struct cordon_try_cgroups {
    bool memory, pids, cpu;
    char reason[256]; /* why one is not there */
};
/* Makes control groups as a warden does, and removes them. */
int cordon_try_cgroups(struct cordon_try_cgroups *ret);
int cordon_try_filter(void); /* no_new_privs and a filter with a listener */
int cordon_try_pidfd(void);
int cordon_try_memfd(void); /* executing one */
int cordon_try_realtime(void);
int cordon_try_steer(void); /* giving every TCP port of a namespace to one socket; isolate/steer.h */
/* Runs a program with its standard output read into text: its exit status, or negative errno (-ETIME: too slow, -EINTR:
 * killed). */
int cordon_try_program(const char *const argv[], char *text, size_t size);

#endif
