/* SPDX-License-Identifier: Apache-2.0 */
/* The system call filters. */
#ifndef CORDON_ISOLATE_FILTER_H
#define CORDON_ISOLATE_FILTER_H

#include "base/error.h"

/* Compiles the code's allow-list (arguments checked) into a sealed memfd of struct sock_filter[]. What is not listed is
 * notified to the agent, which records its name and answers EPERM; clone3 answers ENOSYS so that libc falls back to
 * clone. fd or negative errno. Done once, by the warden at its start. */
int cordon_filter_code(struct cordon_error *err);
/* Loads a filter from such a memfd into the calling process (no_new_privs must be set): 0 and the listener, or
 * negative. */
int cordon_filter_load(int filter_fd, int *listener);
/* The gateway's own filter: everything but what it never needs (exec, mounts, namespaces, ptrace, bpf, modules, …). */
int cordon_filter_gateway(struct cordon_error *err);
/* The egress process's own filter: an allow-list, all else is EPERM. */
int cordon_filter_egress(struct cordon_error *err);
/* QEMU's, which it starts with (its own -sandbox comes on top, and takes exec): no namespaces, mounts, other processes,
 * keyrings, kernel programs; sockets of the unix family only. */
int cordon_filter_qemu(struct cordon_error *err);
/* The vmm's own filter, once its QEMU was started: an allow-list, all else ends it. */
int cordon_filter_vmm(struct cordon_error *err);
/* With what a notified call is answered: EPERM, or ENOSYS for numbers that this version does not know, so that programs
 * which try newer calls fall back. Positive errno. */
int cordon_filter_denied_errno(int number);
#define CORDON_FILTER_NO_SUCH_NAME (-2)
/* The number of a name, -1 where this architecture lacks it, CORDON_FILTER_NO_SUCH_NAME where all do. */
int cordon_filter_syscall_number(const char *name);
/* "mount" for a native system call number; "syscall_%d" when unknown. Static tables, no allocation. */
const char *cordon_filter_syscall_name(int number, char text[32]);

#endif
