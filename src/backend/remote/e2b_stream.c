/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations in kept guests on E2B. Programs are Connect streams of envd's process service; files are its filesystem
 * service and /files. What is written to a file is sent whole when its end comes.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/remote/e2b_stream.h"
#include "base/clock.h"
#include "base/fd.h"

#define ANSWER_MAX (16u << 20)
#define FILE_MAX (128u << 20)

/* --- unary calls of envd --- */

/* What Connect's codes are in the words of the interface. */
int cordon_e2b_fail(struct cordon_guest_handle *guest, const char *what, const struct cordon_http_answer *answer,
                    struct cordon_error *err)
{
    static const struct {
        const char *code;
        int number;
        enum cordon_error_kind kind;
    } codes[] = {{"not_found", -ENOENT, CORDON_ERROR_NOT_FOUND},
                 {"already_exists", -EEXIST, CORDON_ERROR_CONFLICT},
                 {"permission_denied", -EACCES, CORDON_ERROR_FORBIDDEN},
                 {"invalid_argument", -EINVAL, CORDON_ERROR_INVALID},
                 {"failed_precondition", -EINVAL, CORDON_ERROR_INVALID},
                 {"resource_exhausted", -ENOSPC, CORDON_ERROR_TOO_LARGE}};
    struct cordon_value root;
    char code[64] = "", message[200] = "";
    const char *text = answer->body.data ? answer->body.data : "";
    if (cordon_remote_kept_condition(&guest->kept) == CORDON_GUEST_IS_GONE || answer->status == 502)
        return cordon_fail(err, -ENOENT, CORDON_ERROR_GONE, "%s: the sandbox is no more (%s)",
                           guest->kind->service->title, what);
    if (cordon_value_parse(text, answer->body.size, &root, NULL) == 0) {
        (void)cordon_value_text(&root, "code", code, sizeof code);
        (void)cordon_value_text(&root, "message", message, sizeof message);
    }
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (strcmp(codes[i].code, code) == 0)
            return cordon_fail(err, codes[i].number, codes[i].kind, "%s: %s", what, message);
    if (answer->status == 404)
        return cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND, "%s: not found", what);
    return cordon_remote_refused(guest->kind->service, what, answer->status, &answer->body, err);
}

int cordon_e2b_unary(const struct cordon_stream *stream, const char *path, const struct cordon_buf *body, bool safe,
                     struct cordon_http_answer *answer, struct cordon_error *err)
{
    char url[CORDON_E2B_URL];
    struct cordon_remote_headers headers;
    struct cordon_e2b_box box = cordon_e2b_guest_box(stream->guest, stream->root);
    struct cordon_http_call call =
        cordon_e2b_envd_call(stream->guest->kind, &box, "POST", path, "application/json", url, &headers);
    cordon_remote_add(&headers, "Connect-Protocol-Version", "1");
    call.body = (struct cordon_bytes){body->data, body->size};
    call.deadline_us = cordon_now_us() + CORDON_E2B_CALL_US;
    call.answer_max = ANSWER_MAX;
    call.cancel_fd = stream->cancel_fd;
    call.retry = safe ? CORDON_HTTP_RETRY_SAFE : CORDON_HTTP_RETRY_NEVER;
    *answer = (struct cordon_http_answer){0};
    int r = body->failed ? cordon_fail_errno(err, -ENOMEM, "%s: %s", CORDON_E2B_TITLE(stream), path)
                         : cordon_http_exchange(&call, answer, err);
    explicit_bzero(&box, sizeof box);
    explicit_bzero(&headers, sizeof headers);
    return r == 0 && answer->status != 200 ? cordon_e2b_fail(stream->guest, strrchr(path, '/') + 1, answer, err) : r;
}

int cordon_e2b_unreadable(const struct cordon_stream *stream, struct cordon_error *err)
{
    return cordon_fail(err, -EBADMSG, CORDON_ERROR_INFRASTRUCTURE, "%s: the program's stream can not be read",
                       CORDON_E2B_TITLE(stream));
}

/* --- the operations --- */

int cordon_e2b_stream_open(struct cordon_guest_handle *guest, const struct cordon_operation *operation,
                           struct cordon_stream **ret, struct cordon_error *err)
{
    static const struct {
        enum cordon_operation_kind kind;
        const char *method;
        bool safe;
    } methods[] = {{CORDON_OP_STAT, "Stat", true},
                   {CORDON_OP_LIST, "ListDir", true},
                   {CORDON_OP_MKDIR, "MakeDir", false},
                   {CORDON_OP_MOVE, "Move", false},
                   {CORDON_OP_REMOVE, "Remove", true}};
    struct cordon_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return cordon_fail_errno(err, -ENOMEM, "%s: using a guest", guest->kind->service->title);
    stream->guest = guest;
    stream->kind = operation->kind;
    stream->cancel_fd = operation->cancel_fd;
    stream->root = operation->user && strcmp(operation->user, "root") == 0;
    int r = -EOPNOTSUPP;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (methods[i].kind == operation->kind)
            r = cordon_e2b_entries_open(stream, methods[i].method, operation, methods[i].safe, err);
    if (operation->kind == CORDON_OP_EXEC || operation->kind == CORDON_OP_ATTACH)
        r = cordon_e2b_program_open(stream, operation, err);
    else if (operation->kind == CORDON_OP_READ)
        r = cordon_e2b_read_open(stream, operation, err);
    else if (operation->kind == CORDON_OP_WRITE)
        r = snprintf(stream->path, sizeof stream->path, "%s", operation->path) < (int)sizeof stream->path
                ? 0
                : cordon_fail_errno(err, -ENAMETOOLONG, "%s: a path", CORDON_E2B_TITLE(stream));
    else if (r == -EOPNOTSUPP)
        r = cordon_fail(err, r, CORDON_ERROR_UNSUPPORTED, "the backend %s does not offer that of guests",
                        guest->kind->service->name);
    uint64_t most = operation->size && operation->size < FILE_MAX ? operation->size : FILE_MAX;
    if (operation->kind == CORDON_OP_WRITE)
        stream->in = CORDON_BUF_INIT(most);
    if (r == 0)
        *ret = stream;
    else
        cordon_e2b_stream_close(stream);
    return r;
}

int cordon_e2b_stream_next(struct cordon_stream *stream, int timeout_ms, struct cordon_stream_event *event,
                           struct cordon_error *err)
{
    if (stream->ended)
        return 0;
    if (stream->kind == CORDON_OP_EXEC || stream->kind == CORDON_OP_ATTACH)
        return cordon_e2b_program_next(stream, timeout_ms, event, err);
    return stream->kind == CORDON_OP_READ ? cordon_e2b_read_next(stream, timeout_ms, event, err)
                                          : cordon_e2b_entries_next(stream, event, err);
}

int cordon_e2b_stream_write(struct cordon_stream *stream, enum cordon_stream_to to, const void *data, size_t size,
                            struct cordon_error *err)
{
    if (to == CORDON_TO_STDIN && stream->pid)
        return cordon_e2b_program_write(stream, data, size, err);
    if (to != CORDON_TO_FILE || stream->kind != CORDON_OP_WRITE)
        return cordon_fail(err, -EPIPE, CORDON_ERROR_INVALID, "this stream takes nothing in");
    return cordon_remote_upload_add(&stream->in, &stream->held, data, size, err);
}

int cordon_e2b_stream_control(struct cordon_stream *stream, enum cordon_control control, uint32_t value,
                              struct cordon_error *err)
{
    if (control == CORDON_CONTROL_END && value == CORDON_TO_FILE && stream->kind == CORDON_OP_WRITE)
        return cordon_e2b_write_end(stream, err);
    if (stream->pid)
        return cordon_e2b_program_control(stream, control, value, err);
    return cordon_fail(err, -ESRCH, CORDON_ERROR_INVALID, "this stream is that of no program");
}

void cordon_e2b_stream_close(struct cordon_stream *stream)
{
    if (!stream)
        return;
    if (stream->kill_on_close && stream->pid && !stream->ended) {
        stream->cancel_fd = -1; /* also when its client has left */
        (void)cordon_e2b_program_control(stream, CORDON_CONTROL_SIGNAL, SIGKILL,
                                         NULL); /* else its end is the guest's */
    }
    cordon_http_close(stream->transfer);
    cordon_buf_done(&stream->in);
    cordon_buf_done(&stream->decoded);
    cordon_buf_done(&stream->answer);
    cordon_remote_let_go(&stream->held);
    free(stream);
}
