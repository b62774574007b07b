/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Becoming the code: the ordered steps by which a process that was just placed into a guest (forked from a zygote, or
 * by the agent) gives up everything before user code may run. Used by the agent and by the zygote's extension module.
 * Async-signal-safe: only system calls, no allocation, since it runs after vfork-style clones and forks.
 */
#ifndef CORDON_ISOLATE_CODE_H
#define CORDON_ISOLATE_CODE_H

#include <stdint.h>
#include <sys/types.h>

struct cordon_code_profile {
    uid_t uid; /* in the current user namespace */
    gid_t gid;
    uint32_t open_files; /* RLIMIT_NOFILE, soft and hard */
    uint32_t processes;  /* RLIMIT_NPROC, where no control group limits them; 0: none */
    int filter_fd;       /* memfd of struct sock_filter[]; -1 or an empty file: none */
    const char *workdir; /* chdir here */
    int keep_ids;        /* 1: do not change ids or capabilities (`none`) */
    int root;            /* 1: the root of a kept guest, which keeps what owning files and ids takes */
};

/* On success *listener is the seccomp notification fd (CLOEXEC; -1 without filter): send it to the agent, then close
 * it; until the agent answers, denied calls of this process wait. On failure negative errno and *stage names the step.
 * Descriptors must already be in their places: this closes none. All signals get their default actions: an interpreter
 * that was forked puts its own back afterwards. */
int cordon_code_become(const struct cordon_code_profile *profile, int *listener, const char **stage);

#endif
