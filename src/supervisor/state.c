/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "core/state_path.h"
#include "core/template_file.h"
#include "isolate/drop.h"
#include "isolate/outer.h"

#define GATEWAY_UID_OFFSET 3 /* from uid_base, when there is no user of the configured name */

static void find_user(const struct cordon_settings *settings, struct cordon_state *state)
{
    state->spare = (uid_t)cordon_settings_int(settings, CORDON_DOOR_NATIVE, CORDON_SET_UID_BASE) + GATEWAY_UID_OFFSET;
    state->uid = geteuid();
    state->gid = getegid();
    if (state->uid != 0)
        return;
    const struct passwd *user = getpwnam(cordon_settings_string(settings, CORDON_DOOR_NATIVE, CORDON_SET_USER));
    uid_t uid = user ? user->pw_uid : state->spare;
    gid_t gid = user ? user->pw_gid : (gid_t)state->spare;
    /* Root of a user namespace (unshare --map-root-user, a container) may have no other ids: then it stays itself. */
    if (!cordon_outer_has_ids(uid, 1) || !cordon_outer_has_ids(gid, 1))
        return;
    state->uid = uid;
    state->gid = gid;
}

int cordon_state_locate(const struct cordon_settings *settings, struct cordon_state *ret, struct cordon_error *err)
{
    ret->fd = -1;
    find_user(settings, ret);
    return cordon_state_path(settings, ret->path, sizeof ret->path, err);
}

/* mkdir -p; only the last folder matters, which open_folder checks. */
static int make_folders(const char *path, struct cordon_error *err)
{
    char part[sizeof((struct cordon_state *)0)->path];
    (void)snprintf(part, sizeof part, "%s", path); /* same size */
    for (char *slash = part + 1;; slash++) {
        slash += strcspn(slash, "/");
        char kept = *slash;
        *slash = '\0';
        if (mkdir(part, 0700) < 0 && errno != EEXIST && errno != EISDIR)
            return cordon_fail_errno(err, -errno, "state folder %s: making %s", path, part);
        if (!kept)
            return 0;
        *slash = kept;
    }
}

/* May a folder of root's be given to the gateway's user? Only a fresh one or one that was a state folder before. */
static bool is_empty_or_ours(int fd)
{
    DIR *dir = cordon_opendir(fd);
    if (!dir)
        return false;
    bool ours = false, other = false;
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        bool dots = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
        ours = ours || strcmp(entry->d_name, "cordon.db") == 0;
        other = other || !dots;
    }
    (void)closedir(dir); /* read only */
    return ours || !other;
}

/* A state folder that was root's, given to the gateway's user together with what is in it. Links are not followed. */
static int hand_over(struct cordon_state *state)
{
    DIR *dir = cordon_opendir(state->fd);
    if (!dir)
        return -errno;
    int r = 0;
    for (struct dirent *entry = readdir(dir); entry && r == 0; entry = readdir(dir)) {
        bool dots = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
        if (strcmp(entry->d_name, &CORDON_TEMPLATES_FOLDER[1]) == 0)
            continue; /* stays root's: the gateway only reads it */
        if (!dots && fchownat(state->fd, entry->d_name, state->uid, state->gid, AT_SYMLINK_NOFOLLOW) < 0)
            r = -errno;
    }
    (void)closedir(dir); /* read only */
    if (r == 0 && fchown(state->fd, state->uid, state->gid) < 0)
        r = -errno;
    return r;
}

static int check_folder(struct cordon_state *state, struct cordon_error *err)
{
    struct stat found;
    if (fstat(state->fd, &found) < 0)
        return cordon_fail_errno(err, -errno, "state folder %s", state->path);
    if (found.st_mode & 077)
        return cordon_fail(err, -EPERM, CORDON_ERROR_INVALID,
                           "state folder %s has mode %04o, but it holds keys: chmod 0700 it, or give another one",
                           state->path, found.st_mode & 07777u);
    if (found.st_uid == state->uid)
        return 0;
    bool handed = found.st_uid == 0 || found.st_uid == state->spare; /* the user may have been added since */
    if (geteuid() != 0 || !handed || !is_empty_or_ours(state->fd))
        return cordon_fail(
            err, -EPERM, CORDON_ERROR_INVALID,
            "state folder %s belongs to uid %u and is in use by something else; it must belong to uid %u: "
            "give another one",
            state->path, (unsigned)found.st_uid, (unsigned)state->uid);
    int r = hand_over(state);
    return r < 0 ? cordon_fail_errno(err, r, "state folder %s: giving it to uid %u", state->path, (unsigned)state->uid)
                 : 0;
}

int cordon_state_open(const struct cordon_settings *settings, struct cordon_state *ret, struct cordon_error *err)
{
    int r = cordon_state_locate(settings, ret, err);
    if (r == 0)
        r = make_folders(ret->path, err);
    if (r < 0)
        return r;
    ret->fd = open(ret->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (ret->fd < 0)
        return cordon_fail_errno(err, -errno, "state folder %s", ret->path);
    r = check_folder(ret, err);
    if (r < 0)
        cordon_state_close(ret);
    return r;
}

void cordon_state_close(struct cordon_state *state)
{
    cordon_close(&state->fd);
}

int cordon_state_confine(struct cordon_state *state, const char **store_path, struct cordon_error *err)
{
    *store_path = state->path;
    if (geteuid() == 0) {
        if (fchdir(state->fd) < 0 || chroot(".") < 0 || chdir("/") < 0)
            return cordon_fail_errno(err, -errno, "making state folder %s the root of an unprivileged process",
                                     state->path);
        *store_path = "/";
    }
    int r = cordon_drop_privileges(state->uid, state->gid);
    return r < 0 ? cordon_fail_errno(err, r, "becoming uid %u", (unsigned)state->uid) : 0;
}

/* An address that stands for all is no place to go. */
void cordon_state_link(const struct cordon_settings *settings, const char *link, struct cordon_buf *to)
{
    const char *listen = cordon_settings_item(settings, CORDON_DOOR_NATIVE, CORDON_SET_LISTEN, 0);
    bool tls = *cordon_settings_string(settings, CORDON_DOOR_NATIVE, CORDON_SET_TLS_CERT);
    const char *port = listen ? strrchr(listen, ':') : NULL;
    bool all = listen && (strncmp(listen, "0.0.0.0:", 8) == 0 || strncmp(listen, "[::]:", 5) == 0);
    (void)cordon_buf_appendf(to, "%s://%s%s/admin/#link=%s", tls ? "https" : "http", /* sticky, seen by the printing */
                             all || !listen ? "localhost" : listen, all && port ? port : "", link);
}
