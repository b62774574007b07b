/* SPDX-License-Identifier: Apache-2.0 */
/* Children of the warden: forked without a descriptor that is not theirs, since a copy of a lease or of a channel
 * would hide its end from the other side. */
#include "warden/warden.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KEPT_MAX 24

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

int cordon_process_drop(const struct cordon_warden_config *config)
{
    return cordon_process_drop_to(config, config->zygote_uid);
}

int cordon_process_drop_to(const struct cordon_warden_config *config, uid_t uid)
{
    /* Rootless, the uid is 0 in a user namespace: without these bits an exec would give it capabilities again. */
    if (prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE) < 0)
        return -errno;
    for (unsigned long capability = 0; prctl(PR_CAPBSET_DROP, capability) == 0; capability++)
        ;
    /* Bare calls: this process has one thread, and libc's wrappers are for those that have more. */
    if (config->root && (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, uid, uid, uid) < 0 ||
                         syscall(SYS_setresuid, uid, uid, uid) < 0))
        return -errno;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};
    if (syscall(SYS_capset, &header, none) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return -errno;
    return 0;
}

int cordon_process_place(const int *fds, size_t count)
{
    int high[KEPT_MAX];
    if (count > KEPT_MAX)
        return -EINVAL;
    for (size_t i = 0; i < count; i++)
        if ((high[i] = fcntl(fds[i], F_DUPFD, 2 * KEPT_MAX)) < 0) /* so that no target overwrites a source */
            return -errno;
    for (size_t i = 0; i < count; i++)
        if (dup2(high[i], (int)i + (i >= 2)) < 0) /* 2, the log, stays */
            return -errno;
    return close_range((unsigned)count + 1, ~0u, 0) < 0 ? -errno : 0;
}
