/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest's own mounts. One tmpfs holds all that the guest may write, so that one size and one number of inodes limit
 * it; its folders are bound to where programs look for them. The tmpfs itself stays mounted where only the agent can
 * enter it: there the agent changes its limits and rewrites the files that tell the guest of its own memory and CPUs.
 *
 * Ids: the caller comes with the zygote uid, which has no id in here, and such a process can create nothing in a
 * mount of this user namespace. So it becomes the code to make the code's folders, then the agent to make the
 * agent's files; its capabilities survive that, since none of these ids is the namespace's root.
 */
#include "isolate/root.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
    const char *path;
    mode_t mode;
    const char *at;
} folders[] = {
    {CORDON_ROOT_GUEST "/home", 0755, CORDON_ROOT_HOME},
    {CORDON_ROOT_GUEST "/tmp", 01777, "/tmp"},
    {CORDON_ROOT_GUEST "/shm", 01777, "/dev/shm"},
};

/* Written by the agent, over the host's own. */
static const struct {
    const char *path, *at;
} files[] = {
    {CORDON_ROOT_GUEST "/meminfo", "/proc/meminfo"},
    {CORDON_ROOT_GUEST "/cpuinfo", "/proc/cpuinfo"},
    {CORDON_ROOT_GUEST "/stat", "/proc/stat"},
    {CORDON_ROOT_GUEST "/loadavg", "/proc/loadavg"},
};

/* What all may read of the host, and no program needs. The files that only the host's root may read are not listed:
 * that root has no id here. Each line costs a mount. */
static const char *const hidden[] = {
    "/proc/cmdline",   "/proc/keys",      "/proc/key-users", "/proc/partitions", "/proc/diskstats", "/proc/interrupts",
    "/proc/softirqs",  "/proc/schedstat", "/proc/vmstat",    "/proc/zoneinfo",   "/proc/kallsyms",  "/proc/modules",
    "/proc/config.gz", "/proc/kallsyms",  "/proc/modules",   "/proc/config.gz",
};

static int become(uid_t id)
{
    /* Raw calls: libc's would look for other threads in memory that is shared with the caller's maker. */
    if (syscall(SYS_setresgid, id, id, id) < 0 || syscall(SYS_setresuid, id, id, id) < 0)
        return -errno;
    return 0;
}

static int mount_tmpfs(const struct cordon_root_guest *guest)
{
    char options[128];
    /* Inodes of our own: the root, three folders, the agent's files. */
    unsigned long long own = 1 + sizeof folders / sizeof *folders + sizeof files / sizeof *files;
    int n = snprintf(options, sizeof options, "mode=0700,uid=%u,gid=%u,size=%llu,nr_inodes=%llu", guest->agent_uid,
                     guest->agent_uid, (unsigned long long)guest->disk_bytes, guest->disk_inodes + own);
    if (n < 0 || (size_t)n >= sizeof options)
        return -EINVAL;
    return mount("guest", CORDON_ROOT_GUEST, "tmpfs", MS_NOSUID | MS_NODEV, options) < 0 ? -errno : 0;
}

static int make_folders(void)
{
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (mkdir(folders[i].path, folders[i].mode) < 0)
            return -errno;
    /* By the code's own id, which the agent does not have. */
    return mkdir(CORDON_ROOT_GUEST "/home/artifacts", 0755) < 0 ? -errno : 0;
}

static int mount_proc(const struct cordon_root_guest *guest)
{
    char options[64] = "";
#ifndef CORDON_WEAKEN_HIDEPID
    /* Who may not ptrace a process does not see it; the agent, in the group that is named, sees all. */
    int n = snprintf(options, sizeof options, "hidepid=invisible,gid=%u", guest->agent_uid);
    if (n < 0 || (size_t)n >= sizeof options)
        return -EINVAL;
#endif
    return mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, options) < 0 ? -errno : 0;
}

static int bind_folders(void)
{
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        if (mount(folders[i].path, folders[i].at, NULL, MS_BIND, NULL) < 0)
            return -errno;
    return 0;
}

/* A kept guest's root writes in its own home, and programs of a kept guest may have terminals. */
static int mount_kept(const struct cordon_root_guest *guest)
{
    static const char home[] = CORDON_ROOT_GUEST "/root";
    if (!guest->kept)
        return 0;
    if (mkdir(home, 0700) < 0 || (guest->root_there && chown(home, 0, 0) < 0))
        return -errno;
    if (mount(home, CORDON_ROOT_ROOT_HOME, NULL, MS_BIND, NULL) < 0)
        return -errno;
    /* Where it may not be mounted (some containers) there are no terminals, which a program that wants one is told. */
    (void)mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,max=64");
    return 0;
}

static int cover_proc(void)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (mount(files[i].path, files[i].at, NULL, MS_BIND, NULL) < 0)
            return -errno;
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        if (mount("/dev/null", hidden[i], NULL, MS_BIND, NULL) < 0 && errno != ENOENT)
            return -errno;
    return 0;
}

int cordon_root_guest_mount(const struct cordon_root_guest *guest, const char **stage)
{
    mode_t mask = umask(0);
    int r;
    *stage = "mount the guest's tmpfs";
    if ((r = mount_tmpfs(guest)) < 0)
        return r;
    *stage = "take the code's ids";
    if ((r = become(guest->code_uid)) < 0)
        return r;
    *stage = "make the guest's folders";
    if ((r = make_folders()) < 0)
        return r;
    *stage = "take the agent's ids";
    if ((r = become(guest->agent_uid)) < 0)
        return r;
    guest->tell(guest->data); /* a file that is missing fails its bind below */
    *stage = "bind the guest's folders";
    if ((r = bind_folders()) < 0)
        return r;
    *stage = "mount a kept guest's home of root and terminals";
    if ((r = mount_kept(guest)) < 0)
        return r;
    *stage = "mount the guest's proc";
    if ((r = mount_proc(guest)) < 0)
        return r;
    *stage = "hide the host's files in /proc";
    if ((r = cover_proc()) < 0)
        return r;
    (void)umask(mask);
    return 0;
}
