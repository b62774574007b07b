/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of what a process in a guest is: children in a user namespace, and an agent's answers to notifications. */
#ifndef CORDON_TESTS_GUEST_CHILD_H
#define CORDON_TESTS_GUEST_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "isolate/code.h"

#define GUEST_CHILD_LISTENER 100 /* exit statuses of a child that didn't come to its own part */
#define GUEST_CHILD_NAMESPACE 101
#define GUEST_CHILD_BECOME 102

struct guest_child_result {
    int status;        /* of waitpid */
    int answered;      /* notifications */
    char names[1024];  /* " name name …" of what was notified */
    char output[8192]; /* standard output and error */
};

bool guest_child_has_range(void); /* root: 65536 ids are mapped; else one, and the code's uid is 0 in there */
bool guest_child_possible(void);  /* user namespaces can be made at all */
uid_t guest_child_uid(void);

/* Runs part(arg) in a child that is root of a new user namespace; its return is the exit status. Returns waitpid's. */
int guest_child_run(int (*part)(void *arg), void *arg);
/* The same, but the child first becomes the code (profile->uid and gid are filled in), and this process answers as the
 * agent would. argv: executed instead of part, when part is NULL. */
void guest_child_code(struct cordon_code_profile profile, int (*part)(void *arg), void *arg, const char *const argv[],
                      struct guest_child_result *result);

#endif
