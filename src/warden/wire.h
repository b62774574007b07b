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

#define CORDON_WARDEN_VERSION 1u

enum cordon_guest_kind {
    CORDON_GUEST_PYTHON = 0,   /* fork of the bare zygote */
    CORDON_GUEST_PYTHON_DATA,  /* fork of the zygote that has numpy, pandas and matplotlib loaded */
    CORDON_GUEST_PYTHON_FRESH, /* a new interpreter is executed */
    CORDON_GUEST_JAVASCRIPT,
    CORDON_GUEST_BASH,
    CORDON_GUEST_KIND__COUNT
};

enum cordon_warden_ability { /* bits of hello.abilities: what this host lets `local` hold */
                             CORDON_ABLE_MEMORY = 1,
                             CORDON_ABLE_PIDS = 2,
                             CORDON_ABLE_CPU = 4,
                             CORDON_ABLE_AGENT_PROTECTED = 8,
                             CORDON_ABLE_NONE_BACKEND = 16 /* the operator allowed backend `none` */
};

struct cordon_warden_hello {
    uint32_t version;
    uint32_t abilities;
    uint32_t languages; /* bits by enum cordon_guest_kind: those whose interpreter is there */
    int32_t status;     /* 0: local can run; else negative errno and why */
    char why[512];      /* the same words that doctor, readyz and a refused run show */
};

struct cordon_warden_acquire {
    uint32_t version;
    uint32_t kind;       /* enum cordon_guest_kind */
    uint32_t unisolated; /* 1: backend `none` */
    uint32_t cpu_percent;
    uint32_t pids;
    uint32_t reserved;
    uint64_t memory_bytes;
    char template_name[40]; /* "default", or a made one's */
};

enum cordon_grant_fd { /* bits of grant.fds, in the order in which the descriptors are attached */
                       CORDON_GRANT_CHANNEL = 1,       /* always */
                       CORDON_GRANT_MEMORY_PEAK = 2,   /* text: one number, bytes */
                       CORDON_GRANT_MEMORY_EVENTS = 4, /* text with a line "oom_kill N" */
                       CORDON_GRANT_CPU_USAGE = 8      /* text: v1 one number, nanoseconds; v2 a line "usage_usec N" */
};

struct cordon_warden_grant {
    uint32_t version;
    int32_t status; /* 0 or negative errno: -EAGAIN no resources now, -EPERM beyond a ceiling, -ENXIO no such template,
                       -ESTALE one that can't be used, … */
    uint32_t fds;
    uint32_t warm;          /* 1: came out of the pool */
    uint64_t oom_kill_base; /* the counters' values when the guest was handed over */
    uint64_t cpu_usage_base;
    char why[512];
};

#endif
