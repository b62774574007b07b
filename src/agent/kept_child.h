/* SPDX-License-Identifier: Apache-2.0 */
/* What a forked process reads of an operation's fields, and how it becomes the program. */
#ifndef CORDON_AGENT_KEPT_CHILD_H
#define CORDON_AGENT_KEPT_CHILD_H

#include "agent/agent.h"
#include "isolate/code.h"
#include "proto/kept.h"

#define CORDON_KEPT_WORKER_FD 3

struct cordon_child {
    uid_t uid;
    const char *home;
    char **argv, **env; /* NULL-terminated */
    char *cwd;          /* absolute */
};

/* Copies what counts: 0, or -EINVAL (an unknown user, no program), -ENOMEM, -EBADMSG. */
int cordon_child_read(const struct cordon_agent_config *config, const char *payload, size_t size,
                      struct cordon_child *ret);
/* The last steps, as the user: negative errno and *stage. */
int cordon_child_exec(const struct cordon_child *child, const char **stage);

#endif
