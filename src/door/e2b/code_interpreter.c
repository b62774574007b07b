/* SPDX-License-Identifier: Apache-2.0 */
/*
 * E2B's code interpreter: port 49999 of a sandbox. /execute is one cell, told line by line; contexts are cells'
 * contexts. A client that leaves is found out by the keepalive line after 5 s of silence, or by its connection's end;
 * then the cell is interrupted.
 *
 * /execute shows the access token; the SDK's calls for contexts carry none, so those are open to whoever may use the
 * sandbox's ports (its traffic token where it has one).
 */
#include "door/e2b/code_interpreter.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cells/cells.h"
#include "door/e2b/doors.h"
#include "door/e2b/visit.h"
#include "door/fields.h"

#define KEEPALIVE_MS 5000
#define PORT 49999

static const struct cordon_guest_info *guest_of(const struct cordon_http_request *request)
{
    const struct cordon_e2b_visit *visit = request->admitted;
    return visit->guest;
}

static bool claims(const struct cordon_http_request *request)
{
    struct cordon_e2b_address address;
    return cordon_e2b_visit_address(request, &address) && address.port == PORT;
}

static int admit(struct cordon_http_request *request, struct cordon_error *err)
{
    bool execute = strcmp(request->path, "/execute") == 0;
    return cordon_e2b_visit_enter(request, execute ? CORDON_E2B_ACCESS : CORDON_E2B_TRAFFIC, err);
}

static int reply_text(struct cordon_http_request *request, int status, const char *type, const char *text,
                      struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(4096);
    (void)cordon_buf_appends(&body, text); /* sticky, seen by the reply */
    cordon_e2b_cors(request);
    int r = cordon_http_reply(request, status, type, &body);
    return r < 0 ? cordon_fail_errno(err, r, "writing the answer") : 0;
}

/* This service's errors are plain text; what concerns the sandbox as a whole is told as for all its ports. */
static int reply_error(struct cordon_http_request *request, const struct cordon_error *err)
{
    struct cordon_error failed = {0};
    if (err->kind == CORDON_ERROR_NOT_FOUND && request->admitted)
        return reply_text(request, 404, "text/plain", err->message, &failed);
    if (err->kind == CORDON_ERROR_INVALID)
        return reply_text(request, 400, "text/plain", err->message, &failed);
    return cordon_e2b_visit_reply_error(request, err);
}

/* --- one cell --- */

struct execution {
    struct cordon_cell *cell;
    struct cordon_e2b_cell_writer writer;
    bool ended;
};

static int next_lines(void *context, struct cordon_buf *out)
{
    struct execution *execution = context;
    struct cordon_cell_event event = {0};
    if (execution->ended)
        return 0;
    if (cordon_cell_next(execution->cell, KEEPALIVE_MS, &event))
        cordon_e2b_cell_write(&execution->writer, &event, out);
    else
        (void)cordon_buf_appends(out, "{\"type\":\"keepalive\"}\n"); /* sticky, seen by who sends it */
    execution->ended = event.type == CORDON_CELL_END;
    return !execution->ended;
}

static void close_execution(void *context)
{
    struct execution *execution = context;
    cordon_cell_close(execution->cell);
    free(execution);
}

static const struct cordon_http_stream lines = {.next = next_lines, .close = close_execution};

static int read_execution(const struct cordon_http_request *request, struct cordon_door_memory *memory,
                          struct cordon_cell_request *ret, struct cordon_error *err)
{
    struct cordon_texts env = {0};
    struct cordon_value body, code;
    int r = cordon_fields_parse(&request->body, &body, err);
    if (r == 0 && (!cordon_field(&body, "code", &code) || code.kind != CORDON_VALUE_STRING))
        r = cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "code must be a string");
    char *text = r == 0 ? cordon_door_take(memory, code.size) : NULL;
    ssize_t n = text ? cordon_value_string(&code, text) : 0;
    if (r == 0 && (!text || n < 0))
        r = cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "code has half a surrogate pair, which is no character");
    if (r == 0)
        r = cordon_field_text(&body, "context_id", memory, &ret->context, err);
    if (r >= 0)
        r = cordon_field_text(&body, "language", memory, &ret->language, err);
    if (r >= 0)
        r = cordon_field_env(&body, "env_vars", memory, &env, err);
    if (r >= 0 && ret->context && ret->language)
        r = cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "Only one of context_id or language can be provided");
    ret->code = (struct cordon_bytes){text, text && n > 0 ? (size_t)n : 0};
    ret->env = env.items;
    ret->env_count = env.count;
    return r < 0 ? r : 0;
}

static int open_execution(struct cordon_http_request *request, struct cordon_cell **ret, struct cordon_error *err)
{
    cordon_autoforget struct cordon_door_memory memory = {0};
    const struct cordon_guest_info *guest = guest_of(request);
    struct cordon_cell_request cell = {.tenant = guest->tenant, .guest = guest->id, .cancel_fd = request->fd};
    struct cordon_error why = {0};
    int r = read_execution(request, &memory, &cell, err);
    if (r < 0)
        return r;
    r = cordon_cell_open(&cell, ret, &why);
    if (r < 0 && why.kind == CORDON_ERROR_NOT_FOUND && cell.context)
        return cordon_fail(err, r, CORDON_ERROR_NOT_FOUND, "Context %.64s not found", cell.context);
    if (r < 0)
        *err = why;
    return r;
}

static int execute_post(struct cordon_http_request *request, struct cordon_error *err)
{
    struct execution *execution = calloc(1, sizeof *execution);
    if (!execution)
        return cordon_fail_errno(err, -ENOMEM, "starting a cell");
    int r = open_execution(request, &execution->cell, err);
    if (r < 0) {
        free(execution);
        return r;
    }
    cordon_e2b_cors(request);
    return cordon_http_reply_stream(request, "application/x-ndjson", &lines, execution);
}

/* --- contexts --- */

static void write_context(void *to, const struct cordon_context_info *info)
{
    struct cordon_json *json = to;
    cordon_json_object_begin(json);
    cordon_json_key(json, "id");
    cordon_json_text(json, info->id);
    cordon_json_key(json, "language");
    cordon_json_text(json, info->language);
    cordon_json_key(json, "cwd");
    cordon_json_text(json, info->cwd);
    cordon_json_object_end(json);
}

static int reply_json(struct cordon_http_request *request, struct cordon_buf *body, struct cordon_error *err)
{
    cordon_e2b_cors(request);
    int r = cordon_http_reply(request, 200, "application/json", body);
    return r < 0 ? cordon_fail_errno(err, r, "writing the answer") : 0;
}

static int contexts_get(struct cordon_http_request *request, struct cordon_error *err)
{
    const struct cordon_guest_info *guest = guest_of(request);
    struct cordon_buf body = CORDON_BUF_INIT(1u << 20);
    struct cordon_json json = {.buf = &body};
    cordon_json_array_begin(&json);
    int r = cordon_cells_list(guest->tenant, guest->id, write_context, &json, err);
    cordon_json_array_end(&json);
    if (r < 0) {
        cordon_buf_done(&body);
        return r;
    }
    return reply_json(request, &body, err);
}

static int contexts_post(struct cordon_http_request *request, struct cordon_error *err)
{
    const struct cordon_guest_info *guest = guest_of(request);
    cordon_autoforget struct cordon_door_memory memory = {0};
    const char *language = NULL, *cwd = NULL;
    struct cordon_context_info info;
    struct cordon_value body;
    int r = cordon_fields_parse(&request->body, &body, err);
    if (r == 0)
        r = cordon_field_text(&body, "language", &memory, &language, err);
    if (r >= 0)
        r = cordon_field_text(&body, "cwd", &memory, &cwd, err);
    if (r >= 0)
        r = cordon_cells_create(guest->tenant, guest->id, language, cwd, &info, err);
    if (r < 0)
        return r;
    struct cordon_buf reply = CORDON_BUF_INIT(64u << 10);
    struct cordon_json json = {.buf = &reply};
    write_context(&json, &info);
    return reply_json(request, &reply, err);
}

typedef int act(const char *tenant, const char *guest, const char *id, struct cordon_error *err);

static int act_on(struct cordon_http_request *request, act *call, struct cordon_error *err)
{
    const struct cordon_guest_info *guest = guest_of(request);
    struct cordon_error why = {0};
    char id[64];
    if (cordon_http_param(request, 0, id, sizeof id) < 0)
        return cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND, "Context not found");
    int r = call(guest->tenant, guest->id, id, &why);
    if (r < 0 && why.kind == CORDON_ERROR_NOT_FOUND)
        return cordon_fail(err, r, CORDON_ERROR_NOT_FOUND, "Context %s not found", id);
    if (r < 0) {
        *err = why;
        return r;
    }
    return reply_text(request, 200, "application/json", "null", err);
}

static int context_delete(struct cordon_http_request *request, struct cordon_error *err)
{
    return act_on(request, cordon_cells_remove, err);
}

static int context_restart(struct cordon_http_request *request, struct cordon_error *err)
{
    return act_on(request, cordon_cells_restart, err);
}

static int health_get(struct cordon_http_request *request, struct cordon_error *err)
{
    return reply_text(request, 200, "application/json", "\"OK\"", err);
}

#define OWN CORDON_HTTP_OWN
#define NONE CORDON_HTTP_BODY_NONE
#define SOME CORDON_HTTP_BODY_SETTING

/* None is in /openapi.json: they are there for requests that name a guest's port 49999 only (docs/e2b.md). */
static const struct cordon_http_route routes[] = {
    {"OPTIONS", "*", cordon_e2b_preflight, CORDON_HTTP_OPEN, SOME, NULL, NULL, NULL, NULL},
    {"GET", "/health", health_get, OWN, NONE, NULL, NULL, NULL, NULL},
    {"POST", "/execute", execute_post, OWN, SOME, NULL, NULL, NULL, NULL},
    {"GET", "/contexts", contexts_get, OWN, NONE, NULL, NULL, NULL, NULL},
    {"POST", "/contexts", contexts_post, OWN, SOME, NULL, NULL, NULL, NULL},
    {"DELETE", "/contexts/{context}", context_delete, OWN, NONE, NULL, NULL, NULL, NULL},
    {"POST", "/contexts/{context}/restart", context_restart, OWN, SOME, NULL, NULL, NULL, NULL},
};

const struct cordon_http_door cordon_door_e2b_interpreter = {
    .name = "e2b-interpreter",
    .routes = routes,
    .route_count = sizeof routes / sizeof *routes,
    .claims = claims,
    .admit = admit,
    .reply_error = reply_error,
    .dismiss = cordon_e2b_visit_dismiss,
};
