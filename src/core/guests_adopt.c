/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kept guests are found again after a restart of the gateway. A few threads look for all of the registry's at once,
 * behind the daemon's readiness: one that does not answer delays neither the others (whom their warden keeps for
 * CORDON_GUEST_ORPHAN_S only) nor the daemon's end. Who asks for a guest meanwhile waits for the first try, a while.
 *
 * Only a backend that says that the guest is no more, or that can't find any again, makes a tombstone of it. Anything
 * else (a service that is not reached, a key that is not set) says nothing of the guest: it is looked for again, more
 * and more seldom, until there is an answer.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "core/guests_internal.h"
#include "core/registry.h"

#define ADOPTERS 8
#define WAIT_S 5
#define SECOND_US UINT64_C(1000000)
#define AGAIN_S 2        /* doubled with each try */
#define AGAIN_MOST_S 300 /* beyond CORDON_GUEST_ORPHAN_S by itself: tries are not to keep a hung guest for ever */

static struct {
    pthread_cond_t changed; /* of what is looked for, with the table's lock */
    pthread_t threads[ADOPTERS];
    size_t count;
} adopters = {.changed = PTHREAD_COND_INITIALIZER};

/* With the table's lock held: until something changed, or that time (of cordon_now_us; UINT64_MAX: none). */
static void wait_for_change(uint64_t until_us)
{
    const struct timespec until = {(time_t)(until_us / SECOND_US), (long)(until_us % SECOND_US) * 1000};
    if (until_us == UINT64_MAX)
        (void)pthread_cond_wait(&adopters.changed, &cordon_guests.lock);
    else /* what woke us is looked at by who waits */
        (void)pthread_cond_clockwait(&adopters.changed, &cordon_guests.lock, CLOCK_MONOTONIC, &until);
}

/* --- who asks meanwhile --- */

static bool is_untried(const struct cordon_guest_item *item)
{
    return !item->gone && !item->making && !item->tries && (item->seeking || !item->handle);
}

struct cordon_guest_item *cordon_guest_item_find_sought(const char *id, const char *tenant)
{
    const uint64_t until_us = cordon_now_us() + WAIT_S * SECOND_US;
    struct cordon_guest_item *item;
    while ((item = cordon_guest_item_find(id)) && cordon_guest_item_is_of(item, tenant) && is_untried(item) &&
           cordon_now_us() < until_us)
        wait_for_change(until_us);
    return item;
}

static bool any_untried(void)
{
    struct cordon_guest_item *item = cordon_guests.first;
    while (item && !is_untried(item))
        item = item->next;
    return item != NULL;
}

void cordon_guests_settle(void)
{
    const uint64_t until_us = cordon_now_us() + WAIT_S * SECOND_US;
    while (any_untried() && cordon_now_us() < until_us)
        wait_for_change(until_us);
}

int cordon_guest_say_sought(const struct cordon_guest_item *item, struct cordon_error *err)
{
    return cordon_fail(err, -EAGAIN, CORDON_ERROR_UNAVAILABLE,
                       "the guest %s is being looked for after a restart%s%s: try again%s", item->id,
                       *item->trouble ? ", so far in vain: " : "", item->trouble,
                       *item->trouble ? ", or give it up (DELETE with ?forget=true)" : "");
}

/* --- looking --- */

static int look_for(const struct cordon_guest_item *item, const struct cordon_backend **backend,
                    struct cordon_guest_handle **handle, struct cordon_error *err)
{
    if (cordon_registry_find(item->backend_name, "the guest's backend", backend, NULL) < 0)
        return cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED, "there is no backend %.40s any more",
                           item->backend_name);
    if (!(*backend)->guest_adopt)
        return cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED, "its backend finds no guest again");
    return (*backend)->guest_adopt(item->id, handle, err);
}

/* False: it was given up meanwhile. */
static bool found(struct cordon_guest_item *item, const struct cordon_backend *backend,
                  struct cordon_guest_handle *handle)
{
    cordon_guests_lock();
    item->backend = backend;
    item->handle = handle; /* given back by who unpins it last, where it is gone */
    bool forgotten = item->gone;
    cordon_guests_unlock();
    if (forgotten) { /* while it was looked for: it is not to go on, unknown to all */
        (void)backend->guest_destroy(handle, NULL);
        return false;
    }
    cordon_guests_lock();
    cordon_guest_item_remote(item);
    item->paused = backend->guest_condition(handle) == CORDON_GUEST_IS_PAUSED;
    item->active_us = cordon_guests_now();
    item->trouble[0] = '\0';
    cordon_guest_item_note(item, "adopted", "the gateway was restarted");
    cordon_guests_unlock();
    cordon_guest_network_restore(item); /* before anybody who waits goes on */
    return true;
}

static void ended(struct cordon_guest_item *item, const struct cordon_error *why)
{
    char reason[256];
    (void)snprintf(reason, sizeof reason, "it was not there any more after a restart of the daemon (%.150s)",
                   why->message);
    cordon_guests_lock();
    cordon_guest_item_end(item, "daemon", reason);
    cordon_guests_unlock();
}

static void failed(struct cordon_guest_item *item, const struct cordon_error *why)
{
    cordon_guests_lock();
    unsigned seconds = item->tries < 8 ? AGAIN_S << item->tries : AGAIN_MOST_S;
    seconds = seconds < AGAIN_MOST_S ? seconds : AGAIN_MOST_S;
    item->tries++;
    item->again_us = cordon_now_us() + seconds * SECOND_US;
    (void)snprintf(item->trouble, sizeof item->trouble, "%.*s", (int)sizeof item->trouble - 1, why->message);
    cordon_guests_unlock();
    cordon_log(CORDON_LOG_WARN, "a kept guest could not be looked for, which is tried again", "guest", item->id,
               "backend", item->backend_name, "again_s", CORDON_NUM(seconds), "error", why->message, NULL);
}

/* With the lock held. */
static void let_go_on(struct cordon_guest_item *item)
{
    item->seeking = false;
    (void)pthread_cond_broadcast(&adopters.changed); /* can't fail */
}

static void adopt(struct cordon_guest_item *item)
{
    struct cordon_error why = {0};
    struct cordon_guest_handle *handle = NULL;
    const struct cordon_backend *backend = NULL;
    int r = look_for(item, &backend, &handle, &why);
    bool over = r < 0 && (why.kind == CORDON_ERROR_GONE || why.kind == CORDON_ERROR_UNSUPPORTED);
    bool lives = r == 0 && found(item, backend, handle);
    if (over)
        ended(item, &why);
    else if (r < 0)
        failed(item, &why);
    cordon_guests_lock();
    let_go_on(item);
    cordon_guests_unlock();
    if (lives)
        (void)cordon_guests_watch_add(item); /* without, its end shows at its next use */
    if (r == 0 || over)
        cordon_guest_save(item);
    cordon_guests_watch_wake();
}

/* With the lock held: one to look for now, pinned: one whose time was over meanwhile is ended as soon as it is found.
 * NULL: *when there may be one; 0: never. */
static struct cordon_guest_item *next_sought(uint64_t *when)
{
    struct cordon_guest_item *item;
    *when = 0;
    for (item = cordon_guests.first; item; item = item->next) {
        if (item->gone || item->handle || item->making)
            continue;
        if (!item->seeking && item->again_us <= cordon_now_us())
            break;
        uint64_t own = item->seeking ? UINT64_MAX : item->again_us;
        *when = !*when || own < *when ? own : *when;
    }
    if (item) {
        item->seeking = true;
        item->uses++;
        item->refs++;
    }
    return item;
}

static void *adopt_all(void *unused)
{
    uint64_t when = UINT64_MAX;
    (void)unused;
    cordon_guests_lock();
    while (!cordon_guests.stopping && when) {
        struct cordon_guest_item *item = next_sought(&when);
        if (!item && when)
            wait_for_change(when);
        if (!item)
            continue;
        cordon_guests_unlock();
        adopt(item);
        cordon_guest_unpin(item);
        cordon_guests_lock();
        when = UINT64_MAX;
    }
    cordon_guests_unlock();
    return NULL;
}

/* --- start and end --- */

void cordon_guests_adopt(void)
{
    while (adopters.count < ADOPTERS && pthread_create(&adopters.threads[adopters.count], NULL, adopt_all, NULL) == 0)
        adopters.count++;
    if (!adopters.count) /* slowly, then */
        (void)adopt_all(NULL);
}

void cordon_guests_adopt_stop(void)
{
    cordon_guests_lock();
    (void)pthread_cond_broadcast(&adopters.changed); /* can't fail */
    cordon_guests_unlock();
    while (adopters.count)
        (void)pthread_join(adopters.threads[--adopters.count], NULL); /* it was started */
}
