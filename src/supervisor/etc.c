/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/etc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define FILE_MAX (1u << 20)

static const char *const files[CORDON_ETC_FILES] = {"resolv.conf", "hosts", "nsswitch.conf"};

void cordon_etc_read(struct cordon_etc *names)
{
    *names = (struct cordon_etc){0};
    if (geteuid() != 0)
        return;
    cordon_autoclose int folder = open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; folder >= 0 && i < CORDON_ETC_FILES; i++) {
        char *text = malloc(FILE_MAX);
        ssize_t size = text ? cordon_read_file(folder, files[i], text, FILE_MAX) : -ENOMEM;
        if (size < 0 || size >= (ssize_t)FILE_MAX - 1) {
            free(text);
            continue;
        }
        names->texts[i] = text;
        names->sizes[i] = (size_t)size;
    }
}

static int put(int folder, const char *name, const char *text, size_t size)
{
    (void)unlinkat(folder, name, 0); /* of the last start */
    cordon_autoclose int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 ? -errno : cordon_write_full(fd, text, size);
}

int cordon_etc_put(const struct cordon_etc *names, const struct cordon_state *state, struct cordon_error *err)
{
    bool any = false;
    for (size_t i = 0; i < CORDON_ETC_FILES; i++)
        any = any || names->texts[i];
    if (!any)
        return 0;
    if (mkdirat(state->fd, "etc", 0700) < 0 && errno != EEXIST)
        return cordon_fail_errno(err, -errno, "state folder %s: making etc", state->path);
    cordon_autoclose int folder = openat(state->fd, "etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (folder < 0)
        return cordon_fail_errno(err, -errno, "state folder %s: etc", state->path);
    for (size_t i = 0; i < CORDON_ETC_FILES; i++) {
        int r = names->texts[i] ? put(folder, files[i], names->texts[i], names->sizes[i]) : 0;
        if (r < 0)
            return cordon_fail_errno(err, r, "state folder %s: etc/%s", state->path, files[i]);
    }
    return 0;
}

void cordon_etc_done(struct cordon_etc *names)
{
    for (size_t i = 0; i < CORDON_ETC_FILES; i++)
        free(CORDON_TAKE(names->texts[i]));
}
