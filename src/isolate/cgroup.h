/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control groups of guests: v2 where its controllers are there, v1 else, both below the group that the daemon itself
 * was started in, so that an outer limit keeps holding. Only the warden uses this. Nothing here runs on a run's path
 * but cordon_cgroup_slot_limit, which writes only the limits that changed.
 */
#ifndef CORDON_ISOLATE_CGROUP_H
#define CORDON_ISOLATE_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct cordon_cgroup_root;

/* Finds the hierarchies, makes `cordon-<instance>` in each, removes what a dead instance of the same name (or of a
 * dead pid, for instances named "run-<pid>") left. Without any usable hierarchy it succeeds and offers nothing. */
int cordon_cgroup_root_open(const char *instance, struct cordon_cgroup_root **ret, struct cordon_error *err);
void cordon_cgroup_root_close(struct cordon_cgroup_root *root); /* removes its groups */
/* Why something is not there, for people; "" where all is. */
const char *cordon_cgroup_root_reason(const struct cordon_cgroup_root *root);
bool cordon_cgroup_has_memory(const struct cordon_cgroup_root *root);
bool cordon_cgroup_has_pids(const struct cordon_cgroup_root *root);
bool cordon_cgroup_has_cpu(const struct cordon_cgroup_root *root);

struct cordon_cgroup_slot {
    struct cordon_cgroup_root *root;
    unsigned index;
    int procs[5]; /* of each hierarchy what a process of one thread writes "0" to, to enter; procs_count of them */
    size_t procs_count;
    int memory_peak; /* stat files for the gateway; -1: not there */
    int memory_events;
    int cpu_usage;
    bool inner;            /* each guest has a group of its own below the slot's: see settle */
    unsigned made;         /* how often its groups were made; namespaces of earlier ones are of no use */
    uint64_t memory_bytes; /* the limits in force */
    uint32_t pids, cpu_percent;
};

int cordon_cgroup_slot_make(struct cordon_cgroup_root *root, unsigned index, struct cordon_cgroup_slot *ret,
                            struct cordon_error *err);
int cordon_cgroup_slot_limit(struct cordon_cgroup_slot *slot, uint64_t memory_bytes, uint32_t pids,
                             uint32_t cpu_percent, struct cordon_error *err);
/* Once the slot's namespaces are made, and nobody is inside: where a peak can't be reset, makes a group for the guest
 * below the slot's, whose descriptors `procs` and the statistics then are. */
void cordon_cgroup_slot_settle(struct cordon_cgroup_slot *slot);
/* Before its namespaces are made again: their maker enters the slot's own group, and only there. */
int cordon_cgroup_slot_unsettle(struct cordon_cgroup_slot *slot, struct cordon_error *err);
/* Between guests: resets the peak. Where the kernel can't the guest's own group is made anew; where the last guest left
 * much charged (files in the cache), all are; so the slot's descriptors may be others afterwards. Takes no time that
 * depends on what the guest did. False: processes are still inside. */
bool cordon_cgroup_slot_recycle(struct cordon_cgroup_slot *slot);
void cordon_cgroup_slot_remove(struct cordon_cgroup_slot *slot);
/*
 * Freezing, for kept guests. A freezer is the slot's own group on v2, else a group of its own, in the v2 hierarchy
 * (which freezes without any controller) or v1's: then the code has to join that one, too.
 */
bool cordon_cgroup_has_freezer(const struct cordon_cgroup_root *root);
struct cordon_cgroup_freezer {
    struct cordon_cgroup_root *root; /* NULL: none */
    unsigned index;
    int procs; /* as those of the slot, to be entered besides; -1: none */
    int group; /* directory */
};
#define CORDON_CGROUP_FREEZER_NONE ((struct cordon_cgroup_freezer){NULL, 0, -1, -1})
int cordon_cgroup_freezer_make(const struct cordon_cgroup_slot *slot, struct cordon_cgroup_freezer *ret,
                               struct cordon_error *err);
int cordon_cgroup_freezer_set(const struct cordon_cgroup_freezer *freezer, bool frozen); /* 0 or negative errno */
int cordon_cgroup_freezer_frozen(const struct cordon_cgroup_freezer *freezer); /* 1: all that is in it stands still */
void cordon_cgroup_freezer_done(struct cordon_cgroup_freezer *freezer);        /* thaws, forgets, removes its group */

/* Files of a slot for reading: what its memory is now, its parts, how many processes. -1: not there. */
enum cordon_cgroup_file { CORDON_CGROUP_MEMORY_NOW, CORDON_CGROUP_MEMORY_STAT, CORDON_CGROUP_PIDS_NOW };
int cordon_cgroup_slot_open(const struct cordon_cgroup_slot *slot, enum cordon_cgroup_file file);
/* Of a memory.stat: what is file cache and could be dropped. */
uint64_t cordon_cgroup_read_cache(int fd);

/* Reads "oom_kill N" of a memory_events fd, and the usage in microseconds of a cpu_usage fd, and a peak; 0 where
 * unreadable. */
uint64_t cordon_cgroup_read_oom_kills(int fd);
uint64_t cordon_cgroup_read_cpu_us(int fd);
uint64_t cordon_cgroup_read_number(int fd);

#endif
