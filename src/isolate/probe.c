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
#include "isolate/cgroup.h"
#include "isolate/probe_try.h"
#include "isolate/root.h"

struct host { /* what several probes look at */
    const struct cordon_probe_paths *paths;
    int guest[CORDON_TRY__COUNT];
    int guest_error; /* the children themselves couldn't be made */
    struct cordon_cgroup_root *cgroups;
    char cgroup_error[256];
    char python[512];
    int python_status;
};

static void found(struct cordon_probe *probe, bool ok, const char *fmt, ...) CORDON_PRINTF(3, 4);

static void found(struct cordon_probe *probe, bool ok, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(probe->found, sizeof probe->found, fmt, args); /* cut where too long: it is for people */
    va_end(args);
    probe->ok = ok;
}

static void fix(struct cordon_probe *probe, const char *fmt, ...) CORDON_PRINTF(2, 3);

static void fix(struct cordon_probe *probe, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(probe->fix, sizeof probe->fix, fmt, args); /* cut where too long: it is for people */
    va_end(args);
}

/* A number out of /proc/sys, or `missing` where this kernel has no such setting. */
static long sysctl_number(const char *path, long missing)
{
    char text[32];
    return cordon_read_file(AT_FDCWD, path, text, sizeof text) <= 0 ? missing : strtol(text, NULL, 10);
}

static bool has_outer_filter(void)
{
    char text[4096];
    if (cordon_read_file(AT_FDCWD, "/proc/self/status", text, sizeof text) < 0)
        return false;
    const char *line = strstr(text, "\nSeccomp:");
    return line && strtol(line + strlen("\nSeccomp:"), NULL, 10) != 0;
}

static bool proc_is_masked(void)
{
    cordon_autofree char *text = malloc(65536);
    return text && cordon_read_file(AT_FDCWD, "/proc/self/mountinfo", text, 65536) > 0 && strstr(text, " /proc/");
}

/* Names what stands in the way of a namespace that was refused, and its remedy. */
static void blame(struct cordon_probe *probe, const char *what, int error)
{
    long most = sysctl_number("/proc/sys/user/max_user_namespaces", -1);
    if (most == 0 || (error == -ENOSPC && most > 0)) {
        found(probe, false, "%s: refused, user.max_user_namespaces is %ld", what, most);
        fix(probe, "sysctl -w user.max_user_namespaces=65536 (and in /etc/sysctl.d to keep it)");
    } else if (sysctl_number("/proc/sys/kernel/unprivileged_userns_clone", 1) == 0) {
        found(probe, false, "%s: refused, kernel.unprivileged_userns_clone is 0", what);
        fix(probe, "sysctl -w kernel.unprivileged_userns_clone=1 (and in /etc/sysctl.d to keep it)");
    } else if (sysctl_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 0) != 0) {
        found(probe, false, "%s: refused by AppArmor, kernel.apparmor_restrict_unprivileged_userns is 1", what);
        fix(probe, "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for cordon with "
                   "\"userns,\"");
    } else if (has_outer_filter()) {
        found(probe, false, "%s: %s, and this process runs under the seccomp filter of an outer container", what,
              strerror(-error));
        fix(probe, "start the container with --security-opt seccomp=unconfined (Kubernetes: seccompProfile type: "
                   "Unconfined), or a profile that allows clone, unshare, setns and mount");
    } else {
        found(probe, false, "%s: %s", what, strerror(-error));
        fix(probe, "use a kernel with CONFIG_USER_NS and the other namespaces, outside of chroots, and security "
                   "modules that allow them");
    }
}

static void skipped(struct cordon_probe *probe)
{
    found(probe, false, "not tried, since what it builds on is missing");
    fix(probe, "mend the probes above first");
}

static void probe_user(const struct host *host, struct cordon_probe *probe)
{
    int r = host->guest_error ? host->guest_error : host->guest[CORDON_TRY_USER];
    if (r < 0)
        blame(probe, "making a user namespace without privilege", r);
    else
        found(probe, true, "an unprivileged uid may make one");
}

static void probe_range(const struct host *host, struct cordon_probe *probe)
{
    int r = host->guest[CORDON_TRY_RANGE];
    if (r == CORDON_TRY_SKIPPED) {
        skipped(probe);
    } else if (r == 0) {
        found(probe, true, "65536 uids can be mapped for a guest");
    } else if (geteuid() != 0) {
        found(probe, false, "as uid %u only one uid can be mapped: code and agent of a guest share it", geteuid());
        fix(probe, "start cordon as root");
    } else {
        found(probe, false, "mapping 65536 uids: %s", strerror(-r));
        fix(probe, "give cordon CAP_SETUID and CAP_SETGID; in a container with mapped uids, a larger range of them");
    }
}

static void probe_namespaces(const struct host *host, struct cordon_probe *probe)
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
            skipped(probe);
        else
            blame(probe, what, r);
        return;
    }
    found(probe, true, "pid, mount, ipc, uts and cgroup namespaces");
}

static void probe_network(const struct host *host, struct cordon_probe *probe)
{
    int made = host->guest[CORDON_TRY_NETWORK], loopback = host->guest[CORDON_TRY_LOOPBACK];
    if (made == CORDON_TRY_SKIPPED)
        skipped(probe);
    else if (made < 0)
        blame(probe, "making a network namespace in a user namespace", made);
    else if (loopback < 0)
        blame(probe, "raising the loopback of a network namespace", loopback);
    else
        found(probe, true, "an empty one with its own loopback");
}

static void probe_tmpfs(const struct host *host, struct cordon_probe *probe)
{
    int r = host->guest[CORDON_TRY_TMPFS];
    if (r == CORDON_TRY_SKIPPED)
        skipped(probe);
    else if (r < 0)
        blame(probe, "mounting a tmpfs on /tmp in a user namespace", r);
    else
        found(probe, true, "a private one with size and inode limits");
}

static void probe_proc(const struct host *host, struct cordon_probe *probe)
{
    int r = host->guest[CORDON_TRY_PROC];
    if (r == CORDON_TRY_SKIPPED) {
        skipped(probe);
    } else if (r == -EPERM && proc_is_masked()) {
        found(probe, false, "refused: parts of the outer /proc are masked, as containers do");
        fix(probe, "Docker: --security-opt systempaths=unconfined; Kubernetes: securityContext.procMount: Unmasked "
                   "(with hostUsers: false)");
    } else if (r < 0) {
        blame(probe, "mounting proc in a pid namespace", r);
    } else {
        found(probe, true, "a guest sees its own processes only");
    }
}

static void probe_filter(const struct host *host, struct cordon_probe *probe)
{
    (void)host;
    int r = cordon_try_filter();
    if (r == 0) {
        found(probe, true, "filters with notifications");
    } else if (r == -EBUSY) {
        found(probe, false, "an outer container's filter has a listener already, and the kernel allows one");
        fix(probe, "start cordon outside of that container, or with --security-opt seccomp=unconfined");
    } else {
        found(probe, false, "installing a filter with notifications: %s", strerror(-r));
        fix(probe,
            "use Linux 5.0 or newer with CONFIG_SECCOMP_FILTER; in a container, one whose filter allows seccomp");
    }
}

static void probe_pidfd(const struct host *host, struct cordon_probe *probe)
{
    (void)host;
    int r = cordon_try_pidfd();
    found(probe, r == 0, "pidfd_open: %s", r == 0 ? "there" : strerror(-r));
    if (r < 0)
        fix(probe, "use Linux 5.3 or newer; in a container, one whose filter allows pidfd_open");
}

static void probe_memfd(const struct host *host, struct cordon_probe *probe)
{
    (void)host;
    int r = cordon_try_memfd();
    long forbidden = sysctl_number("/proc/sys/vm/memfd_noexec", 0);
    if (r == 0) {
        found(probe, true, "the agent can be executed from a sealed memfd");
    } else if (forbidden) {
        found(probe, false, "executing a memfd: %s, vm.memfd_noexec is %ld", strerror(-r), forbidden);
        fix(probe, "sysctl -w vm.memfd_noexec=0 (and in /etc/sysctl.d to keep it)");
    } else {
        found(probe, false, "executing a memfd: %s", strerror(-r));
        fix(probe, "allow memfd_create and execveat in security modules and an outer container's filter");
    }
}

static void probe_cgroup(const struct host *host, struct cordon_probe *probe, bool there, const char *holds)
{
    if (there) {
        found(probe, true, "%s", holds);
        return;
    }
    const char *reason = host->cgroups ? cordon_cgroup_root_reason(host->cgroups) : host->cgroup_error;
    found(probe, false, "no group with this controller can be made%s%.200s", *reason ? ": " : "", reason);
    if (geteuid() == 0)
        fix(probe, "mount the cgroup file system writable (Docker: --cgroupns=private and -v /sys/fs/cgroup:"
                   "/sys/fs/cgroup:rw, or --privileged)");
    else
        fix(probe, "start cordon as root, or with a delegated group: systemd-run --user --scope -p Delegate=yes "
                   "cordon serve");
}

static void probe_memory(const struct host *host, struct cordon_probe *probe)
{
    probe_cgroup(host, probe, host->cgroups && cordon_cgroup_has_memory(host->cgroups),
                 "the kernel holds memory limits");
}

static void probe_pids(const struct host *host, struct cordon_probe *probe)
{
    probe_cgroup(host, probe, host->cgroups && cordon_cgroup_has_pids(host->cgroups),
                 "the kernel holds process limits");
}

static void probe_cpu(const struct host *host, struct cordon_probe *probe)
{
    probe_cgroup(host, probe, host->cgroups && cordon_cgroup_has_cpu(host->cgroups), "the kernel holds CPU shares");
}

static void probe_landlock(const struct host *host, struct cordon_probe *probe)
{
    (void)host;
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, 1 /* LANDLOCK_CREATE_RULESET_VERSION */);
    if (version > 0)
        found(probe, true, "version %ld", version);
    else
        found(probe, false, "not there; cordon does without");
}

static void probe_realtime(const struct host *host, struct cordon_probe *probe)
{
    (void)host;
    int r = cordon_try_realtime();
    if (r == 0) {
        found(probe, true, "SCHED_RR is allowed");
        return;
    }
    found(probe, false, "SCHED_RR: %s; deadlines may be late beside busy guests", strerror(-r));
    fix(probe, "start cordon with CAP_SYS_NICE or LimitRTPRIO=1; with v1 groups and CONFIG_RT_GROUP_SCHED, from the "
               "top cpu group");
}

#define INOTIFY_OF_GUEST 8 /* the most that one may have; see slotns.c */
#define INOTIFY_GUESTS 64

static void probe_inotify(const struct host *host, struct cordon_probe *probe)
{
    static const char path[] = "/proc/sys/fs/inotify/max_user_instances";
    (void)host;
    long most = sysctl_number(path, -1);
    bool enough = most < 0 || most >= INOTIFY_OF_GUEST * INOTIFY_GUESTS;
    found(probe, enough, "fs.inotify.max_user_instances is %ld, for all guests together; a guest has %d at most", most,
          INOTIFY_OF_GUEST);
    if (!enough)
        fix(probe, "for many guests that watch files: sysctl -w fs.inotify.max_user_instances=8192 (and in "
                   "/etc/sysctl.d to keep it)");
}

/* The version that a program told: major and minor. */
static bool parse_version(const char *text, int version[2])
{
    version[0] = version[1] = 0;
    return sscanf(text, "%d.%d", &version[0], &version[1]) >= 1;
}

static void judge_version(struct cordon_probe *probe, const char *path, int status, const char *text,
                          const int least[2], const char *package)
{
    int version[2];
    if (cordon_root_sees(path, probe->found, sizeof probe->found) < 0) {
        fix(probe, "set it to an interpreter that guests see (Debian: apt install %s, and leave it unset)", package);
        return;
    }
    if (status == 127)
        found(probe, false, "%.160s is not there", path);
    else if (status == -ETIME)
        found(probe, false, "%.160s did not tell its version within 5 s (a version manager's shim?)", path);
    else if (status == -EINTR)
        found(probe, false, "%.160s was killed when asked for its version", path);
    else if (status < 0)
        found(probe, false, "running %.160s: %s", path, strerror(-status));
    else if (status != 0)
        found(probe, false, "%.160s: exit status %d when asked for its version", path, status);
    else if (!parse_version(text, version))
        found(probe, false, "%.160s did not tell its version", path);
    else
        found(probe, version[0] > least[0] || (version[0] == least[0] && version[1] >= least[1]), "%.160s is %d.%d",
              path, version[0], version[1]);
    if (!probe->ok)
        fix(probe, "install %s %d.%d or newer (Debian: apt install %s), or give its path", package, least[0], least[1],
            package);
}

/* What guests can't see is not executed either: as root it could be anybody's program. judge_version says so. */
static int ask(const char *const argv[], char *text, size_t size)
{
    char why[sizeof((struct cordon_probe *)NULL)->found];
    text[0] = '\0';
    if (cordon_root_sees(argv[0], why, sizeof why) < 0)
        return -EPERM;
    return cordon_try_program(argv, text, size);
}

static void probe_python(const struct host *host, struct cordon_probe *probe)
{
    static const int least[2] = {3, 9};
    judge_version(probe, host->paths->python, host->python_status, host->python, least, "python3");
}

static void probe_modules(const struct host *host, struct cordon_probe *probe)
{
    static const char *const modules[] = {"numpy", "pandas", "matplotlib"};
    char missing[128] = "", packages[128] = "";
    const char *list = strchr(host->python, '\n');
    if (host->python_status != 0 || !list) {
        skipped(probe);
        return;
    }
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++) {
        if (strstr(list, modules[i]))
            continue;
        size_t used = strlen(missing), also = strlen(packages);
        (void)snprintf(missing + used, sizeof missing - used, " %s", modules[i]);           /* three short names fit */
        (void)snprintf(packages + also, sizeof packages - also, " python3-%s", modules[i]); /* as well */
    }
    found(probe, !*missing, "%s%s", *missing ? "missing:" : "numpy, pandas, matplotlib", missing);
    if (*missing)
        fix(probe, "apt install%s", packages);
}

static void probe_node(const struct host *host, struct cordon_probe *probe)
{
    static const int least[2] = {18, 0};
    const char *path = host->paths->node;
    const char *const argv[] = {path, "--version", NULL};
    char text[128];
    int status = ask(argv, text, sizeof text);
    judge_version(probe, path, status, text[0] == 'v' ? text + 1 : text, least, "nodejs");
}

static void probe_bash(const struct host *host, struct cordon_probe *probe)
{
    static const int least[2] = {4, 0};
    const char *path = host->paths->bash;
    const char *const argv[] = {path, "--norc", "-c", "echo $BASH_VERSION", NULL};
    char text[128];
    judge_version(probe, path, ask(argv, text, sizeof text), text, least, "bash");
}

static const struct row {
    const char *name;
    enum cordon_probe_weight weight;
    void (*run)(const struct host *host, struct cordon_probe *probe);
} rows[] = {
    {"user namespaces", CORDON_PROBE_NEEDED, probe_user},
    {"uid range", CORDON_PROBE_LESSENS, probe_range},
    {"namespaces", CORDON_PROBE_NEEDED, probe_namespaces},
    {"network namespace", CORDON_PROBE_NEEDED, probe_network},
    {"tmpfs", CORDON_PROBE_NEEDED, probe_tmpfs},
    {"proc", CORDON_PROBE_NEEDED, probe_proc},
    {"system call filter", CORDON_PROBE_NEEDED, probe_filter},
    {"pidfd", CORDON_PROBE_NEEDED, probe_pidfd},
    {"memfd", CORDON_PROBE_NEEDED, probe_memfd},
    {"memory limit", CORDON_PROBE_LESSENS, probe_memory},
    {"process limit", CORDON_PROBE_LESSENS, probe_pids},
    {"CPU limit", CORDON_PROBE_LESSENS, probe_cpu},
    {"python", CORDON_PROBE_LESSENS, probe_python},
    {"python modules", CORDON_PROBE_INFO, probe_modules},
    {"node", CORDON_PROBE_LESSENS, probe_node},
    {"bash", CORDON_PROBE_LESSENS, probe_bash},
    {"real-time priority", CORDON_PROBE_INFO, probe_realtime},
    {"inotify", CORDON_PROBE_INFO, probe_inotify},
    {"landlock", CORDON_PROBE_INFO, probe_landlock},
};

/* One start of the interpreter answers for its version and its modules, which are looked for, not loaded. */
static void ask_python(struct host *host)
{
    static const char question[] = "import sys\n"
                                   "from importlib.util import find_spec\n"
                                   "print('%d.%d' % sys.version_info[:2])\n"
                                   "print(*[m for m in ('numpy', 'pandas', 'matplotlib') if find_spec(m)])\n";
    const char *const argv[] = {host->paths->python, "-I", "-c", question, NULL};
    host->python_status = ask(argv, host->python, sizeof host->python);
}

static void open_cgroups(struct host *host)
{
    char instance[32];
    struct cordon_error err;
    (void)snprintf(instance, sizeof instance, "probe-%d", getpid()); /* always fits */
    if (cordon_cgroup_root_open(instance, &host->cgroups, &err) < 0)
        (void)snprintf(host->cgroup_error, sizeof host->cgroup_error, "%.250s", err.message);
}

size_t cordon_probe_host(const struct cordon_probe_paths *paths, struct cordon_probe *ret, size_t max)
{
    struct host host = {.paths = paths};
    host.guest_error = cordon_try_guest(host.guest);
    open_cgroups(&host);
    ask_python(&host);
    size_t count = sizeof rows / sizeof rows[0];
    if (count > max)
        count = max;
    for (size_t i = 0; i < count; i++) {
        ret[i] = (struct cordon_probe){.name = rows[i].name, .weight = rows[i].weight};
        rows[i].run(&host, &ret[i]);
    }
    cordon_cgroup_root_close(host.cgroups);
    return count;
}
