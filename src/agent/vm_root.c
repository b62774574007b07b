/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine as one guest. The image's root is taken as what the host's is elsewhere: root.c builds the tree of a
 * guest from it, guest_mount.c what the guest may write. What is different: proc, the control groups and the devices
 * belong to this kernel's own root and not to a user namespace. So what the root of a kept guest could turn against the
 * agent is made read-only or covered, and its uid is not the agent's.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/vm.h"
#include "base/fd.h"
#include "base/sys.h"
#include "base/trust.h"
#include "isolate/nic.h"
#include "isolate/root.h"

#define FIRST_FD 32 /* of our own: above those of launch.h */
#define GROUPS "/sys/fs/cgroup"
#define CODE GROUPS "/code"
#define FILES_MAX (8u << 20)

int cordon_vm_place(int fd, int at)
{
    if (fd < 0)
        return fd;
    if (fd == at)
        return fcntl(fd, F_SETFD, 0) < 0 ? -errno : fd;
    int to = at < 0 ? fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FD)
                    : dup2(fd, at); /* what is in a fixed place may go through an exec */
    (void)close(fd);                /* it has its new number */
    return to;
}

static int open_own(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0644);
    return fd < 0 ? -errno : cordon_vm_place(fd, -1);
}

/* --- control groups --- */

int cordon_vm_make_groups(const char **stage)
{
    static const struct {
        const char *path;
        int *fd, flags;
    } rows[] = {
        {CODE "/cgroup.procs", &cordon_vm.members, O_RDONLY},
        {CODE "/memory.max", &cordon_vm.memory_max, O_WRONLY},
        {CODE "/memory.current", &cordon_vm.memory_current, O_RDONLY},
        {CODE "/memory.events", &cordon_vm.events, O_RDONLY},
        {CODE "/memory.peak", &cordon_vm.peak, O_RDONLY}, /* since 5.19 */
        {CODE "/pids.max", &cordon_vm.pids_max, O_WRONLY},
        {CODE "/cpu.stat", &cordon_vm.cpu, O_RDONLY},
    };
    *stage = "making the control groups (the kernel needs cgroup v2 with memory and pids)";
    if (mount("cgroup2", GROUPS, "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 || mkdir(CODE, 0755) < 0)
        return -errno;
    int r = cordon_write_file(AT_FDCWD, GROUPS "/cgroup.subtree_control", "+memory +pids");
    if (r < 0)
        return r;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        *rows[i].fd = open_own(rows[i].path, rows[i].flags);
        if (*rows[i].fd < 0 && rows[i].fd != &cordon_vm.peak)
            return *rows[i].fd;
    }
    (void)cordon_write_file(AT_FDCWD, CODE "/memory.oom.group", "1"); /* since 4.19; else the largest one dies alone */
    (void)cordon_write_file(AT_FDCWD, CODE "/memory.swap.max", "0");  /* absent without swap */
    int procs = open(CODE "/cgroup.procs", O_WRONLY | O_CLOEXEC);
    return procs < 0 || cordon_vm_place(procs, CORDON_AGENT_CGROUPS) < 0 ? -errno : 0;
}

/* --- what the initramfs brought --- */

static const char *const brought[] = {
    "zygote.py", "_cordon_zygote.so",    "driver.py",
    "driver.js", CORDON_TRUST_AUTHORITY, CORDON_TRUST_BUNDLE}; /* the last two: where there are */
enum { BROUGHT = sizeof brought / sizeof *brought, NEEDED = BROUGHT - 2, TREE_FILES = BROUGHT + 1 };
#define NOTHING_NAME "nothing" /* an empty file that nobody can write: what lies over others */

static int read_brought(const char *name, void **data, size_t *size)
{
    char path[128];
    struct stat st;
    (void)snprintf(path, sizeof path, "/cordon/%s", name);
    cordon_autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    *size = (size_t)st.st_size;
    *data = st.st_size > 0 && st.st_size <= FILES_MAX ? malloc(*size) : NULL;
    if (!*data)
        return -ENOMEM;
    int r = cordon_read_full(fd, *data, *size);
    (void)unlink(path); /* it was memory */
    return r;
}

/* How many, or negative errno. */
static int read_files(struct cordon_root_file *files)
{
    int count = 0;
    files[count++] = (struct cordon_root_file){.name = NOTHING_NAME, .data = ""};
    for (int i = 0; i < BROUGHT; i++) {
        void *data;
        int r = read_brought(brought[i], &data, &files[count].size);
        if (r < 0)
            return r == -ENOENT && i >= NEEDED ? count : r;
        files[count].name = brought[i];
        files[count++].data = data;
    }
    return count;
}

static int place_filter(void)
{
    void *data;
    size_t size;
    int r = read_brought("filter", &data, &size);
    if (r < 0)
        return r;
    int fd = cordon_sealed_memfd("cordon-filter", data, size);
    free(data);
    return fd < 0 ? fd : cordon_vm_place(fd, CORDON_AGENT_FILTER);
}

/* --- the root --- */

/* /root, where the image is, becomes the root of a mount namespace that has nothing of the initramfs. */
static int switch_root(void)
{
    if (chdir("/root") < 0 || mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0 ||
        mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 || chdir("/") < 0)
        return -errno;
    return 0;
}

static int enter_tree(const struct cordon_root_file *files, int count)
{
    const struct cordon_root_spec spec = {.files = files, .file_count = (size_t)count};
    struct cordon_error err = {0};
    int r = cordon_root_enter(&spec, &err);
    if (r < 0)
        return r;
    /* The lease writes to these, through descriptors from before the tree became read-only. */
    cordon_vm.machine_id = open_own("/etc/machine-id", O_RDWR | O_CREAT);
    cordon_vm.hostname = open_own("/etc/hostname", O_RDWR | O_CREAT);
    cordon_vm.hosts = open_own("/etc/hosts", O_RDWR | O_CREAT);
    if (cordon_vm.machine_id < 0 || cordon_vm.hostname < 0 || cordon_vm.hosts < 0)
        return -EIO;
    return cordon_root_seal(&err);
}

static void tell(const void *data)
{
    const struct cordon_vm_boot *boot = data;
    cordon_agent_tell_limits(boot->memory_bytes, (uint32_t)sysconf(_SC_NPROCESSORS_ONLN));
}

/* Beyond what every guest has covered: what is root's here, which the root of a kept guest is. */
static int cover_proc(void)
{
    static const char *const readonly[] = {"/proc/sys", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/sysrq-trigger"};
    static const char *const covered[] = {
        "/proc/kcore",      "/proc/kmsg",        "/proc/timer_list", "/proc/sched_debug", "/proc/kpagecount",
        "/proc/kpageflags", "/proc/kpagecgroup", "/proc/slabinfo",   "/proc/vmallocinfo", "/proc/iomem",
        "/proc/ioports",    "/proc/mtrr",        "/proc/swaps",      "/proc/dma",         "/proc/pagetypeinfo"};
    static const char *const emptied[] = {"/proc/acpi", "/proc/scsi"};
    for (size_t i = 0; i < sizeof readonly / sizeof *readonly; i++) {
        if (mount(readonly[i], readonly[i], NULL, MS_BIND, NULL) < 0 && errno == ENOENT)
            continue;
        int r = cordon_mount_restrict(
            readonly[i], CORDON_MOUNT_RDONLY | CORDON_MOUNT_NOSUID | CORDON_MOUNT_NODEV | CORDON_MOUNT_NOEXEC, false);
        if (r < 0)
            return r;
    }
    for (size_t i = 0; i < sizeof covered / sizeof *covered; i++)
        if (mount(CORDON_ROOT_OWN "/" NOTHING_NAME, covered[i], NULL, MS_BIND, NULL) < 0 && errno != ENOENT)
            return -errno;
    for (size_t i = 0; i < sizeof emptied / sizeof *emptied; i++)
        if (mount("nothing", emptied[i], "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=0555") < 0 &&
            errno != ENOENT)
            return -errno;
    return 0;
}

static int raise_loopback(void)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    cordon_autoclose int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) < 0 ? -errno : 0;
}

int cordon_vm_enter_root(const struct cordon_vm_boot *boot, const char **stage)
{
    static struct cordon_root_file files[TREE_FILES];
    const struct cordon_root_guest guest = {.code_uid = CORDON_CODE_UID,
                                            .agent_uid = CORDON_AGENT_UID,
                                            .disk_bytes = boot->disk_bytes,
                                            .disk_inodes = boot->disk_inodes,
                                            .kept = boot->kept,
                                            .root_there = boot->kept,
                                            .tell = tell,
                                            .data = boot};
    int r, count = 0;
    *stage = "reading what the initramfs has";
    cordon_vm.random = open_own("/dev/urandom", O_RDWR);
    cordon_vm.meminfo = open_own("/proc/meminfo", O_RDONLY);
    if (cordon_vm.random < 0 || (r = count = read_files(files)) < 0 || (r = place_filter()) < 0)
        return cordon_vm.random < 0 ? cordon_vm.random : r;
    *stage = "raising the loopback device";
    if ((r = raise_loopback()) < 0)
        return r;
    if (boot->network && (r = cordon_nic_raise(stage)) < 0)
        return r;
    *stage = "entering the image's root";
    if ((r = switch_root()) < 0)
        return r;
    *stage = "making the guest's tree";
    if ((r = enter_tree(files, count)) < 0)
        return r;
    /* The guest's mounts are made with several ids in turn, the agent's last; all keep this process's capabilities. */
    *stage = "keeping capabilities";
    if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) < 0)
        return -errno;
    if ((r = cordon_root_guest_mount(&guest, stage)) < 0)
        return r;
    *stage = "covering what is root's in /proc";
    if ((r = cover_proc()) < 0)
        return r;
    *stage = "giving the changing of ids its usual meaning back";
    return prctl(PR_SET_SECUREBITS, 0) < 0 ? -errno : 0;
}
