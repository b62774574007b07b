/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nursery: a process without privilege from which agents are cloned. Theory of operation:
 *
 * The nursery has the template's tree as its root and the zygote uid, which owns the slots' user namespaces. For a job
 * it makes the *joiner*, a vfork-style clone (shared memory, shared descriptors, a stack of its own; the nursery sleeps
 * until it is gone). The joiner enters the slot's user namespace, where its owner has all capabilities, and the slot's
 * network and cgroup namespaces, and forks *process 1* with the other namespaces new. CLONE_PARENT makes that the
 * nursery's child, so that PR_SET_PDEATHSIG ties it to the nursery. Process 1 mounts, tells the warden its namespaces,
 * takes the agent's ids and goes on as the agent.
 *
 * It goes on without an exec because it is the agent already: the nursery is the same small static program, and a fork
 * of it copies some forty pages' entries where an exec would load it anew and let libc ask the processor for its
 * features, which costs a quarter of a millisecond in a virtual machine (each CPUID traps).
 *
 * Identity is changed by bare system calls: libc must not act on state that it believes to be one process's.
 * SIGCHLD is ignored: children are reaped by the kernel, and who cares for a process 1 holds its pidfd.
 */
#include "agent/nursery.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"
#include "isolate/root.h"

#define STACK_SIZE (256u << 10) /* of the joiner, and what process 1 goes on with */
#define LOW_FDS 32              /* kept occupied, so that what a job brings is above every fixed number */
#define ARGUMENTS 11
#define OWN_CAPABILITIES 7 /* of every agent */

struct work {
    struct cordon_nursery_job job;
    struct cordon_nursery_report report;
    int fds[CORDON_NURSERY_FORKED + CORDON_AGENT_CGROUPS_MAX];
    size_t nfds;
    int pidfd;                       /* of process 1 */
    int control, null, filter, self; /* self: pidfd of the nursery */
};

static struct work work;
static char *stack;

static void say(enum cordon_nursery_part part, int status, const char *stage, const int *fds, size_t nfds)
{
    work.report = (struct cordon_nursery_report){.seq = work.job.seq, .part = part, .status = status};
    (void)snprintf(work.report.stage, sizeof work.report.stage, "%s", stage); /* a cut name is still a name */
    if (cordon_send_fds(work.control, &work.report, sizeof work.report, fds, nfds, 0) < 0)
        _exit(1); /* the warden is gone */
}

static size_t fixed_of(const struct cordon_nursery_job *job)
{
    return job->forked ? CORDON_NURSERY_FORKED : job->kept ? CORDON_NURSERY_KEPT : CORDON_NURSERY_SPAWN;
}

/* --- process 1 --- */

static int tell_namespaces(void)
{
    static const char *const names[CORDON_NURSERY_NAMESPACES] = {
        [CORDON_NURSERY_NS_PID] = "/proc/self/ns/pid",
        [CORDON_NURSERY_NS_MNT] = "/proc/self/ns/mnt",
        [CORDON_NURSERY_NS_IPC] = "/proc/self/ns/ipc",
        [CORDON_NURSERY_NS_UTS] = "/proc/self/ns/uts",
    };
    int fds[CORDON_NURSERY_NAMESPACES];
    if (!work.job.forked)
        return 0;
    for (size_t i = 0; i < CORDON_NURSERY_NAMESPACES; i++) {
        fds[i] = open(names[i], O_RDONLY | O_CLOEXEC);
        if (fds[i] < 0)
            return -errno;
    }
    say(CORDON_NURSERY_GUEST, 0, "", fds, CORDON_NURSERY_NAMESPACES);
    return 0; /* they are closed with all else */
}

/* The agent keeps what it needs in its own user namespace: ending the code, becoming the code, remounting the tmpfs. */
static int keep_capabilities(void)
{
    static const int kept[] = {CAP_KILL, CAP_SETUID, CAP_SETGID, CAP_SETPCAP, CAP_SYS_ADMIN, CAP_CHOWN, CAP_FOWNER,
                               /* for the root of a kept guest, see isolate/code.c */
                               CAP_DAC_OVERRIDE, CAP_FSETID, CAP_NET_BIND_SERVICE};
    const size_t count = work.job.kept ? sizeof kept / sizeof *kept : OWN_CAPABILITIES;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    for (size_t i = 0; i < count; i++)
        data[kept[i] / 32].permitted |= 1u << (kept[i] % 32);
    for (size_t i = 0; i < 2; i++)
        data[i].effective = data[i].permitted;
    return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

/* After the ids changed, since that clears it; and the nursery may have died just before. */
static int die_with_nursery(void)
{
    struct pollfd nursery = {.fd = work.self, .events = POLLIN};
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        return -errno;
    return poll(&nursery, 1, 0) != 0 ? -EOWNERDEAD : 0;
}

static int place_descriptors(void)
{
    int places[CORDON_AGENT_CGROUPS + CORDON_AGENT_CGROUPS_MAX];
    const int count = sizeof places / sizeof *places;
    size_t fixed = fixed_of(&work.job);
    for (int i = 0; i < count; i++)
        places[i] = -1;
    places[0] = places[1] = work.null;
    places[CORDON_AGENT_CHANNEL] = work.fds[CORDON_NURSERY_CHANNEL];
    places[CORDON_AGENT_READY] = work.fds[CORDON_NURSERY_READY];
    places[CORDON_AGENT_FILTER] = work.filter;
    for (size_t i = CORDON_NURSERY_SPAWN; i < fixed; i++)
        places[CORDON_AGENT_DRIVER + (i - CORDON_NURSERY_DRIVER)] = work.fds[i];
    for (size_t i = 0; i < work.job.cgroups; i++)
        places[CORDON_AGENT_CGROUPS + i] = work.fds[fixed + i];
    for (int i = 0; i < count; i++) {
        if (places[i] >= 0 && dup2(places[i], i) < 0)
            return -errno;
        if (places[i] < 0 && i != STDERR_FILENO) /* which stays: the daemon's log */
            (void)close(i);                      /* an occupant */
    }
    return close_range((unsigned)count, ~0u, 0) < 0 ? -errno : 0;
}

/* The guest's own process is a normal one: it hears of its children, and `ps` tells what it is. */
static void forget_nursery(void)
{
    (void)signal(SIGCHLD, SIG_DFL);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)prctl(PR_SET_NAME, "cordon-agent");
}

static _Noreturn void become_agent(void)
{
    static char texts[ARGUMENTS][320];
    const struct cordon_nursery_job *job = &work.job;
    (void)snprintf(texts[0], sizeof texts[0], "code_uid=%u", job->code_uid); /* all fit by their sizes */
    (void)snprintf(texts[1], sizeof texts[1], "code_gid=%u", job->code_uid);
    (void)snprintf(texts[2], sizeof texts[2], "memory=%llu", (unsigned long long)job->memory_bytes);
    (void)snprintf(texts[3], sizeof texts[3], "cpus=%u", job->cpus);
    (void)snprintf(texts[4], sizeof texts[4], "open_files=%u", job->open_files);
    (void)snprintf(texts[5], sizeof texts[5], "language=%s", job->language);
    (void)snprintf(texts[6], sizeof texts[6], "interpreter=%s", job->interpreter);
    (void)snprintf(texts[7], sizeof texts[7], "driver=%s", job->driver);
    (void)snprintf(texts[8], sizeof texts[8], "workdir=%s", CORDON_ROOT_HOME);
    (void)snprintf(texts[9], sizeof texts[9], "processes=%u", job->processes);
    (void)snprintf(texts[10], sizeof texts[10], "awaited=%u", job->awaited != 0);
    static char name[] = "cordon-agent", forked[] = "forked", spawn[] = "spawn", kept[] = "kept",
                isolated[] = "isolated=1", told[] = "told=1";
    static char *argv[ARGUMENTS + 5] = {name, spawn, isolated, told};
    if (job->forked || job->kept)
        argv[1] = job->forked ? forked : kept;
    for (int i = 0; i < ARGUMENTS; i++)
        argv[4 + i] = texts[i];
    _exit(cordon_agent_main(ARGUMENTS + 4, argv));
}

static void tell(const void *data)
{
    const struct cordon_nursery_job *job = data;
    cordon_agent_tell_limits(job->memory_bytes, job->cpus);
}

static _Noreturn void process_one(void)
{
    const struct cordon_root_guest guest = {.tell = tell,
                                            .data = &work.job,
                                            .code_uid = work.job.code_uid,
                                            .agent_uid = work.job.agent_uid,
                                            .kept = work.job.kept,
                                            .root_there = work.job.root_there,
                                            .disk_bytes = work.job.disk_bytes,
                                            .disk_inodes = work.job.disk_inodes};
    const char *stage = "";
    int r = cordon_root_guest_mount(&guest, &stage);
    if (r == 0 && (r = keep_capabilities()) < 0)
        stage = "keep the agent's capabilities";
    if (r == 0 && (r = die_with_nursery()) < 0)
        stage = "tie the guest to the nursery";
    if (r == 0 && (r = tell_namespaces()) < 0)
        stage = "open the guest's namespaces";
    if (r == 0 && (r = place_descriptors()) < 0)
        stage = "place the agent's descriptors";
    if (r == 0) {
        forget_nursery();
        become_agent();
    }
    say(CORDON_NURSERY_GUEST, r, stage, NULL, 0);
    _exit(127);
}

/* --- the joiner --- */

static int fail(int error, const char *stage)
{
    work.report.status = error;
    (void)snprintf(work.report.stage, sizeof work.report.stage, "%s", stage); /* a cut name is still a name */
    return 1;
}

static int join(void *unused)
{
    struct clone_args args = {.flags =
                                  CLONE_PARENT | CLONE_PIDFD | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS,
                              .pidfd = (uintptr_t)&work.pidfd};
    (void)unused;
    if (setns(work.fds[CORDON_NURSERY_USER], CLONE_NEWUSER) < 0)
        _exit(fail(-errno, "enter the slot's user namespace"));
    if (!work.job.host_network && setns(work.fds[CORDON_NURSERY_NET], CLONE_NEWNET) < 0)
        _exit(fail(-errno, "enter the slot's network namespace"));
    if (setns(work.fds[CORDON_NURSERY_CGROUP], CLONE_NEWCGROUP) < 0)
        _exit(fail(-errno, "enter the slot's cgroup namespace"));
    long pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0)
        process_one();
    _exit(pid < 0 ? fail(-errno, "clone process 1 of the guest") : 0);
}

/* --- the nursery --- */

static void run_job(void)
{
    size_t fixed = fixed_of(&work.job);
    work.report = (struct cordon_nursery_report){0};
    work.job.language[sizeof work.job.language - 1] = '\0';
    work.job.interpreter[sizeof work.job.interpreter - 1] = '\0';
    work.job.driver[sizeof work.job.driver - 1] = '\0';
    if (work.job.cgroups > CORDON_AGENT_CGROUPS_MAX || work.nfds != fixed + work.job.cgroups)
        (void)fail(-EBADMSG, "read the job");
    else if (clone(join, stack + STACK_SIZE, CLONE_VM | CLONE_VFORK | CLONE_FILES | SIGCHLD, NULL) < 0)
        (void)fail(-errno, "clone the joiner");
    else if (work.report.status == 0 && work.pidfd < 0)
        (void)fail(-ECHILD, "wait for the joiner"); /* it was killed */
}

static void answer(void)
{
    char stage[sizeof work.report.stage];
    int status = work.report.status;
    memcpy(stage, work.report.stage, sizeof stage);
    say(CORDON_NURSERY_PROCESS, status, stage, &work.pidfd, status == 0 ? 1 : 0);
    cordon_close(&work.pidfd);
    for (size_t i = 0; i < work.nfds; i++)
        cordon_close(&work.fds[i]);
}

static bool prepare(void)
{
    work.pidfd = -1;
    work.null = STDIN_FILENO;
    /* Above the fixed numbers: process 1 still needs them when it has begun to fill those. */
    work.control = fcntl(CORDON_NURSERY_CONTROL_FD, F_DUPFD_CLOEXEC, LOW_FDS);
    work.filter = fcntl(CORDON_NURSERY_FILTER_FD, F_DUPFD_CLOEXEC, LOW_FDS);
    work.null = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, LOW_FDS);
    int self = cordon_pidfd_open(getpid());
    work.self = self < 0 ? -1 : fcntl(self, F_DUPFD_CLOEXEC, LOW_FDS);
    if (work.control < 0 || work.filter < 0 || work.null < 0 || work.self < 0)
        return false;
    for (int fd = 0; fd < LOW_FDS;)
        if ((fd = fcntl(work.null, F_DUPFD_CLOEXEC, 0)) < 0)
            return false;
    stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    return stack != MAP_FAILED;
}

void cordon_nursery_main(void)
{
    (void)prctl(PR_SET_NAME, "cordon-nursery"); /* for ps only */
    (void)prctl(PR_SET_DUMPABLE, 0);
    (void)signal(SIGCHLD, SIG_IGN);
    (void)signal(SIGPIPE, SIG_IGN);
    if (!prepare()) {
        (void)dprintf(STDERR_FILENO, "cordon-nursery: can not start: %s\n",
                      strerror(errno)); /* the log is all there is */
        _exit(1);
    }
    for (;;) {
        work.nfds = sizeof work.fds / sizeof *work.fds;
        ssize_t n = cordon_recv_fds(work.control, &work.job, sizeof work.job, work.fds, &work.nfds, 0);
        if (n <= 0 && n != -EMSGSIZE)
            _exit(n < 0); /* the warden is gone */
        if (n != (ssize_t)sizeof work.job) {
            /* Descriptors were lost on the way (the table is full): the job is still named. */
            work.nfds = n < 0 ? 0 : work.nfds;
            work.job.cgroups = CORDON_AGENT_CGROUPS_MAX + 1;
        }
        run_job();
        answer();
    }
}
