/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that a guest named, written into the user's folder. The name is hostile. Each folder on the way is opened by
 * itself, relative to the one before and without following links; the content goes into a new file that then takes the
 * name's place, so that neither a link nor another name of an existing file is ever written through.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "cli/run_show.h"

static bool part_ok(const char *part, size_t size)
{
    bool dots = (size == 1 && part[0] == '.') || (size == 2 && part[0] == '.' && part[1] == '.');
    return size > 0 && size <= 255 && !dots;
}

/* The whole of it is checked before a folder is made. */
static bool name_ok(const char *name)
{
    for (;;) {
        size_t size = strcspn(name, "/");
        if (!part_ok(name, size))
            return false;
        if (!name[size])
            return true;
        name += size + 1;
    }
}

/* Opens the folder that is to hold the name's last part; *ret_last points to that. */
static int open_parent(int folder, const char *name, const char **ret_last)
{
    cordon_autoclose int at = fcntl(folder, F_DUPFD_CLOEXEC, 0);
    while (at >= 0) {
        char part[256];
        size_t size = strcspn(name, "/");
        if (!name[size]) {
            *ret_last = name;
            return CORDON_TAKE_FD(at);
        }
        (void)snprintf(part, sizeof part, "%.*s", (int)size, name); /* name_ok: fits */
        if (mkdirat(at, part, 0755) < 0 && errno != EEXIST)
            return -errno;
        int next = openat(at, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int r = next < 0 ? -errno : 0;
        cordon_close(&at);
        if (r < 0)
            return r;
        at = next;
        name += size + 1;
    }
    return -errno;
}

static int write_new(int parent, const char *last, const void *data, size_t size)
{
    char fresh[64];
    struct stat found;
    if (fstatat(parent, last, &found, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(found.st_mode))
        return -EEXIST;
    (void)snprintf(fresh, sizeof fresh, ".cordon-%ld.part", (long)getpid()); /* fits */
    cordon_autoclose int fd = openat(parent, fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return -errno;
    int r = cordon_write_full(fd, data, size);
    if (r == 0 && renameat(parent, fresh, parent, last) < 0)
        r = -errno;
    if (r < 0)
        (void)unlinkat(parent, fresh, 0); /* the first error is told */
    return r;
}

int cordon_artifact_write(int folder, const char *name, const void *data, size_t size, struct cordon_error *err)
{
    const char *last = NULL;
    cordon_autoclose int parent = name_ok(name) ? open_parent(folder, name, &last) : -EINVAL;
    int r = parent < 0 ? parent : write_new(parent, last, data, size);
    if (r == -EINVAL)
        return cordon_fail(err, r, CORDON_ERROR_INVALID, "not a plain relative name");
    if (r == -EEXIST || r == -ELOOP || r == -ENOTDIR)
        return cordon_fail(err, r, CORDON_ERROR_CONFLICT, "something that is no plain file or folder has its name");
    return r < 0 ? cordon_fail(err, r, CORDON_ERROR_INFRASTRUCTURE, "%s", strerror(-r)) : 0;
}
