/* SPDX-License-Identifier: Apache-2.0 */
/* What this door keeps beside a guest (its private data): tokens, and what it must tell again. */
#ifndef CORDON_E2B_BOX_H
#define CORDON_E2B_BOX_H

#include "base/buf.h"
#include "door/fields.h"

struct cordon_e2b_box {
    const char *template_id;     /* as the client named it */
    const char *access_token;    /* envd's; "": none is needed */
    const char *traffic_token;   /* of the ports; "": they are public */
    const char *mask_host;       /* what guests' servers get as Host, with ${PORT}; "": what the client sent */
    struct cordon_bytes network; /* the client's network object, JSON; data NULL: none */
};

/* 128 bits and more, hex. False: no randomness. */
#define CORDON_E2B_TOKEN_TEXT 65
bool cordon_e2b_token_make(char to[CORDON_E2B_TOKEN_TEXT]);
/* In constant time; an empty token is never right. */
bool cordon_e2b_token_ok(const char *token, const char *given);

void cordon_e2b_box_write(const struct cordon_e2b_box *box, struct cordon_buf *to);
/* Texts are copied to memory. A box that can't be read has tokens that nobody can know. */
int cordon_e2b_box_read(struct cordon_bytes data, struct cordon_door_memory *memory, struct cordon_e2b_box *ret,
                        struct cordon_error *err);

#endif
