/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which hardware help a virtual machine can have on this host, found by trying it: a device that opens proves nothing
 * (KVM without hardware behind it emulates a guest's kernel instruction by instruction). Without help there is software
 * emulation, QEMU's "tcg", which is asked for by a setting and never by this probe.
 */
#ifndef CORDON_VMM_ACCEL_H
#define CORDON_VMM_ACCEL_H

#include <stdbool.h>
#include <stdint.h>

#include <cordon/error.h>

enum cordon_accel_state {
    CORDON_ACCEL_ABSENT = 0,          /* no device, or no driver behind it */
    CORDON_ACCEL_NO_PERMISSION,       /* the device is there and this process may not open it */
    CORDON_ACCEL_GROUP_NOT_EFFECTIVE, /* its user is in the device's group, but this process was started before that */
    CORDON_ACCEL_EMULATED,            /* it runs guests, and emulates their kernel in software */
    CORDON_ACCEL_UNUSABLE,            /* something else failed: reason says what */
    CORDON_ACCEL_GOOD,
    CORDON_ACCEL__COUNT
};

struct cordon_accel {
    enum cordon_accel_state state;
    bool usable;                 /* GOOD */
    char name[16];               /* as QEMU's -accel spells it: "kvm" */
    char device[64];             /* "/dev/kvm" */
    uint64_t instructions_per_s; /* of a guest's kernel, measured; 0: it did not come to that */
    uint64_t took_us;            /* what the measurement took, whenever it was made */
    bool cached;                 /* measured earlier in this boot */
    char reason[256];            /* what was tried and found, one sentence; never empty */
    char fix[256];               /* the command that mends it; "" when usable, or when nothing can */
};

/* What a state is called: "absent", "no-permission", "group-not-effective", "emulated", "unusable", "good". */
const char *cordon_accel_state_name(enum cordon_accel_state state);

/*
 * The best accelerator of this host for this process, tried in a child that is killed when it takes too long. What was
 * measured is kept until the next boot, or until the device is made anew; whether it may be opened is looked at in each
 * call. 0 whatever was found; negative errno when not even the child could be made. Blocks: under a second usually,
 * CORDON_ACCEL_LIMIT_MS and a second more at most. Any thread may call it.
 */
#define CORDON_ACCEL_LIMIT_MS 3000
int cordon_accel_probe(struct cordon_accel *ret, struct cordon_error *err);

/* The same, measured anew: what `cordon doctor` does, and who changed a kernel module. */
int cordon_accel_probe_anew(struct cordon_accel *ret, struct cordon_error *err);

#endif
