/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/remote/kept.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"

int cordon_remote_kept_init(struct cordon_remote_kept *guest, struct cordon_error *err)
{
    guest->gone_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    atomic_init(&guest->condition, CORDON_GUEST_IS_RUNNING);
    return guest->gone_fd < 0 ? cordon_fail_errno(err, -errno, "a kept guest's descriptor") : 0;
}

void cordon_remote_kept_set(struct cordon_remote_kept *guest, enum cordon_guest_condition condition)
{
    int now = atomic_load(&guest->condition);
    while (now != CORDON_GUEST_IS_GONE && !atomic_compare_exchange_weak(&guest->condition, &now, (int)condition))
        continue; /* what is gone stays so */
    if (condition == CORDON_GUEST_IS_GONE)
        (void)eventfd_write(guest->gone_fd, 1); /* one that was written to stays readable */
}

void cordon_remote_kept_lost(struct cordon_remote_kept *guest)
{
    int running = CORDON_GUEST_IS_RUNNING;
    if (atomic_compare_exchange_strong(&guest->condition, &running, (int)CORDON_GUEST_IS_GONE))
        cordon_remote_kept_set(guest, CORDON_GUEST_IS_GONE);
}

int cordon_remote_kept_pause(struct cordon_remote_kept *guest,
                             int (*call)(struct cordon_remote_kept *guest, struct cordon_error *err),
                             bool (*is_paused)(struct cordon_remote_kept *guest), struct cordon_error *err)
{
    struct cordon_error own = {0};
    cordon_remote_kept_set(guest, CORDON_GUEST_IS_PAUSED);
    int r = call(guest, &own);
    if (r < 0 && is_paused(guest))
        return 0;
    if (r < 0)
        cordon_remote_kept_set(guest, CORDON_GUEST_IS_RUNNING);
    if (r < 0 && err)
        *err = own;
    return r;
}

enum cordon_guest_condition cordon_remote_kept_condition(const struct cordon_remote_kept *guest)
{
    return (enum cordon_guest_condition)atomic_load(&guest->condition);
}

/* --- the thread --- */

/* With the lock held: the next one that runs and was not looked at in this round; NULL: the round is over. */
static struct cordon_remote_kept *next_unseen(struct cordon_remote_keeper *keeper)
{
    for (struct cordon_remote_kept *guest = keeper->first; guest; guest = guest->next)
        if (!guest->seen && atomic_load(&guest->condition) == CORDON_GUEST_IS_RUNNING)
            return guest;
    return NULL;
}

static void look_at_all(struct cordon_remote_keeper *keeper)
{
    struct cordon_remote_kept *guest;
    for (guest = keeper->first; guest; guest = guest->next)
        guest->seen = false;
    while (!keeper->stopping && (guest = next_unseen(keeper))) {
        guest->seen = true;
        keeper->looked_at = guest;
        pthread_mutex_unlock(&keeper->lock);
        keeper->look(guest);
        pthread_mutex_lock(&keeper->lock);
        keeper->looked_at = NULL;
        pthread_cond_broadcast(&keeper->changed);
    }
}

/* By the clock that nobody sets: what is renewed too late ends on the service. */
static int wait_until(struct cordon_remote_keeper *keeper, const struct timespec *until)
{
    return pthread_cond_clockwait(&keeper->changed, &keeper->lock, CLOCK_MONOTONIC, until);
}

static void *keep(void *context)
{
    struct cordon_remote_keeper *keeper = context;
    struct timespec until;
    pthread_mutex_lock(&keeper->lock);
    while (!keeper->stopping) {
        (void)clock_gettime(CLOCK_MONOTONIC, &until); /* can't fail */
        until.tv_sec += (time_t)keeper->period_s();
        while (!keeper->stopping && wait_until(keeper, &until) != ETIMEDOUT)
            continue;
        look_at_all(keeper);
    }
    pthread_mutex_unlock(&keeper->lock);
    return NULL;
}

int cordon_remote_kept_enter(struct cordon_remote_keeper *keeper, struct cordon_remote_kept *guest,
                             struct cordon_error *err)
{
    int r = 0;
    pthread_mutex_lock(&keeper->lock);
    if (!keeper->started) {
        keeper->stopping = false;
        r = -pthread_create(&keeper->thread, NULL, keep, keeper);
        keeper->started = r == 0;
    }
    if (r == 0) {
        guest->keeper = keeper;
        guest->next = keeper->first;
        keeper->first = guest;
    }
    pthread_mutex_unlock(&keeper->lock);
    return r < 0 ? cordon_fail_errno(err, r, "the thread that looks after kept guests") : 0;
}

static void leave(struct cordon_remote_keeper *keeper, struct cordon_remote_kept *guest)
{
    pthread_mutex_lock(&keeper->lock);
    while (keeper->looked_at == guest)
        (void)pthread_cond_wait(&keeper->changed, &keeper->lock);
    for (struct cordon_remote_kept **at = &keeper->first; *at; at = &(*at)->next)
        if (*at == guest) {
            *at = guest->next;
            break;
        }
    pthread_mutex_unlock(&keeper->lock);
}

void cordon_remote_kept_done(struct cordon_remote_kept *guest)
{
    if (guest->keeper)
        leave(guest->keeper, guest);
    cordon_close(&guest->gone_fd);
}

void cordon_remote_keeper_stop(struct cordon_remote_keeper *keeper)
{
    pthread_mutex_lock(&keeper->lock);
    bool started = keeper->started;
    keeper->stopping = true;
    keeper->started = false;
    pthread_cond_broadcast(&keeper->changed);
    pthread_mutex_unlock(&keeper->lock);
    if (started)
        (void)pthread_join(keeper->thread, NULL); /* it was started */
}

/* --- files --- */

int cordon_remote_range_next(struct cordon_http_transfer *transfer, struct cordon_remote_range *range, int timeout_ms,
                             uint64_t patience_us, struct cordon_bytes *ret, bool *ended, struct cordon_error *err)
{
    struct cordon_bytes data;
    struct cordon_error own = {0};
    *ended = false;
    while (range->left) {
        cordon_http_extend(transfer, cordon_now_us() + (timeout_ms < 0 ? patience_us : (uint64_t)timeout_ms * 1000));
        int r = cordon_http_read(transfer, &data, &own);
        if (r == -ETIMEDOUT && timeout_ms >= 0)
            return 0; /* more may come */
        if (r < 0 && err)
            *err = own;
        if (r < 0)
            return r;
        if (r == 0)
            break;
        size_t skipped = data.size < range->skip ? data.size : (size_t)range->skip;
        size_t size = data.size - skipped < range->left ? data.size - skipped : (size_t)range->left;
        range->skip -= skipped;
        range->left -= size;
        *ret = (struct cordon_bytes){data.data + skipped, size};
        if (size)
            return 1;
    }
    *ended = true;
    return 0;
}
