/* SPDX-License-Identifier: Apache-2.0 */
/* The warden's start, its loop and its end. */
#include "warden/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "isolate/filter.h"
#include "isolate/nic.h"
#include "isolate/outer.h"
#include "isolate/probe.h"
#include "isolate/probe_try.h"
#include "isolate/root.h"
#include "isolate/steer.h"
#include "supervisor/roles.h"
#include "warden/assets.h"

#define STOP_US 5000000u
#define PROBES_MAX 64

static void on_signal(struct cordon_source *source, uint32_t events)
{
    struct cordon_warden *warden = CORDON_OWNER(struct cordon_warden, signals, source);
    warden->loop.stop = true;
}

/* The supervisor: new gateways, or its end, which is ours. */
static void on_control(struct cordon_source *source, uint32_t events)
{
    struct cordon_warden *warden = CORDON_OWNER(struct cordon_warden, control, source);
    char byte;
    int fd = -1;
    size_t nfds = 1;
    ssize_t n = cordon_recv_fds(source->fd, &byte, 1, &fd, &nfds, MSG_DONTWAIT);
    if (n == -EAGAIN)
        return;
    if (n == 0 || (n < 0 && n != -EMSGSIZE)) {
        cordon_log(CORDON_LOG_INFO, "the supervisor is gone or wants an end", NULL);
        cordon_source_close(&warden->loop, source);
        warden->loop.stop = true;
        return;
    }
    if (n == 1 && byte == 'P' && nfds == 1) {
        int r = cordon_peer_add(warden, fd);
        if (r < 0)
            cordon_log(CORDON_LOG_ERROR, "gateway could not be taken on", "error", strerror(-r), NULL);
        return;
    }
    cordon_close(&fd);
    cordon_log(CORDON_LOG_WARN, "unknown message of the supervisor", NULL);
}

static void on_turn(struct cordon_loop *loop)
{
    struct cordon_warden *warden = CORDON_OWNER(struct cordon_warden, loop, loop);
    if (warden->stopping)
        return;
    cordon_pools_step(warden);
    cordon_machines_step(warden);
    cordon_slots_step(warden);
    cordon_peers_tell(warden);
    cordon_templates_step(warden);
}

/* --- start --- */

static void raise_limits(void)
{
    struct rlimit files;
    const struct sched_param param = {.sched_priority = 1};
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files); /* as far as it is allowed */
    }
    /* So that deadlines and answers are in time beside busy guests; not allowed everywhere. */
    (void)sched_setscheduler(0, SCHED_RR, &param);
}

/*
 * Before the user namespace of an ordinary user, its control groups: what else is in its group can't be told from in
 * there. Of root without CAP_SYS_ADMIN (a container's), after: only in there read-only ones can be mounted anew.
 */
static int set_up_outside(struct cordon_warden *warden, struct cordon_error *err)
{
    const char *instance = warden->config.instance;
    if (!warden->config.root) {
        int r = cordon_cgroup_root_open(instance, &warden->cgroups, err);
        return r < 0 ? r : cordon_outer_enter_alone(err);
    }
    int r = cordon_uids_open(warden, err);
    if (r == 0 && !cordon_outer_may_mount())
        r = cordon_outer_enter_user(err);
    if (r < 0)
        return r;
    cordon_outer_open_cgroups();
    return cordon_cgroup_root_open(instance, &warden->cgroups, err);
}

/* In a container: known before the first guest fails of it, and told by its name (by explain, below). */
static int check_proc(struct cordon_error *err)
{
    char masked[128];
    int results[CORDON_TRY__COUNT];
    cordon_outer_masked_proc(masked, sizeof masked);
    if (!*masked || cordon_try_guest(results) < 0 || results[CORDON_TRY_PROC] != -EPERM)
        return 0;
    return cordon_fail(err, -EPERM, CORDON_ERROR_UNAVAILABLE,
                       "guests can not have a /proc of their own, since parts of the outer one are masked: %s", masked);
}

static int set_up_local(struct cordon_warden *warden, struct cordon_error *err)
{
    int r = set_up_outside(warden, err);
    if (r == 0)
        r = check_proc(err);
    if (r < 0)
        return r;
    warden->filter_memfd = cordon_filter_code(err);
    if (warden->filter_memfd < 0)
        return warden->filter_memfd;
    r = cordon_templates_open(warden, err);
    if (r < 0)
        return r;
    const struct {
        bool able;
        uint32_t bit;
    } abilities[] = {{cordon_cgroup_has_memory(warden->cgroups), CORDON_ABLE_MEMORY},
                     {cordon_cgroup_has_pids(warden->cgroups), CORDON_ABLE_PIDS},
                     {cordon_cgroup_has_cpu(warden->cgroups), CORDON_ABLE_CPU},
                     {warden->config.root, CORDON_ABLE_AGENT_PROTECTED},
                     {cordon_cgroup_has_freezer(warden->cgroups), CORDON_ABLE_FREEZE},
                     {true, CORDON_ABLE_NETWORK},
                     {warden->config.root && cordon_steer_probe() == 0, CORDON_ABLE_EVERY_PORT},
                     {true, CORDON_ABLE_MACHINE_NETWORK}}; /* until a survey finds otherwise (machine_survey.c) */
    for (size_t i = 0; i < sizeof abilities / sizeof *abilities; i++)
        if (abilities[i].able)
            warden->abilities |= abilities[i].bit;
    return 0;
}

/* A setting is of no use. A command that started this warden for itself shows the hello's words: no log beside them. */
static void refuse(struct cordon_warden *warden, const struct cordon_error *problem)
{
    warden->local_status = problem->code;
    (void)snprintf(warden->why, sizeof warden->why, "%s", problem->message);
    if (!warden->config.oneshot)
        cordon_log(CORDON_LOG_ERROR, "backend local can not run", "why", warden->why, NULL);
}

/* In the words of `cordon doctor`, where it finds a reason; else in those of what failed here. */
static void explain(struct cordon_warden *warden, const struct cordon_error *err)
{
    const struct cordon_interpreters *set = &warden->config.interpreters;
    const struct cordon_probe_paths paths = {set->python, set->node, set->bash};
    static struct cordon_probe probes[PROBES_MAX];
    size_t n = cordon_probe_host(&paths, probes, PROBES_MAX);
    warden->local_status = err->code;
    (void)snprintf(warden->why, sizeof warden->why, "%s", err->message);
    for (size_t i = 0; i < n; i++) {
        if (probes[i].ok || probes[i].weight != CORDON_PROBE_NEEDED)
            continue;
        (void)snprintf(warden->why, sizeof warden->why, "%s: %.200s%s%.200s", probes[i].name, probes[i].found,
                       probes[i].fix[0] ? "; " : "", probes[i].fix);
        break;
    }
    cordon_log(CORDON_LOG_ERROR, "backend local can not run", "why", warden->why, "failed", err->message, NULL);
}

static void find_language(struct cordon_warden *warden, enum cordon_guest_kind kind)
{
    struct cordon_template *base = &warden->base;
    const char *path = cordon_interpreter_of(&base->interpreters, kind);
    if (kind == CORDON_GUEST_KEPT) /* starts what is in its template */
        base->languages |= 1u << kind;
    if (path[0] != '/' || access(path, X_OK) < 0)
        return;
    base->languages |= 1u << kind;
    if (cordon_root_sees(path, base->unseen[kind], sizeof base->unseen[kind]) < 0 && !warden->config.oneshot &&
        (kind == CORDON_GUEST_PYTHON || kind > CORDON_GUEST_PYTHON_FRESH)) /* once for each interpreter */
        cordon_log(CORDON_LOG_WARN, "no guests of this language", "why", base->unseen[kind], NULL);
}

static void find_languages(struct cordon_warden *warden)
{
    for (size_t kind = 0; kind < CORDON_GUEST_KIND__COUNT; kind++)
        find_language(warden, (enum cordon_guest_kind)kind);
}

static int set_up(struct cordon_warden *warden, struct cordon_error *err)
{
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    (void)signal(SIGPIPE, SIG_IGN);
    raise_limits();
    int r = cordon_loop_init(&warden->loop);
    if (r < 0)
        return cordon_fail_errno(err, r, "make the event loop");
    warden->loop.on_turn = on_turn;
    warden->signals.on_event = on_signal;
    if (sigprocmask(SIG_BLOCK, &ends, NULL) < 0)
        return cordon_fail_errno(err, -errno, "block signals");
    r = cordon_source_watch(&warden->loop, &warden->signals, signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK), EPOLLIN);
    if (r < 0)
        return cordon_fail_errno(err, r, "watch signals");
    warden->null = open("/dev/null", O_RDWR | O_CLOEXEC);
    warden->agent_memfd = cordon_sealed_memfd("cordon-agent", cordon_asset_agent, CORDON_ASSET_SIZE(agent));
    warden->no_filter_memfd = cordon_sealed_memfd("cordon-no-filter", "", 0);
    warden->slots = calloc(CORDON_SLOTS_MAX, sizeof *warden->slots);
    if (warden->null < 0 || warden->agent_memfd < 0 || warden->no_filter_memfd < 0 || !warden->slots)
        return cordon_fail_errno(err, -EMFILE, "open /dev/null and the agent");
    return 0;
}

static int take_descriptors(struct cordon_warden *warden, struct cordon_error *err)
{
    (void)fcntl(CORDON_ROLE_PEER, F_SETFD, FD_CLOEXEC); /* checked by its first use */
    if (!warden->config.oneshot) {
        (void)fcntl(CORDON_ROLE_CONTROL, F_SETFD, FD_CLOEXEC);
        warden->control.on_event = on_control;
        int r = cordon_source_watch(&warden->loop, &warden->control, CORDON_ROLE_CONTROL, EPOLLIN);
        if (r < 0)
            return cordon_fail_errno(err, r, "watch the control socket (descriptor %d)", CORDON_ROLE_CONTROL);
    }
    int r = cordon_peer_add(warden, CORDON_ROLE_PEER);
    /* One that is gone already is no reason not to serve the next. */
    if (r < 0 && (warden->config.oneshot || (r != -EPIPE && r != -ECONNRESET)))
        return cordon_fail_errno(err, r, "greet the gateway (descriptor %d)", CORDON_ROLE_PEER);
    return 0;
}

/* --- end --- */

static void shut_down(struct cordon_warden *warden)
{
    uint64_t until = cordon_now_us() + STOP_US;
    warden->stopping = true;
    cordon_pools_done(warden);
    for (struct cordon_guest *guest = warden->guests, *next; guest; guest = next) {
        next = guest->next;
        cordon_guest_destroy(guest);
    }
    while ((warden->guest_count || warden->removals) && cordon_now_us() < until)
        if (cordon_loop_turn(&warden->loop, 100) < 0)
            break;
    if (warden->guest_count)
        cordon_log(CORDON_LOG_ERROR, "guests do not end", "count", CORDON_NUM(warden->guest_count), NULL);
    cordon_peers_done(warden);
    cordon_machines_done(warden);
    cordon_templates_done(warden);
    cordon_slots_done(warden);
    if (warden->cgroups)
        cordon_cgroup_root_close(warden->cgroups);
}

int cordon_warden_main(int argc, char **argv)
{
    static struct cordon_warden warden = {.agent_memfd = -1,
                                          .filter_memfd = -1,
                                          .no_filter_memfd = -1,
                                          .null = -1,
                                          .uids = -1,
                                          .control.fd = -1,
                                          .signals.fd = -1};
    struct cordon_error err;
    cordon_log_setup("warden", CORDON_LOG_INFO, false);
    (void)prctl(PR_SET_NAME, "cordon-warden"); /* for ps only */
    if (cordon_warden_configure(argc, argv, &warden.config, &err) < 0 || set_up(&warden, &err) < 0) {
        cordon_log_error("warden can not start", &err);
        return cordon_error_exit(err.kind);
    }
    cordon_templates_init(&warden);
    find_languages(&warden);
    if (warden.config.problem.code < 0)
        refuse(&warden, &warden.config.problem);
    else if (set_up_local(&warden, &err) < 0)
        explain(&warden, &err);
    if (warden.config.allow_none)
        warden.abilities |= CORDON_ABLE_NONE_BACKEND;
    cordon_slots_init(&warden);
    cordon_machines_init(&warden);
    cordon_pools_init(&warden.base);
    if (take_descriptors(&warden, &err) < 0) {
        cordon_log_error("warden can not start", &err);
        shut_down(&warden);
        return 1;
    }
    if (warden.local_status == 0)
        cordon_zygotes_init(&warden.base);
    if (!warden.config.oneshot || warden.config.allow_none)
        cordon_bare_remove_stale(&warden);
    on_turn(&warden.loop);
    int r = cordon_loop_run(&warden.loop);
    if (r < 0)
        cordon_log(CORDON_LOG_ERROR, "event loop failed", "error", strerror(-r), NULL);
    shut_down(&warden);
    return r < 0;
}
