/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the gateway (or the command line) and the warden say to each other: fixed-size structs and descriptors over
 * SEQPACKET sockets. The warden parses nothing else, and trusts nothing here beyond its own ceilings.
 *
 * On the warden's main socket it first sends struct cordon_warden_hello. A guest is asked for by ACQUIRE with one
 * descriptor: an end of a fresh SEQPACKET pair, the *lease*. The warden answers on the lease with one
 * struct cordon_warden_grant (and the guest's descriptors when status is 0). The guest lives as long as the lease:
 * when the gateway closes its end, or dies, the guest is destroyed; when the guest is gone for another reason the
 * warden closes its end. So nobody needs ids, and several threads need no reader role.
 */
#ifndef CORDON_WARDEN_WIRE_H
#define CORDON_WARDEN_WIRE_H

#include <stdint.h>

#define CORDON_WARDEN_VERSION 4u

enum cordon_guest_kind {
    CORDON_GUEST_PYTHON = 0,   /* fork of the bare zygote */
    CORDON_GUEST_PYTHON_DATA,  /* fork of the zygote that has numpy, pandas and matplotlib loaded */
    CORDON_GUEST_PYTHON_FRESH, /* a new interpreter is executed */
    CORDON_GUEST_JAVASCRIPT,
    CORDON_GUEST_BASH,
    CORDON_GUEST_KEPT, /* no interpreter is parked in it, and it is used until it is destroyed */
    CORDON_GUEST_KIND__COUNT
};

/* Bits of hello.abilities: what this host lets `local` hold. */
enum cordon_warden_ability {
    CORDON_ABLE_MEMORY = 1,
    CORDON_ABLE_PIDS = 2,
    CORDON_ABLE_CPU = 4,
    CORDON_ABLE_AGENT_PROTECTED = 8,
    CORDON_ABLE_NONE_BACKEND = 16,    /* the operator allowed backend `none` */
    CORDON_ABLE_FREEZE = 32,          /* kept guests can pause */
    CORDON_ABLE_NETWORK = 64,         /* guests with network: DNS, TCP to ports 80 and 443 */
    CORDON_ABLE_EVERY_PORT = 128,     /* …and TCP to every other one */
    CORDON_ABLE_MACHINE_NETWORK = 256 /* machines with network: a device can be made for them */
};

enum cordon_machine_accel { CORDON_MACHINE_NONE = 0, CORDON_MACHINE_TCG, CORDON_MACHINE_KVM };

struct cordon_warden_hello {
    uint32_t version;
    uint32_t abilities;
    uint32_t languages; /* bits by enum cordon_guest_kind: those whose interpreter is there */
    int32_t status;     /* 0: local can run; else negative errno and why */
    uint32_t start_ms;  /* CORDON_GUEST_START_S: wait no longer for a guest */
    uint32_t reserved;
    char why[512]; /* the same words that doctor, readyz and a refused run show */
    /* Of exec-sandbox: */
    int32_t machine_status;     /* 0: it can run; -EAGAIN: still being found out; else negative errno: LOOK tells why */
    uint32_t machine_accel;     /* enum cordon_machine_accel: what its machines run by, or would */
    uint32_t machine_languages; /* as languages: those of the image */
};

#define CORDON_MACHINE_LOOK 2u

struct cordon_warden_acquire {
    uint32_t version;
    uint32_t kind;       /* enum cordon_guest_kind */
    uint32_t unisolated; /* 1: backend `none` */
    uint32_t cpu_percent;
    uint32_t pids;
    uint32_t adopt;   /* kept: 1: hand over the living guest of that id (-ESRCH: there is none) */
    uint32_t network; /* 1: with the sockets of isolate/steer.h, which come with the grant */
    uint32_t machine; /* 1: a virtual machine (exec-sandbox); 2: none, but what they need is looked at anew where it
                         changed, and the grant tells (its status and why, nothing else) */
    uint64_t memory_bytes;
    char template_name[40]; /* "default", or a made one's */
    char id[24];            /* kept: 20 characters a-z0-9; else all zero */
};

/*
 * A kept guest does not end with its lease: its gateway may have died. It is kept for CORDON_GUEST_ORPHAN_S, paused or
 * not as it is, for a gateway that adopts it: by an ACQUIRE with `adopt`, which brings a new channel. Over the lease of
 * a kept guest the gateway asks, and each request is answered in its turn.
 */
enum cordon_lease_verb { CORDON_LEASE_PAUSE = 1, CORDON_LEASE_RESUME, CORDON_LEASE_DESTROY };
struct cordon_lease_request {
    uint32_t version, verb, seq, reserved;
};
/* DESTROY has no answer but the lease's end, once nothing of the guest is left. */
struct cordon_lease_answer {
    uint32_t version, seq;
    int32_t status; /* 0 or negative errno: -EOPNOTSUPP, -EBUSY (something in it does not stand still within 2 s) */
    uint32_t reserved;
};

/*
 * The last word of a lease whose machine ended by itself, sent before the lease ends.
 */
#define CORDON_LEASE_ENDED UINT32_MAX
struct cordon_lease_end {
    uint32_t version, ended; /* CORDON_LEASE_ENDED */
    char why[256];
};

/* How a machine came to be: its kernel was booted for it; it was copied from a template for it; or before. */
enum cordon_machine_start { CORDON_MACHINE_BOOTED = 1, CORDON_MACHINE_COPIED, CORDON_MACHINE_POOLED };

enum cordon_grant_fd { /* bits of grant.fds, in the order in which the descriptors are attached */
                       CORDON_GRANT_CHANNEL = 1,       /* always */
                       CORDON_GRANT_MEMORY_PEAK = 2,   /* text: one number, bytes */
                       CORDON_GRANT_MEMORY_EVENTS = 4, /* text with a line "oom_kill N" */
                       CORDON_GRANT_CPU_USAGE = 8,     /* text: v1 one number, nanoseconds; v2 a line "usage_usec N" */
                       CORDON_GRANT_MEMORY_NOW = 16,   /* of kept guests: one number, bytes */
                       CORDON_GRANT_MEMORY_STAT = 32,  /* memory.stat */
                       CORDON_GRANT_PIDS_NOW = 64,     /* one number */
                       CORDON_GRANT_NETWORK = 128 /* and the 5 bits above it: sockets by enum cordon_steer_socket */
};
#define CORDON_GRANT_NETWORK_SOCKETS 6

struct cordon_warden_grant {
    uint32_t version;
    int32_t status; /* 0 or negative errno: -EAGAIN no resources now, -EPERM beyond a ceiling, -ENXIO no such template,
                       -ESTALE one that can't be used, … */
    uint32_t fds;
    uint32_t warm;          /* 1: came out of the pool */
    uint64_t oom_kill_base; /* the counters' values when the guest was handed over */
    uint64_t cpu_usage_base;
    uint32_t paused; /* of an adopted guest. A machine runs all the same, to get its channel, until PAUSE is ordered, or
                        the warden does that, soon after the end of a lease on which neither PAUSE nor RESUME was */
    uint32_t machine_start; /* enum cordon_machine_start; 0: no machine */
    uint32_t machine_accel, reserved;
    uint64_t machine_lease_us; /* from the order to run until the guest had taken its lease */
    char why[512];
};

#endif
