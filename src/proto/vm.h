/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The handshake of a virtual machine with its host, before the guest protocol begins on the same channel. Pure.
 * docs/protocol/guest.md, "Virtual machines", has the rules:
 *
 *     guest -> host   VM_READY    the interpreter (or the launcher) is warm and waits; or ERROR, when it can't be
 *     host -> guest   VM_LEASE    as a rehearsal, any number of times; VM_READY follows again
 *     host -> guest   VM_LEASE    once: entropy, time, identity and limits of the run that this copy is for
 *     guest -> host   VM_LEASED   all of it is in force; HELLO (a run) or READY (a kept guest) follow
 *
 * A copy that waits in a pool rehearses there: it does all that a lease makes it do, and a Python that waits in it what
 * a run begins with, so that what has to be translated (under emulation) or copied is when the lease comes. Nothing of
 * a rehearsal lasts.
 *
 * Between VM_READY and what answers it the guest sends nothing: there it is stopped, copied and continued. All three
 * carry exec 0 and have a fixed size. The host believes nothing of what the guest says but "go on".
 */
#ifndef CORDON_PROTO_VM_H
#define CORDON_PROTO_VM_H

#include "proto/frame.h"

#define CORDON_VM_VERSION 2u
#define CORDON_VM_PORT "org.cordon.agent" /* the name of the virtio-serial port */
#define CORDON_GUEST_HOSTNAME "cordon"    /* of every guest, machine or not */
#define CORDON_VM_ENTROPY 64u
#define CORDON_VM_TEXT 64u           /* with its NUL */
#define CORDON_VM_PAST_S 1000000000u /* the clock until the lease, rehearsals included: 2001 */

/* What the kernel's command line says to process 1, each as cordon.KEY=VALUE: mode=run|kept,
 * language=python|javascript|bash, disk_mb=N, disk_inodes=N, network=0|1,
 * once=0|1 (it serves one run as it is, and is not copied). */

enum cordon_vm_language { CORDON_VM_NONE = 0, CORDON_VM_PYTHON, CORDON_VM_JAVASCRIPT, CORDON_VM_BASH };

#define CORDON_VM_READY_SIZE 24u
struct cordon_vm_ready {
    uint32_t language; /* enum cordon_vm_language: what is parked; NONE in a kept guest */
    uint32_t kept;
    uint64_t memory_available_bytes; /* of the machine, as it waits */
    uint32_t boot_ms;                /* since its kernel started */
};

enum cordon_vm_lease_flags {
    CORDON_VM_FRESH = 1,    /* the parked interpreter is thrown away and one started that is in no template */
    CORDON_VM_REHEARSAL = 2 /* a rehearsal; not with FRESH */
};

#define CORDON_VM_LEASE_SIZE 312u
struct cordon_vm_lease {
    uint32_t flags;
    char entropy[CORDON_VM_ENTROPY];
    uint64_t realtime_ns;                   /* CLOCK_REALTIME of the host */
    char guest[CORDON_VM_TEXT];             /* the guest's id, text */
    char hostname[CORDON_VM_TEXT];          /* letters, digits, '-' and '.' */
    char machine_id[CORDON_VM_TEXT];        /* 32 hexadecimal digits */
    uint64_t memory_bytes;                  /* of the code; 0: what the machine has */
    uint64_t disk_bytes, disk_inodes;       /* of what it may write; 0: as booted */
    uint32_t pids, open_files, cpu_percent; /* 0: as booted */
};

/* Each appends the whole frame; failures stick in to->failed. */
void cordon_vm_ready_put(struct cordon_buf *to, const struct cordon_vm_ready *ready);
void cordon_vm_lease_put(struct cordon_buf *to, const struct cordon_vm_lease *lease);
void cordon_vm_leased_put(struct cordon_buf *to);

/* 0, or -EBADMSG: another frame, another version, a text that is not terminated or has other characters than it may. */
int cordon_vm_ready_parse(const struct cordon_frame *frame, struct cordon_vm_ready *ret);
int cordon_vm_lease_parse(const struct cordon_frame *frame, struct cordon_vm_lease *ret);
int cordon_vm_leased_parse(const struct cordon_frame *frame);

#endif
