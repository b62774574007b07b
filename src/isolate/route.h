/* SPDX-License-Identifier: Apache-2.0 */
/* Routes, addresses and devices of the caller's network namespace, who has its capabilities. 0 or negative errno. */
#ifndef CORDON_ISOLATE_ROUTE_H
#define CORDON_ISOLATE_ROUTE_H

#include <stddef.h>

/* How TCP sends where nothing is lost and nobody is to share with: a host's default may pace (BBR), and sets a timer
 * each few segments for it, which costs more than all else that a relay does. Every kernel has this one. */
#define CORDON_UNPACED "reno"

struct cordon_route {
    int family; /* AF_INET or AF_INET6 */
    int table;  /* RT_TABLE_… */
    int type;   /* RTN_LOCAL: what goes there is for this namespace, and not paced; RTN_UNICAST: it leaves by the device
                 */
    const char *address; /* as text; NULL: every one */
    int length;          /* of its prefix */
    unsigned device;     /* index */
};

int cordon_route_add(const struct cordon_route *route);
/* The address alone, without a network around it, and at once (no search for another one that has it). */
int cordon_route_add_address(int family, const char *address, unsigned device);
/* Sets the device's hardware address, if mac isn't NULL, and brings it up. It asks nobody for hardware addresses and
 * tells nobody its own, where `silent`: what is sent has its own address as the destination. */
#define CORDON_MAC_SIZE 6
int cordon_route_raise(const char *device, const unsigned char mac[CORDON_MAC_SIZE], int silent);

#endif
