/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `createos`: plain REST with JSend envelopes, output as lines of JSON. What it can't hold it says: 169.254.0.0/16
 * stays reachable with the network off (an exception that the operator has to accept), and rules by name are echoed and
 * not enforced, so they are refused here. A shape is the smallest that has what the run needs, never a smaller one.
 */
#include <stdio.h>
#include <string.h>

#include "backend/builtin.h"
#include "backend/remote/createos_guest.h"
#include "base/clock.h"
#include "base/log.h"

#define PAUSE_SPARE_S 120

struct state {
    char id[80];
    struct cordon_createos_exec exec;
    struct cordon_remote_reader file;
};

static int create(struct cordon_run *run, struct cordon_error *err)
{
    char shape[64], name[23];
    struct state *state = run->state;
    const struct cordon_request *request = run->request;
    int r = cordon_createos_check_network(request->network, request->allowed_domain_count, err);
    if (r == 0)
        r = cordon_createos_shape_choose(request->limits.memory_bytes, run->deadline_us, run->cancel_fd, shape, err);
    if (r < 0)
        return r;
    (void)snprintf(name, sizeof name, "lf-%.19s", run->id); /* random, so never its predecessor's */
    const struct cordon_createos_wish wish = {.name = name,
                                              .shape = shape,
                                              .network = request->network,
                                              .pause_s = request->limits.timeout_ms / 1000 + PAUSE_SPARE_S,
                                              .deadline_us = run->deadline_us,
                                              .cancel_fd = run->cancel_fd};
    return cordon_createos_make(&wish, state->id, err);
}

static void destroy(struct cordon_run *run)
{
    struct cordon_error err = {0};
    struct state *state = run->state;
    cordon_createos_exec_close(&state->exec);
    cordon_remote_reader_close(&state->file);
    if (*state->id && cordon_createos_kill(state->id, run->deadline_us, run->cancel_fd, &err) < 0)
        cordon_log(CORDON_LOG_WARN, "a sandbox could not be ended; it pauses by itself, and must be ended by hand",
                   "backend", "createos", "sandbox", state->id, "error", err.message, NULL);
}

static int put(struct cordon_run *run, const char *path, struct cordon_bytes content, struct cordon_error *err)
{
    struct cordon_http_answer answer;
    const struct state *state = run->state;
    int r = cordon_createos_upload(state->id, path, content, run->deadline_us, run->cancel_fd, &answer, err);
    if (r == 0 && answer.status / 100 != 2)
        r = cordon_remote_refused(run->service, "sending a file", answer.status, &answer.body, err);
    cordon_buf_done(&answer.body);
    return r;
}

static int get(struct cordon_run *run, const char *path, struct cordon_error *err)
{
    struct state *state = run->state;
    struct cordon_buf none = CORDON_BUF_INIT(0);
    cordon_remote_reader_close(&state->file);
    int r = cordon_createos_download(state->id, path, run->deadline_us, run->cancel_fd, &state->file.transfer, err);
    unsigned status = r == 0 ? cordon_http_status(state->file.transfer) : 200;
    return status == 200 ? r : cordon_remote_refused(run->service, "reading a file", status, &none, err);
}

static int get_next(struct cordon_run *run, struct cordon_bytes *ret, struct cordon_error *err)
{
    struct state *state = run->state;
    return cordon_remote_reader_next(run, &state->file, ret, err);
}

static int exec(struct cordon_run *run, const char *command, uint64_t limit_ms, struct cordon_error *err)
{
    unsigned status;
    struct state *state = run->state;
    (void)limit_ms; /* the protocol has none; the deadline is ours */
    return cordon_createos_exec_open(&state->exec, state->id, command, run->deadline_us, run->cancel_fd, &status, err);
}

static int exec_next(struct cordon_run *run, struct cordon_remote_output *ret, struct cordon_error *err)
{
    struct state *state = run->state;
    return cordon_createos_exec_next(&state->exec, run->deadline_us, ret, err);
}

/* --- what it is set by, and its row --- */

static const char *folder(void)
{
    return "/tmp";
}

static int configured(struct cordon_error *err)
{
    if (!*cordon_remote_text(CORDON_SET_CREATEOS_API_KEY))
        return cordon_remote_unset(&cordon_createos_service,
                                   "a key is required (CORDON_CREATEOS_API_KEY, CREATEOS_SANDBOX_API_KEY); the "
                                   "profile page of createos.sh makes one",
                                   err);
    return cordon_remote_check_url(&cordon_createos_service, CORDON_SET_CREATEOS_BASE_URL, err);
}

const struct cordon_remote_service cordon_createos_service = {
    .name = "createos",
    .title = "CreateOS",
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
    now.deny_all_egress = now.streaming = now.network = now.guests = true;
    now.pause = CORDON_PAUSE_MEMORY;
    now.egress_exceptions =
        cordon_remote_true(CORDON_SET_CREATEOS_ACCEPT_EGRESS_EXCEPTIONS) ? "" : CORDON_CREATEOS_EXCEPTION;
    return cordon_remote_capabilities(&now);
}

static int ask(struct cordon_error *err)
{
    struct cordon_http_answer answer;
    struct cordon_value data;
    struct cordon_http_call call = {
        .method = "GET", .deadline_us = cordon_now_us() + 10000000u, .cancel_fd = -1, .retry = CORDON_HTTP_RETRY_SAFE};
    int r = cordon_createos_ask(&call, "/v1/whoami", "asking who we are", &answer, &data, err);
    cordon_buf_done(&answer.body);
    return r;
}

CORDON_REMOTE_BACKEND(createos, &cordon_createos_service, ask, .shutdown = cordon_createos_guests_stop,
                      .guest_create = cordon_createos_guest_create, .guest_adopt = cordon_createos_guest_adopt,
                      .guest_release = cordon_createos_guest_release, .guest_destroy = cordon_createos_guest_destroy,
                      .guest_pause = cordon_createos_guest_pause, .guest_resume = cordon_createos_guest_resume,
                      .guest_condition = cordon_createos_guest_condition, .guest_watch = cordon_createos_guest_watch,
                      .guest_remote = cordon_createos_guest_remote, .guest_execs = cordon_createos_execs,
                      .guest_open = cordon_createos_stream_open, .stream_next = cordon_createos_stream_next,
                      .stream_write = cordon_createos_stream_write, .stream_control = cordon_createos_stream_control,
                      .stream_close = cordon_createos_stream_close);
