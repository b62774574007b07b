/* SPDX-License-Identifier: Apache-2.0 */
/* Inside isolate: the hierarchies with our group in them. */
#ifndef CORDON_ISOLATE_CGROUP_TREE_H
#define CORDON_ISOLATE_CGROUP_TREE_H

#include <stdbool.h>
#include <stddef.h>

#include "isolate/cgroup.h"
#include "isolate/cgroup_find.h"

#define CORDON_CGROUP_LEAF "cordon-daemon" /* where the daemon's own processes are on v2 */

struct cordon_cgroup_tree {
    struct cordon_cgroup_place place; /* path: the group below which ours is */
    unsigned controllers;             /* the ones that can be used in our group */
    int base;                         /* directory of place.path */
    int group;                        /* directory of cordon-<instance> */
};

#define CORDON_CGROUP_INSTANCE 48
#define CORDON_CGROUP_PREFIX "cordon-"

struct cordon_cgroup_root {
    char group[CORDON_CGROUP_INSTANCE + sizeof CORDON_CGROUP_PREFIX]; /* cordon-<instance> */
    char reason[256];
    struct cordon_cgroup_tree trees[CORDON_CGROUP_PLACES];
    size_t count;
    unsigned controllers;              /* of all trees together */
    struct cordon_cgroup_tree freezer; /* base -1: none of its own */
    int lock;                          /* held while the instance lives */
};

/*
 * The file of a group by which a process that has one thread enters it, writing "0". On v1 that is `tasks`: a write to
 * cgroup.procs waits for a grace period of RCU after each pause, 8 to 20 ms, since it locks out all forks and exits of
 * the host; for a thread that moves itself Linux 5.5 and later spare that.
 */
#define CORDON_CGROUP_ENTRY(v2) ((v2) ? "cgroup.procs" : "tasks")

/* Makes the place ready and opens it: 0, or negative errno with the reason in `why`. */
int cordon_cgroup_tree_prepare(struct cordon_cgroup_tree *tree, char why[256]);
/* Makes (or takes over, emptied) the group `name` in it. */
int cordon_cgroup_tree_group(struct cordon_cgroup_tree *tree, const char *name, char why[256]);
/* The same without preparing anything: a hierarchy that is wanted for its groups alone. */
int cordon_cgroup_tree_plain(struct cordon_cgroup_tree *tree, const char *name, char why[256]);
/* Removes the group with what is in it (name NULL: keeps it), and undoes what prepare did to the place. */
void cordon_cgroup_tree_close(struct cordon_cgroup_tree *tree, const char *name);
/* Kills what is in a group of ours and in the slots below it, and removes them: 0, -ENOENT, -EBUSY. */
int cordon_cgroup_remove(int parent, const char *name);
/* Whether processes are in the group, -1 where that can't be read. */
int cordon_cgroup_occupied(int parent, const char *name);

#endif
