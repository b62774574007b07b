/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/names.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define FILE_MAX (1u << 20)

static const char *const files[CORDON_NAMES] = {"resolv.conf", "hosts", "nsswitch.conf"};

void cordon_names_read(struct cordon_names *names)
{
    *names = (struct cordon_names){0};
    if (geteuid() != 0)
        return;
    cordon_autoclose int folder = open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; folder >= 0 && i < CORDON_NAMES; i++) {
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

int cordon_names_put(const struct cordon_names *names, const struct cordon_state *state, struct cordon_error *err)
{
    bool any = false;
    for (size_t i = 0; i < CORDON_NAMES; i++)
        any = any || names->texts[i];
    if (!any)
        return 0;
    if (mkdirat(state->fd, "etc", 0700) < 0 && errno != EEXIST)
        return cordon_fail_errno(err, -errno, "state folder %s: making etc", state->path);
    cordon_autoclose int folder = openat(state->fd, "etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (folder < 0)
        return cordon_fail_errno(err, -errno, "state folder %s: etc", state->path);
    for (size_t i = 0; i < CORDON_NAMES; i++) {
        int r = names->texts[i] ? put(folder, files[i], names->texts[i], names->sizes[i]) : 0;
        if (r < 0)
            return cordon_fail_errno(err, r, "state folder %s: etc/%s", state->path, files[i]);
    }
    return 0;
}

void cordon_names_done(struct cordon_names *names)
{
    for (size_t i = 0; i < CORDON_NAMES; i++)
        free(CORDON_TAKE(names->texts[i]));
}
