/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. A child writes its results into shared memory as it goes, so that one that is killed half-way
 * (an outer filter may kill instead of refusing) still tells how far it came. Namespaces are tried one by one, as what
 * is refused should be named, in one child, as they build on each other: ids first, mounts last.
 *
 * As root the child becomes an unprivileged uid first: it is such a uid that owns guests' user namespaces, and hosts
 * that close them to unprivileged uids would be missed otherwise. Around it is another child, in the warden's place:
 * it does what a warden does in a container (outer.h), and mounts a whole proc where it may, as the template has one.
 */
#include "isolate/probe_try.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/attempt.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/sys.h"
#include "isolate/cgroup.h"
#include "isolate/filter.h"
#include "isolate/outer.h"
#include "isolate/slotns.h"
#include "isolate/steer.h"

#define OWNER 200000001u /* nobody's uid, as the zygote's */
#define RANGE 200065536u /* the ids behind it */
/* For what hangs; a slow host takes seconds. A guest's child has tries of its own, and a parent that waits for it. */
#define TRY_MS 20000u
#define GUEST_CHILD_MS 25000u
#define GUEST_MS 30000u
#define TRYING 2 /* a result until it is known: it was killed for that, or hung in it */

/* Runs `body` in a child that shares `size` bytes with us: what it wrote there is there, however it ended. */
static int in_sharing_child(int (*body)(void *shared), void *data, size_t size, unsigned limit_ms)
{
    struct cordon_attempt attempt;
    int r = cordon_attempt(body, data, size, -1, limit_ms, &attempt);
    return r < 0 ? r : cordon_attempt_result(&attempt);
}

struct one_try {
    int (*body)(void);
};

static int call(void *object)
{
    return ((struct one_try *)object)->body();
}

/* Runs one try in a child of its own; its result is the child's exit status. */
static int in_child(int (*body)(void))
{
    struct one_try one = {body};
    int r = in_sharing_child(call, &one, sizeof one, TRY_MS);
    return r == -EINTR ? -EPERM : r; /* an outer filter may kill for trying */
}

static int write_map(int proc, const char *file, unsigned inside, unsigned outside, unsigned count)
{
    char text[64];
    (void)snprintf(text, sizeof text, "%u %u %u", inside, outside, count); /* always fits */
    return cordon_write_file(proc, file, text);
}

static int map_single(int proc, uid_t uid, gid_t gid)
{
    (void)cordon_write_file(proc, "setgroups", "deny"); /* needed by the next, and only then; absent before 3.19 */
    int r = write_map(proc, "gid_map", 0, gid, 1);
    return r < 0 ? r : write_map(proc, "uid_map", 0, uid, 1);
}

/* The parent's part: as the warden maps a slot. */
static int map_range(pid_t child)
{
    char path[32];
    (void)snprintf(path, sizeof path, "/proc/%d", child); /* always fits */
    cordon_autoclose int proc = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (proc < 0)
        return -errno;
    int r = write_map(proc, "gid_map", 0, RANGE, 65536);
    return r < 0 ? r : write_map(proc, "uid_map", 0, RANGE, 65536);
}

static int new_namespace(int flag)
{
    return unshare(flag) < 0 ? -errno : 0;
}

static int raise_loopback(void)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    cordon_autoclose int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) < 0 ? -errno : 0;
}

static int mount_tmpfs(void)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return -errno;
    return mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=64k,nr_inodes=16") < 0 ? -errno : 0;
}

static int mount_proc(void)
{
    if (mkdir("/tmp/proc", 0700) < 0)
        return -errno;
    return mount("proc", "/tmp/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 ? -errno : 0;
}

/* With a range mapped, the uid that made the namespace has no name in it and couldn't make a file. */
static int become_mapped(void)
{
    return setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0 ? -errno : 0;
}

/* Keeps CAP_SYS_ADMIN as slotns.c does, for the reason told there. */
static int become_owner(void)
{
    if (geteuid() != 0 || !cordon_outer_has_ids(OWNER, 1))
        return 0;
    int r = cordon_slotns_become_owner(OWNER);
    if (r < 0)
        return r;
    return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 ? -errno : 0; /* else nobody but root may write the maps */
}

static void note(int *results, enum cordon_try which, int (*try)(void))
{
    results[which] = TRYING;
    results[which] = try();
}

static void try_namespaces(int *results)
{
    static const struct {
        enum cordon_try which;
        int flag;
    } namespaces[] = {
        {CORDON_TRY_PID, CLONE_NEWPID}, {CORDON_TRY_MOUNT, CLONE_NEWNS},      {CORDON_TRY_IPC, CLONE_NEWIPC},
        {CORDON_TRY_UTS, CLONE_NEWUTS}, {CORDON_TRY_CGROUP, CLONE_NEWCGROUP}, {CORDON_TRY_NETWORK, CLONE_NEWNET},
    };
    for (size_t i = 0; i < sizeof namespaces / sizeof namespaces[0]; i++) {
        results[namespaces[i].which] = TRYING;
        results[namespaces[i].which] = new_namespace(namespaces[i].flag);
    }
    if (results[CORDON_TRY_NETWORK] == 0)
        note(results, CORDON_TRY_LOOPBACK, raise_loopback);
    if (results[CORDON_TRY_MOUNT] == 0)
        note(results, CORDON_TRY_TMPFS, mount_tmpfs);
    if (results[CORDON_TRY_PID] == 0 && results[CORDON_TRY_TMPFS] == 0)
        results[CORDON_TRY_PROC] = in_child(mount_proc);
}

/* sync: the child says that its namespace is there, the parent that it did what it could about the range. */
static void guest_child(int sync, int *results)
{
    char byte = 0;
    int r = become_owner();
    uid_t uid = geteuid();
    gid_t gid = getegid();
    if (r == 0)
        r = new_namespace(CLONE_NEWUSER);
    results[CORDON_TRY_USER] = r;
    if (r < 0 || write(sync, &byte, 1) != 1 || read(sync, &byte, 1) != 1)
        return;
    if (results[CORDON_TRY_RANGE] != 0) {
        cordon_autoclose int proc = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        results[CORDON_TRY_USER] = map_single(proc, uid, gid);
    }
    if (results[CORDON_TRY_USER] == 0)
        results[CORDON_TRY_USER] = become_mapped();
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* whoever waits has a limit; becoming somebody else took it back */
    if (results[CORDON_TRY_USER] == 0)
        try_namespaces(results);
}

static int run_guest_child(int *results)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    cordon_autoclose int ours = pair[0], theirs = pair[1];
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0) {
        cordon_close(&ours); /* so that a dead parent ends the wait */
        guest_child(theirs, results);
        _exit(0);
    }
    cordon_close(&theirs);
    char byte;
    if (read(ours, &byte, 1) == 1) {
        results[CORDON_TRY_RANGE] = map_range(pid);
        if (send(ours, &byte, 1, MSG_NOSIGNAL) != 1)
            (void)kill(pid, SIGKILL); /* it is about to end anyway */
    }
    struct cordon_attempt attempt;
    int r = cordon_attempt_finish(pid, cordon_now_us() + 1000ull * GUEST_CHILD_MS, &attempt);
    return r < 0 ? r : cordon_attempt_result(&attempt); /* how far it came is in the results */
}

/* What a warden does first; where it can't, the tries show what that costs. */
static void take_wardens_place(void)
{
    if (geteuid() != 0)
        return;
    if (!cordon_outer_may_mount() && cordon_outer_has_ids(RANGE, 65536))
        (void)cordon_outer_enter_user(NULL);
    if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0)
        (void)mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
}

static int guest_body(void *results)
{
    take_wardens_place();
    return run_guest_child(results);
}

int cordon_try_guest(int results[CORDON_TRY__COUNT])
{
    for (size_t i = 0; i < CORDON_TRY__COUNT; i++)
        results[i] = CORDON_TRY_SKIPPED;
    results[CORDON_TRY_USER] = TRYING;
    int r = in_sharing_child(guest_body, results, CORDON_TRY__COUNT * sizeof(int), GUEST_MS);
    for (size_t i = 0; i < CORDON_TRY__COUNT; i++)
        if (results[i] == TRYING)
            results[i] = r == -ETIME ? -ETIME : -EPERM; /* killed for it, by a filter say, is refused */
    return r == -EINTR || r == -ETIME ? 0 : r;
}

static int cgroups_body(void *shared)
{
    struct cordon_try_cgroups *ret = shared;
    struct cordon_cgroup_root *root;
    struct cordon_error err;
    char instance[32];
    (void)snprintf(instance, sizeof instance, "probe-%d", getpid()); /* always fits */
    if (geteuid() == 0 && !cordon_outer_may_mount())
        (void)cordon_outer_enter_user(NULL); /* shows in what can be had */
    if (geteuid() == 0)
        cordon_outer_open_cgroups();
    int r = cordon_cgroup_root_open(instance, &root, &err);
    if (r < 0) {
        (void)snprintf(ret->reason, sizeof ret->reason, "%.250s", err.message);
        return r;
    }
    ret->memory = cordon_cgroup_has_memory(root);
    ret->pids = cordon_cgroup_has_pids(root);
    ret->cpu = cordon_cgroup_has_cpu(root);
    (void)snprintf(ret->reason, sizeof ret->reason, "%s", cordon_cgroup_root_reason(root));
    cordon_cgroup_root_close(root);
    return 0;
}

int cordon_try_cgroups(struct cordon_try_cgroups *ret)
{
    *ret = (struct cordon_try_cgroups){0};
    int r = in_sharing_child(cgroups_body, ret, sizeof *ret, TRY_MS);
    if (r < 0 && !*ret->reason)
        (void)snprintf(ret->reason, sizeof ret->reason, "trying it: %s", strerror(-r)); /* fits */
    return r;
}

static int filter_self(void)
{
    int listener;
    cordon_autoclose int filter = cordon_filter_code(NULL);
    if (filter < 0)
        return filter;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    return cordon_filter_load(filter, &listener);
}

int cordon_try_filter(void)
{
    return in_child(filter_self);
}

int cordon_try_pidfd(void)
{
    cordon_autoclose int fd = cordon_pidfd_open(getpid());
    return fd < 0 ? fd : 0;
}

/* Content that is no program: where executing is allowed the kernel says so, where it isn't it says that. */
static int execute_memfd(void)
{
    static const char content[] = "\1no program";
    static const char *const argv[] = {"probe", NULL};
    cordon_autoclose int fd = cordon_sealed_memfd("probe", content, sizeof content);
    if (fd < 0)
        return fd;
    (void)syscall(SYS_execveat, fd, "", argv, NULL, AT_EMPTY_PATH); /* returns, as there is nothing to execute */
    return errno == ENOEXEC ? 0 : -errno;
}

int cordon_try_memfd(void)
{
    return in_child(execute_memfd);
}

static int schedule_realtime(void)
{
    struct sched_param param = {.sched_priority = 1};
    return sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &param) < 0 ? -errno : 0;
}

int cordon_try_steer(void)
{
    return in_child(cordon_steer_probe);
}

int cordon_try_realtime(void)
{
    return in_child(schedule_realtime);
}

static void execute(const char *const argv[], int output)
{
    static const char *const environment[] = {"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", NULL};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0 && dup2(null, 0) >= 0 && dup2(output, 1) >= 0 && dup2(null, 2) >= 0)
        (void)execve(argv[0], (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)environment);
    _exit(errno == ENOENT ? 127 : 126);
}

/* Reads to the end, or to the deadline: -ETIME. */
static int read_output(int fd, char *text, size_t size, uint64_t deadline)
{
    size_t used = 0;
    for (;;) {
        uint64_t now = cordon_now_us();
        struct pollfd event = {.fd = fd, .events = POLLIN};
        if (now >= deadline)
            return -ETIME;
        int ready = poll(&event, 1, (int)((deadline - now) / 1000) + 1);
        if (ready < 0 && errno != EINTR)
            return -errno;
        if (ready <= 0)
            continue;
        char lost[256];
        bool full = used + 1 >= size;
        ssize_t n = read(fd, full ? lost : text + used, full ? sizeof lost : size - 1 - used);
        if (n <= 0)
            return n < 0 ? -errno : 0;
        used += full ? 0 : (size_t)n;
        text[used] = '\0';
    }
}

int cordon_try_program(const char *const argv[], char *text, size_t size)
{
    int ends[2];
    uint64_t deadline_us = cordon_now_us() + 1000ull * TRY_MS;
    text[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    cordon_autoclose int output = ends[0], input = ends[1];
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0)
        execute(argv, input);
    cordon_close(&input);
    int r = read_output(output, text, size, deadline_us);
    if (r < 0)
        (void)kill(pid, SIGKILL); /* waited for below */
    struct cordon_attempt attempt;
    int waited = cordon_attempt_finish(pid, deadline_us, &attempt);
    r = r < 0 ? r : waited;
    return r < 0 ? r : attempt.end == CORDON_ATTEMPT_ENDED ? attempt.value : cordon_attempt_result(&attempt);
}
