/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. Each row of the table at the end is one probe; a row's function fills in `found` and `fix` from
 * what the tries of probe_try.c and the detection of cgroup.c gave. A failure looks for its blocker: the kernel says
 * EPERM for a sysctl, AppArmor, an outer container's filter and a masked /proc alike, and each is mended elsewhere.
 */
#include "isolate/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "isolate/probe_row.h"

void cordon_probe_found(struct cordon_probe *probe, bool ok, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(probe->found, sizeof probe->found, fmt, args); /* cut where too long: it is for people */
    va_end(args);
    probe->ok = ok;
}

void cordon_probe_fix(struct cordon_probe *probe, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(probe->fix, sizeof probe->fix, fmt, args); /* cut where too long: it is for people */
    va_end(args);
}

long cordon_probe_sysctl(const char *path, long missing)
{
    char text[32];
    return cordon_read_file(AT_FDCWD, path, text, sizeof text) <= 0 ? missing : strtol(text, NULL, 10);
}

void cordon_probe_skipped(struct cordon_probe *probe)
{
    cordon_probe_found(probe, false, "not tried, since what it builds on is missing");
    cordon_probe_fix(probe, "mend the probes above first");
}

static void probe_user(const struct cordon_probe_host *host, struct cordon_probe *probe)
{
    int r = host->guest_error ? host->guest_error : host->guest[CORDON_TRY_USER];
    if (r < 0)
        cordon_probe_blame(host, probe, "making a user namespace without privilege", r);
    else
        cordon_probe_found(probe, true, "an unprivileged uid may make one");
}

static void probe_range(const struct cordon_probe_host *host, struct cordon_probe *probe)
{
    int r = host->guest[CORDON_TRY_RANGE];
    if (r == CORDON_TRY_SKIPPED) {
        cordon_probe_skipped(probe);
    } else if (r == 0) {
        cordon_probe_found(probe, true, "65536 uids can be mapped for a guest");
    } else if (geteuid() != 0) {
        cordon_probe_found(probe, false, "as uid %u only one uid can be mapped: code and agent of a guest share it",
                           geteuid());
        cordon_probe_fix(probe, "start cordon as root");
    } else {
        cordon_probe_found(probe, false, "mapping 65536 uids: %s", strerror(-r));
        cordon_probe_fix(
            probe, "give cordon CAP_SETUID and CAP_SETGID; in a container with mapped uids, a larger range of them");
    }
}

static void probe_namespaces(const struct cordon_probe_host *host, struct cordon_probe *probe)
{
    static const struct {
        enum cordon_try which;
        const char *name;
    } rows[] = {{CORDON_TRY_PID, "pid"},
                {CORDON_TRY_MOUNT, "mount"},
                {CORDON_TRY_IPC, "ipc"},
                {CORDON_TRY_UTS, "uts"},
                {CORDON_TRY_CGROUP, "cgroup"}};
    char what[64];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int r = host->guest[rows[i].which];
        if (r == 0)
            continue;
        (void)snprintf(what, sizeof what, "making a %s namespace in a user namespace", rows[i].name); /* fits */
        if (r == CORDON_TRY_SKIPPED)
            cordon_probe_skipped(probe);
        else
            cordon_probe_blame(host, probe, what, r);
        return;
    }
    cordon_probe_found(probe, true, "pid, mount, ipc, uts and cgroup namespaces");
}

static void probe_network(const struct cordon_probe_host *host, struct cordon_probe *probe)
{
    int made = host->guest[CORDON_TRY_NETWORK], loopback = host->guest[CORDON_TRY_LOOPBACK];
    if (made == CORDON_TRY_SKIPPED)
        cordon_probe_skipped(probe);
    else if (made < 0)
        cordon_probe_blame(host, probe, "making a network namespace in a user namespace", made);
    else if (loopback < 0)
        cordon_probe_blame(host, probe, "raising the loopback of a network namespace", loopback);
    else
        cordon_probe_found(probe, true, "an empty one with its own loopback");
}

/* Rules may name any port only where the kernel gives every port to one socket (isolate/steer.h). */
static void probe_ports(const struct cordon_probe_host *host, struct cordon_probe *probe)
{
    (void)host;
    int r = geteuid() == 0 ? cordon_try_steer() : -EPERM;
    if (r == 0)
        cordon_probe_found(probe, true, "a guest with network reaches names on every TCP port");
    else
        cordon_probe_found(probe, false,
                           "a guest with network reaches names on 80 and 443 only: a BPF program (sk_lookup) is "
                           "refused: %s",
                           strerror(-r));
}

static void probe_tmpfs(const struct cordon_probe_host *host, struct cordon_probe *probe)
{
    int r = host->guest[CORDON_TRY_TMPFS];
    if (r == CORDON_TRY_SKIPPED)
        cordon_probe_skipped(probe);
    else if (r < 0)
        cordon_probe_blame(host, probe, "mounting a tmpfs on /tmp in a user namespace", r);
    else
        cordon_probe_found(probe, true, "a private one with size and inode limits");
}

static void probe_filter(const struct cordon_probe_host *host, struct cordon_probe *probe)
{
    (void)host;
    int r = cordon_try_filter();
    if (r == 0) {
        cordon_probe_found(probe, true, "filters with notifications");
    } else if (r == -EBUSY) {
        cordon_probe_found(probe, false,
                           "an outer container's filter has a listener already, and the kernel allows one");
        cordon_probe_fix(probe, "start cordon outside of that container, or with --security-opt seccomp=unconfined");
    } else {
        cordon_probe_found(probe, false, "installing a filter with notifications: %s", strerror(-r));
        cordon_probe_fix(
            probe,
            "use Linux 5.0 or newer with CONFIG_SECCOMP_FILTER; in a container, one whose filter allows seccomp");
    }
}

static void probe_pidfd(const struct cordon_probe_host *host, struct cordon_probe *probe)
{
    (void)host;
    int r = cordon_try_pidfd();
    cordon_probe_found(probe, r == 0, "pidfd_open: %s", r == 0 ? "there" : strerror(-r));
    if (r < 0)
        cordon_probe_fix(probe, "use Linux 5.3 or newer; in a container, one whose filter allows pidfd_open");
}

static void probe_memfd(const struct cordon_probe_host *host, struct cordon_probe *probe)
{
    (void)host;
    int r = cordon_try_memfd();
    long forbidden = cordon_probe_sysctl("/proc/sys/vm/memfd_noexec", 0);
    if (r == 0) {
        cordon_probe_found(probe, true, "the agent can be executed from a sealed memfd");
    } else if (forbidden) {
        cordon_probe_found(probe, false, "executing a memfd: %s, vm.memfd_noexec is %ld", strerror(-r), forbidden);
        cordon_probe_fix(probe, "sysctl -w vm.memfd_noexec=0 (and in /etc/sysctl.d to keep it)");
    } else {
        cordon_probe_found(probe, false, "executing a memfd: %s", strerror(-r));
        cordon_probe_fix(probe, "allow memfd_create and execveat in security modules and an outer container's filter");
    }
}

static void probe_cgroup(const struct cordon_probe_host *host, struct cordon_probe *probe, bool there,
                         const char *holds)
{
    if (there) {
        cordon_probe_found(probe, true, "%s", holds);
        return;
    }
    const char *reason = host->cgroups.reason;
    cordon_probe_found(probe, false, "no group with this controller can be made%s%.200s", *reason ? ": " : "", reason);
    if (geteuid() == 0)
        cordon_probe_fix(
            probe,
            "mount the cgroup file system writable (Docker: --cgroupns=private on a host with cgroup v2; with v1 "
            "--cap-add SYS_ADMIN)");
    else
        cordon_probe_fix(probe,
                         "start cordon as root, or with a delegated group: systemd-run --user --scope -p Delegate=yes "
                         "cordon serve");
}

static void probe_memory(const struct cordon_probe_host *host, struct cordon_probe *probe)
{
    probe_cgroup(host, probe, host->cgroups.memory, "the kernel holds memory limits");
}

static void probe_pids(const struct cordon_probe_host *host, struct cordon_probe *probe)
{
    probe_cgroup(host, probe, host->cgroups.pids, "the kernel holds process limits");
}

static void probe_cpu(const struct cordon_probe_host *host, struct cordon_probe *probe)
{
    probe_cgroup(host, probe, host->cgroups.cpu, "the kernel holds CPU shares");
}

static void probe_landlock(const struct cordon_probe_host *host, struct cordon_probe *probe)
{
    (void)host;
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, 1 /* LANDLOCK_CREATE_RULESET_VERSION */);
    if (version > 0)
        cordon_probe_found(probe, true, "version %ld", version);
    else
        cordon_probe_found(probe, false, "not there; cordon does without");
}

static void probe_realtime(const struct cordon_probe_host *host, struct cordon_probe *probe)
{
    (void)host;
    int r = cordon_try_realtime();
    if (r == 0) {
        cordon_probe_found(probe, true, "SCHED_RR is allowed");
        return;
    }
    cordon_probe_found(probe, false, "SCHED_RR: %s; deadlines may be late beside busy guests", strerror(-r));
    cordon_probe_fix(
        probe, "start cordon with CAP_SYS_NICE or LimitRTPRIO=1; with v1 groups and CONFIG_RT_GROUP_SCHED, from the "
               "top cpu group");
}

#define INOTIFY_OF_GUEST 8 /* the most that one may have; see slotns.c */
#define INOTIFY_GUESTS 64

static void probe_inotify(const struct cordon_probe_host *host, struct cordon_probe *probe)
{
    static const char path[] = "/proc/sys/fs/inotify/max_user_instances";
    (void)host;
    long most = cordon_probe_sysctl(path, -1);
    bool enough = most < 0 || most >= INOTIFY_OF_GUEST * INOTIFY_GUESTS;
    cordon_probe_found(probe, enough,
                       "fs.inotify.max_user_instances is %ld, for all guests together; a guest has %d at most", most,
                       INOTIFY_OF_GUEST);
    if (!enough)
        cordon_probe_fix(probe,
                         "for many guests that watch files: sysctl -w fs.inotify.max_user_instances=8192 (and in "
                         "/etc/sysctl.d to keep it)");
}

static const struct row {
    const char *name;
    enum cordon_probe_weight weight;
    cordon_probe_run *run;
} rows[] = {
    {"user namespaces", CORDON_PROBE_NEEDED, probe_user},
    {"uid range", CORDON_PROBE_LESSENS, probe_range},
    {"namespaces", CORDON_PROBE_NEEDED, probe_namespaces},
    {"network namespace", CORDON_PROBE_NEEDED, probe_network},
    {"network ports", CORDON_PROBE_INFO, probe_ports},
    {"tmpfs", CORDON_PROBE_NEEDED, probe_tmpfs},
    {"proc", CORDON_PROBE_NEEDED, cordon_probe_proc},
    {"system call filter", CORDON_PROBE_NEEDED, probe_filter},
    {"pidfd", CORDON_PROBE_NEEDED, probe_pidfd},
    {"memfd", CORDON_PROBE_NEEDED, probe_memfd},
    {"memory limit", CORDON_PROBE_LESSENS, probe_memory},
    {"process limit", CORDON_PROBE_LESSENS, probe_pids},
    {"CPU limit", CORDON_PROBE_LESSENS, probe_cpu},
    {"python", CORDON_PROBE_LESSENS, cordon_probe_python},
    {"python modules", CORDON_PROBE_INFO, cordon_probe_modules},
    {"node", CORDON_PROBE_LESSENS, cordon_probe_node},
    {"bash", CORDON_PROBE_LESSENS, cordon_probe_bash},
    {"real-time priority", CORDON_PROBE_INFO, probe_realtime},
    {"inotify", CORDON_PROBE_INFO, probe_inotify},
    {"landlock", CORDON_PROBE_INFO, probe_landlock},
    {"outer seccomp", CORDON_PROBE_INFO, cordon_probe_outer_filter},
    {"outer AppArmor", CORDON_PROBE_INFO, cordon_probe_apparmor},
    {"outer /proc", CORDON_PROBE_INFO, cordon_probe_masked_proc},
};

size_t cordon_probe_host(const struct cordon_probe_paths *paths, struct cordon_probe *ret, size_t max)
{
    struct cordon_probe_host host = {.paths = paths};
    host.guest_error = cordon_try_guest(host.guest);
    (void)cordon_try_cgroups(&host.cgroups); /* its reason tells */
    cordon_probe_look_around(&host);
    cordon_probe_ask_python(&host);
    size_t count = sizeof rows / sizeof rows[0];
    if (count > max)
        count = max;
    for (size_t i = 0; i < count; i++) {
        ret[i] = (struct cordon_probe){.name = rows[i].name, .weight = rows[i].weight};
        rows[i].run(&host, &ret[i]);
    }
    return count;
}
