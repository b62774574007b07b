/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"

#define BACKLOG 4096 /* the kernel cuts it to net.core.somaxconn */

static bool parse_port(const char *text, uint16_t *ret)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    unsigned long port = strtoul(text, &end, 10);
    if (*end || port > 65535)
        return false;
    *ret = htons((uint16_t)port);
    return true;
}

static bool parse_host(const char *host, bool v6, uint16_t port, struct cordon_listen_address *to)
{
    if (v6) {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&to->address;
        *in6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = port};
        to->size = sizeof *in6;
        if (inet_pton(AF_INET6, host, &in6->sin6_addr) != 1)
            return false;
        to->loopback = IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
        return true;
    }
    struct sockaddr_in *in = (struct sockaddr_in *)&to->address;
    *in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = port};
    to->size = sizeof *in;
    if (strcmp(host, "localhost") == 0)
        host = "127.0.0.1";
    if (!*host)
        host = "0.0.0.0";
    if (inet_pton(AF_INET, host, &in->sin_addr) != 1)
        return false;
    to->loopback = ntohl(in->sin_addr.s_addr) >> 24 == 127;
    return true;
}

int cordon_listen_parse(const char *text, struct cordon_listen_address *ret, struct cordon_error *err)
{
    char host[64];
    uint16_t port;
    const char *colon = strrchr(text, ':');
    size_t size = colon ? (size_t)(colon - text) : 0;
    *ret = (struct cordon_listen_address){0};
    if (colon && size < sizeof host && parse_port(colon + 1, &port)) {
        bool v6 = size > 2 && text[0] == '[' && colon[-1] == ']';
        (void)snprintf(host, sizeof host, "%.*s", (int)(v6 ? size - 2 : size), v6 ? text + 1 : text); /* fits */
        if (parse_host(host, v6, port, ret))
            return 0;
    }
    return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                       "\"%.100s\" is no address and port to listen on; examples: 127.0.0.1:9385, [::1]:9385, "
                       "0.0.0.0:9385",
                       text);
}

int cordon_listen_tcp(const char *text, const struct cordon_listen_address *address, struct cordon_error *err)
{
    static const int on = 1;
    cordon_autoclose int fd = socket(address->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return cordon_fail_errno(err, -errno, "a socket for %s", text);
    /* NODELAY is inherited by what is accepted: each piece of a stream leaves at once. */
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) < 0)
        return cordon_fail_errno(err, -errno, "a socket for %s", text);
    if (address->address.ss_family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) < 0)
        return cordon_fail_errno(err, -errno, "a socket for %s", text);
    if (bind(fd, (const struct sockaddr *)&address->address, address->size) < 0 || listen(fd, BACKLOG) < 0) {
        int code = -errno;
        (void)cordon_fail_errno(err, code, "listening on %s", text);
        if (code == -EADDRINUSE)
            cordon_error_context(err, "another program has the port (ss -ltnp shows which)");
        return code;
    }
    return CORDON_TAKE_FD(fd);
}

int cordon_listen_unix(int folder_fd, const char *folder, uid_t owner, struct cordon_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    /* By the folder's descriptor: a path may be longer than sun_path, and must not be walked twice. */
    (void)snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/cordon.sock", folder_fd); /* fits */
    cordon_autoclose int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return cordon_fail_errno(err, -errno, "a socket for %s/cordon.sock", folder);
    if (unlinkat(folder_fd, "cordon.sock", 0) < 0 && errno != ENOENT)
        return cordon_fail_errno(err, -errno, "removing the stale %s/cordon.sock", folder);
    mode_t before = umask(0177);
    int r = bind(fd, (const struct sockaddr *)&address, sizeof address) < 0 ? -errno : 0;
    (void)umask(before); /* can't fail */
    if (r == 0 && geteuid() == 0 && fchownat(folder_fd, "cordon.sock", owner, (gid_t)-1, AT_SYMLINK_NOFOLLOW) < 0)
        r = -errno;
    if (r == 0 && listen(fd, BACKLOG) < 0)
        r = -errno;
    if (r < 0)
        return cordon_fail_errno(err, r, "listening on %s/cordon.sock", folder);
    return CORDON_TAKE_FD(fd);
}

void cordon_listen_describe(int fd, char text[64])
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char host[INET6_ADDRSTRLEN] = "?";
    unsigned port = 0;
    bool v6 = false;
    if (getsockname(fd, (struct sockaddr *)&address, &size) == 0) {
        v6 = address.ss_family == AF_INET6;
        const void *in = v6 ? (const void *)&((struct sockaddr_in6 *)&address)->sin6_addr
                            : (const void *)&((struct sockaddr_in *)&address)->sin_addr;
        port = ntohs(v6 ? ((struct sockaddr_in6 *)&address)->sin6_port : ((struct sockaddr_in *)&address)->sin_port);
        (void)inet_ntop(address.ss_family, in, host, sizeof host); /* "?" stays */
    }
    (void)snprintf(text, 64, v6 ? "[%s]:%u" : "%s:%u", host, port); /* fits */
}
