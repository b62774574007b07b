/* SPDX-License-Identifier: Apache-2.0 */
/* One record of fixed size in one file. What is not certain (a try that failed or was too slow) is not kept: it would
 * be believed until the next boot. A file that can't be read or written is as if there were none. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "vmm/accel_try.h"

#define VERSION 1u /* of the record and of what examine() tries */

struct record {
    uint32_t version, size;
    char boot[40];
    uint64_t device, inode, changed_s, changed_ns; /* of the device's node */
    struct cordon_accel found;
};

/* What must be the same for a record to count. False: not to be known here. */
static bool identify(int device, struct record *ret)
{
    struct stat node;
    *ret = (struct record){.version = VERSION, .size = sizeof *ret};
    if (cordon_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", ret->boot, sizeof ret->boot) <= 0 ||
        fstat(device, &node) < 0)
        return false;
    ret->device = node.st_dev;
    ret->inode = node.st_ino;
    ret->changed_s = (uint64_t)node.st_ctim.tv_sec;
    ret->changed_ns = (uint64_t)node.st_ctim.tv_nsec;
    return true;
}

static bool same(const struct record *a, const struct record *b)
{
    return a->version == b->version && a->size == b->size && memcmp(a->boot, b->boot, sizeof a->boot) == 0 &&
           a->device == b->device && a->inode == b->inode && a->changed_s == b->changed_s &&
           a->changed_ns == b->changed_ns;
}

static bool certain(const struct cordon_accel *found)
{
    return found->state == CORDON_ACCEL_GOOD || found->state == CORDON_ACCEL_EMULATED;
}

static bool terminated(const struct cordon_accel *found)
{
    return memchr(found->name, 0, sizeof found->name) && memchr(found->device, 0, sizeof found->device) &&
           memchr(found->reason, 0, sizeof found->reason) && memchr(found->fix, 0, sizeof found->fix);
}

bool cordon_accel_recall(const char *file, int device, struct cordon_accel *ret)
{
    struct record now, kept;
    struct stat meta;
    cordon_autoclose int fd = open(file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &meta) < 0 || !S_ISREG(meta.st_mode) || meta.st_uid != geteuid() || (meta.st_mode & 022))
        return false;
    if (!identify(device, &now) || cordon_read_full(fd, &kept, sizeof kept) < 0 || !same(&kept, &now))
        return false;
    const struct cordon_accel *found = &kept.found;
    if (!terminated(found) || !certain(found) || strcmp(found->name, ret->name) || strcmp(found->device, ret->device))
        return false;
    *ret = *found;
    ret->usable = found->state == CORDON_ACCEL_GOOD;
    ret->cached = true;
    return true;
}

void cordon_accel_keep(const char *file, int device, const struct cordon_accel *found)
{
    struct record record;
    char draft[300];
    if (!certain(found) || !identify(device, &record))
        return;
    record.found = *found;
    (void)snprintf(draft, sizeof draft, "%.255s.%d", file, (int)getpid()); /* fits */
    if (geteuid() == 0)
        (void)mkdir("/run/cordon", 0755); /* if it isn't there, the next call says so */
    (void)unlink(draft);                  /* of a process that had this number and died */
    cordon_autoclose int fd = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    if (cordon_write_full(fd, &record, sizeof record) < 0 || rename(draft, file) < 0)
        (void)unlink(draft); /* nothing is kept then */
}
