/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"

#define NAME_MAX_BYTES 255

int cordon_files_send(int fd, uint8_t type, uint16_t exec, const void *payload, uint32_t length)
{
    char header[CORDON_FRAME_HEADER];
    cordon_frame_header(header, type, exec, length);
    struct iovec iov[2] = {
        {.iov_base = header, .iov_len = sizeof header},
        {.iov_base = (void *)(uintptr_t)payload, .iov_len = length},
    };
    ssize_t n;
    do
        n = writev(fd, iov, 2);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    if ((size_t)n < sizeof header)
        return -EIO; /* a stream socket takes that much or blocks */
    return cordon_write_full(fd, (const char *)payload + ((size_t)n - sizeof header),
                             length - ((size_t)n - sizeof header));
}

int cordon_files_open(int dir, const char *name, int flags, unsigned mode, bool beneath)
{
    flags |= O_CLOEXEC | (flags & O_PATH ? 0 : O_NOCTTY); /* openat2 refuses what O_PATH would ignore */
    struct open_how how = {
        .flags = (uint64_t)(unsigned)flags,
        .mode = flags & O_CREAT ? mode : 0,
        .resolve = RESOLVE_NO_MAGICLINKS | (beneath ? RESOLVE_BENEATH : 0u),
    };
    int fd = (int)syscall(SYS_openat2, dir, name, &how, sizeof how);
    if (fd >= 0)
        return fd;
    if ((errno != ENOSYS && errno != EPERM) || strchr(name, '/') || strcmp(name, "..") == 0)
        return -errno;
    fd = openat(dir, name, flags | O_NOFOLLOW, mode);
    return fd >= 0 ? fd : -errno;
}

#ifdef CORDON_WEAKEN_ARTIFACT_LINKS
#define NOFOLLOW 0
#else
#define NOFOLLOW O_NOFOLLOW
#endif

int cordon_files_open_path(int dir, const char *path, int flags)
{
    char name[NAME_MAX_BYTES + 1];
    cordon_autoclose int at = -1;
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(path, '/')) {
        size_t size = (size_t)(slash - path);
        if (size >= sizeof name)
            return -ENAMETOOLONG;
        memcpy(name, path, size);
        name[size] = '\0';
        int next = cordon_files_open(at >= 0 ? at : dir, name, O_RDONLY | O_DIRECTORY | NOFOLLOW, 0, !!NOFOLLOW);
        if (next < 0)
            return next;
        cordon_close(&at);
        at = next;
        path = slash + 1;
    }
    return cordon_files_open(at >= 0 ? at : dir, path, flags | NOFOLLOW | O_NONBLOCK, 0, !!NOFOLLOW);
}

const char *cordon_files_bad_name(const char *name, size_t size)
{
    if (size == 0 || size > NAME_MAX_BYTES)
        return "its name is longer than 255 bytes";
    for (size_t i = 0; i < size; i++) {
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return "its name has control characters";
    }
    return cordon_utf8_valid(name, size) ? NULL : "its name is not UTF-8";
}
