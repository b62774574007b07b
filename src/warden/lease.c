/* SPDX-License-Identifier: Apache-2.0 */
/* A guest that is ready is handed over: what its new owner gets with it, and the lease by which it is held. */
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "warden/machine.h"

#define OWN_FILES 3 /* enum cordon_cgroup_file: opened for a kept guest, closed when they were sent */

struct parcel {
    struct cordon_warden_grant grant;
    int fds[7 + CORDON_STEER_SOCKETS];
    size_t count;
};

static void add(struct parcel *parcel, int fd, uint32_t bit)
{
    if (fd < 0)
        return;
    parcel->fds[parcel->count++] = fd;
    parcel->grant.fds |= bit;
}

static void add_statistics(struct parcel *parcel, const struct cordon_guest *guest, const int own[OWN_FILES])
{
    const struct cordon_cgroup_slot *cgroup = &guest->slot->cgroup;
    if (!guest->pool->machine) { /* of a machine these are QEMU's: its agent tells what the code had */
        add(parcel, cgroup->memory_peak, CORDON_GRANT_MEMORY_PEAK);
        add(parcel, cgroup->memory_events, CORDON_GRANT_MEMORY_EVENTS);
    }
    add(parcel, cgroup->cpu_usage, CORDON_GRANT_CPU_USAGE);
    add(parcel, own[CORDON_CGROUP_MEMORY_NOW], CORDON_GRANT_MEMORY_NOW);
    add(parcel, own[CORDON_CGROUP_MEMORY_STAT], CORDON_GRANT_MEMORY_STAT);
    add(parcel, own[CORDON_CGROUP_PIDS_NOW], CORDON_GRANT_PIDS_NOW);
}

int cordon_guest_send_grant(struct cordon_guest *guest, int lease, bool warm)
{
    struct parcel parcel = {.grant = {.version = CORDON_WARDEN_VERSION,
                                      .warm = warm,
                                      .paused = guest->paused || guest->woken,
                                      .oom_kill_base = guest->oom_kill_base,
                                      .cpu_usage_base = guest->cpu_usage_base,
                                      .machine_start = guest->vm.start,
                                      .machine_lease_us = guest->vm.lease_us}};
    int own[OWN_FILES] = {-1, -1, -1};
    if (guest->pool->machine)
        parcel.grant.machine_accel = cordon_machines_accel(guest->warden->machines);
    add(&parcel, guest->channel, CORDON_GRANT_CHANNEL);
    if (guest->slot) {
        for (int file = 0; cordon_guest_is_kept(guest) && file < OWN_FILES; file++)
            own[file] = cordon_cgroup_slot_open(&guest->slot->cgroup, (enum cordon_cgroup_file)file);
        add_statistics(&parcel, guest, own);
        for (size_t i = 0; i < CORDON_STEER_SOCKETS; i++)
            add(&parcel, guest->slot->ns.steer[i], (uint32_t)CORDON_GRANT_NETWORK << i);
    }
    ssize_t sent = cordon_send_fds(lease, &parcel.grant, sizeof parcel.grant, parcel.fds, parcel.count, MSG_DONTWAIT);
    for (int file = 0; file < OWN_FILES; file++)
        cordon_close(&own[file]);
    return sent < 0 ? (int)sent : 0;
}

static void on_lease(struct cordon_source *source, uint32_t events)
{
    struct cordon_guest *guest = CORDON_OWNER(struct cordon_guest, lease, source);
    cordon_pool_on_returned(guest->pool);
    cordon_guest_destroy(guest);
}

int cordon_guest_lease(struct cordon_guest *guest, const struct cordon_warden_acquire *request, int lease, bool warm,
                       struct cordon_error *err)
{
    struct cordon_cgroup_slot *cgroup = guest->slot ? &guest->slot->cgroup : NULL;
    /* Those of a machine were set when it was ordered to run. */
    if (cgroup && !guest->pool->machine &&
        (cgroup->memory_bytes != request->memory_bytes || cgroup->pids != request->pids ||
         cgroup->cpu_percent != request->cpu_percent)) {
        int r = cordon_cgroup_slot_limit(cgroup, request->memory_bytes, request->pids, request->cpu_percent, err);
        if (r < 0)
            return r;
    }
    int r = cordon_guest_send_grant(guest, lease, warm);
    if (r < 0)
        return cordon_fail_errno(err, r, "hand a guest over");
    cordon_close(&guest->channel);
    /* A copy would keep them open when whoever serves them is gone; kept guests are handed over again, with theirs. */
    if (guest->slot && !cordon_guest_is_kept(guest))
        for (size_t i = 0; i < CORDON_STEER_SOCKETS; i++)
            cordon_close(&guest->slot->ns.steer[i]);
    cordon_timer_cancel(&guest->warden->loop, &guest->timer);
    guest->state = CORDON_GUEST_LEASED;
    guest->warden->leased_count++;
    if (cordon_guest_is_kept(guest)) {
        cordon_keep_leased(guest, request, lease);
        return 0;
    }
    guest->lease.on_event = on_lease;
    /* Its end alone: nothing is ever said on it. */
    r = cordon_source_watch(&guest->warden->loop, &guest->lease, dup(lease), EPOLLRDHUP);
    if (r < 0)
        cordon_guest_destroy(guest); /* the gateway sees the lease end */
    return 0;
}
