/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

void cordon_close(int *fd)
{
    if (*fd >= 0) {
        int saved = errno;
        (void)close(*fd); /* nothing written through these needs the late error */
        errno = saved;
        *fd = -1;
    }
}

void cordon_free_p(void *p)
{
    free(*(void **)p);
}

int cordon_read_full(int fd, void *data, size_t size)
{
    char *p = data;
    while (size) {
        ssize_t n = read(fd, p, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EPIPE;
        p += n;
        size -= (size_t)n;
    }
    return 0;
}

int cordon_write_full(int fd, const void *data, size_t size)
{
    const char *p = data;
    while (size) {
        ssize_t n = write(fd, p, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        p += n;
        size -= (size_t)n;
    }
    return 0;
}

ssize_t cordon_read_file(int dir, const char *path, char *data, size_t size)
{
    cordon_autoclose int fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -errno;
    size_t used = 0;
    while (used + 1 < size) {
        ssize_t n = read(fd, data + used, size - 1 - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        used += (size_t)n;
    }
    data[used] = '\0';
    return (ssize_t)used;
}

int cordon_write_file(int dir, const char *path, const char *text)
{
    cordon_autoclose int fd = openat(dir, path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -errno;
    return cordon_write_full(fd, text, strlen(text));
}

ssize_t cordon_send_fds(int sock, const void *data, size_t size, const int *fds, size_t nfds, int flags)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int) * CORDON_FDS_MAX)];
    } control;
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = size};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (nfds > CORDON_FDS_MAX)
        return -EINVAL;
    if (nfds) {
        memset(&control, 0, sizeof control);
        msg.msg_control = control.space;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
        memcpy(CMSG_DATA(cmsg), fds, sizeof(int) * nfds);
    }
    for (;;) {
        ssize_t n = sendmsg(sock, &msg, MSG_NOSIGNAL | flags);
        if (n >= 0 || errno != EINTR)
            return n >= 0 ? n : -errno;
    }
}

static size_t take_fds(struct msghdr *msg, int *fds, size_t room, size_t *lost)
{
    size_t count = 0;
    for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(msg); cmsg; cmsg = CMSG_NXTHDR(msg, cmsg)) {
        if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof fd, sizeof fd);
            if (count < room) {
                fds[count++] = fd;
            } else {
                (void)close(fd); /* the caller has no room for it */
                ++*lost;
            }
        }
    }
    return count;
}

ssize_t cordon_recv_fds(int sock, void *data, size_t size, int *fds, size_t *nfds, int flags)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int) * CORDON_FDS_MAX)];
    } control;
    struct iovec iov = {.iov_base = data, .iov_len = size};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space};
    size_t room = nfds ? *nfds : 0, lost = 0;
    if (nfds)
        *nfds = 0;
    ssize_t n;
    do
        n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC | flags);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    size_t count = take_fds(&msg, fds, room, &lost);
    if (lost || (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
        while (count)
            (void)close(fds[--count]); /* half a message is of no use */
        return -EMSGSIZE;
    }
    if (nfds)
        *nfds = count;
    return n;
}

int cordon_sealed_memfd(const char *name, const void *data, size_t size)
{
    cordon_autoclose int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    int r = cordon_write_full(fd, data, size);
    if (r < 0)
        return r;
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
        return -errno;
    return CORDON_TAKE_FD(fd);
}

DIR *cordon_opendir(int fd)
{
    cordon_autoclose int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    if (dir)
        copy = -1; /* is dir's */
    return dir;
}
