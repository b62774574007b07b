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
};

/* Starts it and waits for its hello; then the backends of this process work. unisolated: it may start guests of the
 * backend none. */
int cordon_oneshot_start(bool unisolated, struct cordon_oneshot *ret, struct cordon_error *err);
/* Ends it and waits until it has left nothing behind. */
void cordon_oneshot_stop(struct cordon_oneshot *oneshot);

#endif
