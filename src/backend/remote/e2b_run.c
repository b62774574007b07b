/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Single runs on what speaks E2B's protocol: e2b.c and ucloud.c are the backends. The agent in each sandbox (envd, port
 * 49983) takes files and runs processes, over Connect's JSON.
 *
 * "No network" is asked for as allow_internet_access. UCloud's own clients disagree on that field's spelling, and a
 * server that doesn't know it leaves the network on. So before any program runs, the server is asked what it made of
 * it, and for UCloud a connection is tried from inside, once every ten minutes and for each change of the settings.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/remote/e2b.h"
#include "backend/remote/envelope.h"
#include "backend/remote/remote.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"

#define LIFE_SPARE_S 120 /* of a sandbox beyond its run, should nobody end it */
#define INSIDE_US (600u * 1000000u)

static struct cordon_e2b_kind *kind_of(const struct cordon_run *run)
{
    return run->service == cordon_e2b_kind.service ? &cordon_e2b_kind : &cordon_e2b_ucloud_kind;
}

static struct cordon_http_call within(const struct cordon_run *run, struct cordon_http_call call)
{
    call.deadline_us = run->deadline_us;
    call.cancel_fd = run->cancel_fd;
    return call;
}

/* --- the sandbox --- */

static int create(struct cordon_run *run, struct cordon_error *err)
{
    struct cordon_e2b_state *state = run->state;
    uint64_t needed = run->request->limits.timeout_ms / 1000 + LIFE_SPARE_S;
    uint64_t life = (uint64_t)cordon_remote_number(kind_of(run)->life);
    const struct cordon_e2b_wish wish = {.life_s = life > needed ? life : needed,
                                         .network = run->request->network,
                                         .deadline_us = run->deadline_us,
                                         .cancel_fd = run->cancel_fd};
    return cordon_e2b_make(kind_of(run), &wish, &state->box, err);
}

void cordon_e2b_run_destroy(struct cordon_run *run)
{
    struct cordon_error err = {0};
    struct cordon_e2b_state *state = run->state;
    cordon_remote_reader_close(&state->reader);
    if (*state->box.id && cordon_e2b_kill(kind_of(run), &state->box, run->deadline_us, run->cancel_fd, &err) < 0)
        cordon_log(CORDON_LOG_WARN, "a sandbox could not be ended; it ends by its own lifetime", "backend",
                   run->service->name, "sandbox", state->box.id, "error", err.message, NULL);
    explicit_bzero(&state->box, sizeof state->box);
}

/* --- files --- */

int cordon_e2b_run_put(struct cordon_run *run, const char *path, struct cordon_bytes content, struct cordon_error *err)
{
    char url[CORDON_E2B_URL], target[CORDON_E2B_URL], type[128];
    struct cordon_remote_headers headers;
    struct cordon_http_answer answer;
    struct cordon_e2b_state *state = run->state;
    int r = cordon_e2b_file_path(kind_of(run), "user", path, target, err);
    if (r < 0)
        return r;
    (void)snprintf(type, sizeof type, "multipart/form-data; boundary=cordon-%s", run->id); /* fits */
    struct cordon_http_call call =
        within(run, cordon_e2b_envd_call(kind_of(run), &state->box, "POST", target, type, url, &headers));
    r = cordon_e2b_upload(kind_of(run), &call, run->id, content, &answer, err);
    if (r == 0 && answer.status != 200)
        r = cordon_remote_refused(run->service, "sending a file", answer.status, &answer.body, err);
    cordon_buf_done(&answer.body);
    return r;
}

int cordon_e2b_run_get(struct cordon_run *run, const char *path, struct cordon_error *err)
{
    char url[CORDON_E2B_URL], target[CORDON_E2B_URL];
    struct cordon_remote_headers headers;
    struct cordon_e2b_state *state = run->state;
    struct cordon_buf none = CORDON_BUF_INIT(0);
    cordon_remote_reader_close(&state->reader);
    int r = cordon_e2b_file_path(kind_of(run), "user", path, target, err);
    if (r < 0)
        return r;
    struct cordon_http_call call = within(
        run, cordon_e2b_envd_call(kind_of(run), &state->box, "GET", target, "application/octet-stream", url, &headers));
    call.answer_max = SIZE_MAX; /* the archive's reader has the limit */
    r = cordon_http_open(&call, &state->reader.transfer, err);
    if (r == 0 && cordon_http_status(state->reader.transfer) != 200)
        r = cordon_remote_refused(run->service, "reading a file", cordon_http_status(state->reader.transfer), &none,
                                  err);
    return r;
}

int cordon_e2b_run_get_next(struct cordon_run *run, struct cordon_bytes *ret, struct cordon_error *err)
{
    struct cordon_e2b_state *state = run->state;
    return cordon_remote_reader_next(run, &state->reader, ret, err);
}

/* --- processes --- */

static void write_start(const char *command, struct cordon_buf *to)
{
    struct cordon_json json = {.buf = to};
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "process");
    cordon_json_object_begin(&json);
    cordon_remote_write_shell(&json, command);
    cordon_json_object_end(&json);
    cordon_json_key(&json, "stdin");
    cordon_json_bool(&json, false);
    cordon_json_object_end(&json);
}

/* 502 in the front door's own shape: there is no such sandbox. Any other 502 may come of a program that began. */
static bool knows_no_sandbox(unsigned status, const struct cordon_buf *body)
{
    struct cordon_value root, id;
    return status == 502 && cordon_value_parse(body->data ? body->data : "", body->size, &root, NULL) == 0 &&
           cordon_value_member(&root, "sandboxId", &id);
}

static int refuse_open(struct cordon_run *run, struct cordon_error *err)
{
    struct cordon_e2b_state *state = run->state;
    struct cordon_buf body = CORDON_BUF_INIT(4096);
    struct cordon_bytes data;
    while (cordon_http_read(state->reader.transfer, &data, NULL) > 0 &&
           cordon_buf_append(&body, data.data, data.size) == 0)
        continue;
    unsigned status = cordon_http_status(state->reader.transfer);
    int r = cordon_remote_refused(run->service, "starting a process", status, &body, err);
    if (status >= 500 && status != 501 && !knows_no_sandbox(status, &body)) /* it may have started */
        err->kind = CORDON_ERROR_INFRASTRUCTURE;
    cordon_buf_done(&body);
    return r;
}

int cordon_e2b_run_exec(struct cordon_run *run, const char *command, uint64_t limit_ms, struct cordon_error *err)
{
    char url[CORDON_E2B_URL], backstop[32];
    struct cordon_remote_headers headers;
    struct cordon_e2b_state *state = run->state;
    struct cordon_buf json = CORDON_BUF_INIT(65536), body = CORDON_BUF_INIT(65536 + 16);
    cordon_remote_reader_close(&state->reader);
    state->reader.in = CORDON_BUF_INIT(CORDON_ENVELOPE_MAX + (256u << 10));
    state->reader.decoded = CORDON_BUF_INIT(CORDON_ENVELOPE_MAX);
    state->ended = false;
    state->pid = 0;
    write_start(command, &json);
    struct cordon_http_call call =
        within(run, cordon_e2b_envd_call(kind_of(run), &state->box, "POST", "/process.Process/Start",
                                         "application/connect+json", url, &headers));
    cordon_remote_add(&headers, "Connect-Protocol-Version", "1");
    (void)snprintf(backstop, sizeof backstop, "%llu", (unsigned long long)limit_ms + 5000); /* fits */
    if (limit_ms)
        cordon_remote_add(&headers, "Connect-Timeout-Ms", backstop);
    int r = json.failed || cordon_envelope_put(&body, 0, json.data, json.size) < 0
                ? cordon_fail_errno(err, -ENOMEM, "%s: starting a process", run->service->title)
                : 0;
    call.body = (struct cordon_bytes){body.data, body.size};
    call.answer_max = SIZE_MAX; /* the output's limits are held by whoever reads it */
    if (r == 0)
        r = cordon_http_open(&call, &state->reader.transfer, err);
    if (r == 0 && cordon_http_status(state->reader.transfer) != 200)
        r = refuse_open(run, err);
    cordon_buf_done(&json);
    cordon_buf_done(&body);
    return r;
}

static int take_end(struct cordon_e2b_state *state, const struct cordon_value *end, struct cordon_remote_output *ret)
{
    struct cordon_value value;
    char status[80] = "";
    int64_t code = 0;
    *ret = (struct cordon_remote_output){.type = CORDON_REMOTE_EXIT};
    if (cordon_value_member(end, "exitCode", &value) || cordon_value_member(end, "exit_code", &value))
        (void)cordon_value_integer(&value, &code); /* stays 0 */
    (void)cordon_value_text(end, "status", status, sizeof status);
    ret->signal = code < 0 ? cordon_e2b_signal(status) : 0;
    ret->exit_code = (int)code;
    state->ended = true;
    return 1;
}

static int take_data(struct cordon_run *run, const struct cordon_value *data, struct cordon_remote_output *ret,
                     struct cordon_error *err)
{
    struct cordon_e2b_state *state = run->state;
    struct cordon_value text;
    bool out = cordon_value_member(data, "stdout", &text);
    if (!out && !cordon_value_member(data, "stderr", &text))
        return 0;
    state->reader.decoded.size = 0;
    /* base64 has no character that JSON would escape but '/', and that only if it likes */
    cordon_autofree char *plain = malloc(text.size + 1);
    ssize_t size = plain && text.kind == CORDON_VALUE_STRING ? cordon_value_string(&text, plain) : -EBADMSG;
    if (size < 0 || cordon_buf_unbase64(&state->reader.decoded, plain, (size_t)size) < 0)
        return cordon_fail(err, -EBADMSG, CORDON_ERROR_INFRASTRUCTURE, "%s: the process's output can not be read",
                           run->service->title);
    *ret = (struct cordon_remote_output){.type = out ? CORDON_REMOTE_STDOUT : CORDON_REMOTE_STDERR,
                                         .data = {state->reader.decoded.data, state->reader.decoded.size}};
    return state->reader.decoded.size > 0;
}

static int take_trailer(struct cordon_run *run, const struct cordon_value *root, struct cordon_error *err)
{
    struct cordon_value error;
    char code[64] = "", message[200] = "";
    if (!cordon_value_member(root, "error", &error) || error.kind != CORDON_VALUE_OBJECT)
        return cordon_fail(err, -EPIPE, CORDON_ERROR_INFRASTRUCTURE,
                           "%s: the process's stream ended before the process", run->service->title);
    (void)cordon_value_text(&error, "code", code, sizeof code);
    (void)cordon_value_text(&error, "message", message, sizeof message);
    if (strcmp(code, "deadline_exceeded") == 0)
        return cordon_fail(err, -ETIMEDOUT, CORDON_ERROR_INFRASTRUCTURE, "%s: the process was ended for its time",
                           run->service->title);
    return cordon_fail(err, -EIO, CORDON_ERROR_INFRASTRUCTURE, "%s: the process's stream failed: %s: %s",
                       run->service->title, code, message);
}

/* 1: an output; 0: nothing to tell. */
static int take_message(struct cordon_run *run, unsigned flags, const char *text, size_t size,
                        struct cordon_remote_output *ret, struct cordon_error *err)
{
    struct cordon_e2b_state *state = run->state;
    struct cordon_value root, event, part, pid;
    if (flags & CORDON_ENVELOPE_COMPRESSED || cordon_value_parse(text, size, &root, NULL) < 0)
        return cordon_fail(err, -EBADMSG, CORDON_ERROR_INFRASTRUCTURE, "%s: the process's stream can not be read",
                           run->service->title);
    if (flags & CORDON_ENVELOPE_END)
        return take_trailer(run, &root, err);
    if (!cordon_value_member(&root, "event", &event))
        return 0;
    if (cordon_value_member(&event, "start", &part) && cordon_value_member(&part, "pid", &pid))
        (void)cordon_value_integer(&pid, &state->pid); /* stays 0: can't be signalled */
    if (cordon_value_member(&event, "data", &part))
        return take_data(run, &part, ret, err);
    return cordon_value_member(&event, "end", &part) ? take_end(state, &part, ret) : 0;
}

int cordon_e2b_run_exec_next(struct cordon_run *run, struct cordon_remote_output *ret, struct cordon_error *err)
{
    struct cordon_e2b_state *state = run->state;
    cordon_http_extend(state->reader.transfer, run->deadline_us);
    for (;;) {
        unsigned flags;
        const char *text;
        size_t size;
        struct cordon_bytes data;
        cordon_buf_consume(&state->reader.in, state->reader.in_used);
        state->reader.in_used = 0;
        if (state->ended)
            return 0;
        int r = cordon_envelope_next(&state->reader.in, &flags, &text, &size, &state->reader.in_used);
        if (r > 0)
            r = take_message(run, flags, text, size, ret, err);
        else if (r == 0 && (r = cordon_http_read(state->reader.transfer, &data, err)) > 0)
            r = cordon_buf_append(&state->reader.in, data.data, data.size) < 0 ? -EMSGSIZE : -EAGAIN;
        else if (r == 0)
            return cordon_fail(err, -EPIPE, CORDON_ERROR_INFRASTRUCTURE,
                               "%s: the connection ended before the process did", run->service->title);
        if (r == -EMSGSIZE)
            return cordon_fail(err, r, CORDON_ERROR_INFRASTRUCTURE, "%s: a message of the process's stream is too long",
                               run->service->title);
        if (r != 0 && r != -EAGAIN)
            return r;
    }
}

void cordon_e2b_run_exec_kill(struct cordon_run *run)
{
    char url[CORDON_E2B_URL], body[128];
    struct cordon_remote_headers headers;
    struct cordon_http_answer answer;
    const struct cordon_e2b_state *state = run->state;
    if (!state->pid)
        return;
    (void)snprintf(body, sizeof body, "{\"process\":{\"pid\":%lld},\"signal\":\"SIGNAL_SIGKILL\"}",
                   (long long)state->pid);
    struct cordon_http_call call =
        within(run, cordon_e2b_envd_call(kind_of(run), &state->box, "POST", "/process.Process/SendSignal",
                                         "application/json", url, &headers));
    cordon_remote_add(&headers, "Connect-Protocol-Version", "1");
    call.body = (struct cordon_bytes){body, strlen(body)};
    (void)cordon_http_exchange(&call, &answer, NULL); /* the sandbox's end does it else */
    cordon_buf_done(&answer.body);
}

/* --- is there a way out? --- */

bool cordon_e2b_inside_known(const struct cordon_e2b_kind *kind, uint64_t with)
{
    return cordon_remote_believed(&kind->inside, with);
}

int cordon_e2b_inside_judge(struct cordon_e2b_kind *kind, uint64_t with, int status, struct cordon_error *err)
{
    if (status != 0)
        return cordon_fail(
            err, -EPERM, CORDON_ERROR_UNAVAILABLE,
            "%s: a sandbox without network was asked for, and from inside this one %s; the code was not run",
            kind->service->title, status == 3 ? "the network is reachable" : "that could not be checked");
    cordon_remote_believe(&kind->inside, with, INSIDE_US);
    return 0;
}

static int try_inside(struct cordon_run *run, uint64_t with, struct cordon_error *err)
{
    struct cordon_remote_output output = {0};
    int r = cordon_e2b_run_exec(run, "python3 -c \"" CORDON_E2B_INSIDE "\"", 15000, err);
    while (r >= 0 && (r = cordon_e2b_run_exec_next(run, &output, err)) > 0 && output.type != CORDON_REMOTE_EXIT)
        continue;
    return r < 0 ? r : cordon_e2b_inside_judge(kind_of(run), with, r > 0 ? output.exit_code : -1, err);
}

int cordon_e2b_run_create(struct cordon_run *run, struct cordon_error *err)
{
    uint64_t with = cordon_remote_with(); /* before: what it is made with */
    int r = create(run, err);
    bool try =
        r == 0 && kind_of(run)->tries_inside && !run->request->network && !cordon_e2b_inside_known(kind_of(run), with);
    return try ? try_inside(run, with, err) : r;
}
