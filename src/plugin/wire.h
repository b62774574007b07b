/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the gateway and a plugin's host process say to each other over a run's socket: frames of a type, a length and
 * fields (a tag, a length, bytes). Pure, fuzzed; each end treats the other as hostile.
 *
 *   gateway -> host: REQUEST once. The end of what it says is the wish to cancel.
 *   host -> gateway: TAKEN before the plugin sees the run; then OPENED or ERROR; then EVENTs, the last of which is the
 *   OUTCOME. A socket that ends without TAKEN (or ERROR) is that of a run of which nothing began.
 *   On a host's first socket: host -> gateway HELLO or ERROR. On a probe's: host -> OPENED or ERROR.
 */
#ifndef CORDON_PLUGIN_WIRE_H
#define CORDON_PLUGIN_WIRE_H

#include <cordon/backend.h>

#include "base/buf.h"

enum cordon_wire_type {
    CORDON_WIRE_HELLO = 1, /* capabilities */
    CORDON_WIRE_PROBE,
    CORDON_WIRE_REQUEST,
    CORDON_WIRE_OPENED,
    CORDON_WIRE_ERROR,
    CORDON_WIRE_EVENT,
    CORDON_WIRE_TAKEN, /* the run is the plugin's now */
    CORDON_WIRE__COUNT
};

#define CORDON_WIRE_HEADER 5u
#define CORDON_WIRE_SPARE (256u << 10) /* a frame's fields besides the one that is large */

struct cordon_wire_frame {
    enum cordon_wire_type type;
    const char *data;
    size_t size;
};

/* The frame at the front: 1 and *used bytes; 0: more is needed; -EMSGSIZE: longer than max; -EBADMSG: no frame. */
int cordon_wire_next(const struct cordon_buf *in, size_t max, struct cordon_wire_frame *ret, size_t *used);
/* Begins a frame at the end of `to`, and completes it. In between cordon_wire_put. Sticky in to->failed. */
size_t cordon_wire_begin(struct cordon_buf *to, enum cordon_wire_type type);
void cordon_wire_end(struct cordon_buf *to, size_t begun);
void cordon_wire_put(struct cordon_buf *to, unsigned tag, const void *data, size_t size);

void cordon_wire_put_request(struct cordon_buf *to, const struct cordon_request *request);
void cordon_wire_put_event(struct cordon_buf *to, const struct cordon_event *event);
void cordon_wire_put_error(struct cordon_buf *to, const struct cordon_error *err);
void cordon_wire_put_hello(struct cordon_buf *to, const struct cordon_capabilities *capabilities);

/* A request as it was said: pointers go into the frame and into the arena. */
struct cordon_wire_request {
    struct cordon_request request;
    struct cordon_buf arena; /* NUL-terminated copies */
    const char **env, **domains;
    struct cordon_file *files;
};
int cordon_wire_get_request(const struct cordon_wire_frame *frame, struct cordon_wire_request *ret);
void cordon_wire_request_done(struct cordon_wire_request *request);

struct cordon_wire_event {
    struct cordon_event event; /* points into this and into the frame */
    struct cordon_outcome outcome;
    char name[4096], reason[512];
};
int cordon_wire_get_event(const struct cordon_wire_frame *frame, struct cordon_wire_event *ret);
int cordon_wire_get_error(const struct cordon_wire_frame *frame, struct cordon_error *ret);

struct cordon_wire_hello {
    struct cordon_capabilities capabilities; /* its texts are these */
    char languages[256], egress_exceptions[512];
};
int cordon_wire_get_hello(const struct cordon_wire_frame *frame, struct cordon_wire_hello *ret);

#endif
