/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors: cleanup, whole reads and writes, passing them over unix sockets. EINTR lives here. */
#ifndef CORDON_BASE_FD_H
#define CORDON_BASE_FD_H

#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CORDON_FDS_MAX 28 /* most descriptors in one message */

void cordon_close(int *fd); /* closes if >= 0, sets to -1; errno is kept */
#define cordon_autoclose __attribute__((cleanup(cordon_close)))
#define CORDON_TAKE_FD(fd)                                                                                             \
    __extension__({                                                                                                    \
        int taken_ = (fd);                                                                                             \
        (fd) = -1;                                                                                                     \
        taken_;                                                                                                        \
    })
#define CORDON_TAKE(p)                                                                                                 \
    __extension__({                                                                                                    \
        __typeof__(p) taken_ = (p);                                                                                    \
        (p) = NULL;                                                                                                    \
        taken_;                                                                                                        \
    })

void cordon_free_p(void *p); /* for cordon_autofree: p is the address of the pointer */
#define cordon_autofree __attribute__((cleanup(cordon_free_p)))

/* Whole transfers on blocking descriptors: 0, or negative errno (-EPIPE at an early end of a read). */
int cordon_read_full(int fd, void *data, size_t size);
int cordon_write_full(int fd, const void *data, size_t size);
/* Reads a small text file relative to dir (AT_FDCWD allowed); returns its length, data is NUL-terminated; negative
 * errno. */
ssize_t cordon_read_file(int dir, const char *path, char *data, size_t size);
/* Writes a small text to an existing file (cgroup files, /proc): 0 or negative errno. */
int cordon_write_file(int dir, const char *path, const char *text);

/* For reading the folder that fd is; fd is left as it is. NULL with errno. */
DIR *cordon_opendir(int fd);

/* One message on a SEQPACKET or STREAM unix socket with fds: bytes, 0 at the peer's end, or negative errno.
 * A send never raises SIGPIPE. A receive gives CLOEXEC fds; *nfds is room on entry and count on return; a message
 * or a set of fds that does not fit is an error (-EMSGSIZE) and all its fds are closed. flags: MSG_DONTWAIT. */
ssize_t cordon_send_fds(int sock, const void *data, size_t size, const int *fds, size_t nfds, int flags);
ssize_t cordon_recv_fds(int sock, void *data, size_t size, int *fds, size_t *nfds, int flags);

/* A sealed, read-only memfd holding data (for binaries and filters): fd or negative errno. */
int cordon_sealed_memfd(const char *name, const void *data, size_t size);

#endif
