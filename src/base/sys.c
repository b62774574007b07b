/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

static int told(long r)
{
    return r < 0 ? -errno : (int)r;
}

int cordon_pidfd_open(pid_t pid)
{
    return told(syscall(SYS_pidfd_open, pid, 0u));
}

int cordon_pidfd_kill(int pidfd, int signal)
{
    return told(syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0u));
}

int cordon_mount_restrict(const char *path, uint64_t attributes, bool tree)
{
    const struct {
        uint64_t set, clear, propagation, user_namespace; /* the kernel's struct mount_attr */
    } change = {.set = attributes};
    return told(syscall(SYS_mount_setattr, AT_FDCWD, path, tree ? AT_RECURSIVE : 0u, &change, sizeof change));
}
