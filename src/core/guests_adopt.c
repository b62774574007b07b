/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kept guests are found again after a restart of the gateway, behind the daemon's readiness. Each backend's are looked
 * for by a few threads of its own, what was not tried yet before what is tried again: a backend that does not answer
 * delays no guest of another (a warden keeps them for CORDON_GUEST_ORPHAN_S only), and the daemon's end cancels tries.
 * Who asks for a guest meanwhile waits for its first try, a while, and once.
 *
 * Only a backend that says that the guest is no more, or that can't find any again, makes a tombstone of it. Anything
 * else (a service that is not reached, a key that is not set) says nothing of the guest: it is looked for again, more
 * and more seldom, until there is an answer.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/guests_internal.h"
#include "core/registry.h"

#define ADOPTERS 8 /* of a backend, at most */
#define WAIT_S 5
#define SECOND_US UINT64_C(1000000)
#define AGAIN_S 2        /* doubled with each try */
#define AGAIN_MOST_S 300 /* beyond CORDON_GUEST_ORPHAN_S by itself: tries are not to keep a hung guest for ever */

/* Who looks for the guests of one backend. */
struct crew {
    struct crew *next;
    size_t wanted, count;
    bool told; /* that there is nobody */
    pthread_t threads[ADOPTERS];
    char backend_name[];
};

static struct {
    pthread_cond_t changed; /* of what is looked for, with the table's lock */
    struct crew *crews;     /* of who starts and ends them, one thread */
    bool mustered;
    int cancel[2]; /* tries end when the second is closed */
} adopters = {.changed = PTHREAD_COND_INITIALIZER, .cancel = {-1, -1}};

/* With the table's lock held: until something changed, or that time (of cordon_now_us; UINT64_MAX: none). */
static void wait_for_change(uint64_t until_us)
{
    const struct timespec until = {(time_t)(until_us / SECOND_US), (long)(until_us % SECOND_US) * 1000};
    if (until_us == UINT64_MAX)
        (void)pthread_cond_wait(&adopters.changed, &cordon_guests.lock);
    else /* what woke us is looked at by who waits */
        (void)pthread_cond_clockwait(&adopters.changed, &cordon_guests.lock, CLOCK_MONOTONIC, &until);
}

static bool is_sought(const struct cordon_guest_item *item)
{
    return !item->gone && !item->making && !item->handle;
}

/* --- who asks meanwhile --- */

/* Its first try is still to come or under way, and is worth a wait: of WAIT_S from the first who asks on, so that no
 * chain of questions takes longer. */
static bool is_awaited(struct cordon_guest_item *item)
{
    if (item->gone || item->tries || !(item->seeking || is_sought(item)))
        return false;
    if (!item->awaited_until_us)
        item->awaited_until_us = cordon_now_us() + WAIT_S * SECOND_US;
    return cordon_now_us() < item->awaited_until_us;
}

bool cordon_guest_item_await(struct cordon_guest_item *item)
{
    if (!is_awaited(item))
        return false;
    wait_for_change(item->awaited_until_us);
    return true;
}

struct cordon_guest_item *cordon_guest_item_find_sought(const char *id, const char *tenant)
{
    struct cordon_guest_item *item;
    do
        item = cordon_guest_item_find(id);
    while (item && cordon_guest_item_is_of(item, tenant) && cordon_guest_item_await(item));
    return item;
}

/* All of them are asked for now, whichever is waited for first. */
static uint64_t last_awaited(const char *tenant)
{
    uint64_t last = 0;
    for (struct cordon_guest_item *item = cordon_guests.first; item; item = item->next)
        if (cordon_guest_item_is_of(item, tenant) && is_awaited(item) && item->awaited_until_us > last)
            last = item->awaited_until_us;
    return last;
}

void cordon_guests_settle(const char *tenant)
{
    uint64_t until_us;
    while ((until_us = last_awaited(tenant)))
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
    return (*backend)->guest_adopt(item->id, adopters.cancel[0], handle, err);
}

/* The backend's word counts: the gateway of before may have ended between an order and its record. */
static void take_condition(struct cordon_guest_item *item, enum cordon_guest_condition condition)
{
    if (condition == CORDON_GUEST_IS_PAUSED && !item->paused)
        cordon_guest_item_paused(item);
    if (condition == CORDON_GUEST_IS_RUNNING && item->paused)
        cordon_guest_item_resumed(item);
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
    take_condition(item, backend->guest_condition(handle));
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
    bool stopping = cordon_guests.stopping;
    cordon_guests_unlock();
    if (!stopping) /* else that is why */
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

/* With the lock held: the one that was tried least of those that are due, pinned: one whose time was over meanwhile is
 * ended as soon as it is found. NULL: *when there may be one; 0: never. */
static struct cordon_guest_item *next_sought(const struct crew *crew, uint64_t *when)
{
    struct cordon_guest_item *least = NULL;
    uint64_t now = cordon_now_us();
    *when = 0;
    for (struct cordon_guest_item *item = cordon_guests.first; item; item = item->next) {
        if (!is_sought(item) || strcmp(item->backend_name, crew->backend_name) != 0)
            continue;
        uint64_t own = item->seeking ? UINT64_MAX : item->again_us;
        *when = !*when || own < *when ? own : *when;
        if (own <= now && (!least || item->tries < least->tries))
            least = item;
    }
    if (least) {
        least->seeking = true;
        least->uses++;
        least->refs++;
    }
    return least;
}

static void *adopt_all(void *context)
{
    const struct crew *crew = context;
    uint64_t when = UINT64_MAX;
    cordon_guests_lock();
    while (!cordon_guests.stopping && when) {
        struct cordon_guest_item *item = next_sought(crew, &when);
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

/* NULL: no memory. */
static struct crew *crew_of(const char *backend_name)
{
    struct crew *crew = adopters.crews;
    while (crew && strcmp(crew->backend_name, backend_name) != 0)
        crew = crew->next;
    size_t size = strlen(backend_name) + 1;
    if (crew || !(crew = calloc(1, sizeof *crew + size)))
        return crew;
    memcpy(crew->backend_name, backend_name, size);
    crew->next = adopters.crews;
    adopters.crews = crew;
    return crew;
}

/* A crew for each backend that has guests to be found, of no more threads than guests. */
static bool muster(void)
{
    bool whole = adopters.cancel[0] >= 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, adopters.cancel) == 0;
    for (struct crew *crew = adopters.crews; crew; crew = crew->next)
        crew->wanted = 0;
    cordon_guests_lock();
    for (struct cordon_guest_item *item = cordon_guests.first; item && whole; item = item->next) {
        struct crew *crew = is_sought(item) ? crew_of(item->backend_name) : NULL;
        whole = crew || !is_sought(item);
        if (crew && crew->wanted < ADOPTERS)
            crew->wanted++;
    }
    cordon_guests_unlock();
    return whole;
}

/* What can't be started now is started by a later call; until then those that are there do all. */
static void start(struct crew *crew)
{
    int r = 0;
    while (crew->count < crew->wanted && r == 0) {
        r = pthread_create(&crew->threads[crew->count], NULL, adopt_all, crew);
        crew->count += r == 0;
    }
    if (!r || crew->count || crew->told)
        return;
    crew->told = true;
    cordon_log(CORDON_LOG_WARN, "kept guests can't be looked for yet, for want of a thread; it is tried again",
               "backend", crew->backend_name, "error", strerror(r), NULL);
}

void cordon_guests_adopt(void)
{
    if (!adopters.mustered)
        adopters.mustered = muster();
    for (struct crew *crew = adopters.crews; crew && adopters.mustered; crew = crew->next)
        start(crew);
}

void cordon_guests_adopt_stop(void)
{
    cordon_guests_lock();
    (void)pthread_cond_broadcast(&adopters.changed); /* can't fail */
    cordon_guests_unlock();
    cordon_close(&adopters.cancel[1]);
    while (adopters.crews) {
        struct crew *crew = adopters.crews;
        adopters.crews = crew->next;
        while (crew->count)
            (void)pthread_join(crew->threads[--crew->count], NULL); /* it was started */
        free(crew);
    }
    cordon_close(&adopters.cancel[0]);
    adopters.mustered = false;
}
