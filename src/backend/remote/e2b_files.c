/* SPDX-License-Identifier: Apache-2.0 */
/* Files in kept guests on E2B. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "backend/remote/e2b_stream.h"
#include "base/clock.h"
#include "base/json.h"

int cordon_e2b_entries_open(struct cordon_stream *stream, const char *method, const struct cordon_operation *operation,
                            bool safe, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(16384);
    struct cordon_json json = {.buf = &body};
    struct cordon_http_answer answer;
    bool move = operation->kind == CORDON_OP_MOVE;
    char path[64];
    cordon_json_object_begin(&json);
    cordon_json_key(&json, move ? "source" : "path");
    cordon_json_text(&json, operation->path);
    if (move) {
        cordon_json_key(&json, "destination");
        cordon_json_text(&json, operation->target);
    }
    if (operation->kind == CORDON_OP_LIST) {
        cordon_json_key(&json, "depth");
        cordon_json_uint(&json, operation->depth ? operation->depth : 1);
    }
    cordon_json_object_end(&json);
    (void)snprintf(path, sizeof path, CORDON_E2B_FILESYSTEM "%s", method); /* fits */
    int r = cordon_e2b_unary(stream, path, &body, safe, &answer, err);
    cordon_buf_done(&body);
    cordon_buf_done(&stream->answer);
    stream->answer = answer.body;
    stream->left = operation->entries ? operation->entries : 10000;
    struct cordon_value root, entries = {.kind = CORDON_VALUE_ARRAY, .data = "[]", .size = 2};
    if (r == 0 &&
        cordon_value_parse(stream->answer.data ? stream->answer.data : "", stream->answer.size, &root, NULL) < 0)
        return cordon_e2b_unreadable(stream, err);
    if (r == 0 && operation->kind == CORDON_OP_LIST)
        (void)cordon_value_member(&root, "entries", &entries); /* absent: there are none */
    else if (r == 0)
        entries = root; /* {"entry":{…}}: a walk of one */
    if (r == 0)
        stream->walk = cordon_value_walk(&entries);
    return r;
}

int cordon_e2b_entries_next(struct cordon_stream *stream, struct cordon_stream_event *event, struct cordon_error *err)
{
    struct cordon_value key, item;
    while (stream->walk.p && cordon_value_next(&stream->walk, &key, &item)) {
        if (cordon_e2b_entry_read(&stream->entry, &item) < 0)
            continue;
        if (!stream->left--)
            return cordon_fail(err, -E2BIG, CORDON_ERROR_TOO_LARGE, "%s: there are more entries than were asked for",
                               CORDON_E2B_TITLE(stream));
        *event = (struct cordon_stream_event){.type = CORDON_STREAM_ENTRY, .entry = &stream->entry.entry};
        return 1;
    }
    stream->ended = true;
    *event = (struct cordon_stream_event){.type = CORDON_STREAM_END};
    return 1;
}

/* The entry first: it tells whether it is a file at all. */
int cordon_e2b_read_open(struct cordon_stream *stream, const struct cordon_operation *operation,
                         struct cordon_error *err)
{
    char url[CORDON_E2B_URL], target[CORDON_E2B_URL];
    struct cordon_remote_headers headers;
    struct cordon_stream_event event;
    int r = cordon_e2b_entries_open(stream, "Stat", operation, true, err);
    if (r == 0 && (cordon_e2b_entries_next(stream, &event, err) != 1 || event.type != CORDON_STREAM_ENTRY))
        r = cordon_e2b_unreadable(stream, err);
    if (r == 0 && stream->entry.entry.type == CORDON_FILE_DIRECTORY)
        r = cordon_fail(err, -EISDIR, CORDON_ERROR_INVALID, "%.200s is a directory", operation->path);
    if (r == 0)
        r = cordon_e2b_file_path(stream->guest->kind, stream->root ? "root" : "user", operation->path, target, err);
    if (r < 0)
        return r;
    struct cordon_e2b_box box = cordon_e2b_guest_box(stream->guest, stream->root);
    struct cordon_http_call call =
        cordon_e2b_envd_call(stream->guest->kind, &box, "GET", target, "application/octet-stream", url, &headers);
    call.answer_max = SIZE_MAX; /* it is passed on as it comes */
    call.deadline_us = cordon_now_us() + CORDON_E2B_CALL_US;
    call.cancel_fd = stream->cancel_fd;
    stream->range = (struct cordon_remote_range){operation->offset, operation->size ? operation->size : UINT64_MAX};
    r = cordon_http_open(&call, &stream->transfer, err);
    explicit_bzero(&box, sizeof box);
    if (r == 0 && cordon_http_status(stream->transfer) != 200) {
        struct cordon_http_answer none = {.status = cordon_http_status(stream->transfer)};
        r = cordon_e2b_fail(stream->guest, "reading a file", &none, err);
    }
    return r;
}

int cordon_e2b_read_next(struct cordon_stream *stream, int timeout_ms, struct cordon_stream_event *event,
                         struct cordon_error *err)
{
    bool ended;
    struct cordon_bytes data;
    if (!stream->entry_told) {
        stream->entry_told = true;
        *event = (struct cordon_stream_event){.type = CORDON_STREAM_ENTRY, .entry = &stream->entry.entry};
        return 1;
    }
    int r =
        cordon_remote_range_next(stream->transfer, &stream->range, timeout_ms, CORDON_E2B_CALL_US, &data, &ended, err);
    if (r > 0)
        *event = (struct cordon_stream_event){.type = CORDON_STREAM_DATA, .data = data};
    if (!ended)
        return r;
    stream->ended = true;
    *event = (struct cordon_stream_event){.type = CORDON_STREAM_END};
    return 1;
}

int cordon_e2b_write_end(struct cordon_stream *stream, struct cordon_error *err)
{
    char url[CORDON_E2B_URL], target[CORDON_E2B_URL], type[128], boundary[32];
    struct cordon_remote_headers headers;
    struct cordon_http_answer answer = {0};
    int r = cordon_e2b_file_path(stream->guest->kind, stream->root ? "root" : "user", stream->path, target, err);
    if (r == 0)
        r = cordon_remote_hold(&stream->held, stream->in.size, err); /* it is copied into the message */
    if (r < 0)
        return r;
    uint64_t random = stream->opened_us; /* never needed, on kernels that we run on */
    (void)!getrandom(&random, sizeof random, 0);
    (void)snprintf(boundary, sizeof boundary, "%016llx", (unsigned long long)random);       /* fits */
    (void)snprintf(type, sizeof type, "multipart/form-data; boundary=cordon-%s", boundary); /* fits */
    struct cordon_e2b_box box = cordon_e2b_guest_box(stream->guest, stream->root);
    struct cordon_http_call call = cordon_e2b_envd_call(stream->guest->kind, &box, "POST", target, type, url, &headers);
    call.deadline_us = cordon_now_us() + 3 * CORDON_E2B_CALL_US;
    call.cancel_fd = stream->cancel_fd;
    r = cordon_e2b_upload(stream->guest->kind, &call, boundary, (struct cordon_bytes){stream->in.data, stream->in.size},
                          &answer, err);
    explicit_bzero(&box, sizeof box);
    if (r == 0 && answer.status != 200)
        r = cordon_e2b_fail(stream->guest, "writing a file", &answer, err);
    cordon_buf_done(&answer.body);
    cordon_buf_done(&stream->in);
    cordon_remote_let_go(&stream->held);
    const struct cordon_operation stat = {.kind = CORDON_OP_STAT, .path = stream->path};
    return r == 0 ? cordon_e2b_entries_open(stream, "Stat", &stat, true, err) : r;
}
