/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands: one answer at the end, or a line a frame as it happens, with a heartbeat where nothing does. A command
 * lives no longer than its request: a client that leaves ends it, at once.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "door/createos/createos.h"

#define HEARTBEAT_MS 5000
#define KILLED 137

struct exec {
    struct cordon_door_memory memory;
    struct cordon_live_stream *live;
    struct cordon_error refused; /* kind set: the guest could not start the command, and says why */
    bool stream, ended;
    uint64_t began_us;
    char carry[2][4]; /* of stdout and stderr: the start of a character whose end comes with the next piece */
    size_t carried[2];
};

static void free_exec(void *context)
{
    struct exec *exec = context;
    cordon_guests_close(exec->live);
    cordon_door_forget(&exec->memory);
    free(exec);
}

/* No variables and no input: a client that believes to have given some must not go on believing it. */
static int refuse_absent(const struct cordon_value *body, struct cordon_error *err)
{
    static const char *const names[] = {"env", "envs", "environment", "stdin", "cwd"};
    struct cordon_value value;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (cordon_field(body, names[i], &value))
            return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                               "%s is not part of a command here: a sandbox's variables are given when it is made",
                               names[i]);
    return 0;
}

static int read_command(const struct cordon_value *body, struct exec *exec, struct cordon_operation *operation,
                        struct cordon_error *err)
{
    struct cordon_texts args = {0};
    const char *cmd = "";
    int r = refuse_absent(body, err);
    if (r == 0)
        r = cordon_field_text(body, "cmd", &exec->memory, &cmd, err);
    if (r >= 0)
        r = cordon_field_texts(body, "args", &exec->memory, &args, err);
    if (r >= 0)
        r = cordon_field_bool(body, "stream", &exec->stream, err);
    if (r < 0)
        return r;
    if (!*cmd)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "cmd is missing: a program's name is needed");
    const char **argv = cordon_door_take(&exec->memory, (args.count + 2) * sizeof *argv);
    if (!argv)
        return cordon_fail_errno(err, -ENOMEM, "reading the command");
    argv[0] = cmd;
    if (args.count)
        memcpy(argv + 1, args.items, args.count * sizeof *argv);
    operation->argv = argv;
    operation->argc = args.count + 1;
    return 0;
}

/* The number that a shell would tell. */
static int exit_number(const struct cordon_exec_exit *exit)
{
    switch (exit->cause) {
    case CORDON_CAUSE_EXITED:
        return exit->exit_code;
    case CORDON_CAUSE_SIGNALLED:
        return 128 + exit->signal;
    default:
        return KILLED;
    }
}

/* A piece of a stream as text: whole characters only. */
static void tell_text(struct exec *exec, size_t which, struct cordon_bytes data, struct cordon_buf *to)
{
    struct cordon_buf text = CORDON_BUF_INIT(SIZE_MAX / 2);
    (void)cordon_buf_append(&text, exec->carry[which], exec->carried[which]); /* sticky in text.failed */
    (void)cordon_buf_append(&text, data.data, data.size);
    size_t whole = text.failed ? 0 : cordon_utf8_complete(text.data, text.size);
    exec->carried[which] = text.failed ? 0 : text.size - whole;
    memcpy(exec->carry[which], text.data ? text.data + whole : "", exec->carried[which]);
    if (whole) {
        (void)cordon_buf_appends(to, which ? "{\"stderr\":" : "{\"stdout\":");
        cordon_json_string(to, text.data, whole);
        (void)cordon_buf_appends(to, "}\n");
    }
    to->failed = to->failed || text.failed;
    cordon_buf_done(&text);
}

static void tell_rest(struct exec *exec, struct cordon_buf *to)
{
    for (size_t which = 0; which < 2; which++) {
        if (!exec->carried[which])
            continue;
        (void)cordon_buf_appends(to, which ? "{\"stderr\":" : "{\"stdout\":");
        cordon_json_string(to, exec->carry[which], exec->carried[which]);
        (void)cordon_buf_appends(to, "}\n");
    }
}

static void tell_error(const char *message, struct cordon_buf *to)
{
    (void)cordon_buf_appends(to, "{\"error\":"); /* sticky, as all of these */
    cordon_json_string(to, message, strlen(message));
    (void)cordon_buf_appends(to, "}\n");
}

static void tell_exit(struct exec *exec, const struct cordon_exec_exit *exit, struct cordon_buf *to)
{
    tell_rest(exec, to);
    if (exit->cause == CORDON_CAUSE_INFRASTRUCTURE || exit->cause == CORDON_CAUSE_UNAVAILABLE)
        tell_error(exit->message, to);
    else
        (void)cordon_buf_appendf(to, "{\"exit_code\":%d}\n", exit_number(exit));
}

static int next_frame(void *context, struct cordon_buf *out)
{
    struct exec *exec = context;
    struct cordon_stream_event event;
    struct cordon_error err = {0};
    bool ended = false;
    if (exec->ended)
        return 0;
    if (exec->refused.kind) {
        tell_error(exec->refused.message, out);
        exec->ended = true;
        return 1;
    }
    int r = cordon_guests_next(exec->live, HEARTBEAT_MS, &event, &ended, &err);
    if (r == -ECANCELED)
        return r;
    if (r == 0 && !ended) {
        (void)cordon_buf_appends(out, "{\"hb\":true}\n");
        return 1;
    }
    exec->ended = r <= 0 || event.type == CORDON_STREAM_EXIT;
    if (r < 0)
        tell_error(err.message, out);
    else if (r == 0)
        tell_error("the command's stream ended without its exit code", out);
    else if (event.type == CORDON_STREAM_STDOUT || event.type == CORDON_STREAM_STDERR)
        tell_text(exec, event.type == CORDON_STREAM_STDERR, event.data, out);
    else if (event.type == CORDON_STREAM_EXIT)
        tell_exit(exec, event.exit, out);
    return 1;
}

static const struct cordon_http_stream frames = {.next = next_frame, .close = free_exec};

/* The whole of a command's output, as much as is kept. */
struct outcome {
    struct cordon_buf streams[2];
    size_t keep[2];
    bool cut[2];
    bool started, exited;
    struct cordon_exec_exit exit;
    struct cordon_error error;
};

static void keep_data(struct outcome *outcome, size_t which, struct cordon_bytes data)
{
    struct cordon_buf *to = &outcome->streams[which];
    size_t room = outcome->keep[which] - to->size;
    size_t size = data.size < room ? data.size : room;
    outcome->cut[which] = outcome->cut[which] || size < data.size;
    (void)cordon_buf_append(to, data.data, size); /* sticky, seen when the answer is written */
}

static int collect(struct exec *exec, struct outcome *outcome, struct cordon_error *err)
{
    struct cordon_stream_event event;
    bool ended = false;
    while (!ended && !outcome->exited) {
        int r = cordon_guests_next(exec->live, -1, &event, &ended, err);
        if (r < 0)
            return r;
        if (r == 0)
            continue;
        if (event.type == CORDON_STREAM_STARTED)
            outcome->started = true;
        else if (event.type == CORDON_STREAM_STDOUT || event.type == CORDON_STREAM_STDERR)
            keep_data(outcome, event.type == CORDON_STREAM_STDERR, event.data);
        else if (event.type == CORDON_STREAM_EXIT) {
            outcome->exit = *event.exit;
            outcome->exited = true;
        }
    }
    return outcome->exited ? 0
                           : cordon_fail(err, -EIO, CORDON_ERROR_INFRASTRUCTURE,
                                         "the command's stream ended without its exit code");
}

static void write_stream(struct cordon_json *json, const char *name, const struct cordon_buf *data)
{
    cordon_json_key(json, name);
    cordon_json_bytes(json, data->data ? data->data : "", data->size);
}

static int reply_outcome(struct cordon_http_request *request, const struct exec *exec, const struct outcome *outcome,
                         struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(SIZE_MAX / 2); /* bounded by what is kept */
    struct cordon_json json = {.buf = &body};
    cordon_createos_begin(&json);
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "result");
    cordon_json_object_begin(&json);
    write_stream(&json, "stdout", &outcome->streams[0]);
    write_stream(&json, "stderr", &outcome->streams[1]);
    cordon_json_key(&json, "exit_code");
    cordon_json_int(&json, outcome->exited ? exit_number(&outcome->exit) : -1);
    const char *why = outcome->exited ? outcome->exit.message : outcome->error.message;
    if (*why) {
        cordon_json_key(&json, "error");
        cordon_json_text(&json, why);
    }
    if (outcome->cut[0] || outcome->cut[1]) {
        cordon_json_key(&json, "truncated");
        cordon_json_bool(&json, true);
    }
    cordon_json_object_end(&json);
    cordon_json_key(&json, "exec_ms");
    cordon_json_uint(&json, (cordon_now_us() - exec->began_us) / 1000);
    cordon_json_object_end(&json);
    body.failed = body.failed || outcome->streams[0].failed || outcome->streams[1].failed;
    return cordon_createos_reply(request, &json, err);
}

/* What the guest says of a command that can't be started is the command's own outcome. */
static bool is_commands_fault(const struct cordon_error *err)
{
    return err->kind == CORDON_ERROR_NOT_FOUND || err->kind == CORDON_ERROR_FORBIDDEN ||
           (err->kind == CORDON_ERROR_INVALID && err->code != -EINVAL);
}

static int reply_whole(struct cordon_http_request *request, struct exec *exec, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    struct outcome outcome = {.streams = {CORDON_BUF_INIT(SIZE_MAX / 2), CORDON_BUF_INIT(SIZE_MAX / 2)}};
    outcome.keep[0] = (size_t)cordon_settings_int(doors->settings, CORDON_DOOR_CREATEOS, CORDON_SET_STDOUT_KB) << 10;
    outcome.keep[1] = (size_t)cordon_settings_int(doors->settings, CORDON_DOOR_CREATEOS, CORDON_SET_STDERR_KB) << 10;
    int r = 0;
    if (exec->refused.kind)
        outcome.error = exec->refused;
    else
        r = collect(exec, &outcome, &outcome.error);
    if (r < 0 && (outcome.started || !is_commands_fault(&outcome.error)))
        *err = outcome.error;
    else
        r = reply_outcome(request, exec, &outcome, err);
    cordon_buf_done(&outcome.streams[0]);
    cordon_buf_done(&outcome.streams[1]);
    return r;
}

static bool asks_stream(const struct cordon_http_request *request)
{
    char text[8];
    return cordon_http_query(request, "stream", text, sizeof text) > 0 &&
           (strcmp(text, "true") == 0 || strcmp(text, "1") == 0);
}

static int open_exec(struct cordon_http_request *request, const struct cordon_guest_info *guest, struct exec *exec,
                     struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    struct cordon_operation operation = {
        .struct_size = sizeof operation,
        .kind = CORDON_OP_EXEC,
        .user = CORDON_CREATEOS_USER,
        .kill_on_close = true,
        .cancel_fd = request->fd,
        .timeout_ms =
            (uint64_t)cordon_settings_int(doors->settings, CORDON_DOOR_CREATEOS, CORDON_SET_CREATEOS_EXEC_S) * 1000,
    };
    struct cordon_value body;
    exec->stream = asks_stream(request);
    exec->began_us = cordon_now_us();
    int r = cordon_fields_parse(&request->body, &body, err);
    if (r == 0)
        r = read_command(&body, exec, &operation, err);
    if (r < 0)
        return r;
    r = cordon_guests_open(request->subject, guest->id, &operation, &exec->live, &exec->refused);
    if (r < 0 && !is_commands_fault(&exec->refused)) {
        *err = exec->refused;
        return r;
    }
    return 0;
}

static int run_exec(struct cordon_http_request *request, struct exec *exec, struct cordon_error *err)
{
    struct cordon_guest_info *guest;
    int r = cordon_createos_find(request, true, &guest, err);
    if (r < 0)
        return r;
    r = open_exec(request, guest, exec, err);
    cordon_guest_info_free(guest);
    return r;
}

int cordon_createos_exec(struct cordon_http_request *request, struct cordon_error *err)
{
    struct exec *exec = calloc(1, sizeof *exec);
    if (!exec)
        return cordon_fail_errno(err, -ENOMEM, "starting a command");
    int r = run_exec(request, exec, err);
    if (r == 0 && exec->stream) {
        r = cordon_http_reply_stream(request, "application/x-ndjson", &frames, exec);
        return r < 0 ? cordon_fail_errno(err, r, "answering a command") : 0;
    }
    if (r == 0)
        r = reply_whole(request, exec, err);
    free_exec(exec);
    return r;
}
