/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /files. Bodies are as large as they like; what was read of one goes straight into the guest, whose own disk is
 * the bound. A file whose upload breaks off is removed by its stream's end.
 */
#include "door/e2b/upload.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "door/e2b/inflate.h"
#include "http/multipart.h"

int cordon_e2b_files_query(const struct cordon_http_request *request, char path[CORDON_E2B_PATH_ROOM],
                           struct cordon_operation *operation, struct cordon_error *err)
{
    char user[64];
    ssize_t n = cordon_http_query(request, "username", user, sizeof user);
    if (n < 0 && n != -ENOENT)
        return cordon_fail(err, -EACCES, CORDON_ERROR_UNAUTHENTICATED, "username can't be read");
    int r = cordon_e2b_user_named(user, &operation->user, err);
    if (r < 0)
        return r;
    n = cordon_http_query(request, "path", path, CORDON_E2B_PATH_ROOM);
    if (n == -ENOENT && strcmp(request->method, "POST") == 0)
        return 0;
    if (n < 0 && n != -ENOENT)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "path: at most 4,095 bytes without NUL, well escaped, are needed");
    return cordon_e2b_path(path, &operation->path, err);
}

struct upload {
    const struct cordon_guest_info *guest; /* the visit's */
    struct cordon_operation operation;
    char path[CORDON_E2B_PATH_ROOM];
    struct cordon_multipart parts;
    bool multipart, skip; /* skip: this part is none of ours */
    struct cordon_e2b_inflate *inflate;
    struct cordon_live_stream *live; /* the file that is being written */
    struct cordon_buf seen;          /* targets, each with its NUL */
    struct cordon_buf answer;
    struct cordon_json json;
    struct cordon_error *err; /* of the call that is under way */
};

static void free_upload(void *context)
{
    struct upload *upload = context;
    cordon_guests_close(upload->live);
    cordon_multipart_done(&upload->parts);
    cordon_e2b_inflate_free(upload->inflate);
    cordon_buf_done(&upload->seen);
    cordon_buf_done(&upload->answer);
    free(upload);
}

static int open_file(struct upload *upload, const char *path, struct cordon_error *err)
{
    struct cordon_operation operation = upload->operation;
    operation.kind = CORDON_OP_WRITE;
    operation.path = path;
    return cordon_guests_open(upload->guest->tenant, upload->guest->id, &operation, &upload->live, err);
}

static int write_file(void *context, const char *data, size_t size)
{
    struct upload *upload = context;
    return cordon_guests_write(upload->live, CORDON_TO_FILE, data, size, upload->err);
}

static void tell_written(struct cordon_json *json, const struct cordon_file_entry *entry)
{
    cordon_json_object_begin(json);
    cordon_json_key(json, "path");
    cordon_json_text(json, entry->path);
    cordon_json_key(json, "name");
    cordon_json_text(json, entry->name);
    cordon_json_key(json, "type");
    cordon_json_text(json, "file");
    cordon_json_object_end(json);
}

static int end_file(struct upload *upload, struct cordon_error *err)
{
    struct cordon_stream_event event;
    bool ended = false, whole = false;
    int r = cordon_guests_control(upload->live, CORDON_CONTROL_END, CORDON_TO_FILE, err);
    while (r >= 0 && !ended && !whole) {
        r = cordon_guests_next(upload->live, -1, &event, &ended, err);
        if (r > 0 && event.type == CORDON_STREAM_ENTRY)
            tell_written(&upload->json, event.entry);
        whole = r > 0 && event.type == CORDON_STREAM_END;
    }
    if (r < 0)
        return r;
    if (!whole)
        return cordon_fail(err, -EIO, CORDON_ERROR_INFRASTRUCTURE, "the file could not be written");
    cordon_guests_close(upload->live);
    upload->live = NULL;
    return 0;
}

static bool was_seen(const struct upload *upload, const char *target)
{
    const char *end = upload->seen.data + upload->seen.size;
    for (const char *at = upload->seen.data; at && at < end; at += strlen(at) + 1)
        if (strcmp(at, target) == 0)
            return true;
    return false;
}

static int open_part(void *context, const char *name, const char *filename)
{
    struct upload *upload = context;
    const char *target = upload->operation.path;
    upload->skip = strcmp(name, "file") != 0;
    if (upload->skip)
        return 0;
    if (!target && (!filename || !*filename))
        return cordon_fail(upload->err, -EINVAL, CORDON_ERROR_INVALID,
                           "a part named file has no filename, and the query no path: where should it go?");
    int r = target ? 0 : cordon_e2b_path(filename, &target, upload->err);
    if (r < 0)
        return r;
    if (was_seen(upload, target))
        return cordon_fail(upload->err, -EINVAL, CORDON_ERROR_INVALID, "two files are to go to %.256s", target);
    if (cordon_buf_append(&upload->seen, target, strlen(target) + 1) < 0)
        return cordon_fail(upload->err, -EMSGSIZE, CORDON_ERROR_TOO_LARGE, "too many files for one upload");
    return open_file(upload, target, upload->err);
}

static int part_data(void *context, const char *data, size_t size)
{
    struct upload *upload = context;
    return upload->skip ? 0 : write_file(upload, data, size);
}

static int close_part(void *context)
{
    struct upload *upload = context;
    return upload->skip ? 0 : end_file(upload, upload->err);
}

static void find_metadata(void *context, const char *name, const char *value)
{
    bool *found = context;
    *found = *found || strncasecmp(name, "X-Metadata-", 11) == 0;
}

static int begin_whole(struct upload *upload, const struct cordon_http_request *request, struct cordon_error *err)
{
    const char *encoding = cordon_http_header(request, "Content-Encoding");
    if (!upload->operation.path)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "path is missing in the query");
    if (encoding && strcasecmp(encoding, "gzip") != 0 && strcasecmp(encoding, "identity") != 0)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "Content-Encoding is %.32s, where gzip or none is needed", encoding);
    if (encoding && strcasecmp(encoding, "gzip") == 0) {
        upload->inflate = cordon_e2b_inflate_new(write_file, upload);
        if (!upload->inflate)
            return cordon_fail_errno(err, -ENOMEM, "taking a compressed file");
    }
    return open_file(upload, upload->operation.path, err);
}

static int begin_upload(struct upload *upload, struct cordon_http_request *request, struct cordon_error *err)
{
    static const struct cordon_multipart_taker taker = {.open = open_part, .data = part_data, .close = close_part};
    const char *type = cordon_http_header(request, "Content-Type");
    bool metadata = false;
    cordon_http_headers(request, find_metadata, &metadata);
    if (metadata)
        return cordon_fail(err, -ENOSYS, CORDON_ERROR_UNSUPPORTED,
                           "metadata of files is not implemented by this server");
    int r = cordon_e2b_files_query(request, upload->path, &upload->operation, err);
    if (r < 0)
        return r;
    upload->multipart = type && strncasecmp(type, "multipart/", 10) == 0;
    if (!upload->multipart)
        return begin_whole(upload, request, err);
    if (cordon_multipart_init(&upload->parts, type, &taker, upload) < 0)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "Content-Type is %.100s: multipart/form-data with a boundary is needed", type);
    return 0;
}

static int begin(struct cordon_http_request *request, struct cordon_error *err)
{
    struct upload *upload = calloc(1, sizeof *upload);
    if (!upload)
        return cordon_fail_errno(err, -ENOMEM, "taking files");
    upload->guest = cordon_e2b_visit(request)->guest;
    upload->operation = (struct cordon_operation){.struct_size = sizeof upload->operation, .cancel_fd = request->fd};
    upload->seen = CORDON_BUF_INIT(1u << 20);
    upload->answer = CORDON_BUF_INIT(4u << 20);
    upload->json.buf = &upload->answer;
    request->finish = free_upload;
    request->finish_context = upload;
    cordon_json_array_begin(&upload->json);
    return begin_upload(upload, request, err);
}

static int bad_parts(int code, struct cordon_error *err)
{
    if (code == -EMSGSIZE)
        return cordon_fail(err, code, CORDON_ERROR_TOO_LARGE,
                           "the upload has a part's header, or a number of parts, beyond what is read");
    return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                       "the body is not multipart/form-data as its Content-Type says");
}

static int piece(struct cordon_http_request *request, const char *data, size_t size, struct cordon_error *err)
{
    struct upload *upload = request->finish_context;
    struct cordon_error own = {0};
    int r;
    upload->err = &own;
    if (upload->multipart)
        r = cordon_multipart_feed(&upload->parts, data, size);
    else if (upload->inflate)
        r = cordon_e2b_inflate_feed(upload->inflate, data, size);
    else
        r = write_file(upload, data, size);
    upload->err = NULL;
    if (r >= 0)
        return 0;
    if (own.kind) {
        *err = own;
        return r;
    }
    return upload->multipart
               ? bad_parts(r, err)
               : cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "the body is not gzip, as its Content-Encoding says");
}

const struct cordon_http_intake cordon_e2b_files_intake = {.begin = begin, .piece = piece};

int cordon_e2b_files_post(struct cordon_http_request *request, struct cordon_error *err)
{
    struct upload *upload = request->finish_context;
    int r;
    if (upload->multipart)
        r = cordon_multipart_end(&upload->parts) < 0 ? bad_parts(-EBADMSG, err) : 0;
    else if (upload->inflate && !cordon_e2b_inflate_whole(upload->inflate))
        r = cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "the compressed body ends too early");
    else
        r = end_file(upload, err);
    if (r < 0)
        return r;
    cordon_json_array_end(&upload->json);
    struct cordon_buf body = upload->answer;
    upload->answer = CORDON_BUF_INIT(1);
    return cordon_e2b_answer(request, &body, err);
}
