/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dispatcher: the one thread that reads the channels and leases of all kept guests of this process. It is started
 * with the first guest and lives as long as the process. One read a guest and turn, so that a loud guest delays the
 * others by no more than that; what it may send at all is bounded by its streams' windows.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/error.h"
#include "guest/kept.h"

#define GUESTS_MAX 8192u
#define READ_SIZE (64u << 10)
#define BATCH 64

enum { ON_CHANNEL, ON_LEASE };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    int epoll;
    bool started;
    struct cordon_guest_handle *guests[GUESTS_MAX];
    uint32_t uses[GUESTS_MAX]; /* tells an event of a place's last guest from one of this */
} dispatcher = {.epoll = -1};

static uint64_t tag_of(size_t place, int what)
{
    return (uint64_t)dispatcher.uses[place] << 32 | (uint64_t)place << 1 | (uint64_t)what;
}

void cordon_kept_unref(struct cordon_guest_handle *guest)
{
    (void)pthread_mutex_lock(&guest->lock); /* can't fail for a plain mutex */
    bool last = --guest->refs == 0;
    (void)pthread_mutex_unlock(&guest->lock);
    if (!last)
        return;
    cordon_lease_close(&guest->lease);
    cordon_egress_close(guest->egress);
    cordon_close(&guest->gone_fd);
    cordon_close(&guest->pending_fd);
    cordon_buf_done(&guest->in);
    (void)pthread_mutex_destroy(&guest->lock);
    (void)pthread_mutex_destroy(&guest->send_lock);
    (void)pthread_cond_destroy(&guest->changed);
    free(guest);
}

static struct cordon_guest_handle *find(uint64_t tag)
{
    size_t place = (size_t)(tag & UINT32_MAX) >> 1;
    (void)pthread_mutex_lock(&lock); /* can't fail for a plain mutex */
    struct cordon_guest_handle *guest =
        place < GUESTS_MAX && dispatcher.uses[place] == tag >> 32 ? dispatcher.guests[place] : NULL;
    if (guest) {
        (void)pthread_mutex_lock(&guest->lock);
        guest->refs++;
        (void)pthread_mutex_unlock(&guest->lock);
    }
    (void)pthread_mutex_unlock(&lock);
    return guest;
}

void cordon_kept_mark_gone(struct cordon_guest_handle *guest, const char *why)
{
    if (guest->gone)
        return;
    guest->gone = true;
    (void)snprintf(guest->why, sizeof guest->why, "%s", why);                     /* cut at its size */
    (void)epoll_ctl(dispatcher.epoll, EPOLL_CTL_DEL, guest->lease.channel, NULL); /* may not be there any more */
    (void)eventfd_write(guest->gone_fd, 1);                                       /* can't fail: its counter is 0 */
    for (size_t i = 0; i < CORDON_KEPT_STREAM_IDS; i++)
        if (guest->streams[i])
            (void)eventfd_write(guest->streams[i]->event_fd, 1); /* a full one is readable, too */
    (void)pthread_cond_broadcast(&guest->changed);               /* can't fail */
}

/* Order its end; what the lease has to say about that is read as any other. */
static void violate(struct cordon_guest_handle *guest, const char *what)
{
    char why[256];
    const struct cordon_lease_request request = {
        .version = CORDON_WARDEN_VERSION, .verb = CORDON_LEASE_DESTROY, .seq = UINT32_MAX};
    (void)snprintf(why, sizeof why, "its agent broke the protocol (%s), so it was destroyed", what);
    (void)cordon_send_fds(guest->lease.lease, &request, sizeof request, NULL, 0,
                          MSG_DONTWAIT); /* a warden that is gone has ended it, too */
    cordon_kept_mark_gone(guest, why);
}

/* --- the channel --- */

/* Only a stream socket to somewhere in the guest, as its agent makes one; anything else might block us. */
static bool is_connection(int fd)
{
    int domain = 0, type = 0;
    const struct linger none = {0};
    socklen_t domain_size = sizeof domain, type_size = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_size) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size) < 0)
        return false;
    int flags = fcntl(fd, F_GETFL);
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none); /* else its close could wait for the guest */
    return (domain == AF_INET || domain == AF_INET6) && type == SOCK_STREAM && flags >= 0 &&
           fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

/* With the lock held. */
static const char *take_fd(struct cordon_guest_handle *guest, int fd_take)
{
    cordon_autoclose int fd = fd_take;
    if (guest->pending_fd >= 0)
        return "a second descriptor";
    if (!is_connection(fd))
        return "a descriptor that is no connection";
    guest->pending_fd = CORDON_TAKE_FD(fd);
    return NULL;
}

/* With the lock held. */
static const char *take_bytes(struct cordon_guest_handle *guest, const char *data, size_t size)
{
    struct cordon_frame frame;
    const char *wrong = NULL;
    size_t used = 0;
    int64_t n = 0;
    guest->in.max = READ_SIZE + CORDON_FRAME_DATA_MAX + CORDON_FRAME_HEADER;
    if (cordon_buf_append(&guest->in, data, size) < 0)
        return "no memory to read it";
    while (!wrong && (n = cordon_frame_parse(guest->in.data + used, guest->in.size - used, 1, &frame)) > 0) {
        wrong = cordon_kept_take_frame(guest, &frame);
        used += (size_t)n;
    }
    if (used == guest->in.size)
        cordon_buf_done(&guest->in); /* an idle guest is to be small */
    else
        cordon_buf_consume(&guest->in, used);
    return n < 0 ? "what came is no frame" : wrong;
}

static void read_channel(struct cordon_guest_handle *guest)
{
    static char data[READ_SIZE]; /* the dispatcher's own */
    int fd = -1;
    size_t nfds = 1;
    ssize_t n = cordon_recv_fds(guest->lease.channel, data, sizeof data, &fd, &nfds, MSG_DONTWAIT);
    if (n == -EAGAIN)
        return;
    (void)pthread_mutex_lock(&guest->lock); /* can't fail for a plain mutex */
    const char *wrong = n > 0 && nfds == 1 ? take_fd(guest, fd) : NULL;
    if (n > 0 && !wrong)
        wrong = guest->gone ? NULL : take_bytes(guest, data, (size_t)n);
    if (n == -EMSGSIZE)
        wrong = "more than one descriptor";
    if (wrong)
        violate(guest, wrong);
    else if (n <= 0 && !guest->gone) /* the lease will tell more; without it that is all there is */
        (void)epoll_ctl(dispatcher.epoll, EPOLL_CTL_DEL, guest->lease.channel, NULL);
    (void)pthread_mutex_unlock(&guest->lock);
}

/* --- the lease --- */

static void read_lease(struct cordon_guest_handle *guest)
{
    union {
        struct cordon_lease_answer answer;
        struct cordon_lease_end end;
    } word;
    ssize_t n = cordon_recv_fds(guest->lease.lease, &word, sizeof word, NULL, NULL, MSG_DONTWAIT);
    if (n == -EAGAIN)
        return;
    (void)pthread_mutex_lock(&guest->lock); /* can't fail for a plain mutex */
    if (n == (ssize_t)sizeof word.end && word.end.version == CORDON_WARDEN_VERSION &&
        word.end.ended == CORDON_LEASE_ENDED) {
        char why[256];
        (void)snprintf(why, sizeof why, "its virtual machine ended: %.200s", word.end.why);
        cordon_kept_mark_gone(guest, why);
    } else if (n == (ssize_t)sizeof word.answer && word.answer.version == CORDON_WARDEN_VERSION) {
        guest->answered = word.answer.seq;
        guest->answer = word.answer.status;
        (void)pthread_cond_broadcast(&guest->changed); /* can't fail */
    } else if (n <= 0) {
        (void)epoll_ctl(dispatcher.epoll, EPOLL_CTL_DEL, guest->lease.lease, NULL); /* it is at its end */
        cordon_kept_mark_gone(guest, "its processes ended: its agent or its warden was killed");
    }
    (void)pthread_mutex_unlock(&guest->lock);
}

/* --- the thread --- */

static void *dispatch(void *unused)
{
    struct epoll_event events[BATCH];
    (void)unused;
    for (;;) {
        int n = epoll_wait(dispatcher.epoll, events, BATCH, -1);
        for (int i = 0; i < n; i++) {
            struct cordon_guest_handle *guest = find(events[i].data.u64);
            if (!guest)
                continue;
            if ((events[i].data.u64 & 1) == ON_CHANNEL)
                read_channel(guest);
            else
                read_lease(guest);
            cordon_kept_unref(guest);
        }
    }
    return NULL;
}

/* With the lock held. */
static int start(void)
{
    pthread_attr_t attr;
    pthread_t thread;
    if (dispatcher.started)
        return 0;
    if (dispatcher.epoll < 0)
        dispatcher.epoll = epoll_create1(EPOLL_CLOEXEC);
    if (dispatcher.epoll < 0)
        return -errno;
    (void)pthread_attr_init(&attr); /* can't fail on Linux */
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attr, 256 << 10);
    int r = -pthread_create(&thread, &attr, dispatch, NULL);
    (void)pthread_attr_destroy(&attr);
    dispatcher.started = r == 0;
    return r;
}

/* With the lock held. */
static int watch(struct cordon_guest_handle *guest)
{
    struct epoll_event channel = {.events = EPOLLIN, .data.u64 = tag_of(guest->place, ON_CHANNEL)};
    struct epoll_event lease = {.events = EPOLLIN | EPOLLRDHUP, .data.u64 = tag_of(guest->place, ON_LEASE)};
    if (epoll_ctl(dispatcher.epoll, EPOLL_CTL_ADD, guest->lease.channel, &channel) < 0)
        return -errno;
    if (epoll_ctl(dispatcher.epoll, EPOLL_CTL_ADD, guest->lease.lease, &lease) == 0)
        return 0;
    int r = -errno;
    (void)epoll_ctl(dispatcher.epoll, EPOLL_CTL_DEL, guest->lease.channel, NULL); /* it was just added */
    return r;
}

int cordon_kept_dispatch_add(struct cordon_guest_handle *guest)
{
    size_t place = 0;
    (void)pthread_mutex_lock(&lock); /* can't fail for a plain mutex */
    int r = start();
    while (r == 0 && place < GUESTS_MAX && dispatcher.guests[place])
        place++;
    if (r == 0 && place == GUESTS_MAX)
        r = -ENOSPC;
    if (r == 0) {
        guest->place = place;
        dispatcher.uses[place]++;
        dispatcher.guests[place] = guest;
        r = watch(guest);
        if (r < 0)
            dispatcher.guests[place] = NULL;
    }
    (void)pthread_mutex_unlock(&lock);
    return r;
}

void cordon_kept_dispatch_remove(struct cordon_guest_handle *guest)
{
    (void)pthread_mutex_lock(&lock); /* can't fail for a plain mutex */
    if (dispatcher.guests[guest->place] == guest) {
        dispatcher.guests[guest->place] = NULL;
        (void)epoll_ctl(dispatcher.epoll, EPOLL_CTL_DEL, guest->lease.channel, NULL); /* may be gone already */
        (void)epoll_ctl(dispatcher.epoll, EPOLL_CTL_DEL, guest->lease.lease, NULL);
    }
    (void)pthread_mutex_unlock(&lock);
}
