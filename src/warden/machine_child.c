/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The start of a vmm, in a process that is alone in new pid, mount, ipc and uts namespaces: it enters its slot's
 * network and cgroup namespaces and control groups, makes a root of its own (QEMU's program, libraries and firmware,
 * read-only, and nothing else of the host), gives up all privilege, and executes the role. Root's daemon gives each
 * slot's vmm a uid that nothing else has.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fd.h"
#include "warden/machine.h"

#define UID_IN_SLOT 2u /* of the slot's range; the guests of `local` have others */
#define KVM_MAJOR 10
#define KVM_MINOR 232

struct child {
    const struct cordon_guest *guest;
    const char *stage;
};

static int failed(struct child *child, const char *stage)
{
    child->stage = stage;
    return -errno;
}

/* --- its root --- */

static int make_folders(const char *path)
{
    char part[512];
    for (const char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        (void)snprintf(part, sizeof part, ".%.*s", (int)(p - path), path);
        if (mkdir(part, 0755) < 0 && errno != EEXIST)
            return -errno;
    }
    return 0;
}

/* Binds a file or folder of the host to the same place below the working directory. What is not there is left out. */
static int bind_readonly(const char *path, unsigned long flags)
{
    char target[512];
    struct stat st;
    int r = stat(path, &st) < 0 ? -errno : 0;
    if (r == -ENOENT)
        return 0;
    if (r == 0)
        r = make_folders(path);
    (void)snprintf(target, sizeof target, ".%s", path); /* those paths fit */
    if (r == 0 && S_ISDIR(st.st_mode))
        r = mkdir(target, 0755) < 0 && errno != EEXIST ? -errno : 0;
    else if (r == 0) {
        int fd = open(target, O_CREAT | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0444);
        r = fd < 0 ? -errno : 0;
        cordon_close(&fd);
    }
    if (r == 0 && (mount(path, target, NULL, MS_BIND, NULL) < 0 ||
                   mount(NULL, target, NULL, MS_REMOUNT | MS_BIND | MS_NOSUID | flags, NULL) < 0))
        r = -errno;
    return r;
}

static int make_programs(const struct child *child)
{
    static const char *const trees[] = {"/usr/lib", "/usr/lib64", "/usr/share/qemu", "/usr/share/seabios",
                                        "/etc/ld.so.cache"};
    char qemu[sizeof child->guest->warden->config.qemu];
    int r = 0;
    for (size_t i = 0; r == 0 && i < sizeof trees / sizeof *trees; i++)
        r = bind_readonly(trees[i], MS_RDONLY | MS_NODEV);
    if (r == 0 && (symlink("usr/lib", "lib") < 0 || symlink("usr/lib64", "lib64") < 0))
        r = -errno;
    (void)snprintf(qemu, sizeof qemu, "%s", child->guest->warden->config.qemu);
    /* One outside of /usr comes with its prefix, where its firmware is. */
    const char *whole = strncmp(qemu, "/usr/bin/", 9) == 0 ? qemu : dirname(dirname(qemu));
    return r < 0 ? r : bind_readonly(whole, MS_RDONLY | MS_NODEV);
}

static int make_devices(const struct child *child)
{
    const struct cordon_warden *warden = child->guest->warden;
    int r = bind_readonly("/dev/null", 0);
    if (r == 0)
        r = bind_readonly("/dev/urandom", MS_RDONLY);
    if (r < 0 || cordon_machines_accel(warden->machines) != CORDON_MACHINE_KVM)
        return r;
    if (!warden->config.root)
        return bind_readonly("/dev/kvm", 0);
    uid_t uid = child->guest->slot->uids + UID_IN_SLOT;
    if (mknod("dev/kvm", S_IFCHR | 0600, makedev(KVM_MAJOR, KVM_MINOR)) < 0 || chown("dev/kvm", uid, uid) < 0)
        return -errno;
    return 0;
}

/* Where the new root is mounted, in this mount namespace alone: not over what is to be bound into it. */
static const char *place_of_root(const struct child *child)
{
    static const char *const places[] = {"/tmp", "/mnt", "/media"};
    size_t i = 0;
    for (; i + 1 < sizeof places / sizeof *places; i++) {
        size_t size = strlen(places[i]);
        const char *qemu = child->guest->warden->config.qemu;
        if (access(places[i], F_OK) == 0 && (strncmp(qemu, places[i], size) != 0 || qemu[size] != '/'))
            break;
    }
    return places[i];
}

static int make_root(struct child *child)
{
    const char *place = place_of_root(child);
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return failed(child, "part its mounts from the host's");
    if (mount("cordon-vmm", place, "tmpfs", MS_NOSUID, "mode=0755,size=64k,nr_inodes=64") < 0 || chdir(place) < 0)
        return failed(child, "mount its root");
    int r = make_programs(child);
    errno = -r;
    if (r < 0)
        return failed(child, "bind QEMU's programs and libraries");
    r = make_devices(child);
    errno = -r;
    if (r < 0)
        return failed(child, "make its devices");
    if (mkdir("proc", 0555) < 0 || mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        return failed(child, "mount its proc");
    if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return failed(child, "enter its root");
    if (mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_RDONLY, NULL) < 0)
        return failed(child, "make its root read-only");
    return 0;
}

/* --- the rest --- */

static int enter_slot(struct child *child)
{
    const struct cordon_slot *slot = child->guest->slot;
    const struct sched_param normal = {0};
    if (sched_setscheduler(0, SCHED_OTHER, &normal) < 0) /* real-time processes can't enter control groups */
        return failed(child, "take the normal scheduling class");
    for (size_t i = 0; i < slot->cgroup.procs_count; i++)
        if (write(slot->cgroup.procs[i], "0", 1) != 1)
            return failed(child, "enter its control groups");
    if (setns(slot->ns.net, CLONE_NEWNET) < 0 || setns(slot->ns.cgroup, CLONE_NEWCGROUP) < 0)
        return failed(child, "enter its namespaces");
    if (sethostname("vmm", 3) < 0)
        return failed(child, "name its host");
    return 0;
}

static int execute(struct child *child, const int *fds)
{
    static char name[] = "cordon", role[] = "--role", vmm[] = "vmm", empty[] = "";
    char *argv[] = {name, role, vmm, NULL}, *environment[] = {NULL};
    const struct cordon_warden *warden = child->guest->warden;
    int all[2 + CORDON_VMM__END - 3 + 1] = {warden->null, warden->null};
    memcpy(all + 2, fds, (CORDON_VMM__END - 3) * sizeof *fds);
    all[2 + CORDON_VMM__END - 3] = warden->machines->program;
    int r = cordon_process_place(all, sizeof all / sizeof *all);
    errno = -r;
    if (r < 0)
        return failed(child, "place its descriptors");
    (void)fcntl(CORDON_VMM__END, F_SETFD, FD_CLOEXEC); /* the program */
    (void)syscall(SYS_execveat, CORDON_VMM__END, empty, argv, environment, AT_EMPTY_PATH);
    return failed(child, "execute the vmm");
}

static int become(struct child *child, const int *fds)
{
    const struct cordon_guest *guest = child->guest;
    int keep[32], n = 0;
    for (size_t i = 0; i < CORDON_VMM__END - 3; i++)
        keep[n++] = fds[i];
    for (size_t i = 0; i < guest->slot->cgroup.procs_count; i++)
        keep[n++] = guest->slot->cgroup.procs[i];
    keep[n++] = guest->slot->ns.net;
    keep[n++] = guest->slot->ns.cgroup;
    keep[n++] = guest->warden->null;
    keep[n++] = guest->warden->machines->program;
    int r = cordon_process_become_child(0 /* as seen from in here */, keep, (size_t)n);
    errno = -r;
    if (r < 0)
        return failed(child, "part from the warden");
    r = enter_slot(child);
    if (r == 0)
        r = make_root(child);
    if (r < 0)
        return r;
    r = cordon_process_drop_to(&guest->warden->config, guest->slot->uids + UID_IN_SLOT);
    errno = -r;
    return r < 0 ? failed(child, "drop its privileges") : execute(child, fds);
}

_Noreturn void cordon_machine_child(const struct cordon_guest *guest, const int fds[CORDON_VMM__END - 3])
{
    struct child child = {.guest = guest, .stage = ""};
    int r = become(&child, fds);
    struct cordon_vmm_report report = {.version = CORDON_VMM_VERSION, .what = CORDON_VMM_FAILED, .status = r};
    (void)snprintf(report.why, sizeof report.why, "its process could not %s: %s", child.stage, strerror(-r));
    if (cordon_send_fds(fds[0], &report, sizeof report, NULL, 0, MSG_DONTWAIT) < 0)
        (void)cordon_send_fds(CORDON_VMM_CONTROL, &report, sizeof report, NULL, 0, MSG_DONTWAIT); /* placed already */
    _exit(126);
}
