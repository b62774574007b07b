/* SPDX-License-Identifier: Apache-2.0 */
/* What the gateway says: frames to the agent, orders to the warden. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "guest/kept.h"

#define SEND_MS 10000         /* an agent reads at once, whatever its code does */
#define SEND_MACHINE_MS 30000 /* but software emulation takes its time, as when a machine is set up */
#define ORDER_S 5

int cordon_kept_say_gone(struct cordon_guest_handle *guest, struct cordon_error *err)
{
    return cordon_fail(err, -ESRCH, CORDON_ERROR_GONE, "the guest %s is gone: %s", guest->id, guest->why);
}

static int check(struct cordon_guest_handle *guest, struct cordon_error *err)
{
    (void)pthread_mutex_lock(&guest->lock); /* can't fail for a plain mutex */
    int r = guest->gone ? cordon_kept_say_gone(guest, err) : 0;
    (void)pthread_mutex_unlock(&guest->lock);
    return r;
}

static uint64_t send_until(const struct cordon_guest_handle *guest)
{
    return cordon_now_us() + (guest->machine ? SEND_MACHINE_MS : SEND_MS) * UINT64_C(1000);
}

/* A machine that is paused reads nothing: its time is none that passes. */
static int wait_for_room(struct cordon_guest_handle *guest, uint64_t *until_us)
{
    struct pollfd ready = {.fd = guest->lease.channel, .events = POLLOUT};
    (void)pthread_mutex_lock(&guest->lock); /* can't fail for a plain mutex */
    bool gone = guest->gone, stands_still = guest->machine && guest->paused;
    (void)pthread_mutex_unlock(&guest->lock);
    if (gone)
        return -ESRCH;
    if (stands_still)
        *until_us = send_until(guest);
    if (cordon_now_us() >= *until_us)
        return -ETIMEDOUT;
    (void)poll(&ready, 1, 1000); /* looked at again by the next send */
    return 0;
}

static int send_whole(struct cordon_guest_handle *guest, struct iovec *iov, size_t count)
{
    uint64_t until_us = send_until(guest);
    while (count) {
        struct msghdr msg = {.msg_iov = iov, .msg_iovlen = count};
        ssize_t n = sendmsg(guest->lease.channel, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            int r = wait_for_room(guest, &until_us);
            if (r < 0)
                return r;
            continue;
        }
        if (n < 0)
            return -errno;
        while (count && (size_t)n >= iov->iov_len) {
            n -= (ssize_t)iov->iov_len;
            iov++;
            count--;
        }
        if (count) {
            iov->iov_base = (char *)iov->iov_base + n;
            iov->iov_len -= (size_t)n;
        }
    }
    return 0;
}

/* With send_lock held. */
static int send_frame(struct cordon_guest_handle *guest, uint8_t type, uint16_t id, const struct cordon_bytes parts[2])
{
    char header[CORDON_FRAME_HEADER];
    struct iovec iov[3] = {{header, sizeof header},
                           {(void *)(uintptr_t)parts[0].data, parts[0].size},
                           {(void *)(uintptr_t)parts[1].data, parts[1].size}};
    cordon_frame_header(header, type, id, (uint32_t)(parts[0].size + parts[1].size));
    return send_whole(guest, iov, 3);
}

/* What was not sent whole breaks all that comes behind it. */
static int tell_sent(struct cordon_guest_handle *guest, int r, struct cordon_error *err)
{
    if (r == 0)
        return 0;
    (void)pthread_mutex_lock(&guest->lock); /* can't fail for a plain mutex */
    cordon_kept_mark_gone(guest, r == -ETIMEDOUT ? "its agent takes nothing in any more" : "its agent ended");
    r = cordon_kept_say_gone(guest, err);
    (void)pthread_mutex_unlock(&guest->lock);
    return r;
}

int cordon_kept_send_frame(struct cordon_guest_handle *guest, uint8_t type, uint16_t id, const void *head,
                           size_t head_size, const void *data, size_t size, struct cordon_error *err)
{
    const struct cordon_bytes parts[2] = {{head, head_size}, {data, size}};
    int r = check(guest, err);
    if (r < 0)
        return r;
    (void)pthread_mutex_lock(&guest->send_lock); /* can't fail for a plain mutex */
    r = send_frame(guest, type, id, parts);
    (void)pthread_mutex_unlock(&guest->send_lock);
    return tell_sent(guest, r, err);
}

/* It enters once the channel is ours: behind what tells of a pause, nothing is begun. */
int cordon_kept_send_open(struct cordon_stream *stream,
                          int (*enter)(struct cordon_stream *stream, struct cordon_error *err),
                          const struct cordon_buf *fields, struct cordon_error *err)
{
    const struct cordon_bytes parts[2] = {{fields->data, fields->size}};
    struct cordon_guest_handle *guest = stream->guest;
    (void)pthread_mutex_lock(&guest->send_lock); /* can't fail for a plain mutex */
    int r = enter(stream, err), sent = r == 0 ? send_frame(guest, CORDON_FRAME_OPEN, stream->id, parts) : 0;
    (void)pthread_mutex_unlock(&guest->send_lock);
    return r < 0 ? r : tell_sent(guest, sent, err);
}

/* How much may be written now, taken off the window: 0: none; negative with err: it is over. */
static ssize_t take_window(struct cordon_stream *stream, enum cordon_stream_to to, size_t size,
                           struct cordon_error *err)
{
    struct cordon_guest_handle *guest = stream->guest;
    (void)pthread_mutex_lock(&guest->lock); /* can't fail for a plain mutex */
    size_t n = stream->writable[to] < size ? stream->writable[to] : size;
    ssize_t r = 0;
    if (guest->gone)
        r = cordon_kept_say_gone(guest, err);
    else if (stream->over)
        r = cordon_fail(err, -EPIPE, CORDON_ERROR_CONFLICT, "nobody reads it any more");
    else if (guest->machine && (guest->quiet || guest->paused))
        n = 0; /* nothing reads the channel, which others need */
    else if (n > CORDON_FRAME_DATA_MAX - 1)
        n = CORDON_FRAME_DATA_MAX - 1;
    if (r == 0)
        stream->writable[to] -= (uint32_t)n;
    (void)pthread_mutex_unlock(&guest->lock);
    return r < 0 ? r : (ssize_t)n;
}

/* The window is asked once the channel is ours: behind what tells of a pause, nothing more is written. */
ssize_t cordon_kept_stream_offer(struct cordon_stream *stream, enum cordon_stream_to to, const void *data, size_t size,
                                 struct cordon_error *err)
{
    const char head = (char)to;
    struct cordon_guest_handle *guest = stream->guest;
    (void)pthread_mutex_lock(&guest->send_lock); /* can't fail for a plain mutex */
    ssize_t n = take_window(stream, to, size, err);
    const struct cordon_bytes parts[2] = {{&head, 1}, {data, n > 0 ? (size_t)n : 0}};
    int r = n > 0 ? send_frame(guest, CORDON_FRAME_WRITE, stream->id, parts) : 0;
    (void)pthread_mutex_unlock(&guest->send_lock);
    r = tell_sent(guest, r, err);
    return r < 0 ? r : n;
}

void cordon_kept_set_paused(struct cordon_guest_handle *guest, bool quiet, bool paused)
{
    (void)pthread_mutex_lock(&guest->lock); /* can't fail for a plain mutex */
    guest->quiet = quiet;
    guest->paused = paused;
    for (size_t i = 0; i < CORDON_KEPT_STREAM_IDS; i++)
        if (!quiet && guest->streams[i])
            (void)eventfd_write(guest->streams[i]->event_fd, 1); /* a full one is readable, too */
    (void)pthread_mutex_unlock(&guest->lock);
}

/* --- to the warden --- */

/* With the lock held: until *seq was answered, or it is gone. */
static int wait_for_answer(struct cordon_guest_handle *guest, uint32_t seq)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until); /* can't fail */
    until.tv_sec += ORDER_S;
    while (!guest->gone && guest->answered != seq)
        if (pthread_cond_timedwait(&guest->changed, &guest->lock, &until) == ETIMEDOUT)
            return -ETIMEDOUT;
    return guest->gone ? -ESRCH : guest->answer;
}

int cordon_kept_order(struct cordon_guest_handle *guest, enum cordon_lease_verb verb, struct cordon_error *err)
{
    (void)pthread_mutex_lock(&guest->lock); /* can't fail for a plain mutex */
    struct cordon_lease_request request = {.version = CORDON_WARDEN_VERSION, .verb = verb, .seq = ++guest->seq};
    ssize_t n =
        guest->gone ? -ESRCH : cordon_send_fds(guest->lease.lease, &request, sizeof request, NULL, 0, MSG_DONTWAIT);
    int r = n < 0 ? (int)n : wait_for_answer(guest, request.seq);
    if (guest->gone)
        r = cordon_kept_say_gone(guest, err);
    else if (r == -ETIMEDOUT)
        r = cordon_fail(err, r, CORDON_ERROR_UNAVAILABLE, "the warden did not answer for the guest %s within %d s",
                        guest->id, ORDER_S);
    else if (r == -EOPNOTSUPP)
        r = cordon_fail(err, r, CORDON_ERROR_UNSUPPORTED, "guests can't pause on this host: it has no freezer");
    else if (r == -EBUSY)
        r = cordon_fail(err, r, CORDON_ERROR_CONFLICT, "something in the guest %s does not stand still now: try again",
                        guest->id);
    else if (r < 0)
        r = cordon_fail_errno(err, r, "an order for the guest %s", guest->id);
    (void)pthread_mutex_unlock(&guest->lock);
    return r;
}
