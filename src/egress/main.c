/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The egress process's start and end. What it needs of the host's files (settings, resolv.conf) it reads first; then it
 * is a user of its own, without privilege, that can open no file and start nothing.
 */
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

#include "base/fd.h"
#include "base/log.h"
#include "core/state_path.h"
#include "egress/authority.h"
#include "egress/egress.h"
#include "isolate/drop.h"
#include "isolate/filter.h"
#include "isolate/outer.h"
#include "supervisor/roles.h"

#define UID_OFFSET 4 /* from uid_base; the gateway's spare one is 3 */
#define FDS_OF_PROCESS 256u
#define FDS_OF_CONNECTION 4u
#define OPENS_A_TURN 32
#define NICE (-5)

static void close_sessions(struct cordon_egress *egress)
{
    while (egress->sessions)
        cordon_egress_guest_close(egress->sessions);
}

static void on_signal(struct cordon_source *source, uint32_t events)
{
    CORDON_OWNER(struct cordon_egress, signals, source)->loop.stop = true;
}

/* --- the gateway --- */

/* Sorts what came with OPEN: the session's end, then the sockets by the bits. False: it does not fit. */
static bool take_open(struct cordon_egress *egress, const struct cordon_egress_open *open, const char *policy,
                      size_t policy_size, int *fds, size_t nfds)
{
    int sockets[CORDON_EGRESS_SOCKETS] = {-1, -1, -1, -1, -1, -1};
    size_t used = 2;
    for (size_t i = 0; i < CORDON_EGRESS_SOCKETS; i++)
        if (open->sockets & 1u << i && used < nfds)
            sockets[i] = CORDON_TAKE_FD(fds[used]), used++;
    bool fits = open->version == CORDON_EGRESS_VERSION && nfds >= 2 && used == nfds &&
                !(open->sockets >> CORDON_EGRESS_SOCKETS);
    int r = -EBADMSG;
    if (fits)
        r = cordon_egress_guest_open(egress, open, policy, policy_size, CORDON_TAKE_FD(fds[0]), CORDON_TAKE_FD(fds[1]),
                                     sockets);
    for (size_t i = 0; i < CORDON_EGRESS_SOCKETS; i++)
        cordon_close(&sockets[i]);
    if (r < 0)
        cordon_log(CORDON_LOG_WARN, "a guest's session could not be opened", "error", strerror(-r), NULL);
    return fits;
}

/* False: the gateway is gone. */
static bool receive(struct cordon_egress *egress, bool *more)
{
    static char message[sizeof(struct cordon_egress_open) + CORDON_EGRESS_TEXT_MAX];
    struct cordon_egress_open open = {0};
    int fds[CORDON_EGRESS_OPEN_FDS];
    size_t nfds = sizeof fds / sizeof *fds;
    for (size_t i = 0; i < nfds; i++)
        fds[i] = -1;
    ssize_t n = cordon_recv_fds(egress->peer.fd, message, sizeof message, fds, &nfds, MSG_DONTWAIT);
    *more = n != -EAGAIN;
    if (n == -EAGAIN)
        return true;
    bool good = n >= (ssize_t)sizeof open;
    if (good) {
        memcpy(&open, message, sizeof open);
        open.guest[sizeof open.guest - 1] = '\0';
        good = take_open(egress, &open, message + sizeof open, (size_t)n - sizeof open, fds, nfds);
        explicit_bzero(message, (size_t)n); /* a policy may hold secrets */
    }
    for (size_t i = 0; n >= 0 && i < nfds; i++)
        cordon_close(&fds[i]);
    if (!good && n > 0)
        cordon_log(CORDON_LOG_WARN, "malformed message of the gateway dropped", NULL);
    return n > 0 || n == -EMSGSIZE;
}

static void on_peer(struct cordon_source *source, uint32_t events)
{
    struct cordon_egress *egress = CORDON_OWNER(struct cordon_egress, peer, source);
    bool more = true;
    for (int i = 0; i < OPENS_A_TURN && more; i++) {
        if (receive(egress, &more))
            continue;
        cordon_source_close(&egress->loop, source);
        egress->loop.stop = egress->oneshot; /* sessions end by themselves, with the gateway's ends */
        return;
    }
}

static int take_peer(struct cordon_egress *egress, int fd)
{
    cordon_source_close(&egress->loop, &egress->peer);
    egress->peer.on_event = on_peer;
    return cordon_source_watch(&egress->loop, &egress->peer, fd, EPOLLIN);
}

/* The supervisor: a connection to a new gateway, or its end, which is ours. */
static void on_control(struct cordon_source *source, uint32_t events)
{
    struct cordon_egress *egress = CORDON_OWNER(struct cordon_egress, control, source);
    char byte = 0;
    int fd = -1;
    size_t nfds = 1;
    ssize_t n = cordon_recv_fds(source->fd, &byte, 1, &fd, &nfds, MSG_DONTWAIT);
    if (n == -EAGAIN)
        return;
    if (n == 0 || (n < 0 && n != -EMSGSIZE)) {
        egress->loop.stop = true;
        return;
    }
    int r = n == 1 && byte == 'P' && nfds == 1 ? take_peer(egress, CORDON_TAKE_FD(fd)) : -EBADMSG;
    cordon_close(&fd);
    if (r < 0)
        cordon_log(CORDON_LOG_ERROR, "gateway could not be taken on", "error", strerror(-r), NULL);
}

/* --- start --- */

static unsigned number(const struct cordon_settings *settings, enum cordon_setting id)
{
    return (unsigned)cordon_settings_int(settings, CORDON_DOOR_NATIVE, id); /* bounds are in the table */
}

static int read_ranges(struct cordon_egress *egress, const struct cordon_settings *settings, struct cordon_error *err)
{
    size_t count = 0;
    int r = 1;
    while (cordon_settings_item(settings, CORDON_DOOR_NATIVE, CORDON_SET_EGRESS_RANGES, count))
        count++;
    egress->ranges = calloc(count + 1, sizeof *egress->ranges);
    if (!egress->ranges)
        return cordon_fail_errno(err, -ENOMEM, "read CORDON_EGRESS_RANGES");
    while (r > 0) {
        r = cordon_egress_range_setting(settings, CORDON_SET_EGRESS_RANGES, egress->range_count, false,
                                        &egress->ranges[egress->range_count], err);
        egress->range_count += r > 0;
    }
    return r;
}

static int read_authority(struct cordon_egress *egress, const struct cordon_settings *settings,
                          struct cordon_error *err)
{
    char state[4096];
    if (!cordon_settings_bool(settings, CORDON_DOOR_NATIVE, CORDON_SET_EGRESS_CA))
        return 0;
    int r = cordon_state_path(settings, state, sizeof state, err);
    if (r == 0)
        r = cordon_authority_load(state, &egress->authority, err);
    return r == -ENOENT && egress->oneshot ? 0 : r; /* whoever runs one program with headers has it made before */
}

static int configure(struct cordon_egress *egress, const struct cordon_settings *settings, uid_t *uid,
                     struct cordon_error *err)
{
    struct rlimit files = {.rlim_cur = 1024};
    enum cordon_log_level level = CORDON_LOG_INFO;
    const char *name = cordon_settings_string(settings, CORDON_DOOR_NATIVE, CORDON_SET_LOG_LEVEL);
    (void)cordon_log_level_parse(name, &level); /* checked when the settings were loaded */
    cordon_log_setup("egress", level, cordon_settings_bool(settings, CORDON_DOOR_NATIVE, CORDON_SET_LOG_JSON));
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files); /* the old limit then means fewer connections */
    }
    rlim_t most = files.rlim_cur > 2 * FDS_OF_PROCESS ? (files.rlim_cur - FDS_OF_PROCESS) / FDS_OF_CONNECTION : 64;
    egress->connections_in_all_max = most < 1000000 ? (unsigned)most : 1000000;
    egress->connections_max = number(settings, CORDON_SET_EGRESS_CONNECTIONS);
    egress->log_entries = number(settings, CORDON_SET_EGRESS_LOG);
    *uid = (uid_t)cordon_settings_int(settings, CORDON_DOOR_NATIVE, CORDON_SET_UID_BASE) + UID_OFFSET;
    if (!cordon_outer_has_ids(*uid, 1))
        *uid = geteuid(); /* in a namespace with one id: without capabilities all the same */
    int r = read_ranges(egress, settings, err);
    if (r == 0)
        r = read_authority(egress, settings, err);
    return r < 0 ? r : cordon_resolver_new(&egress->loop, settings, &egress->resolver, err);
}

static int read_args(struct cordon_egress *egress, char **argv, struct cordon_settings_input *input)
{
    int at = 1;
    egress->oneshot = argv[at] && strcmp(argv[at], "--oneshot") == 0;
    at += egress->oneshot;
    if (argv[at] && strcmp(argv[at], "--config") == 0 && argv[at + 1]) {
        input->file = argv[at + 1];
        at += 2;
    }
    input->flags = (const char *const *)(argv + at);
    return 0;
}

static int watch_signals(struct cordon_egress *egress, struct cordon_error *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &set, NULL); /* can't fail */
    (void)signal(SIGPIPE, SIG_IGN);           /* splice has no flag against it */
    egress->signals.on_event = on_signal;
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    int r = fd < 0 ? -errno : cordon_source_watch(&egress->loop, &egress->signals, fd, EPOLLIN);
    return r < 0 ? cordon_fail_errno(err, r, "watch signals") : 0;
}

static int take_descriptors(struct cordon_egress *egress, struct cordon_error *err)
{
    int fd = egress->oneshot ? CORDON_ROLE_PEER : CORDON_ROLE_CONTROL;
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC); /* checked by its first use */
    egress->control.on_event = on_control;
    int r = egress->oneshot ? take_peer(egress, fd) : cordon_source_watch(&egress->loop, &egress->control, fd, EPOLLIN);
    return r < 0 ? cordon_fail_errno(err, r, "watch descriptor %d", fd) : 0;
}

/* The relays of busy guests must not be urgent, as the gateway is. But one thread serves all guests: beside many of
 * them it gets the weight of three, or a busy host would let their connections wait. */
static void be_ordinary(void)
{
    const struct sched_param normal = {0};
    (void)sched_setscheduler(0, SCHED_OTHER, &normal); /* giving up priority is always allowed */
    (void)setpriority(PRIO_PROCESS, 0, NICE);          /* an ordinary user's stays as it is */
}

static int confine(uid_t uid, struct cordon_error *err)
{
    pid_t parent = getppid();
    int r = cordon_drop_privileges(uid, uid);
    if (r < 0)
        return cordon_fail_errno(err, r, "become uid %u without privilege", (unsigned)uid);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent) /* changing ids has cleared it */
        return cordon_fail_errno(err, -ESRCH, "the parent is gone");
    return cordon_filter_egress(err);
}

static int start(struct cordon_egress *egress, char **argv, struct cordon_error *err)
{
    struct cordon_settings_input input = {0};
    struct cordon_settings *settings;
    uid_t uid = 0;
    be_ordinary();
    int r = cordon_loop_init(&egress->loop);
    if (r < 0)
        return cordon_fail_errno(err, r, "make an event loop");
    r = read_args(egress, argv, &input);
    if (r == 0)
        r = cordon_settings_load(&input, &settings, err);
    if (r < 0)
        return r;
    r = configure(egress, settings, &uid, err);
    cordon_settings_free(settings);
    if (r == 0)
        r = watch_signals(egress, err);
    if (r == 0)
        r = take_descriptors(egress, err);
    return r < 0 ? r : confine(uid, err);
}

static void done(struct cordon_egress *egress)
{
    close_sessions(egress);
    cordon_source_close(&egress->loop, &egress->peer);
    cordon_source_close(&egress->loop, &egress->control);
    cordon_source_close(&egress->loop, &egress->signals);
    cordon_resolver_free(egress->resolver);
    while (egress->pipes) {
        struct cordon_pipe *pipe = egress->pipes;
        egress->pipes = pipe->next;
        cordon_close(&pipe->ends[0]);
        cordon_close(&pipe->ends[1]);
        free(pipe);
    }
    cordon_authority_free(egress->authority);
    free(egress->ranges);
    cordon_loop_done(&egress->loop);
}

int cordon_egress_main(int argc, char **argv)
{
    static struct cordon_egress egress = {.control.fd = -1, .signals.fd = -1, .peer.fd = -1, .loop.epoll = -1};
    struct cordon_error err = {0};
    int status = 0;
    (void)prctl(PR_SET_NAME, "cordon-egress"); /* for ps only */
    cordon_log_setup("egress", CORDON_LOG_INFO, false);
    if (start(&egress, argv, &err) < 0) {
        cordon_log_error("the egress process can not start", &err);
        status = cordon_error_exit(err.kind);
    } else {
        int r = cordon_loop_run(&egress.loop);
        if (r < 0)
            cordon_log(CORDON_LOG_ERROR, "event loop failed", "error", strerror(-r), NULL);
        status = r < 0;
    }
    done(&egress);
    return status;
}
