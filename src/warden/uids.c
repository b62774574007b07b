/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranges of uids. Wardens of one host (daemons, single runs) must never use one range at the same time, or a guest of
 * one has the kernel's identity of another's. Each range that is in use is locked: its bytes in a file that is always
 * empty, by its number, so that ranges of wardens with different settings are told apart as well. The locks belong to
 * one open file of the warden and end with it. Only root can open the file, so nobody else can hold a lock.
 */
#include "warden/warden.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"

#define FOLDER "/run/cordon"
#define LOCKS FOLDER "/uids"
#define LAST_ID UINT64_C(4294967294) /* the one behind it means "none" */

static int open_locks(void)
{
    struct stat found;
    if (mkdir(FOLDER, 0755) < 0 && errno != EEXIST)
        return -errno;
    cordon_autoclose int fd = open(LOCKS, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0 || fstat(fd, &found) < 0)
        return -errno;
    if (!S_ISREG(found.st_mode) || found.st_uid != geteuid() || (found.st_mode & 077))
        return -EPERM; /* others could hold locks there */
    return CORDON_TAKE_FD(fd);
}

/* 1: ours now; 0: somebody else's. */
static int lock_range(int fd, uint64_t first)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)first, .l_len = CORDON_UID_RANGE};
    if (fcntl(fd, F_OFD_SETLK, &range) == 0)
        return 1;
    return errno == EAGAIN || errno == EACCES ? 0 : -errno;
}

int cordon_uids_take(struct cordon_warden *warden, uid_t *ret, struct cordon_error *err)
{
    for (uint64_t first = warden->uids_next; first + CORDON_UID_RANGE - 1 <= LAST_ID; first += CORDON_UID_RANGE) {
        int r = warden->uids < 0 ? 1 : lock_range(warden->uids, first);
        if (r < 0)
            return cordon_fail_errno(err, r, "lock the uids from %llu in " LOCKS, (unsigned long long)first);
        if (r == 0)
            continue;
        warden->uids_next = first + CORDON_UID_RANGE;
        *ret = (uid_t)first;
        return 0;
    }
    return cordon_fail(err, -EAGAIN, CORDON_ERROR_UNAVAILABLE,
                       "all uids from %u on are in use by guests of this host; CORDON_UID_BASE may be lower",
                       warden->config.uid_base);
}

int cordon_uids_open(struct cordon_warden *warden, struct cordon_error *err)
{
    uid_t first;
    warden->uids_next = warden->config.uid_base;
    warden->uids = open_locks();
    if (warden->uids < 0)
        cordon_log(CORDON_LOG_WARN, "uids can not be locked: guests of other daemons on this host may share them",
                   "file", LOCKS, "error", strerror(-warden->uids), NULL);
    int r = cordon_uids_take(warden, &first, err);
    if (r == 0)
        warden->config.zygote_uid = first + 1;
    return r;
}
