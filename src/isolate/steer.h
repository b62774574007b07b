/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A network namespace whose only way out are our sockets. It has nothing but loopback, and a route by which every
 * address is local; so what its processes connect to, anywhere, comes to the sockets opened here, and nothing else can
 * leave. A small BPF program (sk_lookup, Linux 5.9) gives TCP connections to any port to one socket, loopback's own
 * addresses excepted, which stay the guest's. Where that is not allowed (rootless) ports 80 and 443 have sockets.
 */
#ifndef CORDON_ISOLATE_STEER_H
#define CORDON_ISOLATE_STEER_H

/* In the order of enum cordon_egress_socket (egress/wire.h). */
enum cordon_steer_socket {
    CORDON_STEER_TCP4 = 0,
    CORDON_STEER_HTTP4,
    CORDON_STEER_UDP4,
    CORDON_STEER_TCP6,
    CORDON_STEER_HTTP6,
    CORDON_STEER_UDP6,
    CORDON_STEER_SOCKETS
};

/* In the network namespace of the caller, who has its capabilities; loopback is up. Opens the sockets (-1: the host has
 * no IPv6). 0 or negative errno, with all closed. */
int cordon_steer_open(int sockets[CORDON_STEER_SOCKETS]);
/* From outside, with the host's capabilities: every TCP port of the namespace to the first socket of its family. The
 * link, which holds it in place until it is closed; or negative errno. */
int cordon_steer_attach(int netns, const int sockets[CORDON_STEER_SOCKETS]);
/* Would attach be allowed here? 0 or negative errno. */
int cordon_steer_probe(void);

#endif
