/* SPDX-License-Identifier: Apache-2.0 */
/* The groups of one slot: made, limited, made fit for the next guest, read. The theory is in cgroup.c. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "isolate/cgroup.h"
#include "isolate/cgroup_tree.h"

#define CPU_PERIOD_US 100000
#define PATH 64
#define INNER "0" /* of a guest, below its slot's */
/* More than this left charged by a guest that is gone is left behind with its group; less is the kernel's own slack. */
#define RECYCLE_BYTES (8u << 20)
#define SOCKET_SHARE 4 /* v1: this part of the memory limit may be had as buffers of TCP and UDP sockets besides it */
#define SOCKET_LEAST (4u << 20)

static int in_slot(const struct cordon_cgroup_slot *slot, const char *file, char path[PATH])
{
    return snprintf(path, PATH, "%u/%s", slot->index, file) < PATH ? 0 : -ENAMETOOLONG;
}

static int write_slot(const struct cordon_cgroup_slot *slot, const struct cordon_cgroup_tree *tree, const char *file,
                      const char *text)
{
    char path[PATH];
    int r = in_slot(slot, file, path);
    return r < 0 ? r : cordon_write_file(tree->group, path, text);
}

static int open_slot(const struct cordon_cgroup_slot *slot, const struct cordon_cgroup_tree *tree, const char *file,
                     int flags)
{
    char path[PATH];
    int r = in_slot(slot, file, path);
    if (r < 0)
        return r;
    int fd = openat(tree->group, path, flags | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static const struct cordon_cgroup_tree *tree_with(const struct cordon_cgroup_root *root, unsigned controller)
{
    for (size_t i = 0; i < root->count; i++) {
        if (root->trees[i].controllers & controller)
            return &root->trees[i];
    }
    return NULL;
}

static void close_slot(struct cordon_cgroup_slot *slot)
{
    for (size_t i = 0; i < slot->procs_count; i++)
        cordon_close(&slot->procs[i]);
    slot->procs_count = 0;
    cordon_close(&slot->memory_peak);
    cordon_close(&slot->memory_events);
    cordon_close(&slot->cpu_usage);
}

/* Of v2, where a guest may have a group of its own. */
static int open_own(const struct cordon_cgroup_slot *slot, const struct cordon_cgroup_tree *tree, const char *file,
                    int flags)
{
    char path[PATH];
    (void)snprintf(path, sizeof path, INNER "/%s", file); /* short names */
    return open_slot(slot, tree, slot->inner ? path : file, flags);
}

/* Files that a kernel or an outer limit may lack: the statistics are then unknown, and the limits hold without them. */
static void open_statistics(struct cordon_cgroup_slot *slot)
{
    const struct cordon_cgroup_tree *memory = tree_with(slot->root, CORDON_CGROUP_MEMORY);
    if (memory) {
        bool v2 = memory->place.v2;
        const char *peak = v2 ? "memory.peak" : "memory.max_usage_in_bytes";
        slot->memory_peak = open_own(slot, memory, peak, O_RDWR); /* written to reset it */
        if (slot->memory_peak < 0)
            slot->memory_peak = open_own(slot, memory, peak, O_RDONLY);
        slot->memory_events = open_own(slot, memory, v2 ? "memory.events" : "memory.oom_control", O_RDONLY);
        if (!slot->inner)
            (void)write_slot(slot, memory, v2 ? "memory.swap.max" : "memory.swappiness", "0"); /* absent without swap */
        if (v2 && !slot->inner)
            (void)write_slot(slot, memory, "memory.oom.group", "1"); /* 4.19; else the largest process alone dies */
    }
    const struct cordon_cgroup_tree *cpu = tree_with(slot->root, CORDON_CGROUP_CPUACCT);
    if (cpu) {
        slot->cpu_usage = open_slot(slot, cpu, "cpuacct.usage", O_RDONLY);
        return;
    }
    for (size_t i = 0; i < slot->root->count && slot->cpu_usage < 0; i++) {
        if (slot->root->trees[i].place.v2) /* counted in every group, the cpu controller switched on or not */
            slot->cpu_usage = open_own(slot, &slot->root->trees[i], "cpu.stat", O_RDONLY);
    }
}

static int make_in(struct cordon_cgroup_slot *slot, const struct cordon_cgroup_tree *tree)
{
    char name[16];
    (void)snprintf(name, sizeof name, "%u", slot->index); /* always fits */
    int r = cordon_cgroup_remove(tree->group, name);      /* with its counters, should there be one */
    if (r < 0 && r != -ENOENT)
        return r;
    if (mkdirat(tree->group, name, 0755) < 0)
        return -errno;
    int fd = open_slot(slot, tree, CORDON_CGROUP_ENTRY(tree->place.v2), O_WRONLY);
    if (fd < 0)
        return fd;
    slot->procs[slot->procs_count++] = fd;
    return 0;
}

static int make(struct cordon_cgroup_slot *slot)
{
    slot->memory_peak = slot->memory_events = slot->cpu_usage = -1;
    slot->inner = false;
    slot->made++;
    slot->memory_bytes = 0;
    slot->pids = slot->cpu_percent = 0;
    for (size_t i = 0; i < slot->root->count; i++) {
        int r = make_in(slot, &slot->root->trees[i]);
        if (r < 0)
            return r;
    }
    open_statistics(slot);
    return 0;
}

int cordon_cgroup_slot_make(struct cordon_cgroup_root *root, unsigned index, struct cordon_cgroup_slot *ret,
                            struct cordon_error *err)
{
    struct cordon_cgroup_slot slot = {.root = root, .index = index};
    int r = make(&slot);
    if (r < 0) {
        cordon_cgroup_slot_remove(&slot);
        return cordon_fail_errno(err, r, "make the control groups of slot %u in %s", index, root->group);
    }
    *ret = slot;
    return 0;
}

static const char *amount(uint64_t value, const char *unlimited, char text[32])
{
    if (value == 0)
        return unlimited;
    (void)snprintf(text, 32, "%" PRIu64, value); /* always fits */
    return text;
}

static int write_memory_v1(struct cordon_cgroup_slot *slot, const struct cordon_cgroup_tree *tree, const char *text,
                           bool raise)
{
    static const char *const files[] = {"memory.limit_in_bytes", "memory.memsw.limit_in_bytes"};
    for (size_t i = 0; i < 2; i++) {
        const char *file = files[raise ? 1 - i : i]; /* memory alone may never exceed memory and swap together */
        int r = write_slot(slot, tree, file, text);
        if (r < 0 && !(r == -ENOENT && file == files[1])) /* absent without swap accounting: swappiness is 0 then */
            return r;
    }
    return 0;
}

/* v1 counts socket buffers apart from all other memory, and only in groups where this was written. */
static int limit_sockets_v1(struct cordon_cgroup_slot *slot, const struct cordon_cgroup_tree *tree, uint64_t bytes)
{
    char number[32];
    uint64_t share = bytes / SOCKET_SHARE > SOCKET_LEAST ? bytes / SOCKET_SHARE : SOCKET_LEAST;
    int r = write_slot(slot, tree, "memory.kmem.tcp.limit_in_bytes", amount(bytes ? share : 0, "-1", number));
    return r == -ENOENT ? 0 : r; /* a kernel that counts no kernel memory */
}

static int limit_memory(struct cordon_cgroup_slot *slot, const struct cordon_cgroup_tree *tree, uint64_t bytes)
{
    char number[32];
    if (tree->place.v2)
        return write_slot(slot, tree, "memory.max", amount(bytes, "max", number));
    bool raise = bytes == 0 || (slot->memory_bytes && bytes > slot->memory_bytes);
    int r = limit_sockets_v1(slot, tree, bytes);
    return r < 0 ? r : write_memory_v1(slot, tree, amount(bytes, "-1", number), raise);
}

static int limit_pids(struct cordon_cgroup_slot *slot, const struct cordon_cgroup_tree *tree, uint64_t pids)
{
    char number[32];
    return write_slot(slot, tree, "pids.max", amount(pids, "max", number));
}

static long between(long low, long value, long high)
{
    return value < low ? low : value > high ? high : value;
}

/* The quota, and a weight in proportion, so that guests which ask for less don't push those that ask for more. */
static int limit_cpu(struct cordon_cgroup_slot *slot, const struct cordon_cgroup_tree *tree, uint64_t percent)
{
    char quota[64], weight[32];
    uint64_t us = percent * (CPU_PERIOD_US / 100);
    if (us && us < 1000)
        us = 1000; /* the kernel's least */
    long share = percent ? (long)percent : 100;
    if (!tree->place.v2) {
        (void)snprintf(weight, sizeof weight, "%ld", between(2, share * 1024 / 100, 262144)); /* fits */
        (void)write_slot(slot, tree, "cpu.shares", weight); /* the quota is what holds */
        return write_slot(slot, tree, "cpu.cfs_quota_us", amount(us, "-1", quota));
    }
    (void)snprintf(weight, sizeof weight, "%ld", between(1, share, 10000)); /* fits */
    (void)write_slot(slot, tree, "cpu.weight", weight);                     /* the quota is what holds */
    if (us)
        (void)snprintf(quota, sizeof quota, "%" PRIu64 " %d", us, CPU_PERIOD_US); /* fits */
    else
        (void)snprintf(quota, sizeof quota, "max %d", CPU_PERIOD_US); /* fits */
    return write_slot(slot, tree, "cpu.max", quota);
}

typedef int limiter(struct cordon_cgroup_slot *slot, const struct cordon_cgroup_tree *tree, uint64_t value);

static int limit(struct cordon_cgroup_slot *slot, unsigned controller, limiter *write, uint64_t value,
                 struct cordon_error *err)
{
    const struct cordon_cgroup_tree *tree = tree_with(slot->root, controller);
    int r = tree ? write(slot, tree, value) : 0;
    if (r < 0)
        return cordon_fail_errno(err, r, "limit %s of slot %u to %" PRIu64,
                                 controller == CORDON_CGROUP_MEMORY ? "memory"
                                 : controller == CORDON_CGROUP_PIDS ? "processes"
                                                                    : "CPU percent",
                                 slot->index, value);
    return 0;
}

int cordon_cgroup_slot_limit(struct cordon_cgroup_slot *slot, uint64_t memory_bytes, uint32_t pids,
                             uint32_t cpu_percent, struct cordon_error *err)
{
    int r = 0;
#ifndef CORDON_WEAKEN_MEMORY
    if (memory_bytes != slot->memory_bytes &&
        (r = limit(slot, CORDON_CGROUP_MEMORY, limit_memory, memory_bytes, err)) < 0)
        return r;
#endif
    slot->memory_bytes = memory_bytes;
#ifndef CORDON_WEAKEN_PIDS
    if (pids != slot->pids && (r = limit(slot, CORDON_CGROUP_PIDS, limit_pids, pids, err)) < 0)
        return r;
#endif
    slot->pids = pids;
#ifndef CORDON_WEAKEN_CPU
    if (cpu_percent != slot->cpu_percent && (r = limit(slot, CORDON_CGROUP_CPU, limit_cpu, cpu_percent, err)) < 0)
        return r;
#endif
    slot->cpu_percent = cpu_percent;
    return r;
}

static bool is_occupied(const struct cordon_cgroup_slot *slot)
{
    char name[24];
    bool inner = slot->inner && slot->root->trees[0].place.v2;
    (void)snprintf(name, sizeof name, "%u%s", slot->index, inner ? "/" INNER : ""); /* always fits */
    /* The first tree is joined first, and all are left at once. Without any group remaking failed: nobody is inside. */
    return slot->procs_count && cordon_cgroup_occupied(slot->root->trees[0].group, name) != 0;
}

/* Same limits, new groups. Where that fails it is tried again by the next call. */
static bool remake(struct cordon_cgroup_slot *slot)
{
    uint64_t memory_bytes = slot->memory_bytes;
    uint32_t pids = slot->pids, cpu_percent = slot->cpu_percent;
    close_slot(slot);
    if (make(slot) == 0)
        return cordon_cgroup_slot_limit(slot, memory_bytes, pids, cpu_percent, NULL) == 0;
    close_slot(slot);
    slot->memory_bytes = memory_bytes;
    slot->pids = pids;
    slot->cpu_percent = cpu_percent;
    return false;
}

/* Emptying it (memory.force_empty, memory.reclaim) takes as long as the guest has made it take. */
static bool much_is_left(const struct cordon_cgroup_slot *slot, const struct cordon_cgroup_tree *memory)
{
    const char *file = memory->place.v2 ? "memory.current" : "memory.usage_in_bytes";
    cordon_autoclose int usage = open_slot(slot, memory, file, O_RDONLY);
    return cordon_cgroup_read_number(usage) > RECYCLE_BYTES;
}

/* The guest's own group: made, or made anew. False: it is not there, and nobody can be put into it. */
static bool make_inner(struct cordon_cgroup_slot *slot, const struct cordon_cgroup_tree *tree)
{
    char path[PATH];
    int *procs = &slot->procs[tree - slot->root->trees];
    (void)snprintf(path, sizeof path, "%u/" INNER, slot->index); /* fits */
    (void)unlinkat(tree->group, path, AT_REMOVEDIR);             /* none the first time */
    if (mkdirat(tree->group, path, 0755) < 0)
        return false;
    cordon_close(procs);
    cordon_close(&slot->memory_peak);
    cordon_close(&slot->memory_events);
    cordon_close(&slot->cpu_usage);
    slot->inner = true;
    *procs = open_own(slot, tree, CORDON_CGROUP_ENTRY(tree->place.v2), O_WRONLY);
    open_statistics(slot);
    return *procs >= 0;
}

void cordon_cgroup_slot_settle(struct cordon_cgroup_slot *slot)
{
    const struct cordon_cgroup_tree *memory = tree_with(slot->root, CORDON_CGROUP_MEMORY);
    if (!memory || !memory->place.v2 || slot->inner || slot->memory_peak < 0 ||
        (fcntl(slot->memory_peak, F_GETFL) & O_ACCMODE) == O_RDWR)
        return;
    /* Where that can't be had, all groups are made anew between guests: slower, and as good. */
    if (write_slot(slot, memory, "cgroup.subtree_control", "+memory") == 0 && !make_inner(slot, memory))
        (void)write_slot(slot, memory, "cgroup.subtree_control", "-memory"); /* else nobody could be put into it */
}

int cordon_cgroup_slot_unsettle(struct cordon_cgroup_slot *slot, struct cordon_error *err)
{
    if (!slot->inner || remake(slot))
        return 0;
    return cordon_fail_errno(err, -EBUSY, "make the control groups of slot %u in %s anew", slot->index,
                             slot->root->group);
}

/* Before 6.12 v2's can't be reset, and is open for reading only. Where there is none, none is told. */
static bool reset_peak(struct cordon_cgroup_slot *slot)
{
    if (slot->inner)
        return make_inner(slot, tree_with(slot->root, CORDON_CGROUP_MEMORY));
    return slot->memory_peak < 0 || pwrite(slot->memory_peak, "0", 1, 0) == 1;
}

bool cordon_cgroup_slot_recycle(struct cordon_cgroup_slot *slot)
{
    if (is_occupied(slot))
        return false;
    const struct cordon_cgroup_tree *memory = tree_with(slot->root, CORDON_CGROUP_MEMORY);
    if (slot->root->count && !slot->procs_count)
        return remake(slot);
    if (!memory)
        return true;
    return (!much_is_left(slot, memory) && reset_peak(slot)) || remake(slot);
}

void cordon_cgroup_slot_remove(struct cordon_cgroup_slot *slot)
{
    if (!slot->root)
        return;
    char name[16];
    (void)snprintf(name, sizeof name, "%u", slot->index); /* always fits */
    close_slot(slot);
    for (size_t i = 0; i < slot->root->count; i++)
        (void)cordon_cgroup_remove(slot->root->trees[i].group, name); /* what stays goes with the root */
    slot->root = NULL;
}

static const char *read_whole(int fd, char *text, size_t size)
{
    ssize_t n = fd < 0 ? 0 : pread(fd, text, size - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

/* The number behind "<key> " at the start of a line. */
static uint64_t number_of(const char *text, const char *key)
{
    size_t size = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, size) == 0 && line[size] == ' ')
            return strtoull(line + size + 1, NULL, 10);
    }
    return 0;
}

uint64_t cordon_cgroup_read_oom_kills(int fd)
{
    char text[1024];
    return number_of(read_whole(fd, text, sizeof text), "oom_kill");
}

uint64_t cordon_cgroup_read_cpu_us(int fd)
{
    char text[1024];
    read_whole(fd, text, sizeof text);
    if (text[0] >= '0' && text[0] <= '9')
        return strtoull(text, NULL, 10) / 1000; /* cpuacct.usage has nanoseconds */
    return number_of(text, "usage_usec");
}

uint64_t cordon_cgroup_read_number(int fd)
{
    char text[64];
    return strtoull(read_whole(fd, text, sizeof text), NULL, 10);
}
