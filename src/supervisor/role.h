/* SPDX-License-Identifier: Apache-2.0 */
/* One role process of the supervisor's: start, pair with the other, death, back-off. */
#ifndef CORDON_SUPERVISOR_ROLE_H
#define CORDON_SUPERVISOR_ROLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct cordon_role {
    const char *name;
    struct cordon_role *other; /* NULL: its connections come by its control socket alone */
    char **argv;               /* of the program, whole */
    const char *greeting;      /* the first message at its control socket; NULL: none */
    const int *listen_fds;     /* from CORDON_ROLE_LISTEN on */
    size_t listen_count;
    pid_t pid;        /* 0: not running */
    int control;      /* our end; -1: not running */
    int pending_peer; /* a connection to the other that waits for this role's start; -1: none */
    uint64_t started_us;
    uint64_t start_at_us; /* when to start it again; 0: it runs */
    uint64_t backoff_us;
};

/* Starts the role with a connection to the other one, which gets its end at once or at its own start. */
int cordon_role_start(struct cordon_role *role, struct cordon_error *err);
/* The process is gone: closes its control socket and plans the next start. */
void cordon_role_ended(struct cordon_role *role);

#endif
