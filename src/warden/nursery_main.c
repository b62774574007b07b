/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nursery: a process without privilege from which agents are cloned. Theory of operation:
 *
 * The nursery has the template's tree as its root and the zygote uid, which owns the slots' user namespaces. For a job
 * it makes the *joiner*, a vfork-style clone (shared memory, shared descriptors, a stack of its own; the nursery sleeps
 * until it is gone). The joiner enters the slot's user namespace, where its owner has all capabilities, and the slot's
 * network namespace, and clones *process 1*, again vfork-style, with the other namespaces new. CLONE_PARENT makes it
 * the nursery's child, so that PR_SET_PDEATHSIG ties it to the nursery. Process 1 mounts, opens its namespaces, takes
 * the agent's ids and executes the agent; that wakes the joiner, which exits, and that wakes the nursery.
 *
 * Because all of them share memory and descriptors, no page table is copied, a failure is simply written into the job
 * (status, stage), and the descriptors that process 1 opened are the nursery's own to report. Only when process 1
 * puts its descriptors into their places it takes a table of its own. Between clone and exec only system calls are
 * made, identity changes by bare ones: libc must not act on state that it believes to be one process's.
 *
 * SIGCHLD is ignored: children are reaped by the kernel, and who cares for a process 1 holds its pidfd.
 */
#include "warden/nursery_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <linux/securebits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "isolate/root.h"

#define STACK_SIZE (128u << 10)
#define LOW_FDS 32 /* kept occupied, so that what a job brings is above every fixed number */

struct work {
    struct cordon_nursery_job job;
    struct cordon_nursery_report report;
    int fds[CORDON_NURSERY_FORKED + CORDON_AGENT_CGROUPS_MAX];
    size_t nfds;
    int given[CORDON_NURSERY_REPORT_FDS]; /* what process 1 opened */
    int null, agent, filter, self;        /* self: pidfd of the nursery */
};

static char *stacks;

static int fail(struct work *work, int error, const char *stage)
{
    work->report.status = error;
    (void)snprintf(work->report.stage, sizeof work->report.stage, "%s", stage); /* a cut name is still a name */
    return error;
}

/* --- process 1 --- */

static int open_namespaces(struct work *work)
{
    static const char *const names[] = {
        [CORDON_NURSERY_NS_PID] = "/proc/self/ns/pid", [CORDON_NURSERY_NS_MNT] = "/proc/self/ns/mnt",
        [CORDON_NURSERY_NS_IPC] = "/proc/self/ns/ipc", [CORDON_NURSERY_NS_UTS] = "/proc/self/ns/uts",
        [CORDON_NURSERY_NS_CGROUP] = "/proc/self/ns/cgroup",
    };
    for (size_t i = CORDON_NURSERY_NS_PID; work->job.forked && i < CORDON_NURSERY_REPORT_FDS; i++) {
        work->given[i] = open(names[i], O_RDONLY | O_CLOEXEC);
        if (work->given[i] < 0)
            return -errno;
    }
    return 0;
}

/* The agent keeps what it needs in its own user namespace: ending the code, becoming the code, remounting the tmpfs. */
static int keep_capabilities(void)
{
    static const int kept[] = {CAP_KILL, CAP_SETUID, CAP_SETGID, CAP_SETPCAP, CAP_SYS_ADMIN, CAP_CHOWN, CAP_FOWNER};
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        data[kept[i] / 32].permitted |= 1u << (kept[i] % 32);
    for (size_t i = 0; i < 2; i++)
        data[i].effective = data[i].inheritable = data[i].permitted;
    if (syscall(SYS_capset, &header, data) < 0)
        return -errno;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, kept[i], 0, 0) < 0)
            return -errno;
    return 0;
}

/* After the ids changed, since that clears it; and the nursery may have died just before. */
static int die_with_nursery(const struct work *work)
{
    struct pollfd nursery = {.fd = work->self, .events = POLLIN};
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return -errno;
    return poll(&nursery, 1, 0) != 0 ? -EOWNERDEAD : 0;
}

static int place_descriptors(const struct work *work)
{
    int places[CORDON_AGENT_CGROUPS + CORDON_AGENT_CGROUPS_MAX];
    size_t fixed = work->job.forked ? CORDON_NURSERY_FORKED : CORDON_NURSERY_SPAWN;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        places[i] = -1;
    places[0] = places[1] = work->null; /* 2 stays: the daemon's log */
    places[CORDON_AGENT_CHANNEL] = work->fds[CORDON_NURSERY_CHANNEL];
    places[CORDON_AGENT_READY] = work->fds[CORDON_NURSERY_READY];
    places[CORDON_AGENT_FILTER] = work->filter;
    for (size_t i = CORDON_NURSERY_SPAWN; i < fixed; i++)
        places[CORDON_AGENT_DRIVER + (i - CORDON_NURSERY_DRIVER)] = work->fds[i];
    for (size_t i = 0; i < work->job.cgroups; i++)
        places[CORDON_AGENT_CGROUPS + i] = work->fds[fixed + i];
    if (unshare(CLONE_FILES) < 0)
        return -errno;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (places[i] >= 0 && dup2(places[i], (int)i) < 0)
            return -errno;
    return 0; /* all else is close-on-exec */
}

/* An exec keeps what is ignored, and the agent is to hear of its children. The table of signals is process 1's own. */
static void reset_signals(void)
{
    (void)signal(SIGCHLD, SIG_DFL);
    (void)signal(SIGPIPE, SIG_DFL);
}

static int execute(const struct work *work)
{
    char texts[7][320];
    const struct cordon_nursery_job *job = &work->job;
    int n[7] = {
        snprintf(texts[0], sizeof texts[0], "code_uid=%u", job->code_uid),
        snprintf(texts[1], sizeof texts[1], "code_gid=%u", job->code_uid),
        snprintf(texts[2], sizeof texts[2], "memory=%llu", (unsigned long long)job->memory_bytes),
        snprintf(texts[3], sizeof texts[3], "cpus=%u", job->cpus),
        snprintf(texts[4], sizeof texts[4], "language=%s", job->language),
        snprintf(texts[5], sizeof texts[5], "interpreter=%s", job->interpreter),
        snprintf(texts[6], sizeof texts[6], "driver=%s", job->driver),
    };
    for (size_t i = 0; i < 7; i++)
        if (n[i] < 0 || (size_t)n[i] >= sizeof texts[i])
            return -ENAMETOOLONG;
    static char name[] = "cordon-agent", forked[] = "forked", spawn[] = "spawn", home[] = "workdir=" CORDON_ROOT_HOME,
                isolated[] = "isolated=1", empty[] = "";
    char *argv[] = {name,     job->forked ? forked : spawn, texts[4], texts[0], texts[1], home, isolated,
                    texts[2], texts[3],                     texts[5], texts[6], NULL};
    char *environment[] = {NULL};
    (void)syscall(SYS_execveat, work->agent, empty, argv, environment, AT_EMPTY_PATH);
    return -errno;
}

static int process_one(void *data)
{
    struct work *work = data;
    const struct cordon_root_guest guest = {.code_uid = work->job.code_uid, .agent_uid = work->job.agent_uid,
                                            .disk_bytes = work->job.disk_bytes, .disk_inodes = work->job.disk_inodes};
    const char *stage = "open the guest's namespaces";
    int r = open_namespaces(work);
    if (r == 0)
        r = cordon_root_guest_mount(&guest, &stage);
    if (r == 0 && chdir("/") < 0) {
        stage = "chdir";
        r = -errno;
    }
    if (r == 0 && (r = keep_capabilities()) < 0)
        stage = "keep the agent's capabilities";
    if (r == 0 && (r = die_with_nursery(work)) < 0)
        stage = "tie the guest to the nursery";
    if (r == 0 && (r = place_descriptors(work)) < 0)
        stage = "place the agent's descriptors";
    if (r == 0) {
        reset_signals();
        r = execute(work);
        stage = "execute the agent";
    }
    (void)fail(work, r, stage);
    _exit(127);
}

/* --- the joiner --- */

static int join(void *data)
{
    struct work *work = data;
    int pidfd = -1;
    if (setns(work->fds[CORDON_NURSERY_USER], CLONE_NEWUSER) < 0)
        _exit(fail(work, -errno, "enter the slot's user namespace") != 0);
    if (setns(work->fds[CORDON_NURSERY_NET], CLONE_NEWNET) < 0)
        _exit(fail(work, -errno, "enter the slot's network namespace") != 0);
    /* clone(3) rather than clone3: it has a wrapper that starts a function on the new stack, on every machine. */
    int flags = CLONE_VM | CLONE_VFORK | CLONE_FILES | CLONE_PARENT | CLONE_PIDFD | CLONE_NEWPID | CLONE_NEWNS |
                CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP | SIGCHLD;
    if (clone(process_one, stacks + 2 * STACK_SIZE, flags, work, &pidfd) < 0)
        _exit(fail(work, -errno, "clone process 1 of the guest") != 0);
    work->given[CORDON_NURSERY_PIDFD] = pidfd;
    _exit(0);
}

/* --- the nursery --- */

static void run_job(struct work *work)
{
    size_t fixed = work->job.forked ? CORDON_NURSERY_FORKED : CORDON_NURSERY_SPAWN;
    work->report = (struct cordon_nursery_report){.seq = work->job.seq};
    for (size_t i = 0; i < CORDON_NURSERY_REPORT_FDS; i++)
        work->given[i] = -1;
    work->job.language[sizeof work->job.language - 1] = '\0';
    work->job.interpreter[sizeof work->job.interpreter - 1] = '\0';
    work->job.driver[sizeof work->job.driver - 1] = '\0';
    if (work->job.cgroups > CORDON_AGENT_CGROUPS_MAX || work->nfds != fixed + work->job.cgroups) {
        (void)fail(work, -EBADMSG, "read the job");
        return;
    }
    if (clone(join, stacks + STACK_SIZE, CLONE_VM | CLONE_VFORK | CLONE_FILES | SIGCHLD, work) < 0)
        (void)fail(work, -errno, "clone the joiner");
    else if (work->report.status == 0 && work->given[CORDON_NURSERY_PIDFD] < 0)
        (void)fail(work, -ECHILD, "wait for process 1"); /* the joiner was killed */
}

static bool report(int control, struct work *work)
{
    size_t count = 0;
    if (work->report.status == 0)
        count = work->job.forked ? CORDON_NURSERY_REPORT_FDS : 1;
    ssize_t n = cordon_send_fds(control, &work->report, sizeof work->report, work->given, count, 0);
    for (size_t i = 0; i < CORDON_NURSERY_REPORT_FDS; i++)
        cordon_close(&work->given[i]);
    for (size_t i = 0; i < work->nfds; i++)
        cordon_close(&work->fds[i]);
    return n >= 0;
}

int cordon_nursery_drop(uid_t uid, int rootless)
{
    /* Rootless, the uid is 0 in a user namespace: without these bits an exec would give it capabilities again. */
    if (prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE) < 0)
        return -errno;
    for (unsigned long capability = 0; prctl(PR_CAPBSET_DROP, capability) == 0; capability++)
        ;
    if (!rootless && syscall(SYS_setgroups, 0, NULL) < 0)
        return -errno;
    if (!rootless && (syscall(SYS_setresgid, uid, uid, uid) < 0 || syscall(SYS_setresuid, uid, uid, uid) < 0))
        return -errno;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};
    if (syscall(SYS_capset, &header, none) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return -errno;
    return 0;
}

static int prepare(const struct cordon_nursery_setup *setup, struct work *work, struct cordon_error *err)
{
    /* Above the fixed numbers: process 1 still needs them when it has begun to fill those. */
    work->agent = fcntl(setup->agent, F_DUPFD_CLOEXEC, LOW_FDS);
    work->filter = fcntl(setup->filter, F_DUPFD_CLOEXEC, LOW_FDS);
    if (work->agent < 0 || work->filter < 0)
        return cordon_fail_errno(err, -errno, "move the agent's descriptors");
    if (setns(setup->root, CLONE_NEWNS) < 0)
        return cordon_fail_errno(err, -errno, "enter the template's mount namespace");
    int r = cordon_root_seal(err);
    if (r < 0)
        return r;
    work->null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (work->null < 0)
        return cordon_fail_errno(err, -errno, "open /dev/null in the template");
    for (int fd = 0; (fd = fcntl(work->null, F_DUPFD_CLOEXEC, 0)) < LOW_FDS;)
        if (fd < 0)
            return cordon_fail_errno(err, -errno, "occupy the low descriptors");
    stacks = mmap(NULL, 2 * STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stacks == MAP_FAILED)
        return cordon_fail_errno(err, -errno, "map the stacks");
    work->self = pidfd_open(getpid(), 0);
    if (work->self < 0)
        return cordon_fail_errno(err, -errno, "open a pidfd");
    r = cordon_nursery_drop(setup->zygote_uid, setup->rootless);
    return r < 0 ? cordon_fail_errno(err, r, "drop privileges") : 0;
}

void cordon_nursery_main(const struct cordon_nursery_setup *setup)
{
    static struct work work;
    struct cordon_error err;
    (void)prctl(PR_SET_NAME, "cordon-nursery"); /* for ps only */
    (void)signal(SIGCHLD, SIG_IGN);
    (void)signal(SIGPIPE, SIG_IGN);
    if (prepare(setup, &work, &err) < 0) {
        cordon_log_error("nursery can not start", &err);
        _exit(1);
    }
    for (;;) {
        work.nfds = sizeof work.fds / sizeof *work.fds;
        ssize_t n = cordon_recv_fds(setup->control, &work.job, sizeof work.job, work.fds, &work.nfds, 0);
        if (n <= 0 && n != -EMSGSIZE)
            _exit(n < 0); /* the warden is gone */
        if (n != (ssize_t)sizeof work.job) {
            /* Fds were lost on the way (the table is full): the job is still named, if it came whole. */
            work.nfds = n < 0 ? 0 : work.nfds;
            work.job.cgroups = CORDON_AGENT_CGROUPS_MAX + 1;
        }
        run_job(&work);
        if (!report(setup->control, &work))
            _exit(1);
    }
}
