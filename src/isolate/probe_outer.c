/* SPDX-License-Identifier: Apache-2.0 */
/* What stands around this process (outer.h) and in the way of guests: the walls of a container, and of hosts. */
#include <errno.h>
#include <string.h>

#include "isolate/outer.h"
#include "isolate/probe_row.h"

#define MASKED_FIX                                                                                                     \
    "Docker: --security-opt systempaths=unconfined, or --cap-add SYS_ADMIN; Kubernetes: securityContext.procMount: "   \
    "Unmasked (with hostUsers: false)"

#define FILTER_FIX                                                                                                     \
    "Docker: --security-opt seccomp=packaging/docker/seccomp.json, or unconfined; Kubernetes: seccompProfile type: "   \
    "Unconfined"

#define APPARMOR_FIX "Docker: --security-opt apparmor=unconfined; Kubernetes: appArmorProfile type: Unconfined"

#define RESTRICTED "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"

void cordon_probe_look_around(struct cordon_probe_host *host)
{
    host->filtered = cordon_outer_has_filter();
    cordon_outer_apparmor(host->apparmor, sizeof host->apparmor);
    cordon_outer_masked_proc(host->masked, sizeof host->masked);
}

/*
 * Names what stands in the way of a namespace or mount that was refused, and its remedy. AppArmor says EACCES where
 * the kernel itself and system call filters say EPERM.
 */
void cordon_probe_blame(const struct cordon_probe_host *host, struct cordon_probe *probe, const char *what, int error)
{
    long most = cordon_probe_sysctl("/proc/sys/user/max_user_namespaces", -1);
    if (most == 0 || (error == -ENOSPC && most > 0)) {
        cordon_probe_found(probe, false, "%s: refused, user.max_user_namespaces is %ld", what, most);
        cordon_probe_fix(probe, "sysctl -w user.max_user_namespaces=65536 (and in /etc/sysctl.d to keep it)");
    } else if (cordon_probe_sysctl("/proc/sys/kernel/unprivileged_userns_clone", 1) == 0) {
        cordon_probe_found(probe, false, "%s: refused, kernel.unprivileged_userns_clone is 0", what);
        cordon_probe_fix(probe, "sysctl -w kernel.unprivileged_userns_clone=1 (and in /etc/sysctl.d to keep it)");
    } else if (error == -EACCES && *host->apparmor) {
        cordon_probe_found(probe, false, "%s: refused by the AppArmor profile %s", what, host->apparmor);
        cordon_probe_fix(probe, APPARMOR_FIX);
    } else if (host->filtered) {
        cordon_probe_found(probe, false, "%s: %s, and this process runs under the seccomp filter of an outer container",
                           what, strerror(-error));
        cordon_probe_fix(probe, FILTER_FIX);
    } else if (cordon_probe_sysctl(RESTRICTED, 0) != 0) {
        cordon_probe_found(probe, false, "%s: refused by AppArmor, kernel.apparmor_restrict_unprivileged_userns is 1",
                           what);
        cordon_probe_fix(probe,
                         "start cordon as root, or install packaging/apparmor/cordon in /etc/apparmor.d, or sysctl -w "
                         "kernel.apparmor_restrict_unprivileged_userns=0");
    } else {
        cordon_probe_found(probe, false, "%s: %s", what, strerror(-error));
        cordon_probe_fix(probe,
                         "use a kernel with CONFIG_USER_NS and the other namespaces, outside of chroots, and security "
                         "modules that allow them");
    }
}

void cordon_probe_proc(const struct cordon_probe_host *host, struct cordon_probe *probe)
{
    int r = host->guest[CORDON_TRY_PROC];
    if (r == CORDON_TRY_SKIPPED) {
        cordon_probe_skipped(probe);
    } else if (r == -EPERM && *host->masked) {
        cordon_probe_found(probe, false, "refused, since parts of the outer /proc are masked: %.150s", host->masked);
        cordon_probe_fix(probe, MASKED_FIX);
    } else if (r < 0) {
        cordon_probe_blame(host, probe, "mounting proc in a pid namespace", r);
    } else {
        cordon_probe_found(probe, true, "a guest sees its own processes only");
    }
}

/* AppArmor says EACCES to a process that it confines; a filter, the kernel and a restricting sysctl say EPERM. */
static bool is_from(const struct cordon_probe_host *host, enum cordon_try which, bool confined)
{
    int r = host->guest[which];
    if (which == CORDON_TRY_PROC && r == -EPERM && *host->masked)
        return false; /* that is why */
    return r < 0 && (confined ? r == -EACCES : r != -EACCES);
}

/* The first thing that guests need and don't get; NULL: they get all. */
static const char *lost(const struct cordon_probe_host *host, bool confined)
{
    static const struct {
        enum cordon_try which;
        const char *what;
    } tries[] = {{CORDON_TRY_USER, "user namespaces"},        {CORDON_TRY_PID, "pid namespaces"},
                 {CORDON_TRY_MOUNT, "mount namespaces"},      {CORDON_TRY_IPC, "ipc namespaces"},
                 {CORDON_TRY_UTS, "uts namespaces"},          {CORDON_TRY_CGROUP, "cgroup namespaces"},
                 {CORDON_TRY_NETWORK, "network namespaces"},  {CORDON_TRY_LOOPBACK, "a loopback of their own"},
                 {CORDON_TRY_TMPFS, "private files (mount)"}, {CORDON_TRY_PROC, "a /proc of their own (mount)"}};
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++)
        if (is_from(host, tries[i].which, confined))
            return tries[i].what;
    return NULL;
}

/* The three walls of a container, each by its name, with what is lost by it. Each is mended by a switch of its own. */
void cordon_probe_outer_filter(const struct cordon_probe_host *host, struct cordon_probe *probe)
{
    const char *what = lost(host, false);
    if (!host->filtered)
        cordon_probe_found(probe, true, "no outer filter");
    else if (!what)
        cordon_probe_found(probe, true, "an outer filter, which allows what guests need");
    else
        cordon_probe_found(probe, false, "an outer filter; guests don't get %s", what);
    if (!probe->ok)
        cordon_probe_fix(probe, FILTER_FIX);
}

void cordon_probe_apparmor(const struct cordon_probe_host *host, struct cordon_probe *probe)
{
    bool confined = *host->apparmor;
    const char *who = confined ? host->apparmor : "kernel.apparmor_restrict_unprivileged_userns is 1";
    const char *what = lost(host, confined);
    if (!confined && cordon_probe_sysctl(RESTRICTED, 0) == 0)
        cordon_probe_found(probe, true, "no profile around this process");
    else if (!what)
        cordon_probe_found(probe, true, "%s, which allows what guests need", who);
    else
        cordon_probe_found(probe, false, "%s; guests don't get %s", who, what);
    if (!probe->ok)
        cordon_probe_fix(probe, "%s",
                         confined ? APPARMOR_FIX
                                  : "start cordon as root, or install packaging/apparmor/cordon in "
                                    "/etc/apparmor.d");
}

void cordon_probe_masked_proc(const struct cordon_probe_host *host, struct cordon_probe *probe)
{
    if (!*host->masked)
        cordon_probe_found(probe, true, "wholly visible");
    else if (host->guest[CORDON_TRY_PROC] == 0)
        cordon_probe_found(probe, true, "parts are masked (%.100s), but a new one can be mounted", host->masked);
    else
        cordon_probe_found(probe, false, "parts are masked (%.100s); guests don't get a /proc of their own",
                           host->masked);
    if (!probe->ok)
        cordon_probe_fix(probe, MASKED_FIX);
}
