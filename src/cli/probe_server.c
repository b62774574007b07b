/* SPDX-License-Identifier: Apache-2.0 */
/* `cordon probe-server`: what the probes of `cordon verify` try to reach. It answers every TCP connection and every
 * datagram with one and the same text, reads at most one packet of each, and keeps nothing. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/cli.h"
#include "supervisor/listen.h"

#define ADDRESSES_MAX 16
#define ASK_MS 2000 /* how long a client may take to ask; the others wait meanwhile */

static const char help[] =
    "usage: cordon probe-server ADDR:PORT...\n"
    "\n"
    "Answers the probes of cordon verify, over TCP and UDP. Run it on two addresses, and name them\n"
    "in CORDON_VERIFY_LISTED and CORDON_VERIFY_UNLISTED.\n";

static const char text[] = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\nConnection: close\r\n"
                           "\r\ncordon-probe\n";

static int open_pair(const char *where, struct pollfd fds[2], struct cordon_error *err)
{
    struct cordon_listen_address address;
    int r = cordon_listen_parse(where, &address, err);
    if (r < 0)
        return r;
    fds[0] = (struct pollfd){.fd = cordon_listen_tcp(where, &address, err), .events = POLLIN};
    if (fds[0].fd < 0)
        return fds[0].fd;
    int sock = socket(address.address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (sock < 0 || bind(sock, (const struct sockaddr *)&address.address, address.size) < 0)
        return cordon_fail_errno(err, -errno, "binding UDP at %s", where);
    fds[1] = (struct pollfd){.fd = sock, .events = POLLIN};
    return 0;
}

static void answer_stream(int listener)
{
    char asked[4096];
    cordon_autoclose int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    if (fd < 0 || poll(&wait, 1, ASK_MS) <= 0)
        return;
    (void)!read(fd, asked, sizeof asked);                 /* whatever it is */
    (void)!send(fd, text, sizeof text - 1, MSG_NOSIGNAL); /* one who is gone does not need it */
    (void)shutdown(fd, SHUT_WR);
    (void)poll(&wait, 1, 100); /* for its end, so that the text is not lost in a reset */
}

static void answer_datagram(int sock)
{
    char asked[2048];
    struct sockaddr_storage from;
    socklen_t size = sizeof from;
    if (recvfrom(sock, asked, sizeof asked, 0, (struct sockaddr *)&from, &size) >= 0)
        (void)!sendto(sock, "cordon-probe\n", 13, 0, (const struct sockaddr *)&from, size); /* as datagrams are */
}

int cordon_cli_probe_server(int argc, char **argv)
{
    struct pollfd fds[2 * ADDRESSES_MAX];
    struct cordon_error err = {0};
    nfds_t count = 0;
    if (argc > 1 && strcmp(argv[1], "--help") == 0)
        return fputs(help, stdout) < 0 ? CORDON_EXIT_FAILURE : 0;
    if (argc < 2 || argc - 1 > ADDRESSES_MAX)
        return cordon_cli_usage("probe-server", "1 to %d addresses are needed", ADDRESSES_MAX);
    for (int i = 1; i < argc; i++, count += 2)
        if (open_pair(argv[i], fds + count, &err) < 0)
            return cordon_cli_fail(&err);
    (void)signal(SIGPIPE, SIG_IGN); /* can't fail */
    (void)printf("cordon: probe server at %d addresses\n", argc - 1);
    (void)fflush(stdout); /* nobody may be reading it */
    while (poll(fds, count, -1) >= 0 || errno == EINTR) {
        for (nfds_t i = 0; i < count; i += 2) {
            if (fds[i].revents)
                answer_stream(fds[i].fd);
            if (fds[i + 1].revents)
                answer_datagram(fds[i + 1].fd);
        }
    }
    return CORDON_EXIT_FAILURE;
}
