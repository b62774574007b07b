/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to a port that code listens on: made here, in the guest's network namespace, and passed to the host. Out
 * of a virtual machine no descriptor can be passed: there the agent relays it. PORT says that it stands; then OUTPUT
 * (stdout) is what the code sends, within the stream's window, and WRITE (stdin) what goes to it; HALF says that the
 * code sends no more, and DONE that nothing goes either way any more.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/kept.h"
#include "agent/vm.h"
#include "base/fd.h"

static int begin(uint16_t port, bool six)
{
    const struct sockaddr_in four_address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct sockaddr_in6 six_address = {
        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int r = six ? connect(fd, (const struct sockaddr *)&six_address, sizeof six_address)
                : connect(fd, (const struct sockaddr *)&four_address, sizeof four_address);
    if (r == 0 || errno == EINPROGRESS)
        return fd;
    r = -errno;
    (void)close(fd); /* nothing was written */
    return r;
}

static void try_next(struct cordon_kept *kept, struct cordon_kept_stream *stream, int error)
{
    cordon_close(&stream->fd);
    while (stream->fd < 0 && stream->tries < 2) {
        int fd = begin((uint16_t)stream->port, stream->tries++ == 1);
        if (fd >= 0)
            stream->fd = fd;
        else if (fd != -EADDRNOTAVAIL && fd != -EAFNOSUPPORT)
            error = -fd;
    }
    if (stream->fd < 0)
        cordon_kept_fail(kept, stream, error, "connecting to port %u of the guest: %s", stream->port, strerror(error));
}

void cordon_kept_port_open(struct cordon_kept *kept, struct cordon_kept_stream *stream, uint32_t port)
{
    stream->kind = CORDON_KEPT_OF_PORT;
    stream->port = port;
    if (port == 0 || port > 65535)
        cordon_kept_fail(kept, stream, EINVAL, "a port is a number from 1 to 65535");
    else
        try_next(kept, stream, ECONNREFUSED);
}

/* A frame with a descriptor goes out alone: behind all else, whole or not at all. */
static void hand_over(struct cordon_kept *kept, struct cordon_kept_stream *stream)
{
    char header[CORDON_FRAME_HEADER];
    if (!cordon_kept_flush(kept) || kept->channel < 0)
        return; /* tried again in the next turn: the channel is watched */
    cordon_frame_header(header, CORDON_FRAME_PORT, stream->id, 0);
    ssize_t n = cordon_send_fds(kept->channel, header, sizeof header, &stream->fd, 1, MSG_DONTWAIT);
    if (n == -EAGAIN)
        return;
    if (n != (ssize_t)sizeof header)
        cordon_kept_quit("a descriptor could not be passed whole");
    cordon_close(&stream->fd);
    stream->ended = true;
}

/* --- relayed --- */

/* Nothing more goes in: nobody reads what is here, or still comes. */
static void drop_input(struct cordon_kept_stream *stream)
{
    stream->deaf = true;
    stream->taken[0] += (uint32_t)stream->in[0].size;
    cordon_buf_done(&stream->in[0]);
    stream->in_end[0] = false;
}

static void end_relay(struct cordon_kept *kept, struct cordon_kept_stream *stream)
{
    cordon_close(&stream->fd);
    drop_input(stream);
    cordon_kept_send(kept, CORDON_FRAME_DONE, stream->id, NULL, 0);
    stream->ended = true;
}

static bool may_read(const struct cordon_kept *kept, const struct cordon_kept_stream *stream)
{
    return stream->window > 0 && cordon_kept_has_room(kept);
}

static void relay_out(struct cordon_kept *kept, struct cordon_kept_stream *stream)
{
    char payload[1 + CORDON_RING_CHUNK] = {CORDON_OUTPUT_STDOUT};
    ssize_t n = recv(stream->fd, payload + 1, CORDON_RING_CHUNK, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0) {
        cordon_kept_send(kept, CORDON_FRAME_OUTPUT, stream->id, payload, (uint32_t)(1 + n));
        stream->window -= cordon_kept_cost(CORDON_FRAME_OUTPUT, (uint32_t)(1 + n));
    } else if (n < 0 || stream->deaf) {
        end_relay(kept, stream);
    } else { /* whether it still reads, only writing to it tells */
        stream->mute = true;
        cordon_kept_send(kept, CORDON_FRAME_HALF, stream->id, NULL, 0);
    }
}

static void relay_in(struct cordon_kept_stream *stream)
{
    while (stream->in[0].size) {
        ssize_t n = send(stream->fd, stream->in[0].data, stream->in[0].size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n < 0) { /* an early answer is still to be read, up to its end */
            drop_input(stream);
            return;
        }
        stream->taken[0] += (uint32_t)n;
        cordon_buf_consume(&stream->in[0], (size_t)n);
    }
    if (!stream->in_end[0])
        return;
    (void)shutdown(stream->fd, SHUT_WR); /* what it still sends is read */
    drop_input(stream);
}

static void on_relayed(struct cordon_kept *kept, void *object, short events)
{
    struct cordon_kept_stream *stream = object;
    if (stream->kind != CORDON_KEPT_OF_PORT || stream->fd < 0 || !stream->told)
        return;
    if (events & POLLOUT)
        relay_in(stream);
    if (stream->mute && (stream->deaf || events & (POLLHUP | POLLERR)))
        end_relay(kept, stream);
    else if (!stream->mute && events & (POLLIN | POLLHUP | POLLERR) && may_read(kept, stream))
        relay_out(kept, stream);
}

static void begin_relay(struct cordon_kept *kept, struct cordon_kept_stream *stream)
{
    cordon_kept_send(kept, CORDON_FRAME_PORT, stream->id, NULL, 0);
    stream->told = true;
}

static void watch_relay(struct cordon_kept *kept, struct cordon_kept_stream *stream)
{
    bool writes = !stream->deaf && (stream->in[0].size || stream->in_end[0]);
    bool reads = !stream->mute && may_read(kept, stream);
    short events = (short)((reads ? POLLIN : 0) | (writes ? POLLOUT : 0));
    if (events || stream->mute) /* else its end would be told again and again, to nobody */
        cordon_kept_watch(kept, stream->fd, events, on_relayed, stream);
}

static void on_connected(struct cordon_kept *kept, void *object, short events)
{
    struct cordon_kept_stream *stream = object;
    int error = 0;
    socklen_t size = sizeof error;
    (void)events;
    if (stream->kind != CORDON_KEPT_OF_PORT || stream->fd < 0 || stream->told)
        return;
    if (getsockopt(stream->fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
        error = errno;
    if (error)
        try_next(kept, stream, error);
    else if (cordon_vm.on)
        begin_relay(kept, stream);
    else
        hand_over(kept, stream);
}

void cordon_kept_port_watch(struct cordon_kept *kept, struct cordon_kept_stream *stream)
{
    if (stream->fd >= 0 && stream->told)
        watch_relay(kept, stream);
    else if (stream->fd >= 0 && kept->channel >= 0 && (cordon_vm.on || kept->out.size == 0)) /* see hand_over */
        cordon_kept_watch(kept, stream->fd, POLLOUT, on_connected, stream);
}
