/* SPDX-License-Identifier: Apache-2.0 */
#include "http/pump.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/socket.h>

#define PIECE (16u << 10)

/* One direction. */
struct way {
    int from, to;
    size_t at, size; /* of data, what waits to be written */
    bool ended;      /* nothing more comes, and that has been passed on */
    char data[PIECE];
};

int cordon_http_pump_first(int fd, const char *data, size_t size)
{
    while (size) {
        ssize_t n = send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            data += n;
            size -= (size_t)n;
            continue;
        }
        struct pollfd ready = {.fd = fd, .events = POLLOUT};
        if ((errno != EAGAIN && errno != EINTR) || (poll(&ready, 1, -1) < 0 && errno != EINTR))
            return -EPIPE;
    }
    return 0;
}

static bool again(void)
{
    return errno == EAGAIN || errno == EINTR;
}

/* Reads when there is nothing to write, writes what there is. False: broken. */
static bool move(struct way *way)
{
    if (way->at == way->size) {
        ssize_t n = recv(way->from, way->data, PIECE, MSG_DONTWAIT);
        if (n < 0)
            return again();
        if (n == 0) {
            way->ended = true;
            return shutdown(way->to, SHUT_WR) == 0;
        }
        way->at = 0;
        way->size = (size_t)n;
    }
    ssize_t n = send(way->to, way->data + way->at, way->size - way->at, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0)
        return again();
    way->at += (size_t)n;
    return true;
}

static bool writes(const struct way *way)
{
    return way->at < way->size;
}

void cordon_http_pump(int a, int a_socket, int b, int half_ms)
{
    struct way ways[2] = {{.from = a, .to = b}, {.from = b, .to = a}};
    while (!ways[0].ended || !ways[1].ended) {
        struct pollfd fds[] = {{.fd = a}, {.fd = b}, {.fd = -1}};
        /* Within TLS the end of the connection itself is not passed on as one of a. */
        if (ways[0].ended || (a_socket != a && !ways[1].ended))
            fds[2].fd = a_socket;
        for (int i = 0; i < 2; i++)
            if (!ways[i].ended)
                fds[writes(&ways[i]) ? 1 - i : i].events |= (short)(writes(&ways[i]) ? POLLOUT : POLLIN);
        /* A side on which nothing is waited for is not to wake us again and again. */
        for (int i = 0; i < 2; i++)
            if (!fds[i].events)
                fds[i].fd = -1;
        int n = poll(fds, 3, ways[0].ended || ways[1].ended ? half_ms : -1);
        if (n == 0 || (n < 0 && errno != EINTR) || fds[2].revents)
            return;
        for (int i = 0; i < 2; i++)
            if (!ways[i].ended && !move(&ways[i]))
                return;
    }
}
