/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network device of a machine. Theory of operation:
 *
 *     machine: eth0 --- QEMU --- tap device: network namespace of isolate/steer.h, with our sockets
 *
 * In that namespace every address is local, whichever device a packet came by; so what the machine connects to,
 * anywhere, comes to our sockets, as what a guest's own processes connect to does elsewhere. Only the machine's two
 * addresses are not: what goes there leaves by the tap. Nothing is forwarded: there is nowhere else to go.
 *
 * Both ends have the same hardware address and resolve none (NOARP): each frame is addressed to its own sender's
 * address, which is the receiver's, too. So there is no ARP, no neighbour discovery and no router advertisement that
 * could be forged. Frames that are anything but IP to our sockets are dropped, or answered by the namespace's own
 * errors (port unreachable), by which a connection that leads nowhere fails at once.
 *
 * No packet of the machine's reaches the namespace's loopback addresses: the kernel takes those from its loopback
 * device alone. One with another source than the machine's IPv4 address is dropped (rp_filter). Over IPv6 there is no
 * such check; what answers it goes to that source, which is local, and never to the machine.
 *
 * Offloads are off (no IFF_VNET_HDR): the host's kernel reads whole frames of at most the MTU, and no headers that say
 * how to cut larger ones.
 */
#ifndef CORDON_ISOLATE_NIC_H
#define CORDON_ISOLATE_NIC_H

#define CORDON_NIC_PROBE_MS 20000u /* loading a module takes seconds on a slow host */

#define CORDON_NIC_MAC "02:63:6f:72:64:6e" /* of both ends */
#define CORDON_NIC_GUEST "eth0"            /* its name in the machine */
#define CORDON_NIC_ADDRESS "192.0.2.2"     /* of the machine, and of all others: addresses for documentation */
#define CORDON_NIC_ADDRESS6 "2001:db8::2"

/* Makes the tap device in that network namespace, which is the machine's host end: its descriptor; or negative errno,
 * and *stage says at what. The caller's thread stays in there: an ordinary user's could not come back. */
int cordon_nic_open(int netns, const char **stage);
/* Would that be allowed here? In a child, with a namespace of its own. 0, or negative errno and at what; -ETIME: the
 * kernel took longer than that. */
int cordon_nic_probe(unsigned limit_ms, const char **stage);

/* In the machine, by its first process: addresses and routes of its device, which may take a moment to appear. */
int cordon_nic_raise(const char **stage);

#endif
