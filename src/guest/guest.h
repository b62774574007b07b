/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gateway's end of a guest on this host: acquire, put files, exec, events, artifacts, release. Written once over
 * the guest protocol for every host backend; a backend only says what kind of guest it wants. Any thread; one guest
 * belongs to one thread at a time.
 */
#ifndef CORDON_GUEST_GUEST_H
#define CORDON_GUEST_GUEST_H

#include <cordon/backend.h>

#include "warden/wire.h"

/* The process's connection to its warden. set replaces it (after a restart) and takes the fd; reads the hello. */
int cordon_warden_set(int fd, struct cordon_error *err);
/* The newest hello: 0, or -ENOTCONN with err kind UNAVAILABLE while there is no warden. */
int cordon_warden_hello(struct cordon_warden_hello *ret, struct cordon_error *err);

/* Can virtual machines be made here? Looked at anew where something changed since. 0, or UNAVAILABLE with the reason.
 */
int cordon_warden_look(struct cordon_error *err);

/* The three functions of struct cordon_backend for a backend whose guests come from the warden: a whole run =
 * acquire (waits at most CORDON_GUEST_START_S), files, exec, events, artifacts, outcome, release. Name and isolation go
 * into the outcome. */
struct cordon_guest_backend {
    const char *name;
    enum cordon_isolation isolation;
    bool unisolated;
    bool machine; /* guests are virtual machines; isolation is then by what the grant says of its accelerator */
};
int cordon_guest_run_open(const struct cordon_guest_backend *backend, const struct cordon_request *request,
                          struct cordon_run **ret, struct cordon_error *err);
int cordon_guest_run_next(struct cordon_run *run, struct cordon_event *event);
void cordon_guest_run_close(struct cordon_run *run);

#endif
