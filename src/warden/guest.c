/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest's life: SLOT, AGENT, INTERPRETER, READY, LEASED, DYING. Whatever happens in whatever order (an answer for a
 * guest that is being destroyed, a death before the answer, a ready pipe that ends first), a guest is freed, and its
 * slot looked over, only when its process 1 is dead and neither nursery nor zygote still owe an answer that names it:
 * until then a process on its way may hold the slot's namespaces and cgroups.
 */
#include "warden/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/nursery.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/sys.h"

#define MAKING_STARTS 3u /* times CORDON_GUEST_START_S: somebody else may still wait for it */
#define DYING_US 5000000u
#define PROVEN_US 500000u

enum { END_DRIVER, END_READY, END_STDIN, END_STDOUT, END_STDERR };

static void maybe_free(struct cordon_guest *guest);

/* --- the list of all --- */

static void link_guest(struct cordon_guest *guest)
{
    struct cordon_warden *warden = guest->warden;
    guest->previous = warden->guests_last;
    if (guest->previous)
        guest->previous->next = guest;
    else
        warden->guests = guest;
    warden->guests_last = guest;
    warden->guest_count++;
    guest->pool->template->guests++;
}

static void unlink_guest(struct cordon_guest *guest)
{
    struct cordon_warden *warden = guest->warden;
    if (guest->previous)
        guest->previous->next = guest->next;
    else
        warden->guests = guest->next;
    if (guest->next)
        guest->next->previous = guest->previous;
    else
        warden->guests_last = guest->previous;
    warden->guest_count--;
    guest->pool->template->guests--;
}

struct cordon_guest *cordon_guest_find(struct cordon_warden *warden, uint64_t seq)
{
    struct cordon_guest *guest = warden->guests_last;
    while (guest && guest->seq != seq)
        guest = guest->previous;
    return guest;
}

/* --- the end --- */

static void close_all(struct cordon_guest *guest)
{
    struct cordon_loop *loop = &guest->warden->loop;
    cordon_timer_cancel(loop, &guest->timer);
    cordon_machine_dying(guest);
    cordon_source_close(loop, &guest->ready);
    if (!cordon_guest_is_kept(guest)) /* its lease ends when nothing of it is left */
        cordon_source_close(loop, &guest->lease);
    cordon_close(&guest->channel);
    for (size_t i = 0; i < CORDON_GUEST_NAMESPACES; i++)
        cordon_close(&guest->namespaces[i]);
    for (size_t i = 0; i < sizeof guest->ends / sizeof *guest->ends; i++)
        cordon_close(&guest->ends[i]);
}

static void kill_guest(struct cordon_guest *guest)
{
    if (guest->death.watched)
        (void)cordon_pidfd_kill(guest->death.fd, SIGKILL); /* dead already: its event is under way */
    /* A plain agent has to end the code's processes itself; it does when its channel ends, which it has. */
    if (!guest->bare_plain)
        cordon_child_kill(&guest->bare);
}

static void on_slow_death(struct cordon_timer *timer)
{
    struct cordon_guest *guest = CORDON_OWNER(struct cordon_guest, timer, timer);
    cordon_log(CORDON_LOG_ERROR, "guest does not end; its slot stays out of use until it does", "guest",
               CORDON_NUM(guest->seq), "slot", CORDON_NUM(guest->slot ? (long long)guest->slot->index : -1),
               "waits_for",
               guest->at_nursery  ? "nursery"
               : guest->at_zygote ? "zygote"
                                  : "process 1",
               NULL);
    /* One that owes an answer for so long will not give it. Its end answers for all. */
    if (guest->at_nursery)
        cordon_child_kill(&guest->pool->template->nursery.child);
    else if (guest->at_zygote)
        cordon_zygote_end(guest->zygote);
    kill_guest(guest);
    cordon_child_kill(&guest->bare);
}

void cordon_guest_destroy(struct cordon_guest *guest)
{
    if (guest->state == CORDON_GUEST_DYING)
        return;
    if (guest->state == CORDON_GUEST_LEASED)
        guest->warden->leased_count--;
    if (guest->slot && guest->state == CORDON_GUEST_SLOT) {
        cordon_slot_leave(guest->slot, guest);
        guest->slot = NULL;
    }
    guest->state = CORDON_GUEST_DYING;
    close_all(guest);
    cordon_keep_dying(guest);
    kill_guest(guest);
    guest->timer.on_due = on_slow_death;
    cordon_timer_arm(&guest->warden->loop, &guest->timer, DYING_US);
    maybe_free(guest);
}

static void maybe_free(struct cordon_guest *guest)
{
    if (guest->alive || guest->at_nursery || guest->at_zygote)
        return;
    struct cordon_warden *warden = guest->warden;
    close_all(guest);
    cordon_source_close(&warden->loop, &guest->death);
    cordon_keep_done(guest);
    if (guest->slot)
        cordon_slot_release(guest->slot);
    if (guest->bare_folder)
        cordon_bare_remove_folder(warden, CORDON_TAKE(guest->bare_folder));
    unlink_guest(guest);
    free(guest);
}

void cordon_guest_fail(struct cordon_guest *guest, int status, const char *fmt, ...)
{
    struct cordon_pool *pool = guest->pool;
    uint64_t seq = guest->seq;
    char why[300];
    va_list ap;
    if (guest->state >= CORDON_GUEST_READY)
        return;
    if (guest->vm.builds) {
        va_start(ap, fmt);
        (void)vsnprintf(why, sizeof why, fmt, ap); /* cut at its size */
        va_end(ap);
        cordon_machine_built(guest, status, why);
        return;
    }
    va_start(ap, fmt);
    (void)vsnprintf(why, sizeof why, fmt, ap); /* cut at its size */
    va_end(ap);
    pool->making--;
    cordon_guest_destroy(guest);
    cordon_pool_on_failure(pool, seq, status, why);
}

void cordon_guest_gone(struct cordon_guest *guest)
{
    guest->alive = false;
    cordon_source_close(&guest->warden->loop, &guest->death);
    if (guest->state < CORDON_GUEST_READY) {
        bool orphaned = !guest->pool->unisolated && cordon_nursery_is_dead(guest->pool->template);
        cordon_guest_fail(guest, orphaned ? -EOWNERDEAD : -ECHILD, "the guest's process 1 ended before it was ready");
        return;
    }
    cordon_machine_gone(guest);
    if (guest->state == CORDON_GUEST_READY) {
        cordon_pool_unpark(guest->pool, guest);
        cordon_pool_on_parked_death(guest->pool);
    }
    if (guest->state == CORDON_GUEST_DYING)
        maybe_free(guest);
    else
        cordon_guest_destroy(guest); /* closes the lease, which tells the gateway */
}

static void on_death(struct cordon_source *source, uint32_t events)
{
    cordon_guest_gone(CORDON_OWNER(struct cordon_guest, death, source));
}

static void on_slow_making(struct cordon_timer *timer)
{
    static const char *const waits[] = {"its slot", "its agent", "its interpreter"};
    struct cordon_guest *guest = CORDON_OWNER(struct cordon_guest, timer, timer);
    if (guest->state < CORDON_GUEST_READY)
        cordon_guest_fail(guest, -ETIMEDOUT, "waited %u s (3 times CORDON_GUEST_START_S) for %s",
                          (unsigned)(MAKING_STARTS * guest->warden->config.start_us / 1000000), waits[guest->state]);
}

/* --- being made --- */

/* Code opens its own ends again by /dev/stdin, /dev/stdout and /dev/stderr: they belong to another uid, so all may.
 * Only who holds an end already can name the pipe. */
static int make_pipe(int ends[2])
{
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    if (fchmod(ends[0], 0666) == 0) /* both ends are one inode */
        return 0;
    int r = -errno;
    (void)close(ends[0]); /* nothing was written */
    (void)close(ends[1]);
    return r;
}

/* The interpreter's pipes: ours go to the zygote (guest->ends), the agent's go with it. */
static int make_ends(struct cordon_guest *guest, int agent_ends[4])
{
    int driver[2], in[2], out[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, driver) < 0)
        return -errno;
    agent_ends[0] = driver[0];
    guest->ends[END_DRIVER] = driver[1];
    int r = make_pipe(in);
    if (r < 0)
        return r;
    agent_ends[1] = in[1];
    guest->ends[END_STDIN] = in[0];
    for (size_t i = 2; i < 4; i++) {
        if ((r = make_pipe(out)) < 0)
            return r;
        agent_ends[i] = out[0];
        guest->ends[END_STDOUT + i - 2] = out[1];
    }
    return 0;
}

static int launch(struct cordon_guest *guest, int channel, int ready, struct cordon_error *err)
{
    int agent_ends[4] = {-1, -1, -1, -1};
    if (guest->pool->unisolated)
        return cordon_bare_start(guest, channel, ready, err);
    int r = guest->forked ? make_ends(guest, agent_ends) : 0;
    if (r < 0)
        (void)cordon_fail_errno(err, r, "make the interpreter's pipes");
    else if (cordon_guest_is_kept(guest))
        r = cordon_keep_prepare(guest, &agent_ends[0], err);
    if (r == 0)
        r = cordon_nursery_send(guest, channel, ready, agent_ends, err);
    for (size_t i = 0; i < 4; i++)
        cordon_close(&agent_ends[i]); /* sent, or of no use */
    cordon_close(&guest->freezer.procs);
    return r;
}

static int begin(struct cordon_guest *guest, struct cordon_error *err)
{
    int channel[2], ready[2];
    if (guest->pool->machine)
        return cordon_machine_begin(guest, err);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) < 0)
        return cordon_fail_errno(err, -errno, "make a guest's channel");
    guest->channel = channel[0];
    cordon_autoclose int channel_end = channel[1];
    if (pipe2(ready, O_CLOEXEC) < 0)
        return cordon_fail_errno(err, -errno, "make a guest's ready pipe");
    cordon_autoclose int ready_end = ready[1];
    int r = cordon_source_watch(&guest->warden->loop, &guest->ready, ready[0], EPOLLIN);
    if (r < 0)
        return cordon_fail_errno(err, r, "watch a guest's ready pipe");
    guest->forked = !guest->pool->unisolated && cordon_zygote_place_of(guest->pool->template, guest->pool->kind);
    guest->state = CORDON_GUEST_AGENT;
    r = launch(guest, channel_end, ready_end, err);
    if (r == 0 && guest->forked)
        guest->ends[END_READY] = CORDON_TAKE_FD(ready_end); /* the zygote's, or the pipe would seem to be at its end */
    return r;
}

static bool is_dead(const struct cordon_guest *guest)
{
    struct pollfd end = {.fd = guest->pool->unisolated ? guest->bare.source.fd : guest->death.fd, .events = POLLIN};
    return !guest->alive || poll(&end, 1, 0) != 0;
}

static void on_proven(struct cordon_timer *timer)
{
    cordon_pool_on_proven(CORDON_OWNER(struct cordon_guest, timer, timer)->pool);
}

static void check_ready(struct cordon_guest *guest)
{
    if (guest->state != CORDON_GUEST_INTERPRETER || !guest->ready_ended || guest->at_zygote)
        return;
    if (is_dead(guest)) /* the end of all its processes ends the pipe too */
        return;         /* its own event comes in this turn or the next */
    if (!guest->said_ready) {
        cordon_guest_fail(
            guest, -ECHILD,
            "the interpreter %.200s ended before it was ready; is it new enough? `cordon doctor` tells; are "
            "CORDON_PIDS and CORDON_OPEN_FILES enough for it?",
            cordon_interpreter_of(&guest->pool->template->interpreters, guest->pool->kind));
        return;
    }
    guest->timer.on_due = on_proven;
    cordon_timer_arm(&guest->warden->loop, &guest->timer, PROVEN_US);
    if (guest->slot) {
        guest->oom_kill_base = cordon_cgroup_read_oom_kills(guest->slot->cgroup.memory_events);
        guest->cpu_usage_base = cordon_cgroup_read_cpu_us(guest->slot->cgroup.cpu_usage);
    }
    guest->pool->making--;
    guest->state = CORDON_GUEST_READY;
    cordon_pool_on_ready(guest->pool, guest);
}

static void on_ready(struct cordon_source *source, uint32_t events)
{
    struct cordon_guest *guest = CORDON_OWNER(struct cordon_guest, ready, source);
    char byte;
    if (read(source->fd, &byte, 1) > 0) {
        guest->said_ready = true; /* the agent may not be done: the end is waited for, too */
        return;
    }
    cordon_source_close(&guest->warden->loop, source);
    guest->ready_ended = true;
    check_ready(guest);
}

static struct cordon_guest *new_guest(struct cordon_pool *pool)
{
    struct cordon_guest *guest = calloc(1, sizeof *guest);
    if (!guest)
        return NULL;
    guest->warden = pool->warden;
    guest->pool = pool;
    guest->seq = ++pool->warden->last_seq;
    guest->channel = -1;
    guest->death = (struct cordon_source){.fd = -1, .on_event = on_death};
    guest->ready = (struct cordon_source){.fd = -1, .on_event = on_ready};
    guest->lease.fd = guest->bare.source.fd = guest->control = guest->vm.control.fd = guest->vm.adopter = -1;
    guest->freezer = CORDON_CGROUP_FREEZER_NONE;
    for (size_t i = 0; i < CORDON_GUEST_NAMESPACES; i++)
        guest->namespaces[i] = -1;
    for (size_t i = 0; i < sizeof guest->ends / sizeof *guest->ends; i++)
        guest->ends[i] = -1;
    guest->timer.on_due = on_slow_making;
    return guest;
}

static struct cordon_guest *make(struct cordon_pool *pool, bool builds, struct cordon_error *err)
{
    struct cordon_warden *warden = pool->warden;
    struct cordon_guest *guest = new_guest(pool);
    if (!guest) {
        (void)cordon_fail_errno(err, -ENOMEM, "make a guest");
        return NULL;
    }
    guest->vm.builds = builds;
    if (pool->machine)
        cordon_machine_reserve(guest);
    link_guest(guest);
    cordon_timer_arm(&warden->loop, &guest->timer, MAKING_STARTS * warden->config.start_us);
    int r = pool->unisolated ? 1 : cordon_slot_take(warden, guest, err);
    if (r > 0)
        r = begin(guest, err);
    if (r < 0) {
        cordon_guest_destroy(guest);
        return NULL;
    }
    return guest;
}

int cordon_guest_make(struct cordon_pool *pool, struct cordon_error *err)
{
    if (!make(pool, false, err))
        return err->code;
    pool->making++;
    return 0;
}

struct cordon_guest *cordon_guest_make_template(struct cordon_pool *pool, struct cordon_error *err)
{
    return make(pool, true, err);
}

void cordon_guest_on_slot(struct cordon_guest *guest, const struct cordon_error *failed)
{
    struct cordon_error err;
    int r = failed ? failed->code : begin(guest, &err);
    if (r < 0)
        cordon_guest_fail(guest, r, "%.250s", failed ? failed->message : err.message);
}

static int watch_process_one(struct cordon_guest *guest, int pidfd)
{
    guest->alive = true;
    int spare = dup(pidfd); /* watching closes what it can't watch, and then it must still be killed */
    int r = spare < 0 ? -errno : cordon_source_watch(&guest->warden->loop, &guest->death, spare, EPOLLIN);
    if (r < 0) {
        (void)cordon_pidfd_kill(pidfd, SIGKILL);
        struct pollfd end = {.fd = pidfd, .events = POLLIN};
        (void)poll(&end, 1, 1000); /* rare (no fds left, no memory), so this wait does no harm */
        guest->alive = false;
    }
    return r;
}

static int take_report(struct cordon_guest *guest, const struct cordon_nursery_report *report, int *fds, size_t nfds)
{
    if (report->part == CORDON_NURSERY_PROCESS)
        guest->at_nursery = false;
    if (report->status < 0)
        return report->status;
    if (report->part == CORDON_NURSERY_PROCESS)
        return nfds == 1 ? watch_process_one(guest, fds[0]) : -EBADMSG;
    if (report->part != CORDON_NURSERY_GUEST || nfds != CORDON_GUEST_NAMESPACES || guest->has_namespaces)
        return -EBADMSG;
    for (size_t i = 0; i < CORDON_GUEST_NAMESPACES && guest->state != CORDON_GUEST_DYING; i++)
        guest->namespaces[i] = CORDON_TAKE_FD(fds[i]);
    guest->has_namespaces = true;
    return 0;
}

static int send_to_zygote(struct cordon_guest *guest, struct cordon_error *err)
{
    int r = cordon_zygote_send(guest, err);
    for (size_t i = 0; i < CORDON_GUEST_NAMESPACES; i++)
        cordon_close(&guest->namespaces[i]);
    for (size_t i = 0; i < sizeof guest->ends / sizeof *guest->ends; i++)
        cordon_close(&guest->ends[i]);
    return r;
}

void cordon_guest_on_report(struct cordon_guest *guest, const struct cordon_nursery_report *report, int *fds,
                            size_t nfds)
{
    struct cordon_error err;
    int r = take_report(guest, report, fds, nfds);
    if (guest->state == CORDON_GUEST_DYING) {
        kill_guest(guest);
        maybe_free(guest);
        return;
    }
    if (r < 0) {
        cordon_guest_fail(guest, r, "%s: %s", report->stage[0] ? report->stage : "watch process 1", strerror(-r));
        return;
    }
    if (guest->at_nursery || (guest->forked && !guest->has_namespaces))
        return;
    guest->state = CORDON_GUEST_INTERPRETER;
    if (guest->forked && (r = send_to_zygote(guest, &err)) < 0)
        cordon_guest_fail(guest, r, "%.250s", err.message);
    else
        check_ready(guest);
}

void cordon_guest_on_agent_lost(struct cordon_guest *guest)
{
    guest->at_nursery = false;
    if (guest->state == CORDON_GUEST_DYING)
        maybe_free(guest);
    else
        cordon_guest_fail(guest, -EOWNERDEAD, "the nursery ended");
}

void cordon_guest_on_zygote(struct cordon_guest *guest, int status, const char *stage)
{
    guest->at_zygote = false;
    guest->zygote = NULL;
    if (guest->state == CORDON_GUEST_DYING)
        maybe_free(guest);
    else if (status < 0)
        cordon_guest_fail(guest, status, "%s: %s", stage, strerror(-status));
    else
        check_ready(guest);
}
