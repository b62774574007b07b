/* SPDX-License-Identifier: Apache-2.0 */
/* Where this process' control groups are, from the texts of /proc/self/mountinfo and /proc/self/cgroup. Pure. */
#ifndef CORDON_ISOLATE_CGROUP_FIND_H
#define CORDON_ISOLATE_CGROUP_FIND_H

#include <stdbool.h>
#include <stddef.h>

enum cordon_cgroup_controller {
    CORDON_CGROUP_MEMORY = 1,
    CORDON_CGROUP_PIDS = 2,
    CORDON_CGROUP_CPU = 4,
    CORDON_CGROUP_CPUACCT = 8, /* v1 only: v2 counts everywhere */
    CORDON_CGROUP_FREEZER = 16 /* v1 only, found by cordon_cgroup_find_freezer alone: v2 freezes everywhere */
};

#define CORDON_CGROUP_PLACES 5 /* v2, and v1's memory, pids, cpu and cpuacct */
#define CORDON_CGROUP_PATH 512

struct cordon_cgroup_place {
    bool v2;
    bool top;                      /* the path is the topmost one that this process can see */
    unsigned controllers;          /* of v1; v2 tells in its cgroup.controllers */
    char path[CORDON_CGROUP_PATH]; /* of this process' own group */
};

/* Returns how many places it found. Mounts that don't show this process' own group are left out. */
size_t cordon_cgroup_find(const char *mountinfo, const char *self,
                          struct cordon_cgroup_place places[CORDON_CGROUP_PLACES]);
/* Where this process could be frozen, in the mounted v2 hierarchy or v1's freezer: 0, or -ENOENT. */
int cordon_cgroup_find_freezer(const char *mountinfo, const char *self, struct cordon_cgroup_place *place);
/* The controllers named in a list with the separator between them, as v1's mount options (',') and v2's files (' '). */
unsigned cordon_cgroup_controllers(const char *list, char separator);

#endif
