/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs in kept guests on E2B. A program's first word, its pid, is awaited when it is opened, so that it can be
 * written to and signalled from then on.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/remote/e2b_stream.h"
#include "backend/remote/envelope.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"

#define START_US 30000000u
#define SLICE_US 500000u /* between two looks at whether the guest is gone, while a stream waits */
#define BACKSTOP_MS 5000
#define INPUT_MAX (256u << 10) /* of one message */

/* --- calls about one --- */

/* {"process":{"pid":…} begun; the caller adds what else there is. */
static void begin_process(struct cordon_json *json, uint32_t pid)
{
    cordon_json_object_begin(json);
    cordon_json_key(json, "process");
    cordon_json_object_begin(json);
    cordon_json_key(json, "pid");
    cordon_json_uint(json, pid);
    cordon_json_object_end(json);
}

static int about_process(const struct cordon_stream *stream, const char *path, const char *key, const char *value,
                         struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(1024);
    struct cordon_json json = {.buf = &body};
    struct cordon_http_answer answer;
    begin_process(&json, stream->pid);
    if (key) {
        cordon_json_key(&json, key);
        cordon_json_raw(&json, value, strlen(value));
    }
    cordon_json_object_end(&json);
    int r = cordon_e2b_unary(stream, path, &body, true, &answer, err);
    cordon_buf_done(&answer.body);
    cordon_buf_done(&body);
    return r;
}

static int send_signal(const struct cordon_stream *stream, uint32_t number, struct cordon_error *err)
{
    if (number != SIGKILL && number != SIGTERM)
        return cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED,
                           "%s sends SIGTERM and SIGKILL to programs, and no signal %u", CORDON_E2B_TITLE(stream),
                           number);
    return about_process(stream, CORDON_E2B_PROCESS "SendSignal", "signal",
                         number == SIGKILL ? "\"SIGNAL_SIGKILL\"" : "\"SIGNAL_SIGTERM\"", err);
}

/* --- programs: opening --- */

static void write_start(const struct cordon_operation *operation, struct cordon_buf *to)
{
    struct cordon_json json = {.buf = to};
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "process");
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "cmd");
    cordon_json_text(&json, operation->argv[0]);
    cordon_json_key(&json, "args");
    cordon_json_array_begin(&json);
    for (size_t i = 1; i < operation->argc; i++)
        cordon_json_text(&json, operation->argv[i]);
    cordon_json_array_end(&json);
    if (operation->env_count)
        cordon_remote_write_env(&json, "envs", operation->env, operation->env_count);
    if (operation->cwd) {
        cordon_json_key(&json, "cwd");
        cordon_json_text(&json, operation->cwd);
    }
    cordon_json_object_end(&json);
    cordon_json_key(&json, "stdin");
    cordon_json_bool(&json, operation->stdin_open);
    if (operation->tag) {
        cordon_json_key(&json, "tag");
        cordon_json_text(&json, operation->tag);
    }
    if (operation->cols && operation->rows) {
        char size[64];
        (void)snprintf(size, sizeof size, "{\"size\":{\"cols\":%u,\"rows\":%u}}", operation->cols,
                       operation->rows); /* fits */
        cordon_json_key(&json, "pty");
        cordon_json_raw(&json, size, strlen(size));
    }
    cordon_json_object_end(&json);
}

static int open_transfer(struct cordon_stream *stream, const char *path, const struct cordon_buf *message,
                         uint64_t timeout_ms, struct cordon_error *err)
{
    char url[CORDON_E2B_URL], backstop[32];
    struct cordon_remote_headers headers;
    struct cordon_buf body = CORDON_BUF_INIT(message->size + 64);
    struct cordon_e2b_box box = cordon_e2b_guest_box(stream->guest, stream->root);
    struct cordon_http_call call =
        cordon_e2b_envd_call(stream->guest->kind, &box, "POST", path, "application/connect+json", url, &headers);
    cordon_remote_add(&headers, "Connect-Protocol-Version", "1");
    (void)snprintf(backstop, sizeof backstop, "%llu", (unsigned long long)timeout_ms + BACKSTOP_MS); /* fits */
    if (timeout_ms)
        cordon_remote_add(&headers, "Connect-Timeout-Ms", backstop);
    int r = message->failed || cordon_envelope_put(&body, 0, message->data, message->size) < 0
                ? cordon_fail_errno(err, -ENOMEM, "%s: starting a program", CORDON_E2B_TITLE(stream))
                : 0;
    call.body = (struct cordon_bytes){body.data, body.size};
    call.deadline_us = cordon_now_us() + START_US;
    call.answer_max = SIZE_MAX; /* the output's limits are its reader's */
    call.cancel_fd = stream->cancel_fd;
    if (r == 0)
        r = cordon_http_open(&call, &stream->transfer, err);
    if (r == 0 && cordon_http_status(stream->transfer) != 200) {
        struct cordon_http_answer none = {.status = cordon_http_status(stream->transfer)};
        r = cordon_e2b_fail(stream->guest, "starting a program", &none, err);
    }
    cordon_buf_done(&body);
    explicit_bzero(&box, sizeof box);
    return r;
}

/* What has begun: another may have had its number before. */
static void note_terminal(struct cordon_guest_handle *guest, uint32_t pid, bool pty)
{
    pthread_mutex_lock(&guest->lock);
    for (size_t i = 0; i < CORDON_E2B_TERMINALS; i++)
        guest->terminals[i] = guest->terminals[i] == pid ? 0 : guest->terminals[i];
    if (pty)
        guest->terminals[guest->terminal_at++ % CORDON_E2B_TERMINALS] = pid;
    pthread_mutex_unlock(&guest->lock);
}

static bool is_terminal(struct cordon_guest_handle *guest, uint32_t pid)
{
    bool found = false;
    pthread_mutex_lock(&guest->lock);
    for (size_t i = 0; i < CORDON_E2B_TERMINALS; i++)
        found = found || guest->terminals[i] == pid;
    pthread_mutex_unlock(&guest->lock);
    return found;
}

int cordon_e2b_program_open(struct cordon_stream *stream, const struct cordon_operation *operation,
                            struct cordon_error *err)
{
    struct cordon_stream_event event;
    struct cordon_buf message = CORDON_BUF_INIT(4u << 20);
    struct cordon_json json = {.buf = &message};
    bool attach = operation->kind == CORDON_OP_ATTACH;
    if (operation->channel)
        return cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED,
                           "the backend %s gives programs no channel beside their output",
                           stream->guest->kind->service->name);
    if (attach) {
        begin_process(&json, operation->pid);
        cordon_json_object_end(&json);
    } else {
        write_start(operation, &message);
    }
    stream->in = CORDON_BUF_INIT(CORDON_ENVELOPE_MAX + (256u << 10));
    stream->decoded = CORDON_BUF_INIT(CORDON_ENVELOPE_MAX);
    stream->pty = attach ? is_terminal(stream->guest, operation->pid) : operation->cols && operation->rows;
    stream->kill_on_close = operation->kill_on_close && !attach;
    stream->kill_bytes = operation->output_kill_bytes;
    int r = open_transfer(stream, attach ? CORDON_E2B_PROCESS "Connect" : CORDON_E2B_PROCESS "Start", &message,
                          operation->timeout_ms, err);
    cordon_buf_done(&message);
    stream->opened_us = cordon_now_us();
    stream->deadline_us = operation->timeout_ms ? stream->opened_us + operation->timeout_ms * 1000 : 0;
    if (r == 0) /* the pid, or why there is none */
        r = cordon_e2b_stream_next(stream, START_US / 1000, &event, err);
    if (r == 0)
        return cordon_fail(err, -ETIMEDOUT, CORDON_ERROR_UNAVAILABLE, "%s did not start the program in time",
                           CORDON_E2B_TITLE(stream));
    stream->began = false; /* it is told once more */
    if (r >= 0 && !attach)
        note_terminal(stream->guest, stream->pid, stream->pty);
    return r < 0 ? r : 0;
}

/* --- programs: what comes --- */

static int tell_exit(struct cordon_stream *stream, struct cordon_stream_event *event)
{
    struct cordon_exec_exit *exit = &stream->exit;
    if (stream->cause != CORDON_CAUSE_EXITED) {
        exit->cause = stream->cause;
        exit->exit_code = -1;
        (void)snprintf(exit->message, sizeof exit->message, "%s",
                       stream->cause == CORDON_CAUSE_TIMEOUT ? "the time limit passed" : "it wrote too much");
    }
    exit->run_us = cordon_now_us() - stream->opened_us;
    stream->ended = true;
    *event = (struct cordon_stream_event){.type = CORDON_STREAM_EXIT, .exit = exit};
    return 1;
}

static int take_end(struct cordon_stream *stream, const struct cordon_value *end, struct cordon_stream_event *event)
{
    struct cordon_value value;
    char status[80] = "";
    int64_t code = 0;
    if (cordon_value_member(end, "exitCode", &value) || cordon_value_member(end, "exit_code", &value))
        (void)cordon_value_integer(&value, &code); /* stays 0 */
    (void)cordon_value_text(end, "status", status, sizeof status);
    stream->exit.signal = code < 0 ? cordon_e2b_signal(status) : 0;
    stream->exit.exit_code = stream->exit.signal ? -1 : (int)code;
    stream->exit.cause = stream->exit.signal ? CORDON_CAUSE_SIGNALLED : CORDON_CAUSE_EXITED;
    return tell_exit(stream, event);
}

static int take_data(struct cordon_stream *stream, const struct cordon_value *data, struct cordon_stream_event *event,
                     struct cordon_error *err)
{
    struct cordon_value text;
    bool errors = cordon_value_member(data, "stderr", &text);
    if (!errors && !cordon_value_member(data, "stdout", &text) && !cordon_value_member(data, "pty", &text))
        return 0;
    stream->decoded.size = 0;
    cordon_autofree char *plain = malloc(text.size + 1);
    ssize_t size = plain && text.kind == CORDON_VALUE_STRING ? cordon_value_string(&text, plain) : -EBADMSG;
    if (size < 0 || cordon_buf_unbase64(&stream->decoded, plain, (size_t)size) < 0)
        return cordon_e2b_unreadable(stream, err);
    uint64_t *written = errors ? &stream->exit.stderr_bytes : &stream->exit.stdout_bytes;
    *written += stream->decoded.size;
    if (stream->kill_bytes && *written > stream->kill_bytes && stream->cause == CORDON_CAUSE_EXITED) {
        stream->cause = CORDON_CAUSE_OUTPUT_LIMIT;
        (void)send_signal(stream, SIGKILL, NULL); /* its end is awaited all the same */
    }
    *event = (struct cordon_stream_event){.type = errors ? CORDON_STREAM_STDERR : CORDON_STREAM_STDOUT,
                                          .data = {stream->decoded.data, stream->decoded.size}};
    return stream->decoded.size > 0;
}

/* The stream's own end, without the program's: it was refused, it ran out of time, or it is not told. */
static int take_trailer(struct cordon_stream *stream, const struct cordon_value *root,
                        struct cordon_stream_event *event, struct cordon_error *err)
{
    struct cordon_value error;
    struct cordon_http_answer as = {.status = 500};
    char code[64] = "";
    if (!cordon_value_member(root, "error", &error) || error.kind != CORDON_VALUE_OBJECT)
        return cordon_fail(err, -EPIPE, CORDON_ERROR_INFRASTRUCTURE, "%s: the program's stream ended before it did",
                           CORDON_E2B_TITLE(stream));
    (void)cordon_value_text(&error, "code", code, sizeof code);
    if (stream->pid && (strcmp(code, "deadline_exceeded") == 0 || stream->cause == CORDON_CAUSE_TIMEOUT)) {
        stream->cause = CORDON_CAUSE_TIMEOUT;
        return tell_exit(stream, event);
    }
    as.body = (struct cordon_buf){.data = (char *)(uintptr_t)error.data, .size = error.size}; /* only read */
    return cordon_e2b_fail(stream->guest, stream->pid ? "the program's stream" : "starting a program", &as, err);
}

/* 1: an event; 0: nothing to tell. */
static int take_message(struct cordon_stream *stream, unsigned flags, const char *text, size_t size,
                        struct cordon_stream_event *event, struct cordon_error *err)
{
    struct cordon_value root, inner, part, pid;
    int64_t number = 0;
    if (flags & CORDON_ENVELOPE_COMPRESSED || cordon_value_parse(text, size, &root, NULL) < 0)
        return cordon_e2b_unreadable(stream, err);
    if (flags & CORDON_ENVELOPE_END)
        return take_trailer(stream, &root, event, err);
    if (!cordon_value_member(&root, "event", &inner))
        return 0;
    if (cordon_value_member(&inner, "start", &part) && cordon_value_member(&part, "pid", &pid) &&
        cordon_value_integer(&pid, &number) && number > 0 && number <= UINT32_MAX) {
        stream->pid = (uint32_t)number;
        stream->began = true;
        *event = (struct cordon_stream_event){.type = CORDON_STREAM_STARTED, .pid = stream->pid};
        return 1;
    }
    if (cordon_value_member(&inner, "data", &part))
        return take_data(stream, &part, event, err);
    return cordon_value_member(&inner, "end", &part) ? take_end(stream, &part, event) : 0;
}

/* What came already: 1 an event, 0 none, or negative. */
static int take_buffered(struct cordon_stream *stream, struct cordon_stream_event *event, struct cordon_error *err)
{
    unsigned flags;
    const char *text;
    size_t size;
    for (;;) {
        cordon_buf_consume(&stream->in, stream->in_used);
        stream->in_used = 0;
        int r = cordon_envelope_next(&stream->in, &flags, &text, &size, &stream->in_used);
        if (r == 0)
            return 0;
        r = r < 0 ? cordon_e2b_unreadable(stream, err) : take_message(stream, flags, text, size, event, err);
        if (r != 0)
            return r;
    }
}

static int read_more(struct cordon_stream *stream, uint64_t until_us, struct cordon_error *err)
{
    struct cordon_bytes data;
    uint64_t slice = cordon_now_us() + SLICE_US;
    cordon_http_extend(stream->transfer, until_us < slice ? until_us : slice);
    int r = cordon_http_read(stream->transfer, &data, err);
    if (r > 0)
        return cordon_buf_append(&stream->in, data.data, data.size) < 0 ? cordon_e2b_unreadable(stream, err) : 1;
    if (cordon_remote_kept_condition(&stream->guest->kept) == CORDON_GUEST_IS_GONE)
        return cordon_fail(err, -ENOENT, CORDON_ERROR_GONE, "%s: the sandbox is no more", CORDON_E2B_TITLE(stream));
    if (r == 0)
        return cordon_fail(err, -EPIPE, CORDON_ERROR_INFRASTRUCTURE, "%s: the connection ended before the program did",
                           CORDON_E2B_TITLE(stream));
    return r;
}

int cordon_e2b_program_next(struct cordon_stream *stream, int timeout_ms, struct cordon_stream_event *event,
                            struct cordon_error *err)
{
    struct cordon_error own = {0};
    uint64_t until = timeout_ms < 0 ? UINT64_MAX : cordon_now_us() + (uint64_t)timeout_ms * 1000;
    if (stream->pid && !stream->began) {
        stream->began = true;
        *event = (struct cordon_stream_event){.type = CORDON_STREAM_STARTED, .pid = stream->pid};
        return 1;
    }
    for (;;) {
        int r = take_buffered(stream, event, err);
        if (r != 0)
            return r;
        if (stream->deadline_us && cordon_now_us() >= stream->deadline_us && stream->cause == CORDON_CAUSE_EXITED) {
            stream->cause = CORDON_CAUSE_TIMEOUT;
            (void)send_signal(stream, SIGKILL, NULL); /* else the service does it, a little later */
        }
        uint64_t end = stream->cause == CORDON_CAUSE_EXITED && stream->deadline_us && stream->deadline_us < until
                           ? stream->deadline_us
                           : until;
        r = read_more(stream, end, &own);
        if (r == -ETIMEDOUT && cordon_now_us() >= until)
            return 0;
        if (r < 0 && r != -ETIMEDOUT) {
            if (err)
                *err = own;
            return r;
        }
    }
}

/* --- what it is told --- */

static int send_input(struct cordon_stream *stream, const char *data, size_t size, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(size * 2 + 1024);
    struct cordon_json json = {.buf = &body};
    struct cordon_http_answer answer;
    begin_process(&json, stream->pid);
    cordon_json_key(&json, "input");
    cordon_json_object_begin(&json);
    cordon_json_key(&json, stream->pty ? "pty" : "stdin");
    cordon_json_base64(&json, data, size);
    cordon_json_object_end(&json);
    cordon_json_object_end(&json);
    int r = cordon_e2b_unary(stream, CORDON_E2B_PROCESS "SendInput", &body, false, &answer, err); /* never twice */
    cordon_buf_done(&answer.body);
    cordon_buf_done(&body);
    return r;
}

int cordon_e2b_program_write(struct cordon_stream *stream, const char *data, size_t size, struct cordon_error *err)
{
    for (int r; size;) {
        size_t piece = size < INPUT_MAX ? size : INPUT_MAX;
        if ((r = send_input(stream, data, piece, err)) < 0)
            return r;
        data += piece;
        size -= piece;
    }
    return 0;
}

int cordon_e2b_program_control(struct cordon_stream *stream, enum cordon_control control, uint32_t value,
                               struct cordon_error *err)
{
    char size[64];
    if (control == CORDON_CONTROL_SIGNAL)
        return send_signal(stream, value, err);
    if (control == CORDON_CONTROL_END && stream->pty)
        return send_input(stream, "\x04", 1, err);
    if (control == CORDON_CONTROL_END)
        return about_process(stream, CORDON_E2B_PROCESS "CloseStdin", NULL, NULL, err);
    (void)snprintf(size, sizeof size, "{\"size\":{\"cols\":%u,\"rows\":%u}}", value >> 16, value & 0xffff); /* fits */
    return about_process(stream, CORDON_E2B_PROCESS "Update", "pty", size, err);
}

/* --- all of a guest's --- */

/* Its words, each with a NUL behind it; what does not fit is left out. */
static size_t join_command(const struct cordon_value *config, char *to, size_t room)
{
    struct cordon_value list, key, item;
    size_t size = 0;
    if (cordon_value_text(config, "cmd", to, room))
        size = strlen(to) + 1;
    if (!cordon_value_member(config, "args", &list) || list.kind != CORDON_VALUE_ARRAY)
        return size;
    struct cordon_value_walk walk = cordon_value_walk(&list);
    while (cordon_value_next(&walk, &key, &item) && item.kind == CORDON_VALUE_STRING && item.size < room - size) {
        ssize_t n = cordon_value_string(&item, to + size);
        size += n > 0 ? (size_t)n : 0;
        to[size++] = '\0';
    }
    return size;
}

static void tell_exec(const struct cordon_value *item, void (*each)(void *context, const struct cordon_exec_info *exec),
                      void *context)
{
    char tag[64] = "", command[4096] = "", cwd[1024] = "";
    struct cordon_value config, value;
    int64_t pid = 0;
    size_t size = 0;
    if (cordon_value_member(item, "pid", &value))
        (void)cordon_value_integer(&value, &pid); /* stays 0 */
    (void)cordon_value_text(item, "tag", tag, sizeof tag);
    if (cordon_value_member(item, "config", &config)) {
        size = join_command(&config, command, sizeof command);
        (void)cordon_value_text(&config, "cwd", cwd, sizeof cwd);
    }
    if (pid <= 0 || pid > UINT32_MAX)
        return;
    const struct cordon_exec_info exec = {.pid = (uint32_t)pid,
                                          .tag = tag,
                                          .command = command,
                                          .cwd = cwd,
                                          .user = "user",
                                          .command_size = size ? size - 1 : 0,
                                          .running = true};
    each(context, &exec);
}

int cordon_e2b_stream_execs(struct cordon_guest_handle *guest,
                            void (*each)(void *context, const struct cordon_exec_info *exec), void *context,
                            struct cordon_error *err)
{
    struct cordon_stream stream = {.guest = guest, .cancel_fd = -1};
    struct cordon_buf body = CORDON_BUF_INIT(16);
    struct cordon_http_answer answer;
    struct cordon_value root, list, key, item;
    (void)cordon_buf_appends(&body, "{}"); /* sticky */
    int r = cordon_e2b_unary(&stream, CORDON_E2B_PROCESS "List", &body, true, &answer, err);
    if (r == 0 && cordon_value_parse(answer.body.data ? answer.body.data : "", answer.body.size, &root, NULL) == 0 &&
        cordon_value_member(&root, "processes", &list) && list.kind == CORDON_VALUE_ARRAY) {
        struct cordon_value_walk walk = cordon_value_walk(&list);
        while (cordon_value_next(&walk, &key, &item))
            tell_exec(&item, each, context);
    }
    cordon_buf_done(&answer.body);
    cordon_buf_done(&body);
    return r;
}
