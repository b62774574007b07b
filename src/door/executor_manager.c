/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor manager's door: RAGFlow's `sandbox-executor-manager`. One call goes through the steps of the table in
 * their order, which is that of the original (a body that is no JSON is told before the token is asked for), until one
 * has answered. What a program does wrong is a 200 whose object says so: RAGFlow repeats a call that ended with a 5xx.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fd.h"
#include "core/metrics.h"
#include "door/executor_manager.h"
#include "door/unread.h"

#define DOOR CORDON_DOOR_EXECUTOR_MANAGER

struct call {
    struct cordon_http_request *http;
    const struct cordon_settings *settings;
    struct cordon_value body;
    struct cordon_em_fields fields;
    struct cordon_run_request run;
    struct cordon_live *live;
    size_t charged; /* of what waits to be read */
};

static int reply(struct cordon_http_request *request, int status, struct cordon_buf *body, struct cordon_error *err)
{
    int r = cordon_http_reply(request, status, "application/json", body);
    return r < 0 ? cordon_fail_errno(err, r, "writing the answer") : 1;
}

static int reply_detail(struct cordon_http_request *request, int status, const char *detail, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(16384);
    struct cordon_json json = {.buf = &body};
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "detail");
    cordon_json_text(&json, detail);
    cordon_json_object_end(&json);
    return reply(request, status, &body, err);
}

static int reply_verdict(struct call *call, int status, const struct cordon_em_verdict *verdict,
                         const struct cordon_answer *answer, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(SIZE_MAX / 2); /* bounded by the run's limits */
    cordon_em_write(verdict, answer, &body);
    if (call->live && cordon_unread_gives_back(&call->charged, body.size))
        cordon_live_close(CORDON_TAKE(call->live));
    return reply(call->http, status, &body, err);
}

static int reply_flood(struct call *call, struct cordon_error *err)
{
    static const char text[] = "Too many requests, please try again later";
    const struct cordon_em_verdict verdict = {
        .status = "program_runner_error", .error = {text, sizeof text - 1}, .exit_code = -429, .detail = text};
    return reply_verdict(call, 429, &verdict, NULL, err);
}

/* What failed before anything ran, in the dialect of the result object. */
static int reply_error(struct call *call, const struct cordon_error *why, struct cordon_error *err)
{
    struct cordon_em_verdict verdict;
    cordon_em_judge_error(why, &verdict);
    return reply_verdict(call, 200, &verdict, NULL, err);
}

/* --- the steps: 1: answered; 0: go on; negative: err --- */

static int parse_body(struct call *call, struct cordon_error *err)
{
    const struct cordon_buf *body = &call->http->body;
    struct cordon_buf errors = CORDON_BUF_INIT(SIZE_MAX / 2); /* bounded by the body */
    if (call->http->body_dropped || !cordon_em_is_json(cordon_http_header(call->http, "Content-Type")) ||
        cordon_em_parse(body->data, body->size, &call->body, &errors))
        return 0;
    return reply(call->http, 422, &errors, err);
}

static int check_caller(struct call *call, struct cordon_error *err)
{
    int status;
    const char *detail = cordon_em_refusal(call->http, &status);
    if (!status)
        return 0;
    return detail ? reply_detail(call->http, status, detail, err) : reply_flood(call, err);
}

static int read_fields(struct call *call, struct cordon_error *err)
{
    const struct cordon_buf *body = &call->http->body;
    struct cordon_buf errors = CORDON_BUF_INIT(SIZE_MAX / 2);
    bool good = false;
    if (body->size && !cordon_em_is_json(cordon_http_header(call->http, "Content-Type")))
        cordon_em_not_json(body->data, body->size, &errors);
    else
        good = cordon_em_read(&call->body, &call->fields, &errors);
    if (!good) {
        cordon_metrics_error(CORDON_ERROR_INVALID);
        return reply(call->http, 422, &errors, err);
    }
    cordon_buf_done(&errors);
    return 0;
}

static int check_rate(struct call *call, struct cordon_error *err)
{
    return cordon_em_may_run(call->http) ? 0 : reply_flood(call, err);
}

/* Makes `main` what is exported, and tells its failures in the words of RAGFlow's runner. What a module of the
 * ECMAScript kind exports is its own business. */
static const char epilogue[] =
    "\n\n;if (typeof module === 'object' && module) module.exports = { main: ((main, exported) => {\n"
    "  main = main ?? (typeof exported === 'function' ? exported : exported?.main ?? exported?.default);\n"
    "  const fail = (...words) => { console.error(...words); process.exit(1); };\n"
    "  if (typeof main !== 'function') return () => fail('Error: main is not a function');\n"
    "  const tell = (value) => {\n"
    "    if (value === undefined) fail('Error: main() must return a value. Use null for an empty result.');\n"
    "    let text;\n"
    "    try { text = JSON.stringify(value); } catch {}\n"
    "    if (text === undefined) fail('Error: main() returned a non-JSON-serializable value.');\n"
    "    return value;\n"
    "  };\n"
    "  return (values) => {\n"
    "    let value;\n"
    "    try { value = main(values); } catch (error) { fail('Error when executing main:', error); }\n"
    "    if (typeof value?.then !== 'function') return tell(value);\n"
    "    return Promise.resolve(value).then(tell, (error) => fail('Error in async main function:', error));\n"
    "  };\n"
    "})(typeof main === 'function' ? main : undefined, module.exports) };\n";

static const char blank[] = "pass"; /* blank code would not be started, and so not be missing its main */

static int decode_code(struct call *call, struct cordon_error *err)
{
    const struct cordon_em_fields *fields = &call->fields;
    const struct cordon_value *text = &fields->code_b64;
    bool javascript = strcmp(fields->language, "javascript") == 0;
    size_t more = javascript ? sizeof epilogue - 1 : 0;
    char fault[160];
    char *code = cordon_run_request_alloc(&call->run, fields->code_size + more + 4);
    cordon_autofree char *unescaped = malloc(text->size);
    if (!code || !unescaped)
        return cordon_fail_errno(err, -ENOMEM, "decoding the code");
    ssize_t size = cordon_value_string(text, unescaped);
    size = size >= 0 ? cordon_em_unbase64(unescaped, (size_t)size, code, fault) : size;
    if (size < 0)
        return cordon_fail_errno(err, -EINVAL, "decoding the code"); /* was checked: can't be */
    if (!cordon_em_utf8(code, (size_t)size, fault)) {
        struct cordon_error why;
        cordon_metrics_error(CORDON_ERROR_INVALID);
        (void)cordon_fail(&why, -EINVAL, CORDON_ERROR_INVALID, "code_b64 holds no UTF-8 text: %s",
                          fault); /* only words */
        return reply_error(call, &why, err);
    }
    memcpy(code + size, epilogue, more);
    call->run.request.code = (struct cordon_bytes){code, (size_t)size + more};
    if (cordon_request_blank(&call->run.request))
        call->run.request.code = (struct cordon_bytes){blank, sizeof blank - 1};
    return 0;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static int prepare(struct call *call, struct cordon_error *err)
{
    bool javascript = strcmp(call->fields.language, "javascript") == 0;
    cordon_run_request_init(call->settings, DOOR, &call->run);
    struct cordon_request *request = &call->run.request;
    const char *template_name = cordon_settings_string(
        call->settings, DOOR, javascript ? CORDON_SET_TEMPLATE_JAVASCRIPT : CORDON_SET_TEMPLATE_PYTHON);
    request->language = call->fields.language;
    request->arguments = call->fields.arguments; /* in the body, which lives until the call is over */
    request->template_name = *template_name ? template_name : NULL;
    request->network = cordon_settings_bool(call->settings, DOOR, CORDON_SET_EXECUTOR_NETWORK);
    request->artifacts = request->artifacts_flat = true;
    request->artifact_suffixes = CORDON_EM_SUFFIXES;
    request->limits.artifacts = (uint32_t)least(request->limits.artifacts, CORDON_EM_ARTIFACTS);
    request->limits.artifact_bytes = least(request->limits.artifact_bytes, CORDON_EM_ARTIFACT_BYTES);
    request->cancel_fd = call->http->fd;
    return decode_code(call, err);
}

static int check_source(struct call *call, struct cordon_error *err)
{
    struct cordon_em_verdict verdict;
    struct cordon_error why = {0};
    struct cordon_buf text = CORDON_BUF_INIT(1u << 20);
    if (!cordon_settings_bool(call->settings, DOOR, CORDON_SET_EXECUTOR_CHECK))
        return 0;
    size_t whole = call->run.request.code.size;
    if (strcmp(call->fields.language, "javascript") == 0)
        call->run.request.code.size -= sizeof epilogue - 1; /* what its user wrote is judged */
    int r = cordon_em_check(call->settings, &call->run, &text, &verdict, &why);
    call->run.request.code.size = whole;
    if (r)
        r = r < 0 ? reply_error(call, &why, err) : reply_verdict(call, 200, &verdict, NULL, err);
    cordon_buf_done(&text);
    return r;
}

static int run_and_reply(struct call *call, struct cordon_error *err)
{
    struct cordon_em_verdict verdict;
    struct cordon_error why = {0};
    struct cordon_answer *answer = NULL;
    char text[512];
    if (cordon_answer_new(&call->run.request.limits, &answer) < 0)
        return cordon_fail_errno(err, -ENOMEM, "collecting the run's output");
    int r = cordon_live_open(call->settings, &call->run, &call->live, &why);
    if (r == 0)
        r = cordon_answer_collect(answer, call->live, &why);
    if (r < 0) {
        r = reply_error(call, &why, err);
    } else {
        cordon_em_judge(answer, text, &verdict);
        r = reply_verdict(call, 200, &verdict, answer, err);
    }
    cordon_answer_free(answer);
    return r;
}

static int (*const steps[])(struct call *call, struct cordon_error *err) = {
    parse_body, check_caller, read_fields, check_rate, prepare, check_source, run_and_reply,
};

static void close_call(void *context)
{
    struct call *call = context;
    cordon_unread_done(call->charged);
    cordon_live_close(call->live);
    cordon_run_request_done(&call->run);
    free(call);
}

static int run_post(struct cordon_http_request *request, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    struct call *call = calloc(1, sizeof *call);
    if (!call)
        return cordon_fail_errno(err, -ENOMEM, "starting a run");
    call->http = request;
    call->settings = doors->settings;
    int r = 0;
    for (size_t i = 0; r == 0; i++)
        r = steps[i](call, err);
    if (r < 0) {
        close_call(call);
        return r;
    }
    request->finish = close_call; /* the answer leaves first; then guest and place are given back */
    request->finish_context = call;
    return 0;
}

/* --- the other routes --- */

static int health_get(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(64);
    (void)cordon_buf_appends(&body, "{\"status\":\"ok\"}"); /* sticky, seen by the reply */
    int r = reply(request, 200, &body, err);
    return r < 0 ? r : 0;
}

/* "/run/" is sent to "/run". */
static int redirect(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(64);
    char path[64];
    const char *host = cordon_http_header(request, "Host");
    const struct cordon_doors *doors = request->context;
    bool tls = *cordon_settings_string(doors->settings, CORDON_DOOR_NATIVE, CORDON_SET_TLS_CERT);
    struct cordon_buf location = CORDON_BUF_INIT(4096);
    (void)snprintf(path, sizeof path, "%.*s", (int)strlen(request->match.route->pattern) - 1,
                   request->match.route->pattern); /* fits: our own patterns */
    if (host && request->peer_uid < 0)
        (void)cordon_buf_appendf(&location, "http%s://%s", tls ? "s" : "", host); /* sticky */
    (void)cordon_buf_appends(&location, path);
    if (!location.failed)
        cordon_http_reply_header(request, "Location", location.data);
    int r = location.failed ? -EMSGSIZE : cordon_http_reply(request, 307, NULL, &body);
    cordon_buf_done(&location);
    return r < 0 ? cordon_fail(err, r, CORDON_ERROR_INVALID, "the Host header is too long") : 0;
}

/* Errors that are not the handlers': {"detail": …}, as FastAPI has them. */
static int reply_http_error(struct cordon_http_request *request, const struct cordon_error *why)
{
    int status = cordon_http_error_status(request, why);
    int r = reply_detail(request, status, status == 405 ? "Method Not Allowed" : why->message, NULL);
    return r < 0 ? r : 0;
}

#define BODY CORDON_HTTP_BODY_SETTING
#define NO_BODY CORDON_HTTP_BODY_NONE

static const struct cordon_http_route routes[] = {
    {"POST", "/run", run_post, CORDON_HTTP_OWN, BODY,
     "Calls main of a program, as RAGFlow's executor manager does: with its token or a run key. What the program does "
     "wrong is a 200 whose status says so.",
     "ExecutorRun", "ExecutorResult", NULL},
    {"GET", "/healthz", health_get, CORDON_HTTP_OPEN, NO_BODY,
     "Says ok as long as the daemon answers; GET /readyz says whether it can run code.", NULL, "ExecutorHealth", NULL},
    {"GET", "/", health_get, CORDON_HTTP_OPEN, NO_BODY, "The same.", NULL, "ExecutorHealth", NULL},
    {"POST", "/run/", redirect, CORDON_HTTP_OPEN, NO_BODY, NULL, NULL, NULL, NULL},
    {"GET", "/run/", redirect, CORDON_HTTP_OPEN, NO_BODY, NULL, NULL, NULL, NULL},
    {"GET", "/healthz/", redirect, CORDON_HTTP_OPEN, NO_BODY, NULL, NULL, NULL, NULL},
};

static const struct cordon_http_schema schemas[] = {
    {"ExecutorHealth", "{\"type\":\"object\",\"properties\":{\"status\":{\"type\":\"string\"}}}"},
    {"ExecutorRun",
     "{\"type\":\"object\",\"required\":[\"code_b64\"],\"properties\":{"
     "\"code_b64\":{\"type\":\"string\",\"format\":\"byte\",\"description\":\"The program, UTF-8; it defines main.\"},"
     "\"language\":{\"type\":\"string\",\"enum\":[\"python\",\"nodejs\"],\"default\":\"python\"},"
     "\"arguments\":{\"type\":\"object\",\"nullable\":true,\"description\":\"main's arguments by name.\"}}}"},
    {"ExecutorResult",
     "{\"type\":\"object\",\"required\":[\"status\",\"stdout\",\"stderr\",\"exit_code\"],\"properties\":{"
     "\"status\":{\"type\":\"string\",\"enum\":[\"success\",\"program_error\",\"resource_limit_exceeded\","
     "\"unauthorized_access\",\"runtime_error\",\"program_runner_error\"]},"
     "\"stdout\":{\"type\":\"string\"},\"stderr\":{\"type\":\"string\"},\"exit_code\":{\"type\":\"integer\"},"
     "\"detail\":{\"type\":\"string\",\"nullable\":true},\"time_used_ms\":{\"type\":\"number\",\"nullable\":true},"
     "\"memory_used_kb\":{\"type\":\"number\",\"nullable\":true},"
     "\"resource_limit_type\":{\"type\":\"string\",\"nullable\":true,\"enum\":[\"time\",\"memory\",\"output\",null]},"
     "\"unauthorized_access_type\":{\"type\":\"string\",\"nullable\":true,\"enum\":[\"disallowed_syscall\","
     "\"file_access\",\"network_access\",null]},"
     "\"runtime_error_type\":{\"type\":\"string\",\"nullable\":true,\"enum\":[\"signalled\",\"nonzero_exit\",null]},"
     "\"artifacts\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},"
     "\"mime_type\":{\"type\":\"string\"},\"size\":{\"type\":\"integer\"},\"content_b64\":{\"type\":\"string\"}}}},"
     "\"result\":{\"type\":\"object\",\"nullable\":true,\"properties\":{\"present\":{\"type\":\"boolean\"},"
     "\"value\":{},\"type\":{\"type\":\"string\"}}}}}"},
};

const struct cordon_http_door cordon_door_executor_manager = {
    .name = "executor-manager",
    .routes = routes,
    .route_count = sizeof routes / sizeof *routes,
    .schemas = schemas,
    .schema_count = sizeof schemas / sizeof *schemas,
    .admit = cordon_em_admit,
    .reply_error = reply_http_error,
};
