/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's roles are one binary, re-executed as `cordon --role NAME`, with descriptors at fixed numbers. The
 * supervisor opens everything, starts and restarts the roles, and parses nothing.
 */
#ifndef CORDON_SUPERVISOR_ROLES_H
#define CORDON_SUPERVISOR_ROLES_H

enum cordon_role_fd {
    CORDON_ROLE_CONTROL = 3, /* SEQPACKET to the supervisor: it sends new peers here (one byte and one fd): 'P', to the
                                gateway also 'E', a connection to egress. The first message to the gateway is 'K' and
                                the key of stored secrets, where the environment of cordon serve gave one */
    CORDON_ROLE_PEER = 4,    /* gateway <-> warden, the first connection */
    CORDON_ROLE_LISTEN =
        5, /* gateway: 5 is the unix socket, 6… the TCP listeners; count in the environment CORDON_LISTEN_FDS */
    CORDON_ROLE_TEMPLATE = 5 /* warden, only with --template-file */
};

/*
 * Entry points of the roles. argv[0] is the role's name; then, in this order:
 *     [--oneshot [--host-network] [--template-file]] [--config FILE] [NAME=VALUE]...
 * The rest from the first NAME=VALUE on is NULL-terminated and is settings_input.flags as it stands: what was given on
 * the command line of `cordon serve`. Environment and file are read again by each role.
 * --oneshot (warden, started by `cordon run`): there is no CONTROL; interpreters are executed rather than forked from
 * zygotes and nothing is kept warm; the warden ends, leaving nothing, when PEER ends.
 * --host-network (`cordon template create`): its guests are in the network namespace that it was started in.
 * --template-file: the template "trial" is the file that descriptor CORDON_ROLE_TEMPLATE is.
 * egress has no PEER but with --oneshot, where PEER is the gateway's end and its end ends the process.
 */
int cordon_warden_main(int argc, char **argv);
int cordon_gateway_main(int argc, char **argv);
int cordon_egress_main(int argc, char **argv);
int cordon_vmm_main(int argc, char **argv);        /* vmm/wire.h has its descriptors; it takes no arguments */
int cordon_doctor_main(int argc, char **argv);     /* the probes of `cordon doctor`, as JSON; no descriptors */
int cordon_supervisor_main(int argc, char **argv); /* = cordon serve */

#endif
