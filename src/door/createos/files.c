/* SPDX-License-Identifier: Apache-2.0 */
/* Files, raw, by absolute path. Each path is walked in the guest only. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "door/createos/createos.h"

#define PATH_ROOM 4200u

static int read_path(const struct cordon_http_request *request, char path[PATH_ROOM], struct cordon_error *err)
{
    ssize_t n = cordon_http_query(request, "path", path, PATH_ROOM);
    if (n > 0 && path[0] == '/')
        return 0;
    return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                       "path: an absolute path of at most 4,095 bytes without NUL, well escaped, is needed");
}

/* One transfer, either way. */
struct transfer {
    char path[PATH_ROOM];
    struct cordon_live_stream *live;
    uint64_t left;
};

static void free_transfer(void *context)
{
    struct transfer *transfer = context;
    cordon_guests_close(transfer->live);
    free(transfer);
}

static int open_transfer(struct cordon_http_request *request, enum cordon_operation_kind kind,
                         struct transfer *transfer, struct cordon_error *err)
{
    struct cordon_guest_info *guest;
    int r = read_path(request, transfer->path, err);
    if (r == 0)
        r = cordon_createos_find(request, true, &guest, err);
    if (r < 0)
        return r;
    const struct cordon_operation operation = {.struct_size = sizeof operation,
                                               .kind = kind,
                                               .user = CORDON_CREATEOS_USER,
                                               .path = transfer->path,
                                               .cancel_fd = request->fd};
    r = cordon_guests_open(request->subject, guest->id, &operation, &transfer->live, err);
    cordon_guest_info_free(guest);
    return r;
}

/* Waits for the entry: its first event when reading, its last but one when writing. */
static int wait_entry(struct transfer *transfer, uint64_t *ret_size, struct cordon_error *err)
{
    struct cordon_stream_event event;
    bool ended = false;
    for (;;) {
        int r = cordon_guests_next(transfer->live, -1, &event, &ended, err);
        if (r < 0)
            return r;
        if (r > 0 && event.type == CORDON_STREAM_ENTRY) {
            *ret_size = event.entry->size;
            return 0;
        }
        if (ended)
            return cordon_fail(err, -EIO, CORDON_ERROR_INFRASTRUCTURE, "%s could not be transferred", transfer->path);
    }
}

/* A file that became shorter breaks off. */
static int next_data(void *context, struct cordon_buf *out)
{
    struct transfer *transfer = context;
    struct cordon_stream_event event;
    bool ended = false;
    if (!transfer->left)
        return 0;
    int r = cordon_guests_next(transfer->live, -1, &event, &ended, NULL);
    if (r < 0 || ended || (r > 0 && event.type == CORDON_STREAM_END))
        return -EIO;
    if (r == 0 || event.type != CORDON_STREAM_DATA)
        return 1;
    size_t size = event.data.size < transfer->left ? event.data.size : (size_t)transfer->left;
    transfer->left -= size;
    return cordon_buf_append(out, event.data.data, size) < 0 ? -ENOMEM : 1;
}

int cordon_createos_file_get(struct cordon_http_request *request, struct cordon_error *err)
{
    static const struct cordon_http_stream stream = {.next = next_data, .close = free_transfer};
    struct transfer *transfer = calloc(1, sizeof *transfer);
    if (!transfer)
        return cordon_fail_errno(err, -ENOMEM, "reading a file");
    int r = open_transfer(request, CORDON_OP_READ, transfer, err);
    if (r == 0)
        r = wait_entry(transfer, &transfer->left, err);
    if (r < 0) {
        free_transfer(transfer);
        return r;
    }
    r = cordon_http_reply_stream_as(request, 200, "application/octet-stream", transfer->left, &stream, transfer);
    return r < 0 ? cordon_fail_errno(err, r, "sending a file") : 0;
}

static int begin(struct cordon_http_request *request, struct cordon_error *err)
{
    struct transfer *transfer = calloc(1, sizeof *transfer);
    if (!transfer)
        return cordon_fail_errno(err, -ENOMEM, "taking a file");
    request->finish = free_transfer;
    request->finish_context = transfer;
    return open_transfer(request, CORDON_OP_WRITE, transfer, err);
}

static int piece(struct cordon_http_request *request, const char *data, size_t size, struct cordon_error *err)
{
    struct transfer *transfer = request->finish_context;
    return cordon_guests_write(transfer->live, CORDON_TO_FILE, data, size, err);
}

const struct cordon_http_intake cordon_createos_file_intake = {.begin = begin, .piece = piece};

static int wait_end(struct transfer *transfer, struct cordon_error *err)
{
    struct cordon_stream_event event;
    bool ended = false;
    int r;
    do
        r = cordon_guests_next(transfer->live, -1, &event, &ended, err);
    while (r >= 0 && !ended && !(r > 0 && event.type == CORDON_STREAM_END));
    return r < 0 ? r : 0;
}

int cordon_createos_file_put(struct cordon_http_request *request, struct cordon_error *err)
{
    struct transfer *transfer = request->finish_context;
    struct cordon_buf body = CORDON_BUF_INIT(65536);
    struct cordon_json json = {.buf = &body};
    uint64_t size = 0;
    int r = cordon_guests_control(transfer->live, CORDON_CONTROL_END, CORDON_TO_FILE, err);
    if (r >= 0)
        r = wait_entry(transfer, &size, err);
    if (r >= 0)
        r = wait_end(transfer, err);
    if (r < 0)
        return r;
    cordon_createos_begin(&json);
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "path");
    cordon_json_text(&json, transfer->path);
    cordon_json_key(&json, "size");
    cordon_json_uint(&json, size);
    cordon_json_object_end(&json);
    return cordon_createos_reply(request, &json, err);
}
