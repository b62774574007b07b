/* SPDX-License-Identifier: Apache-2.0 */
/* Freezing the code of one kept guest, and reading what it uses. See cgroup.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "isolate/cgroup.h"
#include "isolate/cgroup_tree.h"

static const struct cordon_cgroup_tree *v2_of(const struct cordon_cgroup_root *root)
{
    for (size_t i = 0; i < root->count; i++)
        if (root->trees[i].place.v2)
            return &root->trees[i];
    return NULL;
}

static bool is_v2(const struct cordon_cgroup_freezer *freezer)
{
    return v2_of(freezer->root) || freezer->root->freezer.place.v2;
}

static int open_group(int parent, unsigned index)
{
    char name[16];
    (void)snprintf(name, sizeof name, "%u", index); /* always fits */
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int make_group(int parent, unsigned index)
{
    char name[16];
    (void)snprintf(name, sizeof name, "%u", index); /* always fits */
    int r = cordon_cgroup_remove(parent, name);
    if (r < 0 && r != -ENOENT)
        return r;
    if (mkdirat(parent, name, 0755) < 0)
        return -errno;
    return open_group(parent, index);
}

int cordon_cgroup_freezer_make(const struct cordon_cgroup_slot *slot, struct cordon_cgroup_freezer *ret,
                               struct cordon_error *err)
{
    struct cordon_cgroup_freezer freezer = {.root = slot->root, .index = slot->index, .procs = -1, .group = -1};
    const struct cordon_cgroup_tree *own = v2_of(slot->root);
    if (!own && slot->root->freezer.group < 0) { /* there is none: the guest can't pause, which its backend says */
        *ret = CORDON_CGROUP_FREEZER_NONE;
        return 0;
    }
    freezer.group = own ? open_group(own->group, slot->index) : make_group(slot->root->freezer.group, slot->index);
    int r = freezer.group < 0 ? freezer.group : 0;
    if (r == 0 && !own) {
        freezer.procs = openat(freezer.group, CORDON_CGROUP_ENTRY(is_v2(&freezer)), O_WRONLY | O_CLOEXEC);
        r = freezer.procs < 0 ? -errno : 0;
    }
    if (r < 0) {
        cordon_cgroup_freezer_done(&freezer);
        return cordon_fail_errno(err, r, "make the group that freezes slot %u", slot->index);
    }
    *ret = freezer;
    return 0;
}

int cordon_cgroup_freezer_set(const struct cordon_cgroup_freezer *freezer, bool frozen)
{
    if (!freezer->root)
        return -EOPNOTSUPP;
    if (is_v2(freezer))
        return cordon_write_file(freezer->group, "cgroup.freeze", frozen ? "1" : "0");
    return cordon_write_file(freezer->group, "freezer.state", frozen ? "FROZEN" : "THAWED");
}

int cordon_cgroup_freezer_frozen(const struct cordon_cgroup_freezer *freezer)
{
    char text[128];
    if (!freezer->root)
        return -EOPNOTSUPP;
    bool v2 = is_v2(freezer);
    ssize_t n = cordon_read_file(freezer->group, v2 ? "cgroup.events" : "freezer.state", text, sizeof text);
    if (n < 0)
        return (int)n;
    return v2 ? strstr(text, "frozen 1") != NULL : strncmp(text, "FROZEN", 6) == 0;
}

void cordon_cgroup_freezer_done(struct cordon_cgroup_freezer *freezer)
{
    if (!freezer->root)
        return;
    char name[16];
    bool own = !v2_of(freezer->root);
    (void)cordon_cgroup_freezer_set(freezer, false); /* what is frozen can't end on v1; the group may be gone */
    cordon_close(&freezer->procs);
    cordon_close(&freezer->group);
    (void)snprintf(name, sizeof name, "%u", freezer->index); /* always fits */
    if (own)
        (void)unlinkat(freezer->root->freezer.group, name, AT_REMOVEDIR); /* what stays is removed by the next make */
    freezer->root = NULL;
}

int cordon_cgroup_slot_open(const struct cordon_cgroup_slot *slot, enum cordon_cgroup_file file)
{
    static const struct {
        unsigned controller;
        const char *v1, *v2;
    } rows[] = {
        [CORDON_CGROUP_MEMORY_NOW] = {CORDON_CGROUP_MEMORY, "memory.usage_in_bytes", "memory.current"},
        [CORDON_CGROUP_MEMORY_STAT] = {CORDON_CGROUP_MEMORY, "memory.stat", "memory.stat"},
        [CORDON_CGROUP_PIDS_NOW] = {CORDON_CGROUP_PIDS, "pids.current", "pids.current"},
    };
    for (size_t i = 0; slot->root && i < slot->root->count; i++) {
        const struct cordon_cgroup_tree *tree = &slot->root->trees[i];
        char path[64];
        if (!(tree->controllers & rows[file].controller))
            continue;
        (void)snprintf(path, sizeof path, "%u/%s", slot->index, tree->place.v2 ? rows[file].v2 : rows[file].v1);
        return openat(tree->group, path, O_RDONLY | O_CLOEXEC);
    }
    return -1;
}

uint64_t cordon_cgroup_read_cache(int fd)
{
    char text[4096];
    ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    uint64_t sum = 0;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, "inactive_file ", 14) == 0 || strncmp(line, "active_file ", 12) == 0)
            sum += strtoull(strchr(line, ' ') + 1, NULL, 10);
    }
    return sum;
}
