/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "supervisor/state.h"

static int check_peer(int fd, const char *folder, struct cordon_error *err)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return cordon_fail_errno(err, -errno, "%.200s/cordon.sock", folder);
    if (peer.uid == 0 || peer.uid == geteuid())
        return 0;
    return cordon_fail(
        err, -EPERM, CORDON_ERROR_FORBIDDEN,
        "%.200s/cordon.sock is served by uid %u, who is neither root nor you: not trusted with your code", folder,
        (unsigned)peer.uid);
}

/* errno says why. One that may be there but is not to be reached (or has died, and left its socket) is an error where
 * its folder was given; else it is told and we do without. */
static int do_without(const struct cordon_settings *settings, const char *folder, struct cordon_error *err)
{
    int r = -errno;
    if (r == -ENOENT || r == -ENOTDIR)
        return -ENOENT;
    if (cordon_settings_source(settings, CORDON_SET_STATE) != CORDON_SOURCE_DEFAULT)
        return cordon_fail(err, r, CORDON_ERROR_INFRASTRUCTURE,
                           "state folder %.250s: its daemon can not be asked: %s%s; not run without it", folder,
                           strerror(-r), r == -ECONNREFUSED ? " (its socket is there, nobody listens: start it)" : "");
    (void)fprintf(stderr, "cordon: no daemon is asked: state folder %s: %s\n", folder,
                  strerror(-r)); /* nobody to tell */
    return -ENOENT;
}

int cordon_daemon_connect(const struct cordon_settings *settings, struct cordon_error *err)
{
    return cordon_daemon_connect_within(settings, 0, err);
}

int cordon_daemon_connect_within(const struct cordon_settings *settings, unsigned limit_s, struct cordon_error *err)
{
    struct cordon_state state;
    const struct timeval limit = {.tv_sec = limit_s};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int r = cordon_state_locate(settings, &state, err);
    if (r < 0)
        return r;
    cordon_autoclose int folder = open(state.path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return do_without(settings, state.path, err);
    (void)snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/cordon.sock", folder); /* fits */
    cordon_autoclose int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) < 0)
        return cordon_fail_errno(err, -errno, "a socket");
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) < 0)
        return do_without(settings, state.path, err);
    r = check_peer(fd, state.path, err);
    return r < 0 ? r : CORDON_TAKE_FD(fd);
}

static int send_all(int fd, const char *data, size_t size)
{
    while (size) {
        ssize_t n = send(fd, data, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        data += n;
        size -= (size_t)n;
    }
    return 0;
}

int cordon_daemon_send(int fd, const char *method, const char *path, const char *accept, const struct cordon_buf *body,
                       struct cordon_error *err)
{
    char head[512];
    int size = snprintf(head, sizeof head,
                        "%s %s HTTP/1.1\r\nHost: cordon\r\nAccept: %s\r\nContent-Type: application/json\r\n"
                        "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                        method, path, accept, body ? body->size : (size_t)0);
    int r = size < 0 || (size_t)size >= sizeof head ? -EMSGSIZE : send_all(fd, head, (size_t)size);
    if (r == 0 && body)
        r = send_all(fd, body->data, body->size);
    /* A daemon that has refused early says why: that is read next, and is what counts. */
    return r < 0 && r != -EPIPE && r != -ECONNRESET ? cordon_fail_errno(err, r, "asking the daemon") : 0;
}

int cordon_daemon_read(int fd, struct cordon_http_reader *reader, struct cordon_error *err)
{
    char data[65536];
    ssize_t n;
    do
        n = recv(fd, data, sizeof data, 0);
    while (n < 0 && errno == EINTR);
    int r = n < 0 ? -errno : n == 0 ? cordon_http_reader_end(reader) : cordon_http_reader_feed(reader, data, (size_t)n);
    if (r < 0)
        return cordon_fail(err, r, CORDON_ERROR_INFRASTRUCTURE, "the daemon's answer broke off or is no HTTP: %s",
                           strerror(-r));
    return n > 0 && reader->state != CORDON_READER_DONE;
}

int cordon_daemon_get(int fd, const char *path, struct cordon_http_reader *reader, struct cordon_error *err)
{
    int r = cordon_daemon_send(fd, "GET", path, "application/json", NULL, err);
    while (r == 0) {
        r = cordon_daemon_read(fd, reader, err);
        if (r <= 0)
            return r;
        r = 0;
    }
    return r;
}
