/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots. A slot's namespaces are made by a child process of the warden, which takes about a millisecond of which the
 * warden waits none. A slot that comes back from a guest is looked over: namespaces that the guest may have left
 * anything in are dropped, and made new when the slot is next needed; while something still lives in its cgroups it is
 * held back, for ever if need be, which is better than another guest in company.
 */
#include "warden/warden.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "isolate/root.h"

#define SPARE_SLOTS 2
#define IDLE_SLOTS 8u /* kept for long; more than that only while they are in use now and then */
#define IDLE_MOST 64u
#define TRIM_US 500000u
#define REST_US 500000u
#define SETTLE_US 40000u /* netlink sockets are counted until some RCU grace period after their end */
#define HELD_US 10000u
#define HELD_LONG_US 5000000u
#define FDS_OF_A_SLOT 16u /* with its guest, once that is made */
#define FDS_OF_MAKING 28u /* of one that is being made, or has a network, besides */
#define MAKING_PER_CPU 8u /* at once, pool.c's own with some more */
#define FDS_OF_WARDEN 512u

void cordon_slots_init(struct cordon_warden *warden)
{
    struct rlimit files = {.rlim_cur = 1024};
    (void)getrlimit(RLIMIT_NOFILE, &files); /* can't fail; 1024 is what POSIX programs may expect */
    rlim_t waiting = files.rlim_cur / 16;   /* each with a lease */
    warden->waiting_max = waiting < CORDON_WAITING_MAX ? (unsigned)waiting : CORDON_WAITING_MAX;
    rlim_t others = FDS_OF_WARDEN + warden->waiting_max;
    others += (rlim_t)FDS_OF_MAKING * MAKING_PER_CPU * warden->config.cpus;
    rlim_t most = files.rlim_cur > others + 8 * FDS_OF_A_SLOT ? (files.rlim_cur - others) / FDS_OF_A_SLOT : 8;
    warden->slots_max = most < CORDON_SLOTS_MAX ? (unsigned)most : CORDON_SLOTS_MAX;
    uint64_t ids = (UINT64_C(4294967295) - warden->config.uid_base) / 65536;
    if (warden->config.root && ids < (uint64_t)warden->slots_max + 1)
        warden->slots_max = ids > 1 ? (unsigned)ids - 1 : 0;
    for (unsigned i = 0; i < warden->slots_max; i++) {
        struct cordon_slot *slot = &warden->slots[i];
        *slot = (struct cordon_slot){.warden = warden, .index = i, .ns = CORDON_SLOTNS_NONE, .maker_sock = -1};
        slot->maker.source.fd = -1;
    }
}

static struct cordon_slotns_ids ids_of(const struct cordon_slot *slot)
{
    const struct cordon_warden_config *config = &slot->warden->config;
    bool network = slot->guest && slot->guest->pool->network;
    bool nic = network && slot->guest->pool->machine;
    bool every_port = slot->warden->abilities & CORDON_ABLE_EVERY_PORT;
    if (!config->root)
        return (struct cordon_slotns_ids){.network = network,
                                          .nic = nic,
                                          .single = true,
                                          .base = 0,
                                          .count = 1,
                                          .code_id = CORDON_CODE_UID,
                                          .cgroups = slot->cgroup.procs,
                                          .cgroup_count = slot->cgroup.procs_count};
    return (struct cordon_slotns_ids){.network = network,
                                      .every_port = every_port,
                                      .nic = nic,
                                      .owner = config->zygote_uid,
                                      .base = slot->uids,
                                      .count = CORDON_UID_RANGE,
                                      .code_id = CORDON_CODE_UID,
                                      .cgroups = slot->cgroup.procs,
                                      .cgroup_count = slot->cgroup.procs_count};
}

static _Noreturn void maker_main(const struct cordon_slotns_ids *ids, int sock)
{
    struct cordon_slotns ns = CORDON_SLOTNS_NONE;
    struct cordon_error err;
    int r = cordon_slotns_make(ids, &ns, &err);
    r = cordon_slotns_send(sock, r < 0 ? NULL : &ns, r < 0 ? &err : NULL);
    _exit(r < 0);
}

static void rest_over(struct cordon_timer *timer)
{
    (void)timer; /* its being due is all: the step at the end of the turn looks again */
}

/* An idle slot costs descriptors and kernel memory (a network namespace, cgroups): after a peak most are given back. */
static void empty(struct cordon_slot *slot)
{
    cordon_slotns_done(&slot->ns);
    if (slot->has_cgroup)
        cordon_cgroup_slot_remove(&slot->cgroup);
    slot->has_cgroup = false;
}

static struct cordon_slot *pop_free(struct cordon_warden *warden)
{
    struct cordon_slot *slot = warden->free_slots;
    if (!slot)
        return NULL;
    warden->free_slots = slot->next_free;
    warden->free_count--;
    if (warden->free_count < warden->free_least)
        warden->free_least = warden->free_count;
    return slot;
}

/* Half of those that nobody needed since the last time. */
static void on_trim(struct cordon_timer *timer)
{
    struct cordon_warden *warden = CORDON_OWNER(struct cordon_warden, trim, timer);
    unsigned excess = warden->free_least > IDLE_SLOTS ? (warden->free_least - IDLE_SLOTS + 1) / 2 : 0;
    for (; excess; excess--) {
        struct cordon_slot *slot = pop_free(warden);
        empty(slot);
        slot->state = CORDON_SLOT_EMPTY;
        slot->next_free = warden->empty_slots;
        warden->empty_slots = slot;
    }
    warden->free_least = warden->free_count;
    if (warden->free_count > IDLE_SLOTS)
        cordon_timer_arm(&warden->loop, timer, TRIM_US);
}

static void give_free(struct cordon_slot *slot)
{
    struct cordon_warden *warden = slot->warden;
    bool idle = warden->free_count >= IDLE_MOST;
    struct cordon_slot **list = idle ? &warden->empty_slots : &warden->free_slots;
    if (idle)
        empty(slot);
    slot->state = idle ? CORDON_SLOT_EMPTY : CORDON_SLOT_FREE;
    slot->guest = NULL;
    slot->next_free = *list;
    *list = slot;
    warden->free_count += !idle;
    warden->trim.on_due = on_trim;
    if (warden->free_count > IDLE_SLOTS && !warden->trim.armed)
        cordon_timer_arm(&warden->loop, &warden->trim, TRIM_US);
}

static void give_to(struct cordon_slot *slot, struct cordon_guest *guest)
{
    slot->state = CORDON_SLOT_USED;
    slot->guest = guest;
    guest->slot = slot;
}

static int ensure_cgroup(struct cordon_slot *slot, struct cordon_error *err)
{
    const struct cordon_warden_config *config = &slot->warden->config;
    if (slot->has_cgroup)
        return cordon_cgroup_slot_unsettle(&slot->cgroup, err);
    int r = cordon_cgroup_slot_make(slot->warden->cgroups, slot->index, &slot->cgroup, err);
    if (r < 0)
        return r;
    slot->has_cgroup = true;
    return cordon_cgroup_slot_limit(&slot->cgroup, config->memory_bytes, config->pids, config->cpu_percent, err);
}

static void made(struct cordon_slot *slot, const struct cordon_error *failed)
{
    struct cordon_warden *warden = slot->warden;
    struct cordon_guest *guest = slot->guest;
    if (!guest)
        warden->spare_making--;
    if (failed && warden->slot_failures++ > 0)
        cordon_timer_arm(&warden->loop, &warden->slot_rest, REST_US);
    if (!failed)
        warden->slot_failures = 0;
    if (!guest && slot->ns.network)
        cordon_slotns_done(&slot->ns); /* whoever it was made for is gone */
    if (!failed && guest) {
        give_to(slot, guest);
    } else {
        if (guest)
            guest->slot = NULL;
        give_free(slot);
    }
    if (guest)
        cordon_guest_on_slot(guest, failed);
    else if (failed)
        cordon_log_error("a slot could not be made", failed);
}

static void on_maker(struct cordon_child *child, int status)
{
    struct cordon_slot *slot = CORDON_OWNER(struct cordon_slot, maker, child);
    struct cordon_error err;
    int r = cordon_slotns_receive(slot->maker_sock, &slot->ns, &err);
    if (r < 0)
        cordon_error_context(&err, "make slot %u", slot->index);
    else
        cordon_cgroup_slot_settle(&slot->cgroup);
    cordon_close(&slot->maker_sock);
    cordon_source_close(&slot->warden->loop, &child->source);
    made(slot, r < 0 ? &err : NULL);
}

static int start_maker(struct cordon_slot *slot, struct cordon_error *err)
{
    struct cordon_warden *warden = slot->warden;
    int pair[2], keep[1 + sizeof slot->cgroup.procs / sizeof *slot->cgroup.procs];
    int r = ensure_cgroup(slot, err);
    if (r == 0 && warden->config.root && slot->uids == 0)
        r = cordon_uids_take(warden, &slot->uids, err);
    if (r < 0)
        return r;
    const struct cordon_slotns_ids ids = ids_of(slot);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return cordon_fail_errno(err, -errno, "make a socket for slot %u", slot->index);
    keep[0] = pair[1];
    memcpy(keep + 1, ids.cgroups, ids.cgroup_count * sizeof *keep);
    pid_t pid = cordon_process_fork(keep, 1 + ids.cgroup_count);
    if (pid == 0)
        maker_main(&ids, pair[1]);
    (void)close(pair[1]); /* the child's */
    slot->maker_sock = pair[0];
    slot->maker.on_exit = on_maker;
    r = pid < 0 ? pid : cordon_child_watch(&warden->loop, &slot->maker, pid);
    if (r < 0) {
        cordon_close(&slot->maker_sock);
        return cordon_fail_errno(err, r, "start a process to make slot %u", slot->index);
    }
    slot->state = CORDON_SLOT_MAKING;
    return 0;
}

static struct cordon_slot *pick_empty(struct cordon_warden *warden)
{
    struct cordon_slot *slot = warden->empty_slots;
    if (slot) {
        warden->empty_slots = slot->next_free;
        return slot;
    }
    return warden->slots_used < warden->slots_max ? &warden->slots[warden->slots_used++] : NULL;
}

static struct cordon_slot *pick(struct cordon_warden *warden)
{
    struct cordon_slot *slot = pop_free(warden);
    return slot ? slot : pick_empty(warden);
}

/* Namespaces with sockets are made for one guest; those without are kept for others as long as there is another slot.
 */
static struct cordon_slot *pick_for_network(struct cordon_warden *warden)
{
    struct cordon_slot *slot = warden->free_slots && warden->free_slots->ns.user < 0 ? pop_free(warden) : NULL;
    if (!slot)
        slot = pick_empty(warden);
    if (!slot)
        slot = pop_free(warden);
    if (slot)
        cordon_slotns_done(&slot->ns);
    return slot;
}

int cordon_slot_take(struct cordon_warden *warden, struct cordon_guest *guest, struct cordon_error *err)
{
    struct cordon_slot *slot = guest->pool->network ? pick_for_network(warden) : pick(warden);
    if (!slot)
        return cordon_fail(err, -EAGAIN, CORDON_ERROR_UNAVAILABLE,
                           "all %u guests that this host can hold are in use (by uids and open files)",
                           warden->slots_max);
    if (slot->ns.user >= 0) {
        give_to(slot, guest);
        return 1;
    }
    slot->guest = guest;
    guest->slot = slot;
    int r = start_maker(slot, err);
    if (r < 0) {
        guest->slot = NULL;
        give_free(slot);
    }
    return r;
}

void cordon_slot_leave(struct cordon_slot *slot, struct cordon_guest *guest)
{
    if (slot->guest != guest || slot->state != CORDON_SLOT_MAKING)
        return;
    slot->guest = NULL;
    slot->warden->spare_making++; /* it will be a spare one */
}

static void on_again(struct cordon_timer *timer)
{
    cordon_slot_release(CORDON_OWNER(struct cordon_slot, again, timer));
}

static void look_again(struct cordon_slot *slot, uint64_t delay_us)
{
    slot->state = CORDON_SLOT_HELD;
    slot->guest = NULL;
    slot->again.on_due = on_again;
    cordon_timer_arm(&slot->warden->loop, &slot->again, delay_us);
}

/* For instance a step of a zygote that was killed itself: it ends soon. What never ends costs this slot. */
static void hold(struct cordon_slot *slot)
{
    uint64_t now = cordon_now_us();
    if (slot->state != CORDON_SLOT_HELD)
        slot->held_us = now;
    else if (slot->held_us && now - slot->held_us > HELD_LONG_US) {
        cordon_log(CORDON_LOG_ERROR, "slot out of use: processes of its guest do not end", "slot",
                   CORDON_NUM(slot->index), NULL);
        slot->held_us = 0; /* said once */
    }
    look_again(slot, slot->held_us ? HELD_US : HELD_LONG_US);
}

void cordon_slot_release(struct cordon_slot *slot)
{
    unsigned made = slot->cgroup.made;
    if (slot->has_cgroup && !cordon_cgroup_slot_recycle(&slot->cgroup)) {
        hold(slot);
        return;
    }
    if (made != slot->cgroup.made) /* the cgroup namespace is one of the old groups */
        cordon_slotns_done(&slot->ns);
    if (slot->ns.user >= 0 && !cordon_slotns_clean(&slot->ns)) {
        if (!slot->suspect && !slot->ns.network) {
            slot->suspect = true;
            look_again(slot, SETTLE_US);
            return;
        }
        cordon_slotns_done(&slot->ns);
    }
    slot->suspect = false;
    give_free(slot);
}

bool cordon_slots_coming(const struct cordon_warden *warden)
{
    for (unsigned i = 0; i < warden->slots_used; i++) {
        const struct cordon_slot *slot = &warden->slots[i];
        bool held = slot->state == CORDON_SLOT_HELD && (slot->suspect || slot->held_us);
        bool spare = slot->state == CORDON_SLOT_MAKING && !slot->guest;
        bool dying = slot->state == CORDON_SLOT_USED && slot->guest->state == CORDON_GUEST_DYING;
        if (held || spare || dying)
            return true;
    }
    return false;
}

void cordon_slots_step(struct cordon_warden *warden)
{
    unsigned ready = warden->spare_making;
    warden->slot_rest.on_due = rest_over;
    for (struct cordon_slot *slot = warden->free_slots; slot && ready < SPARE_SLOTS; slot = slot->next_free)
        ready += slot->ns.user >= 0;
    if (ready >= SPARE_SLOTS || warden->config.oneshot || warden->local_status < 0 || warden->slot_rest.armed)
        return;
    struct cordon_slot *slot = pick(warden);
    struct cordon_error err;
    if (!slot)
        return;
    if (start_maker(slot, &err) < 0) {
        cordon_log_error("a slot could not be made", &err);
        cordon_timer_arm(&warden->loop, &warden->slot_rest, REST_US);
        give_free(slot);
        return;
    }
    warden->spare_making++;
}

void cordon_slots_done(struct cordon_warden *warden)
{
    cordon_timer_cancel(&warden->loop, &warden->trim);
    for (unsigned i = 0; i < warden->slots_used; i++) {
        struct cordon_slot *slot = &warden->slots[i];
        cordon_timer_cancel(&warden->loop, &slot->again);
        cordon_child_kill(&slot->maker);
        cordon_source_close(&warden->loop, &slot->maker.source);
        cordon_close(&slot->maker_sock);
        empty(slot);
    }
}
