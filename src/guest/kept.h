/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gateway's end of kept guests: the guest_… and stream_… functions of struct cordon_backend, for every backend
 * whose guests come from the warden. Theory of operation:
 *
 * One thread of the process, the *dispatcher*, reads the channels and leases of all guests (kept_dispatch.c), checks
 * each frame against what its operation may say, and puts it into the stream's queue, which the stream's window bounds.
 * Who waits for a stream waits on its eventfd and its client's socket. What is sent goes out from the thread that has
 * something to say, one whole frame at a time.
 *
 * An agent may have been taken over by the code beside it. The first frame that a sound one could not have sent is a
 * *violation*: the guest is destroyed, and all its streams end with that reason.
 */
#ifndef CORDON_GUEST_KEPT_H
#define CORDON_GUEST_KEPT_H

#include <pthread.h>

#include "guest/egress.h"
#include "guest/internal.h"
#include "proto/kept.h"

#define CORDON_KEPT_STREAM_IDS 280u /* below the agent's table of streams */
/* Connections to ports of a virtual machine. Each holds a stream: who opens them is to leave some to others. */
#define CORDON_KEPT_RELAYS 128u

enum cordon_kept_write { CORDON_KEPT_WRITES = 4 }; /* by enum cordon_stream_to */

struct cordon_stream {
    struct cordon_guest_handle *guest;
    uint16_t id;
    uint32_t kind;
    int event_fd, cancel_fd;
    /* All below is the guest's lock's. */
    struct cordon_buf queue; /* whole frames */
    size_t queue_at;         /* so many bytes at its front were taken out: never more than half of it */
    int64_t window;          /* what the agent may still send */
    uint32_t owed;           /* taken out of the queue, not given back yet */
    uint32_t writable[CORDON_KEPT_WRITES];
    bool began, over; /* over: its last frame is in the queue, or was */
    bool half;        /* of a connection that is relayed: HALF came */
    bool given;       /* its last event was given out */
    unsigned infos;
    int port_fd;
    /* The event that was given last. */
    struct cordon_buf current;
    struct cordon_exec_exit exit;
    struct cordon_file_entry entry;
    char texts[4][CORDON_KEPT_PATH_MAX + 1]; /* path, owner, group, target */
    char name[CORDON_KEPT_PATH_MAX + 1];
};

struct cordon_guest_handle {
    pthread_mutex_t lock, send_lock;
    pthread_cond_t changed;
    unsigned refs;
    char id[24];
    size_t place; /* in the dispatcher's table */
    struct cordon_lease lease;
    struct cordon_egress_session *egress; /* NULL: made without */
    int gone_fd;
    bool ready, set_up, gone, paused;
    bool quiet; /* about to be paused: only what can't wait is written to a machine */
    bool machine;
    struct cordon_error failed; /* of SETUP; code 0: none */
    char why[256];              /* it is gone */
    struct cordon_buf in;
    int pending_fd; /* came with bytes that are not parsed yet */
    struct cordon_stream *streams[CORDON_KEPT_STREAM_IDS];
    bool closing[CORDON_KEPT_STREAM_IDS]; /* CLOSE was sent, CLOSED is awaited */
    uint16_t last_id;
    uint32_t running, relays; /* programs, connections that kept_port.c relays */
    uint64_t running_changed_us, oom_kills;
    uint32_t seq, answered;
    int32_t answer;
};

/* kept_dispatch.c */
int cordon_kept_dispatch_add(struct cordon_guest_handle *guest); /* 0 or negative errno */
void cordon_kept_dispatch_remove(struct cordon_guest_handle *guest);
void cordon_kept_unref(struct cordon_guest_handle *guest);
/* With the lock held: it is gone, and everybody who waits is told. */
void cordon_kept_mark_gone(struct cordon_guest_handle *guest, const char *why);

/* kept_frames.c: a frame of the agent, with the lock held: NULL, or what a sound agent would not have done */
const char *cordon_kept_take_frame(struct cordon_guest_handle *guest, const struct cordon_frame *frame);

/* kept_send.c: 0, or negative with err. Who writes to a paused machine waits until it goes on. */
void cordon_kept_set_paused(struct cordon_guest_handle *guest, bool quiet, bool paused); /* false: and wakes them */
int cordon_kept_send_frame(struct cordon_guest_handle *guest, uint8_t type, uint16_t id, const void *head,
                           size_t head_size, const void *data, size_t size, struct cordon_error *err);
/* OPEN of a stream that `enter` gives its number, unless it refuses: that is told, and nothing is sent. */
int cordon_kept_send_open(struct cordon_stream *stream,
                          int (*enter)(struct cordon_stream *stream, struct cordon_error *err),
                          const struct cordon_buf *fields, struct cordon_error *err);
int cordon_kept_order(struct cordon_guest_handle *guest, enum cordon_lease_verb verb, struct cordon_error *err);
int cordon_kept_say_gone(struct cordon_guest_handle *guest, struct cordon_error *err); /* returns -ESRCH */

/* kept_stream.c, kept_event.c */
int cordon_kept_open_fields(struct cordon_guest_handle *guest, uint32_t kind, struct cordon_buf *fields, int cancel_fd,
                            struct cordon_stream **ret, struct cordon_error *err);
/* Makes an event of the frame in stream->current: 1, 0: nothing to tell, negative: FAILED. */
int cordon_kept_event(struct cordon_stream *stream, struct cordon_stream_event *event, struct cordon_error *err);
void cordon_kept_judge(struct cordon_guest_handle *guest, const struct cordon_ended *ended,
                       struct cordon_exec_exit *ret);
/* As stream_next, and shows each frame, in stream->current, to `take` (may be NULL) before it becomes an event. */
int cordon_kept_stream_step(struct cordon_stream *stream, int timeout_ms, struct cordon_stream_event *event,
                            int (*take)(void *context, struct cordon_stream *stream), void *context,
                            struct cordon_error *err);

/* The functions of struct cordon_backend. */
int cordon_kept_create(const struct cordon_guest_spec *spec, struct cordon_guest_handle **ret,
                       struct cordon_error *err);
int cordon_kept_adopt(const char *id, int cancel_fd, struct cordon_guest_handle **ret, struct cordon_error *err);
/* The same for guests that are virtual machines. */
int cordon_kept_create_machine(const struct cordon_guest_spec *spec, struct cordon_guest_handle **ret,
                               struct cordon_error *err);
int cordon_kept_adopt_machine(const char *id, int cancel_fd, struct cordon_guest_handle **ret,
                              struct cordon_error *err);
void cordon_kept_release(struct cordon_guest_handle *guest);
int cordon_kept_destroy(struct cordon_guest_handle *guest, struct cordon_error *err);
int cordon_kept_pause(struct cordon_guest_handle *guest, enum cordon_pause how, struct cordon_error *err);
int cordon_kept_resume(struct cordon_guest_handle *guest, struct cordon_error *err);
enum cordon_guest_condition cordon_kept_condition(struct cordon_guest_handle *guest);
const char *cordon_kept_why_gone(struct cordon_guest_handle *guest);
int cordon_kept_watch(struct cordon_guest_handle *guest);
uint32_t cordon_kept_running(struct cordon_guest_handle *guest, uint64_t *changed_us);
int cordon_kept_network(struct cordon_guest_handle *guest, const struct cordon_egress_policy *policy,
                        struct cordon_error *err);
int cordon_kept_egress(struct cordon_guest_handle *guest, struct cordon_egress_counts *ret,
                       void (*tell)(void *context, const char *log, size_t size), void *context,
                       struct cordon_error *err);
int cordon_kept_usage(struct cordon_guest_handle *guest, struct cordon_guest_usage *ret, struct cordon_error *err);
int cordon_kept_execs(struct cordon_guest_handle *guest,
                      void (*each)(void *context, const struct cordon_exec_info *exec), void *context,
                      struct cordon_error *err);
int cordon_kept_port(struct cordon_guest_handle *guest, uint16_t port, int cancel_fd, int *ret,
                     struct cordon_error *err);
int cordon_kept_port_relay(struct cordon_guest_handle *guest, uint16_t port, int cancel_fd, int *ret,
                           struct cordon_error *err); /* kept_port.c: the same, of a virtual machine */
int cordon_kept_open(struct cordon_guest_handle *guest, const struct cordon_operation *operation,
                     struct cordon_stream **ret, struct cordon_error *err);
int cordon_kept_stream_next(struct cordon_stream *stream, int timeout_ms, struct cordon_stream_event *event,
                            struct cordon_error *err);
int cordon_kept_stream_write(struct cordon_stream *stream, enum cordon_stream_to to, const void *data, size_t size,
                             struct cordon_error *err);
/* As much of it as the guest takes in now: how much, 0: none until event_fd says so, negative with err. */
ssize_t cordon_kept_stream_offer(struct cordon_stream *stream, enum cordon_stream_to to, const void *data, size_t size,
                                 struct cordon_error *err);
int cordon_kept_stream_control(struct cordon_stream *stream, enum cordon_control control, uint32_t value,
                               struct cordon_error *err);
void cordon_kept_stream_close(struct cordon_stream *stream);

/* Those that are the same for guests of every kind. */
#define CORDON_KEPT_OPERATIONS                                                                                         \
    .guest_release = cordon_kept_release, .guest_destroy = cordon_kept_destroy, .guest_pause = cordon_kept_pause,      \
    .guest_resume = cordon_kept_resume, .guest_condition = cordon_kept_condition, .guest_watch = cordon_kept_watch,    \
    .guest_running = cordon_kept_running, .guest_usage = cordon_kept_usage, .guest_network = cordon_kept_network,      \
    .guest_egress = cordon_kept_egress, .guest_execs = cordon_kept_execs, .guest_port = cordon_kept_port,              \
    .guest_open = cordon_kept_open, .stream_next = cordon_kept_stream_next, .stream_write = cordon_kept_stream_write,  \
    .stream_control = cordon_kept_stream_control, .stream_close = cordon_kept_stream_close,                            \
    .guest_why_gone = cordon_kept_why_gone

#endif
