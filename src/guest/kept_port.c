/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to a port of a virtual machine, which no descriptor leaves: bytes go through its channel, as a program's
 * do, and a thread of its own passes them on to a pair of sockets, of which the caller has one. Each end waits for the
 * other: what the caller does not read is not asked for, and what the machine does not take in is not read of the
 * caller. Each direction has an end of its own, as a connection of TCP. What a caller that closed its socket has
 * written goes in yet, for LEFT_MS at most.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "guest/kept.h"

#define STACK (256u << 10)
#define CONNECT_MS 10000 /* the guest's own loopback: as long as for any answer of a guest */
#define LEFT_MS 30000    /* for a server to read what a caller wrote who has left */

struct relay {
    struct cordon_stream *stream;
    int sock;
    struct cordon_bytes out; /* of the machine, not yet passed on; lies in the stream until its next event */
    char in[16384];          /* of the caller */
    size_t in_at, in_size;
    bool in_ended, told; /* told: to the machine, which has all that the caller wrote */
    bool deaf;           /* the caller reads no more */
    bool unheard;        /* the machine takes in no more, ever */
    bool left;           /* the caller closed it: nothing more comes than what is there */
    uint64_t until_us;   /* once it left */
    bool over;
};

/* --- its place --- */

static int take_place(struct cordon_guest_handle *guest, struct cordon_error *err)
{
    (void)pthread_mutex_lock(&guest->lock); /* can't fail for a plain mutex */
    bool full = guest->relays == CORDON_KEPT_RELAYS;
    guest->relays += full ? 0 : 1;
    (void)pthread_mutex_unlock(&guest->lock);
    return full ? cordon_fail(err, -EAGAIN, CORDON_ERROR_QUOTA,
                              "%u connections to ports of the guest %s stand, as many as a virtual machine can have: "
                              "close some",
                              CORDON_KEPT_RELAYS, guest->id)
                : 0;
}

static void give_place(struct cordon_guest_handle *guest)
{
    (void)pthread_mutex_lock(&guest->lock); /* can't fail for a plain mutex */
    guest->relays--;
    guest->running_changed_us = cordon_now_us();
    (void)pthread_mutex_unlock(&guest->lock);
}

/* --- from the machine to the caller --- */

static void pass_out(struct relay *relay)
{
    while (relay->out.size) {
        ssize_t n = send(relay->sock, relay->out.data, relay->out.size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            return;
        relay->deaf = relay->deaf || (n < 0 && errno != EINTR);
        relay->out.data += n > 0 ? n : 0;
        relay->out.size -= relay->deaf ? relay->out.size : n > 0 ? (size_t)n : 0;
    }
}

static void take_out(struct relay *relay)
{
    struct cordon_stream_event event;
    while (!relay->over && !relay->out.size) {
        int r = cordon_kept_stream_next(relay->stream, 0, &event, NULL);
        if (r == 0)
            return;
        if (r < 0 || event.type == CORDON_STREAM_END)
            relay->over = true;
        else if (event.type == CORDON_STREAM_STDOUT && event.data.size)
            relay->out = event.data;
        else if (event.type == CORDON_STREAM_STDOUT)
            (void)shutdown(relay->sock, SHUT_WR); /* the caller may write on; one that left needs no end */
        pass_out(relay);
    }
}

/* --- from the caller to the machine --- */

static void take_in(struct relay *relay)
{
    ssize_t n = recv(relay->sock, relay->in, sizeof relay->in, MSG_DONTWAIT);
    if (n < 0 && !relay->left && (errno == EAGAIN || errno == EINTR))
        return;
    relay->in_at = 0;
    relay->in_size = n > 0 ? (size_t)n : 0;
    relay->in_ended = n <= 0;
}

/* False: the machine takes in no more now. One that never will any more may have answered why: that goes to the caller
 * first, and its end behind it. */
static bool offer(struct relay *relay)
{
    if (relay->unheard)
        relay->in_at = relay->in_size;
    while (relay->in_at < relay->in_size) {
        ssize_t n = cordon_kept_stream_offer(relay->stream, CORDON_TO_STDIN, relay->in + relay->in_at,
                                             relay->in_size - relay->in_at, NULL);
        if (n == 0)
            return false;
        relay->unheard = n < 0;
        relay->in_at = n < 0 ? relay->in_size : relay->in_at + (size_t)n;
    }
    return true;
}

static void tell_end(struct relay *relay)
{
    if (relay->told || relay->unheard)
        return;
    relay->told = true;
    relay->unheard = cordon_kept_stream_control(relay->stream, CORDON_CONTROL_END, CORDON_TO_STDIN, NULL) < 0;
}

static void pass_in(struct relay *relay)
{
    while (!relay->over && offer(relay)) {
        if (relay->in_ended) {
            tell_end(relay);
            return;
        }
        if (!relay->left)
            return; /* poll tells of more */
        take_in(relay);
    }
}

/* --- a caller that left --- */

static void leave(struct relay *relay)
{
    relay->left = true;
    relay->until_us = cordon_now_us() + LEFT_MS * UINT64_C(1000);
}

static bool all_is_taken(struct relay *relay)
{
    struct cordon_guest_handle *guest = relay->stream->guest;
    (void)pthread_mutex_lock(&guest->lock); /* can't fail for a plain mutex */
    bool all = relay->stream->writable[CORDON_TO_STDIN] == CORDON_KEPT_WRITE_MAX;
    (void)pthread_mutex_unlock(&guest->lock);
    return all;
}

/* It holds a thread and a stream of the guest: a server that does not read may not keep them. */
static void check_left(struct relay *relay)
{
    bool heard = relay->unheard || (relay->told && all_is_taken(relay));
    if (relay->left && (heard || cordon_now_us() >= relay->until_us))
        relay->over = true;
}

/* --- the thread --- */

static int left_ms(const struct relay *relay)
{
    uint64_t now = cordon_now_us();
    if (!relay->left)
        return -1;
    return now >= relay->until_us ? 0 : (int)((relay->until_us - now + 999) / 1000);
}

/* A caller that left is looked at no more: it would be told again and again. */
static void wait(struct relay *relay)
{
    bool reads = !relay->in_ended && relay->in_at == relay->in_size;
    struct pollfd fds[] = {{.fd = relay->stream->event_fd, .events = POLLIN},
                           {.fd = relay->left ? -1 : relay->sock,
                            .events = (short)((reads ? POLLIN : 0) | (relay->out.size ? POLLOUT : 0))}};
    eventfd_t count;
    if (poll(fds, 2, left_ms(relay)) < 0)
        return; /* interrupted: nothing was looked at */
    if (fds[0].revents)
        (void)eventfd_read(relay->stream->event_fd, &count); /* what it says is looked up by stream_next */
    if (fds[1].revents & (POLLHUP | POLLERR))
        leave(relay);
    else if (reads && fds[1].revents & POLLIN)
        take_in(relay);
}

static void end(struct relay *relay)
{
    cordon_close(&relay->sock);
    give_place(relay->stream->guest);
    cordon_kept_stream_close(relay->stream);
    free(relay);
}

static void *run(void *object)
{
    struct relay *relay = object;
    while (!relay->over) {
        pass_out(relay);
        take_out(relay);
        pass_in(relay);
        check_left(relay);
        if (!relay->over)
            wait(relay);
    }
    end(relay);
    return NULL;
}

static int start(struct relay *relay)
{
    pthread_attr_t attr;
    pthread_t thread;
    (void)pthread_attr_init(&attr); /* can't fail on Linux */
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attr, STACK);
    int r = -pthread_create(&thread, &attr, run, relay);
    (void)pthread_attr_destroy(&attr);
    return r;
}

/* --- its beginning --- */

static int connect_stream(struct cordon_guest_handle *guest, uint16_t port, int cancel_fd, struct cordon_stream **ret,
                          struct cordon_error *err)
{
    struct cordon_buf fields = CORDON_BUF_INIT(64);
    struct cordon_stream_event event;
    (void)cordon_field_put_u32(&fields, CORDON_FIELD_PORT, port); /* failures stick in fields.failed */
    (void)cordon_field_put_u32(&fields, CORDON_FIELD_OPERATION, CORDON_KEPT_OP_PORT);
    int r = cordon_kept_open_fields(guest, CORDON_KEPT_OP_PORT, &fields, cancel_fd, ret, err);
    cordon_buf_done(&fields);
    if (r < 0)
        return r;
    r = cordon_kept_stream_next(*ret, CONNECT_MS, &event, err);
    if (r == 1 && event.type == CORDON_STREAM_STARTED) {
        (*ret)->cancel_fd = -1; /* the caller's, who has a socket from now on */
        return 0;
    }
    if (r == 1)
        r = cordon_fail(err, -ECONNRESET, CORDON_ERROR_UNAVAILABLE,
                        "a port of the guest %s: the connection ended before it stood", guest->id);
    else if (r == 0)
        r = cordon_fail(err, -ETIMEDOUT, CORDON_ERROR_UNAVAILABLE, "the guest %s did not answer within %d s", guest->id,
                        CONNECT_MS / 1000);
    cordon_kept_stream_close(*ret);
    return r;
}

static int begin(struct relay *relay, int *ret)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return -errno;
    relay->sock = pair[0];
    int r = start(relay);
    if (r < 0)
        cordon_close(&pair[1]);
    else
        *ret = pair[1];
    return r;
}

int cordon_kept_port_relay(struct cordon_guest_handle *guest, uint16_t port, int cancel_fd, int *ret,
                           struct cordon_error *err)
{
    struct relay *relay = calloc(1, sizeof *relay);
    if (!relay)
        return cordon_fail_errno(err, -ENOMEM, "connect to a port of the guest %s", guest->id);
    relay->sock = -1;
    int r = take_place(guest, err);
    if (r == 0 && (r = connect_stream(guest, port, cancel_fd, &relay->stream, err)) < 0)
        give_place(guest);
    if (r < 0) {
        free(relay);
        return r;
    }
    r = begin(relay, ret);
    if (r == 0)
        return 0;
    end(relay);
    return cordon_fail_errno(err, r, "connect to a port of the guest %s", guest->id);
}
