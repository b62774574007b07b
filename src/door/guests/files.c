/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a guest. They go through as they come: a body of any size takes no more memory here than a piece of it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "door/guests/guests.h"
#include "door/json_time.h"

/* The query's path; name: of the parameter. */
static int path_of(const struct cordon_http_request *request, char to[CORDON_GUEST_PATH_MAX], struct cordon_error *err)
{
    ssize_t n = cordon_http_query(request, "path", to, CORDON_GUEST_PATH_MAX);
    if (n > 0)
        return 0;
    return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                       n == -EMSGSIZE ? "path is longer than 4,095 bytes"
                                      : "give ?path=: absolute, or relative to the user's home; percent-encoded");
}

static int user_of(const struct cordon_http_request *request, char to[32], const char **ret, struct cordon_error *err)
{
    ssize_t n = cordon_http_query(request, "user", to, 32);
    *ret = n > 0 ? to : NULL;
    return n >= 0 || n == -ENOENT ? 0 : cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "user is \"user\" or \"root\"");
}

/* Guest, path and user of a request. */
struct place {
    char guest[CORDON_GUEST_ID], path[CORDON_GUEST_PATH_MAX], user_text[32];
    const char *user;
};

static int place_of(const struct cordon_http_request *request, struct place *ret, struct cordon_error *err)
{
    int r = cordon_guest_of(request, ret->guest, err);
    if (r == 0)
        r = path_of(request, ret->path, err);
    return r == 0 ? user_of(request, ret->user_text, &ret->user, err) : r;
}

/* --- telling of them --- */

static void write_entry(void *context, const struct cordon_file_entry *entry)
{
    static const char *const types[] = {"other", "file", "directory", "link"};
    struct cordon_json *json = context;
    char mode[8];
    (void)snprintf(mode, sizeof mode, "%04o", entry->mode & 07777); /* fits */
    const struct {
        const char *key, *text;
    } texts[] = {{"name", entry->name},   {"path", entry->path},   {"type", types[entry->type & 3]}, {"mode", mode},
                 {"owner", entry->owner}, {"group", entry->group}, {"target", entry->target}};
    cordon_json_object_begin(json);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        cordon_json_key(json, texts[i].key);
        cordon_json_text(json, texts[i].text);
    }
    cordon_json_key(json, "size");
    cordon_json_uint(json, entry->size);
    cordon_json_key(json, "modified_at");
    cordon_json_time(json, entry->modified_ns / 1000);
    cordon_json_object_end(json);
}

/* LIST, as the worker goes: entries are appended to an array. */
static int list(const struct cordon_http_request *request, const struct place *place, uint32_t depth,
                struct cordon_json *json, struct cordon_error *err)
{
    struct cordon_operation operation = {.struct_size = sizeof operation,
                                         .kind = CORDON_OP_LIST,
                                         .user = place->user,
                                         .path = place->path,
                                         .depth = depth,
                                         .cancel_fd = request->fd};
    struct cordon_live_stream *stream = NULL;
    struct cordon_stream_event event;
    bool ended = false;
    int r = cordon_guests_open(cordon_guest_viewer(request), place->guest, &operation, &stream, err);
    while (r >= 0 && !ended && (r = cordon_guests_next(stream, -1, &event, &ended, err)) == 1) {
        if (event.type == CORDON_STREAM_ENTRY)
            write_entry(json, event.entry);
        if (event.type == CORDON_STREAM_END)
            break;
    }
    cordon_guests_close(stream);
    return r < 0 ? r : 0;
}

int cordon_guest_entries_get(struct cordon_http_request *request, struct cordon_error *err)
{
    struct place place;
    char depth[8] = "1";
    struct cordon_guest_reply reply;
    int r = place_of(request, &place, err);
    (void)cordon_http_query(request, "depth", depth, sizeof depth); /* 1 where there is none */
    if (r < 0)
        return r;
    uint32_t levels = (uint32_t)strtoul(depth, NULL, 10);
    cordon_guest_reply_begin(&reply);
    cordon_json_object_begin(&reply.json);
    cordon_json_key(&reply.json, "entries");
    cordon_json_array_begin(&reply.json);
    r = list(request, &place, levels, &reply.json, err);
    cordon_json_array_end(&reply.json);
    cordon_json_object_end(&reply.json);
    if (r < 0) {
        cordon_buf_done(&reply.body);
        return r;
    }
    return cordon_guest_reply_send(request, 200, &reply, err);
}

/* --- one entry or none --- */

static int change(struct cordon_http_request *request, struct cordon_operation *operation, const char *guest,
                  int status, struct cordon_error *err)
{
    struct cordon_guest_reply reply;
    operation->struct_size = sizeof *operation;
    operation->cancel_fd = request->fd;
    cordon_guest_reply_begin(&reply);
    int r = cordon_guests_file(cordon_guest_viewer(request), guest, operation, write_entry, &reply.json, err);
    if (r >= 0 && reply.body.size)
        return cordon_guest_reply_send(request, status, &reply, err);
    cordon_buf_done(&reply.body);
    return r < 0 ? r : cordon_guest_reply_nothing(request, err);
}

int cordon_guest_file_delete(struct cordon_http_request *request, struct cordon_error *err)
{
    struct place place;
    int r = place_of(request, &place, err);
    struct cordon_operation operation = {.kind = CORDON_OP_REMOVE, .user = place.user, .path = place.path};
    return r < 0 ? r : change(request, &operation, place.guest, 200, err);
}

int cordon_guest_mkdir_post(struct cordon_http_request *request, struct cordon_error *err)
{
    struct place place;
    int r = place_of(request, &place, err);
    struct cordon_operation operation = {.kind = CORDON_OP_MKDIR, .user = place.user, .path = place.path};
    return r < 0 ? r : change(request, &operation, place.guest, 201, err);
}

int cordon_guest_move_post(struct cordon_http_request *request, struct cordon_error *err)
{
    struct place place;
    char target[CORDON_GUEST_PATH_MAX];
    int r = place_of(request, &place, err);
    if (r == 0 && cordon_http_query(request, "target", target, sizeof target) <= 0)
        r = cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "give ?path= and &target=");
    struct cordon_operation operation = {
        .kind = CORDON_OP_MOVE, .user = place.user, .path = place.path, .target = target};
    return r < 0 ? r : change(request, &operation, place.guest, 200, err);
}

/* --- their content, out --- */

struct download {
    struct cordon_live_stream *stream;
    struct cordon_error err;
};

static int next_piece(void *context, struct cordon_buf *out)
{
    struct download *download = context;
    struct cordon_stream_event event;
    bool ended = false;
    int r = cordon_guests_next(download->stream, -1, &event, &ended, &download->err);
    if (r < 0)
        return r;
    if (r == 0 || event.type == CORDON_STREAM_END)
        return 0;
    if (event.type == CORDON_STREAM_DATA && cordon_buf_append(out, event.data.data, event.data.size) < 0)
        return -ENOMEM;
    return 1;
}

static void close_download(void *context)
{
    struct download *download = context;
    cordon_guests_close(download->stream);
    free(download);
}

static const struct cordon_http_stream download_stream = {.next = next_piece, .close = close_download};

/* The entry comes first: from then on the file is there and can be read. */
static int begin_download(struct cordon_http_request *request, struct download *download, uint64_t *ret_size,
                          struct cordon_error *err)
{
    struct cordon_stream_event event;
    struct place place;
    bool ended = false;
    int r = place_of(request, &place, err);
    struct cordon_operation operation = {.struct_size = sizeof operation,
                                         .kind = CORDON_OP_READ,
                                         .user = place.user,
                                         .path = place.path,
                                         .cancel_fd = request->fd};
    if (r == 0)
        r = cordon_guests_open(cordon_guest_viewer(request), place.guest, &operation, &download->stream, err);
    if (r >= 0)
        r = cordon_guests_next(download->stream, -1, &event, &ended, err);
    if (r >= 0 && (r == 0 || event.type != CORDON_STREAM_ENTRY))
        return cordon_fail(err, -EPROTO, CORDON_ERROR_INFRASTRUCTURE, "the file's entry did not come");
    if (r >= 0)
        *ret_size = event.entry->size;
    return r < 0 ? r : 0;
}

int cordon_guest_file_get(struct cordon_http_request *request, struct cordon_error *err)
{
    struct download *download = calloc(1, sizeof *download);
    uint64_t size = 0;
    int r =
        download ? begin_download(request, download, &size, err) : cordon_fail_errno(err, -ENOMEM, "reading a file");
    if (r < 0) {
        if (download)
            close_download(download);
        return r;
    }
    /* Of no stated length: the guest may go on writing to it. */
    return cordon_http_reply_stream(request, "application/octet-stream", &download_stream, download);
}

/* --- their content, in --- */

struct upload {
    struct cordon_live_stream *stream;
};

static void finish_upload(void *context)
{
    struct upload *upload = context;
    cordon_guests_close(upload->stream); /* breaks off what was not ended */
    free(upload);
}

/* Stays as it is where none is given. */
static int mode_of(const struct cordon_http_request *request, uint32_t *ret, struct cordon_error *err)
{
    char text[8];
    ssize_t n = cordon_http_query(request, "mode", text, sizeof text);
    if (n == -ENOENT)
        return 0;
    if (n <= 0 || n > 5 || strspn(text, "01234567") != (size_t)n || strtoul(text, NULL, 8) > 0777)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "mode \"%s\": give permission bits as an octal number up to 0777, as 0644", text);
    *ret = (uint32_t)strtoul(text, NULL, 8);
    return 0;
}

static int begin_upload(struct cordon_http_request *request, struct cordon_error *err)
{
    struct place place;
    uint32_t mode = 0; /* the usual one */
    struct upload *upload = calloc(1, sizeof *upload);
    if (!upload)
        return cordon_fail_errno(err, -ENOMEM, "writing a file");
    request->finish = finish_upload;
    request->finish_context = upload;
    int r = place_of(request, &place, err);
    if (r == 0)
        r = mode_of(request, &mode, err);
    struct cordon_operation operation = {.struct_size = sizeof operation,
                                         .kind = CORDON_OP_WRITE,
                                         .user = place.user,
                                         .path = place.path,
                                         .mode = mode,
                                         .cancel_fd = request->fd};
    if (r == 0)
        r = cordon_guests_open(cordon_guest_viewer(request), place.guest, &operation, &upload->stream, err);
    return r < 0 ? r : 0;
}

static int take_piece(struct cordon_http_request *request, const char *data, size_t size, struct cordon_error *err)
{
    struct upload *upload = request->finish_context;
    int r = cordon_guests_write(upload->stream, CORDON_TO_FILE, data, size, err);
    return r < 0 ? r : 0;
}

const struct cordon_http_intake cordon_guest_file_intake = {.begin = begin_upload, .piece = take_piece};

int cordon_guest_file_put(struct cordon_http_request *request, struct cordon_error *err)
{
    struct upload *upload = request->finish_context;
    struct cordon_stream_event event;
    struct cordon_guest_reply reply;
    bool ended = false;
    int r = cordon_guests_control(upload->stream, CORDON_CONTROL_END, CORDON_TO_FILE, err);
    cordon_guest_reply_begin(&reply);
    while (r >= 0 && !ended && (r = cordon_guests_next(upload->stream, -1, &event, &ended, err)) == 1) {
        if (event.type == CORDON_STREAM_ENTRY)
            write_entry(&reply.json, event.entry);
        if (event.type == CORDON_STREAM_END)
            return cordon_guest_reply_send(request, 200, &reply, err);
    }
    cordon_buf_done(&reply.body);
    return r < 0 ? r : cordon_fail(err, -EPROTO, CORDON_ERROR_INFRASTRUCTURE, "the file's end was not told");
}
