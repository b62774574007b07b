/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `self_managed`: another executor manager, RAGFlow's or a daemon like this one, behind POST /run. One exchange is the
 * whole run: the answer comes when the program ended, so run_open makes it, and a refusal that the manager gave instead
 * of running anything is an error that another backend may follow.
 *
 * The manager always calls main(). A program that is to run as a script gets an empty one; what a script's __main__
 * block needs is said to it before its first line, where it has such a block.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/builtin.h"
#include "backend/remote/remote.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/secret.h"

#define ANSWER_SPARE (4u << 20)
#define GRACE_US 5000000u
#define URL_MAX 512

enum stage { STARTED, OUT, ERRORS, RESULT, ARTIFACTS, OUTCOME, DONE };

struct state {
    struct cordon_http_answer answer;
    struct cordon_value root;
    struct cordon_buf text; /* of the last event */
    char name[256], reason[128];
    struct cordon_value_walk artifacts;
    bool walking, answered, result_given;
    enum stage stage;
    uint32_t count;
    uint64_t taken;
};

static const struct cordon_remote_service service;

/* --- the request --- */

static bool mentions(struct cordon_bytes code, const char *word)
{
    return code.size && memmem(code.data, code.size, word, strlen(word));
}

static void write_code(const struct cordon_request *request, struct cordon_buf *to)
{
    bool script = !request->arguments.data, python = strcmp(request->language, "python") == 0;
    if (script && python && mentions(request->code, "__main__") && !mentions(request->code, "__future__"))
        (void)cordon_buf_appends(to, "__name__ = \"__main__\"\n"); /* sticky, all of these */
    if (script && !python)
        (void)cordon_buf_appends(to, "(function () {");
    (void)cordon_buf_append(to, request->code.data, request->code.size);
    if (script && python)
        (void)cordon_buf_appends(to, "\n\ndef main(**_):\n    return None\n");
    if (script && !python)
        (void)cordon_buf_appends(to, "\n}).call(this);\nfunction main() { return null; }\n");
}

static int write_body(const struct cordon_request *request, struct cordon_buf *to, struct cordon_error *err)
{
    struct cordon_buf code = CORDON_BUF_INIT(request->code.size + 256);
    struct cordon_json json = {.buf = to};
    if (request->env_count || request->stdin_data.size || request->file_count)
        return cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED,
                           "the backend self_managed passes on code and arguments only, and the run has %s",
                           request->env_count    ? "environment variables"
                           : request->file_count ? "files"
                                                 : "standard input");
    write_code(request, &code);
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "code_b64");
    cordon_json_base64(&json, code.data, code.size);
    cordon_json_key(&json, "language");
    cordon_json_text(&json, strcmp(request->language, "python") == 0 ? "python" : "nodejs");
    cordon_json_key(&json, "arguments");
    if (request->arguments.data)
        cordon_json_raw(&json, request->arguments.data, request->arguments.size);
    else
        cordon_json_raw(&json, "{}", 2);
    cordon_json_object_end(&json);
    bool failed = code.failed || to->failed;
    cordon_buf_done(&code);
    return failed ? cordon_fail_errno(err, -ENOMEM, "starting a run") : 0;
}

static void make_url(char to[URL_MAX], const char *path)
{
    const char *base = cordon_remote_text(CORDON_SET_SELF_MANAGED_ENDPOINT);
    (void)snprintf(to, URL_MAX, "%.*s%s", (int)cordon_remote_base(base), base,
                   path); /* a cut one is answered as unknown */
}

static const char *const *make_headers(struct cordon_remote_headers *to)
{
    char bearer[400];
    const char *token = cordon_remote_text(CORDON_SET_SELF_MANAGED_TOKEN);
    (void)snprintf(bearer, sizeof bearer, "Bearer %.330s", token); /* a cut token is no token there */
    to->count = 0;
    cordon_remote_add(to, "Content-Type", "application/json");
    cordon_remote_add(to, "Authorization", *token ? bearer : "");
    explicit_bzero(bearer, sizeof bearer);
    return to->list;
}

/* The answer says itself that nothing was run. */
static int check_refusal(struct cordon_run *run, struct cordon_error *err)
{
    struct state *state = run->state;
    struct cordon_value code;
    char status[40], text[240];
    int64_t number = 0;
    (void)cordon_value_text(&state->root, "status", status, sizeof status);
    if (strcmp(status, "program_runner_error") != 0 || !cordon_value_member(&state->root, "exit_code", &code) ||
        !cordon_value_integer(&code, &number) || (number != -10 && number != -429))
        return 0;
    if (!cordon_value_text(&state->root, "stderr", text, sizeof text))
        (void)snprintf(text, sizeof text, "it gives no reason");
    return cordon_fail(err, -EBUSY, CORDON_ERROR_BUSY, "the executor manager is busy: %s", text);
}

static int take_answer(struct cordon_run *run, struct cordon_error *err)
{
    struct state *state = run->state;
    const struct cordon_buf *body = &state->answer.body;
    struct cordon_value code;
    if (state->answer.status != 200 && state->answer.status != 429) {
        int r = cordon_remote_refused(&service, "POST /run", state->answer.status, body, err);
        if (state->answer.status >= 500 && state->answer.status != 503 && state->answer.status != 501)
            err->kind = CORDON_ERROR_INFRASTRUCTURE; /* it may have run */
        return r;
    }
    if (cordon_value_parse(body->data ? body->data : "", body->size, &state->root, NULL) < 0 ||
        !cordon_value_member(&state->root, "exit_code", &code))
        return state->answer.status == 429 ? cordon_remote_refused(&service, "POST /run", 429, body, err)
                                           : cordon_fail(err, -EBADMSG, CORDON_ERROR_INFRASTRUCTURE,
                                                         "the executor manager's answer can not be read");
    state->answered = true;
    return check_refusal(run, err);
}

static int post(struct cordon_run *run, struct cordon_error *err)
{
    char url[URL_MAX];
    struct cordon_remote_headers headers;
    struct state *state = run->state;
    const struct cordon_limits *limits = &run->request->limits;
    struct cordon_buf body = CORDON_BUF_INIT(1u << 30);
    int r = write_body(run->request, &body, err);
    make_url(url, "/run");
    struct cordon_http_call call = cordon_remote_call(run, "POST", url, make_headers(&headers));
    call.body = (struct cordon_bytes){body.data, body.size};
    call.answer_max = (size_t)(limits->stdout_bytes + limits->stderr_bytes) * 6 +
                      (size_t)(run->request->artifacts ? limits->artifacts_bytes / 3 * 4 : 0) + ANSWER_SPARE;
    if (r == 0)
        r = cordon_http_exchange(&call, &state->answer, err);
    cordon_buf_done(&body);
    return r < 0 ? r : take_answer(run, err);
}

static int open_run(struct cordon_run *run, struct cordon_error *err)
{
    struct cordon_error own = {0};
    uint64_t limit_us = run->request->limits.timeout_ms * 1000;
    run->exec_us = cordon_now_us();
    run->program_deadline_us = limit_us ? run->exec_us + limit_us : UINT64_MAX;
    run->deadline_us = run->exec_us + (limit_us ? limit_us : 3600u * 1000000ull);
    int r = service.configured(&own);
    if (r == 0)
        r = post(run, &own);
    run->ended_us = cordon_now_us();
    if (r < 0 && own.kind == CORDON_ERROR_INFRASTRUCTURE) {
        (void)snprintf(run->broken, sizeof run->broken, "%.255s", own.message);
        run->timed_out = r == -ETIMEDOUT;
        return 0;
    }
    if (r < 0 && err)
        *err = own;
    return r;
}

static void run_close(struct cordon_run *run)
{
    if (!run)
        return;
    struct state *state = run->state;
    if (state) {
        cordon_buf_done(&state->answer.body);
        cordon_buf_done(&state->text);
    }
    free(state);
    free(run);
}

static int run_open(const struct cordon_request *request, struct cordon_run **ret, struct cordon_error *err)
{
    struct cordon_run *run = calloc(1, sizeof *run);
    if (!run || !(run->state = calloc(1, sizeof(struct state)))) {
        free(run);
        return cordon_fail_errno(err, -ENOMEM, "starting a run");
    }
    run->service = &service;
    run->request = request;
    run->cancel_fd = request->cancel_fd;
    run->opened_us = cordon_now_us();
    int r = open_run(run, err);
    if (r < 0)
        run_close(run);
    else
        *ret = run;
    return r;
}

/* --- the answer, as events --- */

static bool text_event(struct cordon_run *run, const char *name, bool errors, struct cordon_event *event)
{
    struct state *state = run->state;
    struct cordon_value value;
    uint64_t limit = errors ? run->request->limits.stderr_bytes : run->request->limits.stdout_bytes;
    if (!cordon_value_member(&state->root, name, &value) || value.kind != CORDON_VALUE_STRING)
        return false;
    state->text = CORDON_BUF_INIT(value.size);
    char *room = cordon_buf_reserve(&state->text, value.size);
    ssize_t size = room ? cordon_value_string(&value, room) : -ENOMEM;
    if (size <= 0)
        return false;
    run->written[errors] = (uint64_t)size;
    run->kept[errors] = (uint64_t)size < limit ? (uint64_t)size : limit;
    *event = (struct cordon_event){.type = errors ? CORDON_EVENT_STDERR : CORDON_EVENT_STDOUT,
                                   .data = {state->text.data, (size_t)run->kept[errors]}};
    return run->kept[errors] > 0;
}

static bool result_event(struct cordon_run *run, struct cordon_event *event)
{
    struct state *state = run->state;
    struct cordon_value result, present, value;
    if (!run->request->arguments.data || !cordon_value_member(&state->root, "result", &result) ||
        !cordon_value_member(&result, "present", &present) || present.kind != CORDON_VALUE_BOOL ||
        !cordon_value_true(&present) || !cordon_value_member(&result, "value", &value))
        return false;
    *event = (struct cordon_event){.type = CORDON_EVENT_RESULT, .data = {value.data, value.size}};
    state->result_given = true;
    return true;
}

static const char *artifact_fault(const struct cordon_run *run, const struct state *state)
{
    const struct cordon_limits *limits = &run->request->limits;
    const char *name = state->name;
    if (!*name || *name == '/' || strstr(name, "..") || strchr(name, '\\'))
        return "it has no name that can be used";
    if (state->text.failed)
        return "its content can not be read";
    if (state->text.size > limits->artifact_bytes)
        return "it is larger than an artifact may be";
    if (state->count >= limits->artifacts)
        return "there are more artifacts than may be";
    return state->taken + state->text.size > limits->artifacts_bytes ? "all artifacts together are too large" : NULL;
}

static bool artifact_event(struct cordon_run *run, struct cordon_event *event)
{
    struct state *state = run->state;
    struct cordon_value list, key, item, content;
    if (!state->walking) {
        if (!run->request->artifacts || !cordon_value_member(&state->root, "artifacts", &list) ||
            list.kind != CORDON_VALUE_ARRAY)
            return false;
        state->artifacts = cordon_value_walk(&list);
        state->walking = true;
    }
    if (!cordon_value_next(&state->artifacts, &key, &item))
        return false;
    cordon_buf_done(&state->text);
    state->text = CORDON_BUF_INIT(run->request->limits.artifact_bytes + 1);
    (void)cordon_value_text(&item, "name", state->name, sizeof state->name);
    cordon_autofree char *plain = NULL;
    ssize_t size = -EBADMSG;
    if (cordon_value_member(&item, "content_b64", &content) && content.kind == CORDON_VALUE_STRING &&
        (plain = malloc(content.size + 1)))
        size = cordon_value_string(&content, plain);
    if (size < 0 || cordon_buf_unbase64(&state->text, plain, (size_t)size) < 0)
        state->text.failed = true;
    const char *fault = artifact_fault(run, state);
    if (fault) {
        run->outcome.artifacts_dropped++;
        *event = (struct cordon_event){.type = CORDON_EVENT_DROPPED, .name = state->name, .reason = fault};
        return true;
    }
    state->count++;
    state->taken += state->text.size;
    *event = (struct cordon_event){.type = CORDON_EVENT_ARTIFACT,
                                   .name = state->name,
                                   .data = {state->text.data ? state->text.data : "", state->text.size},
                                   .size = state->text.size};
    return true;
}

static void say(struct cordon_outcome *outcome, enum cordon_cause cause, int exit_code, const char *limit,
                const char *message)
{
    outcome->cause = cause;
    outcome->exit_code = exit_code;
    (void)snprintf(outcome->limit_hit, sizeof outcome->limit_hit, "%s", limit);
    (void)snprintf(outcome->message, sizeof outcome->message, "%.255s", message);
}

static void judge_answer(struct cordon_run *run)
{
    struct state *state = run->state;
    struct cordon_outcome *outcome = &run->outcome;
    struct cordon_value value;
    char status[40], type[16], errors[256];
    int64_t code = 0;
    (void)cordon_value_text(&state->root, "status", status, sizeof status);
    (void)cordon_value_text(&state->root, "resource_limit_type", type, sizeof type);
    if (!cordon_value_text(&state->root, "stderr", errors, sizeof errors))
        (void)snprintf(errors, sizeof errors, "the executor manager failed");
    if (cordon_value_member(&state->root, "exit_code", &value))
        (void)cordon_value_integer(&value, &code); /* stays 0 */
    if (strcmp(status, "resource_limit_exceeded") == 0 && strcmp(type, "memory") == 0)
        say(outcome, CORDON_CAUSE_MEMORY, 137, "memory_mb",
            "the executor manager says that the program needed more memory "
            "than it may have");
    else if (strcmp(status, "resource_limit_exceeded") == 0 && strcmp(type, "output") == 0)
        say(outcome, CORDON_CAUSE_OUTPUT_LIMIT, -1, "output_kill_mb",
            "the executor manager says that the program wrote too much");
    else if (strcmp(status, "resource_limit_exceeded") == 0)
        say(outcome, CORDON_CAUSE_TIMEOUT, -1, "timeout_s",
            "the executor manager ended the program because it ran longer "
            "than the time limit there (its SANDBOX_TIMEOUT)");
    else if (strcmp(status, "program_runner_error") == 0 && code == -999)
        say(outcome, CORDON_CAUSE_REFUSED, -1, "", errors);
    else if (strcmp(status, "program_runner_error") == 0)
        say(outcome, CORDON_CAUSE_INFRASTRUCTURE, -1, "", errors);
    else
        say(outcome, CORDON_CAUSE_EXITED, (int)code, "", "");
}

static void give_outcome(struct cordon_run *run, struct cordon_event *event)
{
    struct state *state = run->state;
    struct cordon_outcome *outcome = &run->outcome;
    outcome->struct_size = sizeof *outcome;
    outcome->isolation = service.isolation();
    (void)snprintf(outcome->backend, sizeof outcome->backend, "%s", service.name);
    outcome->start_us = run->exec_us - run->opened_us;
    outcome->run_us = run->ended_us - run->exec_us;
    outcome->total_us = cordon_now_us() - run->opened_us;
    outcome->stdout_bytes = run->written[0];
    outcome->stderr_bytes = run->written[1];
    outcome->stdout_kept = run->kept[0];
    outcome->stderr_kept = run->kept[1];
    if (run->timed_out)
        say(outcome, CORDON_CAUSE_TIMEOUT, -1, "timeout_s",
            "the program did not end within its time limit (timeout_s)");
    else if (!state->answered)
        say(outcome, CORDON_CAUSE_INFRASTRUCTURE, -1, "", run->broken);
    else
        judge_answer(run);
    if (run->request->arguments.data && !state->result_given && outcome->cause == CORDON_CAUSE_EXITED)
        (void)snprintf(outcome->result_error, sizeof outcome->result_error, "the program gave no result");
    cordon_secret_mask(outcome->message);
    *event = (struct cordon_event){.type = CORDON_EVENT_OUTCOME, .outcome = outcome};
}

static int run_next(struct cordon_run *run, struct cordon_event *event)
{
    struct state *state = run->state;
    while (state->stage < OUTCOME) {
        enum stage stage = state->stage;
        bool given = stage == STARTED;
        if (given)
            *event = (struct cordon_event){.type = CORDON_EVENT_STARTED};
        cordon_buf_done(&state->text);
        if (state->answered && (stage == OUT || stage == ERRORS))
            given = text_event(run, stage == OUT ? "stdout" : "stderr", stage == ERRORS, event);
        else if (state->answered && stage == RESULT)
            given = result_event(run, event);
        else if (state->answered && stage == ARTIFACTS)
            given = artifact_event(run, event);
        if (stage != ARTIFACTS || !given)
            state->stage++;
        if (given)
            return 1;
    }
    if (state->stage++ > OUTCOME) {
        state->stage = DONE;
        return 0;
    }
    give_outcome(run, event);
    return 1;
}

/* --- the rest --- */

static enum cordon_isolation isolation(void)
{
    return cordon_remote_isolation(CORDON_SET_SELF_MANAGED_ISOLATION);
}

static int configured(struct cordon_error *err)
{
    char text[256];
    const char *url = cordon_remote_text(CORDON_SET_SELF_MANAGED_ENDPOINT);
    if (strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0)
        return 0;
    (void)snprintf(text, sizeof text, "Invalid endpoint format: %.100s. Must start with http:// or https://", url);
    return cordon_remote_unset(&service, text, err);
}

static const struct cordon_remote_service service = {
    .name = "self_managed",
    .title = "self_managed",
    .isolation = isolation,
    .configured = configured,
};

static const struct cordon_capabilities *capabilities(void)
{
    struct cordon_capabilities now;
    memset(&now, 0, sizeof now); /* its padding is compared, too */
    bool none = strcmp(cordon_remote_text(CORDON_SET_SELF_MANAGED_NETWORK), "none") == 0;
    now.struct_size = sizeof now;
    now.isolation = isolation();
    now.deny_all_egress = none;
    now.network = !none;
    now.artifacts = true;
    now.languages = "python,javascript";
    now.max_timeout_s = (uint32_t)cordon_remote_number(CORDON_SET_SELF_MANAGED_TIMEOUT_S);
    return cordon_remote_capabilities(&now);
}

static int ask(struct cordon_error *err)
{
    char url[URL_MAX];
    struct cordon_http_answer answer;
    make_url(url, "/healthz");
    struct cordon_http_call call = {.method = "GET",
                                    .url = url,
                                    .deadline_us = cordon_now_us() + GRACE_US,
                                    .cancel_fd = -1,
                                    .retry = CORDON_HTTP_RETRY_SAFE};
    int r = cordon_http_exchange(&call, &answer, err);
    if (r == 0 && answer.status != 200)
        r = cordon_remote_refused(&service, "GET /healthz", answer.status, &answer.body, err);
    cordon_buf_done(&answer.body);
    return r;
}

static int probe(struct cordon_error *err)
{
    static struct cordon_remote_belief kept;
    return cordon_remote_probe(&kept, &service, ask, err);
}

const struct cordon_backend cordon_backend_self_managed = {
    .abi_version = CORDON_ABI_VERSION,
    .struct_size = sizeof cordon_backend_self_managed,
    .name = "self_managed",
    .capabilities = capabilities,
    .probe = probe,
    .run_open = run_open,
    .run_next = run_next,
    .run_close = run_close,
};
