/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files in kept guests on CreateOS. Contents go by the service's own /files, whole; all else is find, mkdir, mv and rm
 * of the sandbox. Entries come as find prints them, eight fields each, with a NUL behind each of them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/remote/createos_guest.h"
#include "base/clock.h"
#include "base/fd.h"

#define FIELDS 8
#define FORMAT " -printf '%y\\0%s\\0%m\\0%u\\0%g\\0%T@\\0%p\\0%l\\0'"
#define ENTRIES_MAX (16u << 20)
#define ENTRIES 10000u
#define FILE_MAX (128u << 20) /* it is sent whole */

/* --- commands --- */

/* An absolute path in the sandbox, as a word of sh that no tool takes for an option: commands begin in the home. */
static void put_path(struct cordon_buf *to, const char *before, const char *path)
{
    (void)cordon_buf_appends(to, before); /* all of these are sticky */
    if (*path != '/')
        (void)cordon_buf_appends(to, "\"$PWD\"");
    while (path[0] == '.' && (path[1] == '/' || !path[1]))
        path += path[1] ? 2 : 1;
    if (*path && *path != '/')
        (void)cordon_buf_appends(to, "/");
    if (*path)
        cordon_remote_quote(to, path);
}

/* Runs what was written; the entries that it prints can then be told. */
static int run(struct cordon_stream *stream, struct cordon_buf *command, struct cordon_error *err)
{
    cordon_buf_done(&stream->content);
    stream->content = CORDON_BUF_INIT(ENTRIES_MAX);
    stream->told = 0;
    int r = cordon_createos_command(stream->guest, command, stream->cancel_fd, &stream->content, err);
    cordon_buf_done(command);
    return r;
}

/* In the words of libc, and where the home is. */
static struct cordon_buf begin(void)
{
    struct cordon_buf command = CORDON_BUF_INIT(65536);
    (void)cordon_buf_appends(&command, "export LC_ALL=C; cd || exit 1; ");
    return command;
}

/* The path as the service's own calls want it. */
static int make_absolute(struct cordon_stream *stream, const char *path, struct cordon_error *err)
{
    struct cordon_buf command = begin();
    if (strlen(path) >= sizeof stream->path - 256) {
        cordon_buf_done(&command);
        return cordon_fail_errno(err, -ENAMETOOLONG, "CreateOS: a path");
    }
    if (*path == '/') {
        cordon_buf_done(&command);
        (void)snprintf(stream->path, sizeof stream->path, "%s", path); /* fits */
        return 0;
    }
    (void)cordon_buf_appends(&command, "printf '%s' \"$PWD\"");
    int r = run(stream, &command, err);
    if (r == 0 && snprintf(stream->path, sizeof stream->path, "%.*s/%s", (int)stream->content.size,
                           stream->content.data ? stream->content.data : "", path) >= (int)sizeof stream->path)
        r = cordon_fail_errno(err, -ENAMETOOLONG, "CreateOS: a path");
    return r;
}

static void write_tell(struct cordon_buf *to, const char *flags, const char *path, const char *rest)
{
    (void)cordon_buf_appends(to, "find ");
    (void)cordon_buf_appends(to, flags);
    put_path(to, " ", path);
    (void)cordon_buf_appends(to, rest);
    (void)cordon_buf_appends(to, FORMAT);
}

static int open_list(struct cordon_stream *stream, const struct cordon_operation *operation, struct cordon_error *err)
{
    const char *path = operation->path;
    size_t size = strlen(path);
    struct cordon_buf command = begin(), rest = CORDON_BUF_INIT(64);
    stream->left = operation->entries ? operation->entries : ENTRIES;
    put_path(&command, "if [ -e ", path);
    put_path(&command, " ] && ! [ -d ", path);
    (void)cordon_buf_appends(&command, " ]; then echo 'Not a directory' >&2; exit 1; fi; ");
    (void)cordon_buf_appendf(&rest, "%s -mindepth 1 -maxdepth %u", size && path[size - 1] == '/' ? "" : "/",
                             operation->depth ? operation->depth : 1);
    write_tell(&command, "-P", path, rest.data ? rest.data : "");
    command.failed = command.failed || rest.failed;
    cordon_buf_done(&rest);
    return run(stream, &command, err);
}

/* What changes one path, and tells of it. */
static int open_change(struct cordon_stream *stream, const struct cordon_operation *operation, struct cordon_error *err)
{
    const char *path = operation->path, *target = operation->target;
    struct cordon_buf command = begin();
    if (operation->kind == CORDON_OP_MKDIR) {
        put_path(&command, "if [ -e ", path);
        put_path(&command, " ] || [ -L ", path);
        (void)cordon_buf_appends(&command, " ]; then echo 'File exists' >&2; exit 1; fi; ");
        (void)cordon_buf_appendf(&command, "mkdir -p -m %o", operation->mode ? operation->mode & 07777 : 0755u);
        put_path(&command, " ", path);
        (void)cordon_buf_appends(&command, " && ");
    } else if (operation->kind == CORDON_OP_MOVE) {
        put_path(&command, "if ! [ -e ", path);
        put_path(&command, " ] && ! [ -L ", path);
        (void)cordon_buf_appends(&command, " ]; then echo 'No such file or directory' >&2; exit 1; fi; ");
        put_path(&command, "mkdir -p \"$(dirname ", target);
        put_path(&command, ")\" && mv -fT ", path);
        put_path(&command, " ", target);
        (void)cordon_buf_appends(&command, " && ");
        path = target;
    } else if (operation->kind == CORDON_OP_REMOVE) {
        put_path(&command, "rm -rf ", path);
        return run(stream, &command, err);
    }
    write_tell(&command, "-P", path, " -maxdepth 0");
    return run(stream, &command, err);
}

/* --- entries --- */

static enum cordon_file_type type_of(char letter)
{
    return letter == 'f'   ? CORDON_FILE_REGULAR
           : letter == 'd' ? CORDON_FILE_DIRECTORY
           : letter == 'l' ? CORDON_FILE_LINK
                           : CORDON_FILE_OTHER;
}

static int64_t nanoseconds(const char *text)
{
    char *rest;
    int64_t seconds = strtoll(text, &rest, 10), fraction = 0, scale = 1000000000;
    if (*rest == '.')
        for (rest++; *rest >= '0' && *rest <= '9' && scale > 1; rest++) {
            fraction = fraction * 10 + (*rest - '0');
            scale /= 10;
        }
    return seconds > INT64_MAX / 1000000000 - 1 || seconds < 0 ? 0 : seconds * 1000000000 + fraction * scale;
}

/* 1 and stream->entry, 0 when all were told, or negative. */
static int next_entry(struct cordon_stream *stream, struct cordon_error *err)
{
    const char *fields[FIELDS];
    const struct cordon_buf *from = &stream->content;
    if (stream->told == from->size)
        return 0;
    for (size_t i = 0; i < FIELDS; i++) {
        const char *end = memchr(from->data + stream->told, '\0', from->size - stream->told);
        if (!end)
            return cordon_fail(err, -EBADMSG, CORDON_ERROR_INFRASTRUCTURE,
                               "CreateOS: what the sandbox tells of a file can not be read");
        fields[i] = from->data + stream->told;
        stream->told = (size_t)(end - from->data) + 1;
    }
    const char *path = fields[6], *slash = strrchr(path, '/');
    stream->entry = (struct cordon_file_entry){.name = slash && slash[1] ? slash + 1 : path,
                                               .path = path,
                                               .type = type_of(*fields[0]),
                                               .size = strtoull(fields[1], NULL, 10),
                                               .mode = (uint32_t)strtoul(fields[2], NULL, 8) & 07777,
                                               .owner = fields[3],
                                               .group = fields[4],
                                               .modified_ns = nanoseconds(fields[5]),
                                               .target = *fields[7] ? fields[7] : NULL};
    return 1;
}

static int tell_end(struct cordon_stream *stream, struct cordon_stream_event *event)
{
    stream->ended = true;
    *event = (struct cordon_stream_event){.type = CORDON_STREAM_END};
    return 1;
}

static int next_told(struct cordon_stream *stream, struct cordon_stream_event *event, struct cordon_error *err)
{
    int r = next_entry(stream, err);
    if (r <= 0)
        return r < 0 ? r : tell_end(stream, event);
    if (stream->kind == CORDON_OP_LIST && !stream->left--)
        return cordon_fail(err, -E2BIG, CORDON_ERROR_TOO_LARGE, "there are more entries than were asked for");
    *event = (struct cordon_stream_event){.type = CORDON_STREAM_ENTRY, .entry = &stream->entry};
    return 1;
}

/* --- contents --- */

static int download(struct cordon_stream *stream, struct cordon_error *err)
{
    struct cordon_buf none = CORDON_BUF_INIT(0);
    for (bool again = true;; again = false) {
        int r = cordon_createos_download(stream->guest->id, stream->path, cordon_now_us() + CORDON_CREATEOS_CALL_US,
                                         stream->cancel_fd, &stream->transfer, err);
        unsigned status = r == 0 ? cordon_http_status(stream->transfer) : 0;
        if (r < 0 || status == 200)
            return r;
        cordon_http_close(CORDON_TAKE(stream->transfer));
        if (!again || !cordon_createos_guest_woke(stream->guest, status))
            return cordon_createos_guest_refused(stream->guest, "reading a file", status, &none, err);
    }
}

/* The entry first: it tells whether it is a file at all. */
static int open_read(struct cordon_stream *stream, const struct cordon_operation *operation, struct cordon_error *err)
{
    int r = make_absolute(stream, operation->path, err);
    struct cordon_buf command = begin();
    write_tell(&command, "-H", stream->path, " -maxdepth 0");
    if (r == 0)
        r = run(stream, &command, err);
    else
        cordon_buf_done(&command);
    if (r == 0 && (r = next_entry(stream, err)) == 0)
        r = cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND, "%.400s: No such file or directory", stream->path);
    if (r < 0)
        return r;
    if (stream->entry.type != CORDON_FILE_REGULAR)
        return cordon_fail(err, stream->entry.type == CORDON_FILE_DIRECTORY ? -EISDIR : -EINVAL, CORDON_ERROR_INVALID,
                           "%.400s is no regular file", stream->path);
    stream->range = (struct cordon_remote_range){operation->offset, operation->size ? operation->size : UINT64_MAX};
    return download(stream, err);
}

static int next_read(struct cordon_stream *stream, int timeout_ms, struct cordon_stream_event *event,
                     struct cordon_error *err)
{
    bool ended;
    struct cordon_bytes data;
    if (!stream->entry_told) {
        stream->entry_told = true;
        *event = (struct cordon_stream_event){.type = CORDON_STREAM_ENTRY, .entry = &stream->entry};
        return 1;
    }
    int r = cordon_remote_range_next(stream->transfer, &stream->range, timeout_ms, CORDON_CREATEOS_CALL_US, &data,
                                     &ended, err);
    if (r > 0)
        *event = (struct cordon_stream_event){.type = CORDON_STREAM_DATA, .data = data};
    if (!ended)
        return r;
    return tell_end(stream, event);
}

static int upload(struct cordon_stream *stream, struct cordon_error *err)
{
    const struct cordon_bytes content = {stream->content.data ? stream->content.data : "", stream->content.size};
    for (bool again = true;; again = false) {
        struct cordon_http_answer answer;
        int r = cordon_createos_upload(stream->guest->id, stream->path, content,
                                       cordon_now_us() + 2 * CORDON_CREATEOS_CALL_US, stream->cancel_fd, &answer, err);
        bool done = r < 0 || answer.status / 100 == 2;
        bool woke = !done && again && cordon_createos_guest_woke(stream->guest, answer.status);
        if (!done && !woke)
            r = cordon_createos_guest_refused(stream->guest, "writing a file", answer.status, &answer.body, err);
        cordon_buf_done(&answer.body);
        if (!woke)
            return r;
    }
}

int cordon_createos_file_end(struct cordon_stream *stream, struct cordon_error *err)
{
    struct cordon_buf command = begin(), none = CORDON_BUF_INIT(4096);
    put_path(&command, "if [ -d ", stream->path);
    put_path(&command, " ]; then echo 'Is a directory' >&2; exit 1; fi; mkdir -p \"$(dirname ", stream->path);
    (void)cordon_buf_appends(&command, ")\"");
    int r = cordon_createos_command(stream->guest, &command, stream->cancel_fd, &none, err);
    cordon_buf_done(&command);
    cordon_buf_done(&none);
    if (r == 0)
        r = upload(stream, err);
    if (r < 0)
        return r;
    command = begin();
    (void)cordon_buf_appendf(&command, "chmod %o", stream->mode);
    put_path(&command, " ", stream->path);
    (void)cordon_buf_appends(&command, " && ");
    write_tell(&command, "-H", stream->path, " -maxdepth 0");
    return run(stream, &command, err);
}

static int open_write(struct cordon_stream *stream, const struct cordon_operation *operation, struct cordon_error *err)
{
    size_t most = operation->size && operation->size < FILE_MAX ? (size_t)operation->size : FILE_MAX;
    int r = make_absolute(stream, operation->path, err);
    stream->mode = operation->mode ? operation->mode & 07777 : 0644;
    cordon_buf_done(&stream->content);
    stream->content = CORDON_BUF_INIT(most);
    return r;
}

int cordon_createos_file_open(struct cordon_stream *stream, const struct cordon_operation *operation,
                              struct cordon_error *err)
{
    if (strlen(operation->path) >= sizeof stream->path ||
        (operation->target && strlen(operation->target) >= sizeof stream->path))
        return cordon_fail_errno(err, -ENAMETOOLONG, "CreateOS: a path");
    switch (operation->kind) {
    case CORDON_OP_READ:
        return open_read(stream, operation, err);
    case CORDON_OP_WRITE:
        return open_write(stream, operation, err);
    case CORDON_OP_LIST:
        return open_list(stream, operation, err);
    default:
        return open_change(stream, operation, err);
    }
}

int cordon_createos_file_next(struct cordon_stream *stream, int timeout_ms, struct cordon_stream_event *event,
                              struct cordon_error *err)
{
    return stream->kind == CORDON_OP_READ ? next_read(stream, timeout_ms, event, err) : next_told(stream, event, err);
}
