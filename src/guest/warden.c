/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process's one connection to its warden. Threads take a duplicate for each message, so that replacing it under
 * them is safe: a message to a dead warden fails, or its lease is closed, and both are noticed where it was sent.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "guest/internal.h"

#define HELLO_MS 10000 /* how long a new warden may take to say hello */
#define START_MS 10000 /* until one said how long a guest may take */

static struct {
    pthread_mutex_t lock;
    int fd;
    int arrival; /* eventfd: readable while there is a warden, after there was none */
    struct cordon_warden_hello hello;
} warden = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1, .arrival = -1, .hello.start_ms = START_MS};

static int check_hello(const struct cordon_warden_hello *hello, ssize_t size, struct cordon_error *err)
{
    if (size != (ssize_t)sizeof *hello || hello->version != CORDON_WARDEN_VERSION)
        return cordon_fail(
            err, -EPROTO, CORDON_ERROR_INFRASTRUCTURE,
            "the warden speaks another version than this gateway (%u is expected): are they of one build?",
            CORDON_WARDEN_VERSION);
    return 0;
}

static int read_hello(int fd, struct cordon_warden_hello *ret, struct cordon_error *err)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    int n;
    do
        n = poll(&ready, 1, HELLO_MS);
    while (n < 0 && errno == EINTR);
    if (n == 0)
        return cordon_fail(err, -ETIMEDOUT, CORDON_ERROR_UNAVAILABLE, "the warden said nothing for %d s",
                           HELLO_MS / 1000);
    ssize_t size = cordon_recv_fds(fd, ret, sizeof *ret, NULL, NULL, MSG_DONTWAIT);
    if (size <= 0)
        return cordon_fail_errno(err, size < 0 ? (int)size : -ECONNRESET, "reading the warden's hello");
    int r = check_hello(ret, size, err);
    ret->why[sizeof ret->why - 1] = '\0';
    return r;
}

/* With the lock held. Tells those that wait for a warden. */
static void set_arrival(bool there)
{
    uint64_t one = 1;
    if (warden.arrival < 0)
        warden.arrival = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (there)
        (void)!write(warden.arrival, &one, sizeof one); /* full is readable as well */
    else
        (void)!read(warden.arrival, &one, sizeof one); /* empty is what is wanted */
}

int cordon_warden_set(int fd, struct cordon_error *err)
{
    cordon_autoclose int taken = fd;
    struct cordon_warden_hello hello;
    int r = read_hello(taken, &hello, err);
    if (r < 0)
        return r;
    (void)pthread_mutex_lock(&warden.lock); /* can't fail for a plain mutex */
    cordon_close(&warden.fd);
    warden.fd = CORDON_TAKE_FD(taken);
    warden.hello = hello;
    set_arrival(true);
    (void)pthread_mutex_unlock(&warden.lock);
    return 0;
}

/* With the lock held: takes in later hellos, and notices the warden's end. */
static void refresh(void)
{
    struct cordon_warden_hello hello;
    while (warden.fd >= 0) {
        ssize_t n = cordon_recv_fds(warden.fd, &hello, sizeof hello, NULL, NULL, MSG_DONTWAIT);
        if (n == -EAGAIN)
            return;
        if (n <= 0 || check_hello(&hello, n, NULL) < 0) {
            cordon_close(&warden.fd);
            set_arrival(false);
            return;
        }
        warden.hello = hello;
        warden.hello.why[sizeof hello.why - 1] = '\0';
    }
}

int cordon_warden_hello(struct cordon_warden_hello *ret, struct cordon_error *err)
{
    (void)pthread_mutex_lock(&warden.lock); /* can't fail for a plain mutex */
    refresh();
    bool there = warden.fd >= 0;
    if (there)
        *ret = warden.hello;
    (void)pthread_mutex_unlock(&warden.lock);
    if (!there)
        return cordon_fail(err, -ENOTCONN, CORDON_ERROR_UNAVAILABLE,
                           "there is no warden now: it ended and is being restarted");
    return 0;
}

uint64_t cordon_warden_start_us(void)
{
    (void)pthread_mutex_lock(&warden.lock); /* can't fail for a plain mutex */
    uint64_t us = warden.hello.start_ms * UINT64_C(1000);
    (void)pthread_mutex_unlock(&warden.lock);
    return us;
}

int cordon_warden_dup(void)
{
    (void)pthread_mutex_lock(&warden.lock); /* can't fail for a plain mutex */
    refresh();
    int fd = warden.fd >= 0 ? fcntl(warden.fd, F_DUPFD_CLOEXEC, 0) : -1;
    int error = warden.fd >= 0 ? -errno : -ENOTCONN;
    (void)pthread_mutex_unlock(&warden.lock);
    return fd >= 0 ? fd : error;
}

int cordon_warden_arrival(void)
{
    (void)pthread_mutex_lock(&warden.lock); /* can't fail for a plain mutex */
    set_arrival(warden.fd >= 0);
    int fd = fcntl(warden.arrival, F_DUPFD_CLOEXEC, 0), error = -errno;
    (void)pthread_mutex_unlock(&warden.lock);
    return fd >= 0 ? fd : error;
}
