/* SPDX-License-Identifier: Apache-2.0 */
/* Commands on CreateOS: a line of JSON for each piece of output, or one answer at the end where a server has no
 * streams. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backend/remote/createos.h"
#include "backend/remote/envelope.h"
#include "base/fd.h"
#include "base/json.h"

static void write_exec(const char *command, bool stream, struct cordon_buf *to)
{
    struct cordon_json json = {.buf = to};
    cordon_json_object_begin(&json);
    cordon_remote_write_shell(&json, command);
    if (stream) {
        cordon_json_key(&json, "stream");
        cordon_json_bool(&json, true);
    }
    cordon_json_object_end(&json);
}

static int open_one(struct cordon_createos_exec *exec, const char *id, const char *command, uint64_t deadline_us,
                    int cancel_fd, struct cordon_error *err)
{
    char path[160];
    struct cordon_buf body = CORDON_BUF_INIT(4u << 20);
    (void)snprintf(path, sizeof path, "/v1/sandboxes/%.79s/exec%s", id,
                   exec->buffered ? "" : "?stream=true"); /* fits */
    write_exec(command, !exec->buffered, &body);
    struct cordon_http_call call = {.method = "POST",
                                    .body = {body.data, body.size},
                                    .answer_max = SIZE_MAX, /* the output's limits are held by whoever reads it */
                                    .deadline_us = deadline_us,
                                    .cancel_fd = cancel_fd};
    int r = body.failed ? cordon_fail_errno(err, -ENOMEM, "CreateOS: starting a process")
                        : cordon_createos_open(&call, path, "application/json", &exec->transfer, err);
    cordon_buf_done(&body);
    return r;
}

static int refuse_open(struct cordon_createos_exec *exec, unsigned status, struct cordon_error *err)
{
    struct cordon_error own = {0};
    struct cordon_buf body = CORDON_BUF_INIT(4096);
    struct cordon_bytes data;
    while (cordon_http_read(exec->transfer, &data, NULL) > 0 && cordon_buf_append(&body, data.data, data.size) == 0)
        continue;
    int r = cordon_remote_refused(&cordon_createos_service, "starting a process", status, &body, &own);
    if (status >= 500 && status != 501) /* it may have started */
        own.kind = CORDON_ERROR_INFRASTRUCTURE;
    if (err)
        *err = own;
    cordon_buf_done(&body);
    return r;
}

int cordon_createos_exec_open(struct cordon_createos_exec *exec, const char *id, const char *command,
                              uint64_t deadline_us, int cancel_fd, unsigned *status, struct cordon_error *err)
{
    cordon_createos_exec_close(exec);
    *status = 0;
    int r = open_one(exec, id, command, deadline_us, cancel_fd, err);
    unsigned told = r == 0 ? cordon_http_status(exec->transfer) : 0;
    exec->streams = exec->streams || (told == 200 && !exec->buffered);
    if (told == 404 && !exec->buffered && !exec->streams) { /* an older server */
        cordon_http_close(CORDON_TAKE(exec->transfer));
        exec->buffered = true;
        r = open_one(exec, id, command, deadline_us, cancel_fd, err);
        told = r == 0 ? cordon_http_status(exec->transfer) : 0;
    }
    if (r < 0 || told == 200)
        return r;
    *status = told;
    return refuse_open(exec, told, err);
}

void cordon_createos_exec_close(struct cordon_createos_exec *exec)
{
    cordon_http_close(CORDON_TAKE(exec->transfer));
    cordon_buf_done(&exec->in);
    cordon_buf_done(&exec->decoded);
    exec->in = CORDON_BUF_INIT(CORDON_ENVELOPE_MAX * 2u);
    exec->decoded = CORDON_BUF_INIT(CORDON_ENVELOPE_MAX);
    exec->in_used = 0;
    exec->ended = false;
    exec->waiting_count = exec->waiting_at = 0;
}

static int fail_stream(struct cordon_error *err, const char *why)
{
    return cordon_fail(err, -EIO, CORDON_ERROR_INFRASTRUCTURE, "CreateOS: %.300s", why);
}

/* Decodes behind what is decoded already. */
static int decode(struct cordon_createos_exec *exec, const struct cordon_value *text, struct cordon_bytes *ret,
                  struct cordon_error *err)
{
    size_t at = exec->decoded.size;
    char *room = text->kind == CORDON_VALUE_STRING ? cordon_buf_reserve(&exec->decoded, text->size) : NULL;
    ssize_t size = room ? cordon_value_string(text, room) : -EBADMSG;
    if (size < 0)
        return fail_stream(err, "the process's output can not be read");
    exec->decoded.size += (size_t)size;
    *ret = (struct cordon_bytes){exec->decoded.data + at, (size_t)size};
    return 0;
}

/* One line of a stream: 1 an output, 0 nothing to tell. */
static int take_line(struct cordon_createos_exec *exec, const char *text, size_t size, struct cordon_remote_output *ret,
                     struct cordon_error *err)
{
    struct cordon_value root, value;
    char why[256];
    int64_t code;
    exec->decoded.size = 0;
    if (!size)
        return 0;
    if (cordon_value_parse(text, size, &root, NULL) < 0)
        return fail_stream(err, "the process's stream can not be read");
    bool out = cordon_value_member(&root, "stdout", &value);
    if (out || cordon_value_member(&root, "stderr", &value)) {
        *ret = (struct cordon_remote_output){.type = out ? CORDON_REMOTE_STDOUT : CORDON_REMOTE_STDERR};
        int r = decode(exec, &value, &ret->data, err);
        return r < 0 ? r : ret->data.size > 0;
    }
    if (cordon_value_text(&root, "error", why, sizeof why))
        return fail_stream(err, why);
    if (!cordon_value_member(&root, "exit_code", &value) || !cordon_value_integer(&value, &code))
        return 0; /* a heartbeat */
    *ret = (struct cordon_remote_output){.type = CORDON_REMOTE_EXIT, .exit_code = (int)code};
    exec->ended = true;
    return 1;
}

/* A buffered exec's whole answer becomes three outputs. */
static int take_buffered(struct cordon_createos_exec *exec, struct cordon_error *err)
{
    struct cordon_value root, data, result, value;
    int64_t code = 0;
    char why[256] = "";
    exec->decoded.max = exec->in.size * 2 + 1;
    struct cordon_remote_output *to = exec->waiting;
    if (cordon_value_parse(exec->in.data ? exec->in.data : "", exec->in.size, &root, NULL) < 0 ||
        !cordon_value_member(&root, "data", &data) || !cordon_value_member(&data, "result", &result) ||
        !cordon_value_member(&result, "exit_code", &value) || !cordon_value_integer(&value, &code))
        return fail_stream(err, "the answer to a process can not be read");
    if (cordon_value_text(&result, "error", why, sizeof why) && *why)
        return fail_stream(err, why);
    if (!cordon_buf_reserve(&exec->decoded, exec->in.size)) /* what points into it must not move */
        return fail_stream(err, "no memory for a process's output");
    for (int i = 0; i < 2; i++) {
        if (!cordon_value_member(&result, i ? "stderr" : "stdout", &value))
            continue;
        to->type = i ? CORDON_REMOTE_STDERR : CORDON_REMOTE_STDOUT;
        if (decode(exec, &value, &to->data, err) < 0)
            return -EIO;
        to += to->data.size > 0;
    }
    *to++ = (struct cordon_remote_output){.type = CORDON_REMOTE_EXIT, .exit_code = (int)code};
    exec->waiting_count = (size_t)(to - exec->waiting);
    return 0;
}

static int next_buffered(struct cordon_createos_exec *exec, struct cordon_remote_output *ret, struct cordon_error *err)
{
    struct cordon_bytes data;
    int r = 0;
    while (!exec->waiting_count && (r = cordon_http_read(exec->transfer, &data, err)) > 0)
        if (cordon_buf_append(&exec->in, data.data, data.size) < 0)
            return fail_stream(err, "the answer to a process is too large");
    if (r == 0 && !exec->waiting_count)
        r = take_buffered(exec, err);
    if (r < 0)
        return r;
    if (exec->waiting_at == exec->waiting_count)
        return 0;
    *ret = exec->waiting[exec->waiting_at++];
    return 1;
}

int cordon_createos_exec_next(struct cordon_createos_exec *exec, uint64_t deadline_us, struct cordon_remote_output *ret,
                              struct cordon_error *err)
{
    cordon_http_extend(exec->transfer, deadline_us);
    if (exec->buffered)
        return next_buffered(exec, ret, err);
    for (;;) {
        const char *text;
        size_t size;
        struct cordon_bytes data;
        cordon_buf_consume(&exec->in, exec->in_used);
        exec->in_used = 0;
        if (exec->ended)
            return 0;
        int r = cordon_line_next(&exec->in, &text, &size, &exec->in_used);
        if (r < 0)
            return fail_stream(err, "a line of the process's stream is too long");
        if (r > 0) {
            r = take_line(exec, text, size, ret, err);
            if (r != 0)
                return r;
            continue;
        }
        r = cordon_http_read(exec->transfer, &data, err);
        if (r < 0)
            return r;
        if (r == 0)
            return fail_stream(err, "the process's stream ended before the process");
        if (cordon_buf_append(&exec->in, data.data, data.size) < 0)
            return fail_stream(err, "a line of the process's stream is too long");
    }
}
