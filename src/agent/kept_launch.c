/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launcher: a child of the agent that has joined the code's control groups and does nothing but fork. What it forks
 * is born in those groups and, by CLONE_PARENT, is the agent's child. It keeps the agent's uid and capabilities, which
 * code can't touch; what it forks gives them up (isolate/code.h) before it looks at anything of the host or the guest.
 *
 * It may be killed (the memory limit, on v2 the whole group at once): the agent then starts another one.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/kept.h"
#include "agent/kept_child.h"
#include "base/fd.h"

#define LOW_FDS 16     /* occupied in the launcher, so that what comes lies above every fixed number */
#define LAUNCHER_FD 16 /* its socket … */
#define FILTER_FD 17   /* … and the code's filter */
#define WORKER_FILES 256
#define LAUNCH_TRIES 3

struct answer {
    int32_t pid, error;
    char stage[64];
};

/* --- in what the launcher forked --- */

static void say(int status, int error, const char *stage, int listener)
{
    struct answer answer = {.pid = (int32_t)getpid(), .error = error};
    (void)snprintf(answer.stage, sizeof answer.stage, "%s", stage);                     /* a cut name is still a name */
    (void)cordon_send_fds(status, &answer, sizeof answer, &listener, listener >= 0, 0); /* the end says it too */
}

static _Noreturn void give_up(int status, int error, const char *stage)
{
    say(status, error, stage, -1);
    _exit(127);
}

/* The terminal belongs to the session that uses it and to its user. */
static int take_terminal(int terminal, uid_t uid)
{
    if (setsid() < 0 || ioctl(terminal, TIOCSCTTY, 0) < 0 || fchown(terminal, uid, uid) < 0)
        return -errno;
    return 0;
}

static int place_ends(const int ends[4])
{
    for (int i = 0; i < 4; i++) {
        if (ends[i] >= 0 && dup2(ends[i], i) < 0)
            return -errno;
        if (ends[i] < 0 && i == STDERR_FILENO && dup2(STDIN_FILENO, i) < 0)
            return -errno;
    }
    return 0;
}

static int become(const struct cordon_agent_config *config, const struct cordon_child *child, uint32_t open_files,
                  int *listener, const char **stage)
{
    const struct cordon_code_profile profile = {.uid = child->uid,
                                                .gid = child->uid ? config->code_gid : 0,
                                                .root = child->uid == 0,
                                                .open_files = open_files,
                                                .processes = config->processes,
                                                .filter_fd = FILTER_FD};
    return cordon_code_become(&profile, listener, stage);
}

static _Noreturn void run_child(const struct cordon_agent_config *config, const struct cordon_launch_request *request,
                                int status, int payload_fd, const int ends[4])
{
    struct cordon_child child;
    const char *stage = "reading what is to be run";
    int listener = -1;
    /* The payload is the host's word: known fields, checked lengths, copied strings. */
    const char *payload = mmap(NULL, request->size, PROT_READ, MAP_PRIVATE, payload_fd, 0);
    int r = payload == MAP_FAILED ? -errno : cordon_child_read(config, payload, request->size, &child);
    if (r == 0 && request->pty) {
        stage = "taking the terminal";
        r = take_terminal(ends[0], child.uid);
    }
    if (r == 0) {
        stage = "placing descriptors";
        r = place_ends(ends);
    }
    (void)close(payload_fd); /* it is mapped */
    for (size_t i = 0; i < 4; i++)
        if (ends[i] >= 0)
            (void)close(ends[i]); /* they are in their places */
    if (r == 0)
        r = become(config, &child, request->kind == CORDON_LAUNCH_EXEC ? request->open_files : WORKER_FILES, &listener,
                   &stage);
    if (r < 0)
        give_up(status, r, stage);
    if (request->kind == CORDON_LAUNCH_WORKER) {
        cordon_close(&listener); /* a denied call gets ENOSYS then: workers need none */
        say(status, 0, "", -1);
        cordon_agent_close_from(CORDON_KEPT_WORKER_FD + 1);
        _exit(cordon_kept_worker_main(CORDON_KEPT_WORKER_FD, payload, request->size));
    }
    say(status, 0, "", listener);
    cordon_close(&listener);
    (void)syscall(SYS_close_range, 4u, (unsigned)status - 1, 0u); /* what stays is close-on-exec anyway */
    r = cordon_child_exec(&child, &stage);
    give_up(status, r, stage);
}

/* --- the launcher --- */

static void serve(const struct cordon_agent_config *config)
{
    struct cordon_launch_request request;
    int fds[CORDON_LAUNCH_FDS], ends[4] = {-1, -1, -1, -1};
    size_t nfds = CORDON_LAUNCH_FDS, used = 2;
    ssize_t n = cordon_recv_fds(LAUNCHER_FD, &request, sizeof request, fds, &nfds, 0);
    if (n == -EMSGSIZE)
        return; /* no room for its descriptors: their end tells */
    if (n != (ssize_t)sizeof request || nfds < 2)
        _exit(n != 0);
    for (int i = 0; i < 4 && used < nfds; i++)
        if (request.given & 1u << i)
            ends[i] = fds[used++];
    if (request.kind == CORDON_LAUNCH_EXEC && ends[3] < 0)
        (void)close(3); /* an occupant: the program is to have 0 to 2 only */
    long pid = syscall(SYS_clone, (unsigned long)CLONE_PARENT, NULL, NULL, NULL, NULL);
    if (pid == 0)
        run_child(config, &request, fds[0], fds[1], ends);
    if (pid < 0)
        say(fds[0], -errno, "starting a process", -1);
    for (size_t i = 0; i < nfds; i++)
        (void)close(fds[i]); /* the child's */
    if (fcntl(3, F_GETFD) < 0)
        (void)dup2(STDIN_FILENO, 3);
}

static int set_up(const struct cordon_agent_config *config, int socket)
{
    const struct sched_param normal = {0};
    sigset_t none;
    (void)prctl(PR_SET_NAME, "cordon-launch");         /* for ps only */
    (void)sched_setscheduler(0, SCHED_OTHER, &normal); /* real-time processes may not enter a cpu group */
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL); /* can't fail */
    for (int i = 0; i < config->cgroups; i++)
        if (write(CORDON_AGENT_CGROUPS + i, "0", 1) != 1)
            return -errno;
    int high = fcntl(socket, F_DUPFD_CLOEXEC, 64), filter = fcntl(CORDON_AGENT_FILTER, F_DUPFD_CLOEXEC, 64);
    if (high < 0 || filter < 0 || dup3(high, LAUNCHER_FD, O_CLOEXEC) < 0 || dup3(filter, FILTER_FD, O_CLOEXEC) < 0)
        return -errno;
    cordon_agent_close_from(FILTER_FD + 1);
    for (int fd = 0; fd < LOW_FDS; fd++)
        if (fd != STDIN_FILENO && fd != STDERR_FILENO && dup2(STDIN_FILENO, fd) < 0)
            return -errno;
    for (int fd = 4; fd < LOW_FDS; fd++)
        (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    return 0;
}

int cordon_kept_launcher_start(struct cordon_kept *kept)
{
    int pair[2];
    cordon_close(&kept->launcher_fd);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    pid_t pid = fork();
    if (pid == 0) {
        int r = set_up(&kept->config, pair[1]);
        if (r < 0) {
            (void)dprintf(STDERR_FILENO, "cordon-agent: the launcher can not start: %s\n", strerror(-r)); /* the log */
            _exit(1);
        }
        for (;;)
            serve(&kept->config);
    }
    int error = -errno;
    (void)close(pair[1]); /* the child's */
    if (pid < 0) {
        (void)close(pair[0]); /* nobody is at its other end */
        return error;
    }
    kept->launcher = pid;
    kept->launcher_fd = pair[0];
    return 0;
}

/* --- the agent's side --- */

static int make_payload(const struct cordon_kept *kept, enum cordon_launch_kind kind, const char *payload, size_t size,
                        size_t *whole)
{
    struct cordon_buf fields = CORDON_BUF_INIT(2 * (size_t)CORDON_FRAME_MAX);
    for (size_t i = 0; kind == CORDON_LAUNCH_EXEC && i < kept->env_count; i++)
        (void)cordon_field_put(&fields, CORDON_FIELD_ENV, kept->env[i], (uint32_t)strlen(kept->env[i]));
    (void)cordon_buf_append(&fields, payload, size); /* failures stick in fields.failed */
    cordon_autoclose int fd = fields.failed ? -1 : memfd_create("exec", MFD_CLOEXEC);
    int r = fields.failed ? -ENOMEM : fd < 0 ? -errno : cordon_write_full(fd, fields.data, fields.size);
    *whole = fields.size;
    cordon_buf_wipe(&fields); /* environment */
    return r < 0 ? r : CORDON_TAKE_FD(fd);
}

static int ask(struct cordon_kept *kept, const struct cordon_launch_request *request, const int *fds, size_t nfds)
{
    ssize_t n = cordon_send_fds(kept->launcher_fd, request, sizeof *request, fds, nfds, MSG_DONTWAIT);
    if (n != -EPIPE && n != -ECONNRESET && n != -EBADF)
        return n < 0 ? (int)n : 0;
    int r = cordon_kept_launcher_start(kept); /* it was killed */
    if (r < 0)
        return r;
    n = cordon_send_fds(kept->launcher_fd, request, sizeof *request, fds, nfds, MSG_DONTWAIT);
    return n < 0 ? (int)n : 0;
}

static void release(struct cordon_launch *launch)
{
    while (launch->holds)
        cordon_close(&launch->held[--launch->holds]);
}

void cordon_kept_launch_done(struct cordon_launch *launch)
{
    release(launch);
    cordon_close(&launch->status);
}

static int hold(struct cordon_launch *launch, int fd_taken)
{
    if (fd_taken < 0)
        return fd_taken;
    launch->held[launch->holds++] = fd_taken;
    return 0;
}

/* Each try has a status of its own, so that its end means this one. */
static int try_launch(struct cordon_kept *kept, struct cordon_launch *launch)
{
    int pair[2], fds[CORDON_LAUNCH_FDS];
    cordon_close(&launch->status);
    launch->tries++;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    launch->status = pair[0];
    fds[0] = pair[1];
    memcpy(fds + 1, launch->held, launch->holds * sizeof *fds);
    int r = ask(kept, &launch->request, fds, 1 + launch->holds);
    (void)close(pair[1]); /* the child's */
    return r;
}

int cordon_kept_launch(struct cordon_kept *kept, struct cordon_launch *launch, enum cordon_launch_kind kind,
                       const char *payload, size_t size, const int ends[4], bool pty)
{
    size_t whole = 0;
    *launch = CORDON_LAUNCH_INIT;
    launch->request = (struct cordon_launch_request){.kind = kind, .pty = pty, .open_files = kept->config.open_files};
    int r = hold(launch, make_payload(kept, kind, payload, size, &whole));
    launch->request.size = (uint32_t)whole;
    for (int i = 0; i < 4 && r == 0; i++) {
        if (ends[i] < 0)
            continue;
        int copy = fcntl(ends[i], F_DUPFD_CLOEXEC, 0);
        r = hold(launch, copy < 0 ? -errno : copy);
        launch->request.given |= 1u << i;
    }
    if (r == 0)
        r = try_launch(kept, launch);
    if (r < 0)
        cordon_kept_launch_done(launch);
    return r;
}

/* The status ended. Before a word came nothing of the program ran: the launcher was killed, or what it had forked. */
static int on_status_end(struct cordon_kept *kept, struct cordon_launch *launch, int error)
{
    if (!launch->holds || launch->tries >= LAUNCH_TRIES)
        return error;
    return try_launch(kept, launch);
}

int cordon_kept_launched(struct cordon_kept *kept, struct cordon_launch *launch, struct cordon_launched *ret,
                         int *listener)
{
    struct answer answer;
    size_t nfds = 1;
    *listener = -1;
    ssize_t n = cordon_recv_fds(launch->status, &answer, sizeof answer, listener, &nfds, MSG_DONTWAIT);
    if (n == -EAGAIN)
        return 0;
    if (n != (ssize_t)sizeof answer) {
        if (n > 0 && nfds)
            cordon_close(listener);
        return on_status_end(kept, launch, n < 0 ? (int)n : -EPIPE);
    }
    release(launch);
    if (nfds == 0)
        *listener = -1;
    *ret = (struct cordon_launched){.pid = answer.pid, .error = answer.error};
    memcpy(ret->stage, answer.stage, sizeof ret->stage);
    ret->stage[sizeof ret->stage - 1] = '\0';
    return 1;
}
