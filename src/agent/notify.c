/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Denied system calls: the filter suspends the caller and tells us; we remember the name and answer with an errno, so
 * that the caller goes on. The call itself is never let through, so nothing of the caller's memory needs a look.
 */
#include <errno.h>
#include <linux/seccomp.h>
#include <string.h>
#include <sys/ioctl.h>

#include "agent/agent.h"
#include "base/fd.h"
#include "isolate/filter.h"

#define ROUNDS 16 /* answers a turn, so that a program that does nothing else can't starve the rest */

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS _IOW('!', 4, __u64)
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#endif

/* Room for what later kernels may add to the structures. */
union request {
    struct seccomp_notif notif;
    char room[256];
};
union answer {
    struct seccomp_notif_resp resp;
    char room[128];
};

void cordon_agent_notify_setup(int listener)
{
    /* An answer then costs 4 microseconds, not 29. Since 6.6; without it all works the same. */
    (void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);
}

static void remember(struct cordon_agent_exec *exec, int number)
{
    char text[32];
    if (exec->state < CORDON_AGENT_RUNNING) /* an interpreter trying out its kernel is no program's deed */
        return;
    if (exec->denied < UINT32_MAX)
        exec->denied++;
    const char *name = cordon_filter_syscall_name(number, text);
    size_t size = strnlen(name, sizeof exec->blocked - 1);
    memcpy(exec->blocked, name, size);
    exec->blocked[size] = '\0';
}

/* ENOENT is a caller that was killed meanwhile; anything else but an interruption is the listener's end. */
int cordon_agent_notify_answer(int listener)
{
    union request request;
    union answer answer;
    memset(&request, 0, sizeof request);
    memset(&answer, 0, sizeof answer);
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &request) < 0)
        return errno == ENOENT || errno == EINTR ? CORDON_NOTIFY_AGAIN : CORDON_NOTIFY_END;
    int number = request.notif.data.nr;
    answer.resp.id = request.notif.id;
    answer.resp.error = -cordon_filter_denied_errno(number);
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer) < 0 && errno != ENOENT)
        return CORDON_NOTIFY_END;
    return number < 0 ? CORDON_NOTIFY_AGAIN : number;
}

static bool answer_one(struct cordon_agent_exec *exec)
{
    int number = cordon_agent_notify_answer(exec->listener);
    if (number >= 0)
        remember(exec, number);
    return number != CORDON_NOTIFY_END;
}

static void on_notify(struct cordon_agent *agent, struct cordon_agent_exec *exec, short events)
{
    (void)agent;
    if (!(events & POLLIN)) { /* nobody is left under the filter */
        cordon_close(&exec->listener);
        return;
    }
    for (int round = 0; round < ROUNDS; round++) {
        struct pollfd again = {.fd = exec->listener, .events = POLLIN};
        if (!answer_one(exec)) {
            cordon_close(&exec->listener); /* callers get ENOSYS from the kernel from now on */
            return;
        }
        cordon_agent_pace_spend(exec, 1);
        if (cordon_agent_pace_rests(exec))
            return;
        if (poll(&again, 1, 0) != 1 || !(again.revents & POLLIN)) /* RECV would wait */
            return;
    }
}

void cordon_agent_notify_watch(struct cordon_agent *agent, struct cordon_agent_exec *exec)
{
    if (exec->listener >= 0)
        cordon_agent_watch(agent, exec->listener, POLLIN, on_notify, exec);
}
