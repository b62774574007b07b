/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relay PORT splice|copy: what any process in between costs on this host. Listens on loopback, prints its port, and
 * passes one connection after the other on to PORT there: 8 bytes up, then all that comes back. No decisions, no loop.
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define AT_ONCE (256 << 10)

static char buffer[AT_ONCE];

static int tcp(void)
{
    static const int on = 1;
    int sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (sock >= 0)
        (void)setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* slower without */
    return sock;
}

/* All that comes, by a pipe. */
static void pass_spliced(int from, int to)
{
    int ends[2];
    ssize_t n;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return;
    (void)fcntl(ends[1], F_SETPIPE_SZ, AT_ONCE); /* slower without */
    while ((n = splice(from, NULL, ends[1], NULL, AT_ONCE, SPLICE_F_MOVE)) > 0)
        for (ssize_t m; n > 0 && (m = splice(ends[0], NULL, to, NULL, (size_t)n, SPLICE_F_MOVE)) > 0;)
            n -= m;
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void pass_copied(int from, int to)
{
    ssize_t n;
    while ((n = recv(from, buffer, sizeof buffer, 0)) > 0)
        for (ssize_t m, at = 0; at < n && (m = send(to, buffer + at, (size_t)(n - at), MSG_NOSIGNAL)) > 0;)
            at += m;
}

static void serve(int client, const struct sockaddr_in *server, void (*pass)(int from, int to))
{
    int sock = tcp();
    if (sock >= 0 && recv(client, buffer, 8, MSG_WAITALL) == 8 &&
        connect(sock, (const struct sockaddr *)server, sizeof *server) == 0 && send(sock, buffer, 8, MSG_NOSIGNAL) == 8)
        pass(sock, client);
    (void)close(sock); /* of a client that was not served nothing is expected */
}

int main(int argc, char **argv)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, server = here;
    socklen_t size = sizeof here;
    int listener = tcp();
    if (argc != 3 || listener < 0)
        return 2;
    server.sin_port = htons((uint16_t)atoi(argv[1]));
    /* As the sockets of guests have it; clients inherit it. */
    (void)setsockopt(listener, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    if (bind(listener, (const struct sockaddr *)&here, sizeof here) < 0 || listen(listener, 16) < 0 ||
        getsockname(listener, (struct sockaddr *)&here, &size) < 0) {
        perror("listen");
        return 1;
    }
    printf("%d\n", ntohs(here.sin_port));
    (void)fflush(stdout);
    for (;;) {
        int client = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (client < 0)
            return 1;
        serve(client, &server, strcmp(argv[2], "copy") == 0 ? pass_copied : pass_spliced);
        (void)close(client);
    }
}
