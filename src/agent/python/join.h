/* SPDX-License-Identifier: Apache-2.0 */
/* A fork of the calling process that is born inside a guest's namespaces and cgroups. For the zygote only. */
#ifndef CORDON_AGENT_PYTHON_JOIN_H
#define CORDON_AGENT_PYTHON_JOIN_H

#include <stddef.h>

struct cordon_join {
    const int *fds; /* in the order of enum cordon_zygote_fd, then entries of cgroups */
    size_t cgroups;
    const char *stage; /* set when it failed: static text */
};

/* Maps the stacks of the intermediates; once, before the first join. 0 or negative errno. */
int cordon_join_open(void);

/* 1 in the new process, 0 in the caller once the fork was made and the intermediates are gone; negative errno with
 * join->stage set when a step failed (then there is no new process). The caller has one thread, blocks all signals
 * and ignores SIGCHLD; the new process inherits both. */
int cordon_join_fork(struct cordon_join *join);

#endif
