/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kept guests at the warden: what is said over their leases, freezing, and what becomes of one whose gateway is lost.
 *
 * A kept guest has a control socket, over which its agent gets a new channel for each gateway that adopts it. Its lease
 * is closed only when nothing of it is left, so that a gateway that ordered its end sees when that is.
 */
#include "warden/machine.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#define FREEZE_US 2000000u
#define LOOK_US 500u
#define WOKEN_US 5000000u /* from the end of one try to adopt a paused machine to the next one */

static void answer(struct cordon_guest *guest, uint32_t seq, int status)
{
    const struct cordon_lease_answer answer = {.version = CORDON_WARDEN_VERSION, .seq = seq, .status = status};
    if (guest->lease.watched)
        (void)cordon_send_fds(guest->lease.fd, &answer, sizeof answer, NULL, 0, MSG_DONTWAIT); /* gone: nobody waits */
}

void cordon_keep_answer(struct cordon_guest *guest, uint32_t seq, int status)
{
    answer(guest, seq, status);
}

/* A machine stands still as a whole: its vmm is told. */
static bool order_machine(struct cordon_guest *guest, enum cordon_vmm_verb verb, uint32_t seq)
{
    if (!guest->pool->machine)
        return false;
    int r = guest->paused == (verb == CORDON_VMM_PAUSE) ? 1 : cordon_machine_order(guest, verb, seq, -1);
    if (r >= 0 && verb == CORDON_VMM_RESUME)
        guest->woken = false; /* it may run on */
    if (r != 0)
        answer(guest, seq, r < 0 ? r : 0);
    return true;
}

/* --- freezing --- */

static void look(struct cordon_guest *guest)
{
    int frozen = cordon_cgroup_freezer_frozen(&guest->freezer);
    if (frozen == 0 && cordon_now_us() < guest->pause_until_us) {
        cordon_timer_arm(&guest->warden->loop, &guest->freeze, LOOK_US);
        return;
    }
    uint32_t seq = guest->pause_seq;
    guest->pause_seq = 0;
    guest->paused = frozen == 1;
    if (!guest->paused)
        (void)cordon_cgroup_freezer_set(&guest->freezer, false); /* half frozen is worse than running */
    answer(guest, seq, frozen == 1 ? 0 : frozen < 0 ? frozen : -EBUSY);
}

static void on_freeze(struct cordon_timer *timer)
{
    struct cordon_guest *guest = CORDON_OWNER(struct cordon_guest, freeze, timer);
    if (guest->pause_seq)
        look(guest);
}

/* --- a machine that is paused, and runs for the moment in which it is adopted --- */

static void on_woken(struct cordon_timer *timer);

static void expect_pause(struct cordon_guest *guest)
{
    if (!guest->woken)
        return;
    guest->freeze.on_due = on_woken;
    cordon_timer_arm(&guest->warden->loop, &guest->freeze, WOKEN_US);
}

/* Its gateway did not get to pause it again, and none came back. */
static void on_woken(struct cordon_timer *timer)
{
    struct cordon_guest *guest = CORDON_OWNER(struct cordon_guest, freeze, timer);
    if (guest->state != CORDON_GUEST_LEASED || guest->lease.watched || !guest->woken)
        return;
    int r = cordon_machine_order(guest, CORDON_VMM_PAUSE, 0, -1);
    if (r == -EBUSY) /* with what somebody ordered */
        expect_pause(guest);
    else if (r < 0)
        cordon_log(CORDON_LOG_WARN, "a machine that was woken to be adopted could not be paused again", "guest",
                   guest->id, "error", strerror(-r), NULL);
}

static void pause_guest(struct cordon_guest *guest, uint32_t seq)
{
    if (order_machine(guest, CORDON_VMM_PAUSE, seq))
        return;
    if (guest->pause_seq) {
        answer(guest, seq, -EBUSY);
        return;
    }
    int r = guest->paused ? 1 : cordon_cgroup_freezer_set(&guest->freezer, true);
    if (r != 0) {
        answer(guest, seq, r < 0 ? r : 0);
        return;
    }
    guest->pause_seq = seq;
    guest->pause_until_us = cordon_now_us() + FREEZE_US;
    look(guest);
}

static void resume_guest(struct cordon_guest *guest, uint32_t seq)
{
    if (order_machine(guest, CORDON_VMM_RESUME, seq))
        return;
    if (guest->pause_seq) {
        answer(guest, seq, -EBUSY);
        return;
    }
    int r = guest->paused ? cordon_cgroup_freezer_set(&guest->freezer, false) : 0;
    guest->paused = guest->paused && r < 0;
    answer(guest, seq, r);
}

/* --- the lease --- */

static void on_orphan(struct cordon_timer *timer)
{
    struct cordon_guest *guest = CORDON_OWNER(struct cordon_guest, timer, timer);
    if (guest->state != CORDON_GUEST_LEASED || guest->lease.watched)
        return;
    cordon_log(CORDON_LOG_WARN, "kept guest destroyed: no gateway adopted it", "guest", guest->id, NULL);
    cordon_guest_destroy(guest);
}

static void lose_gateway(struct cordon_guest *guest)
{
    cordon_source_close(&guest->warden->loop, &guest->lease);
    if (guest->state != CORDON_GUEST_LEASED)
        return;
    guest->timer.on_due = on_orphan;
    cordon_timer_arm(&guest->warden->loop, &guest->timer, guest->warden->config.orphan_us);
    expect_pause(guest);
}

static void handle(struct cordon_guest *guest, const struct cordon_lease_request *request)
{
    if (guest->state != CORDON_GUEST_LEASED)
        return;
    switch (request->verb) {
    case CORDON_LEASE_PAUSE:
        pause_guest(guest, request->seq);
        return;
    case CORDON_LEASE_RESUME:
        resume_guest(guest, request->seq);
        return;
    case CORDON_LEASE_DESTROY:
        guest->ordered = true;
        cordon_pool_on_returned(guest->pool);
        cordon_guest_destroy(guest); /* which may free it */
        return;
    default:
        answer(guest, request->seq, -EINVAL);
    }
}

static void on_lease(struct cordon_source *source, uint32_t events)
{
    struct cordon_guest *guest = CORDON_OWNER(struct cordon_guest, lease, source);
    struct cordon_lease_request request;
    (void)events;
    ssize_t n = cordon_recv_fds(source->fd, &request, sizeof request, NULL, NULL, MSG_DONTWAIT);
    if (n == -EAGAIN)
        return;
    if (n == (ssize_t)sizeof request && request.version == CORDON_WARDEN_VERSION && request.seq)
        handle(guest, &request);
    else if (n <= 0 && n != -EMSGSIZE)
        lose_gateway(guest);
}

static int watch_lease(struct cordon_guest *guest, int lease)
{
    cordon_source_close(&guest->warden->loop, &guest->lease); /* of an earlier gateway, which is told by its end */
    guest->lease.on_event = on_lease;
    return cordon_source_watch(&guest->warden->loop, &guest->lease, dup(lease), EPOLLIN | EPOLLRDHUP);
}

void cordon_keep_leased(struct cordon_guest *guest, const struct cordon_warden_acquire *request, int lease)
{
    memcpy(guest->id, request->id, sizeof guest->id);
    if (watch_lease(guest, lease) < 0)
        cordon_guest_destroy(guest); /* the gateway sees the lease end */
}

/* --- adoption --- */

static struct cordon_guest *find(struct cordon_warden *warden, const char *id)
{
    for (struct cordon_guest *guest = warden->guests; guest; guest = guest->next)
        if (guest->state == CORDON_GUEST_LEASED && memcmp(guest->id, id, sizeof guest->id) == 0)
            return guest;
    return NULL;
}

static int bring_channel(struct cordon_guest *guest)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    ssize_t n = guest->pool->machine ? cordon_machine_order(guest, CORDON_VMM_CHANNEL_NEW, 0, pair[1])
                                     : cordon_send_fds(guest->control, "C", 1, &pair[1], 1, MSG_DONTWAIT);
    (void)close(pair[1]); /* the agent's */
    cordon_close(&guest->channel);
    guest->channel = pair[0];
    return n < 0 ? (int)n : 0;
}

static int hand_over(struct cordon_guest *guest, int lease)
{
    int r = cordon_guest_send_grant(guest, lease, false);
    cordon_close(&guest->channel);
    if (r < 0)
        return r;
    cordon_timer_cancel(&guest->warden->loop, &guest->timer);
    if (watch_lease(guest, lease) < 0)
        lose_gateway(guest);
    return 0;
}

void cordon_keep_adopted(struct cordon_guest *guest, int status)
{
    cordon_autoclose int lease = CORDON_TAKE_FD(guest->vm.adopter);
    guest->woken = guest->woken || guest->paused; /* its channel was changed, for which it has to run */
    guest->paused = false;
    expect_pause(guest);
    if (lease < 0)
        return;
    int r = status < 0 ? status : hand_over(guest, lease);
    if (r < 0)
        cordon_peer_refuse(lease, r, "the machine could not be handed over");
}

void cordon_keep_adopt(struct cordon_warden *warden, const struct cordon_warden_acquire *request, int lease_take)
{
    cordon_autoclose int lease = lease_take;
    struct cordon_guest *guest = find(warden, request->id);
    if (!guest || (guest->pool->machine != NULL) != request->machine) {
        cordon_peer_refuse(lease, -ESRCH, "there is no such guest");
        return;
    }
    int r = bring_channel(guest);
    if (r == 0 && guest->pool->machine) {
        cordon_close(&guest->vm.adopter);
        guest->vm.adopter = CORDON_TAKE_FD(lease); /* answered when QEMU has the channel */
        return;
    }
    if (r == 0)
        r = hand_over(guest, lease);
    if (r < 0)
        cordon_peer_refuse(lease, r, "the guest could not be handed over");
}

/* --- being made, and the end --- */

int cordon_keep_prepare(struct cordon_guest *guest, int *agent_end, struct cordon_error *err)
{
    int pair[2];
    guest->freeze.on_due = on_freeze;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return cordon_fail_errno(err, -errno, "make a guest's control socket");
    guest->control = pair[0];
    *agent_end = pair[1];
    return cordon_cgroup_freezer_make(&guest->slot->cgroup, &guest->freezer, err);
}

void cordon_keep_dying(struct cordon_guest *guest)
{
    cordon_timer_cancel(&guest->warden->loop, &guest->freeze);
    guest->pause_seq = 0;
    guest->paused = guest->woken = false;
    if (guest->freezer.root)
        (void)cordon_cgroup_freezer_set(&guest->freezer, false); /* on v1 what is frozen does not die */
    cordon_close(&guest->control);
}

void cordon_keep_done(struct cordon_guest *guest)
{
    cordon_cgroup_freezer_done(&guest->freezer);
    cordon_source_close(&guest->warden->loop, &guest->lease);
}
