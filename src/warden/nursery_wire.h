/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the warden and a nursery, over one SEQPACKET socket: a job with descriptors, answered in order by one
 * report. Both ends are of one program and one start, so there is no version.
 */
#ifndef CORDON_WARDEN_NURSERY_WIRE_H
#define CORDON_WARDEN_NURSERY_WIRE_H

#include <stdint.h>
#include <sys/types.h>

#include "agent/launch.h"

enum cordon_nursery_fd { /* order of a job's descriptors */
    CORDON_NURSERY_USER = 0,
    CORDON_NURSERY_NET,
    CORDON_NURSERY_CHANNEL,
    CORDON_NURSERY_READY,
    CORDON_NURSERY_SPAWN, /* this many of a job in mode spawn, then the cgroup.procs */
    CORDON_NURSERY_DRIVER = CORDON_NURSERY_SPAWN,
    CORDON_NURSERY_STDIN,
    CORDON_NURSERY_STDOUT,
    CORDON_NURSERY_STDERR,
    CORDON_NURSERY_FORKED /* this many in mode forked */
};

struct cordon_nursery_job {
    uint64_t seq;
    uint32_t forked; /* mode forked, else spawn */
    uint32_t cgroups;
    uint32_t cpus;
    uid_t code_uid, agent_uid;
    uint64_t memory_bytes, disk_bytes, disk_inodes;
    char language[16];
    char interpreter[256], driver[64];
};

enum cordon_nursery_namespace { /* order of a report's descriptors, mode forked; mode spawn has the pidfd only */
    CORDON_NURSERY_PIDFD = 0,
    CORDON_NURSERY_NS_PID,
    CORDON_NURSERY_NS_MNT,
    CORDON_NURSERY_NS_IPC,
    CORDON_NURSERY_NS_UTS,
    CORDON_NURSERY_NS_CGROUP,
    CORDON_NURSERY_REPORT_FDS
};

struct cordon_nursery_report {
    uint64_t seq;
    int32_t status;   /* 0: process 1 has executed the agent; negative errno: there is none */
    char stage[64];   /* where it failed */
};

struct cordon_nursery_setup {
    int control;      /* the nursery's end */
    int agent;        /* memfd of cordon-agent */
    int filter;       /* memfd of the code's filter */
    int root;         /* the template's mount namespace */
    uid_t zygote_uid;
    int rootless;
};

/* The nursery's main function, in a fresh child of the warden. Its descriptors must be those of setup, at any
 * numbers, and 0 to 2. Never returns. */
_Noreturn void cordon_nursery_main(const struct cordon_nursery_setup *setup);
/* Drops to the zygote uid without capabilities: for nursery and zygotes. 0 or negative errno. */
int cordon_nursery_drop(uid_t uid, int rootless);

#endif
