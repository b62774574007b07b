/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the warden and a zygote say to each other over one SEQPACKET socket (the zygote's fd 3). A zygote is
 * `python3 -I zygote.py NAME` in the template's root tree, with the zygote uid and no capabilities. It first imports
 * its modules, then sends a reply with seq 0 (status 0: ready). Then for each job it answers one reply, in order,
 * once the fork was made and its intermediates are gone.
 */
#ifndef CORDON_AGENT_ZYGOTE_WIRE_H
#define CORDON_AGENT_ZYGOTE_WIRE_H

#include <stdint.h>

#define CORDON_ZYGOTE_VERSION 1u

enum cordon_zygote_fd { /* order of the descriptors that come with a job */
                        CORDON_ZYGOTE_NS_USER = 0,
                        CORDON_ZYGOTE_NS_NET,
                        CORDON_ZYGOTE_NS_PID,
                        CORDON_ZYGOTE_NS_MNT,
                        CORDON_ZYGOTE_NS_IPC,
                        CORDON_ZYGOTE_NS_UTS,
                        CORDON_ZYGOTE_NS_CGROUP,
                        CORDON_ZYGOTE_FILTER,
                        CORDON_ZYGOTE_DRIVER,
                        CORDON_ZYGOTE_READY,
                        CORDON_ZYGOTE_STDIN,
                        CORDON_ZYGOTE_STDOUT,
                        CORDON_ZYGOTE_STDERR,
                        CORDON_ZYGOTE_FIXED /* then `cgroups` entries of cgroups */
};

struct cordon_zygote_job {
    uint32_t version;
    uint32_t seq;
    uint32_t cgroups;
    uint32_t code_uid, code_gid; /* in the guest's user namespace */
    uint32_t open_files;
    uint32_t processes; /* 0: held by a control group */
};

struct cordon_zygote_reply {
    uint32_t version;
    uint32_t seq;
    int32_t status; /* 0 or negative errno */
    uint32_t reserved;
    char stage[32]; /* where it failed */
};

#endif
