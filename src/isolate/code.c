/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. The process that calls this was just placed into a guest and still holds what its parent
 * held: all capabilities of the guest's user namespace, the parent's priority, limits and signal set-up. The steps are
 * a table and their order is the reason for each:
 *
 *   session     a session of its own first: no controlling terminal, and signals to its group stay its own.
 *   priority    the agent may run at SCHED_RR; code never does. Before ids change, since afterwards it has no right to.
 *   limits      hard limits only ever go down, so this needs no privilege, but must precede everything that could run.
 *   bounding    needs CAP_SETPCAP, so before the ids change.
 *   groups, gid, uid   in this order, since the uid's change takes away the right to do the others.
 *   capabilities       a change from a uid that isn't 0 keeps them, so all three sets are emptied by hand.
 *   no-new-privs       from here on no exec gives anything back; the filter needs it.
 *   dumpable    the uid's change cleared it, and then /proc/self would belong to root and be closed to its owner.
 *   signals     handlers and masks of the parent are gone before code may look.
 *   workdir     with the code's own uid, so that it is a directory which the code may enter.
 *   filter      last, so that it needs to allow nothing of the above.
 *
 * Ids are set by bare system calls: the wrappers of glibc signal every thread it knows of, and after a fork from a
 * threaded zygote those exist no more.
 */
#include "isolate/code.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "isolate/filter.h"

#define MEMLOCK_BYTES (64 * 1024)
#define PENDING_SIGNALS 1024 /* timers count, too; the kernel counts those of all guests of a host together */
#define OOM_SCORE "500"      /* when the whole host runs out of memory, code that left it so goes before agents */

struct limit {
    __rlimit_resource_t resource;
    rlim_t most;
};

/* No RLIMIT_AS: it breaks Node, sanitizers and everything that reserves address space; the cgroup holds memory. */
static const struct limit limits[] = {
    {RLIMIT_CORE, 0},     /* a core file or a core pattern's helper program would run on the host */
    {RLIMIT_MSGQUEUE, 0}, /* kernel memory that outlives the process */
    {RLIMIT_NICE, 0},     /* nice and real-time priorities can't be had back */
    {RLIMIT_RTPRIO, 0},   {RLIMIT_MEMLOCK, MEMLOCK_BYTES}, {RLIMIT_SIGPENDING, PENDING_SIGNALS},
};

static int become_session(const struct cordon_code_profile *profile)
{
    (void)profile;
    if (setsid() < 0 && errno != EPERM) /* EPERM: it is a leader already */
        return -errno;
    (void)umask(022); /* can't fail */
    return 0;
}

static int become_normal_priority(const struct cordon_code_profile *profile)
{
    (void)profile;
    struct sched_param param = {0};
    if (sched_getscheduler(0) != SCHED_OTHER && sched_setscheduler(0, SCHED_OTHER, &param) < 0)
        return -errno;
    errno = 0;
    int nice_value = getpriority(PRIO_PROCESS, 0);
    if (nice_value == -1 && errno)
        return -errno;
    if (nice_value < 0 && setpriority(PRIO_PROCESS, 0, 0) < 0)
        return -errno;
    return 0;
}

static int lower_limit(__rlimit_resource_t resource, rlim_t most)
{
    struct rlimit now;
    if (getrlimit(resource, &now) < 0)
        return -errno;
    rlim_t hard = now.rlim_max < most ? now.rlim_max : most;
    struct rlimit lower = {.rlim_cur = hard, .rlim_max = hard};
    return setrlimit(resource, &lower) < 0 ? -errno : 0;
}

static int become_limited(const struct cordon_code_profile *profile)
{
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        int r = lower_limit(limits[i].resource, limits[i].most);
        if (r < 0)
            return r;
    }
    if (profile->processes) {
        /* Counted by user namespace and uid, so in this guest alone. */
        int r = lower_limit(RLIMIT_NPROC, profile->processes);
        if (r < 0)
            return r;
    }
    return profile->open_files ? lower_limit(RLIMIT_NOFILE, profile->open_files) : 0;
}

/* The root of a kept guest may own, change and give away the guest's files, be any of its users, and use its low ports:
 * what installing packages and starting services takes. All of it is within the guest's user namespace. */
static uint64_t kept_capabilities(const struct cordon_code_profile *profile)
{
    static const int of_root[] = {CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID,
                                  CAP_SETGID, CAP_SETUID,       CAP_KILL,   CAP_NET_BIND_SERVICE};
    uint64_t kept = 0;
    for (size_t i = 0; profile->root && i < sizeof of_root / sizeof *of_root; i++)
        kept |= UINT64_C(1) << of_root[i];
    return kept;
}

#ifndef CORDON_WEAKEN_CAPS
static int drop_bounding_set(const struct cordon_code_profile *profile)
{
    if (profile->keep_ids)
        return 0;
    uint64_t kept = kept_capabilities(profile);
    for (unsigned long capability = 0; capability < 64; capability++) {
        if (kept >> capability & 1)
            continue;
        if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0)
            continue;
        if (errno == EINVAL) /* past the last one that this kernel knows */
            break;
        return -errno;
    }
    /* EINVAL: a kernel without ambient capabilities has none to clear. */
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 && errno != EINVAL)
        return -errno;
    return 0;
}
#endif

/* In a user namespace that an unprivileged user made without newgidmap, the kernel forbids setgroups for good. */
static int setgroups_is_closed(void)
{
    char text[8] = "";
    int fd = open("/proc/self/setgroups", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    (void)close(fd); /* only read from */
    return n >= 4 && memcmp(text, "deny", 4) == 0;
}

static int drop_groups(const struct cordon_code_profile *profile)
{
    if (profile->keep_ids || syscall(SYS_setgroups, 0, NULL) == 0)
        return 0;
    int error = errno;
    if (error == EPERM && (syscall(SYS_getgroups, 0, NULL) == 0 || setgroups_is_closed()))
        return 0;
    return -error;
}

static int change_gid(const struct cordon_code_profile *profile)
{
    gid_t gid = profile->gid;
    return !profile->keep_ids && syscall(SYS_setresgid, gid, gid, gid) < 0 ? -errno : 0;
}

static int change_uid(const struct cordon_code_profile *profile)
{
#ifdef CORDON_WEAKEN_CAPS
    if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0)
        return -errno;
#endif
    uid_t uid = profile->uid;
    return !profile->keep_ids && syscall(SYS_setresuid, uid, uid, uid) < 0 ? -errno : 0;
}

#ifdef CORDON_WEAKEN_CAPS
/* Test builds: what a forgotten drop would leave, so that attacks which need it can be seen to succeed. */
static int keep_capabilities(const struct cordon_code_profile *profile)
{
    (void)profile;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct all[_LINUX_CAPABILITY_U32S_3];
    if (syscall(SYS_capget, &header, all) < 0)
        return -errno;
    for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
        all[i].effective = all[i].inheritable = all[i].permitted;
    if (syscall(SYS_capset, &header, all) < 0)
        return -errno;
    for (unsigned long capability = 0; capability < 64; capability++)
        (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0); /* those it has */
    return 0;
}
#else
static int drop_capabilities(const struct cordon_code_profile *profile)
{
    if (profile->keep_ids)
        return 0;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct left[_LINUX_CAPABILITY_U32S_3];
    uint64_t kept = kept_capabilities(profile);
    memset(left, 0, sizeof left);
    for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
        left[i].effective = left[i].permitted = left[i].inheritable = (uint32_t)(kept >> 32 * i);
    return syscall(SYS_capset, &header, left) < 0 ? -errno : 0;
}
#endif

static int forbid_new_privileges(const struct cordon_code_profile *profile)
{
    (void)profile;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

static int become_dumpable(const struct cordon_code_profile *profile)
{
    (void)profile;
    if (prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
        return -errno;
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        /* Where /proc can't be written the memory limit still holds; only the order at the host's own end is lost. */
        ssize_t n = write(fd, OOM_SCORE, sizeof OOM_SCORE - 1);
        (void)n;
        (void)close(fd); /* the write told all there is to know */
    }
    return 0;
}

static int reset_signals(const struct cordon_code_profile *profile)
{
    (void)profile;
    struct sigaction normal;
    memset(&normal, 0, sizeof normal);
    normal.sa_handler = SIG_DFL;
    for (int number = 1; number < NSIG; number++)
        (void)sigaction(number, &normal, NULL); /* KILL, STOP and libc's own two can't be set: they need not be */
    sigset_t none;
    sigemptyset(&none);
    return sigprocmask(SIG_SETMASK, &none, NULL) < 0 ? -errno : 0;
}

static int enter_workdir(const struct cordon_code_profile *profile)
{
    return profile->workdir && chdir(profile->workdir) < 0 ? -errno : 0;
}

static const struct step {
    const char *stage;
    int (*run)(const struct cordon_code_profile *profile);
} steps[] = {
    {"session", become_session},
    {"scheduling", become_normal_priority},
    {"resource limits", become_limited},
#ifndef CORDON_WEAKEN_CAPS
    {"capability bounding set", drop_bounding_set},
#endif
    {"groups", drop_groups},
    {"gid", change_gid},
    {"uid", change_uid},
#ifdef CORDON_WEAKEN_CAPS
    {"capabilities", keep_capabilities},
#else
    {"capabilities", drop_capabilities},
#endif
    {"no_new_privs", forbid_new_privileges},
    {"dumpable", become_dumpable},
    {"signals", reset_signals},
    {"working directory", enter_workdir},
};

int cordon_code_become(const struct cordon_code_profile *profile, int *listener, const char **stage)
{
    *listener = -1;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        *stage = steps[i].stage;
        int r = steps[i].run(profile);
        if (r < 0)
            return r;
    }
    *stage = "system call filter";
#ifdef CORDON_WEAKEN_SECCOMP
    return 0;
#else
    return cordon_filter_load(profile->filter_fd, listener);
#endif
}
