/* SPDX-License-Identifier: Apache-2.0 */
/* The warden's end of its nursery: started again when it dies, which ends its guests (PR_SET_PDEATHSIG). */
#include "warden/warden.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/nursery.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "isolate/root.h"

#define LIVED_WELL_US 10000000u
#define RESTART_US 100000u
#define HOPELESS 3u  /* deaths in a row after which it is not waited for: who asks is told */
#define JOBS_MAX 32u /* in the socket at once: far below what it holds, so that a send never waits */

static void on_report(struct cordon_source *source, uint32_t events)
{
    struct cordon_nursery *nursery = CORDON_OWNER(struct cordon_nursery, socket, source);
    struct cordon_nursery_report report;
    int fds[CORDON_NURSERY_NAMESPACES];
    size_t nfds = CORDON_NURSERY_NAMESPACES;
    ssize_t n = cordon_recv_fds(source->fd, &report, sizeof report, fds, &nfds, MSG_DONTWAIT);
    if (n == -EAGAIN)
        return;
    if (n != (ssize_t)sizeof report) {
        /* Its end, or descriptors that found no room here. Which guest was meant is not known then, and a process 1
         * without a pidfd must not live on: a new nursery takes all of the old one's guests with it. */
        for (size_t i = 0; n > 0 && i < nfds; i++)
            cordon_close(&fds[i]);
        if (n != 0)
            cordon_log(CORDON_LOG_ERROR, "nursery report could not be received", "error",
                       strerror((int)(n < 0 ? -n : EBADMSG)), NULL);
        cordon_child_kill(&nursery->child);
        cordon_source_close(&nursery->warden->loop, source);
        return;
    }
    report.stage[sizeof report.stage - 1] = '\0';
    nursery->jobs -= report.part == CORDON_NURSERY_PROCESS && nursery->jobs > 0;
    struct cordon_guest *guest = cordon_guest_find(nursery->warden, report.seq);
    if (guest)
        cordon_guest_on_report(guest, &report, fds, nfds);
    for (size_t i = 0; i < nfds; i++)
        cordon_close(&fds[i]); /* those that were not taken */
}

static void on_restart(struct cordon_timer *timer)
{
    struct cordon_nursery *nursery = CORDON_OWNER(struct cordon_nursery, restart, timer);
    struct cordon_error err;
    if (cordon_nursery_start(nursery->template, &err) == 0)
        return;
    cordon_log_error("nursery could not be started", &err);
    cordon_timer_arm(&nursery->warden->loop, timer, RESTART_US * 10);
}

static void on_nursery_exit(struct cordon_child *child, int status)
{
    struct cordon_nursery *nursery = CORDON_OWNER(struct cordon_nursery, child, child);
    struct cordon_warden *warden = nursery->warden;
    cordon_source_close(&warden->loop, &child->source);
    cordon_source_close(&warden->loop, &nursery->socket);
    nursery->jobs = 0;
    if (warden->stopping)
        return;
    cordon_log(CORDON_LOG_WARN, "nursery ended, its guests with it", "template", nursery->template->name, "status",
               CORDON_NUM(status), NULL);
    for (struct cordon_guest *guest = warden->guests, *next; guest; guest = next) {
        next = guest->next;
        if (guest->at_nursery && guest->pool->template == nursery->template)
            cordon_guest_on_agent_lost(guest);
    }
    bool lived_well = cordon_now_us() - nursery->started_us > LIVED_WELL_US;
    nursery->failures = lived_well ? 0 : nursery->failures + 1;
    nursery->restart.on_due = on_restart;
    if (nursery->failures > 1)
        cordon_timer_arm(&warden->loop, &nursery->restart,
                         RESTART_US * (nursery->failures < 50 ? nursery->failures : 50));
    else
        on_restart(&nursery->restart);
}

static _Noreturn void child_main(struct cordon_template *template, int control)
{
    const struct cordon_warden *warden = template->warden;
    static char name[] = "cordon-agent", mode[] = "nursery", empty[] = "";
    char *argv[] = {name, mode, NULL}, *environment[] = {NULL};
    const int fds[] = {warden->null, warden->null, control, warden->filter_memfd, warden->agent_memfd};
    struct cordon_error err;
    int r = setns(template->root_ns, CLONE_NEWNS) < 0 ? -errno : 0;
    if (r < 0)
        (void)cordon_fail_errno(&err, r, "enter the template's mount namespace");
    else if ((r = cordon_root_seal(&err)) == 0 && (r = cordon_process_drop(&warden->config)) < 0)
        (void)cordon_fail_errno(&err, r, "drop privileges");
    if (r == 0 && (r = cordon_process_place(fds, sizeof fds / sizeof *fds)) < 0)
        (void)cordon_fail_errno(&err, r, "place descriptors");
    if (r == 0) {
        (void)fcntl(5, F_SETFD, FD_CLOEXEC); /* the agent's memfd */
        (void)syscall(SYS_execveat, 5, empty, argv, environment, AT_EMPTY_PATH);
        (void)cordon_fail_errno(&err, -errno, "execute cordon-agent");
    }
    cordon_log_error("nursery can not start", &err);
    _exit(126);
}

int cordon_nursery_start(struct cordon_template *template, struct cordon_error *err)
{
    struct cordon_warden *warden = template->warden;
    struct cordon_nursery *nursery = &template->nursery;
    int pair[2];
    nursery->warden = warden;
    nursery->template = template;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return cordon_fail_errno(err, -errno, "make the nursery's socket");
    const int keep[] = {pair[1], warden->agent_memfd, warden->filter_memfd, template->root_ns, warden->null};
    pid_t pid = cordon_process_fork(keep, sizeof keep / sizeof *keep);
    if (pid == 0)
        child_main(template, pair[1]);
    (void)close(pair[1]); /* the child's */
    nursery->child.on_exit = on_nursery_exit;
    nursery->socket.on_event = on_report;
    nursery->started_us = cordon_now_us();
    int r = pid < 0 ? pid : cordon_child_watch(&warden->loop, &nursery->child, pid);
    if (r < 0) {
        (void)close(pair[0]); /* nobody is at its other end */
        return cordon_fail_errno(err, r, "start the nursery");
    }
    r = cordon_source_watch(&warden->loop, &nursery->socket, pair[0], EPOLLIN);
    if (r < 0) {
        cordon_child_kill(&nursery->child);
        return cordon_fail_errno(err, r, "watch the nursery");
    }
    return 0;
}

void cordon_nursery_stop(struct cordon_template *template)
{
    struct cordon_warden *warden = template->warden;
    struct cordon_nursery *nursery = &template->nursery;
    cordon_timer_cancel(&warden->loop, &nursery->restart);
    cordon_child_kill(&nursery->child);
    if (nursery->child.source.watched)
        (void)waitpid(nursery->child.pid, NULL, 0); /* was killed: no long wait */
    cordon_source_close(&warden->loop, &nursery->child.source);
    cordon_source_close(&warden->loop, &nursery->socket);
}

bool cordon_nursery_is_there(const struct cordon_template *template)
{
    return template->nursery.socket.watched || template->nursery.failures >= HOPELESS;
}

bool cordon_nursery_is_dead(const struct cordon_template *template)
{
    struct pollfd end = {.fd = template->nursery.child.source.fd, .events = POLLIN};
    return !template->nursery.child.source.watched || poll(&end, 1, 0) != 0;
}

static void describe(const struct cordon_guest *guest, struct cordon_nursery_job *job)
{
    static const struct {
        const char *language, *driver;
    } kinds[CORDON_GUEST_KIND__COUNT] = {
        [CORDON_GUEST_PYTHON] = {"python", "driver.py"},
        [CORDON_GUEST_PYTHON_DATA] = {"python", "driver.py"},
        [CORDON_GUEST_PYTHON_FRESH] = {"python", "driver.py"},
        [CORDON_GUEST_JAVASCRIPT] = {"javascript", "driver.js"},
        [CORDON_GUEST_BASH] = {"bash", ""},
        [CORDON_GUEST_KEPT] = {"", ""},
    };
    const struct cordon_warden_config *config = &guest->warden->config;
    enum cordon_guest_kind kind = guest->pool->kind;
    const char *interpreter = cordon_interpreter_of(&guest->pool->template->interpreters, kind);
    *job =
        (struct cordon_nursery_job){.seq = guest->seq,
                                    .forked = guest->forked,
                                    .kept = kind == CORDON_GUEST_KEPT,
                                    .root_there = config->root,
                                    .awaited = guest->pool->waiting_count > guest->pool->making,
                                    .host_network = config->host_network,
                                    .cgroups = (uint32_t)guest->slot->cgroup.procs_count + (guest->freezer.procs >= 0),
                                    .cpus = cordon_guest_cpus(config->cpu_percent, config->cpus),
                                    .open_files = config->open_files,
                                    .processes = cordon_guest_processes(guest->warden),
                                    .code_uid = CORDON_CODE_UID,
                                    .agent_uid = config->root ? CORDON_AGENT_UID : CORDON_CODE_UID,
                                    .memory_bytes = config->memory_bytes,
                                    .disk_bytes = config->disk_bytes,
                                    .disk_inodes = config->disk_inodes};
#ifdef CORDON_WEAKEN_AGENT_UID
    job->agent_uid = job->code_uid;
#endif
    (void)snprintf(job->language, sizeof job->language, "%s", kinds[kind].language);
    (void)snprintf(job->interpreter, sizeof job->interpreter, "%s", interpreter);
    if (kinds[kind].driver[0])
        (void)snprintf(job->driver, sizeof job->driver, "%s/%s", CORDON_ROOT_OWN, kinds[kind].driver);
}

int cordon_nursery_send(struct cordon_guest *guest, int channel, int ready, const int agent_ends[4],
                        struct cordon_error *err)
{
    struct cordon_nursery *nursery = &guest->pool->template->nursery;
    const struct cordon_slot *slot = guest->slot;
    struct cordon_nursery_job job;
    int fds[CORDON_NURSERY_FORKED + CORDON_AGENT_CGROUPS_MAX] = {slot->ns.user, slot->ns.net, slot->ns.cgroup, channel,
                                                                 ready};
    size_t nfds = CORDON_NURSERY_SPAWN;
    if (!nursery->socket.watched)
        return cordon_fail(err, -EOWNERDEAD, CORDON_ERROR_UNAVAILABLE, "the nursery is being started again");
    if (nursery->jobs >= JOBS_MAX)
        return cordon_fail(err, -EAGAIN, CORDON_ERROR_BUSY, "too many guests are being made at once");
    describe(guest, &job);
    for (size_t i = 0; i < (guest->forked ? 4 : job.kept ? 1 : 0); i++)
        fds[nfds++] = agent_ends[i];
    for (size_t i = 0; i < slot->cgroup.procs_count; i++)
        fds[nfds++] = slot->cgroup.procs[i];
    if (guest->freezer.procs >= 0)
        fds[nfds++] = guest->freezer.procs;
    ssize_t n = cordon_send_fds(nursery->socket.fd, &job, sizeof job, fds, nfds, MSG_DONTWAIT);
    if (n < 0)
        return cordon_fail_errno(err, (int)n, "send a job to the nursery");
    nursery->jobs++;
    guest->at_nursery = true;
    return 0;
}
