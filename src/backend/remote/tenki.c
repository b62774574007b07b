/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tenki`: Connect's unary calls in JSON, as its public clients make them. A session is made at the control plane;
 * files are written and read at its own data plane, with a credential of its own. A command gives its output only as
 * files, so nothing streams: it is read when the command ended.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/builtin.h"
#include "backend/remote/tenki.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"

#define POLL_US 1000000u
#define ANSWER_LIMIT (256u << 20)

static void write_create(const struct cordon_run *run, struct cordon_buf *to)
{
    struct cordon_json json = {.buf = to};
    static const struct {
        enum cordon_setting id;
        const char *name;
    } numbers[] = {{CORDON_SET_TENKI_CPU_CORES, "cpuCores"},
                   {CORDON_SET_TENKI_MEMORY_MB, "memoryMb"},
                   {CORDON_SET_TENKI_DISK_SIZE_GB, "diskSizeGb"}},
      texts[] = {{CORDON_SET_TENKI_IMAGE, "registryRef"}, {CORDON_SET_TENKI_PROJECT_ID, "projectId"}};
    char life[32];
    (void)snprintf(life, sizeof life, "%llds",
                   (long long)cordon_remote_number(CORDON_SET_TENKI_MAX_LIFETIME_S)); /* fits */
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "ownerId");
    cordon_json_text(&json, "self");
    cordon_json_key(&json, "ownerType");
    cordon_json_text(&json, "SERVICE");
    cordon_json_key(&json, "allowInbound");
    cordon_json_bool(&json, false);
    cordon_json_key(&json, "allowOutbound"); /* always said: nobody's default counts */
    cordon_json_bool(&json, run->request->network);
    cordon_json_key(&json, "maxDuration");
    cordon_json_text(&json, life);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (!cordon_remote_number(numbers[i].id))
            continue;
        cordon_json_key(&json, numbers[i].name);
        cordon_json_int(&json, cordon_remote_number(numbers[i].id));
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (!*cordon_remote_text(texts[i].id))
            continue;
        cordon_json_key(&json, texts[i].name);
        cordon_json_text(&json, cordon_remote_text(texts[i].id));
    }
    cordon_json_key(&json, "metadata");
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "source");
    cordon_json_text(&json, "cordon");
    cordon_json_object_end(&json);
    cordon_json_key(&json, "waitReady");
    cordon_json_bool(&json, true);
    cordon_json_object_end(&json);
}

/* Takes what an answer says of the session; its state is left in `said`. */
static int take_session(struct cordon_tenki_state *state, const struct cordon_http_answer *answer, char said[64],
                        struct cordon_error *err)
{
    struct cordon_value root, session;
    *said = '\0';
    if (cordon_value_parse(answer->body.data ? answer->body.data : "", answer->body.size, &root, NULL) < 0 ||
        !cordon_value_member(&root, "session", &session))
        return cordon_fail(err, -EBADMSG, CORDON_ERROR_INFRASTRUCTURE,
                           "Tenki: the answer about a session can not be read");
    if (!*state->id)
        (void)cordon_value_text(&session, "id", state->id, sizeof state->id);
    (void)cordon_value_text(&session, "state", said, 64);
    cordon_tenki_credential(state, &root);
    return *state->id ? 0
                      : cordon_fail(err, -EBADMSG, CORDON_ERROR_UNAVAILABLE,
                                    "Tenki: making a session was answered without its id");
}

static int await_running(struct cordon_run *run, char said[64], struct cordon_error *err)
{
    struct cordon_http_answer answer;
    int r = 0;
    while (r == 0 && !strstr(said, "RUNNING")) {
        if (strstr(said, "TERMINAT") || strstr(said, "SHUTDOWN"))
            return cordon_fail(err, -ECONNABORTED, CORDON_ERROR_UNAVAILABLE, "Tenki: the session ended before it ran");
        if (cordon_now_us() + POLL_US >= run->deadline_us)
            return cordon_fail(err, -ETIMEDOUT, CORDON_ERROR_UNAVAILABLE, "Tenki: the session did not run in time (%s)",
                               said);
        r = cordon_http_pause(cordon_now_us() + POLL_US, run->cancel_fd, err); /* there is no call that waits */
        if (r < 0)
            break;
        r = cordon_tenki_session(run, "GetSession", CORDON_HTTP_RETRY_SAFE, &answer, err);
        if (r == 0)
            r = take_session(run->state, &answer, said, err);
        cordon_buf_done(&answer.body);
    }
    return r;
}

static int create(struct cordon_run *run, struct cordon_error *err)
{
    char said[64];
    struct cordon_tenki_state *state = run->state;
    struct cordon_buf body = CORDON_BUF_INIT(65536);
    struct cordon_http_answer answer;
    struct cordon_http_call call = cordon_remote_call(run, "POST", NULL, NULL);
    call.cancel_fd = -1; /* see cordon_remote_stayed; one whose answer is lost ends by its maxDuration */
    write_create(run, &body);
    int r = cordon_tenki_control(&call, "CreateSession", &body, &answer, err); /* never sent twice */
    if (r == 0)
        r = take_session(state, &answer, said, err);
    cordon_buf_done(&answer.body);
    cordon_buf_done(&body);
    if (r == 0)
        r = cordon_remote_stayed(run->cancel_fd, err);
    if (r == 0)
        r = await_running(run, said, err);
    if (r == 0 && (!*state->credential || !*state->endpoint))
        r = cordon_tenki_mint(run, err);
    bool safe = strncmp(state->endpoint, "https://", 8) == 0 || cordon_url_is_loopback(state->endpoint);
    if (r == 0 && (!*state->credential || !safe))
        r = cordon_fail(err, -EBADMSG, CORDON_ERROR_UNAVAILABLE,
                        "Tenki: the session came without a credential or without an https address for its data");
    return r;
}

static void destroy(struct cordon_run *run)
{
    struct cordon_http_answer answer;
    struct cordon_error err = {0};
    struct cordon_tenki_state *state = run->state;
    cordon_buf_done(&state->out);
    cordon_buf_done(&state->errors);
    cordon_buf_done(&state->file);
    if (!*state->id)
        return;
    int r = cordon_tenki_session(run, "TerminateSession", CORDON_HTTP_RETRY_SAFE, &answer, &err);
    if (r < 0 && answer.status != 404)
        cordon_log(CORDON_LOG_WARN, "a session could not be ended; it ends by its own lifetime", "backend", "tenki",
                   "session", state->id, "error", err.message, NULL);
    cordon_buf_done(&answer.body);
    explicit_bzero(state->credential, sizeof state->credential);
}

/* --- files --- */

static void begin_file(struct cordon_json *json, const struct cordon_tenki_state *state, const char *path)
{
    cordon_json_object_begin(json);
    cordon_json_key(json, "request");
    cordon_tenki_begin(json, state);
    cordon_json_key(json, "path");
    cordon_json_text(json, path);
}

static int put(struct cordon_run *run, const char *path, struct cordon_bytes content, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(content.size * 2 + 8192);
    struct cordon_json json = {.buf = &body};
    struct cordon_http_answer answer;
    begin_file(&json, run->state, path);
    cordon_json_key(&json, "content");
    cordon_json_base64(&json, content.data, content.size);
    cordon_json_object_end(&json);
    cordon_json_object_end(&json);
    int r = cordon_tenki_data(run, "WriteFile", &body, 0, &answer, err);
    cordon_buf_done(&answer.body);
    cordon_buf_done(&body);
    return r;
}

static int read_file(struct cordon_run *run, const char *path, size_t max, struct cordon_buf *to,
                     struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(8192);
    struct cordon_json json = {.buf = &body};
    struct cordon_http_answer answer;
    struct cordon_value root, response, content;
    begin_file(&json, run->state, path);
    cordon_json_object_end(&json);
    cordon_json_object_end(&json);
    *to = CORDON_BUF_INIT(max);
    int r = cordon_tenki_data(run, "ReadFile", &body, max / 3 * 4 + 65536, &answer, err);
    if (r == 0 && cordon_value_parse(answer.body.data ? answer.body.data : "", answer.body.size, &root, NULL) < 0)
        r = cordon_fail(err, -EBADMSG, CORDON_ERROR_INFRASTRUCTURE, "Tenki: the answer to ReadFile can not be read");
    if (r == 0 && cordon_value_member(&root, "response", &response))
        root = response;
    if (r == 0 && cordon_value_member(&root, "content", &content)) { /* absent: empty */
        cordon_autofree char *plain = malloc(content.size + 1);
        ssize_t size = plain && content.kind == CORDON_VALUE_STRING ? cordon_value_string(&content, plain) : -EBADMSG;
        if (size < 0 || cordon_buf_unbase64(to, plain, (size_t)size) < 0)
            r = cordon_fail(err, -EBADMSG, CORDON_ERROR_INFRASTRUCTURE, "Tenki: a file's content can not be read");
    }
    cordon_buf_done(&answer.body);
    cordon_buf_done(&body);
    return r;
}

static int get(struct cordon_run *run, const char *path, struct cordon_error *err)
{
    struct cordon_tenki_state *state = run->state;
    uint64_t max = run->request->limits.artifacts_bytes + (32u << 20);
    cordon_buf_done(&state->file);
    state->file_given = false;
    return read_file(run, path, max < ANSWER_LIMIT ? (size_t)max : ANSWER_LIMIT, &state->file, err);
}

static int get_next(struct cordon_run *run, struct cordon_bytes *ret, struct cordon_error *err)
{
    struct cordon_tenki_state *state = run->state;
    if (state->file_given || !state->file.size)
        return 0;
    state->file_given = true;
    *ret = (struct cordon_bytes){state->file.data, state->file.size};
    return 1;
}

/* --- commands --- */

static size_t output_max(void)
{
    return (size_t)cordon_remote_number(CORDON_SET_TENKI_MAX_OUTPUT_BYTES) + 1; /* so that too much is seen as such */
}

/* Output goes into files, cut so that they can be read at all. */
static void write_command(const struct cordon_run *run, const char *command, uint64_t limit_ms, struct cordon_buf *to)
{
    struct cordon_json json = {.buf = to};
    struct cordon_buf text = CORDON_BUF_INIT(1u << 20);
    char limit[32];
    (void)snprintf(limit, sizeof limit, "%llus", (unsigned long long)(limit_ms + 999) / 1000 + 5); /* fits */
    (void)cordon_buf_appends(&text, "( ");
    (void)cordon_buf_appends(&text, command);
    (void)cordon_buf_appendf(&text, " ) >%s.out 2>%s.err </dev/null; s=$?; truncate -s '<%zu' %s.out %s.err; exit $s",
                             run->folder, run->folder, output_max(), run->folder, run->folder);
    cordon_tenki_begin(&json, run->state);
    cordon_json_key(&json, "command");
    cordon_json_text(&json, "sh");
    cordon_json_key(&json, "args");
    cordon_json_array_begin(&json);
    cordon_json_text(&json, "-c");
    cordon_json_text(&json, text.failed ? "exit 125" : text.data);
    cordon_json_array_end(&json);
    cordon_json_key(&json, "timeout");
    cordon_json_text(&json, limit);
    cordon_json_object_end(&json);
    to->failed = to->failed || text.failed;
    cordon_buf_done(&text);
}

static int exec(struct cordon_run *run, const char *command, uint64_t limit_ms, struct cordon_error *err)
{
    struct cordon_tenki_state *state = run->state;
    struct cordon_buf body = CORDON_BUF_INIT(2u << 20);
    struct cordon_http_answer answer;
    struct cordon_value root, execution, code;
    char status[64] = "";
    int64_t number = 0;
    cordon_buf_done(&state->out);
    cordon_buf_done(&state->errors);
    state->stage = 0;
    write_command(run, command, limit_ms, &body);
    struct cordon_http_call call = cordon_remote_call(run, "POST", NULL, NULL);
    call.deadline_us =
        limit_ms ? cordon_now_us() + (limit_ms + 10000) * 1000 : run->deadline_us; /* it answers at the end */
    int r = cordon_tenki_control(&call, "ExecuteCommand", &body, &answer, err);    /* never sent twice */
    if (r < 0 && answer.status >= 500 && err && answer.status != 501)
        err->kind = CORDON_ERROR_INFRASTRUCTURE; /* it may have run */
    if (r == 0 && (cordon_value_parse(answer.body.data ? answer.body.data : "", answer.body.size, &root, NULL) < 0 ||
                   !cordon_value_member(&root, "execution", &execution)))
        r = cordon_fail(err, -EBADMSG, CORDON_ERROR_INFRASTRUCTURE, "Tenki: the answer to a command can not be read");
    if (r == 0) {
        (void)cordon_value_text(&execution, "status", status, sizeof status);
        if (cordon_value_member(&execution, "exitCode", &code))
            (void)cordon_value_integer(&code, &number); /* stays 0, which an absent one means */
        state->exit_code = (int)number;
        state->timed_out = strstr(status, "TIMED_OUT");
        state->ended_us = cordon_now_us();
    }
    cordon_buf_done(&answer.body);
    cordon_buf_done(&body);
    return r;
}

static int exec_next(struct cordon_run *run, struct cordon_remote_output *ret, struct cordon_error *err)
{
    struct cordon_tenki_state *state = run->state;
    uint64_t kept = run->deadline_us;
    char path[sizeof run->folder + 8];
    while (state->stage < 2) {
        bool errors = state->stage++;
        struct cordon_buf *to = errors ? &state->errors : &state->out;
        (void)snprintf(path, sizeof path, "%s.%s", run->folder, errors ? "err" : "out"); /* fits */
        run->deadline_us = cordon_now_us() + 30000000u; /* the program has ended: its time does not count any more */
        int r = read_file(run, path, output_max() + 1, to, err);
        run->deadline_us = kept;
        if (r < 0)
            return r == -ETIMEDOUT ? -EIO : r;
        *ret = (struct cordon_remote_output){.type = errors ? CORDON_REMOTE_STDERR : CORDON_REMOTE_STDOUT,
                                             .data = {to->data, to->size}};
        if (to->size)
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

/* --- the rest --- */

static const char *folder(void)
{
    return "/home/tenki";
}

static int configured(struct cordon_error *err)
{
    if (!*cordon_remote_text(CORDON_SET_TENKI_API_KEY))
        return cordon_remote_unset(&cordon_tenki_service, "Tenki API key is required (CORDON_TENKI_API_KEY)", err);
    if (cordon_remote_true(CORDON_SET_TENKI_PROJECT_ID_REQUIRED) && !*cordon_remote_text(CORDON_SET_TENKI_PROJECT_ID))
        return cordon_remote_unset(&cordon_tenki_service,
                                   "Tenki project_id is required (CORDON_TENKI_PROJECT_ID; "
                                   "CORDON_TENKI_PROJECT_ID_REQUIRED=false where the account has none)",
                                   err);
    return cordon_remote_check_url(&cordon_tenki_service, CORDON_SET_TENKI_API_URL, err);
}

const struct cordon_remote_service cordon_tenki_service = {
    .name = "tenki",
    .title = "Tenki",
    .state_size = sizeof(struct cordon_tenki_state),
    .folder = folder,
    CORDON_REMOTE_VIRTUAL,
    .max_output = CORDON_SET_TENKI_MAX_OUTPUT_BYTES,
    .max_artifacts = CORDON_SET_TENKI_MAX_ARTIFACTS,
    .max_artifact_bytes = CORDON_SET_TENKI_MAX_ARTIFACT_BYTES,
    CORDON_REMOTE_FUNCTIONS,
};

static const struct cordon_capabilities *capabilities(void)
{
    struct cordon_capabilities now;
    cordon_remote_capable(&now, CORDON_ISOLATION_HARDWARE_VIRTUALIZED);
    now.deny_all_egress = true;
    now.network = cordon_remote_true(CORDON_SET_TENKI_ALLOW_OUTBOUND);
    now.max_timeout_s = (uint32_t)cordon_remote_number(CORDON_SET_TENKI_TIMEOUT_S);
    return cordon_remote_capabilities(&now);
}

static int ask(struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(16);
    struct cordon_http_answer answer;
    struct cordon_http_call call = {
        .deadline_us = cordon_now_us() + 10000000u, .cancel_fd = -1, .retry = CORDON_HTTP_RETRY_SAFE};
    (void)cordon_buf_appends(&body, "{}"); /* sticky */
    int r = cordon_tenki_control(&call, "WhoAmI", &body, &answer, err);
    cordon_buf_done(&answer.body);
    cordon_buf_done(&body);
    return r;
}

CORDON_REMOTE_BACKEND(tenki, &cordon_tenki_service, ask, .shutdown = NULL);
