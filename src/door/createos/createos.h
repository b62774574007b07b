/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the CreateOS door share, and nobody else includes. */
#ifndef CORDON_CREATEOS_CREATEOS_H
#define CORDON_CREATEOS_CREATEOS_H

#include "core/guests.h"
#include "door/createos/egress.h"
#include "door/createos/shapes.h"
#include "door/door.h"
#include "door/fields.h"

#define CORDON_CREATEOS_NAME_MAX 22u
#define CORDON_CREATEOS_USER "root" /* its clients work in the guest as its owner does */
#define CORDON_CREATEOS_ROOTFS "devbox:1"
#define CORDON_CREATEOS_IDLE_MIN_S 60
#define CORDON_CREATEOS_IDLE_MAX_S 86400

/* What is kept beside a guest: what it must tell again. */
struct cordon_createos_note {
    const char *shape, *rootfs;
    struct cordon_texts egress; /* as the client gave it; count 0: it gave none */
    struct cordon_texts envs;   /* names */
};
void cordon_createos_note_write(const struct cordon_createos_note *note, struct cordon_buf *to);
int cordon_createos_note_read(struct cordon_bytes data, struct cordon_door_memory *memory,
                              struct cordon_createos_note *ret, struct cordon_error *err);

/* The sandbox that the path names, if it is the key's own and was made by this door. living: one that has ended is
 * CONFLICT, with what ended it. */
int cordon_createos_find(const struct cordon_http_request *request, bool living, struct cordon_guest_info **ret,
                         struct cordon_error *err);

/* The envelope: begin writes up to the data, which the caller writes; reply closes it. */
void cordon_createos_begin(struct cordon_json *json);
int cordon_createos_reply(struct cordon_http_request *request, struct cordon_json *json, struct cordon_error *err);
int cordon_createos_reply_error(struct cordon_http_request *request, const struct cordon_error *err);

void cordon_createos_tell_view(struct cordon_json *json, const struct cordon_guest_info *guest,
                               const struct cordon_createos_note *note);
/* Replies with the view of a guest as it is now. */
int cordon_createos_reply_view(struct cordon_http_request *request, const char *id, struct cordon_error *err);
/* egress as it is to be echoed: what the client gave, else what holds. */
void cordon_createos_tell_egress(struct cordon_json *json, const struct cordon_guest_info *guest,
                                 const struct cordon_createos_note *note);

cordon_http_handler cordon_createos_create, cordon_createos_exec, cordon_createos_file_get, cordon_createos_file_put,
    cordon_createos_egress_get, cordon_createos_egress_put;
extern const struct cordon_http_intake cordon_createos_file_intake;

#endif
