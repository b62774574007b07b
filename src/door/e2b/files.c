/* SPDX-License-Identifier: Apache-2.0 */
/* envd's /files by GET, and /files/compose. Uploads: upload.c. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "door/e2b/envd.h"
#include "door/e2b/upload.h"

/* What a Range header asks for. */
struct range {
    bool asked, suffix;
    uint64_t first, size; /* size 0: to the end. suffix: size is how much of the end */
};

/* One range of bytes; what is anything else is passed over, as if it was not there (RFC 9110). */
static struct range read_range(const char *text)
{
    struct range range = {0};
    uint64_t first = 0, last = 0;
    int end = 0;
    if (!text || strncmp(text, "bytes=", 6) != 0 || strspn(text + 6, "0123456789-") != strlen(text + 6) ||
        strlen(text) > 48)
        return range;
    if (sscanf(text + 6, "-%" SCNu64 "%n", &last, &end) == 1 && !text[6 + end])
        return (struct range){.asked = true, .suffix = true, .size = last};
    if (sscanf(text + 6, "%" SCNu64 "-%" SCNu64 "%n", &first, &last, &end) == 2 && !text[6 + end] && last >= first)
        return (struct range){.asked = true, .first = first, .size = last - first + 1};
    end = 0;
    if (sscanf(text + 6, "%" SCNu64 "-%n", &first, &end) == 1 && end && !text[6 + end])
        return (struct range){.asked = true, .first = first};
    return range;
}

struct download {
    struct cordon_live_stream *live;
    uint64_t left; /* of what was announced */
};

static void close_download(void *context)
{
    struct download *download = context;
    cordon_guests_close(download->live);
    free(download);
}

/* A file that became shorter meanwhile breaks the answer off: its end must not look like a whole one. */
static int next_data(void *context, struct cordon_buf *out)
{
    struct download *download = context;
    struct cordon_stream_event event;
    bool ended = false;
    if (!download->left)
        return 0;
    int r = cordon_guests_next(download->live, -1, &event, &ended, NULL);
    if (r < 0 || ended || (r > 0 && event.type == CORDON_STREAM_END))
        return -EIO;
    if (r == 0 || event.type != CORDON_STREAM_DATA)
        return 1;
    size_t size = event.data.size < download->left ? event.data.size : (size_t)download->left;
    download->left -= size;
    return cordon_buf_append(out, event.data.data, size) < 0 ? -ENOMEM : 1;
}

static void note_size(void *context, const struct cordon_file_entry *entry)
{
    *(uint64_t *)context = entry->size;
}

/* The end of a file: where it starts is known only with its size. */
static int resolve_suffix(const struct cordon_guest_info *guest, const struct cordon_operation *read,
                          struct range *range, struct cordon_error *err)
{
    struct cordon_operation stat = *read;
    uint64_t size = 0;
    stat.kind = CORDON_OP_STAT;
    int r = cordon_guests_file(guest->tenant, guest->id, &stat, note_size, &size, err);
    range->first = size > range->size ? size - range->size : 0;
    return r < 0 ? r : 0;
}

/* The first event is the file's entry. */
static int wait_entry(struct cordon_live_stream *live, uint64_t *ret_size, struct cordon_error *err)
{
    struct cordon_stream_event event;
    bool ended = false;
    for (;;) {
        int r = cordon_guests_next(live, -1, &event, &ended, err);
        if (r < 0)
            return r;
        if (r > 0 && event.type == CORDON_STREAM_ENTRY) {
            *ret_size = event.entry->size;
            return 0;
        }
        if (ended)
            return cordon_fail(err, -EIO, CORDON_ERROR_INFRASTRUCTURE, "the file could not be read");
    }
}

static int reply_unsatisfiable(struct cordon_http_request *request, uint64_t size, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(1);
    char text[48];
    (void)snprintf(text, sizeof text, "bytes */%" PRIu64, size); /* fits */
    cordon_http_reply_header(request, "Content-Range", text);
    int r = cordon_http_reply(request, 416, "application/json", &body);
    return r < 0 ? cordon_fail_errno(err, r, "writing the answer to /files") : 0;
}

static int reply_file(struct cordon_http_request *request, struct download *download, const struct range *range,
                      uint64_t size, struct cordon_error *err)
{
    static const struct cordon_http_stream stream = {.next = next_data, .close = close_download};
    uint64_t rest = size > range->first ? size - range->first : 0;
    cordon_e2b_cors(request);
    cordon_http_reply_header(request, "Accept-Ranges", "bytes");
    if (range->asked && !rest) {
        int r = reply_unsatisfiable(request, size, err);
        close_download(download);
        return r;
    }
    download->left = range->asked && range->size && range->size < rest ? range->size : rest;
    if (range->asked) {
        char text[80];
        (void)snprintf(text, sizeof text, "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, range->first,
                       range->first + download->left - 1, size); /* fits */
        cordon_http_reply_header(request, "Content-Range", text);
    }
    int r = cordon_http_reply_stream_as(request, range->asked ? 206 : 200, "application/octet-stream", download->left,
                                        &stream, download);
    return r < 0 ? cordon_fail_errno(err, r, "sending the file") : 0;
}

int cordon_e2b_files_get(struct cordon_http_request *request, struct cordon_error *err)
{
    const struct cordon_guest_info *guest = cordon_e2b_visit(request)->guest;
    struct range range = read_range(cordon_http_header(request, "Range"));
    struct cordon_operation operation = {
        .struct_size = sizeof operation, .kind = CORDON_OP_READ, .cancel_fd = request->fd};
    char path[CORDON_E2B_PATH_ROOM];
    uint64_t size = 0;
    int r = cordon_e2b_files_query(request, path, &operation, err);
    if (r == 0 && range.suffix)
        r = resolve_suffix(guest, &operation, &range, err);
    if (r < 0)
        return r;
    operation.offset = range.first;
    operation.size = range.suffix ? 0 : range.size;
    struct download *download = calloc(1, sizeof *download);
    if (!download)
        return cordon_fail_errno(err, -ENOMEM, "sending the file");
    r = cordon_guests_open(guest->tenant, guest->id, &operation, &download->live, err);
    if (r == 0)
        r = wait_entry(download->live, &size, err);
    if (r < 0) {
        close_download(download);
        return r;
    }
    return reply_file(request, download, &range, size, err);
}
