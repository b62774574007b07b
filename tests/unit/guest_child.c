/* SPDX-License-Identifier: Apache-2.0 */
#include "guest_child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "isolate/filter.h"

#define OUTSIDE 300000000u

/* Asked before any child changes its uid, and remembered. */
bool guest_child_has_range(void)
{
    static int root = -1;
    if (root < 0)
        root = geteuid() == 0;
    return root;
}

uid_t guest_child_uid(void)
{
    return guest_child_has_range() ? 1000 : 0;
}

static void write_file(int dir, const char *name, const char *text)
{
    if (cordon_write_file(dir, name, text) < 0)
        perror(name);
}

static void write_maps(pid_t pid, uid_t uid, gid_t gid)
{
    char path[64], text[64];
    snprintf(path, sizeof path, "/proc/%d", pid);
    cordon_autoclose int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (uid == 0) {
        snprintf(text, sizeof text, "0 %u 65536", OUTSIDE);
        write_file(dir, "gid_map", text);
        write_file(dir, "uid_map", text);
        return;
    }
    write_file(dir, "setgroups", "deny");
    snprintf(text, sizeof text, "0 %u 1", gid);
    write_file(dir, "gid_map", text);
    snprintf(text, sizeof text, "0 %u 1", uid);
    write_file(dir, "uid_map", text);
}

/* In the child: a user namespace, mapped by the parent, and its root. */
static bool enter_namespace(int sync)
{
    char byte = 0;
    if (unshare(CLONE_NEWUSER) < 0 || write(sync, &byte, 1) != 1 || read(sync, &byte, 1) != 1)
        return false;
    return setresgid(0, 0, 0) == 0 && setresuid(0, 0, 0) == 0 && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0;
}

static pid_t start(int (*child)(int sync, void *arg), void *arg, int *sync)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        abort();
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        close(pair[0]);
        _exit(enter_namespace(pair[1]) ? child(pair[1], arg) : GUEST_CHILD_NAMESPACE);
    }
    close(pair[1]);
    char byte;
    if (read(pair[0], &byte, 1) == 1) {
        write_maps(pid, geteuid(), getegid());
        if (write(pair[0], &byte, 1) != 1)
            perror("sync");
    }
    *sync = pair[0];
    return pid;
}

struct simple {
    int (*part)(void *arg);
    void *arg;
};

static int run_simple(int sync, void *arg)
{
    const struct simple *simple = arg;
    (void)sync;
    return simple->part(simple->arg);
}

int guest_child_run(int (*part)(void *arg), void *arg)
{
    int sync, status = -1;
    struct simple simple = {part, arg};
    pid_t pid = start(run_simple, &simple, &sync);
    waitpid(pid, &status, 0);
    close(sync);
    return status;
}

static int nothing(void *arg)
{
    (void)arg;
    return 0;
}

bool guest_child_possible(void)
{
    return guest_child_run(nothing, NULL) == 0;
}

struct code {
    struct cordon_code_profile profile;
    int (*part)(void *arg);
    void *arg;
    const char *const *argv;
    int output;
};

static int run_code(int sync, void *arg)
{
    struct code *code = arg;
    int listener;
    const char *stage;
    static const char *const environment[] = {"PATH=/usr/bin:/bin",     "HOME=/tmp",
                                              "OPENBLAS_NUM_THREADS=2", "MPLBACKEND=Agg",
                                              "MPLCONFIGDIR=/tmp",      "GIT_CONFIG_NOSYSTEM=1",
                                              "LC_ALL=C.UTF-8",         NULL};
    if (dup2(code->output, 1) < 0 || dup2(code->output, 2) < 0)
        return GUEST_CHILD_BECOME;
    int r = cordon_code_become(&code->profile, &listener, &stage);
    if (r < 0) {
        dprintf(2, "%s: %s\n", stage, strerror(-r));
        return GUEST_CHILD_BECOME;
    }
    if (cordon_send_fds(sync, "l", 1, &listener, listener >= 0, 0) != 1)
        return GUEST_CHILD_LISTENER;
    if (listener >= 0)
        close(listener);
    if (code->part)
        return code->part(code->arg);
    execve(code->argv[0], (char *const *)(uintptr_t)code->argv, (char *const *)(uintptr_t)environment);
    perror(code->argv[0]);
    return 127;
}

static void answer(int listener, struct guest_child_result *result)
{
    struct seccomp_notif call;
    char text[32];
    memset(&call, 0, sizeof call);
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) < 0)
        return;
    size_t used = strlen(result->names);
    snprintf(result->names + used, sizeof result->names - used, " %s", cordon_filter_syscall_name(call.data.nr, text));
    result->answered++;
    struct seccomp_notif_resp response = {.id = call.id, .error = -cordon_filter_denied_errno(call.data.nr)};
    (void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response); /* the caller may have died meanwhile */
}

/* Until all writers of the output are gone. */
static void serve(int output, int listener, struct guest_child_result *result)
{
    size_t used = 0;
    for (;;) {
        char lost[512];
        struct pollfd events[2] = {{output, POLLIN, 0}, {listener, POLLIN, 0}};
        if (poll(events, 2, -1) < 0 && errno != EINTR)
            return;
        if (events[1].revents & POLLIN)
            answer(listener, result);
        else if (events[1].revents)
            listener = -1;
        if (!events[0].revents)
            continue;
        bool full = used + 1 >= sizeof result->output;
        ssize_t n =
            read(output, full ? lost : result->output + used, full ? sizeof lost : sizeof result->output - 1 - used);
        if (n <= 0)
            return;
        used += full ? 0 : (size_t)n;
        result->output[used] = '\0';
    }
}

void guest_child_code(struct cordon_code_profile profile, int (*part)(void *arg), void *arg, const char *const argv[],
                      struct guest_child_result *result)
{
    int sync, ends[2], listener = -1;
    char byte;
    size_t count = 1;
    memset(result, 0, sizeof *result);
    if (pipe2(ends, O_CLOEXEC) < 0)
        abort();
    if (!profile.keep_ids)
        profile.uid = profile.gid = guest_child_uid();
    struct code code = {profile, part, arg, argv, ends[1]};
    pid_t pid = start(run_code, &code, &sync);
    close(ends[1]);
    if (cordon_recv_fds(sync, &byte, 1, &listener, &count, 0) != 1 || count != 1)
        listener = -1;
    serve(ends[0], listener, result);
    waitpid(pid, &result->status, 0);
    cordon_close(&listener);
    close(sync);
    close(ends[0]);
}
