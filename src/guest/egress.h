/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gateway's end of a guest's network: a session with the egress process. Any thread; calls on one session take
 * their turns.
 *
 * A guest has a network when it was acquired with struct cordon_warden_acquire's network set: the grant then has its
 * sockets (struct cordon_lease's network). A session opened with them holds the policy until it is closed. A guest that
 * may be given the network later is acquired with it and gets a session with the policy OFF.
 */
#ifndef CORDON_GUEST_EGRESS_H
#define CORDON_GUEST_EGRESS_H

#include <stdbool.h>

#include "core/egress.h"
#include "egress/wire.h"

/* The process's connection to its egress process; replaces the one before (after a restart) and takes the fd. Sessions
 * that are open go over to the new process by themselves, without the connections they had. */
int cordon_egress_set(int fd_take, struct cordon_error *err);
/* Is there one? 0, or UNAVAILABLE. */
int cordon_egress_there(struct cordon_error *err);

struct cordon_egress_session;
/* sockets: of the lease, -1 where absent; taken on success and on failure. The policy is copied, and
 * holds for all that the guest does: what comes before the egress process has read it waits in the sockets. */
int cordon_egress_open(const char *guest, int sockets[CORDON_EGRESS_SOCKETS], const struct cordon_egress_policy *policy,
                       struct cordon_egress_session **ret, struct cordon_error *err);
/* Replaces the policy; when it returns 0 no connection that doesn't fit is left. On failure the old one holds. */
int cordon_egress_update(struct cordon_egress_session *session, const struct cordon_egress_policy *policy,
                         struct cordon_error *err);
/* Connections and bytes so far; and appended the log as a JSON array, newest last: [{"at_ms","name","address","port",
 * "decision","rule","why","count","bytes_sent","bytes_received"}…]. All zero and "[]" when they can't be had. 0 or
 * -ENOMEM. */
int cordon_egress_read(struct cordon_egress_session *session, struct cordon_egress_counts *ret, struct cordon_buf *log);
void cordon_egress_close(struct cordon_egress_session *session); /* cuts all; NULL is allowed */

#endif
