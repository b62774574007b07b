/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watching a directory, with all below it where that is asked for. Directories that come are watched from then on, and
 * what is in them by then is told as created, so that nothing falls between. A limit of watches ends in LOST, not in
 * silence.
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "agent/kept_worker.h"
#include "base/fd.h"

#define WATCHES 4096
#define DEPTH 64
#define MASK                                                                                                           \
    (IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB | IN_ONLYDIR | IN_EXCL_UNLINK |       \
     IN_DONT_FOLLOW)

struct watching {
    struct cordon_work *work;
    int inotify;
    size_t root; /* length of the watched path, with its slash */
    struct {
        int number;
        char *path;
    } list[WATCHES];
    size_t count;
    bool gone; /* the watched directory itself */
};

static void say_change(const struct watching *watching, enum cordon_change change, const char *path)
{
    struct cordon_buf fields = CORDON_BUF_INIT(CORDON_FRAME_DATA_MAX);
    struct stat st;
    const char *name = path ? path + watching->root : "";
    (void)cordon_field_put_u32(&fields, CORDON_FIELD_CHANGE, change);                   /* failures stick … */
    (void)cordon_field_put(&fields, CORDON_FIELD_REASON, name, (uint32_t)strlen(name)); /* … in fields.failed */
    if (path && lstat(path, &st) == 0)
        cordon_work_entry(&fields, path, &st, NULL);
    if (!fields.failed)
        cordon_work_say(watching->work, CORDON_FRAME_CHANGE, fields.data, (uint32_t)fields.size);
    cordon_buf_done(&fields);
}

static int add(struct watching *watching, const char *path, bool top)
{
    size_t i = 0;
    if (watching->count == WATCHES)
        return -ENOSPC;
    int number = inotify_add_watch(watching->inotify, path, top ? MASK & ~(uint32_t)IN_DONT_FOLLOW : MASK);
    if (number < 0)
        return -errno;
    while (i < watching->count && watching->list[i].number != number)
        i++;
    char *copy = strdup(path);
    if (!copy)
        return -ENOMEM;
    if (i == watching->count)
        watching->count++;
    else
        free(watching->list[i].path); /* it was moved, and is told by its new name */
    watching->list[i].number = number;
    watching->list[i].path = copy;
    return 0;
}

/* Watches what is below, and tells it where it is new. */
static void add_below(struct watching *watching, const char *path, bool tell, int depth)
{
    DIR *dir = depth < DEPTH ? opendir(path) : NULL;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char below[CORDON_KEPT_PATH_MAX];
        struct stat st;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            snprintf(below, sizeof below, "%s/%s", path, entry->d_name) >= (int)sizeof below || lstat(below, &st) < 0)
            continue;
        if (tell)
            say_change(watching, CORDON_CHANGE_CREATE, below);
        if (!S_ISDIR(st.st_mode))
            continue;
        int r = add(watching, below, false);
        if (r == -ENOSPC || r == -ENOMEM)
            say_change(watching, CORDON_CHANGE_LOST, NULL);
        else if (r == 0)
            add_below(watching, below, tell, depth + 1);
    }
    if (dir)
        (void)closedir(dir); /* only read from */
}

static const char *path_of(const struct watching *watching, int number)
{
    for (size_t i = 0; i < watching->count; i++)
        if (watching->list[i].number == number)
            return watching->list[i].path;
    return NULL;
}

static void forget(struct watching *watching, int number)
{
    for (size_t i = 0; i < watching->count; i++) {
        if (watching->list[i].number != number)
            continue;
        free(watching->list[i].path);
        watching->list[i] = watching->list[--watching->count];
        return;
    }
}

static void take(struct watching *watching, const struct inotify_event *event)
{
    static const struct {
        uint32_t bits;
        enum cordon_change change;
    } rows[] = {
        {IN_CREATE | IN_MOVED_TO, CORDON_CHANGE_CREATE},
        {IN_MODIFY, CORDON_CHANGE_WRITE},
        {IN_DELETE, CORDON_CHANGE_REMOVE},
        {IN_MOVED_FROM, CORDON_CHANGE_RENAME},
        {IN_ATTRIB, CORDON_CHANGE_CHMOD},
    };
    char path[CORDON_KEPT_PATH_MAX];
    if (event->mask & IN_Q_OVERFLOW)
        say_change(watching, CORDON_CHANGE_LOST, NULL);
    if (event->mask & IN_IGNORED) {
        bool top = watching->count && watching->list[0].number == event->wd;
        forget(watching, event->wd);
        watching->gone = watching->gone || top;
    }
    const char *dir = path_of(watching, event->wd);
    if (!dir || event->len == 0 || snprintf(path, sizeof path, "%s/%s", dir, event->name) >= (int)sizeof path)
        return;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (event->mask & rows[i].bits)
            say_change(watching, rows[i].change, path);
    if (!(watching->work->open.flags & CORDON_OPEN_RECURSIVE) || !(event->mask & IN_ISDIR) ||
        !(event->mask & (IN_CREATE | IN_MOVED_TO)))
        return;
    int r = add(watching, path, false);
    if (r == 0)
        add_below(watching, path, true, 0);
    else if (r != -ENOENT && r != -ENOTDIR)
        say_change(watching, CORDON_CHANGE_LOST, NULL);
}

static void read_events(struct watching *watching)
{
    static char data[64 << 10] __attribute__((aligned(__alignof__(struct inotify_event))));
    ssize_t n = read(watching->inotify, data, sizeof data);
    for (ssize_t at = 0; at < n;) {
        const struct inotify_event *event = (const void *)(data + at);
        take(watching, event);
        at += (ssize_t)(sizeof *event + event->len);
    }
}

int cordon_work_watch(struct cordon_work *work)
{
    static struct watching watching;
    watching.work = work;
    watching.root = strlen(work->path) + (strcmp(work->path, "/") != 0);
    watching.inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (watching.inotify < 0)
        return -errno;
    int r = add(&watching, work->path, true);
    if (r < 0)
        return r;
    if (work->open.flags & CORDON_OPEN_RECURSIVE)
        add_below(&watching, work->path, false, 0);
    cordon_work_say(work, CORDON_FRAME_BEGAN, "\0\0\0", 4);
    for (;;) {
        struct pollfd fds[] = {{.fd = watching.inotify, .events = POLLIN}, {.fd = work->fd, .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return -errno;
        if (fds[1].revents)
            _exit(0); /* the host has closed it */
        read_events(&watching);
        if (watching.gone)
            return -ENOENT;
    }
}
