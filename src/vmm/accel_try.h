/* SPDX-License-Identifier: Apache-2.0 */
/* Inside vmm: an accelerator is one row here. Its calls are given, so that tests can play a kernel that lies or hangs.
 */
#ifndef CORDON_VMM_ACCEL_TRY_H
#define CORDON_VMM_ACCEL_TRY_H

#include "vmm/accel.h"

struct cordon_accel_calls {
    int (*open)(const char *path, int flags);
    int (*ioctl)(int fd, unsigned long request, uintptr_t argument);
};
extern const struct cordon_accel_calls cordon_accel_kernel; /* the real ones */

struct cordon_accelerator {
    const char *name, *device;
    void (*missing)(struct cordon_accel *ret); /* there is no device: what makes it appear. NULL: not known */
    /* In the child, with the device open: fills in state, instructions_per_s, reason and fix. */
    void (*examine)(const struct cordon_accel_calls *calls, int device, struct cordon_accel *ret);
};
extern const struct cordon_accelerator cordon_accelerator_kvm;

/* Probes one, measuring anew; limit_ms bounds the child. */
int cordon_accel_try(const struct cordon_accelerator *which, const struct cordon_accel_calls *calls, unsigned limit_ms,
                     struct cordon_accel *ret, struct cordon_error *err);

/* Is the user in the group, by the host's databases (getpwuid, getgrgid)? */
bool cordon_accel_listed(unsigned uid, unsigned gid);

/* State, reason and fix; cut where too long, as they are for people. */
void cordon_accel_tell(struct cordon_accel *ret, enum cordon_accel_state state, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void cordon_accel_mend(struct cordon_accel *ret, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* accel_memory.c: what was measured, kept in a file of this process's user that nobody else may write. It counts in the
 * same boot and for the same device node only (a kernel module that is loaded anew makes a new one). */
bool cordon_accel_recall(const char *file, int device, struct cordon_accel *ret);
void cordon_accel_keep(const char *file, int device, const struct cordon_accel *found);

#endif
