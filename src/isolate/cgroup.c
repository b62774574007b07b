/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. Each controller is taken from the hierarchy that has it, so that v1, v2 and the mixed kind are
 * one case: a root holds up to five trees, and a table says which file of which controller holds which limit in either
 * version. A slot is a group `<index>` in every tree's `cordon-<instance>`.
 *
 * The counters of a group outlive a guest: out-of-memory kills are taken as differences by their readers, the peak is
 * reset between guests. v1 resets it by writing the file; v2 can since 6.12, per open file, which is why the descriptor
 * that the gateway gets is the very one that is written here. Before that each guest has a group `<index>/0`, which is
 * removed and made anew, while limits and the cgroup namespace stay with `<index>`.
 *
 * Swap counts as memory: v1 holds both together (the order of the two writes depends on the direction), v2 gives none.
 *
 * A lock in the first tree tells a dead instance from a living one; an instance that runs is never emptied.
 */
#include "isolate/cgroup.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/fd.h"
#include "isolate/cgroup_tree.h"

#define PROC_TEXT (64 * 1024)

static const char *read_proc(const char *path, char *text)
{
    if (cordon_read_file(AT_FDCWD, path, text, PROC_TEXT) < 0)
        *text = '\0';
    return text;
}

static bool is_instance(const char *name)
{
    size_t size = strlen(name);
    if (size == 0 || size > CORDON_CGROUP_INSTANCE)
        return false;
    for (; *name; name++) {
        if (!isalnum((unsigned char)*name) && *name != '-' && *name != '_')
            return false;
    }
    return true;
}

/*
 * Takes the lock of a group, on its cgroup.procs: -EADDRINUSE if a living process has it. A record lock, since those
 * aren't inherited: what a killed daemon left running must not make it look alive.
 */
static int lock_group(const struct cordon_cgroup_tree *tree, const char *group, int *ret)
{
    char path[CORDON_CGROUP_INSTANCE + 32];
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    (void)snprintf(path, sizeof path, "%s/cgroup.procs", group); /* fits: a checked name, or one that was listed */
    cordon_autoclose int fd = openat(tree->base, path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (fcntl(fd, F_SETLK, &lock) < 0)
        return errno == EAGAIN || errno == EACCES ? -EADDRINUSE : -errno;
    *ret = CORDON_TAKE_FD(fd);
    return 0;
}

/* The pid in "cordon-run-<pid>" and "cordon-probe-<pid>", or 0. */
static int run_pid(const char *name)
{
    static const char *const forms[] = {CORDON_CGROUP_PREFIX "run-", CORDON_CGROUP_PREFIX "probe-"};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        size_t size = strlen(forms[i]);
        const char *digits = name + size;
        if (strncmp(name, forms[i], size) == 0 && *digits && strspn(digits, "0123456789") == strlen(digits))
            return strlen(digits) < 10 ? (int)strtol(digits, NULL, 10) : 0;
    }
    return 0;
}

/* Instances of a single run that died with it. They have no fixed name, so nobody else would remove them. */
static void remove_dead_runs(const struct cordon_cgroup_tree *tree)
{
    DIR *dir = cordon_opendir(tree->base);
    if (!dir)
        return;
    struct dirent *entry;
    while ((entry = readdir(dir))) {
        int pid = run_pid(entry->d_name);
        if (pid == 0 || kill(pid, 0) == 0 || errno != ESRCH)
            continue;
        cordon_autoclose int fd = -1;
        if (lock_group(tree, entry->d_name, &fd) == 0) /* the pid may be of another pid namespace: the lock isn't */
            (void)cordon_cgroup_remove(tree->base, entry->d_name); /* what stays is the next one's */
    }
    (void)closedir(dir); /* only read from */
}

/* All guests together leave the host a tenth of its memory: past that it is a guest that the kernel ends. */
static void limit_group(const struct cordon_cgroup_tree *tree)
{
    char text[32];
    struct sysinfo info;
    if (sysinfo(&info) == 0 && (tree->controllers & CORDON_CGROUP_MEMORY)) {
        (void)snprintf(text, sizeof text, "%" PRIu64, (uint64_t)info.totalram * info.mem_unit / 10 * 9);     /* fits */
        (void)cordon_write_file(tree->group, tree->place.v2 ? "memory.max" : "memory.limit_in_bytes", text); /* extra */
    }
    if (tree->controllers & CORDON_CGROUP_CPU) {
        /* Against the rest of the host, guests weigh as much together as one busy process on each CPU. */
        long cpus = sysconf(_SC_NPROCESSORS_ONLN);
        long most = tree->place.v2 ? 10000 : 262144, weight = (tree->place.v2 ? 100 : 1024) * (cpus > 0 ? cpus : 1);
        (void)snprintf(text, sizeof text, "%ld", weight < most ? weight : most);                  /* fits */
        (void)cordon_write_file(tree->group, tree->place.v2 ? "cpu.weight" : "cpu.shares", text); /* extra */
    }
}

static bool is_locked_out(struct cordon_cgroup_root *root, const struct cordon_cgroup_tree *tree)
{
    if (faccessat(tree->base, root->group, F_OK, 0) < 0)
        return false;
    cordon_autoclose int fd = -1;
    return lock_group(tree, root->group, &fd) == -EADDRINUSE;
}

/* Opens one tree, or says why it is left out. -EADDRINUSE alone is an error: the rest is only less to offer. */
static int open_tree_of(struct cordon_cgroup_root *root, const struct cordon_cgroup_place *place)
{
    struct cordon_cgroup_tree *tree = &root->trees[root->count];
    char why[256] = "";
    tree->place = *place;
    int r = cordon_cgroup_tree_prepare(tree, why);
    if (r == 0 && is_locked_out(root, tree))
        r = -EADDRINUSE;
    if (r == 0) {
        remove_dead_runs(tree);
        r = cordon_cgroup_tree_group(tree, root->group, why);
    }
    if (r == 0 && root->lock < 0)
        r = lock_group(tree, root->group, &root->lock);
    if (r < 0 && r != -ENODEV && !*root->reason)
        memcpy(root->reason, why, sizeof why);
    if (r < 0 || (tree->controllers & ~root->controllers) == 0) {
        cordon_cgroup_tree_close(tree, r == -EADDRINUSE ? NULL : root->group);
        return r == -EADDRINUSE ? r : 0;
    }
    limit_group(tree);
    root->controllers |= tree->controllers;
    root->count++;
    return 0;
}

static bool has_v2(const struct cordon_cgroup_root *root)
{
    for (size_t i = 0; i < root->count; i++)
        if (root->trees[i].place.v2)
            return true;
    return false;
}

/* What single runs left that died: nobody locks a group in here, so those count as dead that have none in the first
 * tree any more, from which dead ones were removed before. */
static void remove_dead_freezers(const struct cordon_cgroup_root *root)
{
    DIR *dir = cordon_opendir(root->freezer.base);
    if (!dir)
        return;
    for (struct dirent *entry; (entry = readdir(dir));)
        if (run_pid(entry->d_name) && faccessat(root->trees[0].base, entry->d_name, F_OK, 0) < 0 && errno == ENOENT)
            (void)cordon_cgroup_remove(root->freezer.base, entry->d_name); /* what stays is the next one's */
    (void)closedir(dir);                                                   /* only read from */
}

/* Where no tree is v2, groups for freezing are made apart. Without them kept guests just can't pause. */
static void open_freezer(struct cordon_cgroup_root *root, const char *mountinfo, const char *self)
{
    char why[256];
    root->freezer.base = root->freezer.group = -1;
    if (!root->count || has_v2(root) || cordon_cgroup_find_freezer(mountinfo, self, &root->freezer.place) < 0)
        return;
    if (cordon_cgroup_tree_plain(&root->freezer, root->group, why) < 0)
        cordon_cgroup_tree_close(&root->freezer, root->group);
    else
        remove_dead_freezers(root);
}

static int open_trees(struct cordon_cgroup_root *root)
{
    cordon_autofree char *mountinfo = malloc(PROC_TEXT);
    cordon_autofree char *self = malloc(PROC_TEXT);
    struct cordon_cgroup_place places[CORDON_CGROUP_PLACES];
    if (!mountinfo || !self)
        return -ENOMEM;
    (void)read_proc("/proc/self/mountinfo", mountinfo); /* empty where it can't be read */
    (void)read_proc("/proc/self/cgroup", self);
    size_t count = cordon_cgroup_find(mountinfo, self, places);
    for (size_t i = 0; i < count; i++) {
        int r = open_tree_of(root, &places[i]);
        if (r < 0)
            return r;
    }
    open_freezer(root, mountinfo, self);
    bool all = cordon_cgroup_has_memory(root) && cordon_cgroup_has_pids(root) && cordon_cgroup_has_cpu(root);
    if (all)
        root->reason[0] = '\0';
    else if (!*root->reason)
        (void)snprintf(root->reason, sizeof root->reason, "no mounted cgroup hierarchy that shows this process has it");
    return 0;
}

int cordon_cgroup_root_open(const char *instance, struct cordon_cgroup_root **ret, struct cordon_error *err)
{
    if (!is_instance(instance))
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "instance name \"%.64s\": give 1 to %d letters, digits, '-' or '_'", instance,
                           CORDON_CGROUP_INSTANCE);
    struct cordon_cgroup_root *root = calloc(1, sizeof *root);
    if (!root)
        return cordon_fail_errno(err, -ENOMEM, "open control groups");
    root->lock = root->freezer.base = root->freezer.group = -1;
    (void)snprintf(root->group, sizeof root->group, CORDON_CGROUP_PREFIX "%s", instance); /* checked above */
    int r = open_trees(root);
    if (r < 0) {
        cordon_cgroup_root_close(root);
        if (r == -EADDRINUSE)
            return cordon_fail(err, r, CORDON_ERROR_CONFLICT,
                               "the control groups of instance \"%s\" belong to a daemon that runs: stop it, or choose "
                               "another instance name",
                               instance);
        return cordon_fail_errno(err, r, "open control groups");
    }
    *ret = root;
    return 0;
}

void cordon_cgroup_root_close(struct cordon_cgroup_root *root)
{
    if (!root)
        return;
    for (size_t i = 0; i < root->count; i++)
        cordon_cgroup_tree_close(&root->trees[i], root->group);
    cordon_cgroup_tree_close(&root->freezer, root->group);
    cordon_close(&root->lock);
    free(root);
}

const char *cordon_cgroup_root_reason(const struct cordon_cgroup_root *root)
{
    return root->reason;
}

bool cordon_cgroup_has_memory(const struct cordon_cgroup_root *root)
{
    return root->controllers & CORDON_CGROUP_MEMORY;
}

bool cordon_cgroup_has_pids(const struct cordon_cgroup_root *root)
{
    return root->controllers & CORDON_CGROUP_PIDS;
}

bool cordon_cgroup_has_cpu(const struct cordon_cgroup_root *root)
{
    return root->controllers & CORDON_CGROUP_CPU;
}

bool cordon_cgroup_has_freezer(const struct cordon_cgroup_root *root)
{
    return root->freezer.group >= 0 || has_v2(root);
}
