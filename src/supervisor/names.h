/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How names of other hosts are looked up. The C library reads that from files of /etc, which a gateway whose root is
 * the state folder does not have. So they are read while they are there, and put into the state folder by the gateway's
 * own user afterwards. What changes in them later counts from the gateway's next start.
 */
#ifndef CORDON_SUPERVISOR_NAMES_H
#define CORDON_SUPERVISOR_NAMES_H

#include "supervisor/state.h"

#define CORDON_NAMES 3

struct cordon_names {
    char *texts[CORDON_NAMES]; /* NULL: there is no such file */
    size_t sizes[CORDON_NAMES];
};

/* As root; a file that is not there, or too large to be one, is left out. */
void cordon_names_read(struct cordon_names *names);
/* After cordon_state_confine. Does nothing where the file tree was kept. */
int cordon_names_put(const struct cordon_names *names, const struct cordon_state *state, struct cordon_error *err);
void cordon_names_done(struct cordon_names *names);

#endif
