/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /v1/guests/{guest}/cells: one cell. With Accept: application/x-ndjson each event is a line that leaves as it
 * happens, and {"type":"keepalive"} after each 5 s of silence, by which a client that left is found out. Else one
 * object with all of it; what is kept of the output is then bounded as a run's.
 */
#include <errno.h>
#include <stdlib.h>

#include "cells/cells.h"
#include "core/run.h"
#include "door/guests/guests.h"

#define KEEPALIVE_MS 5000
#define SHOWN_KEPT (64u << 20) /* of an answer in one piece */

struct cell_reply {
    struct cordon_cell *cell;
    struct cordon_event_writer writer;
    bool ended;
};

static void write_raw(struct cordon_json *json, const char *key, struct cordon_bytes data)
{
    cordon_json_key(json, key);
    cordon_json_raw(json, data.data, data.size);
}

static void write_end(struct cordon_json *json, const struct cordon_cell_end *end)
{
    cordon_json_key(json, "cause");
    cordon_json_text(json, cordon_cause_name(end->cause));
    cordon_json_key(json, "context_ended");
    cordon_json_bool(json, end->context_ended);
    cordon_json_key(json, "exit_code");
    if (end->exit_code >= 0)
        cordon_json_int(json, end->exit_code);
    else
        cordon_json_null(json);
    cordon_json_key(json, "run_ms");
    cordon_json_ms(json, end->run_us);
    cordon_json_key(json, "results_dropped");
    cordon_json_uint(json, end->shown_dropped);
    cordon_json_key(json, "message");
    cordon_json_text(json, end->message);
}

static void write_started(struct cordon_json *json, const struct cordon_cell *cell,
                          const struct cordon_cell_event *event)
{
    cordon_json_key(json, "context");
    cordon_json_text(json, cordon_cell_context(cell));
    cordon_json_key(json, "number");
    cordon_json_uint(json, event->number);
    cordon_json_key(json, "fresh");
    cordon_json_bool(json, event->fresh);
}

/* --- as a stream --- */

static void write_output(struct cell_reply *reply, const struct cordon_cell_event *event, struct cordon_buf *out)
{
    struct cordon_event line = {.type = event->type == CORDON_CELL_STDOUT ? CORDON_EVENT_STDOUT : CORDON_EVENT_STDERR,
                                .data = event->data};
    cordon_event_write(&reply->writer, &line, out);
}

/* Half a character that a stream ended with is told before the end. */
static void write_rest(struct cell_reply *reply, struct cordon_buf *out)
{
    for (int i = 0; i < 2; i++) {
        struct cordon_json json = {.buf = out};
        if (!reply->writer.carried[i])
            continue;
        cordon_json_object_begin(&json);
        cordon_json_key(&json, "type");
        cordon_json_text(&json, i ? "stderr" : "stdout");
        cordon_json_key(&json, "data_b64");
        cordon_json_base64(&json, reply->writer.carry[i], reply->writer.carried[i]);
        cordon_json_object_end(&json);
        (void)cordon_buf_append(out, "\n", 1); /* sticky */
        reply->writer.carried[i] = 0;
    }
}

static void write_line(struct cell_reply *reply, const struct cordon_cell_event *event, struct cordon_buf *out)
{
    static const char *const names[] = {[CORDON_CELL_STARTED] = "started",
                                        [CORDON_CELL_SHOWN] = "result",
                                        [CORDON_CELL_ERROR] = "error",
                                        [CORDON_CELL_END] = "end"};
    if (event->type == CORDON_CELL_STDOUT || event->type == CORDON_CELL_STDERR) {
        write_output(reply, event, out);
        return;
    }
    if (event->type == CORDON_CELL_END)
        write_rest(reply, out);
    struct cordon_json json = {.buf = out};
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "type");
    cordon_json_text(&json, names[event->type]);
    if (event->type == CORDON_CELL_STARTED)
        write_started(&json, reply->cell, event);
    else if (event->type == CORDON_CELL_SHOWN)
        write_raw(&json, "result", event->data);
    else if (event->type == CORDON_CELL_ERROR)
        write_raw(&json, "error", event->data);
    else
        write_end(&json, event->end);
    cordon_json_object_end(&json);
    (void)cordon_buf_append(out, "\n", 1); /* sticky, seen by who sends it */
}

static int next_line(void *context, struct cordon_buf *out)
{
    static const char keepalive[] = "{\"type\":\"keepalive\"}\n";
    struct cell_reply *reply = context;
    struct cordon_cell_event event = {0};
    if (reply->ended)
        return 0;
    if (cordon_cell_next(reply->cell, KEEPALIVE_MS, &event) == 0)
        return cordon_buf_append(out, keepalive, sizeof keepalive - 1) < 0 ? -ENOMEM : 1;
    write_line(reply, &event, out);
    reply->ended = event.type == CORDON_CELL_END;
    return reply->ended ? 0 : 1;
}

static void close_reply(void *context)
{
    struct cell_reply *reply = context;
    cordon_cell_close(reply->cell);
    free(reply);
}

static const struct cordon_http_stream ndjson = {.next = next_line, .close = close_reply};

/* --- in one piece --- */

struct collected {
    struct cordon_buf out[2], shown, error;
    uint64_t written[2];
    struct cordon_json shown_json;
    size_t room[2];
    struct cordon_cell_end end;
    uint32_t number;
    bool fresh;
};

static void collect_output(struct collected *to, int which, struct cordon_bytes data)
{
    size_t room = to->room[which] - to->out[which].size, n = data.size < room ? data.size : room;
    (void)cordon_buf_append(&to->out[which], data.data, n); /* sticky */
    to->written[which] += data.size;
}

static void collect(struct collected *to, const struct cordon_cell_event *event)
{
    switch (event->type) {
    case CORDON_CELL_STARTED:
        to->number = event->number;
        to->fresh = event->fresh;
        break;
    case CORDON_CELL_STDOUT:
    case CORDON_CELL_STDERR:
        collect_output(to, event->type == CORDON_CELL_STDERR, event->data);
        break;
    case CORDON_CELL_SHOWN:
        cordon_json_raw(&to->shown_json, event->data.data, event->data.size);
        break;
    case CORDON_CELL_ERROR:
        (void)cordon_buf_append(&to->error, event->data.data, event->data.size); /* sticky */
        break;
    case CORDON_CELL_END:
        to->end = *event->end;
        break;
    }
}

static void write_stream(struct cordon_json *json, const char *key, const char *truncated, const struct collected *from,
                         int which)
{
    cordon_json_key(json, key);
    cordon_json_bytes(json, from->out[which].data ? from->out[which].data : "", from->out[which].size);
    cordon_json_key(json, truncated);
    cordon_json_bool(json, from->written[which] > from->out[which].size);
}

static void write_whole(struct cordon_json *json, const struct cordon_cell *cell, const struct collected *from)
{
    struct cordon_cell_event started = {.number = from->number, .fresh = from->fresh};
    cordon_json_object_begin(json);
    write_started(json, cell, &started);
    write_stream(json, "stdout", "stdout_truncated", from, 0);
    write_stream(json, "stderr", "stderr_truncated", from, 1);
    cordon_json_key(json, "results");
    cordon_json_raw(json, from->shown.data, from->shown.size);
    cordon_json_key(json, "error");
    if (from->error.size)
        cordon_json_raw(json, from->error.data, from->error.size);
    else
        cordon_json_null(json);
    write_end(json, &from->end);
    cordon_json_object_end(json);
}

static int reply_whole(struct cordon_http_request *request, struct cordon_cell *cell, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    struct collected all = {.shown = CORDON_BUF_INIT(SHOWN_KEPT + (1u << 20)), .error = CORDON_BUF_INIT(16u << 20)};
    struct cordon_cell_event event;
    for (int i = 0; i < 2; i++) {
        all.room[i] = (size_t)cordon_settings_int(doors->settings, CORDON_DOOR_NATIVE,
                                                  i ? CORDON_SET_STDERR_KB : CORDON_SET_STDOUT_KB)
                      << 10;
        all.out[i] = CORDON_BUF_INIT(all.room[i]);
    }
    all.shown_json.buf = &all.shown;
    cordon_json_array_begin(&all.shown_json);
    do {
        if (cordon_cell_next(cell, -1, &event))
            collect(&all, &event);
    } while (event.type != CORDON_CELL_END);
    cordon_json_array_end(&all.shown_json);
    struct cordon_guest_reply reply;
    cordon_guest_reply_begin(&reply);
    bool lost = all.shown.failed || all.error.failed || all.out[0].failed || all.out[1].failed;
    write_whole(&reply.json, cell, &all);
    for (int i = 0; i < 2; i++)
        cordon_buf_done(&all.out[i]);
    cordon_buf_done(&all.shown);
    cordon_buf_done(&all.error);
    if (lost) {
        cordon_buf_done(&reply.body);
        return cordon_fail(err, -EMSGSIZE, CORDON_ERROR_TOO_LARGE,
                           "the cell gave more than fits one answer; ask for application/x-ndjson");
    }
    return cordon_guest_reply_send(request, 200, &reply, err);
}

/* --- the request --- */

static int read_code(const struct cordon_value *body, struct cordon_door_memory *memory, struct cordon_bytes *ret,
                     struct cordon_error *err)
{
    struct cordon_value value;
    if (!cordon_field(body, "code", &value) || value.kind != CORDON_VALUE_STRING)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "code must be a string with the cell's program");
    char *code = cordon_door_take(memory, value.size);
    ssize_t n = code ? cordon_value_string(&value, code) : -ENOMEM;
    if (n < 0)
        return cordon_fail(err, (int)n, n == -ENOMEM ? CORDON_ERROR_INFRASTRUCTURE : CORDON_ERROR_INVALID,
                           "code has half a surrogate pair, which is no character");
    *ret = (struct cordon_bytes){code, (size_t)n};
    return 0;
}

static int read_cell(const struct cordon_http_request *request, struct cordon_door_memory *memory,
                     struct cordon_cell_request *ret, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    int64_t usual = cordon_settings_int(doors->settings, CORDON_DOOR_NATIVE, CORDON_SET_TIMEOUT_S);
    int64_t most = cordon_settings_int(doors->settings, CORDON_DOOR_NATIVE, CORDON_SET_MAX_TIMEOUT_S);
    struct cordon_texts env = {0};
    struct cordon_value body;
    ret->timeout_ms = (uint64_t)(usual < most ? usual : most) * 1000;
    int r = cordon_fields_parse(&request->body, &body, err);
    if (r == 0)
        r = read_code(&body, memory, &ret->code, err);
    if (r >= 0)
        r = cordon_field_text(&body, "context", memory, &ret->context, err);
    if (r >= 0)
        r = cordon_field_text(&body, "language", memory, &ret->language, err);
    if (r >= 0)
        r = cordon_field_env(&body, "env", memory, &env, err);
    if (r >= 0)
        r = cordon_guest_seconds(&body, "timeout_s", (double)most, &ret->timeout_ms, err);
    ret->env = env.items;
    ret->env_count = env.count;
    return r < 0 ? r : 0;
}

static int open_cell(struct cordon_http_request *request, struct cordon_cell **ret, struct cordon_error *err)
{
    char guest[CORDON_GUEST_ID];
    cordon_autoforget struct cordon_door_memory memory = {0};
    struct cordon_cell_request cell = {
        .tenant = cordon_guest_viewer(request), .guest = guest, .cancel_fd = request->fd};
    int r = cordon_guest_of(request, guest, err);
    if (r == 0)
        r = read_cell(request, &memory, &cell, err);
    if (r == 0)
        r = cordon_cell_open(&cell, ret, err);
    return r;
}

int cordon_guest_cell_post(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_cell *cell = NULL;
    int r = open_cell(request, &cell, err);
    if (r < 0)
        return r;
    if (!cordon_http_accepts(request, "application/x-ndjson")) {
        r = reply_whole(request, cell, err);
        cordon_cell_close(cell);
        return r;
    }
    struct cell_reply *reply = calloc(1, sizeof *reply);
    if (!reply) {
        cordon_cell_close(cell);
        return cordon_fail_errno(err, -ENOMEM, "starting a cell");
    }
    reply->cell = cell;
    return cordon_http_reply_stream(request, "application/x-ndjson", &ndjson, reply);
}
