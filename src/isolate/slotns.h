/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The namespaces that a slot keeps from guest to guest: a user namespace mapped to the slot's uids and owned by the
 * zygote uid; a network namespace owned by that user namespace with nothing but loopback, which is up; and a cgroup
 * namespace in which the slot's own cgroups are the root. They are held alive by descriptors alone.
 *
 * With `network`, the network namespace is one of isolate/steer.h, with its sockets; it is for one guest only.
 */
#ifndef CORDON_ISOLATE_SLOTNS_H
#define CORDON_ISOLATE_SLOTNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "isolate/steer.h"

struct cordon_slotns_ids {
    bool network, every_port; /* every_port: attach (isolate/steer.h) is allowed here */
    bool nic; /* with network: for a machine, which gets a device (isolate/nic.h); the maker stays in its namespace */
    bool single; /* one id only: code_id in the slot is base outside (rootless) */
    uid_t owner; /* the uid that owns the user namespace: from it, interpreters can join without privilege */
    uid_t base;  /* 0…count-1 in the slot are base… outside */
    uint32_t count;
    uid_t code_id;
    const int *cgroups; /* `procs` of the slot (cgroup.h) */
    size_t cgroup_count;
};

struct cordon_slotns {
    int user, net, cgroup; /* namespace descriptors */
    /* Files of the network namespace; those with a 6 are -1 on a host without IPv6. */
    int sockstat, sockstat6, dev, flowlabel6;
    int steer[CORDON_STEER_SOCKETS]; /* with network; else -1. Whoever hands them out sets them to -1 */
    int steer_link;                  /* -1: only some ports have a socket */
    int nic;                         /* the host end of a machine's device; else -1 */
    bool network;
    uint64_t sockets; /* "sockets: used" while nobody is in */
};

#define CORDON_SLOTNS_NONE                                                                                             \
    {                                                                                                                  \
        -1, -1, -1, -1, -1, -1, -1, {-1, -1, -1, -1, -1, -1}, -1, -1, false, 0                                         \
    }

/* Takes the uid (and gid) that is to own user namespaces, for the one unshare that follows. */
int cordon_slotns_become_owner(uid_t owner);
/* Makes them, by a child that is waited for (about a millisecond): the caller needs CAP_SETUID and CAP_SETGID in its
 * user namespace. 0, or negative errno with *ret untouched. */
int cordon_slotns_make(const struct cordon_slotns_ids *ids, struct cordon_slotns *ret, struct cordon_error *err);
void cordon_slotns_done(struct cordon_slotns *ns); /* closes all; fine on CORDON_SLOTNS_NONE */

/* May the network namespace be given to another guest? Only if no socket is left in it, of any kind, nothing ever
 * passed its loopback (what did may have left connections, routes or counters to be read), and no IPv6 flow label is
 * left (they outlive their socket, and all can read them). */
bool cordon_slotns_clean(const struct cordon_slotns *ns);

/* The same for another process: sends all over a SEQPACKET socket, and takes it in there. */
int cordon_slotns_send(int sock, const struct cordon_slotns *ns, const struct cordon_error *failed);
int cordon_slotns_receive(int sock, struct cordon_slotns *ret, struct cordon_error *err); /* does not wait */

#endif
