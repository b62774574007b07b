/* SPDX-License-Identifier: Apache-2.0 */
/*
 * envd, the part of E2B's interface that a sandbox itself answers: processes and files, over Connect's JSON forms and
 * plain HTTP. Here: its routes, and what all of its services need. Nothing of it runs in the sandbox: each call becomes
 * an operation of core's.
 */
#include "door/e2b/envd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "door/e2b/doors.h"
#include "door/e2b/envelope.h"

int cordon_e2b_user_named(const char *name, const char **ret, struct cordon_error *err)
{
    static const char *const users[] = {"user", "root"};
    *ret = users[0];
    if (!name || !*name)
        return 0;
    for (size_t i = 0; i < sizeof users / sizeof *users; i++) {
        if (strcmp(users[i], name) == 0) {
            *ret = users[i];
            return 0;
        }
    }
    return cordon_fail(err, -EACCES, CORDON_ERROR_UNAUTHENTICATED,
                       "invalid username: '%.64s'; a sandbox has user and root", name);
}

int cordon_e2b_user(const struct cordon_http_request *request, const char **ret, struct cordon_error *err)
{
    const char *header = cordon_http_header(request, "Authorization");
    if (!header || strncasecmp(header, "Basic ", 6) != 0)
        return cordon_e2b_user_named(NULL, ret, err);
    struct cordon_buf plain = CORDON_BUF_INIT(256);
    const char *text = header + 6 + strspn(header + 6, " ");
    int r = cordon_door_unbase64(&plain, text, strlen(text));
    char *colon = r == 0 && plain.size ? memchr(plain.data, ':', plain.size) : NULL;
    if (!colon) {
        r = cordon_fail(err, -EACCES, CORDON_ERROR_UNAUTHENTICATED,
                        "Authorization: Basic can't be read: it must name a user");
    } else {
        *colon = '\0';
        r = cordon_e2b_user_named(plain.data, ret, err);
    }
    cordon_buf_done(&plain);
    return r;
}

static bool has_type(const struct cordon_http_request *request, const char *type)
{
    const char *found = cordon_http_header(request, "Content-Type");
    size_t size = strlen(type);
    return found && strncasecmp(found, type, size) == 0 && (!found[size] || found[size] == ';' || found[size] == ' ');
}

static int wrong_type(const struct cordon_http_request *request, const char *needed, struct cordon_error *err)
{
    const char *found = cordon_http_header(request, "Content-Type");
    return cordon_fail(err, -ENOSYS, CORDON_ERROR_UNSUPPORTED, "Content-Type is %.64s, where %s is needed",
                       found ? found : "missing", needed);
}

int cordon_e2b_message(const struct cordon_http_request *request, struct cordon_value *ret, struct cordon_error *err)
{
    if (!has_type(request, "application/json"))
        return wrong_type(request, "application/json", err);
    return cordon_fields_parse(&request->body, ret, err);
}

int cordon_e2b_stream_message(const struct cordon_http_request *request, struct cordon_value *ret,
                              struct cordon_error *err)
{
    struct cordon_bytes message;
    if (!has_type(request, "application/connect+json"))
        return wrong_type(request, "application/connect+json", err);
    int r = cordon_e2b_envelope_read(request->body.data, request->body.size, &message, err);
    if (r < 0)
        return r;
    const struct cordon_buf body = {.data = (char *)(uintptr_t)message.data, .size = message.size};
    return cordon_fields_parse(&body, ret, err);
}

int cordon_e2b_answer(struct cordon_http_request *request, struct cordon_buf *body, struct cordon_error *err)
{
    cordon_e2b_cors(request);
    int r = cordon_http_reply(request, 200, "application/json", body);
    return r < 0 ? cordon_fail_errno(err, r, "writing the answer to %s", request->match.route->pattern) : 0;
}

int cordon_e2b_answer_empty(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(16);
    (void)cordon_buf_appends(&body, "{}"); /* sticky, seen by the reply */
    return cordon_e2b_answer(request, &body, err);
}

int cordon_e2b_path(const char *text, const char **ret, struct cordon_error *err)
{
    if (*text == '~') {
        if (text[1] && text[1] != '/')
            return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "%.64s: the home of another user can't be named so",
                               text);
        text += 1 + strspn(text + 1, "/");
    }
    *ret = *text ? text : ".";
    return 0;
}

int cordon_e2b_path_field(const struct cordon_value *message, const char *name, struct cordon_door_memory *memory,
                          const char **ret, struct cordon_error *err)
{
    const char *text = "";
    int r = cordon_field_text(message, name, memory, &text, err);
    return r < 0 ? r : cordon_e2b_path(text, ret, err);
}

void cordon_e2b_envelope_text(struct cordon_buf *to, const char *message)
{
    size_t start = cordon_e2b_envelope_begin(to, false);
    (void)cordon_buf_appends(to, message); /* sticky in failed */
    cordon_e2b_envelope_end(to, start);
}

static void close_outlet(void *context)
{
    struct cordon_e2b_outlet *outlet = context;
    cordon_guests_close(outlet->live);
    free(outlet);
}

/* A program or folder that is not there is an invalid argument of the call that would start it. */
static void judge_start(const struct cordon_e2b_outlet *outlet, struct cordon_error *err)
{
    if (outlet->starting && err && err->kind == CORDON_ERROR_NOT_FOUND)
        err->kind = CORDON_ERROR_INVALID;
}

static int next_envelope(void *context, struct cordon_buf *out)
{
    struct cordon_e2b_outlet *outlet = context;
    struct cordon_stream_event event;
    struct cordon_error err = {0};
    bool ended = false;
    if (outlet->ended)
        return 0;
    int r = cordon_guests_next(outlet->live, outlet->keepalive_ms, &event, &ended, &err);
    if (r == -ECANCELED)
        return r; /* nobody reads any longer */
    if (r == 0 && !ended) {
        cordon_e2b_envelope_text(out, outlet->keepalive);
        return 1;
    }
    if (r > 0)
        r = outlet->tell(outlet, &event, out, &err);
    if (r == 0 && !ended)
        return 1;
    outlet->ended = true;
    judge_start(outlet, &err);
    if (r < 2)
        cordon_e2b_envelope_last(out, r < 0 ? &err : NULL);
    return 1;
}

/* The client's interval, within what makes sense. */
static int keepalive_ms(const struct cordon_http_request *request)
{
    const char *text = cordon_http_header(request, "Keepalive-Ping-Interval");
    long seconds = text ? strtol(text, NULL, 10) : 0;
    return (int)(seconds >= 1 && seconds <= 3600 ? seconds : CORDON_E2B_KEEPALIVE_S) * 1000;
}

int cordon_e2b_stream(struct cordon_http_request *request, const struct cordon_operation *operation,
                      const struct cordon_e2b_outlet *wanted, struct cordon_error *err)
{
    static const struct cordon_http_stream stream = {.next = next_envelope, .close = close_outlet};
    const struct cordon_guest_info *guest = cordon_e2b_visit(request)->guest;
    struct cordon_e2b_outlet *outlet = malloc(sizeof *outlet);
    if (!outlet)
        return cordon_fail_errno(err, -ENOMEM, "answering %s", request->match.route->pattern);
    *outlet = *wanted;
    outlet->keepalive_ms = keepalive_ms(request);
    int r = cordon_guests_open(guest->tenant, guest->id, operation, &outlet->live, err);
    if (r < 0) {
        judge_start(outlet, err);
        free(outlet);
        return r;
    }
    cordon_e2b_cors(request);
    r = cordon_http_reply_stream(request, "application/connect+json", &stream, outlet);
    return r < 0 ? cordon_fail_errno(err, r, "answering %s", request->match.route->pattern) : 0;
}

static int health(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(1);
    cordon_e2b_cors(request);
    int r = cordon_http_reply(request, 204, "text/plain", &body);
    return r < 0 ? cordon_fail_errno(err, r, "writing the answer to /health") : 0;
}

static int metrics(struct cordon_http_request *request, struct cordon_error *err)
{
    const struct cordon_guest_info *guest = cordon_e2b_visit(request)->guest;
    struct cordon_guest_metrics now;
    int r = cordon_guests_metrics(guest->tenant, guest->id, &now, err);
    if (r < 0)
        return r;
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {
        {"ts", (uint64_t)(now.at_us / 1000000)},
        {"cpu_count", now.usage.cpu_percent ? (now.usage.cpu_percent + 99) / 100 : 1},
        {"cpu_used_pct", now.cpu_used_percent > 0 ? (uint64_t)(now.cpu_used_percent + 0.5) : 0},
        {"mem_total", now.usage.memory_limit_bytes},
        {"mem_used", now.usage.memory_bytes},
        {"mem_cache", now.usage.memory_cache_bytes},
        {"mem_total_mib", now.usage.memory_limit_bytes >> 20},
        {"mem_used_mib", now.usage.memory_bytes >> 20},
        {"disk_used", now.disk_used},
        {"disk_total", now.disk_total},
    };
    struct cordon_buf body = CORDON_BUF_INIT(4096);
    struct cordon_json json = {.buf = &body};
    cordon_json_object_begin(&json);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cordon_json_key(&json, rows[i].name);
        cordon_json_uint(&json, rows[i].value);
    }
    cordon_json_object_end(&json);
    return cordon_e2b_answer(request, &body, err);
}

static int absent(struct cordon_http_request *request, struct cordon_error *err)
{
    return cordon_fail(err, -ENOSYS, CORDON_ERROR_UNSUPPORTED, "%.16s %.128s is not implemented by this server",
                       request->method, request->path);
}

static bool claims(const struct cordon_http_request *request)
{
    struct cordon_e2b_address address;
    if (cordon_e2b_visit_address(request, &address))
        return address.port == CORDON_E2B_PORT_ENVD;
    return strcmp(request->path, "/files") == 0 || strncmp(request->path, "/process.Process/", 17) == 0 ||
           strncmp(request->path, "/filesystem.Filesystem/", 23) == 0;
}

static int admit(struct cordon_http_request *request, struct cordon_error *err)
{
    const char *pattern = request->match.route->pattern;
    return cordon_e2b_visit_enter(request,
                                  strcmp(pattern, "/health") == 0  ? CORDON_E2B_OPEN
                                  : strcmp(pattern, "/files") == 0 ? CORDON_E2B_ACCESS_OR_SIGNED
                                                                   : CORDON_E2B_ACCESS,
                                  err);
}

#define MESSAGE (4u << 20)
#define RPC(name, handle, doc)                                                                                         \
    {                                                                                                                  \
        "POST", name, handle, CORDON_HTTP_OWN, MESSAGE, doc, NULL, NULL, NULL                                          \
    }
#define ROW(method, name, handle, limit, doc)                                                                          \
    {                                                                                                                  \
        method, name, handle, CORDON_HTTP_OWN, limit, doc, NULL, NULL, NULL                                            \
    }

/* clang-format off */
static const struct cordon_http_route routes[] = {
    RPC("/process.Process/Start", cordon_e2b_process_start, "E2B: starts a program, and streams what it does."),
    RPC("/process.Process/Connect", cordon_e2b_process_connect, "E2B: streams what a running program does."),
    RPC("/process.Process/List", cordon_e2b_process_list, "E2B: the running programs."),
    RPC("/process.Process/SendInput", cordon_e2b_process_input, "E2B: writes to a program's stdin or terminal."),
    RPC("/process.Process/CloseStdin", cordon_e2b_process_close_stdin, "E2B: ends a program's stdin."),
    RPC("/process.Process/SendSignal", cordon_e2b_process_signal, "E2B: SIGTERM or SIGKILL to a program."),
    RPC("/process.Process/Update", cordon_e2b_process_update, "E2B: resizes a program's terminal."),
    RPC("/process.Process/StreamInput", absent, NULL),
    RPC("/filesystem.Filesystem/Stat", cordon_e2b_fs_stat, "E2B: tells of one file."),
    RPC("/filesystem.Filesystem/MakeDir", cordon_e2b_fs_mkdir, "E2B: makes a directory and those above it."),
    RPC("/filesystem.Filesystem/Move", cordon_e2b_fs_move, "E2B: moves a file."),
    RPC("/filesystem.Filesystem/ListDir", cordon_e2b_fs_list, "E2B: lists a directory."),
    RPC("/filesystem.Filesystem/Remove", cordon_e2b_fs_remove, "E2B: removes a file or directory."),
    RPC("/filesystem.Filesystem/WatchDir", cordon_e2b_fs_watch, "E2B: streams what happens in a directory."),
    RPC("/filesystem.Filesystem/CreateWatcher", cordon_e2b_watcher_create, "E2B: watches a directory, to be asked later."),
    RPC("/filesystem.Filesystem/GetWatcherEvents", cordon_e2b_watcher_events, "E2B: what happened since the last call."),
    RPC("/filesystem.Filesystem/RemoveWatcher", cordon_e2b_watcher_remove, "E2B: ends a watcher."),
    ROW("GET", "/files", cordon_e2b_files_get, 0, "E2B: a file's content."),
    ROW("POST", "/files", cordon_e2b_files_post, CORDON_HTTP_BODY_INTAKE, "E2B: writes files."),
    {"*", "/files/compose", absent, CORDON_HTTP_OWN, MESSAGE, NULL, NULL, NULL, NULL},
    ROW("GET", "/health", health, 0, NULL),
    ROW("GET", "/metrics", metrics, 0, NULL),
    {"OPTIONS", "*", cordon_e2b_preflight, CORDON_HTTP_OPEN, 0, NULL, NULL, NULL, NULL},
    {"*", "/init", absent, CORDON_HTTP_OWN, MESSAGE, NULL, NULL, NULL, NULL},
    {"*", "/envs", absent, CORDON_HTTP_OWN, MESSAGE, NULL, NULL, NULL, NULL},
};
/* clang-format on */

const struct cordon_http_door cordon_door_e2b_envd = {
    .name = "e2b-envd",
    .routes = routes,
    .route_count = sizeof routes / sizeof *routes,
    .claims = claims,
    .admit = admit,
    .dismiss = cordon_e2b_visit_dismiss,
    .intake = &cordon_e2b_files_intake,
    .reply_error = cordon_e2b_visit_reply_error,
};
