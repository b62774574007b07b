/* SPDX-License-Identifier: Apache-2.0 */
/* The look at the host that a gateway asks for: a process of the supervisor's that writes it to the gateway's pipe. */
#ifndef CORDON_SUPERVISOR_DOCTOR_H
#define CORDON_SUPERVISOR_DOCTOR_H

#include <sys/types.h>

struct cordon_doctor {
    char **argv; /* of the program, whole */
    pid_t pid;   /* 0: none runs */
    int next;    /* the pipe of one that starts when it has ended; -1: none */
};

/* Starts it, now or when the one that runs has ended; of those that wait only the newest is kept. Where none can be
 * started the pipe just ends. Takes `to`. */
void cordon_doctor_start(struct cordon_doctor *doctor, int to);
/* The process was waited for. */
void cordon_doctor_ended(struct cordon_doctor *doctor);

#endif
