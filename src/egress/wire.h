/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the gateway and the egress process say to each other, over SEQPACKET sockets (docs/protocol/egress.md).
 *
 * On the egress process's main socket only OPEN is said, with the first policy's text behind it and with descriptors:
 * the egress end of a fresh pair, the *session*; an eventfd, which egress makes readable before it first takes anything
 * out of a socket, so that nothing has to be asked of a guest that said nothing; and the guest's sockets, which the
 * warden opened in its network namespace. It is not answered: whatever the guest does is judged by that policy, however
 * soon it comes. On the session: the gateway sends a request (one byte, for SET the policy's text behind it), egress
 * answers each. The session lives as long as the gateway holds its end; its end cuts all of the guest's connections.
 */
#ifndef CORDON_EGRESS_WIRE_H
#define CORDON_EGRESS_WIRE_H

#include <stdint.h>

#include "core/egress.h"

#define CORDON_EGRESS_VERSION 3u

/* In the order in which they are attached; a host without IPv6 has no …6. */
enum cordon_egress_socket {
    CORDON_EGRESS_TCP4 = 0, /* listening: on every port where the host's kernel can, else on 443 */
    CORDON_EGRESS_HTTP4,    /* listening on 80, where the first can't have every port; else absent */
    CORDON_EGRESS_UDP4,     /* on port 53, tells addresses (IP_PKTINFO) */
    CORDON_EGRESS_TCP6,
    CORDON_EGRESS_HTTP6,
    CORDON_EGRESS_UDP6,
    CORDON_EGRESS_SOCKETS
};

#define CORDON_EGRESS_OPEN_FDS (2 + CORDON_EGRESS_SOCKETS)

struct cordon_egress_open {
    uint32_t version;
    uint32_t sockets; /* bits by enum cordon_egress_socket */
    char guest[32];   /* a name for the log; may be empty */
};

enum cordon_egress_request {
    CORDON_EGRESS_SET = 'P', /* + policy text: from now on; connections that no longer fit are cut */
    CORDON_EGRESS_TELL = 'L' /* answered with struct cordon_egress_answer and a JSON array behind it */
};

struct cordon_egress_answer {
    uint32_t kind;  /* of the request */
    int32_t status; /* 0 or negative errno and why */
    char why[160];
    struct cordon_egress_counts counts;
};

#endif
