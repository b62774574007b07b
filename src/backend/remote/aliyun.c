/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `aliyun_codeinterpreter`: the data plane of Aliyun's AgentRun. A sandbox is made from a template of the account's,
 * then commands are run in it and files moved. A command answers when it ended, with its output as text; bytes travel
 * as base64, which is text. No call may last longer than 30 s, which is declared.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/builtin.h"
#include "backend/remote/remote.h"
#include "backend/remote/signature.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"

#define CAP_S 30u
#define IDLE_SPARE_S 120u
#define READY_POLL_US 500000u
#define URL_MAX 1024
#define OUTPUT_MAX (16u << 20)

struct state {
    char id[128];
    struct cordon_remote_reader reader;
    struct cordon_buf out, errors;
    int exit_code;
    bool timed_out;
    uint64_t ended_us;
    int stage; /* of exec_next: stdout, stderr, exit, end */
};

static const struct cordon_remote_service service;

/* --- calls --- */

static void base_url(char to[URL_MAX])
{
    const char *set = cordon_remote_text(CORDON_SET_AGENTRUN_DATA_ENDPOINT);
    size_t size = cordon_remote_base(set);
    if (size)
        (void)snprintf(to, URL_MAX, "%.*s", (int)size, set); /* a cut one is answered as unknown */
    else
        (void)snprintf(to, URL_MAX, "https://%.100s-ram.agentrun-data.%.60s.aliyuncs.com",
                       cordon_remote_text(CORDON_SET_AGENTRUN_ACCOUNT_ID),
                       cordon_remote_text(CORDON_SET_AGENTRUN_REGION));
}

struct signed_call {
    char url[URL_MAX], date[64], authorization[CORDON_SIGNATURE_TEXT + 32];
    char *token;
    const char *headers[6];
};

static void signed_done(struct signed_call *call)
{
    free(call->token);
}

/* path begins with a slash; query is sorted and encoded, or "". */
static int sign(struct signed_call *call, const char *method, const char *path, const char *query,
                struct cordon_error *err)
{
    char time_text[24], base[URL_MAX], signature[CORDON_SIGNATURE_TEXT], whole_path[URL_MAX], host[300];
    struct tm tm;
    time_t now = time(NULL);
    call->token = NULL;
    if (!gmtime_r(&now, &tm) || strftime(time_text, sizeof time_text, "%Y-%m-%dT%H:%M:%SZ", &tm) != 20)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INFRASTRUCTURE, "the clock can not be read");
    base_url(base);
    const char *start = strstr(base, "://");
    start = start ? start + 3 : base;
    size_t host_size = strcspn(start, "/");
    (void)snprintf(host, sizeof host, "%.*s", (int)host_size, start); /* checked by configured() */
    (void)snprintf(whole_path, sizeof whole_path, "%s%s", start + host_size, path);
    struct cordon_signature_input input = {
        .key_id = cordon_remote_text(CORDON_SET_AGENTRUN_ACCESS_KEY_ID),
        .secret = cordon_remote_text(CORDON_SET_AGENTRUN_ACCESS_KEY_SECRET),
        .token = cordon_remote_text(CORDON_SET_AGENTRUN_SECURITY_TOKEN),
        .region = cordon_remote_text(CORDON_SET_AGENTRUN_REGION),
        .method = method,
        .host = host,
        .path = whole_path,
        .query = query,
        .time = time_text,
    };
    if (cordon_signature(&input, signature) < 0)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_UNAVAILABLE,
                           "AgentRun: a call can not be signed: the access key is too long");
    if (*input.token && asprintf(&call->token, "x-acs-security-token: %s", input.token) < 0)
        return cordon_fail_errno(err, -ENOMEM, "AgentRun: a call");
    size_t size = (size_t)snprintf(call->url, sizeof call->url, "%s%s%s%s", base, path, *query ? "?" : "", query);
    if (size >= sizeof call->url)
        return cordon_fail_errno(err, -ENAMETOOLONG, "AgentRun: a path");
    (void)snprintf(call->date, sizeof call->date, "x-acs-date: %s", time_text); /* fits, as does the next one */
    (void)snprintf(call->authorization, sizeof call->authorization, "Agentrun-Authorization: %s", signature);
    size_t n = 0;
    call->headers[n++] = "Content-Type: application/json";
    call->headers[n++] = call->date;
    call->headers[n++] = "x-acs-content-sha256: UNSIGNED-PAYLOAD";
    call->headers[n++] = call->authorization;
    if (call->token)
        call->headers[n++] = call->token;
    call->headers[n] = NULL;
    return 0;
}

/* An exchange whose answer is JSON: in an envelope or bare, *data is what matters. */
static int ask_for(struct cordon_http_call *call, const char *path, const struct cordon_buf *body,
                   struct cordon_http_answer *answer, struct cordon_value *data, struct cordon_error *err)
{
    struct signed_call made;
    struct cordon_value root, inner;
    *answer = (struct cordon_http_answer){0};
    int r = sign(&made, call->method, path, "", err);
    call->url = made.url;
    call->headers = made.headers;
    if (body)
        call->body = (struct cordon_bytes){body->data ? body->data : "", body->size};
    if (r == 0 && body && body->failed)
        r = cordon_fail_errno(err, -ENOMEM, "AgentRun: a call");
    if (r == 0)
        r = cordon_http_exchange(call, answer, err);
    if (r == 0 && answer->status / 100 != 2)
        r = cordon_remote_refused(&service, path, answer->status, &answer->body, err);
    signed_done(&made);
    if (r < 0)
        return r;
    if (cordon_value_parse(answer->body.data ? answer->body.data : "", answer->body.size, &root, NULL) < 0)
        return cordon_fail(err, -EBADMSG, CORDON_ERROR_INFRASTRUCTURE, "AgentRun: the answer to %.100s can not be read",
                           path);
    *data = cordon_value_member(&root, "data", &inner) && inner.kind == CORDON_VALUE_OBJECT ? inner : root;
    return 0;
}

static void path_of(const struct cordon_run *run, char to[256], const char *rest)
{
    const struct state *state = run->state;
    (void)snprintf(to, 256, "/sandboxes/%s%s", state->id, rest); /* fits */
}

/* --- the sandbox --- */

static void write_create(const struct cordon_run *run, struct cordon_buf *to)
{
    struct cordon_json json = {.buf = to};
    const char *name = cordon_remote_text(CORDON_SET_AGENTRUN_TEMPLATE_NAME);
    bool python = strcmp(run->request->language, "python") == 0;
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "templateName");
    cordon_json_text(&json, *name ? name : python ? "ragflow-python-default" : "ragflow-javascript-default");
    cordon_json_key(&json, "sandboxIdleTimeoutSeconds");
    cordon_json_uint(&json, run->request->limits.timeout_ms / 1000 + IDLE_SPARE_S);
    cordon_json_object_end(&json);
}

static int await_health(struct cordon_run *run, struct cordon_error *err)
{
    char path[256], status[32] = "";
    path_of(run, path, "/health");
    for (;;) {
        struct cordon_http_answer answer;
        struct cordon_value data;
        struct cordon_http_call call = cordon_remote_call(run, "GET", NULL, NULL);
        call.retry = CORDON_HTTP_RETRY_SAFE;
        int r = ask_for(&call, path, NULL, &answer, &data, err);
        bool soon = r < 0 && (answer.status == 404 || answer.status == 409 || answer.status == 425);
        if (r == 0)
            (void)cordon_value_text(&data, "status", status, sizeof status);
        cordon_buf_done(&answer.body);
        if (r == 0 && strcmp(status, "ok") == 0)
            return 0;
        if (r < 0 && !soon)
            return r;
        if (cordon_now_us() + READY_POLL_US >= run->deadline_us)
            return cordon_fail(err, -ETIMEDOUT, CORDON_ERROR_UNAVAILABLE,
                               "AgentRun: the sandbox was not ready in time");
        r = cordon_http_pause(cordon_now_us() + READY_POLL_US, run->cancel_fd, err); /* there is no call that waits */
        if (r < 0)
            return r;
    }
}

static int create(struct cordon_run *run, struct cordon_error *err)
{
    struct state *state = run->state;
    struct cordon_buf body = CORDON_BUF_INIT(4096);
    struct cordon_http_answer answer;
    struct cordon_value data;
    write_create(run, &body);
    struct cordon_http_call call = cordon_remote_call(run, "POST", NULL, NULL);
    call.retry = CORDON_HTTP_RETRY_REFUSED;
    call.cancel_fd = -1; /* see cordon_remote_stayed; one whose answer is lost ends by its idle timeout */
    int r = ask_for(&call, "/sandboxes", &body, &answer, &data, err);
    if (r == 0 && (!cordon_value_text(&data, "sandboxId", state->id, sizeof state->id) || !*state->id ||
                   strcspn(state->id, "/?#% ") != strlen(state->id))) {
        *state->id = '\0';
        r = cordon_fail(err, -EBADMSG, CORDON_ERROR_UNAVAILABLE,
                        "AgentRun: making a sandbox was answered without its id");
    }
    cordon_buf_done(&answer.body);
    cordon_buf_done(&body);
    if (r == 0)
        r = cordon_remote_stayed(run->cancel_fd, err);
    return r < 0 ? r : await_health(run, err);
}

static void destroy(struct cordon_run *run)
{
    char path[256];
    struct cordon_http_answer answer;
    struct cordon_value data;
    struct cordon_error err = {0};
    struct state *state = run->state;
    cordon_remote_reader_close(&state->reader);
    cordon_buf_done(&state->out);
    cordon_buf_done(&state->errors);
    if (!*state->id)
        return;
    path_of(run, path, "");
    struct cordon_http_call call = cordon_remote_call(run, "DELETE", NULL, NULL);
    call.retry = CORDON_HTTP_RETRY_SAFE;
    int r = ask_for(&call, path, NULL, &answer, &data, &err);
    if (r < 0 && answer.status != 404 && answer.status / 100 != 2)
        cordon_log(CORDON_LOG_WARN, "a sandbox could not be ended; it ends when it was idle for long enough", "backend",
                   service.name, "sandbox", state->id, "error", err.message, NULL);
    cordon_buf_done(&answer.body);
}

/* --- commands --- */

static int take_output(struct cordon_buf *to, const struct cordon_value *result, const char *name)
{
    struct cordon_value text;
    cordon_buf_done(to);
    *to = CORDON_BUF_INIT(OUTPUT_MAX);
    if (!cordon_value_member(result, name, &text) || text.kind != CORDON_VALUE_STRING)
        return 0;
    char *room = cordon_buf_reserve(to, text.size);
    ssize_t size = room ? cordon_value_string(&text, room) : -ENOMEM;
    to->size += size > 0 ? (size_t)size : 0;
    return size < 0 ? -EBADMSG : 0;
}

static int take_answer(struct state *state, const struct cordon_value *data, struct cordon_error *err)
{
    struct cordon_value result, code;
    char status[40];
    int64_t number = 0;
    (void)cordon_value_text(data, "status", status, sizeof status);
    state->timed_out = strstr(status, "timeout") || strstr(status, "TIMEOUT");
    state->ended_us = cordon_now_us();
    if (!cordon_value_member(data, "result", &result) || result.kind != CORDON_VALUE_OBJECT)
        result = *data;
    bool told = cordon_value_member(&result, "exitCode", &code) && cordon_value_integer(&code, &number);
    state->exit_code = (int)number;
    if ((!told && !state->timed_out) || take_output(&state->out, &result, "stdout") < 0 ||
        take_output(&state->errors, &result, "stderr") < 0)
        return cordon_fail(err, -EBADMSG, CORDON_ERROR_INFRASTRUCTURE,
                           "AgentRun: the answer to a command can not be read");
    return 0;
}

static int exec(struct cordon_run *run, const char *command, uint64_t limit_ms, struct cordon_error *err)
{
    char path[256];
    struct state *state = run->state;
    struct cordon_buf body = CORDON_BUF_INIT(1u << 20);
    struct cordon_json json = {.buf = &body};
    struct cordon_http_answer answer;
    struct cordon_value data;
    uint64_t seconds = (limit_ms + 999) / 1000;
    seconds = seconds && seconds < CAP_S ? seconds : CAP_S;
    state->stage = 0;
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "command");
    cordon_json_text(&json, command);
    cordon_json_key(&json, "cwd");
    cordon_json_text(&json, service.folder());
    cordon_json_key(&json, "timeout");
    cordon_json_uint(&json, seconds);
    cordon_json_object_end(&json);
    path_of(run, path, "/processes/cmd");
    struct cordon_http_call call = cordon_remote_call(run, "POST", NULL, NULL);
    call.deadline_us = cordon_now_us() + (seconds + 10) * 1000000; /* it answers at the end */
    call.answer_max = OUTPUT_MAX * 2;
    int r = ask_for(&call, path, &body, &answer, &data, err); /* never sent twice */
    if (r < 0 && answer.status >= 500 && answer.status != 501 && err)
        err->kind = CORDON_ERROR_INFRASTRUCTURE; /* it may have run */
    if (r == 0)
        r = take_answer(state, &data, err);
    cordon_buf_done(&answer.body);
    cordon_buf_done(&body);
    return r;
}

static int exec_next(struct cordon_run *run, struct cordon_remote_output *ret, struct cordon_error *err)
{
    struct state *state = run->state;
    while (state->stage < 2) {
        bool errors = state->stage++;
        const struct cordon_buf *from = errors ? &state->errors : &state->out;
        *ret = (struct cordon_remote_output){.type = errors ? CORDON_REMOTE_STDERR : CORDON_REMOTE_STDOUT,
                                             .data = {from->data, from->size}};
        if (from->size)
            return 1;
    }
    if (state->stage++ > 2)
        return 0;
    *ret = (struct cordon_remote_output){.type = CORDON_REMOTE_EXIT,
                                         .exit_code = state->exit_code,
                                         .timed_out = state->timed_out,
                                         .ended_us = state->ended_us};
    return 1;
}

/* --- files --- */

static int run_to_end(struct cordon_run *run, const char *command, const char *what, struct cordon_error *err)
{
    const struct state *state = run->state;
    int r = exec(run, command, 30000, err);
    if (r == 0 && state->exit_code != 0)
        r = cordon_fail(err, -EIO, CORDON_ERROR_UNAVAILABLE, "AgentRun: %s ended with status %d: %.*s", what,
                        state->exit_code, (int)(state->errors.size < 200 ? state->errors.size : 200),
                        state->errors.data ? state->errors.data : "");
    return r;
}

static int put(struct cordon_run *run, const char *path, struct cordon_bytes content, struct cordon_error *err)
{
    char url_path[256], coded[400];
    struct cordon_buf body = CORDON_BUF_INIT(content.size * 2 + 8192), command = CORDON_BUF_INIT(4096);
    struct cordon_json json = {.buf = &body};
    struct cordon_http_answer answer;
    struct cordon_value data;
    (void)snprintf(coded, sizeof coded, "%.380s.b64", path); /* ours, short */
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "path");
    cordon_json_text(&json, coded);
    cordon_json_key(&json, "content");
    cordon_json_base64(&json, content.data, content.size);
    cordon_json_key(&json, "mode");
    cordon_json_text(&json, "644");
    cordon_json_key(&json, "encoding");
    cordon_json_text(&json, "utf-8");
    cordon_json_key(&json, "createDir");
    cordon_json_bool(&json, true);
    cordon_json_object_end(&json);
    path_of(run, url_path, "/files");
    struct cordon_http_call call = cordon_remote_call(run, "POST", NULL, NULL);
    call.retry = CORDON_HTTP_RETRY_SAFE; /* the same file twice is the same file */
    int r = ask_for(&call, url_path, &body, &answer, &data, err);
    cordon_buf_done(&answer.body);
    cordon_buf_done(&body);
    (void)cordon_buf_appendf(&command, "base64 -d '%s' >'%s' && rm -f '%s'", coded, path, coded); /* no quote in ours */
    if (r == 0)
        r = command.failed ? cordon_fail_errno(err, -ENAMETOOLONG, "AgentRun: a path")
                           : run_to_end(run, command.data, "unpacking the program", err);
    cordon_buf_done(&command);
    return r;
}

static int get(struct cordon_run *run, const char *path, struct cordon_error *err)
{
    char url_path[256];
    struct signed_call made;
    struct state *state = run->state;
    struct cordon_buf query = CORDON_BUF_INIT(1024), none = CORDON_BUF_INIT(0);
    cordon_remote_reader_close(&state->reader);
    (void)cordon_buf_appends(&query, "path=");
    (void)cordon_url_encode(&query, path, strlen(path)); /* sticky */
    path_of(run, url_path, "/filesystem/download");
    int r = query.failed ? cordon_fail_errno(err, -ENAMETOOLONG, "AgentRun: a path")
                         : sign(&made, "GET", url_path, query.data, err);
    cordon_buf_done(&query);
    if (r < 0)
        return r;
    struct cordon_http_call call = cordon_remote_call(run, "GET", made.url, made.headers);
    call.answer_max = SIZE_MAX; /* the archive's reader has the limit */
    r = cordon_http_open(&call, &state->reader.transfer, err);
    if (r == 0 && cordon_http_status(state->reader.transfer) != 200)
        r = cordon_remote_refused(&service, "reading a file", cordon_http_status(state->reader.transfer), &none, err);
    signed_done(&made);
    return r;
}

static int get_next(struct cordon_run *run, struct cordon_bytes *ret, struct cordon_error *err)
{
    struct state *state = run->state;
    return cordon_remote_reader_next(run, &state->reader, ret, err);
}

/* --- the rest --- */

static const char *folder(void)
{
    return "/home/user";
}

static bool known_region(const char *region)
{
    static const char *const regions[] = {"cn-hangzhou", "cn-beijing", "cn-shanghai", "cn-shenzhen", "cn-guangzhou"};
    for (size_t i = 0; i < sizeof regions / sizeof *regions; i++)
        if (strcmp(regions[i], region) == 0)
            return true;
    return false;
}

static int configured(struct cordon_error *err)
{
    const char *key = cordon_remote_text(CORDON_SET_AGENTRUN_ACCESS_KEY_ID);
    if (!*key || !*cordon_remote_text(CORDON_SET_AGENTRUN_ACCESS_KEY_SECRET))
        return cordon_remote_unset(&service,
                                   "Access key ID and secret are required (CORDON_AGENTRUN_ACCESS_KEY_ID, "
                                   "CORDON_AGENTRUN_ACCESS_KEY_SECRET)",
                                   err);
    if (strncmp(key, "LTAI", 4) != 0)
        return cordon_remote_unset(&service, "Access key ID must start with LTAI (CORDON_AGENTRUN_ACCESS_KEY_ID)", err);
    if (!*cordon_remote_text(CORDON_SET_AGENTRUN_ACCOUNT_ID))
        return cordon_remote_unset(&service, "Account ID is required (CORDON_AGENTRUN_ACCOUNT_ID)", err);
    const char *account = cordon_remote_text(CORDON_SET_AGENTRUN_ACCOUNT_ID);
    if (account[strspn(account, "0123456789")]) /* it is the front of a host's name */
        return cordon_remote_unset(&service, "Account ID must be a number (CORDON_AGENTRUN_ACCOUNT_ID)", err);
    if (!known_region(cordon_remote_text(CORDON_SET_AGENTRUN_REGION)))
        return cordon_remote_unset(&service,
                                   "region must be one of cn-hangzhou, cn-beijing, cn-shanghai, cn-shenzhen, "
                                   "cn-guangzhou (CORDON_AGENTRUN_REGION)",
                                   err);
    if (!*cordon_remote_text(CORDON_SET_AGENTRUN_DATA_ENDPOINT)) /* the service's own */
        return 0;
    return cordon_remote_check_url(&service, CORDON_SET_AGENTRUN_DATA_ENDPOINT, err);
}

static const struct cordon_remote_service service = {
    .name = "aliyun_codeinterpreter",
    .title = "AgentRun",
    .state_size = sizeof(struct state),
    .folder = folder,
    CORDON_REMOTE_VIRTUAL,
    CORDON_REMOTE_UNLIMITED,
    CORDON_REMOTE_FUNCTIONS,
};

static const struct cordon_capabilities *capabilities(void)
{
    struct cordon_capabilities now;
    cordon_remote_capable(&now, CORDON_ISOLATION_HARDWARE_VIRTUALIZED);
    bool denies = cordon_remote_true(CORDON_SET_AGENTRUN_DENIES_EGRESS);
    now.deny_all_egress = denies;
    now.network = !denies;
    now.max_timeout_s = (uint32_t)cordon_remote_number(CORDON_SET_AGENTRUN_TIMEOUT_S);
    return cordon_remote_capabilities(&now);
}

/* There is no call that only asks; one about a sandbox that never was tells whether the key is good. */
static int ask(struct cordon_error *err)
{
    struct cordon_http_answer answer;
    struct cordon_value data;
    struct cordon_http_call call = {
        .method = "GET", .deadline_us = cordon_now_us() + 10000000u, .cancel_fd = -1, .retry = CORDON_HTTP_RETRY_SAFE};
    int r = ask_for(&call, "/sandboxes/cordon-probe", NULL, &answer, &data, err);
    if (r < 0 && answer.status == 404)
        r = 0;
    cordon_buf_done(&answer.body);
    return r;
}

CORDON_REMOTE_BACKEND(aliyun_codeinterpreter, &service, ask, .shutdown = NULL);
