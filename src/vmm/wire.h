/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the warden and a vmm say to each other: descriptors at fixed numbers, and fixed-size structs over one SEQPACKET
 * socket. A vmm drives one VM, its only child; it parses QEMU and the first frames of the guest, so that the warden
 * parses neither. When a vmm ends, its VM has ended: it is process 1 of their pid namespace.
 *
 * The warden's first message is a struct cordon_vmm_start; then the vmm reports READY (parked), or DONE (a template),
 * or FAILED and ends. Then it takes orders, one at a time, each answered by a report with the order's seq. A report
 * ENDED (the VM ended by itself) may come at any time and is the last.
 */
#ifndef CORDON_VMM_WIRE_H
#define CORDON_VMM_WIRE_H

#include <stdint.h>

#define CORDON_VMM_VERSION 3u

enum cordon_vmm_fd {
    CORDON_VMM_CONTROL = 3, /* to the warden */
    CORDON_VMM_CHANNEL = 4, /* the host's end of the guest's channel, until LEASED */
    CORDON_VMM_GUEST = 5,   /* its other end: QEMU's */
    CORDON_VMM_KERNEL = 6,
    CORDON_VMM_INITRD = 7,
    CORDON_VMM_ROOT = 8,   /* the image's root file system */
    CORDON_VMM_RAM = 9,    /* a template's memory; /dev/null of a cold VM */
    CORDON_VMM_STATE = 10, /* and its devices */
    CORDON_VMM_NIC = 11,   /* the host end of its network device (isolate/nic.h); /dev/null of a VM without one */
    CORDON_VMM__END = 12,
    CORDON_VMM_QMP = 12 /* QEMU's end, of the vmm's own making */
};

enum cordon_vmm_make {
    CORDON_VMM_COLD = 0, /* boot with memory of its own */
    CORDON_VMM_TEMPLATE, /* boot with its memory in CORDON_VMM_RAM, stop, write the devices' state; then end */
    CORDON_VMM_CLONE     /* load both, and stay stopped until the lease */
};

enum cordon_vmm_accel { CORDON_VMM_TCG = 1, CORDON_VMM_KVM = 2 };

struct cordon_vmm_start {
    uint32_t version;
    uint32_t make;      /* enum cordon_vmm_make */
    uint32_t accel;     /* enum cordon_vmm_accel */
    uint32_t memory_mb; /* of the VM */
    uint32_t kept;
    uint32_t acpi;    /* 1: the image's kernel finds its devices by ACPI */
    uint32_t disk_mb; /* of what the guest may write */
    uint32_t disk_inodes;
    uint32_t network; /* 1: it has a network device */
    uint32_t reserved;
    uint64_t boot_us; /* the longest that READY may take */
    char language[16];
    char append[128]; /* what the image's kernel needs on its command line besides; no quotes */
    char qemu[256];   /* path of the program, as the vmm sees it */
};

enum cordon_vmm_verb {
    CORDON_VMM_LEASE = 1,
    CORDON_VMM_PAUSE,
    CORDON_VMM_RESUME,
    CORDON_VMM_CHANNEL_NEW, /* with a descriptor: the guest's new end of its channel */
    /* Of a clone, before its lease: it runs, does what a lease makes it do, and stands still again. */
    CORDON_VMM_REHEARSE
};

struct cordon_vmm_order {
    uint32_t version, verb, seq;
    /* LEASE: */
    uint32_t fresh; /* 1: an interpreter that is in no template */
    uint32_t cpu_percent, pids, open_files, reserved;
    uint64_t memory_bytes, disk_bytes, disk_inodes;
    char guest[40];
};

enum cordon_vmm_what {
    CORDON_VMM_READY = 1, /* loaded or booted; the guest said that it waits for its lease */
    CORDON_VMM_DONE,      /* an order was carried out; of a template: it is written */
    CORDON_VMM_FAILED,    /* status, why; the VM is of no use any more */
    CORDON_VMM_ENDED      /* why; the VM ended by itself */
};

struct cordon_vmm_report {
    uint32_t version, what, seq;
    int32_t status;      /* negative errno */
    uint64_t started_us; /* from the start of QEMU until it answered; 0: not that far */
    uint64_t ready_us;   /* until it was ready */
    uint64_t lease_us;   /* of LEASE: from the order until the guest had taken it */
    uint64_t cont_us;    /* … of which until the VM ran */
    char why[256];       /* one sentence, printable */
};

#endif
