/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's roles are one binary, re-executed as `cordon --role NAME`, with descriptors at fixed numbers. The
 * supervisor opens everything, starts and restarts the roles, and parses nothing.
 */
#ifndef CORDON_SUPERVISOR_ROLES_H
#define CORDON_SUPERVISOR_ROLES_H

enum cordon_role_fd {
    CORDON_ROLE_CONTROL = 3, /* SEQPACKET to the supervisor: it sends new peers here (one byte 'P' and one fd) */
    CORDON_ROLE_PEER = 4,    /* gateway <-> warden, the first connection */
    CORDON_ROLE_LISTEN = 5   /* gateway: 5 is the unix socket, 6… the TCP listeners; count in the environment CORDON_LISTEN_FDS */
};

/* Entry points of the roles; settings come again from environment, file and flags (the supervisor passes argv on). */
int cordon_warden_main(int argc, char **argv);
int cordon_gateway_main(int argc, char **argv);
int cordon_supervisor_main(int argc, char **argv); /* = cordon serve */

#endif
