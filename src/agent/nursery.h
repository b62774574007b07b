/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nursery, `cordon-agent nursery`: from it the agents of guests are cloned. The contract between it and the
 * warden: one SEQPACKET socket on which the warden sends jobs with descriptors. Each is answered by a report of the
 * nursery, which brings process 1's pidfd, and in mode forked by one of process 1 itself, which brings its namespaces;
 * in any order. Both ends are of one program and one start, so there is no version.
 */
#ifndef CORDON_AGENT_NURSERY_H
#define CORDON_AGENT_NURSERY_H

#include <stdint.h>
#include <sys/types.h>

#include "agent/launch.h"

/* Its descriptors at its start: 0 and 1 /dev/null, 2 the log, and these; no others. The caller has given it the
 * template's root (read-only), the zygote uid and no capabilities. */
#define CORDON_NURSERY_CONTROL_FD 3
#define CORDON_NURSERY_FILTER_FD 4 /* memfd of the code's filter */

/* The order of a job's descriptors. */
enum cordon_nursery_fd {
    CORDON_NURSERY_USER = 0,
    CORDON_NURSERY_NET,
    CORDON_NURSERY_CGROUP,
    CORDON_NURSERY_CHANNEL,
    CORDON_NURSERY_READY,
    CORDON_NURSERY_SPAWN, /* this many of a job in mode spawn, then entries of cgroups */
    CORDON_NURSERY_DRIVER = CORDON_NURSERY_SPAWN,
    CORDON_NURSERY_KEPT, /* this many in mode kept: its control socket is where a driver's is */
    CORDON_NURSERY_STDIN = CORDON_NURSERY_KEPT,
    CORDON_NURSERY_STDOUT,
    CORDON_NURSERY_STDERR,
    CORDON_NURSERY_FORKED /* this many in mode forked */
};

struct cordon_nursery_job {
    uint64_t seq;
    uint32_t forked;       /* mode forked, else … */
    uint32_t kept;         /* … mode kept, else spawn */
    uint32_t awaited;      /* a run waits for this guest */
    uint32_t host_network; /* stays in the nursery's network namespace */
    uint32_t root_there;
    uint32_t cgroups;
    uint32_t cpus, open_files, processes;
    uid_t code_uid, agent_uid;
    uint64_t memory_bytes, disk_bytes, disk_inodes;
    char language[16];
    char interpreter[256], driver[64];
};

enum cordon_nursery_part {
    CORDON_NURSERY_PROCESS = 1, /* of the nursery, always: the pidfd, or why there is no process 1 */
    CORDON_NURSERY_GUEST        /* of process 1: its namespaces (mode forked), or why it ends (either mode) */
};

/* The order of the descriptors with CORDON_NURSERY_GUEST. */
enum cordon_nursery_namespace {
    CORDON_NURSERY_NS_PID = 0,
    CORDON_NURSERY_NS_MNT,
    CORDON_NURSERY_NS_IPC,
    CORDON_NURSERY_NS_UTS,
    CORDON_NURSERY_NAMESPACES
};

struct cordon_nursery_report {
    uint64_t seq;
    uint32_t part;
    int32_t status; /* 0, or negative errno and */
    char stage[64]; /* where it failed */
};

/* Never returns in the nursery; in each process 1 it becomes the agent by cordon_agent_main. */
_Noreturn void cordon_nursery_main(void);
/* agent/main.c: the agent itself, argv as launch.h says. */
int cordon_agent_main(int argc, char **argv);
/* agent/limits.c */
void cordon_agent_tell_limits(uint64_t memory_bytes, uint32_t cpus);

#endif
