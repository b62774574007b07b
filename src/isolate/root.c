/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. The template's tree is a small tmpfs that holds what is generated (folders, /etc, drivers),
 * with read-only binds of the host's /usr and of a few folders of /etc. It becomes the root by pivot_root(2), and the
 * host's tree is detached. Every mount in it is copied at every clone of a guest, so small files are copied into the
 * tmpfs and devices are made in it, where the alternative would be a mount each.
 *
 * A made template adds a tree that others wrote: unpacked into a tmpfs by a process without privilege, it is looked at
 * here by fixed names only, each opened by openat2(2) so that no link leads out of it. A layer's folders are laid over
 * the host's by overlayfs; a whole one takes the place of the host's as the source of the binds.
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
#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"
#include "proto/vm.h"

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
    int source; /* where programs come from: the host's root, or the tree */
};

static int broken(const struct build *build, const char *what, const char *path)
{
    return cordon_fail_errno(build->err, -errno, "template root: %s %s", what, path);
}

static const struct {
    const char *path;
    mode_t mode;
} dirs[] = {
    {"etc", 0755},  {"dev", 0755}, {"dev/shm", 0755}, {"dev/pts", 0755},   {"proc", 0555}, {"run", 0755},
    {"tmp", 01777}, {"var", 0755}, {"home", 0755},    {"home/user", 0755}, {"root", 0700},
};

static const struct {
    const char *target, *path;
} links[] = {
    {"/proc/self/fd", "dev/fd"},
    {"/proc/self/fd/0", "dev/stdin"},
    {"/proc/self/fd/1", "dev/stdout"},
    {"/proc/self/fd/2", "dev/stderr"},
    {"pts/ptmx", "dev/ptmx"},
    {"/proc/mounts", "etc/mtab"},
    {"/usr/share/zoneinfo/UTC", "etc/localtime"},
    {"/tmp", "var/tmp"},
    {"/run", "var/run"},
    {"/home/user", "workspace"}, /* where CreateOS's clients put their programs */
};

static const struct {
    const char *path, *text;
} texts[] = {
    {"etc/passwd", "root:x:0:0:root:/root:/usr/sbin/nologin\n"
                   "user:x:1000:1000:user:/home/user:/bin/bash\n"
                   "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
    {"etc/group", "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n"},
    {"etc/hosts", "127.0.0.1 localhost " CORDON_GUEST_HOSTNAME "\n::1 localhost " CORDON_GUEST_HOSTNAME "\n"},
    {"etc/hostname", CORDON_GUEST_HOSTNAME "\n"},
    {"etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n"},
    {"etc/resolv.conf",
     "nameserver 198.18.0.53\noptions timeout:3 attempts:2\n"}, /* any would do: see isolate/steer.h */
    {"etc/timezone", "Etc/UTC\n"},
    {"etc/matplotlibrc", "backend: agg\n"
                         "font.family: sans-serif\n"
                         "font.sans-serif: WenQuanYi Micro Hei, WenQuanYi Zen Hei, Noto Sans CJK SC, Noto Sans CJK JP, "
                         "Source Han Sans SC, DejaVu Sans, Bitstream Vera Sans, sans-serif\n"
                         "axes.unicode_minus: False\n"},
};

/* Of the host's /etc: what interpreters and libraries read there. */
static const char *const etc_folders[] = {"etc/alternatives", "etc/ssl/certs", "etc/fonts"};
/* Without it, whatever draws a letter reads every font file of the host first. */
#define FONT_CACHE "var/cache/fontconfig"
static const char *const etc_files[] = {"etc/ld.so.cache", "etc/ld.so.conf",     "etc/mime.types",
                                        "etc/services",    "etc/protocols",      "etc/ssl/openssl.cnf",
                                        "etc/inputrc",     "etc/debian_version", "etc/os-release"};
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

/* Opens /PATH of where programs come from, with every link in it read as one of that tree. */
static int open_source(const struct build *build, const char *path, uint64_t flags)
{
    const struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, build->source, path, &how, sizeof how);
}

/* Copies /PATH to PATH. What is not there, not a small plain file or not readable is left out: the tree works without.
 */
static int copy_file(const struct build *build, const char *path)
{
    struct stat st;
    cordon_autoclose int fd = open_source(build, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > COPY_MAX)
        return 0;
    cordon_autofree char *data = malloc((size_t)st.st_size + 1);
    if (!data)
        return cordon_fail_errno(build->err, -ENOMEM, "template root: copy %s", path);
    return cordon_read_full(fd, data, (size_t)st.st_size) < 0 ? 0 : put_file(build, path, data, (size_t)st.st_size);
}

static int copy_folder(const struct build *build, const char *path)
{
    cordon_autoclose int fd = open_source(build, path, O_RDONLY | O_DIRECTORY);
    DIR *dir = fd < 0 ? NULL : cordon_opendir(fd);
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

/* The path by which mount(2) finds what fd is. */
static const char *path_of(int fd, char text[32])
{
    (void)snprintf(text, 32, "/proc/self/fd/%d", fd);
    return text;
}

static int bind_readonly(const struct build *build, int from, const char *to)
{
    char path[32];
    if (mount(path_of(from, path), to, NULL, MS_BIND | MS_REC, NULL) < 0)
        return broken(build, "bind", to);
    if (cordon_mount_restrict(to, CORDON_MOUNT_RDONLY | CORDON_MOUNT_NOSUID | CORDON_MOUNT_NODEV, true) < 0)
        return broken(build, "make read-only", to);
    return 0;
}

static int bind_folder(const struct build *build, const char *path)
{
    cordon_autoclose int from = open_source(build, path, O_PATH | O_DIRECTORY);
    if (from < 0)
        return 0;
    int r = make_folders(build, path);
    return r < 0 ? r : bind_readonly(build, from, path);
}

static int make_usr(const struct build *build)
{
    static const char *const names[] = {"bin", "sbin", "lib", "lib32", "lib64", "libx32"};
    static const char *const others[] = {"opt", "srv", "app"}; /* of a whole tree: programs are put there, too */
    int r = bind_folder(build, "usr");
    for (size_t i = 0; r == 0 && i < sizeof names / sizeof *names; i++) {
        char target[256];
        ssize_t n = readlinkat(build->source, names[i], target, sizeof target - 1);
        if (n < 0) {
            r = bind_folder(build, names[i]); /* a host whose /bin is a folder, or has none */
            continue;
        }
        target[n] = '\0';
        if (symlink(target, names[i]) < 0)
            r = broken(build, "link", names[i]);
    }
    for (size_t i = 0; r == 0 && build->spec->tree_kind == CORDON_ROOT_TREE_WHOLE && i < sizeof others / sizeof *others;
         i++)
        r = bind_folder(build, others[i]);
    return r;
}

/* Names as the host resolves them, for the one kind of guest that is in its network namespace. */
static int make_resolver(const struct build *build)
{
    static const char hosts[] = "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n";
    if (!build->spec->host_network)
        return 0;
    int r = put_file(build, "etc/nsswitch.conf", hosts, sizeof hosts - 1);
    if (r == 0)
        r = copy_file(build, "etc/resolv.conf");
    return r < 0 ? r : copy_file(build, "etc/hosts");
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
    cordon_autoclose int etc = open_source(build, "etc", O_RDONLY | O_DIRECTORY);
    DIR *dir = r == 0 && etc >= 0 ? cordon_opendir(etc) : NULL;
    for (struct dirent *entry; dir && r == 0 && (entry = readdir(dir));) {
        char path[300];
        (void)snprintf(path, sizeof path, "etc/%s", entry->d_name);
        if (strncmp(entry->d_name, "python3", 7) == 0)
            r = copy_folder(build, path);
    }
    if (dir)
        (void)closedir(dir); /* only read */
    return r < 0 ? r : make_resolver(build);
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

/* The layer's folder over the host's, which is bound at path already. */
static int lay_over(const struct build *build, const char *path)
{
    const struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                                 .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS};
    char options[4200], over[32], under[32];
    cordon_autoclose int layer = (int)syscall(SYS_openat2, build->spec->tree, path, &how, sizeof how);
    cordon_autoclose int host = open_source(build, path, O_PATH | O_DIRECTORY);
    if (layer < 0)
        return 0; /* it has nothing for there */
    if (host < 0)
        return cordon_fail(build->err, -ENOENT, CORDON_ERROR_UNAVAILABLE,
                           "template root: the host has no folder /%s to lay the packages over", path);
    (void)snprintf(options, sizeof options, "lowerdir=%s:%s%s", path_of(layer, over), path_of(host, under),
                   build->spec->rootless ? ",userxattr" : ""); /* fits */
    if (mount("cordon", path, "overlay", MS_RDONLY | MS_NOSUID | MS_NODEV, options) < 0)
        return broken(build, "lay the packages (by overlayfs) over", path);
    return 0;
}

static int make_layer(const struct build *build)
{
    const struct cordon_root_spec *spec = build->spec;
    if (spec->tree_kind != CORDON_ROOT_TREE_LAYER)
        return 0;
    int r = lay_over(build, "usr/local");
    for (size_t i = 0; r == 0 && spec->folders && spec->folders[i]; i++)
        r = lay_over(build, spec->folders[i] + strspn(spec->folders[i], "/"));
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

/*
 * require() goes by NODE_PATH. ES modules, also those among Debian's packages that import another one, look for
 * packages in node_modules of each folder above themselves and nowhere else: / is the only folder above all. A made
 * template's own packages come before those.
 */
static int link_packages(const struct build *build)
{
    cordon_autoclose int debian = open_source(build, CORDON_ROOT_NODE_DEBIAN, O_PATH | O_DIRECTORY);
    if (debian >= 0 && symlink(CORDON_ROOT_NODE_DEBIAN, "node_modules") < 0)
        return broken(build, "link", "node_modules");
    bool made = build->spec->tree_kind != CORDON_ROOT_TREE_NONE;
    return made && symlink(CORDON_ROOT_NODE_OWN, "home/node_modules") < 0 ? broken(build, "link", "home/node_modules")
                                                                          : 0;
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

static int isolate(struct cordon_error *err)
{
    if (unshare(CLONE_NEWNS) < 0)
        return cordon_fail_errno(err, -errno, "template root: make a mount namespace");
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return cordon_fail_errno(err, -errno, "template root: make / private");
    return 0;
}

int cordon_root_mount_tree(const struct cordon_root_spec *spec, uint64_t bytes, uint64_t inodes, uid_t owner,
                           struct cordon_error *err)
{
    char options[128];
    const char *staging = staging_folder(spec);
    int r = isolate(err);
    if (r < 0)
        return r;
    (void)snprintf(options, sizeof options, "mode=0755,uid=%u,gid=%u,size=%llu,nr_inodes=%llu", owner, owner,
                   (unsigned long long)bytes, (unsigned long long)inodes); /* fits */
    if (!staging || mount("cordon-tree", staging, "tmpfs", MS_NOSUID | MS_NODEV, options) < 0)
        return cordon_fail_errno(err, staging ? -errno : -ENOENT, "template root: mount a tmpfs for the tree");
    int fd = open(staging, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? cordon_fail_errno(err, -errno, "template root: open the tree") : fd;
}

int cordon_root_enter(const struct cordon_root_spec *spec, struct cordon_error *err)
{
    static int (*const steps[])(const struct build *) = {make_skeleton, link_packages, make_usr, make_etc,
                                                         make_devices,  make_proc,     make_own, make_layer};
    struct build build = {spec, err, spec->tree};
    const char *staging = staging_folder(spec);
    if (!staging)
        return cordon_fail(err, -ENOENT, CORDON_ERROR_UNAVAILABLE,
                           "template root: none of /mnt, /media, /srv, /run is a folder to mount on");
    int r = spec->tree_kind == CORDON_ROOT_TREE_NONE ? isolate(err) : 0;
    if (r < 0)
        return r;
    cordon_autoclose int host = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC); /* of the new mount namespace */
    if (host < 0)
        return broken(&build, "open", "/");
    if (spec->tree_kind != CORDON_ROOT_TREE_WHOLE)
        build.source = host;
    if (mount("cordon", staging, "tmpfs", MS_NOSUID, "mode=0755,size=16m,nr_inodes=8192") < 0)
        return broken(&build, "mount tmpfs on", staging);
    if (chdir(staging) < 0)
        return broken(&build, "enter", staging);
    mode_t mask = umask(0);
    for (size_t i = 0; r == 0 && i < sizeof steps / sizeof *steps; i++)
        r = steps[i](&build);
    (void)umask(mask);
    return r < 0 ? r : pivot(&build);
}

int cordon_root_seal(struct cordon_error *err)
{
    if (unshare(CLONE_NEWNS | CLONE_NEWUTS) < 0)
        return cordon_fail_errno(err, -errno, "template root: make a mount namespace for guests");
    if (sethostname(CORDON_GUEST_HOSTNAME, strlen(CORDON_GUEST_HOSTNAME)) < 0)
        return cordon_fail_errno(err, -errno, "template root: set the hostname of guests");
    int r = cordon_mount_restrict("/", CORDON_MOUNT_RDONLY | CORDON_MOUNT_NOSUID, false);
    return r < 0 ? cordon_fail_errno(err, r, "template root: make / read-only") : 0;
}
