/* SPDX-License-Identifier: Apache-2.0 */
#include "core/authority_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define FOLDER "egress"
#define SIZE_MAX_BYTES (64 << 10)

static bool is_key(const char *name)
{
    return strcmp(name, CORDON_AUTHORITY_KEY) == 0;
}

/* The state folder is the gateway's: whatever lies in it that is not ours, or that others may write, is a trap. */
static bool is_ours(const struct stat *st, mode_t forbidden)
{
    return st->st_uid == geteuid() && !(st->st_mode & forbidden);
}

static int distrust(const char *state, const char *name, struct cordon_error *err)
{
    return cordon_fail(err, -EPERM, CORDON_ERROR_INFRASTRUCTURE,
                       "%.300s/" FOLDER "/%s must belong to who starts the daemon, and nobody else may write it (nor "
                       "read the key): put that right, or remove the folder to have a new authority made",
                       state, name);
}

/* The folder's descriptor, or negative. */
static int open_folder(const char *state, const char *name, struct cordon_error *err)
{
    struct stat st;
    cordon_autoclose int above = open(state, O_PATH | O_DIRECTORY | O_CLOEXEC);
    cordon_autoclose int fd = above < 0 ? -1 : openat(above, FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return -ENOENT;
    if (fd < 0 || fstat(fd, &st) < 0)
        return cordon_fail_errno(err, -errno, "open the folder %.300s/" FOLDER, state);
    if (!is_ours(&st, 022))
        return distrust(state, name, err);
    return CORDON_TAKE_FD(fd);
}

int cordon_authority_file_read(const char *state, const char *name, struct cordon_buf *to, struct cordon_error *err)
{
    struct stat st;
    cordon_autoclose int folder = open_folder(state, name, err);
    if (folder < 0)
        return folder;
    cordon_autoclose int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return -ENOENT;
    if (fd < 0 || fstat(fd, &st) < 0)
        return cordon_fail_errno(err, -errno, "open %.300s/" FOLDER "/%s", state, name);
    if (!S_ISREG(st.st_mode) || st.st_nlink != 1 || !is_ours(&st, is_key(name) ? 077 : 022) ||
        st.st_size > SIZE_MAX_BYTES)
        return distrust(state, name, err);
    char *at = cordon_buf_reserve(to, (size_t)st.st_size);
    int r = at ? cordon_read_full(fd, at, (size_t)st.st_size) : -ENOMEM;
    if (r < 0)
        return cordon_fail_errno(err, r, "read %.300s/" FOLDER "/%s", state, name);
    to->size += (size_t)st.st_size;
    return 0;
}

static int make_folder(const char *state, struct cordon_error *err)
{
    cordon_autoclose int above = open(state, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (above < 0 || (mkdirat(above, FOLDER, 0755) < 0 && errno != EEXIST))
        return cordon_fail_errno(err, -errno, "make the folder %.300s/" FOLDER, state);
    return 0;
}

int cordon_authority_file_write(const char *state, const char *name, const void *data, size_t size,
                                struct cordon_error *err)
{
    char fresh[64];
    int r = make_folder(state, err);
    cordon_autoclose int folder = r < 0 ? -1 : open_folder(state, name, err);
    if (r < 0 || folder < 0)
        return r < 0 ? r : folder;
    (void)snprintf(fresh, sizeof fresh, ".%s.new", name);
    (void)unlinkat(folder, fresh, 0); /* of a write that was cut short */
    cordon_autoclose int fd =
        openat(folder, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, is_key(name) ? 0600 : 0644);
    r = fd < 0 ? -errno : cordon_write_full(fd, data, size);
    if (r == 0 && (fchmod(fd, is_key(name) ? 0600 : 0644) < 0 || fsync(fd) < 0 ||
                   renameat(folder, fresh, folder, name) < 0 || fsync(folder) < 0))
        r = -errno;
    return r < 0 ? cordon_fail_errno(err, r, "write %.300s/" FOLDER "/%s", state, name) : 0;
}
