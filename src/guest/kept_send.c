/* SPDX-License-Identifier: Apache-2.0 */
/* What the gateway says: frames to the agent, orders to the warden. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "guest/kept.h"

#define SEND_MS 10000 /* an agent reads at once, whatever its code does */
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

static int send_whole(int channel, struct iovec *iov, size_t count)
{
    uint64_t until_us = cordon_now_us() + SEND_MS * UINT64_C(1000);
    while (count) {
        struct msghdr msg = {.msg_iov = iov, .msg_iovlen = count};
        ssize_t n = sendmsg(channel, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            struct pollfd ready = {.fd = channel, .events = POLLOUT};
            if (cordon_now_us() >= until_us)
                return -ETIMEDOUT;
            (void)poll(&ready, 1, 1000); /* looked at again by the next send */
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

int cordon_kept_send_frame(struct cordon_guest_handle *guest, uint8_t type, uint16_t id, const void *head,
                           size_t head_size, const void *data, size_t size, struct cordon_error *err)
{
    char header[CORDON_FRAME_HEADER];
    struct iovec iov[3] = {
        {header, sizeof header}, {(void *)(uintptr_t)head, head_size}, {(void *)(uintptr_t)data, size}};
    int r = check(guest, err);
    if (r < 0)
        return r;
    cordon_frame_header(header, type, id, (uint32_t)(head_size + size));
    (void)pthread_mutex_lock(&guest->send_lock); /* can't fail for a plain mutex */
    r = send_whole(guest->lease.channel, iov, 3);
    (void)pthread_mutex_unlock(&guest->send_lock);
    if (r == 0)
        return 0;
    (void)pthread_mutex_lock(&guest->lock);
    cordon_kept_mark_gone(guest, r == -ETIMEDOUT ? "its agent takes nothing in any more" : "its agent ended");
    r = cordon_kept_say_gone(guest, err);
    (void)pthread_mutex_unlock(&guest->lock);
    return r;
}

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
