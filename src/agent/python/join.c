/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a zygote without capabilities places a fork of itself into a guest.
 *
 *   zygote --vfork--> outer --vfork--> inner --fork--> interpreter
 *
 * outer: writes itself into the code's cgroups (descriptors that the warden opened), then enters the namespaces. The
 *     user namespace comes first: its owner is the zygote's uid, so that entering it gives the capabilities in it
 *     that the other namespaces ask for. Entering a pid namespace holds for children only; entering a user namespace
 *     can not be taken back. That is why the zygote itself can do neither.
 * inner: is born inside the pid namespace. What it forks is therefore reparented, when it exits, to the guest's
 *     process 1, which reaps the interpreter and knows its real exit status.
 * interpreter: made by the C library's fork, so that locks, atfork handlers and the thread id are right. It is born
 *     on the inner stack and returns to the zygote's own stack, of which it has its own copy, by longjmp.
 *
 * outer and inner share the zygote's memory, descriptors and signal handlers and run while it waits in clone, so that
 * they cost no page tables, and report by writing to the same struct. They touch nothing but that struct, and exit.
 * The kernel reaps them, since the zygote ignores SIGCHLD (signal handlers are shared, so theirs too).
 *
 * _FORTIFY_SOURCE would refuse a longjmp from one stack to another, so this file goes without.
 */
#undef _FORTIFY_SOURCE
#include "agent/python/join.h"

#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/zygote_wire.h"

#define STACK_SIZE (256u << 10) /* atfork handlers of preloaded libraries run on the inner one */
#define GUARD_SIZE (64u << 10)
#define SHARED (CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_SIGHAND | SIGCHLD)

struct attempt {
    struct cordon_join *join;
    jmp_buf back;
    int status;
};

static char *stacks; /* guard, inner, outer; stacks grow down */

static const struct {
    enum cordon_zygote_fd fd;
    int type;
    const char *stage;
} namespaces[] = {
    {CORDON_ZYGOTE_NS_USER, CLONE_NEWUSER, "setns user"}, {CORDON_ZYGOTE_NS_NET, CLONE_NEWNET, "setns net"},
    {CORDON_ZYGOTE_NS_PID, CLONE_NEWPID, "setns pid"},    {CORDON_ZYGOTE_NS_IPC, CLONE_NEWIPC, "setns ipc"},
    {CORDON_ZYGOTE_NS_UTS, CLONE_NEWUTS, "setns uts"},    {CORDON_ZYGOTE_NS_CGROUP, CLONE_NEWCGROUP, "setns cgroup"},
    {CORDON_ZYGOTE_NS_MNT, CLONE_NEWNS, "setns mnt"},
};

static int fail(struct attempt *attempt, const char *stage)
{
    attempt->status = -errno;
    attempt->join->stage = stage;
    return 1;
}

static int inner(void *data)
{
    struct attempt *attempt = data;
    pid_t pid = fork();
    if (pid == 0)
        longjmp(attempt->back, 1);
    return pid < 0 ? fail(attempt, "fork") : 0;
}

static int outer(void *data)
{
    struct attempt *attempt = data;
    const int *fds = attempt->join->fds;
    for (size_t i = 0; i < attempt->join->cgroups; i++)
        if (write(fds[CORDON_ZYGOTE_FIXED + i], "0", 1) != 1)
            return fail(attempt, "enter the cgroup");
    for (size_t i = 0; i < sizeof namespaces / sizeof *namespaces; i++)
        if (setns(fds[namespaces[i].fd], namespaces[i].type) < 0)
            return fail(attempt, namespaces[i].stage);
    if (clone(inner, stacks + GUARD_SIZE + STACK_SIZE, SHARED, attempt) < 0)
        return fail(attempt, "clone in the pid namespace");
    return 0;
}

int cordon_join_open(void)
{
    char *base = mmap(NULL, GUARD_SIZE + 2 * STACK_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (base == MAP_FAILED)
        return -errno;
    if (mprotect(base + GUARD_SIZE, 2 * STACK_SIZE, PROT_READ | PROT_WRITE) < 0)
        return -errno;
    stacks = base;
    return 0;
}

int cordon_join_fork(struct cordon_join *join)
{
    struct attempt attempt = {.join = join};
    if (setjmp(attempt.back))
        return 1;
    if (clone(outer, stacks + GUARD_SIZE + 2 * STACK_SIZE, SHARED, &attempt) < 0)
        (void)fail(&attempt, "clone");
    return attempt.status;
}
