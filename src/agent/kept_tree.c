/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole trees: list, remove, move. They may be as deep and as wide as the guest's inodes let them be, and change while
 * they are walked. So nothing recurses, no link is followed, and removing holds one open directory at a time, going
 * up by "..", as deep as names fit the memory.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/kept_worker.h"
#include "base/fd.h"

#define DEPTH_MAX 64
#define ENTRIES_MOST 1000000u
#define ENTRIES_USUAL 10000u

/* --- list --- */

struct listing {
    struct cordon_work *work;
    uint32_t left;
    char path[CORDON_KEPT_PATH_MAX];
};

static int say_below(struct listing *list, int dir, const char *name, const struct stat *st)
{
    char link[CORDON_KEPT_PATH_MAX];
    ssize_t n = S_ISLNK(st->st_mode) ? readlinkat(dir, name, link, sizeof link - 1) : -1;
    if (n >= 0)
        link[n] = '\0';
    struct cordon_buf fields = CORDON_BUF_INIT(CORDON_FRAME_DATA_MAX);
    cordon_work_entry(&fields, list->path, st, n >= 0 ? link : NULL);
    if (!fields.failed)
        cordon_work_say(list->work, CORDON_FRAME_ENTRY, fields.data, (uint32_t)fields.size);
    int r = fields.failed ? -ENOMEM : 0;
    cordon_buf_done(&fields);
    return r;
}

struct level {
    DIR *dir;
    size_t path_size; /* of list->path, without the entry's name */
};

/* 1: go into it (pushed), 0: go on, negative errno. */
static int take_entry(struct listing *list, const struct level *level, const char *name, bool deeper, DIR **into)
{
    struct stat st;
    int room = (int)(sizeof list->path - level->path_size);
    if (snprintf(list->path + level->path_size, (size_t)room, "%s%s",
                 level->path_size && list->path[level->path_size - 1] == '/' ? "" : "/", name) >= room)
        return 0; /* a path that nobody could name */
    if (fstatat(dirfd(level->dir), name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0; /* gone meanwhile */
    if (list->left == 0)
        return -E2BIG;
    list->left--;
    int r = say_below(list, dirfd(level->dir), name, &st);
    if (r < 0 || !deeper || !S_ISDIR(st.st_mode))
        return r;
    cordon_autoclose int fd = openat(dirfd(level->dir), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    *into = fd < 0 ? NULL : fdopendir(fd);
    if (!*into)
        return 0;             /* not ours to read */
    (void)CORDON_TAKE_FD(fd); /* the stream's */
    return 1;
}

static int walk(struct listing *list, DIR *top, uint32_t depth)
{
    struct level levels[DEPTH_MAX] = {{.dir = top, .path_size = strlen(list->path)}};
    int at = 0, r = 0;
    while (at >= 0) {
        struct dirent *entry = r < 0 ? NULL : readdir(levels[at].dir);
        if (!entry) {
            (void)closedir(levels[at--].dir); /* only read from */
            continue;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        DIR *into = NULL;
        r = take_entry(list, &levels[at], entry->d_name, (uint32_t)at + 1 < depth, &into);
        if (r == 1)
            levels[++at] = (struct level){.dir = into, .path_size = strlen(list->path)};
    }
    return r < 0 ? r : 0;
}

int cordon_work_list(struct cordon_work *work)
{
    static struct listing list;
    uint32_t depth = work->open.depth ? work->open.depth : 1;
    uint32_t most = work->open.entries ? work->open.entries : ENTRIES_USUAL;
    DIR *dir = opendir(work->path); /* the named one itself may be a link */
    if (!dir)
        return -errno;
    list.work = work;
    list.left = most < ENTRIES_MOST ? most : ENTRIES_MOST;
    (void)snprintf(list.path, sizeof list.path, "%s", work->path); /* of one size */
    int r = walk(&list, dir, depth < DEPTH_MAX ? depth : DEPTH_MAX);
    if (r == 0)
        cordon_work_say(work, CORDON_FRAME_DONE, NULL, 0);
    return r;
}

/* --- remove --- */

/* Names of the directories that we are in, one behind the other, each with its NUL. */
struct trail {
    char *names;
    size_t size, capacity;
};

static int push(struct trail *trail, const char *name)
{
    size_t size = strlen(name) + 1;
    if (trail->size + size > trail->capacity) {
        size_t capacity = trail->capacity ? 2 * trail->capacity : 4096;
        char *bigger = realloc(trail->names, capacity);
        if (!bigger)
            return -ENOMEM;
        trail->names = bigger;
        trail->capacity = capacity;
    }
    memcpy(trail->names + trail->size, name, size);
    trail->size += size;
    return 0;
}

static const char *pop(struct trail *trail)
{
    size_t at = trail->size - 1;
    while (at && trail->names[at - 1])
        at--;
    trail->size = at;
    return trail->names + at;
}

/* Removes what it can of the directory at fd; *into gets the name of a directory in it that is not empty. */
static int sweep(int fd, char into[256])
{
    int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    int r = dir ? 0 : -errno;
    *into = '\0';
    for (struct dirent *entry; dir && (entry = readdir(dir)) && !*into;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (unlinkat(fd, entry->d_name, 0) == 0 || errno == ENOENT)
            continue;
        if (errno != EISDIR && errno != EPERM) {
            r = -errno;
            break;
        }
        if (unlinkat(fd, entry->d_name, AT_REMOVEDIR) == 0 || errno == ENOENT)
            continue;
        if (errno != ENOTEMPTY && errno != EEXIST) {
            r = -errno;
            break;
        }
        (void)snprintf(into, 256, "%s", entry->d_name); /* a name is no longer */
    }
    if (dir)
        (void)closedir(dir); /* only read from */
    return r;
}

static int remove_below(int *fd)
{
    struct trail trail = {0};
    char into[256];
    int r;
    while ((r = sweep(*fd, into)) == 0) {
        if (!*into && trail.size == 0)
            break;
        const char *step = *into ? into : "..";
        int next = openat(*fd, step, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0) {
            r = -errno;
            break;
        }
        cordon_close(fd);
        *fd = next;
        if (*into)
            r = push(&trail, into);
        else if (unlinkat(*fd, pop(&trail), AT_REMOVEDIR) < 0 && errno != ENOENT && errno != ENOTEMPTY)
            r = -errno; /* filled again meanwhile: the next sweep sees it */
        if (r < 0)
            break;
    }
    free(trail.names);
    return r;
}

int cordon_work_remove(struct cordon_work *work)
{
    int r = unlink(work->path) == 0 || errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
    if (r == -EISDIR || r == -EPERM) {
        cordon_autoclose int fd = open(work->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        r = fd < 0 ? -errno : remove_below(&fd);
        if (r == 0 && rmdir(work->path) < 0 && errno != ENOENT)
            r = -errno;
    }
    if (r == 0)
        cordon_work_say(work, CORDON_FRAME_DONE, NULL, 0);
    return r;
}

/* --- move --- */

/* The guest's folders are binds of one file system, and the kernel moves nothing between binds. */
static int move_by_copy(const char *from, const char *to)
{
    char name[] = "mv", force[] = "-fT", end[] = "--", path[] = "PATH=/usr/bin:/bin";
    char *argv[] = {name, force, end, (char *)(uintptr_t)from, (char *)(uintptr_t)to, NULL}, *env[] = {path, NULL};
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0) {
        (void)execve("/bin/mv", argv, env);
        _exit(127);
    }
    int status = -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    return status == 0 ? 0 : status == 127 << 8 ? -EXDEV : -EIO;
}

int cordon_work_move(struct cordon_work *work)
{
    struct stat st;
    if (lstat(work->path, &st) < 0)
        return -errno;
    int r = cordon_work_make_parents(work->target);
    if (r == 0 && rename(work->path, work->target) < 0)
        r = errno == EXDEV ? move_by_copy(work->path, work->target) : -errno;
    if (r == 0)
        r = cordon_work_say_entry(work, work->target);
    if (r == 0)
        cordon_work_say(work, CORDON_FRAME_DONE, NULL, 0);
    return r;
}
