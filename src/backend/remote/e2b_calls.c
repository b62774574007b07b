/* SPDX-License-Identifier: Apache-2.0 */
/* E2B's protocol: addresses, headers, the making and the end of sandboxes, files. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/remote/e2b.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"

#define ENVD_PORT "49983"

/* --- addresses and headers --- */

struct cordon_http_call cordon_e2b_api_call(const struct cordon_e2b_kind *kind, const char *method, const char *path,
                                            char url[CORDON_E2B_URL], struct cordon_remote_headers *headers)
{
    const char *set = cordon_remote_text(kind->api_url);
    size_t size = cordon_remote_base(set);
    if (size)
        (void)snprintf(url, CORDON_E2B_URL, "%.*s%s", (int)size, set, path); /* a cut one is answered as unknown */
    else
        (void)snprintf(url, CORDON_E2B_URL, "https://api.%.200s%s", kind->domain(), path);
    headers->count = 0;
    cordon_remote_add(headers, "X-API-Key", cordon_remote_text(kind->key));
    cordon_remote_add(headers, "Content-Type", "application/json");
    return (struct cordon_http_call){.method = method, .url = url, .headers = headers->list, .cancel_fd = -1};
}

struct cordon_http_call cordon_e2b_envd_call(const struct cordon_e2b_kind *kind, const struct cordon_e2b_box *box,
                                             const char *method, const char *path, const char *type,
                                             char url[CORDON_E2B_URL], struct cordon_remote_headers *headers)
{
    const char *set = cordon_remote_text(kind->sandbox_url);
    size_t size = cordon_remote_base(set);
    if (size)
        (void)snprintf(url, CORDON_E2B_URL, "%.*s%s", (int)size, set, path);
    else
        (void)snprintf(url, CORDON_E2B_URL, "%s://" ENVD_PORT "-%s.%.200s%s", kind->scheme(), box->id,
                       strchr(box->domain, '.') ? box->domain : kind->domain(), path);
    headers->count = 0;
    cordon_remote_add(headers, "X-Access-Token", box->token);
    cordon_remote_add(headers, "E2B-Traffic-Access-Token", box->traffic);
    cordon_remote_add(headers, "E2b-Sandbox-Id", box->id);
    cordon_remote_add(headers, "E2b-Sandbox-Port", ENVD_PORT);
    cordon_remote_add(headers, "Authorization", box->root ? "Basic cm9vdDo=" : "Basic dXNlcjo="); /* root:, user: */
    cordon_remote_add(headers, "Content-Type", type);
    if (strstr(type, "connect"))
        cordon_remote_add(headers, "Keepalive-Ping-Interval", "50");
    return (struct cordon_http_call){.method = method, .url = url, .headers = headers->list, .cancel_fd = -1};
}

/* --- sandboxes --- */

static void write_create(const struct cordon_e2b_kind *kind, const struct cordon_e2b_wish *wish, bool newest,
                         struct cordon_buf *to)
{
    struct cordon_json json = {.buf = to};
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "templateID");
    cordon_json_text(&json, cordon_remote_text(kind->template_name));
    cordon_json_key(&json, "timeout");
    cordon_json_uint(&json, wish->life_s);
    cordon_json_key(&json, "metadata");
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "source");
    cordon_json_text(&json, "cordon");
    if (wish->guest) {
        cordon_json_key(&json, "guest");
        cordon_json_text(&json, wish->guest);
    }
    cordon_json_object_end(&json);
    if (wish->env_count)
        cordon_remote_write_env(&json, "envVars", wish->env, wish->env_count);
    if (!newest) {
        cordon_json_key(&json, "secure");
        cordon_json_bool(&json, true);
    }
    cordon_json_key(&json, "allow_internet_access");
    cordon_json_bool(&json, wish->network);
    cordon_json_object_end(&json);
}

int cordon_e2b_take(const struct cordon_e2b_kind *kind, const struct cordon_http_answer *answer,
                    struct cordon_e2b_box *box, struct cordon_error *err)
{
    struct cordon_value root;
    const char *text = answer->body.data ? answer->body.data : "";
    bool good = cordon_value_parse(text, answer->body.size, &root, NULL) == 0 &&
                cordon_value_text(&root, "sandboxID", box->id, sizeof box->id) && *box->id &&
                strspn(box->id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") == strlen(box->id);
    if (!good) {
        *box->id = '\0';
        return cordon_fail(err, -EBADMSG, CORDON_ERROR_UNAVAILABLE, "%s: making a sandbox was answered without its id",
                           kind->service->title);
    }
    (void)cordon_value_text(&root, "envdAccessToken", box->token, sizeof box->token); /* "" where there is none */
    (void)cordon_value_text(&root, "trafficAccessToken", box->traffic, sizeof box->traffic);
    (void)cordon_value_text(&root, "domain", box->domain, sizeof box->domain);
    return 0;
}

static int post_create(const struct cordon_e2b_kind *kind, const struct cordon_e2b_wish *wish, bool newest,
                       struct cordon_http_answer *answer, struct cordon_error *err)
{
    char url[CORDON_E2B_URL];
    struct cordon_remote_headers headers;
    struct cordon_buf body = CORDON_BUF_INIT(1u << 20);
    *answer = (struct cordon_http_answer){0};
    write_create(kind, wish, newest, &body);
    struct cordon_http_call call =
        cordon_e2b_api_call(kind, "POST", newest ? "/v2/sandboxes" : "/sandboxes", url, &headers);
    call.body = (struct cordon_bytes){body.data, body.size};
    call.deadline_us = wish->deadline_us; /* one whose answer is lost ends by its lifetime; see cordon_remote_stayed */
    call.retry = CORDON_HTTP_RETRY_REFUSED;
    int r = body.failed ? cordon_fail_errno(err, -ENOMEM, "%s: making a sandbox", kind->service->title)
                        : cordon_http_exchange(&call, answer, err);
    cordon_buf_done(&body);
    return r;
}

/* Asks the control plane for what it made. */
static int check_denied(const struct cordon_e2b_kind *kind, const struct cordon_e2b_wish *wish,
                        const struct cordon_e2b_box *box, struct cordon_error *err)
{
    char url[CORDON_E2B_URL], path[128];
    struct cordon_remote_headers headers;
    struct cordon_http_answer answer;
    struct cordon_value root, told;
    (void)snprintf(path, sizeof path, "/sandboxes/%s", box->id); /* fits */
    struct cordon_http_call call = cordon_e2b_api_call(kind, "GET", path, url, &headers);
    call.deadline_us = wish->deadline_us;
    call.cancel_fd = wish->cancel_fd;
    call.retry = CORDON_HTTP_RETRY_SAFE;
    int r = cordon_http_exchange(&call, &answer, err);
    if (r == 0 && answer.status != 200)
        r = cordon_remote_refused(kind->service, "asking for the sandbox's network", answer.status, &answer.body, err);
    if (r == 0) {
        bool denied =
            cordon_value_parse(answer.body.data ? answer.body.data : "", answer.body.size, &root, NULL) == 0 &&
            cordon_value_member(&root, "allowInternetAccess", &told) && told.kind == CORDON_VALUE_BOOL &&
            !cordon_value_true(&told);
        if (!denied)
            r = cordon_fail(
                err, -EPERM, CORDON_ERROR_UNAVAILABLE,
                "%s: a sandbox without network was asked for, and the service does not say that this one has "
                "none (allowInternetAccess); the code was not run",
                kind->service->title);
    }
    cordon_buf_done(&answer.body);
    return r;
}

int cordon_e2b_make(const struct cordon_e2b_kind *kind, const struct cordon_e2b_wish *wish, struct cordon_e2b_box *box,
                    struct cordon_error *err)
{
    struct cordon_http_answer answer;
    int r = post_create(kind, wish, kind->newest, &answer, err);
    if (r == 0 && answer.status == 404 && kind->newest) { /* an older service */
        cordon_buf_done(&answer.body);
        r = post_create(kind, wish, false, &answer, err);
    }
    if (r == 0 && answer.status != 201 && answer.status != 200)
        r = cordon_remote_refused(kind->service, "making a sandbox", answer.status, &answer.body, err);
    if (r == 0)
        r = cordon_e2b_take(kind, &answer, box, err);
    cordon_buf_done(&answer.body);
    if (r == 0)
        r = cordon_remote_stayed(wish->cancel_fd, err);
    return r == 0 && !wish->network ? check_denied(kind, wish, box, err) : r;
}

int cordon_e2b_kill(const struct cordon_e2b_kind *kind, const struct cordon_e2b_box *box, uint64_t deadline_us,
                    int cancel_fd, struct cordon_error *err)
{
    char url[CORDON_E2B_URL], path[128];
    struct cordon_remote_headers headers;
    struct cordon_http_answer answer;
    (void)snprintf(path, sizeof path, "/sandboxes/%s", box->id); /* fits */
    struct cordon_http_call call = cordon_e2b_api_call(kind, "DELETE", path, url, &headers);
    call.deadline_us = deadline_us;
    call.cancel_fd = cancel_fd;
    call.retry = CORDON_HTTP_RETRY_SAFE;
    int r = cordon_http_exchange(&call, &answer, err);
    if (r == 0 && answer.status / 100 != 2 && answer.status != 404)
        r = cordon_remote_refused(kind->service, "ending a sandbox", answer.status, &answer.body, err);
    cordon_buf_done(&answer.body);
    return r;
}

/* --- files --- */

int cordon_e2b_file_path(const struct cordon_e2b_kind *kind, const char *user, const char *path,
                         char to[CORDON_E2B_URL], struct cordon_error *err)
{
    struct cordon_buf query = CORDON_BUF_INIT(CORDON_E2B_URL - 200);
    (void)cordon_buf_appendf(&query, "/files?username=%s&path=", user);
    (void)cordon_url_encode(&query, path, strlen(path)); /* sticky */
    if (!query.failed)
        (void)snprintf(to, CORDON_E2B_URL, "%s", query.data); /* fits */
    int r = query.failed ? cordon_fail_errno(err, -ENAMETOOLONG, "%s: a path", kind->service->title) : 0;
    cordon_buf_done(&query);
    return r;
}

int cordon_e2b_upload(const struct cordon_e2b_kind *kind, struct cordon_http_call *call, const char *boundary,
                      struct cordon_bytes content, struct cordon_http_answer *answer, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(content.size + 4096);
    *answer = (struct cordon_http_answer){0};
    (void)cordon_buf_appendf(&body,
                             "--cordon-%s\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n"
                             "Content-Type: application/octet-stream\r\n\r\n",
                             boundary);
    (void)cordon_buf_append(&body, content.data, content.size);
    (void)cordon_buf_appendf(&body, "\r\n--cordon-%s--\r\n", boundary);
    call->body = (struct cordon_bytes){body.data, body.size};
    call->retry = CORDON_HTTP_RETRY_SAFE; /* the same file twice is the same file */
    int r = body.failed ? cordon_fail_errno(err, -ENOMEM, "%s: sending a file", kind->service->title)
                        : cordon_http_exchange(call, answer, err);
    cordon_buf_done(&body);
    return r;
}

/* --- how processes end --- */

int cordon_e2b_signal(const char *status)
{
    static const struct {
        const char *name;
        int number;
    } signals[] = {{"killed", SIGKILL},
                   {"terminated", SIGTERM},
                   {"interrupt", SIGINT},
                   {"aborted", SIGABRT},
                   {"segmentation fault", SIGSEGV},
                   {"hangup", SIGHUP},
                   {"quit", SIGQUIT},
                   {"bus error", SIGBUS},
                   {"floating point exception", SIGFPE},
                   {"illegal instruction", SIGILL},
                   {"broken pipe", SIGPIPE},
                   {"alarm clock", SIGALRM},
                   {"user defined signal 1", SIGUSR1},
                   {"user defined signal 2", SIGUSR2},
                   {"CPU time limit exceeded", SIGXCPU},
                   {"file size limit exceeded", SIGXFSZ}};
    if (strncmp(status, "signal: ", 8) != 0)
        return 0;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (strncmp(status + 8, signals[i].name, strlen(signals[i].name)) == 0)
            return signals[i].number;
    return SIGKILL; /* one that it has no name for */
}

/* --- is it set up, and there? --- */

int cordon_e2b_ask(const struct cordon_e2b_kind *kind, struct cordon_error *err)
{
    char url[CORDON_E2B_URL];
    struct cordon_remote_headers headers;
    struct cordon_http_answer answer;
    struct cordon_http_call call = cordon_e2b_api_call(kind, "GET", "/v2/sandboxes?limit=1", url, &headers);
    call.deadline_us = cordon_now_us() + 10000000u;
    call.retry = CORDON_HTTP_RETRY_SAFE;
    int r = cordon_http_exchange(&call, &answer, err);
    if (r == 0 && answer.status != 200)
        r = cordon_remote_refused(kind->service, "asking for the sandboxes", answer.status, &answer.body, err);
    cordon_buf_done(&answer.body);
    return r;
}

/* "": the service's own. Plain http is what a setting may allow. */
static int check_url(const struct cordon_e2b_kind *kind, enum cordon_setting id, struct cordon_error *err)
{
    const char *url = cordon_remote_text(id);
    bool allowed = !*url || (kind->plain_http() && strncmp(url, "http://", 7) == 0);
    return allowed ? 0 : cordon_remote_check_url(kind->service, id, err);
}

int cordon_e2b_check_urls(const struct cordon_e2b_kind *kind, struct cordon_error *err)
{
    int r = check_url(kind, kind->api_url, err);
    return r < 0 ? r : check_url(kind, kind->sandbox_url, err);
}

const char *cordon_e2b_home(void)
{
    return "/home/user";
}
