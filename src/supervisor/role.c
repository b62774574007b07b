/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/role.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "supervisor/roles.h"

#define ABOVE_ROLE_FDS 64 /* descriptors are first moved there, so that none is overwritten */
#define BACKOFF_FIRST_US 100000u
#define BACKOFF_MAX_US 5000000u
#define LIVED_LONG_US 10000000u /* then the next start comes at once */

static void child_move(int fd, int to)
{
    int high = fcntl(fd, F_DUPFD, ABOVE_ROLE_FDS);
    if (high < 0 || dup2(high, to) < 0)
        _exit(125);
    (void)close(high); /* a copy */
}

/* In the child, which has one thread: everything is allowed. */
static void child(const struct cordon_role *role, pid_t parent, int control, int peer) __attribute__((noreturn));
static void child(const struct cordon_role *role, pid_t parent, int control, int peer)
{
    const struct sched_param realtime = {.sched_priority = 1};
    char count[24];
    sigset_t none;
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL); /* can't fail */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent)
        _exit(125);
    (void)setpgid(0, 0); /* the terminal's ^C is for the supervisor, which stops us in order */
    (void)sched_setscheduler(0, SCHED_RR, &realtime); /* where it is not allowed, answers are late beside busy guests */
    /* Sources may stand where a target goes: all of them are lifted before any is put down. */
    int lifted_control = fcntl(control, F_DUPFD_CLOEXEC, ABOVE_ROLE_FDS);
    int lifted_peer = peer < 0 ? -1 : fcntl(peer, F_DUPFD_CLOEXEC, ABOVE_ROLE_FDS);
    int lifted[16];
    for (size_t i = 0; i < role->listen_count && i < 16; i++)
        lifted[i] = fcntl(role->listen_fds[i], F_DUPFD_CLOEXEC, ABOVE_ROLE_FDS);
    child_move(lifted_control, CORDON_ROLE_CONTROL);
    if (lifted_peer >= 0)
        child_move(lifted_peer, CORDON_ROLE_PEER);
    for (size_t i = 0; i < role->listen_count && i < 16; i++)
        child_move(lifted[i], CORDON_ROLE_LISTEN + (int)i);
    (void)snprintf(count, sizeof count, "%zu", role->listen_count); /* fits */
    if (setenv("CORDON_LISTEN_FDS", count, 1) < 0 || unsetenv("NOTIFY_SOCKET") < 0)
        _exit(125);
    (void)execv("/proc/self/exe", role->argv);
    _exit(125);
}

/* Gives the other role its end of a new connection. */
static void hand_peer(struct cordon_role *to, int fd)
{
    cordon_close(&to->pending_peer);
    if (!to->pid || cordon_send_fds(to->control, "P", 1, &fd, 1, MSG_DONTWAIT) != 1) {
        to->pending_peer = fd; /* not there, or dying: it gets it when it starts */
        return;
    }
    cordon_close(&fd);
}

static int take_peer(struct cordon_role *role, int *ret)
{
    int pair[2];
    if (!role->other)
        return 0;
    if (role->pending_peer >= 0) {
        *ret = CORDON_TAKE_FD(role->pending_peer);
        return 0;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    hand_peer(role->other, pair[1]);
    *ret = pair[0];
    return 0;
}

/* The greeting is in the socket before anything else can be. */
static int open_control(const struct cordon_role *role, int pair[2])
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    if (!role->greeting || send(pair[0], role->greeting, strlen(role->greeting), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
        return 0;
    int r = -errno;
    (void)close(pair[0]); /* nothing is lost in it */
    (void)close(pair[1]);
    return r;
}

int cordon_role_start(struct cordon_role *role, struct cordon_error *err)
{
    int control[2];
    cordon_autoclose int peer = -1;
    int r = take_peer(role, &peer);
    if (r < 0)
        return cordon_fail_errno(err, r, "starting the %s: its connection", role->name);
    r = open_control(role, control);
    if (r < 0)
        return cordon_fail_errno(err, r, "starting the %s: its control socket", role->name);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0)
        child(role, parent, control[1], peer);
    r = pid < 0 ? -errno : 0;
    (void)close(control[1]); /* the child's */
    if (r < 0) {
        (void)close(control[0]); /* nobody is at its other end */
        return cordon_fail_errno(err, r, "starting the %s", role->name);
    }
    role->pid = pid;
    role->control = control[0];
    role->started_us = cordon_now_us();
    role->start_at_us = 0;
    return 0;
}

void cordon_role_ended(struct cordon_role *role)
{
    uint64_t now = cordon_now_us();
    role->pid = 0;
    cordon_close(&role->control);
    if (now - role->started_us > LIVED_LONG_US)
        role->backoff_us = 0;
    role->start_at_us = now + role->backoff_us;
    role->backoff_us = role->backoff_us ? role->backoff_us * 2 : BACKOFF_FIRST_US;
    if (role->backoff_us > BACKOFF_MAX_US)
        role->backoff_us = BACKOFF_MAX_US;
}
