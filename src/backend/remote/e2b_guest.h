/* SPDX-License-Identifier: Apache-2.0 */
/* Private to kept guests on E2B: e2b_guest.c has their lives, e2b_stream.c what goes on in them. */
#ifndef CORDON_BACKEND_REMOTE_E2B_GUEST_H
#define CORDON_BACKEND_REMOTE_E2B_GUEST_H

#include <pthread.h>
#include <stdatomic.h>

#include "backend/remote/e2b.h"

struct cordon_guest_handle {
    struct cordon_guest_handle *next; /* of all that live; the lock of e2b_guest.c */
    pthread_mutex_t lock;             /* box: its tokens may change when it is resumed */
    struct cordon_e2b_box box;
    _Atomic int condition; /* enum cordon_guest_condition */
    int gone_fd;           /* an eventfd */
};

struct cordon_e2b_box cordon_e2b_guest_box(struct cordon_guest_handle *guest, bool root);

int cordon_e2b_guest_create(const struct cordon_guest_spec *spec, struct cordon_guest_handle **ret,
                            struct cordon_error *err);
int cordon_e2b_guest_adopt(const char *id, struct cordon_guest_handle **ret, struct cordon_error *err);
void cordon_e2b_guest_release(struct cordon_guest_handle *guest);
int cordon_e2b_guest_destroy(struct cordon_guest_handle *guest, struct cordon_error *err);
int cordon_e2b_guest_pause(struct cordon_guest_handle *guest, enum cordon_pause how, struct cordon_error *err);
int cordon_e2b_guest_resume(struct cordon_guest_handle *guest, struct cordon_error *err);
enum cordon_guest_condition cordon_e2b_guest_condition(struct cordon_guest_handle *guest);
int cordon_e2b_guest_watch(struct cordon_guest_handle *guest);
void cordon_e2b_guests_shutdown(void);

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

#endif
