/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pools: which guests are parked, who waits, what is made next.
 *
 * An acquire takes a parked guest, else it waits and one is made for it at once. At the end of each turn of the loop
 * the pools look what is missing: guests for those who wait first; then, a few at a time, those that should be parked.
 * That waits a moment after a guest was handed over from a pool that is still a quarter full: it would take the CPU
 * from the very run that the guest is for. How many should be is the floor of the settings, raised by each acquire that
 * found none, lowered in steps while nobody misses any.
 *
 * A guest that can't be made costs the one who waits longest an attempt; after the third it is refused with the
 * reason. That nursery or zygote died costs none while it does not go on: the new one is waited for. Refilling rests
 * after a failure, longer each time, so that a broken host isn't kept busy failing.
 */
#include "warden/machine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/log.h"

#define ATTEMPTS 3u
#define REFILL_AT_ONCE 3u
#define MAKING_PER_CPU 6u
#define LATER_US 4000u
#define LATER_MACHINE_US 500000u /* a copy takes a few hundred milliseconds of a CPU under emulation */
#define SHRINK_US 15000000u
#define REST_US 50000u
#define REST_DOUBLINGS 7u
#define FORGIVEN 6u
#define BROKEN 3u /* failures in a row: then gateways are told, and one is tried now and then though none is wanted */

static const char *const kind_names[CORDON_GUEST_KIND__COUNT] = {
    [CORDON_GUEST_PYTHON] = "python",       [CORDON_GUEST_PYTHON_DATA] = "python",
    [CORDON_GUEST_PYTHON_FRESH] = "python", [CORDON_GUEST_JAVASCRIPT] = "javascript",
    [CORDON_GUEST_BASH] = "bash",           [CORDON_GUEST_KEPT] = "kept",
};

/* --- who waits --- */

void cordon_pool_end_acquire(struct cordon_acquire *acquire)
{
    cordon_source_close(&acquire->warden->loop, &acquire->lease);
    acquire->warden->acquire_count--;
    free(acquire);
}

static void push_waiting(struct cordon_pool *pool, struct cordon_acquire *acquire)
{
    if (pool->waiting_last)
        pool->waiting_last->next = acquire;
    else
        pool->waiting = acquire;
    pool->waiting_last = acquire;
    pool->waiting_count++;
    pool->warden->acquire_count++;
}

static void remove_waiting(struct cordon_pool *pool, struct cordon_acquire *acquire)
{
    struct cordon_acquire *before = NULL;
    for (struct cordon_acquire *at = pool->waiting; at != acquire; at = at->next)
        before = at;
    if (before)
        before->next = acquire->next;
    else
        pool->waiting = acquire->next;
    if (pool->waiting_last == acquire)
        pool->waiting_last = before;
    pool->waiting_count--;
}

static void on_given_up(struct cordon_source *source, uint32_t events)
{
    struct cordon_acquire *acquire = CORDON_OWNER(struct cordon_acquire, lease, source);
    struct cordon_guest *machine = acquire->guest;
    if (machine) {
        machine->vm.taker = NULL;
        cordon_guest_destroy(machine);
    } else {
        remove_waiting(acquire->pool, acquire);
    }
    cordon_pool_end_acquire(acquire);
}

static void refuse_first(struct cordon_pool *pool, int status, const char *why)
{
    struct cordon_acquire *acquire = pool->waiting;
    remove_waiting(pool, acquire);
    cordon_peer_refuse(acquire->lease.fd, status, why);
    cordon_pool_end_acquire(acquire);
}

/* --- who is parked --- */

static void park(struct cordon_pool *pool, struct cordon_guest *guest)
{
    guest->next_parked = NULL;
    if (pool->parked_last)
        pool->parked_last->next_parked = guest;
    else
        pool->parked = guest;
    pool->parked_last = guest;
    pool->parked_count++;
}

void cordon_pool_unpark(struct cordon_pool *pool, struct cordon_guest *guest)
{
    struct cordon_guest *before = NULL;
    for (struct cordon_guest *at = pool->parked; at && at != guest; at = at->next_parked)
        before = at;
    if (before)
        before->next_parked = guest->next_parked;
    else
        pool->parked = guest->next_parked;
    if (pool->parked_last == guest)
        pool->parked_last = before;
    pool->parked_count--;
}

void cordon_pool_end_parked(struct cordon_pool *pool)
{
    while (pool->parked) {
        struct cordon_guest *guest = pool->parked;
        cordon_pool_unpark(pool, guest);
        cordon_guest_destroy(guest);
    }
}

/* Gives guest to lease, or refuses it; the guest is used up either way. */
static void hand_over(struct cordon_guest *guest, const struct cordon_warden_acquire *request, int lease, bool warm)
{
    struct cordon_error err;
    int r = cordon_guest_lease(guest, request, lease, warm, &err);
    if (r == 0)
        return;
    cordon_peer_refuse(lease, r, err.message); /* a gateway that went away doesn't mind */
    cordon_guest_destroy(guest);
}

/* --- how many there should be --- */

static unsigned least(const struct cordon_pool *pool)
{
    const struct cordon_warden_config *config = &pool->warden->config;
    if (pool->unisolated || config->oneshot)
        return 0;
    if (pool->machine)
        return pool->wanted ? config->machine_pool : 0;
    if (!pool->wanted && pool->template != &pool->warden->base)
        return 0;
    unsigned floor = config->floor[pool->kind];
    if (pool->network) /* half as many, where runs may ask for it at all; more when they do */
        floor = config->network ? (floor + 1) / 2 : 0;
    return floor < config->pool_max ? floor : config->pool_max;
}

static void on_shrink(struct cordon_timer *timer)
{
    struct cordon_pool *pool = CORDON_OWNER(struct cordon_pool, shrink, timer);
    unsigned floor = least(pool);
    if (pool->misses == 0 && pool->target > floor)
        pool->target -= 1 + (pool->target - floor) / 4;
    pool->misses = 0;
    while (pool->parked_count > pool->target) {
        struct cordon_guest *guest = pool->parked; /* the oldest */
        cordon_pool_unpark(pool, guest);
        cordon_guest_destroy(guest);
    }
    if (pool->target > floor)
        cordon_timer_arm(&pool->warden->loop, timer, SHRINK_US);
}

static void missed(struct cordon_pool *pool)
{
    pool->misses++;
    if (pool->unisolated || pool->machine || pool->warden->config.oneshot ||
        pool->target >= pool->warden->config.pool_max)
        return;
    pool->target++;
    if (!pool->shrink.armed)
        cordon_timer_arm(&pool->warden->loop, &pool->shrink, SHRINK_US);
}

/* The first that asks for this kind of a made template. */
static void want(struct cordon_pool *pool)
{
    if (pool->wanted || pool->unisolated)
        return;
    pool->wanted = true;
    pool->target = least(pool);
    if (!pool->machine && pool->template->state == CORDON_TEMPLATE_SERVING)
        cordon_zygotes_want(pool->template, pool->kind);
}

static void rest(struct cordon_pool *pool)
{
    if (pool->failures >= BROKEN)
        pool->healthy = false;
    unsigned doublings = pool->failures < REST_DOUBLINGS ? pool->failures : REST_DOUBLINGS;
    cordon_timer_arm(&pool->warden->loop, &pool->rest, (uint64_t)REST_US << doublings);
}

/* One was handed over; see above. */
static void refill_later(struct cordon_pool *pool)
{
    if (pool->parked_count * 4 >= pool->target)
        cordon_timer_arm(&pool->warden->loop, &pool->later, pool->machine ? LATER_MACHINE_US : LATER_US);
    else
        cordon_timer_cancel(&pool->warden->loop, &pool->later);
}

/* Machines are leased in two steps, and only as the budget of all of them allows. */
static void lease_parked(struct cordon_pool *pool)
{
    while (pool->waiting && pool->parked && cordon_machine_may_lease(pool)) {
        struct cordon_acquire *acquire = pool->waiting;
        struct cordon_guest *guest = pool->parked;
        remove_waiting(pool, acquire);
        cordon_pool_unpark(pool, guest);
        cordon_machine_lease(guest, acquire);
        refill_later(pool);
    }
}

void cordon_pool_take_back(struct cordon_acquire *acquire, const char *why)
{
    struct cordon_pool *pool = acquire->pool;
    if (pool->warden->stopping || ++acquire->attempts >= ATTEMPTS) {
        cordon_peer_refuse(acquire->lease.fd, pool->warden->stopping ? -ESHUTDOWN : -EIO, why);
        cordon_pool_end_acquire(acquire);
        return;
    }
    acquire->next = pool->waiting; /* it came before all others */
    pool->waiting = acquire;
    if (!pool->waiting_last)
        pool->waiting_last = acquire;
    pool->waiting_count++;
    pool->failures++;
    (void)snprintf(pool->why, sizeof pool->why, "a machine did not take its lease: %.300s", why);
    cordon_log(CORDON_LOG_WARN, "machine did not take its lease", "why", why, NULL);
    rest(pool);
}

/* --- events --- */

void cordon_pool_acquire(struct cordon_pool *pool, const struct cordon_warden_acquire *request, int lease_take)
{
    cordon_autoclose int lease = lease_take;
    struct cordon_guest *guest = pool->waiting || pool->machine ? NULL : pool->parked;
    if (guest) {
        cordon_pool_unpark(pool, guest);
        hand_over(guest, request, lease, true);
        refill_later(pool);
        return;
    }
    want(pool);
    missed(pool);
    if (pool->warden->acquire_count >= pool->warden->waiting_max) {
        cordon_peer_refuse(lease, -EAGAIN, "too many requests wait for a guest");
        return;
    }
    cordon_autofree struct cordon_acquire *acquire = calloc(1, sizeof *acquire);
    if (!acquire) {
        cordon_peer_refuse(lease, -ENOMEM, "no memory to wait for a guest");
        return;
    }
    *acquire = (struct cordon_acquire){.warden = pool->warden,
                                       .pool = pool,
                                       .request = *request,
                                       .from_seq = pool->warden->last_seq,
                                       .ticket = pool->machine ? ++pool->warden->machines->tickets : 0,
                                       .lease = {.fd = -1, .on_event = on_given_up}};
    if (cordon_source_watch(&pool->warden->loop, &acquire->lease, CORDON_TAKE_FD(lease), EPOLLRDHUP) < 0)
        return; /* not a socket, or no memory: closing it is the answer */
    push_waiting(pool, CORDON_TAKE(acquire));
    if (pool->machine)
        lease_parked(pool);
}

/* It has its share of the budget already. Nobody waits: it ends, since what is copied starts faster, and one that is
 * booted has all its memory for itself. */
static void give_booted(struct cordon_pool *pool, struct cordon_guest *machine)
{
    struct cordon_acquire *acquire = pool->waiting;
    if (!acquire) {
        cordon_guest_destroy(machine);
        return;
    }
    remove_waiting(pool, acquire);
    cordon_machine_lease(machine, acquire);
}

void cordon_pool_on_ready(struct cordon_pool *pool, struct cordon_guest *guest)
{
    struct cordon_acquire *acquire = pool->waiting;
    if (pool->machine && guest->vm.booted) {
        give_booted(pool, guest);
        return;
    }
    if (!acquire || pool->machine) {
        park(pool, guest);
        if (pool->machine)
            lease_parked(pool);
        return;
    }
    remove_waiting(pool, acquire);
    hand_over(guest, &acquire->request, acquire->lease.fd, false);
    cordon_pool_end_acquire(acquire);
}

/* Not when it was ready: one that ends at once, parked or in its user's hands, is no proof. */
void cordon_pool_on_proven(struct cordon_pool *pool)
{
    pool->failures = 0;
    pool->healthy = true;
}

void cordon_pool_on_returned(struct cordon_pool *pool)
{
    cordon_timer_cancel(&pool->warden->loop, &pool->later);
    cordon_pool_on_proven(pool); /* it lived until its user had enough */
}

static void on_rested(struct cordon_timer *timer)
{
    (void)timer; /* the step at the end of the turn looks again */
}

/* Guests that fail together (their nursery died, say) are one attempt. */
static void count_attempt(struct cordon_pool *pool, uint64_t seq, int status)
{
    struct cordon_acquire *acquire = pool->waiting;
    if (!acquire || seq <= acquire->counted_seq || (status == -EOWNERDEAD && pool->failures < FORGIVEN))
        return;
    acquire->counted_seq = pool->warden->last_seq;
    if (++acquire->attempts >= ATTEMPTS)
        refuse_first(pool, status, pool->why);
}

void cordon_pool_on_failure(struct cordon_pool *pool, uint64_t seq, int status, const char *why)
{
    if (pool->warden->stopping)
        return;
    if (seq > pool->failed_seq) {
        pool->failures++;
        pool->failed_seq = pool->warden->last_seq;
    }
    (void)snprintf(pool->why, sizeof pool->why, "%s guests can not be made: %s", kind_names[pool->kind], why);
    if (pool->failures == 1 || !pool->rest.armed)
        cordon_log(CORDON_LOG_WARN, "guest could not be made", "kind", kind_names[pool->kind], "why", why, NULL);
    rest(pool);
    count_attempt(pool, seq, status);
}

void cordon_pool_on_parked_death(struct cordon_pool *pool)
{
    if (pool->warden->stopping)
        return;
    pool->failures++;
    (void)snprintf(pool->why, sizeof pool->why, "%s guests do not stay alive while they are parked",
                   kind_names[pool->kind]);
    cordon_log(CORDON_LOG_WARN, "parked guest ended by itself", "kind", kind_names[pool->kind], NULL);
    rest(pool);
}

/* Broken as a whole: some kind can't be made again and again, and no kind can. */
int cordon_pools_status(const struct cordon_warden *warden, char *why, size_t size)
{
    const struct cordon_pool *broken = NULL;
    for (size_t kind = 0; kind < CORDON_GUEST_KIND__COUNT; kind++) {
        const struct cordon_pool *pool = &warden->base.pools[CORDON_POOLS_PLAIN][kind];
        if (pool->healthy)
            return 0;
        if (pool->failures >= BROKEN)
            broken = pool;
    }
    if (!broken)
        return 0;
    (void)snprintf(why, size, "%s", broken->why);
    return -EAGAIN;
}

/* --- the step at the end of each turn --- */

/* All pools of all templates, one after the other. */
struct walk {
    struct cordon_template *template;
    unsigned at;
    struct cordon_machine_template *machine; /* then those of machines */
};

static struct walk walk_all(struct cordon_warden *warden)
{
    return (struct walk){&warden->base, 0, warden->machines ? warden->machines->templates : NULL};
}

static struct cordon_pool *next_pool(struct walk *walk)
{
    if (walk->at == CORDON_POOLS * CORDON_GUEST_KIND__COUNT) {
        walk->template = walk->template->next;
        walk->at = 0;
    }
    if (!walk->template) {
        struct cordon_machine_template *machine = walk->machine;
        walk->machine = machine ? machine->next : NULL;
        return machine ? &machine->pool : NULL;
    }
    unsigned at = walk->at++;
    return &walk->template->pools[at / CORDON_GUEST_KIND__COUNT][at % CORDON_GUEST_KIND__COUNT];
}

/* What they are made from is still coming: later, by itself. */
static bool can_make(struct cordon_pool *pool)
{
    if (pool->unisolated)
        return true;
    if (pool->machine)
        return cordon_machine_may_make(pool);
    if (pool->template->state != CORDON_TEMPLATE_SERVING)
        return false;
    struct cordon_zygote_place *place = cordon_zygote_place_of(pool->template, pool->kind);
    return cordon_nursery_is_there(pool->template) && (!place || place->current);
}

static unsigned making_in_all(struct cordon_warden *warden)
{
    unsigned sum = 0;
    struct walk walk = walk_all(warden);
    for (const struct cordon_pool *pool; (pool = next_pool(&walk));)
        sum += pool->making;
    return sum;
}

static unsigned parked_in_all(struct cordon_warden *warden)
{
    unsigned sum = 0;
    struct walk walk = walk_all(warden);
    for (const struct cordon_pool *pool; (pool = next_pool(&walk));)
        sum += pool->unisolated ? 0 : pool->parked_count;
    return sum;
}

/* Somebody waits and there is no slot left: a parked guest of the kind that has most gives way. False: none is. */
static bool evict_parked(struct cordon_warden *warden)
{
    struct cordon_pool *most = &warden->base.pools[CORDON_POOLS_PLAIN][0];
    struct walk walk = walk_all(warden);
    for (struct cordon_pool *pool; (pool = next_pool(&walk));)
        if (!pool->unisolated && pool->parked_count > most->parked_count)
            most = pool;
    struct cordon_guest *guest = most->parked;
    if (!guest)
        return false;
    cordon_pool_unpark(most, guest);
    cordon_guest_destroy(guest);
    return true;
}

static bool make_one(struct cordon_pool *pool)
{
    struct cordon_error err;
    int r = cordon_guest_make(pool, &err);
    if (r < 0)
        cordon_pool_on_failure(pool, pool->warden->last_seq, r, err.message);
    return r == 0;
}

static bool has_slots(const struct cordon_warden *warden)
{
    return warden->free_count || warden->empty_slots || warden->slots_used < warden->slots_max;
}

static void make_for_waiting(struct cordon_pool *pool)
{
    unsigned most = pool->warden->config.cpus * MAKING_PER_CPU, parked = pool->machine ? pool->parked_count : 0;
    while (pool->making + parked < pool->waiting_count && can_make(pool) && making_in_all(pool->warden) < most) {
        /* A slot that is on its way back is waited for. With none, the guest fails, and that says why. */
        bool none = !pool->unisolated && !has_slots(pool->warden);
        if (none && (cordon_slots_coming(pool->warden) || evict_parked(pool->warden)))
            break;
        if (!make_one(pool) && pool->rest.armed)
            break;
    }
}

/* Towards what should be parked. */
static void refill(struct cordon_pool *pool)
{
    struct cordon_warden *warden = pool->warden;
    if (pool->machine && !pool->machine->maker && pool->machine->ram < 0)
        return; /* none is booted to be parked */
    unsigned wanted =
        (pool->target || pool->failures < BROKEN || pool->network ? pool->target : 1) + pool->waiting_count;
    while (pool->parked_count + pool->making < wanted && !pool->rest.armed && !pool->later.armed &&
           (pool->machine ? cordon_machine_may_park(pool) : can_make(pool)) && making_in_all(warden) < REFILL_AT_ONCE &&
           has_slots(warden) &&
           parked_in_all(warden) < warden->slots_max / 2) /* they are not to be what others lack slots for */
        if (!make_one(pool))
            break;
}

void cordon_pools_step(struct cordon_warden *warden)
{
    bool waiting = false;
    struct walk walk = walk_all(warden), again = walk;
    for (struct cordon_pool *pool; (pool = next_pool(&walk));) {
        if (pool->machine)
            lease_parked(pool);
        if (pool->waiting && !(pool->machine && pool->rest.armed))
            make_for_waiting(pool);
        /* Those of a template that is still loading keep nobody else from being refilled. */
        waiting = waiting || (pool->making < pool->waiting_count && can_make(pool));
    }
    for (struct cordon_pool *pool; !waiting && (pool = next_pool(&again));)
        if (!pool->unisolated)
            refill(pool);
}

void cordon_pools_init(struct cordon_template *template)
{
    struct cordon_warden *warden = template->warden;
    struct walk walk = {template, 0, NULL};
    for (size_t i = 0; i < CORDON_POOLS; i++) {
        for (size_t kind = 0; kind < CORDON_GUEST_KIND__COUNT; kind++) {
            struct cordon_pool *pool = next_pool(&walk);
            *pool = (struct cordon_pool){.warden = warden,
                                         .template = template,
                                         .kind = (enum cordon_guest_kind)kind,
                                         .unisolated = i == CORDON_POOLS_UNISOLATED,
                                         .network = i == CORDON_POOLS_NETWORK};
            pool->rest.on_due = on_rested;
            pool->shrink.on_due = on_shrink;
            pool->later.on_due = on_rested;
            if (warden->local_status == 0 && (template->languages & 1u << kind) && !template->unseen[kind][0])
                pool->target = least(pool);
        }
    }
}

bool cordon_pools_wait(const struct cordon_template *template)
{
    for (size_t i = 0; i < CORDON_POOLS; i++)
        for (size_t kind = 0; kind < CORDON_GUEST_KIND__COUNT; kind++)
            if (template->pools[i][kind].waiting)
                return true;
    return false;
}

static void refuse_all(struct cordon_pool *pool, int status, const char *why)
{
    pool->target = 0;
    while (pool->waiting)
        refuse_first(pool, status, why);
}

void cordon_pools_refuse(struct cordon_template *template, enum cordon_guest_kind kind, int status, const char *why)
{
    for (size_t i = 0; i < CORDON_POOLS; i++)
        refuse_all(&template->pools[i][kind], status, why);
}

void cordon_pool_close(struct cordon_pool *pool, int status, const char *why)
{
    refuse_all(pool, status, why);
    cordon_pool_end_parked(pool);
    cordon_timer_cancel(&pool->warden->loop, &pool->rest);
    cordon_timer_cancel(&pool->warden->loop, &pool->later);
    cordon_timer_cancel(&pool->warden->loop, &pool->shrink);
}

void cordon_pools_close(struct cordon_template *template, int status, const char *why)
{
    for (size_t i = 0; i < CORDON_POOLS; i++)
        for (size_t kind = 0; kind < CORDON_GUEST_KIND__COUNT; kind++)
            cordon_pool_close(&template->pools[i][kind], status, why);
}

void cordon_pool_init_machine(struct cordon_pool *pool, struct cordon_machine_template *template,
                              enum cordon_guest_kind kind)
{
    struct cordon_warden *warden = template->warden;
    *pool = (struct cordon_pool){.warden = warden, .template = &warden->base, .machine = template, .kind = kind};
    pool->rest.on_due = on_rested;
    pool->shrink.on_due = on_shrink;
    pool->later.on_due = on_rested;
}

void cordon_pools_done(struct cordon_warden *warden)
{
    for (struct cordon_machine_template *at = warden->machines->templates; at; at = at->next)
        cordon_pool_close(&at->pool, -ESHUTDOWN, "the warden is shutting down");
    for (struct cordon_template *template = &warden->base; template; template = template->next)
        cordon_pools_close(template, -ESHUTDOWN, "the warden is shutting down");
}
