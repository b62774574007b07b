/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations in kept guests on CreateOS, and its programs. The protocol tells no number of a program and takes no
 * signal, working directory or variables. So a program is begun by a shell of ours, which says its own number in a
 * first line and becomes the program; its environment names it (CORDON_EXEC=NUMBER.NONCE), and so does that of all that
 * it starts, by which they are found when they are to be killed.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "backend/remote/createos_guest.h"
#include "base/clock.h"
#include "base/fd.h"

#define START_US 30000000u
#define SLICE_US 500000u   /* between two looks at whether the guest is gone, while a stream waits */
#define GRACE_US 10000000u /* for a program that was killed to end */
#define LIST_MAX (4u << 20)

/* --- beginning --- */

static void make_nonce(struct cordon_stream *stream)
{
    unsigned char bytes[16] = {0};
    (void)!getrandom(bytes, sizeof bytes, 0); /* never less, on kernels that we run on */
    for (size_t i = 0; i < sizeof bytes; i++)
        (void)snprintf(stream->nonce + 2 * i, 3, "%02x", bytes[i]); /* fits */
}

static bool is_name(const char *pair)
{
    size_t size = strspn(pair, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
    return size && pair[size] == '=' && (*pair < '0' || *pair > '9');
}

static void write_start(const struct cordon_stream *stream, const struct cordon_operation *operation,
                        struct cordon_buf *to)
{
    (void)cordon_buf_appendf(to, "r() { printf '%s %%s\\n' \"$1\"; }; ", stream->nonce); /* all of these are sticky */
    (void)cordon_buf_appends(to, "cd 2>/dev/null; ");
    if (operation->cwd && *operation->cwd) {
        (void)cordon_buf_appends(to, "cd -- ");
        cordon_remote_quote(to, operation->cwd);
        (void)cordon_buf_appends(to, " 2>/dev/null || { r cwd; exit 127; }; ");
    }
    (void)cordon_buf_appendf(to, "export CORDON_EXEC=$$.%s CORDON_TAG=", stream->nonce);
    cordon_remote_quote(to, operation->tag ? operation->tag : "");
    (void)cordon_buf_appends(to, "; ");
    for (size_t i = 0; i < operation->env_count; i++) {
        size_t name = strcspn(operation->env[i], "=") + 1;
        (void)cordon_buf_appends(to, "export ");
        (void)cordon_buf_append(to, operation->env[i], name);
        cordon_remote_quote(to, operation->env[i] + name);
        (void)cordon_buf_appends(to, "; ");
    }
    (void)cordon_buf_appends(to, "command -v ");
    cordon_remote_quote(to, operation->argv[0]);
    (void)cordon_buf_appends(to, " >/dev/null || { r program; exit 127; }; r $$; exec");
    for (size_t i = 0; i < operation->argc; i++) {
        (void)cordon_buf_appends(to, " ");
        cordon_remote_quote(to, operation->argv[i]);
    }
}

static int refuse(const struct cordon_operation *operation, struct cordon_error *err)
{
    const struct {
        bool asked;
        const char *answer;
    } rows[] = {{operation->channel, "gives programs no channel beside their output"},
                {operation->cols && operation->rows, "gives programs no terminal"},
                {operation->stdin_open, "gives programs no stdin: write a file, and have it read"},
                {!operation->kill_on_close, "ends a program with its connection: none goes on in the background"}};
    const char *what = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !what; i++)
        what = rows[i].asked ? rows[i].answer : NULL;
    for (size_t i = 0; i < operation->env_count && !what; i++)
        what = is_name(operation->env[i]) ? NULL : "takes no variable with such a name: letters, digits, underscores";
    return what ? cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED, "the backend createos %s", what) : 0;
}

/* The first line, which is our shell's: what it says. More may stand behind it. */
static int take_first(struct cordon_stream *stream, struct cordon_error *err)
{
    char line[96];
    size_t size = 0;
    struct cordon_remote_output output;
    const char *end = NULL;
    while (!end) {
        int r = cordon_createos_exec_next(&stream->exec, stream->opened_us + START_US, &output, err);
        if (r < 0)
            return r;
        if (r == 0 || output.type == CORDON_REMOTE_EXIT)
            return cordon_fail(err, -EIO, CORDON_ERROR_UNAVAILABLE, "CreateOS: the program was not seen to start");
        if (output.type == CORDON_REMOTE_STDERR)
            continue;
        end = memchr(output.data.data, '\n', output.data.size);
        size_t part = end ? (size_t)(end - output.data.data) : output.data.size;
        if (size + part >= sizeof line)
            return cordon_fail(err, -EBADMSG, CORDON_ERROR_UNAVAILABLE, "CreateOS: a program began with other words");
        memcpy(line + size, output.data.data, part);
        size += part;
    }
    line[size] = '\0';
    size_t nonce = strlen(stream->nonce);
    if (strncmp(line, stream->nonce, nonce) != 0 || line[nonce] != ' ')
        return cordon_fail(err, -EBADMSG, CORDON_ERROR_UNAVAILABLE, "CreateOS: a program began with other words");
    if (strcmp(line + nonce, " cwd") == 0)
        return cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND, "the working directory is not there");
    if (strcmp(line + nonce, " program") == 0)
        return cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND, "there is no such program");
    stream->pid = (uint32_t)strtoul(line + nonce + 1, NULL, 10);
    output.data.size -= (size_t)(end + 1 - output.data.data);
    output.data.data = end + 1;
    stream->rest = output;
    return stream->pid ? 0 : cordon_fail(err, -EBADMSG, CORDON_ERROR_UNAVAILABLE, "CreateOS: a program has no number");
}

static int open_program(struct cordon_stream *stream, const struct cordon_operation *operation,
                        struct cordon_error *err)
{
    struct cordon_buf command = CORDON_BUF_INIT(2u << 20);
    int r = refuse(operation, err);
    if (r < 0)
        return r;
    make_nonce(stream);
    write_start(stream, operation, &command);
    stream->kill_bytes = operation->output_kill_bytes;
    stream->opened_us = cordon_now_us();
    r = command.failed ? cordon_fail(err, -E2BIG, CORDON_ERROR_TOO_LARGE, "the command and its variables are too long")
                       : cordon_createos_command_open(stream->guest, &stream->exec, command.data,
                                                      stream->opened_us + START_US, stream->cancel_fd, err);
    cordon_buf_done(&command);
    if (r == 0)
        r = take_first(stream, err);
    stream->opened_us = cordon_now_us();
    stream->deadline_us = operation->timeout_ms ? stream->opened_us + operation->timeout_ms * 1000 : 0;
    return r;
}

/* --- signals --- */

/* All that it started, found by its environment; three times, since what is killed may just have started another. */
static int kill_all(const struct cordon_stream *stream, struct cordon_error *err)
{
    struct cordon_buf command = CORDON_BUF_INIT(1024), none = CORDON_BUF_INIT(4096);
    (void)cordon_buf_appendf(&command,
                             "for i in 1 2 3; do for p in /proc/[0-9]*; do if tr '\\0' '\\n' <$p/environ 2>/dev/null | "
                             "grep -q '^CORDON_EXEC=%u\\.%s'; then kill -s KILL ${p#/proc/} 2>/dev/null; fi; done; "
                             "done; true",
                             stream->pid, stream->nonce);
    int r = cordon_createos_command(stream->guest, &command, stream->cancel_fd, &none, err);
    cordon_buf_done(&command);
    cordon_buf_done(&none);
    return r;
}

static int send_signal(const struct cordon_stream *stream, uint32_t number, struct cordon_error *err)
{
    struct cordon_buf command = CORDON_BUF_INIT(256), none = CORDON_BUF_INIT(4096);
    if (number == SIGKILL)
        return kill_all(stream, err);
    (void)cordon_buf_appendf(&command, "export LC_ALL=C; kill -s %u -- -%u 2>/dev/null || kill -s %u %u", number,
                             stream->pid, number, stream->pid);
    int r = cordon_createos_command(stream->guest, &command, stream->cancel_fd, &none, err);
    cordon_buf_done(&command);
    cordon_buf_done(&none);
    return r;
}

/* --- what comes --- */

static int tell_exit(struct cordon_stream *stream, int code, struct cordon_stream_event *event)
{
    struct cordon_exec_exit *exit = &stream->exit;
    exit->cause = stream->cause;
    exit->exit_code = stream->cause == CORDON_CAUSE_EXITED ? code : -1;
    if (stream->cause != CORDON_CAUSE_EXITED)
        (void)snprintf(exit->message, sizeof exit->message, "%s",
                       stream->cause == CORDON_CAUSE_TIMEOUT ? "the time limit passed" : "it wrote too much");
    exit->run_us = cordon_now_us() - stream->opened_us;
    stream->ended = true;
    *event = (struct cordon_stream_event){.type = CORDON_STREAM_EXIT, .exit = exit};
    return 1;
}

static void end_it(struct cordon_stream *stream, enum cordon_cause cause)
{
    stream->cause = cause;
    stream->deadline_us = cordon_now_us() + GRACE_US; /* until its end is given up */
    (void)kill_all(stream, NULL);
}

/* 1: an event; 0: nothing to tell. */
static int take(struct cordon_stream *stream, const struct cordon_remote_output *output,
                struct cordon_stream_event *event)
{
    bool errors = output->type == CORDON_REMOTE_STDERR;
    if (output->type == CORDON_REMOTE_EXIT)
        return tell_exit(stream, output->exit_code, event);
    uint64_t *written = errors ? &stream->exit.stderr_bytes : &stream->exit.stdout_bytes;
    *written += output->data.size;
    *event = (struct cordon_stream_event){.type = errors ? CORDON_STREAM_STDERR : CORDON_STREAM_STDOUT,
                                          .data = output->data};
    if (stream->kill_bytes && *written > stream->kill_bytes && stream->cause == CORDON_CAUSE_EXITED)
        end_it(stream, CORDON_CAUSE_OUTPUT_LIMIT);
    return output->data.size > 0;
}

/* Waits for a slice: 1 and what came; 0 nothing; or negative. */
static int wait_slice(struct cordon_stream *stream, uint64_t until_us, struct cordon_remote_output *output,
                      struct cordon_error *err)
{
    struct cordon_error own = {0};
    uint64_t slice = cordon_now_us() + SLICE_US;
    int r = cordon_createos_exec_next(&stream->exec, until_us < slice ? until_us : slice, output, &own);
    if (r > 0)
        return 1;
    if (r != -ECANCELED && cordon_remote_kept_condition(&stream->guest->kept) == CORDON_GUEST_IS_GONE)
        r = cordon_fail(&own, -ENOENT, CORDON_ERROR_GONE, "CreateOS: the sandbox is no more");
    else if (r == -ETIMEDOUT)
        return 0;
    else if (r == 0)
        r = cordon_fail(&own, -EPIPE, CORDON_ERROR_INFRASTRUCTURE,
                        "CreateOS: the program's stream ended before it did");
    if (err)
        *err = own;
    return r;
}

static int next_of_program(struct cordon_stream *stream, int timeout_ms, struct cordon_stream_event *event,
                           struct cordon_error *err)
{
    uint64_t until = timeout_ms < 0 ? UINT64_MAX : cordon_now_us() + (uint64_t)timeout_ms * 1000;
    if (!stream->began) {
        stream->began = true;
        *event = (struct cordon_stream_event){.type = CORDON_STREAM_STARTED, .pid = stream->pid};
        return 1;
    }
    for (;;) {
        struct cordon_remote_output output = stream->rest;
        int r = output.data.size > 0;
        stream->rest = (struct cordon_remote_output){0};
        if (!r)
            r = wait_slice(stream, stream->deadline_us && stream->deadline_us < until ? stream->deadline_us : until,
                           &output, err);
        if (r > 0)
            r = take(stream, &output, event);
        if (r != 0)
            return r;
        bool over = stream->deadline_us && cordon_now_us() >= stream->deadline_us;
        if (over && stream->cause != CORDON_CAUSE_EXITED) /* it was killed, and its end is not told */
            return tell_exit(stream, -1, event);
        if (over)
            end_it(stream, CORDON_CAUSE_TIMEOUT);
        if (cordon_now_us() >= until)
            return 0;
    }
}

/* --- the operations --- */

int cordon_createos_stream_open(struct cordon_guest_handle *guest, const struct cordon_operation *operation,
                                struct cordon_stream **ret, struct cordon_error *err)
{
    static const bool files[CORDON_OP__COUNT] = {
        [CORDON_OP_READ] = true,  [CORDON_OP_WRITE] = true, [CORDON_OP_STAT] = true,  [CORDON_OP_LIST] = true,
        [CORDON_OP_MKDIR] = true, [CORDON_OP_MOVE] = true,  [CORDON_OP_REMOVE] = true};
    struct cordon_stream *stream = calloc(1, sizeof *stream);
    int r;
    if (!stream)
        return cordon_fail_errno(err, -ENOMEM, "CreateOS: using a guest");
    stream->guest = guest;
    stream->kind = operation->kind;
    stream->cancel_fd = operation->cancel_fd;
    stream->pid = operation->kind == CORDON_OP_ATTACH ? operation->pid : 0;
    if (operation->kind == CORDON_OP_EXEC)
        r = open_program(stream, operation, err);
    else if (operation->kind == CORDON_OP_ATTACH)
        r = 0; /* to be told something; its output is for who started it */
    else if (operation->kind < CORDON_OP__COUNT && files[operation->kind])
        r = cordon_createos_file_open(stream, operation, err);
    else
        r = cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED,
                        "the backend createos does not offer that of guests");
    if (r == 0)
        *ret = stream;
    else
        cordon_createos_stream_close(stream);
    return r;
}

int cordon_createos_stream_next(struct cordon_stream *stream, int timeout_ms, struct cordon_stream_event *event,
                                struct cordon_error *err)
{
    if (stream->ended)
        return 0;
    if (stream->kind == CORDON_OP_EXEC)
        return next_of_program(stream, timeout_ms, event, err);
    if (stream->kind == CORDON_OP_ATTACH)
        return cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED,
                           "the backend createos tells a program's output to who started it only");
    return cordon_createos_file_next(stream, timeout_ms, event, err);
}

int cordon_createos_stream_write(struct cordon_stream *stream, enum cordon_stream_to to, const void *data, size_t size,
                                 struct cordon_error *err)
{
    if (to != CORDON_TO_FILE || stream->kind != CORDON_OP_WRITE)
        return cordon_fail(err, -EPIPE, CORDON_ERROR_INVALID, "this stream takes nothing in");
    return cordon_remote_upload_add(&stream->content, &stream->held, data, size, err);
}

int cordon_createos_stream_control(struct cordon_stream *stream, enum cordon_control control, uint32_t value,
                                   struct cordon_error *err)
{
    if (control == CORDON_CONTROL_END && value == CORDON_TO_FILE && stream->kind == CORDON_OP_WRITE)
        return cordon_createos_file_end(stream, err);
    if (control == CORDON_CONTROL_SIGNAL && stream->pid)
        return send_signal(stream, value, err);
    return cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED,
                       "the backend createos gives programs neither stdin nor a terminal");
}

void cordon_createos_stream_close(struct cordon_stream *stream)
{
    if (!stream)
        return;
    if (stream->kind == CORDON_OP_EXEC && stream->pid && !stream->ended) {
        stream->cancel_fd = -1;       /* also when its client has left */
        (void)kill_all(stream, NULL); /* else the service does it, when it sees that the connection is gone */
    }
    cordon_createos_exec_close(&stream->exec);
    cordon_http_close(stream->transfer);
    cordon_buf_done(&stream->content);
    cordon_remote_let_go(&stream->held);
    free(stream);
}

/* --- all of a guest's programs --- */

/* Four words of base64 a program: number, tag, working directory, command; each with a newline behind it. */
static bool next_word(struct cordon_buf *from, size_t *at, char *to, size_t room, size_t *size)
{
    struct cordon_buf plain = CORDON_BUF_INIT(room - 1);
    const char *end = *at < from->size ? memchr(from->data + *at, '\n', from->size - *at) : NULL;
    if (!end)
        return false;
    size_t length = (size_t)(end - (from->data + *at));
    *size =
        cordon_buf_unbase64(&plain, from->data + *at, length) == 0 ? plain.size : 0; /* what is too long is not told */
    memcpy(to, plain.data ? plain.data : "", *size);
    to[*size] = '\0';
    *at += length + 1;
    cordon_buf_done(&plain);
    return true;
}

int cordon_createos_execs(struct cordon_guest_handle *guest,
                          void (*each)(void *context, const struct cordon_exec_info *exec), void *context,
                          struct cordon_error *err)
{
    static const char list[] =
        "for p in /proc/[0-9]*; do n=${p#/proc/}; e=$(tr '\\0' '\\n' <$p/environ 2>/dev/null | "
        "grep \"^CORDON_EXEC=$n\\.\") || continue; printf %s $n | base64; "
        "tr '\\0' '\\n' <$p/environ | sed -n 's/^CORDON_TAG=//p' | head -n 1 | tr -d '\\n' | base64 -w0; echo; "
        "readlink -n $p/cwd | base64 -w0; echo; base64 -w0 <$p/cmdline; echo; done; true";
    char number[24], tag[64], cwd[1024], command[4096];
    size_t size, at = 0, command_size;
    struct cordon_buf text = CORDON_BUF_INIT(sizeof list), out = CORDON_BUF_INIT(LIST_MAX);
    (void)cordon_buf_appends(&text, list); /* sticky */
    int r = cordon_createos_command(guest, &text, -1, &out, err);
    while (r == 0 && next_word(&out, &at, number, sizeof number, &size) &&
           next_word(&out, &at, tag, sizeof tag, &size) && next_word(&out, &at, cwd, sizeof cwd, &size) &&
           next_word(&out, &at, command, sizeof command, &command_size)) {
        const struct cordon_exec_info exec = {.pid = (uint32_t)strtoul(number, NULL, 10),
                                              .tag = tag,
                                              .command = command,
                                              .cwd = cwd,
                                              .user = "user",
                                              .command_size = command_size ? command_size - 1 : 0,
                                              .running = true};
        if (exec.pid)
            each(context, &exec);
    }
    cordon_buf_done(&text);
    cordon_buf_done(&out);
    return r;
}
