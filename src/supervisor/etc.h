/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How names of other hosts are looked up. The C library reads that from files of /etc, which a gateway whose root is
 * the state folder does not have. So they are read while they are there, and put into the state folder by the gateway's
 * own user afterwards. What changes in them later counts from the gateway's next start.
 */
#ifndef CORDON_SUPERVISOR_ETC_H
#define CORDON_SUPERVISOR_ETC_H

#include "supervisor/state.h"

#define CORDON_ETC_FILES 3

struct cordon_etc {
    char *texts[CORDON_ETC_FILES]; /* NULL: there is no such file */
    size_t sizes[CORDON_ETC_FILES];
};

/* As root; a file that is not there, or too large to be one, is left out. */
void cordon_etc_read(struct cordon_etc *names);
/* After cordon_state_confine. Does nothing where the file tree was kept. */
int cordon_etc_put(const struct cordon_etc *names, const struct cordon_state *state, struct cordon_error *err);
void cordon_etc_done(struct cordon_etc *names);

#endif
