/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls of which the C library of a named host knows nothing: Ubuntu 22.04 has glibc 2.35, <sys/pidfd.h> and
 * mount_setattr() came with 2.36, and <linux/mount.h> can't be included beside its <sys/mount.h>.
 */
#ifndef CORDON_BASE_SYS_H
#define CORDON_BASE_SYS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A close-on-exec descriptor of the process, readable when it has ended; or negative errno. */
int cordon_pidfd_open(pid_t pid);
/* 0 or negative errno; -ESRCH: it has ended. */
int cordon_pidfd_kill(int pidfd, int signal);

/* What may not be done through a mount: the kernel's MOUNT_ATTR_…, as it has them. */
enum { CORDON_MOUNT_RDONLY = 1, CORDON_MOUNT_NOSUID = 2, CORDON_MOUNT_NODEV = 4, CORDON_MOUNT_NOEXEC = 8 };
/* Adds these to the mount at path; tree: and to all below it. 0 or negative errno, which errno has as well. */
int cordon_mount_restrict(const char *path, uint64_t attributes, bool tree);

#endif
