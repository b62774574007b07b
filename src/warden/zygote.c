/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Zygotes. Each of the two places of a template has one process that serves; another one is started beside it before it
 * grows old, and takes over when it is ready, so that a guest never waits for that. A zygote's forks share its memory
 * image (hash seed, addresses), which is why it is replaced by number of forks and by time. One that dies is started
 * again with growing pauses; when none comes up at all, interpreters are executed instead, which is slower and not less
 * isolated.
 */
#include "warden/warden.h"

#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/launch.h"
#include "agent/zygote_wire.h"
#include "base/fd.h"
#include "base/log.h"
#include "isolate/root.h"

#define LOADING_STARTS 6u /* times CORDON_GUEST_START_S: modules are loaded once, guests often */
#define RESTART_US 200000u
#define FORKS_MAX 5000u
#define AGE_US UINT64_C(3600000000)
#define FAILURES_MAX 3u
#define JOBS_MAX 64u
#define PID_MIN 1000

struct cordon_zygote_place *cordon_zygote_place_of(struct cordon_template *template, enum cordon_guest_kind kind)
{
    if (kind != CORDON_GUEST_PYTHON && kind != CORDON_GUEST_PYTHON_DATA)
        return NULL;
    struct cordon_zygote_place *place = &template->zygotes[kind == CORDON_GUEST_PYTHON_DATA];
    return place->warden && !place->given_up ? place : NULL;
}

/* --- the child --- */

static _Noreturn void child_main(const struct cordon_zygote_place *of, int control)
{
    const struct cordon_warden *warden = of->warden;
    const struct cordon_warden_config *config = &warden->config;
    const struct cordon_interpreters *interpreters = &of->template->interpreters;
    static char script[] = CORDON_ROOT_OWN "/zygote.py", isolated[] = "-I";
    char python[sizeof interpreters->python], place[16];
    char *argv[] = {python, isolated, script, place, NULL};
    char path[] = "PATH=/usr/bin:/bin", home[] = "HOME=" CORDON_ROOT_HOME, lang[] = "LANG=C.UTF-8";
    char *environment[] = {path, home, lang, NULL};
    const struct sched_param normal = {0};
    const char *stage = "enter the template's mount namespace";
    (void)snprintf(python, sizeof python, "%s", interpreters->python);
    (void)snprintf(place, sizeof place, "%s", of->name);
    int r = setns(of->template->root_ns, CLONE_NEWNS) < 0 ? -errno : 0;
    if (r == 0) {
        stage = "make a network namespace";
        r = unshare(CLONE_NEWNET | CLONE_NEWIPC) < 0 ? -errno : 0;
    }
    /* Loading modules takes long: at normal priority. The warden raises it when it is ready. */
    (void)sched_setscheduler(0, SCHED_OTHER, &normal);
    if (r == 0) {
        stage = "drop privileges";
        r = cordon_process_drop(config);
    }
    if (r == 0) {
        const int fds[] = {warden->null, warden->null, control};
        stage = "place descriptors";
        r = cordon_process_place(fds, 3);
    }
    if (r == 0) {
        stage = "execute the interpreter";
        (void)execve(python, argv, environment);
        r = -errno;
    }
    cordon_log(CORDON_LOG_ERROR, "zygote can not start", "stage", stage, "interpreter", python, "error", strerror(-r),
               NULL);
    _exit(126);
}

/*
 * In a fresh pid namespace (a container) the zygote's number could be one that an interpreter gets in its guest, and
 * libraries tell a fork by nothing but a changed getpid(). So it gets a high one.
 */
static pid_t fork_high(const int *keep)
{
    pid_t parent = getpid();
    pid_t pid = cordon_process_fork(keep, 3);
    if (pid <= 0 || pid >= PID_MIN)
        return pid;
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0); /* was killed */
    for (pid_t wish = PID_MIN + pid; wish < 30000; wish += 101) {
        struct clone_args args = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&wish, .set_tid_size = 1};
        pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
        if (pid == 0 && cordon_process_become_child(parent, keep, 3) < 0)
            _exit(1);
        if (pid >= 0 || errno != EEXIST)
            break;
    }
    if (pid >= 0)
        return pid;
    /* Not allowed to choose: count up instead. */
    for (int i = 0; i < 2 * PID_MIN; i++) {
        pid = cordon_process_fork(keep, 3);
        if (pid <= 0 || pid >= PID_MIN)
            return pid;
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0); /* was killed */
    }
    return -EAGAIN;
}

/* --- a process's life --- */

static void remove_from_place(struct cordon_zygote *zygote)
{
    struct cordon_zygote_place *place = zygote->place;
    if (place->current == zygote)
        place->current = NULL;
    if (place->coming == zygote)
        place->coming = NULL;
    for (struct cordon_zygote **at = &place->retired; *at; at = &(*at)->next) {
        if (*at == zygote) {
            *at = zygote->next;
            break;
        }
    }
}

static void retire(struct cordon_zygote *zygote)
{
    struct cordon_zygote_place *place = zygote->place;
    remove_from_place(zygote);
    zygote->state = CORDON_ZYGOTE_RETIRED;
    zygote->next = place->retired;
    place->retired = zygote;
    cordon_timer_cancel(&place->warden->loop, &zygote->timer);
    if (zygote->jobs == 0)
        cordon_child_kill(&zygote->child);
}

static int start(struct cordon_zygote_place *place, struct cordon_error *err);

static void on_restart(struct cordon_timer *timer)
{
    struct cordon_zygote_place *place = CORDON_OWNER(struct cordon_zygote_place, restart, timer);
    struct cordon_error err;
    if (place->coming || place->given_up || start(place, &err) == 0)
        return;
    cordon_log_error("zygote could not be started", &err);
    place->failures++;
    cordon_timer_arm(&place->warden->loop, timer, RESTART_US * 10);
}

static void plan_restart(struct cordon_zygote_place *place)
{
    if (place->failures >= FAILURES_MAX && !place->current) {
        place->given_up = true;
        cordon_log(CORDON_LOG_ERROR, "zygote given up: interpreters are executed instead, which is slower", "zygote",
                   place->name, NULL);
        return;
    }
    place->restart.on_due = on_restart;
    if (place->failures == 0)
        on_restart(&place->restart);
    else
        cordon_timer_arm(&place->warden->loop, &place->restart,
                         RESTART_US << (place->failures < 6 ? place->failures : 6));
}

static void on_zygote_exit(struct cordon_child *child, int status)
{
    struct cordon_zygote *zygote = CORDON_OWNER(struct cordon_zygote, child, child);
    struct cordon_zygote_place *place = zygote->place;
    struct cordon_warden *warden = place->warden;
    bool wanted = zygote->state != CORDON_ZYGOTE_RETIRED, was_ready = zygote->state == CORDON_ZYGOTE_SERVING;
    remove_from_place(zygote);
    cordon_timer_cancel(&warden->loop, &zygote->timer);
    cordon_source_close(&warden->loop, &child->source);
    cordon_source_close(&warden->loop, &zygote->socket);
    for (struct cordon_guest *guest = warden->guests, *next; guest; guest = next) {
        next = guest->next;
        if (guest->zygote == zygote)
            cordon_guest_on_zygote(guest, -EOWNERDEAD, "zygote ended");
    }
    free(zygote);
    if (!wanted || warden->stopping)
        return;
    cordon_log(CORDON_LOG_WARN, "zygote ended", "zygote", place->name, "status", CORDON_NUM(status), NULL);
    place->failures = was_ready ? 0 : place->failures + 1;
    if (!place->coming)
        plan_restart(place);
}

static void on_old(struct cordon_timer *timer)
{
    struct cordon_zygote *zygote = CORDON_OWNER(struct cordon_zygote, timer, timer);
    struct cordon_error err;
    if (zygote->place->coming)
        return;
    if (start(zygote->place, &err) < 0) {
        cordon_log_error("a new zygote could not be started", &err);
        cordon_timer_arm(&zygote->place->warden->loop, timer, RESTART_US * 50);
    }
}

static void on_slow_start(struct cordon_timer *timer)
{
    struct cordon_zygote *zygote = CORDON_OWNER(struct cordon_zygote, timer, timer);
    cordon_log(CORDON_LOG_ERROR, "zygote is not ready in time", "zygote", zygote->place->name, NULL);
    cordon_child_kill(&zygote->child);
}

static void on_ready(struct cordon_zygote *zygote)
{
    struct cordon_zygote_place *place = zygote->place;
    struct cordon_zygote *old = place->current;
    const struct sched_param param = {.sched_priority = 1};
    /* Only where the warden itself was allowed to; its forks are at normal priority again. */
    if (sched_getscheduler(0) == SCHED_RR)
        (void)sched_setscheduler(zygote->child.pid, SCHED_RR | SCHED_RESET_ON_FORK, &param);
    zygote->state = CORDON_ZYGOTE_SERVING;
    place->coming = NULL;
    place->current = zygote;
    place->failures = 0;
    zygote->timer.on_due = on_old;
    cordon_timer_arm(&place->warden->loop, &zygote->timer, AGE_US);
    cordon_log(CORDON_LOG_DEBUG, "zygote ready", "zygote", place->name, NULL);
    if (old)
        retire(old);
}

static void on_reply(struct cordon_source *source, uint32_t events)
{
    struct cordon_zygote *zygote = CORDON_OWNER(struct cordon_zygote, socket, source);
    struct cordon_warden *warden = zygote->place->warden;
    struct cordon_zygote_reply reply;
    ssize_t n = cordon_recv_fds(source->fd, &reply, sizeof reply, NULL, NULL, MSG_DONTWAIT);
    if (n == -EAGAIN)
        return;
    if (n != (ssize_t)sizeof reply || reply.version != CORDON_ZYGOTE_VERSION) {
        cordon_child_kill(&zygote->child); /* its end, or nonsense: on_zygote_exit does the rest */
        cordon_source_close(&warden->loop, source);
        return;
    }
    reply.stage[sizeof reply.stage - 1] = '\0';
    if (zygote->state == CORDON_ZYGOTE_LOADING) {
        if (reply.status == 0)
            on_ready(zygote);
        else
            cordon_child_kill(&zygote->child);
        return;
    }
    zygote->jobs -= zygote->jobs > 0;
    for (struct cordon_guest *guest = warden->guests_last; guest; guest = guest->previous) {
        if (guest->zygote == zygote && (uint32_t)guest->seq == reply.seq) {
            cordon_guest_on_zygote(guest, reply.status, reply.stage);
            break;
        }
    }
    if (zygote->state == CORDON_ZYGOTE_RETIRED && zygote->jobs == 0)
        cordon_child_kill(&zygote->child);
}

static int start(struct cordon_zygote_place *place, struct cordon_error *err)
{
    struct cordon_warden *warden = place->warden;
    int pair[2];
    cordon_autofree struct cordon_zygote *zygote = calloc(1, sizeof *zygote);
    if (!zygote || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return cordon_fail_errno(err, zygote ? -errno : -ENOMEM, "make the zygote's socket");
    zygote->place = place;
    zygote->socket = (struct cordon_source){.fd = -1, .on_event = on_reply};
    zygote->child = (struct cordon_child){.source.fd = -1, .on_exit = on_zygote_exit};
    zygote->timer.on_due = on_slow_start;
    const int keep[] = {pair[1], place->template->root_ns, warden->null};
    pid_t pid = fork_high(keep);
    if (pid == 0)
        child_main(place, pair[1]);
    (void)close(pair[1]); /* the child's */
    int r = pid < 0 ? pid : cordon_child_watch(&warden->loop, &zygote->child, pid);
    if (r < 0) {
        (void)close(pair[0]); /* nobody is at its other end */
        return cordon_fail_errno(err, r, "start zygote %s", place->name);
    }
    r = cordon_source_watch(&warden->loop, &zygote->socket, pair[0], EPOLLIN);
    if (r < 0)
        cordon_child_kill(&zygote->child); /* counted as one that died */
    cordon_timer_arm(&warden->loop, &zygote->timer, LOADING_STARTS * warden->config.start_us);
    place->coming = CORDON_TAKE(zygote);
    return 0;
}

int cordon_zygote_send(struct cordon_guest *guest, struct cordon_error *err)
{
    struct cordon_zygote_place *place = cordon_zygote_place_of(guest->pool->template, guest->pool->kind);
    struct cordon_zygote *zygote = place ? place->current : NULL;
    const struct cordon_slot *slot = guest->slot;
    if (!zygote || zygote->jobs >= JOBS_MAX)
        return cordon_fail(err, -EAGAIN, CORDON_ERROR_UNAVAILABLE, "the zygote is %s",
                           zygote ? "busy" : "being started again");
    const struct cordon_zygote_job job = {.version = CORDON_ZYGOTE_VERSION,
                                          .seq = (uint32_t)guest->seq,
                                          .cgroups = (uint32_t)slot->cgroup.procs_count,
                                          .code_uid = CORDON_CODE_UID,
                                          .code_gid = CORDON_CODE_UID,
                                          .open_files = guest->warden->config.open_files,
                                          .processes = cordon_guest_processes(guest->warden)};
    int fds[CORDON_ZYGOTE_FIXED + CORDON_AGENT_CGROUPS_MAX] = {slot->ns.user, slot->ns.net};
    size_t n = CORDON_ZYGOTE_NS_PID;
    for (size_t i = 0; i < CORDON_GUEST_NAMESPACES; i++)
        fds[n++] = guest->namespaces[i];
    fds[n++] = slot->ns.cgroup;
    fds[n++] = guest->warden->filter_memfd;
    for (size_t i = 0; i < sizeof guest->ends / sizeof *guest->ends; i++)
        fds[n++] = guest->ends[i];
    for (size_t i = 0; i < slot->cgroup.procs_count; i++)
        fds[n++] = slot->cgroup.procs[i];
    ssize_t sent = cordon_send_fds(zygote->socket.fd, &job, sizeof job, fds, n, MSG_DONTWAIT);
    if (sent < 0)
        return cordon_fail_errno(err, (int)sent, "send a job to zygote %s", place->name);
    zygote->jobs++;
    guest->zygote = zygote;
    guest->at_zygote = true;
    if (++zygote->forks == FORKS_MAX) {
        zygote->timer.on_due = on_old;
        cordon_timer_arm(&guest->warden->loop, &zygote->timer, 0);
    }
    return 0;
}

void cordon_zygote_end(struct cordon_zygote *zygote)
{
    cordon_child_kill(&zygote->child);
}

static const char *const names[CORDON_ZYGOTES] = {"python", "data"};
static const enum cordon_guest_kind kinds[CORDON_ZYGOTES] = {CORDON_GUEST_PYTHON, CORDON_GUEST_PYTHON_DATA};

static void open_place(struct cordon_template *template, size_t i)
{
    if (template->warden->config.oneshot || template->zygotes[i].warden || !(template->languages & 1u << kinds[i]) ||
        template->unseen[kinds[i]][0])
        return;
    template->zygotes[i] =
        (struct cordon_zygote_place){.warden = template->warden, .template = template, .name = names[i]};
    plan_restart(&template->zygotes[i]);
}

void cordon_zygotes_init(struct cordon_template *template)
{
    for (size_t i = 0; i < CORDON_ZYGOTES; i++)
        open_place(template, i);
}

void cordon_zygotes_want(struct cordon_template *template, enum cordon_guest_kind kind)
{
    for (size_t i = 0; i < CORDON_ZYGOTES; i++)
        if (kinds[i] == kind)
            open_place(template, i);
}

static void end(struct cordon_warden *warden, struct cordon_zygote *zygote)
{
    if (!zygote)
        return;
    cordon_child_kill(&zygote->child);
    if (zygote->child.source.watched && zygote->child.pid > 0)
        (void)waitpid(zygote->child.pid, NULL, 0); /* was killed: no long wait */
    cordon_timer_cancel(&warden->loop, &zygote->timer);
    cordon_source_close(&warden->loop, &zygote->child.source);
    cordon_source_close(&warden->loop, &zygote->socket);
    free(zygote);
}

void cordon_zygotes_done(struct cordon_template *template)
{
    struct cordon_warden *warden = template->warden;
    for (size_t i = 0; i < CORDON_ZYGOTES; i++) {
        struct cordon_zygote_place *place = &template->zygotes[i];
        end(warden, place->current);
        end(warden, place->coming);
        for (struct cordon_zygote *zygote = place->retired, *next; zygote; zygote = next) {
            next = zygote->next;
            end(warden, zygote);
        }
        cordon_timer_cancel(&warden->loop, &place->restart);
        place->current = place->coming = place->retired = NULL;
    }
}
