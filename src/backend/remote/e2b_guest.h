/* SPDX-License-Identifier: Apache-2.0 */
/* Private to kept guests on E2B: e2b_guest.c has their lives, e2b_stream.c what goes on in them. */
#ifndef CORDON_BACKEND_REMOTE_E2B_GUEST_H
#define CORDON_BACKEND_REMOTE_E2B_GUEST_H

#include <pthread.h>

#include "backend/remote/e2b.h"

#define CORDON_E2B_TERMINALS 64u

struct cordon_guest_handle {
    struct cordon_remote_kept kept; /* the first, as kept.h wants it */
    struct cordon_e2b_kind *kind;
    pthread_mutex_t lock;                     /* of what follows */
    struct cordon_e2b_box box;                /* its tokens may change when it is resumed */
    uint32_t terminals[CORDON_E2B_TERMINALS]; /* the newest programs on a PTY: what is typed has another name there */
    unsigned terminal_at;
};

struct cordon_e2b_box cordon_e2b_guest_box(struct cordon_guest_handle *guest, bool root);

int cordon_e2b_guest_create(struct cordon_e2b_kind *kind, const struct cordon_guest_spec *spec,
                            struct cordon_guest_handle **ret, struct cordon_error *err);
int cordon_e2b_guest_adopt(struct cordon_e2b_kind *kind, const char *id, int cancel_fd,
                           struct cordon_guest_handle **ret, struct cordon_error *err);
void cordon_e2b_guest_release(struct cordon_guest_handle *guest);
int cordon_e2b_guest_destroy(struct cordon_guest_handle *guest, struct cordon_error *err);
int cordon_e2b_guest_pause(struct cordon_guest_handle *guest, enum cordon_pause how, struct cordon_error *err);
int cordon_e2b_guest_resume(struct cordon_guest_handle *guest, struct cordon_error *err);
enum cordon_guest_condition cordon_e2b_guest_condition(struct cordon_guest_handle *guest);
int cordon_e2b_guest_watch(struct cordon_guest_handle *guest);
const char *cordon_e2b_guest_remote(struct cordon_guest_handle *guest);
/* For the keepers of the kinds: a sandbox's lifetime is renewed three times in a lifetime. */
void cordon_e2b_guest_renew(struct cordon_remote_kept *guest);

int cordon_e2b_stream_execs(struct cordon_guest_handle *guest,
                            void (*each)(void *context, const struct cordon_exec_info *exec), void *context,
                            struct cordon_error *err);
int cordon_e2b_stream_open(struct cordon_guest_handle *guest, const struct cordon_operation *operation,
                           struct cordon_stream **ret, struct cordon_error *err);
int cordon_e2b_stream_next(struct cordon_stream *stream, int timeout_ms, struct cordon_stream_event *event,
                           struct cordon_error *err);
int cordon_e2b_stream_write(struct cordon_stream *stream, enum cordon_stream_to to, const void *data, size_t size,
                            struct cordon_error *err);
int cordon_e2b_stream_control(struct cordon_stream *stream, enum cordon_control control, uint32_t value,
                              struct cordon_error *err);
void cordon_e2b_stream_close(struct cordon_stream *stream);

/* The members of a row whose guest_create and guest_adopt name the kind. */
#define CORDON_E2B_GUESTS                                                                                              \
    .guest_create = guest_create, .guest_adopt = guest_adopt, .guest_release = cordon_e2b_guest_release,               \
    .guest_destroy = cordon_e2b_guest_destroy, .guest_pause = cordon_e2b_guest_pause,                                  \
    .guest_resume = cordon_e2b_guest_resume, .guest_condition = cordon_e2b_guest_condition,                            \
    .guest_watch = cordon_e2b_guest_watch, .guest_remote = cordon_e2b_guest_remote,                                    \
    .guest_execs = cordon_e2b_stream_execs, .guest_open = cordon_e2b_stream_open,                                      \
    .stream_next = cordon_e2b_stream_next, .stream_write = cordon_e2b_stream_write,                                    \
    .stream_control = cordon_e2b_stream_control, .stream_close = cordon_e2b_stream_close

#endif
