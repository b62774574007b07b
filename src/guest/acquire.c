/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Getting a guest. The wait is bounded, and ends at once when the client leaves. A warden that dies meanwhile had not
 * yet started anything, so the next one is asked, within the same bound.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "core/template.h"
#include "guest/internal.h"

#define GRANT_FDS (7 + CORDON_GRANT_NETWORK_SOCKETS)
#define PAUSE_US 5000u

void cordon_lease_close(struct cordon_lease *lease)
{
    cordon_close(&lease->lease);
    cordon_close(&lease->channel);
    cordon_close(&lease->memory_peak);
    cordon_close(&lease->memory_events);
    cordon_close(&lease->cpu_usage);
    cordon_close(&lease->memory_now);
    cordon_close(&lease->memory_stat);
    cordon_close(&lease->pids_now);
    for (size_t i = 0; i < CORDON_GRANT_NETWORK_SOCKETS; i++)
        cordon_close(&lease->network[i]);
}

/* Waits for fd: 1 when it is readable or at its end, 0 when the time is over, -ECANCELED when the client left. */
static int wait_for(int fd, int cancel_fd, uint64_t until_us)
{
    for (;;) {
        uint64_t now = cordon_now_us();
        struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = cancel_fd, .events = POLLRDHUP}};
        if (now >= until_us)
            return 0;
        int n = poll(fds, 2, (int)((until_us - now) / 1000 + 1));
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0 && fds[1].revents)
            return -ECANCELED;
        if (n > 0 && fds[0].revents)
            return 1;
    }
}

static int ask(const struct cordon_warden_acquire *wanted, int *lease)
{
    cordon_autoclose int warden = cordon_warden_dup();
    int pair[2];
    if (warden < 0)
        return warden;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    ssize_t n = cordon_send_fds(warden, wanted, sizeof *wanted, &pair[1], 1, 0);
    cordon_close(&pair[1]);
    if (n < 0) {
        cordon_close(&pair[0]);
        return n == -EPIPE || n == -ECONNRESET ? -ENOTCONN : (int)n;
    }
    *lease = pair[0];
    return 0;
}

static int refused(const struct cordon_warden_grant *grant, struct cordon_error *err)
{
    if (grant->status == -ESRCH)
        return cordon_fail(err, -ESRCH, CORDON_ERROR_GONE, "the guest is no more: its warden does not know it");
    bool busy = grant->status == -EAGAIN || grant->status == -EBUSY;
    if (grant->status == -ENXIO) /* no template of that name */
        return cordon_fail(err, grant->status, CORDON_ERROR_NOT_FOUND, "%.400s", grant->why);
    return cordon_fail(err, grant->status, busy ? CORDON_ERROR_BUSY : CORDON_ERROR_UNAVAILABLE,
                       "no guest could be had: %.400s", grant->why);
}

/* Sorts the grant's descriptors to their places; all of them are taken. */
static int take_grant(struct cordon_warden_grant *grant, ssize_t size, int *fds, size_t nfds, struct cordon_lease *ret,
                      struct cordon_error *err)
{
    int *const places[GRANT_FDS] = {&ret->channel,    &ret->memory_peak, &ret->memory_events, &ret->cpu_usage,
                                    &ret->memory_now, &ret->memory_stat, &ret->pids_now,      &ret->network[0],
                                    &ret->network[1], &ret->network[2],  &ret->network[3],    &ret->network[4],
                                    &ret->network[5]};
    size_t used = 0;
    bool whole = size == (ssize_t)sizeof *grant && grant->version == CORDON_WARDEN_VERSION;
    grant->why[sizeof grant->why - 1] = '\0';
    for (size_t i = 0; whole && i < GRANT_FDS; i++) {
        if (!(grant->fds & 1u << i) || used >= nfds)
            continue;
        *places[i] = CORDON_TAKE_FD(fds[used]);
        used++;
    }
    for (size_t i = 0; i < nfds; i++)
        cordon_close(&fds[i]);
    if (!whole)
        return cordon_fail(err, -EPROTO, CORDON_ERROR_INFRASTRUCTURE,
                           "the warden answered what is no grant (%zd bytes)", size);
    if (grant->status < 0)
        return refused(grant, err);
    if (ret->channel < 0)
        return cordon_fail(err, -EPROTO, CORDON_ERROR_INFRASTRUCTURE, "the warden granted a guest without its channel");
    ret->oom_kill_base = grant->oom_kill_base;
    ret->cpu_usage_base = grant->cpu_usage_base;
    ret->warm = grant->warm == 1;
    ret->paused = grant->paused == 1;
    ret->machine_start = grant->machine_start;
    ret->machine_accel = grant->machine_accel;
    return 0;
}

bool cordon_lease_last_word(const struct cordon_lease *lease, char *to, size_t size)
{
    struct cordon_lease_end end;
    *to = '\0';
    ssize_t n = lease->lease < 0 ? -1 : cordon_recv_fds(lease->lease, &end, sizeof end, NULL, NULL, MSG_DONTWAIT);
    if (n != (ssize_t)sizeof end || end.version != CORDON_WARDEN_VERSION || end.ended != CORDON_LEASE_ENDED)
        return false;
    end.why[sizeof end.why - 1] = '\0';
    (void)snprintf(to, size, "%s", end.why); /* cut at its size */
    return true;
}

enum cordon_isolation cordon_lease_isolation(const struct cordon_lease *lease)
{
    return lease->machine_accel == CORDON_MACHINE_KVM ? CORDON_ISOLATION_HARDWARE_VIRTUALIZED
                                                      : CORDON_ISOLATION_SOFTWARE_EMULATED;
}

const char *cordon_lease_accelerator(const struct cordon_lease *lease)
{
    if (lease->machine_accel == CORDON_MACHINE_KVM)
        return "kvm";
    return lease->machine_accel == CORDON_MACHINE_TCG ? "tcg" : "";
}

/* -ENOTCONN: this warden is gone. */
static int receive(struct cordon_lease *ret, struct cordon_error *err)
{
    struct cordon_warden_grant grant = {0};
    int fds[GRANT_FDS];
    size_t nfds = GRANT_FDS;
    for (size_t i = 0; i < nfds; i++)
        fds[i] = -1;
    ssize_t n = cordon_recv_fds(ret->lease, &grant, sizeof grant, fds, &nfds, 0);
    if (n == 0 || n == -ECONNRESET)
        return -ENOTCONN;
    if (n < 0)
        return cordon_fail_errno(err, (int)n, "receiving a guest of the warden");
    return take_grant(&grant, n, fds, nfds, ret, err);
}

/* One wait for all attempts. */
struct patience {
    uint64_t until_us;
    unsigned seconds;
    bool machine;
};

static struct patience begin_patience(bool machine)
{
    uint64_t us = cordon_warden_start_us();
    if (machine && us < CORDON_MACHINE_ACQUIRE_US)
        us = CORDON_MACHINE_ACQUIRE_US;
    return (struct patience){cordon_now_us() + us, (unsigned)(us / 1000000), machine};
}

static int gave_up(int r, const struct patience *patience, struct cordon_error *err)
{
    if (r == -ECANCELED)
        return cordon_fail(err, r, CORDON_ERROR_CANCELLED, "the client left before its program was started");
    if (r == 0 && patience->machine)
        return cordon_fail(err, -ETIMEDOUT, CORDON_ERROR_BUSY,
                           "no virtual machine was ready within %u s: all that the budget allows are in use "
                           "(CORDON_VM_MEMORY_BUDGET_MB, CORDON_VM_CPU_BUDGET_PERCENT), or the host is overloaded; "
                           "try again later",
                           patience->seconds);
    if (r == 0)
        return cordon_fail(err, -ETIMEDOUT, CORDON_ERROR_UNAVAILABLE,
                           "no guest was ready within %u s: the host may be overloaded, CORDON_PIDS too few for the "
                           "interpreter, or a large template is still "
                           "being loaded; on a slow host raise CORDON_GUEST_START_S",
                           patience->seconds);
    return cordon_fail_errno(err, r, "waiting for a guest");
}

int cordon_warden_look(struct cordon_error *err)
{
    /* The least that is not refused: nothing is made. */
    const struct cordon_warden_acquire wanted = {.version = CORDON_WARDEN_VERSION,
                                                 .machine = CORDON_MACHINE_LOOK,
                                                 .cpu_percent = 1,
                                                 .pids = 2,
                                                 .memory_bytes = 4u << 20,
                                                 .template_name = CORDON_TEMPLATE_DEFAULT};
    cordon_autoclose int lease = -1;
    struct cordon_warden_grant grant;
    int r = ask(&wanted, &lease);
    if (r == 0)
        r = wait_for(lease, -1, cordon_now_us() + cordon_warden_start_us());
    ssize_t n = r == 1 ? cordon_recv_fds(lease, &grant, sizeof grant, NULL, NULL, MSG_DONTWAIT) : 0;
    if (n != (ssize_t)sizeof grant || grant.version != CORDON_WARDEN_VERSION)
        return cordon_fail(err, -ENOTCONN, CORDON_ERROR_UNAVAILABLE,
                           "the warden does not say whether virtual machines can be made here");
    grant.why[sizeof grant.why - 1] = '\0';
    return grant.status == 0 ? 0
                             : cordon_fail(err, grant.status, CORDON_ERROR_UNAVAILABLE,
                                           "the backend exec-sandbox can't run here: %.400s", grant.why);
}

static int ask_and_wait(const struct cordon_warden_acquire *wanted, int cancel_fd, const struct patience *patience,
                        struct cordon_lease *lease, struct cordon_error *err)
{
    int r = ask(wanted, &lease->lease);
    if (r == -ENOTCONN)
        return r;
    if (r < 0)
        return cordon_fail_errno(err, r, "asking the warden for a guest");
    r = wait_for(lease->lease, cancel_fd, patience->until_us);
    return r == 1 ? receive(lease, err) : gave_up(r, patience, err);
}

int cordon_lease_open(const struct cordon_warden_acquire *wanted, int cancel_fd, struct cordon_lease *ret,
                      struct cordon_error *err)
{
    const struct patience patience = begin_patience(wanted->machine != 0);
    for (;;) {
        struct cordon_lease lease = CORDON_LEASE_NONE;
        int r = ask_and_wait(wanted, cancel_fd, &patience, &lease, err);
        if (r == 0) {
            *ret = lease;
            return 0;
        }
        cordon_lease_close(&lease);
        if (r != -ENOTCONN)
            return r;
        /* One that is there but has no descriptor for a lease closes it: it is not to be asked without a pause. */
        r = wait_for(-1, cancel_fd, cordon_now_us() + PAUSE_US);
        if (r < 0)
            return gave_up(r, &patience, err);
        cordon_autoclose int arrival = cordon_warden_arrival();
        if (arrival < 0)
            return cordon_fail_errno(err, arrival, "waiting for the warden");
        r = wait_for(arrival, cancel_fd, patience.until_us);
        if (r == 0)
            return cordon_fail(err, -ENOTCONN, CORDON_ERROR_UNAVAILABLE,
                               "there is no warden: it ended, and no new one was ready within %u s", patience.seconds);
        if (r < 0)
            return gave_up(r, &patience, err);
    }
}
