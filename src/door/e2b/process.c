/* SPDX-License-Identifier: Apache-2.0 */
/*
 * envd's process service. A program that was started goes on when its client leaves; Connect-Timeout-Ms is its limit of
 * time, after which it is killed.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "door/e2b/envd.h"
#include "door/e2b/envelope.h"

/* An event that holds one object under one name: {"event":{NAME:{KEY:"base64"}}}. */
static void tell_data(struct cordon_buf *to, const char *stream, struct cordon_bytes data)
{
    struct cordon_json json = {.buf = to};
    size_t start = cordon_e2b_envelope_begin(to, false);
    (void)cordon_buf_appendf(to, "{\"event\":{\"data\":{\"%s\":", stream); /* sticky in failed */
    cordon_json_base64(&json, data.data, data.size);
    (void)cordon_buf_appends(to, "}}}");
    cordon_e2b_envelope_end(to, start);
}

static void tell_start(struct cordon_buf *to, uint32_t pid)
{
    char message[64];
    (void)snprintf(message, sizeof message, "{\"event\":{\"start\":{\"pid\":%u}}}", pid); /* fits */
    cordon_e2b_envelope_text(to, message);
}

/* As Go's os.ProcessState says it, which is what clients know. */
static void describe_exit(const struct cordon_exec_exit *exit, char to[320])
{
    if (exit->cause == CORDON_CAUSE_EXITED) {
        (void)snprintf(to, 320, "exit status %d", exit->exit_code);
        return;
    }
    int number = exit->signal ? exit->signal : SIGKILL;
    const char *name = number == SIGKILL ? "killed" : number == SIGTERM ? "terminated" : strsignal(number);
    (void)snprintf(to, 320, "signal: %s%s%s", name, *exit->message ? ": " : "", exit->message); /* cut on purpose */
}

static void tell_end(struct cordon_buf *to, const struct cordon_exec_exit *exit)
{
    struct cordon_json json = {.buf = to};
    bool exited = exit->cause == CORDON_CAUSE_EXITED;
    char status[320];
    describe_exit(exit, status);
    size_t start = cordon_e2b_envelope_begin(to, false);
    (void)cordon_buf_appends(to, "{\"event\":{\"end\":"); /* sticky in failed */
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "exitCode");
    cordon_json_int(&json, exited ? exit->exit_code : -1);
    cordon_json_key(&json, "exited");
    cordon_json_bool(&json, exited);
    cordon_json_key(&json, "status");
    cordon_json_text(&json, status);
    if (!exited || exit->exit_code) {
        cordon_json_key(&json, "error");
        cordon_json_text(&json, status);
    }
    cordon_json_object_end(&json);
    (void)cordon_buf_appends(to, "}}");
    cordon_e2b_envelope_end(to, start);
}

static int tell_exit(struct cordon_buf *to, const struct cordon_exec_exit *exit, struct cordon_error *err)
{
    switch (exit->cause) {
    case CORDON_CAUSE_TIMEOUT: {
        /* The table of kinds has none for a deadline that a client set itself. */
        size_t start = cordon_e2b_envelope_begin(to, true);
        (void)cordon_buf_appends(to, "{\"error\":{\"code\":\"deadline_exceeded\",\"message\":\"the process was killed "
                                     "when its time (Connect-Timeout-Ms) was over\"}}"); /* sticky in failed */
        cordon_e2b_envelope_end(to, start);
        return 2;
    }
    case CORDON_CAUSE_INFRASTRUCTURE:
    case CORDON_CAUSE_UNAVAILABLE:
        return cordon_fail(err, -EIO, CORDON_ERROR_INFRASTRUCTURE, "%s", exit->message);
    default:
        tell_end(to, exit);
        return 1;
    }
}

static int tell(struct cordon_e2b_outlet *outlet, const struct cordon_stream_event *event, struct cordon_buf *to,
                struct cordon_error *err)
{
    switch (event->type) {
    case CORDON_STREAM_STARTED:
        outlet->starting = false;
        tell_start(to, event->pid);
        return 0;
    case CORDON_STREAM_STDOUT:
        tell_data(to, outlet->pty ? "pty" : "stdout", event->data);
        return 0;
    case CORDON_STREAM_STDERR:
        tell_data(to, "stderr", event->data);
        return 0;
    case CORDON_STREAM_EXIT:
        return tell_exit(to, event->exit, err);
    default:
        return 0;
    }
}

static const char keepalive[] = "{\"event\":{\"keepalive\":{}}}";

/* The client's deadline: 0 without one. */
static int read_timeout(const struct cordon_http_request *request, uint64_t *ret_ms, struct cordon_error *err)
{
    const char *text = cordon_http_header(request, "Connect-Timeout-Ms");
    *ret_ms = 0;
    if (!text)
        return 0;
    size_t size = strlen(text);
    if (!size || size > 11 || strspn(text, "0123456789") != size)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "Connect-Timeout-Ms: at most 11 digits are needed");
    *ret_ms = strtoull(text, NULL, 10);
    return 0;
}

static int read_size(const struct cordon_value *message, uint16_t *cols, uint16_t *rows, struct cordon_error *err)
{
    struct cordon_value pty, size;
    int64_t c = 0, l = 0;
    int r = cordon_field_object(message, "pty", &pty, err);
    if (r > 0)
        r = cordon_field_object(&pty, "size", &size, err);
    if (r <= 0)
        return r;
    r = cordon_field_int(&size, "cols", 1, UINT16_MAX, &c, err);
    if (r >= 0)
        r = cordon_field_int(&size, "rows", 1, UINT16_MAX, &l, err);
    if (r < 0)
        return r;
    *cols = (uint16_t)(c ? c : 80);
    *rows = (uint16_t)(l ? l : 24);
    return 1;
}

static int read_config(const struct cordon_value *message, struct cordon_door_memory *memory,
                       struct cordon_operation *operation, struct cordon_error *err)
{
    struct cordon_value config;
    struct cordon_texts args = {0}, env = {0};
    const char *cmd = "", *cwd = "";
    int r = cordon_field_object(message, "process", &config, err);
    if (r == 0)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "process is missing");
    if (r > 0)
        r = cordon_field_text(&config, "cmd", memory, &cmd, err);
    if (r >= 0)
        r = cordon_field_texts(&config, "args", memory, &args, err);
    if (r >= 0)
        r = cordon_field_env(&config, "envs", memory, &env, err);
    if (r >= 0)
        r = cordon_field_text(&config, "cwd", memory, &cwd, err);
    if (r < 0)
        return r;
    if (!*cmd)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "process.cmd is missing");
    const char **argv = cordon_door_take(memory, (args.count + 2) * sizeof *argv);
    if (!argv)
        return cordon_fail_errno(err, -ENOMEM, "reading the command");
    argv[0] = cmd;
    if (args.count)
        memcpy(argv + 1, args.items, args.count * sizeof *argv);
    operation->argv = argv;
    operation->argc = args.count + 1;
    operation->env = env.items;
    operation->env_count = env.count;
    if (*cwd)
        return cordon_e2b_path(cwd, &operation->cwd, err);
    return 0;
}

static int read_start(struct cordon_http_request *request, struct cordon_door_memory *memory,
                      struct cordon_operation *operation, struct cordon_error *err)
{
    struct cordon_value message;
    bool stdin_open = true; /* clients of old don't say */
    int r = cordon_e2b_stream_message(request, &message, err);
    if (r == 0)
        r = cordon_e2b_user(request, &operation->user, err);
    if (r == 0)
        r = read_config(&message, memory, operation, err);
    if (r == 0)
        r = cordon_field_bool(&message, "stdin", &stdin_open, err);
    if (r >= 0)
        r = cordon_field_text(&message, "tag", memory, &operation->tag, err);
    if (r >= 0)
        r = read_size(&message, &operation->cols, &operation->rows, err);
    if (r >= 0)
        r = read_timeout(request, &operation->timeout_ms, err);
    if (r == 0 && operation->tag && strlen(operation->tag) > 63)
        r = cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "tag: at most 63 bytes are allowed");
    operation->stdin_open = stdin_open;
    return r;
}

int cordon_e2b_process_start(struct cordon_http_request *request, struct cordon_error *err)
{
    cordon_autoforget struct cordon_door_memory memory = {0};
    struct cordon_operation operation = {
        .struct_size = sizeof operation, .kind = CORDON_OP_EXEC, .cancel_fd = request->fd};
    int r = read_start(request, &memory, &operation, err);
    if (r < 0)
        return r;
    const struct cordon_e2b_outlet outlet = {
        .tell = tell, .keepalive = keepalive, .pty = operation.cols > 0, .starting = true};
    return cordon_e2b_stream(request, &operation, &outlet, err);
}

/* Which program a call is about. */
struct selector {
    uint32_t pid; /* 0: by tag */
    const char *tag;
};

static int read_selector(const struct cordon_value *message, struct cordon_door_memory *memory, struct selector *ret,
                         struct cordon_error *err)
{
    struct cordon_value process;
    int64_t pid = 0;
    *ret = (struct selector){0};
    int r = cordon_field_object(message, "process", &process, err);
    if (r == 0)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "process is missing");
    if (r > 0)
        r = cordon_field_int(&process, "pid", 0, UINT32_MAX, &pid, err);
    if (r >= 0 && !pid)
        r = cordon_field_text(&process, "tag", memory, &ret->tag, err);
    if (r < 0)
        return r;
    ret->pid = (uint32_t)pid;
    if (!pid && !ret->tag)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "process: a pid or a tag is needed");
    return 0;
}

/* Looks for a selected program among the guest's. */
struct search {
    const struct selector *wanted;
    uint32_t pid;
    bool pty;
};

static void compare(void *context, const struct cordon_exec_info *exec)
{
    struct search *search = context;
    const struct selector *wanted = search->wanted;
    if (search->pid || !(wanted->pid ? exec->pid == wanted->pid : exec->tag && strcmp(exec->tag, wanted->tag) == 0))
        return; /* running ones come first */
    search->pid = exec->pid;
    search->pty = exec->pty;
}

static int not_found(const struct selector *wanted, struct cordon_error *err)
{
    if (wanted->pid)
        return cordon_fail(err, -ESRCH, CORDON_ERROR_NOT_FOUND, "process with pid %u not found", wanted->pid);
    return cordon_fail(err, -ESRCH, CORDON_ERROR_NOT_FOUND, "process with tag %.63s not found", wanted->tag);
}

static int search_program(const struct cordon_http_request *request, const struct selector *wanted, struct search *ret,
                          struct cordon_error *err)
{
    const struct cordon_guest_info *guest = cordon_e2b_visit(request)->guest;
    *ret = (struct search){.wanted = wanted};
    int r = cordon_guests_execs(guest->tenant, guest->id, compare, ret, err);
    return r < 0 ? r : ret->pid ? 0 : not_found(wanted, err);
}

int cordon_e2b_process_connect(struct cordon_http_request *request, struct cordon_error *err)
{
    cordon_autoforget struct cordon_door_memory memory = {0};
    struct cordon_value message;
    struct selector wanted;
    struct search found;
    int r = cordon_e2b_stream_message(request, &message, err);
    if (r == 0)
        r = read_selector(&message, &memory, &wanted, err);
    if (r == 0)
        r = search_program(request, &wanted, &found, err);
    if (r < 0)
        return r;
    const struct cordon_operation operation = {
        .struct_size = sizeof operation, .kind = CORDON_OP_ATTACH, .pid = found.pid, .cancel_fd = request->fd};
    const struct cordon_e2b_outlet outlet = {.tell = tell, .keepalive = keepalive, .pty = found.pty};
    return cordon_e2b_stream(request, &operation, &outlet, err);
}

/* cmd and args out of the joined command. */
static void tell_command(struct cordon_json *json, const struct cordon_exec_info *exec)
{
    const char *at = exec->command, *end = at + exec->command_size;
    size_t size = strnlen(at, exec->command_size);
    cordon_json_key(json, "cmd");
    cordon_json_bytes(json, at, size);
    cordon_json_key(json, "args");
    cordon_json_array_begin(json);
    for (at += size + 1; at < end; at += size + 1) {
        size = strnlen(at, (size_t)(end - at));
        cordon_json_bytes(json, at, size);
    }
    cordon_json_array_end(json);
}

static void list_program(void *context, const struct cordon_exec_info *exec)
{
    struct cordon_json *json = context;
    if (!exec->running)
        return;
    cordon_json_object_begin(json);
    cordon_json_key(json, "config");
    cordon_json_object_begin(json);
    tell_command(json, exec);
    cordon_json_key(json, "envs"); /* never told: they may hold secrets */
    cordon_json_raw(json, "{}", 2);
    cordon_json_key(json, "cwd");
    cordon_json_text(json, exec->cwd ? exec->cwd : "");
    cordon_json_object_end(json);
    cordon_json_key(json, "pid");
    cordon_json_uint(json, exec->pid);
    if (exec->tag && *exec->tag) {
        cordon_json_key(json, "tag");
        cordon_json_text(json, exec->tag);
    }
    cordon_json_object_end(json);
}

int cordon_e2b_process_list(struct cordon_http_request *request, struct cordon_error *err)
{
    const struct cordon_guest_info *guest = cordon_e2b_visit(request)->guest;
    struct cordon_buf body = CORDON_BUF_INIT(8u << 20);
    struct cordon_json json = {.buf = &body};
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "processes");
    cordon_json_array_begin(&json);
    int r = cordon_guests_execs(guest->tenant, guest->id, list_program, &json, err);
    cordon_json_array_end(&json);
    cordon_json_object_end(&json);
    if (r == 0)
        return cordon_e2b_answer(request, &body, err);
    cordon_buf_done(&body);
    return r;
}

/* The unary calls to one program. */
typedef int to_program(const struct cordon_guest_info *guest, const struct cordon_value *message,
                       const struct selector *program, struct cordon_error *err);

static int do_to_program(struct cordon_http_request *request, to_program *what, struct cordon_error *err)
{
    cordon_autoforget struct cordon_door_memory memory = {0};
    struct cordon_value message;
    struct selector program;
    int r = cordon_e2b_message(request, &message, err);
    if (r == 0)
        r = read_selector(&message, &memory, &program, err);
    if (r == 0)
        r = what(cordon_e2b_visit(request)->guest, &message, &program, err);
    return r < 0 ? r : cordon_e2b_answer_empty(request, err);
}

static int send_input(const struct cordon_guest_info *guest, const struct cordon_value *message,
                      const struct selector *program, struct cordon_error *err)
{
    struct cordon_value input;
    struct cordon_buf data = CORDON_BUF_INIT(4u << 20);
    int r = cordon_field_object(message, "input", &input, err);
    if (r == 0)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "input is missing");
    if (r > 0)
        r = cordon_field_bytes(&input, "stdin", &data, err);
    if (r == 0)
        r = cordon_field_bytes(&input, "pty", &data, err);
    if (r > 0 && data.size)
        r = cordon_guests_exec_write(guest->tenant, guest->id, program->pid, program->tag, CORDON_TO_STDIN, data.data,
                                     data.size, err);
    cordon_buf_done(&data);
    return r;
}

static int control(const struct cordon_guest_info *guest, const struct selector *program, enum cordon_control what,
                   uint32_t value, struct cordon_error *err)
{
    return cordon_guests_exec_control(guest->tenant, guest->id, program->pid, program->tag, what, value, err);
}

static int close_stdin(const struct cordon_guest_info *guest, const struct cordon_value *message,
                       const struct selector *program, struct cordon_error *err)
{
    return control(guest, program, CORDON_CONTROL_END, CORDON_TO_STDIN, err);
}

static int send_signal(const struct cordon_guest_info *guest, const struct cordon_value *message,
                       const struct selector *program, struct cordon_error *err)
{
    struct cordon_value name;
    int64_t number = 0;
    if (!cordon_field(message, "signal", &name))
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "signal is missing");
    bool text = name.kind == CORDON_VALUE_STRING;
    if (text && cordon_value_equals(&name, "SIGNAL_SIGKILL"))
        number = SIGKILL;
    else if (text && cordon_value_equals(&name, "SIGNAL_SIGTERM"))
        number = SIGTERM;
    else if (!cordon_value_integer(&name, &number) || (number != SIGKILL && number != SIGTERM))
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "signal must be SIGNAL_SIGKILL or SIGNAL_SIGTERM");
    return control(guest, program, CORDON_CONTROL_SIGNAL, (uint32_t)number, err);
}

static int resize(const struct cordon_guest_info *guest, const struct cordon_value *message,
                  const struct selector *program, struct cordon_error *err)
{
    uint16_t cols, rows;
    int r = read_size(message, &cols, &rows, err);
    return r <= 0 ? r : control(guest, program, CORDON_CONTROL_RESIZE, (uint32_t)cols << 16 | rows, err);
}

int cordon_e2b_process_input(struct cordon_http_request *request, struct cordon_error *err)
{
    return do_to_program(request, send_input, err);
}

int cordon_e2b_process_close_stdin(struct cordon_http_request *request, struct cordon_error *err)
{
    return do_to_program(request, close_stdin, err);
}

int cordon_e2b_process_signal(struct cordon_http_request *request, struct cordon_error *err)
{
    return do_to_program(request, send_signal, err);
}

int cordon_e2b_process_update(struct cordon_http_request *request, struct cordon_error *err)
{
    return do_to_program(request, resize, err);
}
