/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. The template's tree is a small tmpfs that holds what is generated (folders, /etc, drivers),
 * with read-only binds of the host's /usr and of a few folders of /etc. It becomes the root by pivot_root(2), and the
 * host's tree is detached. Every mount in it is copied at every clone of a guest, so small files are copied into the
 * tmpfs and devices are made in it, where the alternative would be a mount each.
 *
 * Nothing in the tree is writable for a guest: its owner has no id in a guest's user namespace, and guests are cloned
 * from a namespace in which the root mount is read-only. Zygotes live in the one that is not: they find a /tmp there.
 */
#include "isolate/root.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fd.h"

#define COPY_MAX (512u << 10)

/* A guest mounts something else there, or only root may enter it. */
static const char *const unseen[] = {"/root/", "/home/user/", "/tmp/", "/var/tmp/", "/dev/", "/proc/", "/run/"};
static const char *const programs[] = {"/usr/", "/bin/", "/sbin/", "/lib"};

static bool is_below(const char *path, const char *const *folders, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strncmp(path, folders[i], strlen(folders[i])) == 0)
            return true;
    return false;
}

/* Outside of the host's programs the folder above an interpreter's "bin" is bound, so there must be one. */
static bool has_prefix(const char *path)
{
    size_t slashes = 0;
    for (const char *p = path; *p; p++)
        slashes += *p == '/';
    return slashes >= 3 || is_below(path, programs, sizeof programs / sizeof *programs);
}

/* For the code, which is nobody of the host: the file and, of its folders, those that are not made anew in the tree. */
static bool is_open_to_all(const char *real)
{
    char path[4096];
    struct stat st;
    mode_t wanted = S_IROTH | S_IXOTH;
    (void)snprintf(path, sizeof path, "%s", real); /* realpath's are no longer */
    for (int up = 0; up < 3 && path[0]; up++, wanted = S_IXOTH) {
        if (stat(path, &st) < 0 || (st.st_mode & wanted) != wanted)
            return false;
        *strrchr(path, '/') = '\0';
    }
    return true;
}

int cordon_root_sees(const char *path, char *why, size_t size)
{
    if (path[0] != '/') {
        (void)snprintf(why, size, "the interpreter %.100s is no absolute path: give one, like /usr/bin/…", path);
        return -EINVAL;
    }
    cordon_autofree char *real = realpath(path, NULL);
    if (!real)
        return 0;
    const char *const both[] = {path, real};
    for (size_t i = 0; i < 2; i++) {
        if (!is_below(both[i], unseen, sizeof unseen / sizeof *unseen) && has_prefix(both[i]))
            continue;
        (void)snprintf(why, size,
                       "guests can't see the interpreter %.80s%s%.80s: give the path of one below /usr, or "
                       "PREFIX/bin/NAME outside /root, /tmp, /run and /home/user",
                       path, i ? ", which is " : "", i ? real : "");
        return -EACCES;
    }
    if (geteuid() == 0 && !is_open_to_all(real)) {
        (void)snprintf(why, size,
                       "guests may not execute the interpreter %.80s: it, its folder and the folder above "
                       "must be open to all (chmod o+rx), or give one below /usr",
                       path);
        return -EACCES;
    }
    return 0;
}

/* All building is relative to the new root, which is the working directory. */
struct build {
    const struct cordon_root_spec *spec;
    struct cordon_error *err;
};

static int broken(const struct build *build, const char *what, const char *path)
{
    return cordon_fail_errno(build->err, -errno, "template root: %s %s", what, path);
}

static const struct {
    const char *path;
    mode_t mode;
} dirs[] = {
    {"etc", 0755},  {"dev", 0755}, {"dev/shm", 0755}, {"proc", 0555},      {"run", 0755},
    {"tmp", 01777}, {"var", 0755}, {"home", 0755},    {"home/user", 0755}, {"root", 0700},
};

static const struct {
    const char *target, *path;
} links[] = {
    {"/proc/self/fd", "dev/fd"},
    {"/proc/self/fd/0", "dev/stdin"},
    {"/proc/self/fd/1", "dev/stdout"},
    {"/proc/self/fd/2", "dev/stderr"},
    {"/proc/mounts", "etc/mtab"},
    {"/usr/share/zoneinfo/UTC", "etc/localtime"},
    {"/tmp", "var/tmp"},
    {"/run", "var/run"},
};

static const struct {
    const char *path, *text;
} texts[] = {
    {"etc/passwd", "root:x:0:0:root:/root:/usr/sbin/nologin\n"
                   "user:x:1000:1000:user:/home/user:/bin/bash\n"
                   "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
    {"etc/group", "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n"},
    {"etc/hosts", "127.0.0.1 localhost cordon\n::1 localhost cordon\n"},
    {"etc/hostname", "cordon\n"},
    {"etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n"},
    {"etc/resolv.conf", ""},
    {"etc/timezone", "Etc/UTC\n"},
};

/* Of the host's /etc: what interpreters and libraries read there. */
static const char *const etc_folders[] = {"etc/alternatives", "etc/ssl/certs", "etc/fonts"};
/* Without it, whatever draws a letter reads every font file of the host first. */
#define FONT_CACHE "var/cache/fontconfig"
static const char *const etc_files[] = {
    "etc/ld.so.cache", "etc/ld.so.conf",      "etc/mime.types", "etc/matplotlibrc",   "etc/services",
    "etc/protocols",   "etc/ssl/openssl.cnf", "etc/inputrc",    "etc/debian_version", "etc/os-release"};
static const char *const etc_copied_folders[] = {"etc/ld.so.conf.d"}; /* and every etc/python3* */

static const struct {
    const char *path;
    unsigned minor; /* of major 1, memory devices */
} devices[] = {{"dev/null", 3}, {"dev/zero", 5}, {"dev/full", 7}, {"dev/random", 8}, {"dev/urandom", 9}};

/* mkdir -p of a relative path; leaves what is there. */
static int make_folders(const struct build *build, const char *path)
{
    char part[4096];
    if (strlen(path) >= sizeof part)
        return cordon_fail(build->err, -ENAMETOOLONG, CORDON_ERROR_INFRASTRUCTURE, "template root: path too long");
    for (const char *slash = strchr(path, '/');; slash = strchr(slash + 1, '/')) {
        size_t n = slash ? (size_t)(slash - path) : strlen(path);
        memcpy(part, path, n);
        part[n] = '\0';
        if (mkdir(part, 0755) < 0 && errno != EEXIST)
            return broken(build, "make folder", part);
        if (!slash)
            return 0;
    }
}

static int put_file(const struct build *build, const char *path, const void *data, size_t size)
{
    cordon_autoclose int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return broken(build, "create", path);
    int r = cordon_write_full(fd, data, size);
    return r < 0 ? cordon_fail_errno(build->err, r, "template root: write %s", path) : 0;
}

/* Copies /PATH to PATH. What is not there, not a small plain file or not readable is left out: the tree works without.
 */
static int copy_file(const struct build *build, const char *path)
{
    struct stat st;
    char from[512];
    (void)snprintf(from, sizeof from, "/%s", path);
    if (stat(from, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > COPY_MAX)
        return 0;
    cordon_autofree char *data = malloc((size_t)st.st_size + 1);
    if (!data)
        return cordon_fail_errno(build->err, -ENOMEM, "template root: copy %s", path);
    ssize_t n = cordon_read_file(AT_FDCWD, from, data, (size_t)st.st_size + 1);
    return n < 0 ? 0 : put_file(build, path, data, (size_t)n);
}

static int copy_folder(const struct build *build, const char *path)
{
    char from[512];
    (void)snprintf(from, sizeof from, "/%s", path);
    DIR *dir = opendir(from);
    if (!dir)
        return 0;
    int r = make_folders(build, path);
    for (struct dirent *entry; r == 0 && (entry = readdir(dir));) {
        char file[1024];
        (void)snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        r = copy_file(build, file);
    }
    (void)closedir(dir); /* only read */
    return r;
}

static int bind_readonly(const struct build *build, const char *from, const char *to)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    if (mount(from, to, NULL, MS_BIND | MS_REC, NULL) < 0)
        return broken(build, "bind", from);
    if (mount_setattr(AT_FDCWD, to, AT_RECURSIVE, &attr, sizeof attr) < 0)
        return broken(build, "make read-only", from);
    return 0;
}

static int bind_folder(const struct build *build, const char *path)
{
    struct stat st;
    char from[4096];
    (void)snprintf(from, sizeof from, "/%s", path);
    if (stat(from, &st) < 0 || !S_ISDIR(st.st_mode))
        return 0;
    int r = make_folders(build, path);
    return r < 0 ? r : bind_readonly(build, from, path);
}

static int make_usr(const struct build *build)
{
    static const char *const names[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"};
    int r = bind_folder(build, "usr");
    for (size_t i = 0; r == 0 && i < sizeof names / sizeof *names; i++) {
        char from[16], target[256];
        (void)snprintf(from, sizeof from, "/%s", names[i]);
        ssize_t n = readlink(from, target, sizeof target - 1);
        if (n < 0) {
            r = bind_folder(build, names[i]); /* a host whose /bin is a folder, or has none */
            continue;
        }
        target[n] = '\0';
        if (symlink(target, names[i]) < 0)
            r = broken(build, "link", names[i]);
    }
    return r;
}

static int make_etc(const struct build *build)
{
    int r = make_folders(build, "etc/ssl");
    for (size_t i = 0; r == 0 && i < sizeof texts / sizeof *texts; i++)
        r = put_file(build, texts[i].path, texts[i].text, strlen(texts[i].text));
    for (size_t i = 0; r == 0 && i < sizeof etc_folders / sizeof *etc_folders; i++)
        r = bind_folder(build, etc_folders[i]);
    for (size_t i = 0; r == 0 && i < sizeof etc_files / sizeof *etc_files; i++)
        r = copy_file(build, etc_files[i]);
    for (size_t i = 0; r == 0 && i < sizeof etc_copied_folders / sizeof *etc_copied_folders; i++)
        r = copy_folder(build, etc_copied_folders[i]);
    if (r == 0)
        r = bind_folder(build, FONT_CACHE);
    DIR *dir = r == 0 ? opendir("/etc") : NULL;
    for (struct dirent *entry; dir && r == 0 && (entry = readdir(dir));) {
        char path[300];
        (void)snprintf(path, sizeof path, "etc/%s", entry->d_name);
        if (strncmp(entry->d_name, "python3", 7) == 0)
            r = copy_folder(build, path);
    }
    if (dir)
        (void)closedir(dir); /* only read */
    return r;
}

static int make_devices(const struct build *build)
{
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        char from[32];
        (void)snprintf(from, sizeof from, "/%s", devices[i].path);
        if (!build->spec->rootless && mknod(devices[i].path, S_IFCHR | 0666, makedev(1, devices[i].minor)) == 0)
            continue;
        /* In a user namespace, or under a device policy: bind the host's, which costs a mount. */
        int r = put_file(build, devices[i].path, "", 0);
        if (r < 0)
            return r;
        if (mount(from, devices[i].path, NULL, MS_BIND, NULL) < 0)
            return broken(build, "bind", from);
    }
    return 0;
}

static int make_proc(const struct build *build)
{
    /* It must be a whole one: the kernel lets a user namespace mount proc only where one is fully visible. */
    if (!build->spec->rootless && mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0)
        return 0;
    return mount("/proc", "proc", NULL, MS_BIND | MS_REC, NULL) < 0 ? broken(build, "bind", "/proc") : 0;
}

static int make_own(const struct build *build)
{
    const struct cordon_root_spec *spec = build->spec;
    int r = make_folders(build, &CORDON_ROOT_OWN[1]);
    if (r == 0)
        r = make_folders(build, &CORDON_ROOT_GUEST[1]);
    for (size_t i = 0; r == 0 && i < spec->file_count; i++) {
        char path[256];
        (void)snprintf(path, sizeof path, "%s/%s", &CORDON_ROOT_OWN[1], spec->files[i].name);
        r = put_file(build, path, spec->files[i].data, spec->files[i].size);
    }
    for (size_t i = 0; r == 0 && spec->folders && spec->folders[i]; i++)
        r = bind_folder(build, spec->folders[i] + strspn(spec->folders[i], "/"));
    return r;
}

static int make_skeleton(const struct build *build)
{
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
        if (mkdir(dirs[i].path, dirs[i].mode) < 0)
            return broken(build, "make folder", dirs[i].path);
    for (size_t i = 0; i < sizeof links / sizeof *links; i++)
        if (symlink(links[i].target, links[i].path) < 0)
            return broken(build, "link", links[i].path);
    return 0;
}

/* Where the new root is mounted until it is pivoted to: hides what is there, so not above a folder that is wanted. */
static const char *staging_folder(const struct cordon_root_spec *spec)
{
    static const char *const candidates[] = {"/mnt", "/media", "/srv", "/run", "/tmp", "/var"};
    for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
        struct stat st;
        size_t n = strlen(candidates[i]);
        bool wanted = false;
        for (size_t j = 0; spec->folders && spec->folders[j]; j++)
            wanted = wanted || strncmp(spec->folders[j], candidates[i], n) == 0;
        if (!wanted && lstat(candidates[i], &st) == 0 && S_ISDIR(st.st_mode))
            return candidates[i];
    }
    return NULL;
}

static int pivot(const struct build *build)
{
    extern int pivot_root(const char *new_root, const char *put_old);
    if (pivot_root(".", ".") < 0)
        return broken(build, "pivot to", "the new root");
    if (umount2(".", MNT_DETACH) < 0) /* the old root, stacked on the new one */
        return broken(build, "detach", "the host's tree");
    return chdir("/") < 0 ? broken(build, "enter", "/") : 0;
}

int cordon_root_enter(const struct cordon_root_spec *spec, struct cordon_error *err)
{
    static int (*const steps[])(const struct build *) = {make_skeleton, make_usr,  make_etc,
                                                         make_devices,  make_proc, make_own};
    struct build build = {spec, err};
    const char *staging = staging_folder(spec);
    if (!staging)
        return cordon_fail(err, -ENOENT, CORDON_ERROR_UNAVAILABLE,
                           "template root: none of /mnt, /media, /srv, /run is a folder to mount on");
    if (unshare(CLONE_NEWNS) < 0)
        return cordon_fail_errno(err, -errno, "template root: make a mount namespace");
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return broken(&build, "make private", "/");
    if (mount("cordon", staging, "tmpfs", MS_NOSUID, "mode=0755,size=16m,nr_inodes=8192") < 0)
        return broken(&build, "mount tmpfs on", staging);
    if (chdir(staging) < 0)
        return broken(&build, "enter", staging);
    mode_t mask = umask(0);
    int r = 0;
    for (size_t i = 0; r == 0 && i < sizeof steps / sizeof *steps; i++)
        r = steps[i](&build);
    (void)umask(mask);
    return r < 0 ? r : pivot(&build);
}

int cordon_root_seal(struct cordon_error *err)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID};
    if (unshare(CLONE_NEWNS | CLONE_NEWUTS) < 0)
        return cordon_fail_errno(err, -errno, "template root: make a mount namespace for guests");
    if (sethostname("cordon", 6) < 0)
        return cordon_fail_errno(err, -errno, "template root: set the hostname of guests");
    if (mount_setattr(AT_FDCWD, "/", 0, &attr, sizeof attr) < 0)
        return cordon_fail_errno(err, -errno, "template root: make / read-only");
    return 0;
}
