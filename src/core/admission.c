/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fair queue: who comes first runs first. A place that becomes free is handed to the longest waiting thread, which
 * alone is woken, by an eventfd of its own: it waits in poll, since its client's socket must be watched at the same
 * time.
 */
#include "core/admission.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "core/run.h"

struct waiter {
    struct waiter *next, *previous;
    int event_fd;
    bool granted;
    uint64_t timeout_us;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    struct waiter head; /* a ring; head.next waits longest */
    bool ready;
    uint64_t running, waiting, admitted, refused;
    uint64_t max_runs, max_waiting, timeout_ms;
} queue;

static uint64_t four_a_cpu(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return 4 * (uint64_t)(count > 0 ? count : 1);
}

/* The lock is held. */
static void make_ready(void)
{
    if (queue.ready)
        return;
    queue.head.next = queue.head.previous = &queue.head;
    queue.max_runs = four_a_cpu();
    queue.max_waiting = 2000;
    queue.timeout_ms = 120000;
    queue.ready = true;
}

void cordon_admission_setup(const struct cordon_settings *settings)
{
    uint64_t max_runs = (uint64_t)cordon_settings_int(settings, CORDON_DOOR_NATIVE, CORDON_SET_MAX_RUNS);
    pthread_mutex_lock(&lock);
    make_ready();
    queue.max_runs = max_runs ? max_runs : four_a_cpu();
    queue.max_waiting = (uint64_t)cordon_settings_int(settings, CORDON_DOOR_NATIVE, CORDON_SET_QUEUE);
    queue.timeout_ms = 1000 * (uint64_t)cordon_settings_int(settings, CORDON_DOOR_NATIVE, CORDON_SET_QUEUE_TIMEOUT_S);
    pthread_mutex_unlock(&lock);
}

void cordon_admission_read(struct cordon_admission *ret)
{
    pthread_mutex_lock(&lock);
    make_ready();
    *ret = (struct cordon_admission){.running = queue.running,
                                     .waiting = queue.waiting,
                                     .max_runs = queue.max_runs,
                                     .max_waiting = queue.max_waiting,
                                     .admitted = queue.admitted,
                                     .refused = queue.refused};
    pthread_mutex_unlock(&lock);
}

/* The lock is held. */
static void append(struct waiter *waiter)
{
    waiter->previous = queue.head.previous;
    waiter->next = &queue.head;
    queue.head.previous->next = waiter;
    queue.head.previous = waiter;
    waiter->timeout_us = 1000 * queue.timeout_ms;
    queue.waiting++;
}

/* The lock is held. */
static void take_out(struct waiter *waiter)
{
    waiter->previous->next = waiter->next;
    waiter->next->previous = waiter->previous;
    queue.waiting--;
}

/* Gives the place of one that leaves to the next in line. The lock is held. */
static void hand_over(void)
{
    struct waiter *first = queue.head.next;
    if (first == &queue.head) {
        queue.running--;
        return;
    }
    take_out(first);
    first->granted = true;
    queue.admitted++;
    (void)eventfd_write(first->event_fd, 1); /* can't fail: its counter is 0 */
}

/* 1: has a place; 0: is in the queue; negative: refused. */
static int try_enter(struct waiter *waiter, struct cordon_error *err)
{
    int r = 0;
    pthread_mutex_lock(&lock);
    make_ready();
    uint64_t running = queue.running, waiting = queue.waiting, max_waiting = queue.max_waiting;
    if (!waiting && running < queue.max_runs) {
        queue.running++;
        queue.admitted++;
        r = 1;
    } else if (waiting >= max_waiting) {
        queue.refused++;
        r = -EAGAIN;
    } else if (waiter) {
        append(waiter);
    }
    pthread_mutex_unlock(&lock);
    if (r < 0)
        return cordon_fail(
            err, r, CORDON_ERROR_BUSY,
            "%llu runs run (CORDON_MAX_RUNS) and %llu wait, as many as may (CORDON_QUEUE): try again later",
            (unsigned long long)running, (unsigned long long)waiting);
    return r;
}

enum wake { WAKE_GRANTED, WAKE_CANCELLED, WAKE_LATE };

static enum wake sleep_until(int event_fd, int cancel_fd, uint64_t deadline_us)
{
    struct pollfd fds[] = {{.fd = event_fd, .events = POLLIN}, {.fd = cancel_fd, .events = POLLRDHUP}};
    for (;;) {
        uint64_t now = cordon_now_us();
        int left_ms = now < deadline_us ? (int)((deadline_us - now + 999) / 1000) : 0;
        int n = poll(fds, 2, left_ms);
        if (n < 0)
            continue; /* EINTR: the only failure that these arguments allow */
        if (fds[0].revents)
            return WAKE_GRANTED;
        if (n > 0)
            return WAKE_CANCELLED;
        if (!left_ms)
            return WAKE_LATE;
    }
}

/* Ends a wait: whether a place was handed over, be it in the same moment. Without one it leaves the queue; one that
 * comes to a client that left goes on. Taking the lock also waits for who hands over to be done with the eventfd. */
static bool end_wait(struct waiter *waiter, bool cancelled)
{
    pthread_mutex_lock(&lock);
    bool granted = waiter->granted;
    if (!granted) {
        take_out(waiter);
        queue.refused += !cancelled;
    } else if (cancelled) {
        hand_over();
    }
    pthread_mutex_unlock(&lock);
    return granted;
}

static int wait_for_place(struct waiter *waiter, int cancel_fd, struct cordon_error *err)
{
    struct cordon_admission now;
    enum wake wake = sleep_until(waiter->event_fd, cancel_fd, cordon_now_us() + waiter->timeout_us);
    bool granted = end_wait(waiter, wake == WAKE_CANCELLED);
    if (wake == WAKE_CANCELLED)
        return cordon_fail(err, -ECANCELED, CORDON_ERROR_CANCELLED, "the client left while its run waited for a place");
    if (granted)
        return 0;
    cordon_admission_read(&now);
    return cordon_fail(
        err, -EAGAIN, CORDON_ERROR_BUSY,
        "no place became free within %llu s (CORDON_QUEUE_TIMEOUT_S): %llu runs run (CORDON_MAX_RUNS) and "
        "%llu wait; try again later",
        (unsigned long long)(waiter->timeout_us / 1000000), (unsigned long long)now.running,
        (unsigned long long)now.waiting);
}

int cordon_admission_enter(int cancel_fd, struct cordon_error *err)
{
    struct waiter waiter = {.event_fd = -1};
    int r = try_enter(NULL, err); /* most need no eventfd */
    if (r)
        return r < 0 ? r : 0;
    cordon_autoclose int event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event_fd < 0) {
        r = -errno;
        return cordon_fail(err, r, CORDON_ERROR_BUSY,
                           "no place is free and none can be waited for now: try again later");
    }
    waiter.event_fd = event_fd;
    r = try_enter(&waiter, err);
    if (r)
        return r < 0 ? r : 0;
    return wait_for_place(&waiter, cancel_fd, err);
}

void cordon_admission_leave(void)
{
    pthread_mutex_lock(&lock);
    hand_over();
    pthread_mutex_unlock(&lock);
}
