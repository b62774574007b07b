/* SPDX-License-Identifier: Apache-2.0 */
/* A warden of our own, for one command. */
#ifndef CORDON_CLI_ONESHOT_H
#define CORDON_CLI_ONESHOT_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

struct cordon_oneshot {
    pid_t pid;
    int peer; /* a second descriptor of the connection that cordon_warden_set took */
    pid_t egress_pid;
    int egress; /* the same of cordon_egress_set */
};

#define CORDON_ONESHOT_FLAGS 24

struct cordon_oneshot_options {
    bool unisolated;    /* it may start guests of the backend none */
    bool host_network;  /* its guests are in our network namespace: for building templates only */
    int template_fd;    /* the file of template CORDON_TEMPLATE_TRIAL; -1: none */
    const char *config; /* file of settings; NULL: none */
    char *const *flags; /* settings, NAME=VALUE, NULL-terminated; NULL: none */
};

/* Starts it and waits for its hello; then the backends of this process work. */
int cordon_oneshot_start(const struct cordon_oneshot_options *options, struct cordon_oneshot *ret,
                         struct cordon_error *err);
/* An egress process beside it, for a run with network. */
int cordon_oneshot_egress(const struct cordon_oneshot_options *options, struct cordon_oneshot *oneshot,
                          struct cordon_error *err);
/* Ends both and waits until they have left nothing behind. */
void cordon_oneshot_stop(struct cordon_oneshot *oneshot);

#endif
