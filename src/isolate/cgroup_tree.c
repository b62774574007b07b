/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. On v1 our group is simply made below the daemon's own. On v2 a group that has children with
 * controllers may hold no process, so the daemon's own group must be emptied first:
 *
 *   - the real root is free of that rule;
 *   - where only the daemon's own programs are in it (a service unit), or where it is the topmost group that we can
 *     see (a container), they move to the leaf `cordon-daemon`, which a restarted daemon recognises as its own;
 *   - where others share it (a login session), our group is made beside it instead, in the parent (the user's slice),
 *     since moving a stranger's shell is not ours to do.
 *
 * Removing goes by name only: `cordon-…` and, in it, numbers. What still runs in one is ours, and is killed.
 */
#include "isolate/cgroup_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"

#define REMOVE_TRIES 100 /* 10 ms apart: a killed process may have to leave a disk or a page fault first */
#define MOVE_ROUNDS 8    /* what forks meanwhile is moved in the next one */

static const struct switchable {
    unsigned bit;
    const char *on, *off;
} switchables[] = {
    {CORDON_CGROUP_MEMORY, "+memory", "-memory"},
    {CORDON_CGROUP_PIDS, "+pids", "-pids"},
    {CORDON_CGROUP_CPU, "+cpu", "-cpu"},
};

static int say(char why[256], int error, const char *what, const char *path)
{
    (void)snprintf(why, 256, "%s %.180s: %s", what, path, strerror(-error)); /* cut where too long: it is for people */
    return error;
}

static FILE *open_procs(int group, const char *name)
{
    cordon_autoclose int dir = openat(group, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cordon_autoclose int fd = dir < 0 ? -1 : openat(dir, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "re");
    if (file)
        fd = -1; /* the stream's */
    return file;
}

int cordon_cgroup_occupied(int parent, const char *name)
{
    char path[300], text[16];
    if (snprintf(path, sizeof path, "%s/cgroup.procs", name) >= (int)sizeof path)
        return -1;
    ssize_t size = cordon_read_file(parent, path, text, sizeof text);
    return size < 0 ? -1 : size > 0;
}

/* v1 kills one by one; pid 0 is one of an outer pid namespace, which is none of ours. */
static void kill_all(int parent, const char *name)
{
    char path[300];
    if (snprintf(path, sizeof path, "%s/cgroup.kill", name) < (int)sizeof path &&
        cordon_write_file(parent, path, "1") == 0)
        return;
    FILE *file = open_procs(parent, name);
    if (!file)
        return;
    int pid;
    while (fscanf(file, "%d", &pid) == 1) {
        if (pid > 1 && pid != getpid())
            (void)kill(pid, SIGKILL); /* it may be gone already, which is what is wanted */
    }
    (void)fclose(file); /* only read from */
}

static int remove_one(int parent, const char *name)
{
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    for (int try = 0; try < REMOVE_TRIES; try++) {
        if (unlinkat(parent, name, AT_REMOVEDIR) == 0)
            return 0;
        if (errno != EBUSY)
            return -errno;
        if (cordon_cgroup_occupied(parent, name) == 1)
            kill_all(parent, name);
        (void)nanosleep(&pause, NULL); /* a shorter one only costs a try */
    }
    return -EBUSY;
}

static bool is_slot(const char *name)
{
    return *name && strspn(name, "0123456789") == strlen(name);
}

/* And what is in them: a guest's own group has a number for its name as well. */
static void remove_slots(int group)
{
    DIR *dir = cordon_opendir(group);
    if (!dir)
        return;
    struct dirent *entry;
    while ((entry = readdir(dir))) {
        if (is_slot(entry->d_name))
            (void)cordon_cgroup_remove(group, entry->d_name); /* what stays makes the parent's removal fail */
    }
    (void)closedir(dir); /* only read from */
}

int cordon_cgroup_remove(int parent, const char *name)
{
    cordon_autoclose int group = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (group < 0)
        return -errno;
    remove_slots(group);
    return remove_one(parent, name);
}

/* 1: it executes the program that we do; 0: another, or none any more; -EACCES: that may not be known. */
static int executes_us(int pid, const struct stat *own)
{
    struct stat other;
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/exe", pid); /* always fits */
    if (stat(path, &other) < 0)
        return errno == ENOENT ? 0 : -EACCES;
    return other.st_dev == own->st_dev && other.st_ino == own->st_ino;
}

/* From /proc/PID/stat: its state ('X' if it is gone), and its parent. */
static char state_of(int pid, int *parent)
{
    char path[64], text[512], state = 'X';
    (void)snprintf(path, sizeof path, "/proc/%d/stat", pid); /* always fits */
    *parent = 0;
    const char *name_end = cordon_read_file(AT_FDCWD, path, text, sizeof text) < 0 ? NULL : strrchr(text, ')');
    if (name_end && sscanf(name_end + 1, " %c %d", &state, parent) != 2)
        state = 'X';
    return state;
}

/* The gateway hides its program from everybody but the host's root: it is known by its parent, the supervisor. */
static bool is_ours(int pid, const struct stat *own)
{
    int parent, r = executes_us(pid, own);
    if (r == 1)
        return true;
    char state = state_of(pid, &parent);
    if (state == 'Z' || state == 'X')
        return true; /* nothing that can be moved, or need be */
    return r < 0 && parent > 1 && executes_us(parent, own) == 1;
}

/* Is every process in it one of ours? */
static bool only_ours(int group)
{
    struct stat own;
    FILE *file = stat("/proc/self/exe", &own) < 0 ? NULL : open_procs(group, ".");
    if (!file)
        return false;
    bool ours = true;
    int pid;
    while (ours && fscanf(file, "%d", &pid) == 1)
        ours = is_ours(pid, &own);
    (void)fclose(file); /* only read from */
    return ours;
}

static int move_all(int from, const char *from_name, int to, const char *to_name)
{
    char path[300], text[16];
    (void)snprintf(path, sizeof path, "%s/cgroup.procs", to_name); /* our own short names */
    for (int round = 0; round < MOVE_ROUNDS && cordon_cgroup_occupied(from, from_name) == 1; round++) {
        FILE *file = open_procs(from, from_name);
        int pid;
        while (file && fscanf(file, "%d", &pid) == 1) {
            (void)snprintf(text, sizeof text, "%d", pid); /* always fits */
            (void)cordon_write_file(to, path, text); /* one that is gone is no loss; one that stays is seen below */
        }
        if (file)
            (void)fclose(file); /* only read from */
    }
    return cordon_cgroup_occupied(from, from_name) == 1 ? -EBUSY : 0;
}

static int open_base(struct cordon_cgroup_tree *tree, char why[256])
{
    cordon_close(&tree->base);
    tree->base = open(tree->place.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return tree->base < 0 ? say(why, -errno, "open", tree->place.path) : 0;
}

static int go_up(struct cordon_cgroup_tree *tree, char why[256])
{
    *strrchr(tree->place.path, '/') = '\0';
    return open_base(tree, why);
}

static bool is_leaf_of_ours(const char *path)
{
    const char *name = strrchr(path, '/');
    return name && strcmp(name + 1, CORDON_CGROUP_LEAF) == 0;
}

static int empty_base(struct cordon_cgroup_tree *tree, char why[256])
{
    if (faccessat(tree->base, "cgroup.type", F_OK, 0) < 0) /* only the real root has none */
        return 0;
    if (cordon_cgroup_occupied(tree->base, ".") == 0)
        return 0;
    if (!tree->place.top && !only_ours(tree->base))
        return go_up(tree, why);
    if (mkdirat(tree->base, CORDON_CGROUP_LEAF, 0755) < 0 && errno != EEXIST)
        return say(why, -errno, "make " CORDON_CGROUP_LEAF " in", tree->place.path);
    int r = move_all(tree->base, ".", tree->base, CORDON_CGROUP_LEAF);
    return r < 0 ? say(why, r, "move the processes out of", tree->place.path) : 0;
}

static unsigned read_controllers(int dir, const char *file)
{
    char text[512];
    return cordon_read_file(dir, file, text, sizeof text) < 0 ? 0 : cordon_cgroup_controllers(text, ' ');
}

/* Switches on what is there for the children of dir, one by one: one that can't be must not cost the others. */
static unsigned switch_on(int dir)
{
    unsigned there = read_controllers(dir, "cgroup.controllers");
    unsigned before = read_controllers(dir, "cgroup.subtree_control");
    for (size_t i = 0; i < sizeof switchables / sizeof switchables[0]; i++) {
        if (there & ~before & switchables[i].bit)
            (void)cordon_write_file(dir, "cgroup.subtree_control", switchables[i].on); /* read back below */
    }
    return read_controllers(dir, "cgroup.subtree_control");
}

static int prepare_v2(struct cordon_cgroup_tree *tree, char why[256])
{
    int r = 0;
    if (is_leaf_of_ours(tree->place.path) && (r = go_up(tree, why)) < 0)
        return r;
    if (read_controllers(tree->base, "cgroup.controllers") == 0)
        return say(why, -ENODEV, "find controllers in", tree->place.path);
    if (faccessat(tree->base, "cgroup.subtree_control", W_OK, AT_EACCESS) < 0)
        return say(why, -errno, "write cgroup.subtree_control in", tree->place.path);
    if ((r = empty_base(tree, why)) < 0)
        return r;
    tree->controllers = switch_on(tree->base);
    return tree->controllers ? 0 : say(why, -EACCES, "switch on controllers in", tree->place.path);
}

int cordon_cgroup_tree_prepare(struct cordon_cgroup_tree *tree, char why[256])
{
    tree->base = tree->group = -1;
    tree->controllers = tree->place.controllers;
    int r = open_base(tree, why);
    if (r < 0 || !tree->place.v2)
        return r;
    return prepare_v2(tree, why);
}

int cordon_cgroup_tree_group(struct cordon_cgroup_tree *tree, const char *name, char why[256])
{
    int r = cordon_cgroup_remove(tree->base, name);
    if (r < 0 && r != -ENOENT)
        return say(why, r, "remove what an earlier daemon left in", tree->place.path);
    if (mkdirat(tree->base, name, 0755) < 0)
        return say(why, -errno, "make a group in", tree->place.path);
    tree->group = openat(tree->base, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (tree->group < 0)
        return say(why, -errno, "open our group in", tree->place.path);
    if (tree->place.v2)
        tree->controllers &= switch_on(tree->group);
    return 0;
}

int cordon_cgroup_tree_plain(struct cordon_cgroup_tree *tree, const char *name, char why[256])
{
    tree->base = tree->group = -1;
    int r = open_base(tree, why);
    return r < 0 ? r : cordon_cgroup_tree_group(tree, name, why);
}

/*
 * Out of the leaf again, which only a group without controllers for children may take us back from. Elsewhere the
 * controllers stay on: they cost little, and another instance may just be counting on them.
 */
static void restore_base(struct cordon_cgroup_tree *tree)
{
    if (faccessat(tree->base, CORDON_CGROUP_LEAF, F_OK, 0) < 0)
        return;
    for (size_t i = 0; i < sizeof switchables / sizeof switchables[0]; i++)
        (void)cordon_write_file(tree->base, "cgroup.subtree_control", switchables[i].off); /* others may use it */
    if (move_all(tree->base, CORDON_CGROUP_LEAF, tree->base, ".") == 0)
        (void)unlinkat(tree->base, CORDON_CGROUP_LEAF, AT_REMOVEDIR); /* a daemon of another instance may be in it */
}

void cordon_cgroup_tree_close(struct cordon_cgroup_tree *tree, const char *name)
{
    cordon_close(&tree->group);
    if (tree->base >= 0 && name) {
        (void)cordon_cgroup_remove(tree->base, name); /* what stays is removed by the next start */
    }
    if (tree->base >= 0 && tree->place.v2)
        restore_base(tree);
    cordon_close(&tree->base);
}
