/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `createos`: plain REST with JSend envelopes, output as lines of JSON. What it can't hold it says: 169.254.0.0/16
 * stays reachable with the network off (an exception that the operator has to accept), and rules by name are echoed and
 * not enforced, so they are refused here. A shape is the smallest that has what the run needs, never a smaller one.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "backend/builtin.h"
#include "backend/remote/envelope.h"
#include "backend/remote/remote.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"

#define EXCEPTION "169.254.0.0/16"
#define DENY_ALL "240.0.0.0/4" /* the idiom: there is no word for it */
#define SHAPE_LEAST_MIB 4096
#define SHAPE_UNKNOWN "s-2vcpu-4gb"
#define SHAPES_US (600u * 1000000u)
#define SHAPES_MAX 64
#define PAUSE_SPARE_S 120
#define URL_MAX 512

struct state {
    char id[80];
    struct cordon_remote_reader reader;
    bool ended, buffered, streams;          /* buffered: this server has no streams; streams: it was seen to */
    struct cordon_remote_output waiting[3]; /* of a buffered exec */
    size_t waiting_count, waiting_at;
};

static const struct cordon_remote_service service;

struct shape {
    char id[64];
    int64_t mem_mib;
};
static struct {
    pthread_mutex_t lock;
    struct shape list[SHAPES_MAX];
    size_t count;
    uint64_t good_until_us;
} shapes = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void make_url(char to[URL_MAX], const char *path)
{
    const char *base = cordon_remote_text(CORDON_SET_CREATEOS_BASE_URL);
    (void)snprintf(to, URL_MAX, "%.*s%s", (int)cordon_remote_base(base), base,
                   path); /* a cut one is answered as unknown */
}

static const char *const *make_headers(struct cordon_remote_headers *to, const char *type)
{
    to->count = 0;
    cordon_remote_add(to, "X-Api-Key", cordon_remote_text(CORDON_SET_CREATEOS_API_KEY));
    cordon_remote_add(to, "Content-Type", type);
    return to->list;
}

/* A call whose answer is an envelope: *data is its data, within answer->body. */
static int ask_for(struct cordon_http_call *call, const char *what, struct cordon_http_answer *answer,
                   struct cordon_value *data, struct cordon_error *err)
{
    struct cordon_remote_headers headers;
    char status[16] = "";
    struct cordon_value root;
    call->headers = make_headers(&headers, "application/json");
    int r = cordon_http_exchange(call, answer, err);
    if (r < 0)
        return r;
    if (answer->status / 100 != 2)
        return cordon_remote_refused(&service, what, answer->status, &answer->body, err);
    if (cordon_value_parse(answer->body.data ? answer->body.data : "", answer->body.size, &root, NULL) == 0 &&
        cordon_value_text(&root, "status", status, sizeof status) && strcmp(status, "success") == 0 &&
        cordon_value_member(&root, "data", data))
        return 0;
    return cordon_fail(err, -EBADMSG, CORDON_ERROR_INFRASTRUCTURE,
                       "%s: %s was answered with something that is no success", service.title, what);
}

/* --- before a sandbox is made, in the order of the sheet --- */

static bool exception_accepted(void)
{
    const char *item;
    if (cordon_remote_true(CORDON_SET_CREATEOS_ACCEPT_EGRESS_EXCEPTIONS))
        return true;
    for (size_t i = 0; (item = cordon_settings_item(cordon_remote_settings(), CORDON_DOOR_NATIVE,
                                                    CORDON_SET_ACCEPT_EGRESS_EXCEPTIONS, i));
         i++)
        if (strcmp(item, EXCEPTION) == 0)
            return true;
    return false;
}

static int check_network(const struct cordon_request *request, struct cordon_error *err)
{
    if (request->allowed_domain_count)
        return cordon_fail(
            err, -EPERM, CORDON_ERROR_UNAVAILABLE,
            "CreateOS does not hold rules by name, and the run has some (CORDON_ALLOWED_DOMAINS); the code "
            "was refused");
    if (!request->network && !exception_accepted())
        return cordon_fail(
            err, -EPERM, CORDON_ERROR_UNAVAILABLE,
            "with the network off CreateOS still reaches " EXCEPTION ", which nobody accepted "
            "(LANGFLOW_SANDBOX_CREATEOS_ACCEPT_EGRESS_EXCEPTIONS or CORDON_ACCEPT_EGRESS_EXCEPTIONS); the "
            "code was refused");
    return 0;
}

static void keep_shapes(const struct cordon_value *data)
{
    struct cordon_value list = *data, key, item, number;
    (void)cordon_value_member(data, "data", &list); /* newer servers have the list with its pages in one more object */
    pthread_mutex_lock(&shapes.lock);
    shapes.count = 0;
    struct cordon_value_walk walk = cordon_value_walk(&list);
    while (list.kind == CORDON_VALUE_ARRAY && shapes.count < SHAPES_MAX && cordon_value_next(&walk, &key, &item)) {
        struct shape *shape = &shapes.list[shapes.count];
        if (item.kind == CORDON_VALUE_OBJECT && cordon_value_text(&item, "id", shape->id, sizeof shape->id) &&
            cordon_value_member(&item, "mem_mib", &number) && cordon_value_integer(&number, &shape->mem_mib))
            shapes.count++; /* one that can't be read is skipped */
    }
    shapes.good_until_us = cordon_now_us() + SHAPES_US;
    pthread_mutex_unlock(&shapes.lock);
}

/* Without the lock: who comes meanwhile asks as well, and waits for no call but its own. */
static int load_shapes(struct cordon_run *run, struct cordon_error *err)
{
    char url[URL_MAX];
    struct cordon_http_answer answer;
    struct cordon_value data;
    pthread_mutex_lock(&shapes.lock);
    bool known = shapes.good_until_us > cordon_now_us();
    pthread_mutex_unlock(&shapes.lock);
    if (known)
        return 0;
    make_url(url, "/v1/shapes?limit=500&offset=0"); /* else a server's own page may end before all are told */
    struct cordon_http_call call = cordon_remote_call(run, "GET", url, NULL);
    call.retry = CORDON_HTTP_RETRY_SAFE;
    int r = ask_for(&call, "asking for the shapes", &answer, &data, err);
    if (r == 0)
        keep_shapes(&data);
    cordon_buf_done(&answer.body);
    return r;
}

/* The lock is held. */
static int pick_shape(int64_t needed, char to[64], struct cordon_error *err)
{
    const char *pinned = cordon_remote_text(CORDON_SET_CREATEOS_SHAPE);
    const struct shape *best = NULL;
    int64_t least = !*pinned && needed < SHAPE_LEAST_MIB ? SHAPE_LEAST_MIB : needed;
    for (size_t i = 0; i < shapes.count; i++) {
        const struct shape *shape = &shapes.list[i];
        if (*pinned ? strcmp(shape->id, pinned) != 0 : shape->mem_mib < least)
            continue;
        if (!best || shape->mem_mib < best->mem_mib ||
            (shape->mem_mib == best->mem_mib && strcmp(shape->id, best->id) < 0))
            best = shape;
    }
    if (!best && !*pinned && !shapes.count) {
        (void)snprintf(to, 64, SHAPE_UNKNOWN);
        return 0;
    }
    if (!best)
        return cordon_fail(err, -ENOENT, CORDON_ERROR_UNAVAILABLE,
                           *pinned ? "CreateOS has no shape \"%s\" (CORDON_CREATEOS_SHAPE), of %lld MiB or more"
                                   : "CreateOS has no shape%s with %lld MiB or more",
                           pinned, (long long)least);
    if (best->mem_mib < least)
        return cordon_fail(err, -ERANGE, CORDON_ERROR_UNAVAILABLE,
                           "CreateOS's shape \"%s\" (CORDON_CREATEOS_SHAPE) has %lld MiB and the run needs %lld MiB "
                           "(LANGFLOW_SANDBOX_MEMORY_MB, CORDON_MEMORY_MB)",
                           pinned, (long long)best->mem_mib, (long long)least);
    (void)snprintf(to, 64, "%s", best->id);
    return 0;
}

static int choose_shape(struct cordon_run *run, char to[64], struct cordon_error *err)
{
    int r = load_shapes(run, err);
    if (r < 0)
        return r;
    pthread_mutex_lock(&shapes.lock);
    r = pick_shape((int64_t)(run->request->limits.memory_bytes >> 20), to, err);
    pthread_mutex_unlock(&shapes.lock);
    return r;
}

/* --- the sandbox --- */

static void write_create(const struct cordon_run *run, const char *shape, struct cordon_buf *to)
{
    struct cordon_json json = {.buf = to};
    uint64_t pause = run->request->limits.timeout_ms / 1000 + PAUSE_SPARE_S;
    char name[23];
    (void)snprintf(name, sizeof name, "lf-%.19s",
                   run->id); /* 22 characters at most; random, so never its predecessor's */
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "shape");
    cordon_json_text(&json, shape);
    cordon_json_key(&json, "rootfs");
    cordon_json_text(&json, cordon_remote_text(CORDON_SET_CREATEOS_ROOTFS));
    cordon_json_key(&json, "name");
    cordon_json_text(&json, name);
    cordon_json_key(&json, "egress");
    cordon_json_array_begin(&json);
    cordon_json_text(&json, run->request->network ? "*" : DENY_ALL);
    cordon_json_array_end(&json);
    cordon_json_key(&json, "auto_pause_after_seconds");
    cordon_json_uint(&json, pause < 86400 ? pause : 86400);
    cordon_json_object_end(&json);
}

/* The echo must say what was asked for: a rule set that a host can't read fails open. */
static bool denies(const struct cordon_value *data)
{
    struct cordon_value list, key, item;
    if (!cordon_value_member(data, "egress", &list) || list.kind != CORDON_VALUE_ARRAY)
        return false;
    struct cordon_value_walk walk = cordon_value_walk(&list);
    return cordon_value_next(&walk, &key, &item) && cordon_value_equals(&item, DENY_ALL) &&
           !cordon_value_next(&walk, &key, &item);
}

static int create(struct cordon_run *run, struct cordon_error *err)
{
    char url[URL_MAX], shape[64];
    struct state *state = run->state;
    struct cordon_buf body = CORDON_BUF_INIT(65536);
    struct cordon_http_answer answer = {0};
    struct cordon_value data;
    int r = check_network(run->request, err);
    if (r == 0)
        r = choose_shape(run, shape, err);
    if (r < 0)
        return r;
    make_url(url, "/v1/sandboxes");
    write_create(run, shape, &body);
    struct cordon_http_call call = cordon_remote_call(run, "POST", url, NULL);
    call.body = (struct cordon_bytes){body.data, body.size};
    call.retry = CORDON_HTTP_RETRY_REFUSED;
    r = ask_for(&call, "making a sandbox", &answer, &data, err);
    if (r == 0 && (!cordon_value_text(&data, "id", state->id, sizeof state->id) || !*state->id ||
                   strcspn(state->id, "/?#% ") != strlen(state->id))) {
        *state->id = '\0';
        r = cordon_fail(err, -EBADMSG, CORDON_ERROR_UNAVAILABLE,
                        "CreateOS: making a sandbox was answered without its id");
    }
    if (r == 0 && !run->request->network && !denies(&data))
        r = cordon_fail(
            err, -EPERM, CORDON_ERROR_UNAVAILABLE,
            "CreateOS: a sandbox without network was asked for, and the answer does not say that this one has "
            "none (egress); the code was not run");
    cordon_buf_done(&answer.body);
    cordon_buf_done(&body);
    return r;
}

static void destroy(struct cordon_run *run)
{
    char url[URL_MAX], path[160];
    struct cordon_remote_headers headers;
    struct cordon_http_answer answer;
    struct cordon_error err = {0};
    struct state *state = run->state;
    cordon_remote_reader_close(&state->reader);
    if (!*state->id)
        return;
    (void)snprintf(path, sizeof path, "/v1/sandboxes/%s", state->id); /* fits */
    make_url(url, path);
    struct cordon_http_call call = cordon_remote_call(run, "DELETE", url, make_headers(&headers, ""));
    call.retry = CORDON_HTTP_RETRY_SAFE;
    int r = cordon_http_exchange(&call, &answer, &err);
    if (r == 0 && answer.status / 100 != 2 && answer.status != 404)
        r = cordon_remote_refused(&service, "ending a sandbox", answer.status, &answer.body, &err);
    if (r < 0)
        cordon_log(CORDON_LOG_WARN, "a sandbox could not be ended; it pauses by itself, and must be ended by hand",
                   "backend", service.name, "sandbox", state->id, "error", err.message, NULL);
    cordon_buf_done(&answer.body);
}

/* --- files --- */

static int files_url(const struct cordon_run *run, const char *path, char to[URL_MAX], struct cordon_error *err)
{
    const struct state *state = run->state;
    struct cordon_buf text = CORDON_BUF_INIT(URL_MAX - 200);
    (void)cordon_buf_appendf(&text, "/v1/sandboxes/%s/files?path=", state->id); /* sticky */
    (void)cordon_url_encode(&text, path, strlen(path));
    if (!text.failed)
        make_url(to, text.data);
    int r = text.failed ? cordon_fail_errno(err, -ENAMETOOLONG, "CreateOS: a path") : 0;
    cordon_buf_done(&text);
    return r;
}

static int put(struct cordon_run *run, const char *path, struct cordon_bytes content, struct cordon_error *err)
{
    char url[URL_MAX];
    struct cordon_remote_headers headers;
    struct cordon_http_answer answer;
    int r = files_url(run, path, url, err);
    if (r < 0)
        return r;
    struct cordon_http_call call =
        cordon_remote_call(run, "PUT", url, make_headers(&headers, "application/octet-stream"));
    call.body = content;
    call.retry = CORDON_HTTP_RETRY_SAFE;
    r = cordon_http_exchange(&call, &answer, err);
    if (r == 0 && answer.status / 100 != 2)
        r = cordon_remote_refused(&service, "sending a file", answer.status, &answer.body, err);
    cordon_buf_done(&answer.body);
    return r;
}

static int get(struct cordon_run *run, const char *path, struct cordon_error *err)
{
    char url[URL_MAX];
    struct cordon_remote_headers headers;
    struct state *state = run->state;
    struct cordon_buf none = CORDON_BUF_INIT(0);
    cordon_remote_reader_close(&state->reader);
    int r = files_url(run, path, url, err);
    if (r < 0)
        return r;
    struct cordon_http_call call = cordon_remote_call(run, "GET", url, make_headers(&headers, ""));
    call.answer_max = SIZE_MAX; /* the archive's reader has the limit */
    r = cordon_http_open(&call, &state->reader.transfer, err);
    if (r == 0 && cordon_http_status(state->reader.transfer) != 200)
        r = cordon_remote_refused(&service, "reading a file", cordon_http_status(state->reader.transfer), &none, err);
    return r;
}

static int get_next(struct cordon_run *run, struct cordon_bytes *ret, struct cordon_error *err)
{
    struct state *state = run->state;
    return cordon_remote_reader_next(run, &state->reader, ret, err);
}

/* --- processes --- */

static void write_exec(const char *command, bool stream, struct cordon_buf *to)
{
    struct cordon_json json = {.buf = to};
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "cmd");
    cordon_json_text(&json, "/bin/sh");
    cordon_json_key(&json, "args");
    cordon_json_array_begin(&json);
    cordon_json_text(&json, "-c");
    cordon_json_text(&json, command);
    cordon_json_array_end(&json);
    if (stream) {
        cordon_json_key(&json, "stream");
        cordon_json_bool(&json, true);
    }
    cordon_json_object_end(&json);
}

static int open_exec(struct cordon_run *run, const char *command, bool stream, struct cordon_error *err)
{
    char url[URL_MAX], path[160];
    struct cordon_remote_headers headers;
    struct state *state = run->state;
    struct cordon_buf body = CORDON_BUF_INIT(65536);
    (void)snprintf(path, sizeof path, "/v1/sandboxes/%s/exec%s", state->id, stream ? "?stream=true" : ""); /* fits */
    make_url(url, path);
    write_exec(command, stream, &body);
    struct cordon_http_call call = cordon_remote_call(run, "POST", url, make_headers(&headers, "application/json"));
    call.body = (struct cordon_bytes){body.data, body.size};
    call.answer_max = SIZE_MAX; /* the output's limits are held by whoever reads it */
    int r = body.failed ? cordon_fail_errno(err, -ENOMEM, "CreateOS: starting a process")
                        : cordon_http_open(&call, &state->reader.transfer, err);
    cordon_buf_done(&body);
    return r;
}

static int refuse_open(struct state *state, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(4096);
    struct cordon_bytes data;
    unsigned status = cordon_http_status(state->reader.transfer);
    while (cordon_http_read(state->reader.transfer, &data, NULL) > 0 &&
           cordon_buf_append(&body, data.data, data.size) == 0)
        continue;
    int r = cordon_remote_refused(&service, "starting a process", status, &body, err);
    if (status >= 500 && status != 501 && err) /* it may have started */
        err->kind = CORDON_ERROR_INFRASTRUCTURE;
    cordon_buf_done(&body);
    return r;
}

static int exec(struct cordon_run *run, const char *command, uint64_t limit_ms, struct cordon_error *err)
{
    struct state *state = run->state;
    cordon_remote_reader_close(&state->reader);
    state->reader.in = CORDON_BUF_INIT(CORDON_ENVELOPE_MAX * 2u);
    state->reader.decoded = CORDON_BUF_INIT(CORDON_ENVELOPE_MAX);
    state->ended = false;
    state->waiting_count = state->waiting_at = 0;
    int r = open_exec(run, command, !state->buffered, err);
    unsigned status = r == 0 ? cordon_http_status(state->reader.transfer) : 0;
    state->streams = state->streams || (status == 200 && !state->buffered);
    if (status == 404 && !state->buffered && !state->streams) { /* an older server */
        cordon_http_close(CORDON_TAKE(state->reader.transfer));
        state->buffered = true;
        r = open_exec(run, command, false, err);
    }
    if (r == 0 && cordon_http_status(state->reader.transfer) != 200)
        r = refuse_open(state, err);
    return r;
}

static int fail_stream(struct cordon_error *err, const char *why)
{
    return cordon_fail(err, -EIO, CORDON_ERROR_INFRASTRUCTURE, "CreateOS: %.300s", why);
}

/* Decodes behind what is decoded already. */
static int decode(struct state *state, const struct cordon_value *text, struct cordon_bytes *ret,
                  struct cordon_error *err)
{
    size_t at = state->reader.decoded.size;
    char *room = text->kind == CORDON_VALUE_STRING ? cordon_buf_reserve(&state->reader.decoded, text->size) : NULL;
    ssize_t size = room ? cordon_value_string(text, room) : -EBADMSG;
    if (size < 0)
        return fail_stream(err, "the process's output can not be read");
    state->reader.decoded.size += (size_t)size;
    *ret = (struct cordon_bytes){state->reader.decoded.data + at, (size_t)size};
    return 0;
}

/* One line of a stream: 1 an output, 0 nothing to tell. */
static int take_line(struct state *state, const char *text, size_t size, struct cordon_remote_output *ret,
                     struct cordon_error *err)
{
    struct cordon_value root, value;
    char why[256];
    int64_t code;
    state->reader.decoded.size = 0;
    if (!size)
        return 0;
    if (cordon_value_parse(text, size, &root, NULL) < 0)
        return fail_stream(err, "the process's stream can not be read");
    bool out = cordon_value_member(&root, "stdout", &value);
    if (out || cordon_value_member(&root, "stderr", &value)) {
        *ret = (struct cordon_remote_output){.type = out ? CORDON_REMOTE_STDOUT : CORDON_REMOTE_STDERR};
        int r = decode(state, &value, &ret->data, err);
        return r < 0 ? r : ret->data.size > 0;
    }
    if (cordon_value_text(&root, "error", why, sizeof why))
        return fail_stream(err, why);
    if (!cordon_value_member(&root, "exit_code", &value) || !cordon_value_integer(&value, &code))
        return 0; /* a heartbeat */
    *ret = (struct cordon_remote_output){.type = CORDON_REMOTE_EXIT, .exit_code = (int)code};
    state->ended = true;
    return 1;
}

/* A buffered exec's whole answer becomes three outputs. */
static int take_buffered(struct state *state, struct cordon_error *err)
{
    struct cordon_value root, data, result, value;
    int64_t code = 0;
    char why[256] = "";
    state->reader.decoded.max = state->reader.in.size * 2 + 1;
    struct cordon_remote_output *to = state->waiting;
    if (cordon_value_parse(state->reader.in.data ? state->reader.in.data : "", state->reader.in.size, &root, NULL) <
            0 ||
        !cordon_value_member(&root, "data", &data) || !cordon_value_member(&data, "result", &result) ||
        !cordon_value_member(&result, "exit_code", &value) || !cordon_value_integer(&value, &code))
        return fail_stream(err, "the answer to a process can not be read");
    if (cordon_value_text(&result, "error", why, sizeof why) && *why)
        return fail_stream(err, why);
    if (!cordon_buf_reserve(&state->reader.decoded, state->reader.in.size)) /* what points into it must not move */
        return fail_stream(err, "no memory for a process's output");
    for (int i = 0; i < 2; i++) {
        if (!cordon_value_member(&result, i ? "stderr" : "stdout", &value))
            continue;
        to->type = i ? CORDON_REMOTE_STDERR : CORDON_REMOTE_STDOUT;
        if (decode(state, &value, &to->data, err) < 0)
            return -EIO;
        to += to->data.size > 0;
    }
    *to++ = (struct cordon_remote_output){.type = CORDON_REMOTE_EXIT, .exit_code = (int)code};
    state->waiting_count = (size_t)(to - state->waiting);
    return 0;
}

static int next_buffered(struct state *state, struct cordon_remote_output *ret, struct cordon_error *err)
{
    struct cordon_bytes data;
    int r = 0;
    while (!state->waiting_count && (r = cordon_http_read(state->reader.transfer, &data, err)) > 0)
        if (cordon_buf_append(&state->reader.in, data.data, data.size) < 0)
            return fail_stream(err, "the answer to a process is too large");
    if (r == 0 && !state->waiting_count)
        r = take_buffered(state, err);
    if (r < 0)
        return r;
    if (state->waiting_at == state->waiting_count)
        return 0;
    *ret = state->waiting[state->waiting_at++];
    return 1;
}

static int exec_next(struct cordon_run *run, struct cordon_remote_output *ret, struct cordon_error *err)
{
    struct state *state = run->state;
    cordon_http_extend(state->reader.transfer, run->deadline_us);
    if (state->buffered)
        return next_buffered(state, ret, err);
    for (;;) {
        const char *text;
        size_t size;
        struct cordon_bytes data;
        cordon_buf_consume(&state->reader.in, state->reader.in_used);
        state->reader.in_used = 0;
        if (state->ended)
            return 0;
        int r = cordon_line_next(&state->reader.in, &text, &size, &state->reader.in_used);
        if (r < 0)
            return fail_stream(err, "a line of the process's stream is too long");
        if (r > 0) {
            r = take_line(state, text, size, ret, err);
            if (r != 0)
                return r;
            continue;
        }
        r = cordon_http_read(state->reader.transfer, &data, err);
        if (r < 0)
            return r;
        if (r == 0)
            return fail_stream(err, "the process's stream ended before the process");
        if (cordon_buf_append(&state->reader.in, data.data, data.size) < 0)
            return fail_stream(err, "a line of the process's stream is too long");
    }
}

/* --- the rest --- */

static const char *folder(void)
{
    return "/tmp";
}

static int configured(struct cordon_error *err)
{
    const char *url = cordon_remote_text(CORDON_SET_CREATEOS_BASE_URL);
    if (!*cordon_remote_text(CORDON_SET_CREATEOS_API_KEY))
        return cordon_remote_unset(&service,
                                   "a key is required (CORDON_CREATEOS_API_KEY, CREATEOS_SANDBOX_API_KEY); the "
                                   "profile page of createos.sh makes one",
                                   err);
    if (strncmp(url, "https://", 8) != 0 && !(strncmp(url, "http://", 7) == 0 && cordon_url_is_loopback(url)))
        return cordon_remote_unset(&service,
                                   "CORDON_CREATEOS_BASE_URL must begin with https:// (http:// only for this "
                                   "machine)",
                                   err);
    return 0;
}

static const struct cordon_remote_service service = {
    .name = "createos",
    .title = "CreateOS",
    .state_size = sizeof(struct state),
    .isolation = cordon_remote_virtualized,
    .folder = folder,
    .python = cordon_remote_python3,
    .node = cordon_remote_node,
    .max_output = -1,
    .max_artifacts = -1,
    .max_artifact_bytes = -1,
    .configured = configured,
    .create = create,
    .put = put,
    .exec = exec,
    .exec_next = exec_next,
    .get = get,
    .get_next = get_next,
    .destroy = destroy,
};

static const struct cordon_capabilities *capabilities(void)
{
    static struct cordon_capabilities kept;
    struct cordon_capabilities now;
    memset(&now, 0, sizeof now); /* its padding is compared, too */
    now.struct_size = sizeof now;
    now.isolation = CORDON_ISOLATION_HARDWARE_VIRTUALIZED;
    now.deny_all_egress = now.files = now.artifacts = now.streaming = now.network = true;
    now.languages = "python,javascript,bash";
    now.egress_exceptions = cordon_remote_true(CORDON_SET_CREATEOS_ACCEPT_EGRESS_EXCEPTIONS) ? "" : EXCEPTION;
    return cordon_remote_capabilities(&kept, &now);
}

static int ask(struct cordon_error *err)
{
    char url[URL_MAX];
    struct cordon_http_answer answer;
    struct cordon_value data;
    make_url(url, "/v1/whoami");
    struct cordon_http_call call = {.method = "GET",
                                    .url = url,
                                    .deadline_us = cordon_now_us() + 10000000u,
                                    .cancel_fd = -1,
                                    .retry = CORDON_HTTP_RETRY_SAFE};
    int r = ask_for(&call, "asking who we are", &answer, &data, err);
    cordon_buf_done(&answer.body);
    return r;
}

CORDON_REMOTE_BACKEND(createos, &service, ask, .shutdown = NULL);
