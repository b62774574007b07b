/* SPDX-License-Identifier: Apache-2.0 */
/* Inside isolate: what a guest is made of, tried in children that end at once. Results are 0 or negative errno. */
#ifndef CORDON_ISOLATE_PROBE_TRY_H
#define CORDON_ISOLATE_PROBE_TRY_H

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

/* Makes namespaces as a guest's are made: by an unprivileged uid, mapped by this process. */
int cordon_try_guest(int results[CORDON_TRY__COUNT]);
int cordon_try_filter(void); /* no_new_privs and a filter with a listener */
int cordon_try_pidfd(void);
int cordon_try_memfd(void); /* executing one */
int cordon_try_realtime(void);
/* Runs a program with its standard output read into text: its exit status, or negative errno (-ETIME: too slow, -EINTR:
 * killed). */
int cordon_try_program(const char *const argv[], char *text, size_t size);

#endif
