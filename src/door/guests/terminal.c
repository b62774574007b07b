/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Terminals: a program on a PTY of a guest, whose output is a stream of lines that leave as it comes; what is typed,
 * and the window's size, come by requests of their own. The program lives as long as the connection that opened it.
 *
 * Output is told in base64: what a terminal shows is bytes, and a character may come in two halves.
 */
#include <errno.h>
#include <stdlib.h>

#include "door/admin/admin.h"
#include "door/guests/guests.h"

#define KEEPALIVE_MS 5000     /* by which a client that left is found out */
#define SIDE_MAX 1000         /* columns, rows */
#define INPUT_MAX (64u << 10) /* bytes typed or pasted in one request */

/* A login shell: bash where the guest has it. */
static const char *const shell[] = {"/bin/sh", "-c", "command -v bash >/dev/null && exec bash -l; exec sh -l"};
static const char *const terminal_env[] = {"TERM=xterm-256color", "LANG=C.UTF-8"};

struct terminal {
    struct cordon_live_stream *live;
    bool ended;
};

static void write_event(struct cordon_json *json, const struct cordon_stream_event *event)
{
    cordon_json_key(json, "type");
    if (event->type == CORDON_STREAM_STARTED) {
        cordon_json_text(json, "started");
        cordon_json_key(json, "pid");
        cordon_json_uint(json, event->pid);
    } else if (event->type == CORDON_STREAM_EXIT) {
        cordon_json_text(json, "exit");
        cordon_guest_exit_write(json, event->exit);
        cordon_json_key(json, "message");
        cordon_json_text(json, event->exit->message);
    } else {
        cordon_json_text(json, "output");
        cordon_json_key(json, "data_b64");
        cordon_json_base64(json, event->data.data, event->data.size);
    }
}

/* What ends it under way (the guest was destroyed) is the last line. */
static void write_failure(struct cordon_json *json, const struct cordon_error *why)
{
    cordon_json_key(json, "type");
    cordon_json_text(json, "error");
    cordon_json_error(json, why);
}

static int next_line(void *context, struct cordon_buf *out)
{
    static const char keepalive[] = "{\"type\":\"keepalive\"}\n";
    struct terminal *terminal = context;
    struct cordon_stream_event event = {0};
    struct cordon_error why = {0};
    if (terminal->ended)
        return 0;
    int r = cordon_guests_next(terminal->live, KEEPALIVE_MS, &event, &terminal->ended, &why);
    if (r == 0 && terminal->ended)
        return 0;
    if (r == 0)
        return cordon_buf_append(out, keepalive, sizeof keepalive - 1) < 0 ? -ENOMEM : 1;
    struct cordon_json json = {.buf = out};
    cordon_json_object_begin(&json);
    if (r < 0)
        write_failure(&json, &why);
    else
        write_event(&json, &event);
    cordon_json_object_end(&json);
    (void)cordon_buf_append(out, "\n", 1); /* sticky, seen by who sends it */
    terminal->ended = r < 0 || event.type == CORDON_STREAM_EXIT;
    return terminal->ended ? 0 : 1;
}

static void close_terminal(void *context)
{
    struct terminal *terminal = context;
    cordon_guests_close(terminal->live);
    free(terminal);
}

static const struct cordon_http_stream ndjson = {.next = next_line, .close = close_terminal};

static int read_size(const struct cordon_value *body, int64_t *cols, int64_t *rows, struct cordon_error *err)
{
    int r = cordon_field_int(body, "cols", 1, SIDE_MAX, cols, err);
    return r < 0 ? r : cordon_field_int(body, "rows", 1, SIDE_MAX, rows, err);
}

static int read_terminal(const struct cordon_http_request *request, struct cordon_door_memory *memory,
                         struct cordon_operation *operation, struct cordon_error *err)
{
    struct cordon_texts command = {0};
    struct cordon_value body;
    int64_t cols = 80, rows = 24;
    int r = cordon_fields_parse(&request->body, &body, err);
    if (r == 0)
        r = read_size(&body, &cols, &rows, err);
    if (r >= 0)
        r = cordon_field_texts(&body, "command", memory, &command, err);
    if (r >= 0)
        r = cordon_field_text(&body, "cwd", memory, &operation->cwd, err);
    if (r >= 0)
        r = cordon_field_text(&body, "user", memory, &operation->user, err);
    operation->cols = (uint16_t)cols;
    operation->rows = (uint16_t)rows;
    operation->argv = command.count ? command.items : shell;
    operation->argc = command.count ? command.count : sizeof shell / sizeof *shell;
    return r < 0 ? r : 0;
}

/* Who sees all guests may enter that of another: that is recorded. */
static int audit(struct cordon_http_request *request, const char *guest, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    const struct cordon_audit_entry entry = {
        .who = cordon_admin_who(request), .action = "terminal.open", .subject = guest, .before = "", .after = ""};
    return request->sees_all ? cordon_audit_add(doors->store, &entry, err) : 0;
}

static int open_terminal(struct cordon_http_request *request, struct cordon_live_stream **ret, struct cordon_error *err)
{
    char guest[CORDON_GUEST_ID];
    cordon_autoforget struct cordon_door_memory memory = {0};
    struct cordon_operation operation = {.struct_size = sizeof operation,
                                         .kind = CORDON_OP_EXEC,
                                         .env = terminal_env,
                                         .env_count = sizeof terminal_env / sizeof *terminal_env,
                                         .stdin_open = true,
                                         .kill_on_close = true,
                                         .cancel_fd = request->fd};
    int r = cordon_guest_of(request, guest, err);
    if (r == 0)
        r = read_terminal(request, &memory, &operation, err);
    if (r == 0)
        r = audit(request, guest, err);
    return r < 0 ? r : cordon_guests_open(cordon_guest_viewer(request), guest, &operation, ret, err);
}

int cordon_guest_terminal_post(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_live_stream *live = NULL;
    int r = open_terminal(request, &live, err);
    if (r < 0)
        return r;
    struct terminal *terminal = calloc(1, sizeof *terminal);
    if (!terminal) {
        cordon_guests_close(live);
        return cordon_fail_errno(err, -ENOMEM, "opening a terminal");
    }
    terminal->live = live;
    return cordon_http_reply_stream(request, "application/x-ndjson", &ndjson, terminal);
}

/* --- to a program that runs --- */

/* The path's guest and pid, and the body. */
static int read_target(struct cordon_http_request *request, char guest[CORDON_GUEST_ID], uint32_t *pid,
                       struct cordon_value *body, struct cordon_error *err)
{
    int r = cordon_guest_of(request, guest, err);
    if (r == 0)
        r = cordon_guest_pid_of(request, pid, err);
    return r < 0 ? r : cordon_fields_parse(&request->body, body, err);
}

static int read_data(const struct cordon_value *body, struct cordon_door_memory *memory, struct cordon_buf *to,
                     struct cordon_error *err)
{
    const char *text = NULL;
    int r = cordon_field_bytes(body, "data_b64", to, err);
    if (r == 0)
        r = cordon_field_text(body, "data", memory, &text, err);
    if (r > 0 && text && cordon_buf_appends(to, text) < 0)
        return cordon_fail(err, -EMSGSIZE, CORDON_ERROR_TOO_LARGE, "data: at most %u bytes may come at once",
                           INPUT_MAX);
    if (r == 0)
        r = cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "give data (text) or data_b64 (any bytes)");
    return r < 0 ? r : 0;
}

int cordon_guest_input_post(struct cordon_http_request *request, struct cordon_error *err)
{
    char guest[CORDON_GUEST_ID];
    cordon_autoforget struct cordon_door_memory memory = {0};
    struct cordon_buf data = CORDON_BUF_INIT(INPUT_MAX);
    struct cordon_value body;
    uint32_t pid = 0;
    int r = read_target(request, guest, &pid, &body, err);
    if (r == 0)
        r = read_data(&body, &memory, &data, err);
    if (r == 0 && data.size)
        r = cordon_guests_exec_write(cordon_guest_viewer(request), guest, pid, NULL, CORDON_TO_STDIN, data.data,
                                     data.size, err);
    cordon_buf_wipe(&data);
    return r < 0 ? r : cordon_guest_reply_nothing(request, err);
}

int cordon_guest_resize_post(struct cordon_http_request *request, struct cordon_error *err)
{
    char guest[CORDON_GUEST_ID];
    struct cordon_value body;
    int64_t cols = 0, rows = 0;
    uint32_t pid = 0;
    int r = read_target(request, guest, &pid, &body, err);
    if (r == 0)
        r = read_size(&body, &cols, &rows, err);
    if (r >= 0 && (!cols || !rows))
        r = cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "give both cols and rows");
    if (r >= 0)
        r = cordon_guests_exec_control(cordon_guest_viewer(request), guest, pid, NULL, CORDON_CONTROL_RESIZE,
                                       (uint32_t)cols << 16 | (uint32_t)rows, err);
    return r < 0 ? r : cordon_guest_reply_nothing(request, err);
}
