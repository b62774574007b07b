/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. Making a guest needs CAP_SYS_ADMIN only over namespaces that are our own. A container's root
 * without that capability gets it in a user namespace of its own: a helper, left outside, maps all ids to themselves,
 * which CAP_SETUID and CAP_SETGID allow. Two things are then left to the container's settings: its filter and its
 * AppArmor profile must allow unshare and mount, and its /proc must not be masked, since the kernel mounts a new one
 * for a user namespace only beside one that is wholly visible. (Real root mounts one itself, so it may be masked.)
 *
 * Control groups are mounted read-only in containers, but a fresh mount of cgroup2 in a cgroup namespace of our own
 * shows the container's group as its root, and is writable by whoever owns the files. v1 has no such mount for a user
 * namespace: there the mount that is can only be made writable by real root.
 */
#include "isolate/outer.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "isolate/cgroup_find.h"

#define PROC_TEXT (64 * 1024)

struct extent {
    unsigned long inside, outside, count;
};

/* Calls `each` for every line of a map until it returns true; false: never, or it can't be read. */
static bool any_extent(const char *file, bool (*each)(const struct extent *extent, void *data), void *data)
{
    char map[8192];
    struct extent extent;
    if (cordon_read_file(AT_FDCWD, file, map, sizeof map) < 0)
        return false;
    for (const char *line = map; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        if (sscanf(line, "%lu %lu %lu", &extent.inside, &extent.outside, &extent.count) == 3 && each(&extent, data))
            return true;
    }
    return false;
}

struct range {
    uint64_t first, count;
};

static bool holds(const struct extent *extent, void *data)
{
    const struct range *range = data;
    return range->first >= extent->inside && range->first + range->count <= (uint64_t)extent->inside + extent->count;
}

bool cordon_outer_has_ids(uid_t first, uint64_t count)
{
    struct range range = {first, count};
    return any_extent("/proc/self/uid_map", holds, &range) && any_extent("/proc/self/gid_map", holds, &range);
}

bool cordon_outer_may_mount(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    return syscall(SYS_capget, &header, data) == 0 && (data[0].effective & (1u << CAP_SYS_ADMIN));
}

/* --- user namespaces --- */

struct map_text {
    char text[8192];
    size_t used;
};

static bool append_identity(const struct extent *extent, void *data)
{
    struct map_text *map = data;
    size_t room = sizeof map->text - map->used;
    int n = snprintf(map->text + map->used, room, "%lu %lu %lu\n", extent->inside, extent->inside, extent->count);
    if (n > 0 && (size_t)n < room)
        map->used += (size_t)n;
    return false; /* all of them */
}

static int copy_map(pid_t pid, const char *file)
{
    char path[64];
    struct map_text map = {.used = 0};
    (void)snprintf(path, sizeof path, "/proc/self/%s", file); /* fits */
    (void)any_extent(path, append_identity, &map);
    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file); /* fits */
    return map.used ? cordon_write_file(AT_FDCWD, path, map.text) : -ENOENT;
}

/* Stays in the outer namespace, which alone may map more than one id. Its exit status is the errno. */
static _Noreturn void map_from_outside(pid_t pid, int sock)
{
    char byte;
    if (cordon_read_full(sock, &byte, 1) < 0)
        _exit(ECANCELED);
    int r = copy_map(pid, "gid_map");
    if (r == 0)
        r = copy_map(pid, "uid_map");
    _exit(-r & 0xff);
}

static int wait_for(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return -errno;
    }
    return WIFEXITED(status) ? -WEXITSTATUS(status) : -EPERM;
}

int cordon_outer_enter_user(struct cordon_error *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return cordon_fail_errno(err, -errno, "make a socket for a user namespace");
    cordon_autoclose int ours = pair[0], theirs = pair[1];
    pid_t self = getpid(), pid = fork();
    if (pid < 0)
        return cordon_fail_errno(err, -errno, "start a process to map the ids of a user namespace");
    if (pid == 0) {
        cordon_close(&ours); /* so that our maker's end is seen */
        map_from_outside(self, theirs);
    }
    cordon_close(&theirs);
    int made = unshare(CLONE_NEWUSER) < 0 ? -errno : cordon_write_full(ours, "m", 1);
    cordon_close(&ours);
    int mapped = wait_for(pid);
    if (made < 0)
        return cordon_fail_errno(err, made, "make a user namespace (without CAP_SYS_ADMIN one is needed)");
    if (mapped < 0)
        return cordon_fail_errno(err, mapped,
                                 "map all ids into a user namespace (CAP_SETUID, CAP_SETGID, CAP_SETFCAP are needed)");
    return 0;
}

static int map_alone(const char *path, unsigned outside)
{
    char line[48];
    (void)snprintf(line, sizeof line, "0 %u 1", outside); /* fits */
    return cordon_write_file(AT_FDCWD, path, line);
}

int cordon_outer_enter_alone(struct cordon_error *err)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();
    if (unshare(CLONE_NEWUSER) < 0)
        return cordon_fail_errno(err, -errno, "make a user namespace");
    int r = cordon_write_file(AT_FDCWD, "/proc/self/setgroups", "deny");
    if (r == 0 || r == -ENOENT)
        r = map_alone("/proc/self/uid_map", uid);
    if (r == 0)
        r = map_alone("/proc/self/gid_map", gid);
    return r < 0 ? cordon_fail_errno(err, r, "map the user %u into its namespace", uid) : 0;
}

/* --- control groups --- */

static bool is_read_only(const char *path)
{
    struct statvfs found;
    return statvfs(path, &found) == 0 && (found.f_flag & ST_RDONLY);
}

static void mount_writable(const struct cordon_cgroup_place *place)
{
    const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
    if (place->v2)
        (void)mount("cgroup2", place->path, "cgroup2", flags, NULL); /* shows in what can be limited */
    else
        (void)mount(NULL, place->path, NULL, MS_REMOUNT | MS_BIND | flags, NULL); /* as above */
}

static size_t find_places(struct cordon_cgroup_place places[CORDON_CGROUP_PLACES])
{
    cordon_autofree char *mountinfo = malloc(PROC_TEXT);
    cordon_autofree char *self = malloc(PROC_TEXT);
    if (!mountinfo || !self || cordon_read_file(AT_FDCWD, "/proc/self/mountinfo", mountinfo, PROC_TEXT) < 0 ||
        cordon_read_file(AT_FDCWD, "/proc/self/cgroup", self, PROC_TEXT) < 0)
        return 0;
    return cordon_cgroup_find(mountinfo, self, places);
}

void cordon_outer_open_cgroups(void)
{
    struct cordon_cgroup_place places[CORDON_CGROUP_PLACES];
    size_t count = find_places(places), closed = 0;
    for (size_t i = 0; i < count; i++)
        closed += is_read_only(places[i].path);
    if (closed == 0 || unshare(CLONE_NEWNS | CLONE_NEWCGROUP) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        return;
    for (size_t i = 0; i < count; i++)
        if (is_read_only(places[i].path))
            mount_writable(&places[i]);
}

/* --- what stands around --- */

void cordon_outer_apparmor(char *ret, size_t size)
{
    static const char *const files[] = {"/proc/self/attr/apparmor/current", "/proc/self/attr/current"};
    *ret = '\0';
    for (size_t i = 0; i < sizeof files / sizeof *files && !*ret; i++)
        if (cordon_read_file(AT_FDCWD, files[i], ret, size) < 0)
            *ret = '\0';
    ret[strcspn(ret, "\n")] = '\0';
    /* Another security module's label, or nobody's: only AppArmor writes a mode behind the name. */
    if (strncmp(ret, "unconfined", strlen("unconfined")) == 0 || !strchr(ret, '('))
        *ret = '\0';
}

bool cordon_outer_has_filter(void)
{
    char text[4096];
    if (cordon_read_file(AT_FDCWD, "/proc/self/status", text, sizeof text) < 0)
        return false;
    const char *line = strstr(text, "\nSeccomp:");
    return line && strtol(line + strlen("\nSeccomp:"), NULL, 10) != 0;
}

void cordon_outer_masked_proc(char *ret, size_t size)
{
    static const char own[] = "/proc/sys/fs/binfmt_misc"; /* the host's, which hides nothing */
    size_t used = 0;
    cordon_autofree char *text = malloc(PROC_TEXT);
    *ret = '\0';
    if (!text || cordon_read_file(AT_FDCWD, "/proc/self/mountinfo", text, PROC_TEXT) < 0)
        return;
    for (const char *at = text; (at = strstr(at, " /proc/"));) {
        int length = (int)strcspn(++at, " \n");
        if (length == (int)strlen(own) && strncmp(at, own, strlen(own)) == 0)
            continue;
        int n = snprintf(ret + used, size - used, "%s%.*s", used ? ", " : "", length, at);
        if (n < 0 || (size_t)n >= size - used)
            return; /* enough for people */
        used += (size_t)n;
    }
}
