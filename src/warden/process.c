/* SPDX-License-Identifier: Apache-2.0 */
/* Children of the warden: forked without a descriptor that is not theirs, since a copy of a lease or of a channel
 * would hide its end from the other side. */
#include "warden/warden.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#define KEPT_MAX 8

static int by_number(const void *a, const void *b)
{
    const int *left = a, *right = b;
    return (*left > *right) - (*left < *right);
}

static void close_others(const int *keep, size_t count)
{
    int kept[KEPT_MAX];
    unsigned from = 3;
    size_t n = 0;
    for (size_t i = 0; i < count && n < KEPT_MAX; i++)
        if (keep[i] >= 3)
            kept[n++] = keep[i];
    qsort(kept, n, sizeof *kept, by_number);
    for (size_t i = 0; i < n; i++) {
        if ((unsigned)kept[i] > from)
            (void)close_range(from, (unsigned)kept[i] - 1, 0); /* can't fail for such a range */
        from = (unsigned)kept[i] + 1;
    }
    (void)close_range(from, ~0u, 0);
}

int cordon_process_become_child(pid_t parent, const int *keep, size_t count)
{
    sigset_t none;
    sigemptyset(&none);
    close_others(keep, count);
    (void)sigprocmask(SIG_SETMASK, &none, NULL); /* the warden reads its signals from a descriptor */
    (void)signal(SIGPIPE, SIG_DFL);              /* and ignores this one, which an exec would keep */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return -errno;
    return getppid() == parent ? 0 : -EOWNERDEAD;
}

pid_t cordon_process_fork(const int *keep, size_t count)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0 && cordon_process_become_child(parent, keep, count) < 0)
        _exit(1);
    return pid;
}
