/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file worker of a kept guest. It is the user by ids, control groups and filter before it gets here, so a path can
 * reach nothing that the user could not reach: links are followed as the user's own programs follow them.
 */
#include "agent/kept_worker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agent/files.h"
#include "agent/kept.h"
#include "agent/kept_child.h"
#include "base/fd.h"
#include "isolate/root.h"

#define CHUNK (CORDON_FRAME_DATA_MAX - 1)

void cordon_work_say(const struct cordon_work *work, uint8_t type, const void *payload, uint32_t length)
{
    if (cordon_files_send(work->fd, type, 0, payload, length) < 0)
        _exit(1);
}

/* --- entries --- */

static void put_name(struct cordon_buf *to, uint8_t tag, unsigned id, bool group)
{
    char text[16];
    const char *name = id == 0                 ? "root"
                       : id == CORDON_CODE_UID ? "user"
                       : id == 65534           ? group ? "nogroup" : "nobody"
                                               : NULL;
    if (!name)
        (void)snprintf(text, sizeof text, "%u", id); /* always fits */
    name = name ? name : text;
    (void)cordon_field_put(to, tag, name, (uint32_t)strlen(name)); /* failures stick in to->failed */
}

void cordon_work_entry(struct cordon_buf *to, const char *path, const struct stat *st, const char *link)
{
    uint32_t type = S_ISREG(st->st_mode)   ? CORDON_FILE_REGULAR
                    : S_ISDIR(st->st_mode) ? CORDON_FILE_DIRECTORY
                    : S_ISLNK(st->st_mode) ? CORDON_FILE_LINK
                                           : CORDON_FILE_OTHER;
    int64_t modified = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
    /* Failures stick in to->failed. */
    (void)cordon_field_put(to, CORDON_FIELD_PATH, path, (uint32_t)strlen(path));
    (void)cordon_field_put_u32(to, CORDON_FIELD_TYPE, type);
    (void)cordon_field_put_u64(to, CORDON_FIELD_SIZE, (uint64_t)st->st_size);
    (void)cordon_field_put_u32(to, CORDON_FIELD_MODE, st->st_mode & 07777);
    put_name(to, CORDON_FIELD_OWNER, st->st_uid, false);
    put_name(to, CORDON_FIELD_GROUP, st->st_gid, true);
    (void)cordon_field_put_u64(to, CORDON_FIELD_TIME, (uint64_t)modified);
    if (link)
        (void)cordon_field_put(to, CORDON_FIELD_TARGET, link, (uint32_t)strlen(link));
}

static void say_entry(const struct cordon_work *work, const char *path, const struct stat *st, const char *link)
{
    struct cordon_buf fields = CORDON_BUF_INIT(CORDON_FRAME_DATA_MAX);
    cordon_work_entry(&fields, path, st, link);
    if (!fields.failed)
        cordon_work_say(work, CORDON_FRAME_ENTRY, fields.data, (uint32_t)fields.size);
    cordon_buf_done(&fields);
}

int cordon_work_say_entry(const struct cordon_work *work, const char *path)
{
    struct stat st;
    char link[CORDON_KEPT_PATH_MAX];
    if (lstat(path, &st) < 0)
        return -errno;
    ssize_t n = S_ISLNK(st.st_mode) ? readlink(path, link, sizeof link - 1) : -1;
    if (n >= 0)
        link[n] = '\0';
    say_entry(work, path, &st, n >= 0 ? link : NULL);
    return 0;
}

static int done(const struct cordon_work *work)
{
    cordon_work_say(work, CORDON_FRAME_DONE, NULL, 0);
    return 0;
}

static int entry_and_done(const struct cordon_work *work, const char *path)
{
    int r = cordon_work_say_entry(work, path);
    return r < 0 ? r : done(work);
}

/* --- reading and writing --- */

static int open_regular(const char *path, int flags, unsigned mode, struct stat *st)
{
    cordon_autoclose int fd = open(path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, mode);
    if (fd < 0)
        return -errno;
    if (fstat(fd, st) < 0)
        return -errno;
    if (!S_ISREG(st->st_mode))
        return S_ISDIR(st->st_mode) ? -EISDIR : -EINVAL;
    return CORDON_TAKE_FD(fd);
}

static int do_read(struct cordon_work *work)
{
    static char data[1 + CHUNK];
    struct stat st;
    uint64_t left = work->open.size ? work->open.size : UINT64_MAX;
    cordon_autoclose int fd = open_regular(work->path, O_RDONLY, 0, &st);
    if (fd < 0)
        return fd;
    if (work->open.offset > INT64_MAX || lseek(fd, (off_t)work->open.offset, SEEK_SET) < 0)
        return -EINVAL;
    say_entry(work, work->path, &st, NULL);
    *data = CORDON_OUTPUT_FILE;
    while (left) {
        ssize_t n = read(fd, data + 1, left < CHUNK ? (size_t)left : CHUNK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        left -= (uint64_t)n;
        cordon_work_say(work, CORDON_FRAME_OUTPUT, data, (uint32_t)(1 + n));
    }
    return done(work);
}

/* `u32 length · bytes`, length 0 at the end; the socket's end without it means that the host broke it off. */
static int receive(const struct cordon_work *work, int file)
{
    static char data[CORDON_FRAME_DATA_MAX];
    uint64_t left = work->open.size ? work->open.size : UINT64_MAX;
    for (;;) {
        uint8_t head[4];
        int r = cordon_read_full(work->fd, head, sizeof head);
        uint32_t size = head[0] | (uint32_t)head[1] << 8 | (uint32_t)head[2] << 16 | (uint32_t)head[3] << 24;
        if (r < 0 || size > sizeof data)
            return -ECANCELED;
        if (size == 0)
            return 0;
        if (cordon_read_full(work->fd, data, size) < 0)
            return -ECANCELED;
        if (size > left)
            return -EFBIG;
        left -= size;
        r = cordon_write_full(file, data, size);
        if (r < 0)
            return r;
    }
}

static int do_write(struct cordon_work *work)
{
    struct stat st;
    unsigned mode = work->open.mode ? work->open.mode & 07777 : 0644;
    int r = cordon_work_make_parents(work->path);
    if (r < 0)
        return r;
    bool there = access(work->path, F_OK) == 0;
    /* What stands there is emptied only once it is known to be a regular file. */
    cordon_autoclose int fd = open_regular(work->path, O_WRONLY | O_CREAT, mode, &st);
    if (fd < 0)
        return fd;
    if (ftruncate(fd, 0) < 0 || (work->open.mode && fchmod(fd, mode) < 0))
        return -errno;
    r = cordon_files_send(work->fd, CORDON_FRAME_BEGAN, 0, "\0\0\0", 4); /* it can be written to */
    if (r >= 0)                                                          /* else nobody wants it any more */
        r = receive(work, fd);
    if (r < 0) {
        int undone = there ? ftruncate(fd, 0) : unlink(work->path); /* half a file is worse than none */
        (void)undone;                                               /* what came before is to be told */
        return r;
    }
    return entry_and_done(work, work->path);
}

/* --- the small ones --- */

static int do_stat(struct cordon_work *work)
{
    return entry_and_done(work, work->path);
}

int cordon_work_make_parents(const char *path)
{
    char part[CORDON_KEPT_PATH_MAX];
    (void)snprintf(part, sizeof part, "%s", path); /* its length was checked */
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(part, 0755) < 0 && errno != EEXIST && errno != EROFS && errno != EACCES)
            return -errno; /* the two: it may be there all the same, and if not the next step fails */
        *slash = '/';
    }
    return 0;
}

static int do_mkdir(struct cordon_work *work)
{
    int r = cordon_work_make_parents(work->path);
    if (r == 0 && mkdir(work->path, work->open.mode ? work->open.mode & 07777 : 0755) < 0)
        r = -errno;
    if (r == -EROFS && access(work->path, F_OK) == 0)
        r = -EEXIST;
    return r < 0 ? r : entry_and_done(work, work->path);
}

static int do_disk(struct cordon_work *work)
{
    struct statvfs fs;
    char payload[16];
    if (statvfs(CORDON_ROOT_HOME, &fs) < 0)
        return -errno;
    const uint64_t numbers[2] = {(uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize,
                                 (uint64_t)fs.f_blocks * fs.f_frsize};
    for (int i = 0; i < 16; i++)
        payload[i] = (char)(numbers[i / 8] >> (8 * (i % 8)));
    cordon_work_say(work, CORDON_FRAME_DISK, payload, sizeof payload);
    return done(work);
}

/* --- which one --- */

static int (*const operations[CORDON_OP__COUNT])(struct cordon_work *work) = {
    [CORDON_OP_READ] = do_read,
    [CORDON_OP_WRITE] = do_write,
    [CORDON_OP_STAT] = do_stat,
    [CORDON_OP_LIST] = cordon_work_list,
    [CORDON_OP_MKDIR] = do_mkdir,
    [CORDON_OP_MOVE] = cordon_work_move,
    [CORDON_OP_REMOVE] = cordon_work_remove,
    [CORDON_OP_WATCH] = cordon_work_watch,
    [CORDON_OP_DISK] = do_disk,
};

/* Absolute, without slashes at its end. */
static int take_path(const struct cordon_field *field, const char *home, char to[CORDON_KEPT_PATH_MAX])
{
    if (!field->data || field->length == 0)
        return snprintf(to, CORDON_KEPT_PATH_MAX, "%s", home) < 0 ? -EINVAL : 0;
    if (memchr(field->data, '\0', field->length))
        return -EINVAL;
    bool absolute = *field->data == '/';
    int n = snprintf(to, CORDON_KEPT_PATH_MAX, "%s%s%.*s", absolute ? "" : home, absolute ? "" : "/",
                     (int)field->length, field->data);
    if (n < 0 || (size_t)n >= CORDON_KEPT_PATH_MAX)
        return -ENAMETOOLONG;
    while (n > 1 && to[n - 1] == '/')
        to[--n] = '\0';
    return 0;
}

static void tell(const struct cordon_work *work, int error)
{
    char reason[320];
    int n = snprintf(reason, sizeof reason, "%.180s: %s%s", work->path, strerror(-error),
                     error == -EROFS ? "; what can be written is below " CORDON_AGENT_WRITABLE : "");
    struct cordon_buf fields = CORDON_BUF_INIT(1024);
    (void)cordon_field_put_u32(&fields, CORDON_FIELD_CODE_NUMBER, (uint32_t)-error); /* failures stick */
    (void)cordon_field_put(&fields, CORDON_FIELD_REASON, reason, (uint32_t)(n < 320 ? n : 319));
    if (!fields.failed)
        cordon_work_say(work, CORDON_FRAME_FAILED, fields.data, (uint32_t)fields.size);
    cordon_buf_done(&fields);
}

int cordon_kept_worker_main(int fd, const char *payload, size_t size)
{
    static struct cordon_work work;
    work.fd = fd;
    int r = cordon_open_parse(payload, size, &work.open);
    const char *home = work.open.user.length == 4 && memcmp(work.open.user.data, "root", 4) == 0 ? CORDON_ROOT_ROOT_HOME
                                                                                                 : CORDON_ROOT_HOME;
    if (r == 0)
        r = take_path(&work.open.path, home, work.path);
    if (r == 0 && work.open.target.data)
        r = take_path(&work.open.target, home, work.target);
    if (r == 0 && chdir("/") < 0)
        r = -errno;
    if (r == 0)
        r = work.open.kind < CORDON_OP__COUNT && operations[work.open.kind] ? operations[work.open.kind](&work)
                                                                            : -EINVAL;
    if (r < 0)
        tell(&work, r);
    return r < 0;
}
