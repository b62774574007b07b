/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses: which are out of every guest's reach, and to and from the kernel's form. */
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "egress/egress.h"

struct cordon_egress_address cordon_egress_address_of(const struct sockaddr_storage *from, uint16_t *port)
{
    struct cordon_egress_address address = {.bytes = {[10] = 0xff, [11] = 0xff}};
    if (from->ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)from;
        memcpy(address.bytes, &v6->sin6_addr, sizeof address.bytes);
        *port = ntohs(v6->sin6_port);
    } else {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)from;
        memcpy(address.bytes + 12, &v4->sin_addr, 4);
        *port = ntohs(v4->sin_port);
    }
    return address;
}

socklen_t cordon_egress_sockaddr(const struct cordon_egress_address *address, uint16_t port,
                                 struct sockaddr_storage *ret)
{
    memset(ret, 0, sizeof *ret);
    if (cordon_egress_address_is_v4(address)) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)ret;
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        memcpy(&v4->sin_addr, address->bytes + 12, 4);
        return sizeof *v4;
    }
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)ret;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    memcpy(&v6->sin6_addr, address->bytes, sizeof address->bytes);
    return sizeof *v6;
}

/* The kernel gives packets to one's own address that same source address. Connecting a UDP socket sends nothing. */
static bool is_own(const struct cordon_egress_address *address)
{
    struct sockaddr_storage there, here;
    socklen_t size = cordon_egress_sockaddr(address, 9, &there), here_size = sizeof here;
    uint16_t port;
    cordon_autoclose int sock = socket(there.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (sock < 0)
        return true;
    if (connect(sock, (const struct sockaddr *)&there, size) < 0)
        return false; /* no route: the connection will say so */
    if (getsockname(sock, (struct sockaddr *)&here, &here_size) < 0)
        return true;
    struct cordon_egress_address own = cordon_egress_address_of(&here, &port);
    return memcmp(own.bytes, address->bytes, sizeof own.bytes) == 0;
}

const char *cordon_egress_forbidden(const struct cordon_egress *egress, const struct cordon_egress_address *address)
{
    for (size_t i = 0; i < egress->range_count; i++)
        if (cordon_egress_rule_has_address(&egress->ranges[i], address, egress->ranges[i].port))
            return NULL;
    const char *special = cordon_egress_address_special(address);
    if (special)
        return special;
    return is_own(address) ? "an address of the host's own" : NULL;
}
