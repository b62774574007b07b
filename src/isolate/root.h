/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File trees. The template's root tree is made once, by root, in a mount namespace of its own, and is read-only:
 * guests share it. A guest adds one private tmpfs and a proc of its own, which its process 1 mounts.
 */
#ifndef CORDON_ISOLATE_ROOT_H
#define CORDON_ISOLATE_ROOT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

#define CORDON_ROOT_OWN "/run/cordon"         /* the drivers and the zygote's code in the template */
#define CORDON_ROOT_GUEST "/run/cordon-guest" /* a guest's tmpfs: only the agent may enter it */
#define CORDON_ROOT_HOME "/home/user"
/* Where Node finds packages for all: a template's own, then those of Debian. (python/driver.py has it, too.) */
#define CORDON_ROOT_NODE_PATH CORDON_ROOT_NODE_OWN ":" CORDON_ROOT_NODE_DEBIAN
#define CORDON_ROOT_NODE_OWN "/usr/local/lib/node_modules"
#define CORDON_ROOT_NODE_DEBIAN "/usr/share/nodejs"
#define CORDON_ROOT_ROOT_HOME "/root" /* of the root of a kept guest */

/* Ids that every guest has. */
#define CORDON_CODE_UID 1000u
#define CORDON_AGENT_UID 65533u

struct cordon_root_file { /* goes to CORDON_ROOT_OWN, readable by all */
    const char *name;
    const void *data;
    size_t size;
};

/* Can guests of a template start this interpreter of the host, `path` as it is set? The tree has /usr and its like, and
 * the interpreter's own prefix; what a guest mounts or keeps for root hides some. Negative errno with a sentence that
 * names the interpreter in `why` when not. Links are followed. One that is not there at all counts as seen. */
int cordon_root_sees(const char *path, char *why, size_t size);

struct cordon_root_spec {
    const struct cordon_root_file *files;
    size_t file_count;
    const char *const *folders; /* NULL-terminated: folders of the host at the same place (interpreters outside /usr) */
    bool rootless;              /* in a user namespace: devices and proc can only be bound, not made */
    bool host_network;          /* names are resolved as the host does */
    int tree;                   /* of cordon_root_mount_tree; not looked at while tree_kind is NONE */
    enum cordon_root_tree {
        CORDON_ROOT_TREE_NONE = 0,
        CORDON_ROOT_TREE_LAYER, /* what it has below /usr/local, and below folders, lies over the host's */
        CORDON_ROOT_TREE_WHOLE  /* its programs instead of the host's */
    } tree_kind;
};

/* Gives the calling process (single-threaded; CAP_SYS_ADMIN) a mount namespace of its own with the template's tree as
 * its root. Nothing of the host's tree stays reachable. The tree is left writable. With a tree, cordon_root_mount_tree
 * was called before and has made the namespace. */
int cordon_root_enter(const struct cordon_root_spec *spec, struct cordon_error *err);
/* A mount namespace with an empty tmpfs in it, which belongs to owner: its descriptor, or negative errno. Nobody else
 * is there yet: who fills it does so behind this descriptor. Only rootless and folders of spec are looked at. */
int cordon_root_mount_tree(const struct cordon_root_spec *spec, uint64_t bytes, uint64_t inodes, uid_t owner,
                           struct cordon_error *err);
/* Another mount namespace with the same tree, read-only, and a hostname: what guests are cloned from. */
int cordon_root_seal(struct cordon_error *err);

struct cordon_root_guest {
    uid_t code_uid, agent_uid; /* in the guest's user namespace; all of the caller's gids are like its uids */
    uint64_t disk_bytes, disk_inodes;
    bool kept;       /* it has a home of its root, and terminals */
    bool root_there; /* the guest's user namespace has an id 0 */
    /* Creates the files of CORDON_ROOT_GUEST that tell of memory and CPUs: meminfo, cpuinfo, stat, loadavg. */
    void (*tell)(const void *data);
    const void *data;
};

/* A guest's mounts, by its process 1, with capabilities in its user namespace; ends with the agent's ids. Makes system
 * calls only, since it runs in a clone that shares its maker's memory. Negative errno and *stage on failure. */
int cordon_root_guest_mount(const struct cordon_root_guest *guest, const char **stage);

#endif
