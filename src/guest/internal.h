/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the gateway's end of a guest. */
#ifndef CORDON_GUEST_INTERNAL_H
#define CORDON_GUEST_INTERNAL_H

#include <stdbool.h>

#include "base/buf.h"
#include "guest/guest.h"
#include "guest/reader.h"

#define CORDON_MACHINE_ACQUIRE_US 120000000u /* the queue for the machines' budget is the warden's, and may be long */

/* warden.c. A connection to the warden for one message: a descriptor of one's own, or -ENOTCONN. */
int cordon_warden_dup(void);
/* How long a guest is waited for: the newest hello's word (CORDON_GUEST_START_S), 10 s before the first. */
uint64_t cordon_warden_start_us(void);
/* A descriptor of one's own that is readable once there is a warden (again); negative errno. */
int cordon_warden_arrival(void);

/* imports.c: does a Python program seem to import one of the data modules? A hint, by its text alone. */
bool cordon_imports_data(const char *code, size_t size);

/* What a lease gives. Descriptors are -1 where the host has no such file. */
struct cordon_lease {
    int lease, channel, memory_peak, memory_events, cpu_usage;
    int memory_now, memory_stat, pids_now;     /* of kept guests */
    int network[CORDON_GRANT_NETWORK_SOCKETS]; /* for cordon_egress_open, which takes them */
    uint64_t oom_kill_base, cpu_usage_base;
    bool warm, paused;
    uint32_t machine_start, machine_accel;
};
#define CORDON_LEASE_NONE                                                                                              \
    ((struct cordon_lease){-1, -1, -1, -1, -1, -1, -1, -1, {-1, -1, -1, -1, -1, -1}, 0, 0, false, false, 0, 0})

/* acquire.c: 0, or negative with err: BUSY, UNAVAILABLE, CANCELLED, INFRASTRUCTURE; GONE where a guest to be adopted is
 * not there. */
int cordon_lease_open(const struct cordon_warden_acquire *wanted, int cancel_fd, struct cordon_lease *ret,
                      struct cordon_error *err);
void cordon_lease_close(struct cordon_lease *lease); /* ends the guest */
/* What a lease's last word says of a machine's end: true, or false with "". */
bool cordon_lease_last_word(const struct cordon_lease *lease, char *to, size_t size);
enum cordon_isolation cordon_lease_isolation(const struct cordon_lease *lease);
const char *cordon_lease_accelerator(const struct cordon_lease *lease); /* "kvm", "tcg", "" */

/* send.c: what is still to be said to the agent, made frame by frame, so that nothing large is copied. */
struct cordon_guest_sender {
    const struct cordon_request *request;
    struct cordon_buf control; /* whole frames; go out between others */
    char head[CORDON_FRAME_HEADER];
    struct cordon_buf fields; /* payload of the current frame, when it is made here */
    const char *body;         /* … or where it lies in the request */
    size_t body_size, at;     /* of head and body that were sent */
    bool busy;                /* a frame is on its way */
    int phase;
    size_t file, offset; /* the file, or the stdin, that is being sent */
    uint64_t stdin_window;
    bool exec_sent;
};
void cordon_guest_sender_init(struct cordon_guest_sender *sender, const struct cordon_request *request);
void cordon_guest_sender_done(struct cordon_guest_sender *sender);
/* Sends what the socket takes: 0, or negative errno. */
int cordon_guest_sender_send(struct cordon_guest_sender *sender, int channel);
bool cordon_guest_sender_waits(const struct cordon_guest_sender *sender); /* there is more that could be sent now */
int cordon_guest_sender_credit(struct cordon_guest_sender *sender, int stream, uint32_t bytes);
int cordon_guest_sender_kill(struct cordon_guest_sender *sender, uint32_t signal);
int cordon_guest_sender_collect(struct cordon_guest_sender *sender);

#define CORDON_GUEST_EXEC 1u /* the number of a one-shot guest's only exec */

#endif
