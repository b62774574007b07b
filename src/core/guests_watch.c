/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one thread that watches kept guests. It sleeps until the soonest of: the end of a ttl, the end of an idle time,
 * the end of a tombstone, another try to store a record; or until a guest is gone or something changed
 * (cordon_guests_watch_wake). A guest that is busy by programs that nobody reads is looked at again after its idle
 * time, and then knows when the last of them ended.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "core/guests_internal.h"

#define BATCH 32
#define HOUR_US INT64_C(3600000000)
#define AGAIN_US 5000000 /* what could not be done is tried again */

enum due { DUE_NOTHING, DUE_PAUSE, DUE_END, DUE_SAVE, DUE_FORGET };

/* With the lock held: when the guest became idle; INT64_MAX: it is not. */
static int64_t idle_since(struct cordon_guest_item *item)
{
    uint64_t changed_us = 0;
    if (item->streams)
        return INT64_MAX;
    if (item->backend->guest_running && item->backend->guest_running(item->handle, &changed_us) > item->resting)
        return INT64_MAX;
    /* The backend's clock has another start. */
    int64_t changed = changed_us ? cordon_guests_now() - (int64_t)(cordon_now_us() - changed_us) : 0;
    return changed > item->active_us ? changed : item->active_us;
}

static int64_t tombstone_end(const struct cordon_guest_item *item)
{
    return item->gone_us +
           HOUR_US * cordon_settings_int(cordon_guests.settings, CORDON_DOOR_NATIVE, CORDON_SET_GUEST_TOMBSTONES_H);
}

/* With the lock held, as the next ones: what is due now, or *when something may be. */
static enum due look_gone(const struct cordon_guest_item *item, int64_t now, int64_t *when)
{
    int64_t end = item->surplus ? now : tombstone_end(item);
    if (now >= end && !item->uses)
        return DUE_FORGET;
    *when = now >= end ? now + AGAIN_US : end;
    return DUE_NOTHING;
}

static enum due look_living(struct cordon_guest_item *item, int64_t now, int64_t *when)
{
    if (!item->handle || item->making || item->paused)
        return DUE_NOTHING;
    if (item->ends_us && now >= item->ends_us)
        return DUE_END;
    if (item->ends_us)
        *when = item->ends_us;
    if (!item->idle_pause_ms)
        return DUE_NOTHING;
    int64_t idle = (int64_t)item->idle_pause_ms * 1000, since = idle_since(item);
    int64_t due = since == INT64_MAX ? now + idle : since + idle;
    if (due <= now)
        return DUE_PAUSE;
    if (due < *when)
        *when = due;
    return DUE_NOTHING;
}

static enum due look(struct cordon_guest_item *item, int64_t now, int64_t *when)
{
    enum due due = item->gone ? look_gone(item, now, when) : look_living(item, now, when);
    if (due != DUE_NOTHING || !item->save_again_us)
        return due;
    if (item->save_again_us <= now)
        return DUE_SAVE;
    *when = item->save_again_us < *when ? item->save_again_us : *when;
    return DUE_NOTHING;
}

static void do_end(struct cordon_guest_item *item)
{
    static const char over[] = "its time to live was over";
    bool changed, pauses = item->at_end == CORDON_END_PAUSE;
    struct cordon_error own = {0};
    int r = pauses ? cordon_guest_life_pause(item, over, &changed, &own) : 0;
    /* One that is to live on is not ended because it can't be paused just now. */
    if (!pauses || own.kind == CORDON_ERROR_UNSUPPORTED)
        r = cordon_guest_life_destroy(item, "ttl", over, &changed, NULL);
    if (r == 0)
        return;
    cordon_guests_lock();
    item->ends_us = cordon_guests_now() + AGAIN_US;
    cordon_guests_unlock();
}

static void do_pause(struct cordon_guest_item *item)
{
    bool changed;
    if (cordon_guest_life_pause(item, "it was idle", &changed, NULL) == 0)
        return;
    cordon_guests_lock();
    item->active_us = cordon_guests_now(); /* after another idle time */
    cordon_guests_unlock();
}

static void forget(struct cordon_guest_item *item)
{
    const struct cordon_guest_registry *registry = cordon_guests.registry;
    char id[CORDON_GUEST_ID];
    memcpy(id, item->id, sizeof id);
    cordon_guests_lock();
    cordon_guest_item_leave(item);
    cordon_guests_unlock();
    if (registry)
        (void)registry->remove(registry->context, id, NULL); /* what stays is forgotten after the next start */
}

/* Finds one guest with something due, pinned; NULL and *when when there is none. */
static struct cordon_guest_item *next_due(enum due *due, int64_t *when)
{
    int64_t now = cordon_guests_now();
    struct cordon_guest_item *found = NULL;
    *when = INT64_MAX;
    cordon_guests_lock();
    for (struct cordon_guest_item *item = cordon_guests.first; item && !found; item = item->next) {
        int64_t own = INT64_MAX;
        *due = look(item, now, &own);
        if (own < *when)
            *when = own;
        if (*due != DUE_NOTHING)
            found = item;
    }
    if (found) {
        found->uses++;
        found->refs++;
    }
    cordon_guests_unlock();
    return found;
}

static int64_t do_all(void)
{
    struct cordon_guest_item *item;
    enum due due;
    int64_t when = INT64_MAX;
    while (!cordon_guests.stopping && (item = next_due(&due, &when))) {
        if (due == DUE_END)
            do_end(item);
        else if (due == DUE_PAUSE)
            do_pause(item);
        else if (due == DUE_SAVE)
            cordon_guest_save(item);
        else
            forget(item);
        cordon_guest_unpin(item);
    }
    return when;
}

/* --- guests that are gone by themselves --- */

static const char *why_gone(const struct cordon_guest_item *item)
{
    const struct cordon_backend *backend = item->backend;
    const char *why = CORDON_GUEST_HAS(backend, guest_why_gone) ? backend->guest_why_gone(item->handle) : NULL;
    return why ? why : "its processes ended by themselves or were killed from outside";
}

static void lost(const char *id)
{
    cordon_guests_lock();
    struct cordon_guest_item *item = cordon_guest_item_find(id);
    if (item && (item->gone || !item->handle))
        item = NULL;
    if (item) {
        item->uses++;
        item->refs++;
        cordon_guest_item_end(item, "died", why_gone(item));
    }
    cordon_guests_unlock();
    if (!item)
        return;
    cordon_guests_watch_remove(item);
    cordon_guest_save(item);
    cordon_guest_unpin(item);
}

/* Destroying it ends it as well: who orders that marks it under the `life` lock, and this waits for him. */
static void on_gone(int fd)
{
    char id[CORDON_GUEST_ID] = "";
    struct cordon_guest_item *found = NULL;
    cordon_guests_lock();
    for (struct cordon_guest_item *item = cordon_guests.first; item && !found; item = item->next)
        if (!item->gone && item->gone_fd == fd && item->handle &&
            item->backend->guest_condition(item->handle) == CORDON_GUEST_IS_GONE) {
            found = item;
            found->refs++;
            (void)epoll_ctl(cordon_guests.epoll, EPOLL_CTL_DEL, fd, NULL); /* it stays readable */
        }
    cordon_guests_unlock();
    if (!found) /* an event of a descriptor that had this number before */
        return;
    (void)pthread_mutex_lock(&found->life); /* can't fail for a plain mutex */
    memcpy(id, found->id, sizeof id);
    (void)pthread_mutex_unlock(&found->life);
    lost(id);
    cordon_guests_lock();
    cordon_guest_item_unref(found);
    cordon_guests_unlock();
}

static void *watch(void *unused)
{
    struct epoll_event events[BATCH];
    (void)unused;
    while (!__atomic_load_n(&cordon_guests.stopping, __ATOMIC_ACQUIRE)) {
        int64_t when = do_all(), now = cordon_guests_now();
        int64_t left_ms = when == INT64_MAX ? -1 : when <= now ? 0 : (when - now + 999) / 1000;
        int n = epoll_wait(cordon_guests.epoll, events, BATCH, left_ms > 3600000 ? 3600000 : (int)left_ms);
        for (int i = 0; i < n; i++) {
            eventfd_t count;
            if (events[i].data.fd == cordon_guests.wake)
                (void)eventfd_read(cordon_guests.wake, &count); /* that it was written to is all */
            else
                on_gone(events[i].data.fd);
        }
    }
    return NULL;
}

void cordon_guests_watch_wake(void)
{
    if (cordon_guests.wake >= 0)
        (void)eventfd_write(cordon_guests.wake, 1); /* a full one wakes, too */
}

int cordon_guests_watch_add(struct cordon_guest_item *item)
{
    int fd = item->backend->guest_watch ? item->backend->guest_watch(item->handle) : -1;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (fd < 0)
        return -EOPNOTSUPP;
    cordon_guests_lock();
    item->gone_fd = fd;
    cordon_guests_unlock();
    return epoll_ctl(cordon_guests.epoll, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

void cordon_guests_watch_remove(struct cordon_guest_item *item)
{
    cordon_guests_lock();
    int fd = item->gone_fd;
    item->gone_fd = -1;
    cordon_guests_unlock();
    if (fd >= 0)
        (void)epoll_ctl(cordon_guests.epoll, EPOLL_CTL_DEL, fd, NULL); /* may not be there any more */
}

int cordon_guests_watch_start(struct cordon_error *err)
{
    struct epoll_event event = {.events = EPOLLIN};
    cordon_guests.epoll = epoll_create1(EPOLL_CLOEXEC);
    cordon_guests.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    event.data.fd = cordon_guests.wake;
    if (cordon_guests.epoll < 0 || cordon_guests.wake < 0 ||
        epoll_ctl(cordon_guests.epoll, EPOLL_CTL_ADD, cordon_guests.wake, &event) < 0)
        return cordon_fail_errno(err, -errno, "watch kept guests");
    cordon_guests.stopping = false;
    int r = -pthread_create(&cordon_guests.watcher, NULL, watch, NULL);
    return r < 0 ? cordon_fail_errno(err, r, "start the thread that watches kept guests") : 0;
}

void cordon_guests_watch_stop(void)
{
    if (!cordon_guests.ready)
        return;
    __atomic_store_n(&cordon_guests.stopping, true, __ATOMIC_RELEASE);
    cordon_guests_adopt_stop();
    cordon_guests_watch_wake();
    (void)pthread_join(cordon_guests.watcher, NULL); /* it was started */
    cordon_close(&cordon_guests.epoll);
    cordon_close(&cordon_guests.wake);
}
