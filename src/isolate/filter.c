/* SPDX-License-Identifier: Apache-2.0 */
/* Loading a prepared filter, and names of system calls. In the static agent and in interpreters: no library needed. */
#include "isolate/filter.h"

#include <asm/unistd.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

static const struct syscall_name {
    const char *name;
    int number;
} syscalls[] = {
/* by name */
#define X(name, number) {#name, number},
#include "isolate/syscalls.inc"
#undef X
};
#define SYSCALLS (sizeof syscalls / sizeof syscalls[0])

/*
 * WAIT_KILLABLE_RECV (5.19): once the agent has taken a notification, a signal no longer makes the call start over, so
 * that a program with a fast timer can't keep one denied call from ever being answered. Older kernels do without.
 */
static int load(const struct sock_fprog *program)
{
    unsigned long flags = SECCOMP_FILTER_FLAG_NEW_LISTENER;
    int fd =
        (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, program);
    if (fd < 0 && errno == EINVAL)
        fd = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, program);
    return fd < 0 ? -errno : fd;
}

int cordon_filter_load(int filter_fd, int *listener)
{
    struct stat info;
    *listener = -1;
    if (filter_fd < 0)
        return 0;
    if (fstat(filter_fd, &info) < 0)
        return -errno;
    if (info.st_size == 0)
        return 0;
    size_t size = (size_t)info.st_size;
    if (size % sizeof(struct sock_filter) || size > BPF_MAXINSNS * sizeof(struct sock_filter))
        return -EINVAL;
    struct sock_filter *instructions = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, filter_fd, 0);
    if (instructions == MAP_FAILED)
        return -errno;
    struct sock_fprog program = {
        .len = (unsigned short)(size / sizeof(struct sock_filter)),
        .filter = instructions,
    };
    int fd = load(&program);
    (void)munmap(instructions, size); /* the kernel has its copy; what is left mapped is only memory */
    if (fd < 0)
        return fd;
    *listener = fd;
    return 0;
}

int cordon_filter_syscall_number(const char *name)
{
    size_t low = 0, high = SYSCALLS;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, syscalls[middle].name);
        if (order == 0)
            return syscalls[middle].number;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return CORDON_FILTER_NO_SUCH_NAME;
}

static const char *known_name(int number)
{
    for (size_t i = 0; number >= 0 && i < SYSCALLS; i++) {
        if (syscalls[i].number == number)
            return syscalls[i].name;
    }
    return NULL;
}

const char *cordon_filter_syscall_name(int number, char text[32])
{
    const char *name = known_name(number);
    if (name)
        return name;
    (void)snprintf(text, 32, "syscall_%d", number); /* always fits */
    return text;
}

int cordon_filter_denied_errno(int number)
{
    return known_name(number) ? EPERM : ENOSYS;
}
