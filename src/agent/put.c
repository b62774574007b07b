/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker that puts files. It is the code by uid, control group and filter, so a path can reach nothing that the
 * code itself could not write. Relative paths are held below the working directory; absolute ones mean the guest's
 * tree. Missing directories are made. Never follows a link at the end of a path.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/files.h"
#include "base/fd.h"

#define PATH_BYTES 4096

struct putting {
    int fd;   /* to the agent */
    int file; /* the open one; -1: none */
    unsigned mode;
    char path[PATH_BYTES];
    struct cordon_buf in;
};

static int tell(struct putting *put, int error, const char *what)
{
    char reason[200];
    int n = snprintf(reason, sizeof reason, "%s: %s%s", what, strerror(-error),
                     error == -EROFS ? "; what can be written is below " CORDON_AGENT_WRITABLE : ""); /* fits */
    struct cordon_buf buf = CORDON_BUF_INIT(8192);
    (void)cordon_field_put_u32(&buf, CORDON_FIELD_CODE_NUMBER, (uint32_t)-error); /* failures stick in buf.failed */
    (void)cordon_field_put(&buf, CORDON_FIELD_REASON, reason, (uint32_t)n);
    (void)cordon_field_put(&buf, CORDON_FIELD_PATH, put->path, (uint32_t)strlen(put->path));
    if (!buf.failed)
        (void)cordon_files_send(put->fd, CORDON_FRAME_ERROR, 0, buf.data, (uint32_t)buf.size); /* else the end tells */
    cordon_buf_done(&buf);
    return error;
}

static int enter(int dir, const char *name, bool beneath)
{
    int fd = cordon_files_open(dir, name, O_PATH | O_DIRECTORY, 0, beneath);
    if (fd != -ENOENT)
        return fd;
    if (mkdirat(dir, name, 0755) < 0 && errno != EEXIST)
        return -errno;
    return cordon_files_open(dir, name, O_PATH | O_DIRECTORY, 0, beneath);
}

/* Walks to the directory of path, making what is missing; *last is its final component. */
static int walk(const char *path, const char **last)
{
    bool beneath = *path != '/';
    char copy[PATH_BYTES];
    (void)snprintf(copy, sizeof copy, "%s", path); /* its length was checked */
    cordon_autoclose int dir = open(beneath ? "." : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return -errno;
    char *at = copy + strspn(copy, "/");
    for (char *slash = strchr(at, '/'); slash; slash = strchr(at, '/')) {
        *slash = '\0';
        if (strcmp(at, ".") != 0 && *at) {
            int next = enter(dir, at, beneath);
            if (next < 0)
                return next;
            cordon_close(&dir);
            dir = next;
        }
        at = slash + 1;
    }
    if (!*at || strcmp(at, ".") == 0 || strcmp(at, "..") == 0)
        return -EISDIR;
    *last = path + (at - copy);
    return CORDON_TAKE_FD(dir);
}

static int open_file(struct putting *put)
{
    const char *last = NULL;
    cordon_autoclose int dir = walk(put->path, &last);
    if (dir < 0)
        return tell(put, dir, "making the directory of a file failed");
    int file = cordon_files_open(dir, last, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK, 0600, true);
    if (file < 0)
        return tell(put, file, "creating a file failed");
    struct stat st;
    put->file = file;
    if (fstat(file, &st) < 0 || !S_ISREG(st.st_mode))
        return tell(put, -EINVAL, "what stands in a file's place is no regular file");
    return 0;
}

static int handle_open(struct putting *put, const struct cordon_frame *frame)
{
    struct cordon_field field;
    size_t at = 0;
    uint32_t mode = 0644;
    *put->path = '\0';
    if (put->file >= 0)
        return tell(put, -EPROTO, "a file began before the last one was closed");
    while (cordon_field_next(frame->payload, frame->length, &at, &field) == 1) {
        if (field.tag == CORDON_FIELD_MODE)
            (void)cordon_field_u32(&field, &mode); /* else the default stays */
        if (field.tag != CORDON_FIELD_PATH)
            continue;
        if (field.length >= sizeof put->path || memchr(field.data, '\0', field.length))
            return tell(put, -ENAMETOOLONG, "a file's path is too long or has a NUL");
        memcpy(put->path, field.data, field.length);
        put->path[field.length] = '\0';
    }
    put->mode = mode & 0777;
    return open_file(put);
}

static int handle_data(struct putting *put, const struct cordon_frame *frame)
{
    if (put->file < 0)
        return tell(put, -EPROTO, "data came for no file");
    int r = cordon_write_full(put->file, frame->payload, frame->length);
    return r < 0 ? tell(put, r, "writing a file failed") : 0;
}

static int handle_close(struct putting *put)
{
    struct stat st;
    if (put->file < 0)
        return tell(put, -EPROTO, "the end came of no file");
    if (fchmod(put->file, put->mode ? put->mode : 0644) < 0 || fstat(put->file, &st) < 0)
        return tell(put, -errno, "setting a file's mode failed");
    cordon_close(&put->file);
    struct cordon_agent_put id = {
        .inode = st.st_ino, .size = (uint64_t)st.st_size, .ctime_s = st.st_ctim.tv_sec, .ctime_ns = st.st_ctim.tv_nsec};
    return cordon_files_send(put->fd, CORDON_FRAME_ARTIFACT_DATA, 0, &id, sizeof id);
}

static int handle_frame(struct putting *put, const struct cordon_frame *frame)
{
    switch (frame->type) {
    case CORDON_FRAME_FILE_OPEN:
        return handle_open(put, frame);
    case CORDON_FRAME_FILE_DATA:
        return handle_data(put, frame);
    case CORDON_FRAME_FILE_CLOSE:
        return handle_close(put);
    default:
        return tell(put, -EPROTO, "an unexpected frame");
    }
}

static int handle_frames(struct putting *put)
{
    struct cordon_frame frame;
    size_t used = 0;
    int64_t n;
    while ((n = cordon_frame_parse(put->in.data + used, put->in.size - used, 0, &frame)) != 0) {
        int r = n < 0 ? tell(put, (int)n, "a malformed frame") : handle_frame(put, &frame);
        if (r < 0)
            return r;
        used += (size_t)n;
    }
    cordon_buf_consume(&put->in, used);
    return 0;
}

int cordon_agent_put_files(int fd, const char *workdir)
{
    struct putting put = {.fd = fd, .file = -1, .in = CORDON_BUF_INIT(CORDON_FRAME_DATA_MAX + CORDON_FRAME_HEADER)};
    if (chdir(workdir) < 0)
        return tell(&put, -errno, "entering the working directory failed") < 0;
    for (;;) {
        size_t room = put.in.max - put.in.size;
        char *to = cordon_buf_reserve(&put.in, room);
        if (!to)
            return 1;
        ssize_t n = read(fd, to, room);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return 1;
        if (n == 0)
            break;
        put.in.size += (size_t)n;
        if (handle_frames(&put) < 0)
            return 1;
    }
    if (put.file >= 0 || put.in.size)
        return tell(&put, -EPROTO, "the last file was not finished") < 0;
    return cordon_files_send(fd, CORDON_FRAME_COLLECTED, 0, NULL, 0) < 0;
}
