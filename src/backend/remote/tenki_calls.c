/* SPDX-License-Identifier: Apache-2.0 */
/* Tenki's calls: Connect's unary ones in JSON, of the control plane and of a session's own data plane. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/remote/tenki.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"

#define CONTROL "/tenki.sandbox.v1.SandboxService/"
#define DATA "/tenki.sandbox.v1.SandboxSessionDataPlaneService/"
#define ROUTE_US 60000000u /* until a new session's route is known everywhere */
#define ROUTE_FIRST_US 50000u
#define ROUTE_MOST_US 750000u
#define URL_MAX 512

static void join(char to[URL_MAX], const char *base, const char *path, const char *method)
{
    (void)snprintf(to, URL_MAX, "%.*s%s%s", (int)cordon_remote_base(base), base, path, method); /* cut: is unknown */
}

/* --- calls --- */

int cordon_tenki_control(struct cordon_http_call *call, const char *method, const struct cordon_buf *body,
                         struct cordon_http_answer *answer, struct cordon_error *err)
{
    char url[URL_MAX], key[400], what[64];
    const char *headers[] = {key, "Content-Type: application/json", "Connect-Protocol-Version: 1",
                             "X-Tenki-Client-Generation: workspace_v1", NULL};
    (void)snprintf(key, sizeof key, "Authorization: Bearer %.340s", cordon_remote_text(CORDON_SET_TENKI_API_KEY));
    join(url, cordon_remote_text(CORDON_SET_TENKI_API_URL), CONTROL, method);
    call->method = "POST";
    call->url = url;
    call->headers = headers;
    call->body = (struct cordon_bytes){body->data, body->size};
    *answer = (struct cordon_http_answer){0};
    int r =
        body->failed ? cordon_fail_errno(err, -ENOMEM, "Tenki: %s", method) : cordon_http_exchange(call, answer, err);
    if (r < 0 || answer->status == 200)
        return r;
    (void)snprintf(what, sizeof what, "%s", method);
    return cordon_remote_refused(&cordon_tenki_service, what, answer->status, &answer->body, err);
}

void cordon_tenki_begin(struct cordon_json *json, const struct cordon_tenki_state *state)
{
    cordon_json_object_begin(json);
    cordon_json_key(json, "sessionId");
    cordon_json_text(json, state->id);
}

int cordon_tenki_session(struct cordon_run *run, const char *method, enum cordon_http_retry retry,
                         struct cordon_http_answer *answer, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(1024);
    struct cordon_json json = {.buf = &body};
    cordon_tenki_begin(&json, run->state);
    cordon_json_object_end(&json);
    struct cordon_http_call call = cordon_remote_call(run, "POST", NULL, NULL);
    call.retry = retry;
    int r = cordon_tenki_control(&call, method, &body, answer, err);
    cordon_buf_done(&body);
    return r;
}

static int data_once(struct cordon_run *run, const char *method, const struct cordon_buf *body, size_t answer_max,
                     struct cordon_http_answer *answer, struct cordon_error *err)
{
    char url[URL_MAX];
    cordon_autofree char *credential = NULL;
    struct cordon_tenki_state *state = run->state;
    if (asprintf(&credential, "x-tenki-session-cert: %s", state->credential) < 0)
        return cordon_fail_errno(err, -ENOMEM, "Tenki: %s", method);
    const char *headers[] = {credential, "Content-Type: application/json", "Connect-Protocol-Version: 1", NULL};
    join(url, state->endpoint, DATA, method);
    struct cordon_http_call call = cordon_remote_call(run, "POST", url, headers);
    call.body = (struct cordon_bytes){body->data, body->size};
    call.answer_max = answer_max;
    call.retry = CORDON_HTTP_RETRY_SAFE; /* files are written and read whole */
    return cordon_http_exchange(&call, answer, err);
}

/* A new session's route may answer 404 for a moment; a credential may have run out: once. */
int cordon_tenki_data(struct cordon_run *run, const char *method, const struct cordon_buf *body, size_t answer_max,
                      struct cordon_http_answer *answer, struct cordon_error *err)
{
    uint64_t give_up_us = cordon_now_us() + ROUTE_US, wait_us = ROUTE_FIRST_US;
    bool minted = false;
    *answer = (struct cordon_http_answer){0};
    if (body->failed)
        return cordon_fail_errno(err, -ENOMEM, "Tenki: %s", method);
    for (;;) {
        int r = data_once(run, method, body, answer_max, answer, err);
        bool connect = answer->body.size && *answer->body.data == '{'; /* the service's own 404 is a JSON error */
        if (r < 0 || answer->status == 200)
            return r;
        if (answer->status == 401 && !minted)
            r = cordon_tenki_mint(run, err);
        else if (answer->status == 404 && !connect && cordon_now_us() + wait_us < give_up_us)
            r = cordon_http_pause(cordon_now_us() + wait_us, run->cancel_fd, err);
        else
            return cordon_remote_refused(&cordon_tenki_service, method, answer->status, &answer->body, err);
        minted = minted || answer->status == 401;
        if (r < 0)
            return r;
        wait_us = wait_us * 2 < ROUTE_MOST_US ? wait_us * 2 : ROUTE_MOST_US;
        cordon_buf_done(&answer->body);
    }
}

/* --- the session --- */

void cordon_tenki_credential(struct cordon_tenki_state *state, const struct cordon_value *root)
{
    struct cordon_value credential;
    char endpoint[sizeof state->endpoint];
    if (cordon_value_member(root, "credential", &credential))
        (void)cordon_value_text(&credential, "credential", state->credential, sizeof state->credential);
    if (cordon_value_text(root, "dataPlaneEndpoint", endpoint, sizeof endpoint) && *endpoint)
        memcpy(state->endpoint, endpoint, sizeof endpoint);
}

int cordon_tenki_mint(struct cordon_run *run, struct cordon_error *err)
{
    struct cordon_http_answer answer;
    struct cordon_value root;
    struct cordon_tenki_state *state = run->state;
    int r = cordon_tenki_session(run, "CreateSessionCredential", CORDON_HTTP_RETRY_REFUSED, &answer, err);
    if (r == 0 && cordon_value_parse(answer.body.data ? answer.body.data : "", answer.body.size, &root, NULL) == 0)
        cordon_tenki_credential(state, &root);
    cordon_buf_done(&answer.body);
    return r;
}
