/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The jail in which a template's archive is unpacked: `cordon --role unpack UID layer|whole`, started as root of its
 * user namespace with descriptors 0 and 1 /dev/null, 2 the log, 3 the archive's file at its place, 4 a SEQPACKET
 * socket for one struct cordon_unpack_result, 5 the empty folder that it fills. No others.
 */
#ifndef CORDON_WARDEN_UNPACK_H
#define CORDON_WARDEN_UNPACK_H

#include <stdint.h>

#define CORDON_UNPACK_PLACES 3

extern const char *const cordon_unpack_python[CORDON_UNPACK_PLACES],
    *const cordon_unpack_node[CORDON_UNPACK_PLACES], *const cordon_unpack_bash[CORDON_UNPACK_PLACES];

struct cordon_unpack_result {
    int32_t status;              /* 0, or negative errno and why */
    uint32_t python, node, bash; /* of a whole tree: which of the places above has it, from 1 on; 0: none */
    uint32_t left_out;           /* devices, pipes and sockets, which are never made */
    uint32_t lost_bits;          /* files that had setuid or setgid, which nothing gets */
    uint64_t files, bytes;
    char why[300];
};

int cordon_unpack_main(int argc, char **argv);

#endif
