/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "Test connection": the program that RAGFlow's admin page runs, on the backend and with the settings of the form as it
 * stands. Nothing is stored, and other threads see the settings that are.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/run.h"
#include "door/admin/admin.h"

#define SHOWN 200
#define TIMEOUT_MS 10000

/* No constants on both sides of an operator and no sys: an executor manager may check the source. */
static const char program[] = "import json\n"
                              "import math\n"
                              "\n"
                              "def main() -> dict:\n"
                              "    two = 2\n"
                              "    total = two + two\n"
                              "    print(f\"2 + 2 = {total}\")\n"
                              "    print(json.dumps({\"message\": \"Hello from the sandbox\", \"total\": total}))\n"
                              "    print(f\"Math.sqrt(16) = {math.sqrt(16)}\")\n"
                              "    print(\"TEST_PASSED\")\n"
                              "    return {\"ok\": True, \"provider_test\": \"TEST_PASSED\"}\n";

static void tell_error(struct cordon_admin_trial *trial, const struct cordon_error *err)
{
    trial->exit_code = -1;
    (void)snprintf(trial->cause, sizeof trial->cause, "%s", cordon_error_name(err->kind));
    (void)snprintf(trial->message, sizeof trial->message, "Test FAILED | %s", err->message);
}

static void take(struct cordon_buf *to, struct cordon_bytes text)
{
    (void)cordon_buf_append(to, text.data,
                            text.size < to->max ? text.size : to->max); /* what doesn't fit isn't shown */
}

static void tell_outcome(struct cordon_admin_trial *trial, const struct cordon_answer *answer)
{
    const struct cordon_outcome *outcome = cordon_answer_outcome(answer);
    take(&trial->output, cordon_answer_stdout(answer));
    take(&trial->errors, cordon_answer_stderr(answer));
    trial->exit_code = outcome->exit_code;
    trial->total_us = outcome->total_us;
    (void)snprintf(trial->cause, sizeof trial->cause, "%s", cordon_cause_name(outcome->cause));
    trial->passed = outcome->cause == CORDON_CAUSE_EXITED && outcome->exit_code == 0 && trial->output.data &&
                    strstr(trial->output.data, "TEST_PASSED");
    int n = snprintf(trial->message, sizeof trial->message, "Test %s | Exit code: %d | Execution time: %.2fs",
                     trial->passed ? "PASSED" : "FAILED", trial->exit_code, (double)trial->total_us / 1e6);
    const struct {
        const char *title;
        const struct cordon_buf *text;
    } parts[] = {{"Output", &trial->output}, {"Errors", &trial->errors}};
    for (size_t i = 0; i < 2; i++)
        if (parts[i].text->size && (size_t)n < sizeof trial->message)
            n += snprintf(trial->message + n, sizeof trial->message - (size_t)n, " | %s: %.*s%s", parts[i].title, SHOWN,
                          parts[i].text->data, parts[i].text->size > SHOWN ? "..." : "");
    if (*outcome->message && (size_t)n < sizeof trial->message)
        (void)snprintf(trial->message + n, sizeof trial->message - (size_t)n, " | %s", outcome->message);
}

static void tell(const struct cordon_admin_trial_watch *watch, const char *step, const struct cordon_event *event)
{
    if (watch)
        watch->tell(watch->context, step, event);
}

static int collect(struct cordon_answer *answer, struct cordon_live *live, const struct cordon_admin_trial_watch *watch,
                   struct cordon_error *err)
{
    struct cordon_event event = {0};
    while (event.type != CORDON_EVENT_OUTCOME) {
        int got = cordon_live_next(live, &event, err);
        if (got <= 0)
            return got;
        tell(watch, NULL, &event);
        if (cordon_answer_add(answer, &event) < 0)
            return cordon_fail_errno(err, -ENOMEM, "collecting the test's output");
    }
    return 0;
}

static int run_it(const struct cordon_settings *settings, const struct cordon_run_request *run,
                  const struct cordon_admin_trial_watch *watch, struct cordon_admin_trial *trial,
                  struct cordon_error *err)
{
    struct cordon_live *live = NULL;
    struct cordon_answer *answer = NULL;
    int r = cordon_answer_new(&run->request.limits, &answer);
    if (r < 0)
        return cordon_fail_errno(err, r, "starting the test");
    tell(watch, "probing", NULL);
    r = cordon_live_open(settings, run, &live, err);
    if (r == 0) {
        tell(watch, "connected", NULL);
        r = collect(answer, live, watch, err);
    }
    if (r == 0)
        tell_outcome(trial, answer);
    cordon_live_close(live);
    cordon_answer_free(answer);
    return r;
}

static int run_here(const struct cordon_admin_trial_order *order, const struct cordon_admin_trial_watch *watch,
                    struct cordon_admin_trial *ret, struct cordon_error *err)
{
    struct cordon_run_request run;
    cordon_run_request_init(order->settings, CORDON_DOOR_NATIVE, &run);
    run.request.language = "python";
    run.request.code = (struct cordon_bytes){program, sizeof program - 1};
    run.request.arguments = (struct cordon_bytes){"{}", 2};
    run.request.limits.timeout_ms = TIMEOUT_MS;
    run.request.cancel_fd = order->cancel_fd;
    memcpy(run.backend, order->backend, sizeof run.backend); /* the sizes agree */
    memcpy(run.subject, order->subject, sizeof run.subject);
    int r = run_it(order->settings, &run, watch, ret, err);
    cordon_run_request_done(&run);
    return r;
}

void cordon_admin_trial_run(const struct cordon_admin_trial_order *order, const struct cordon_admin_trial_watch *watch,
                            struct cordon_admin_trial *ret)
{
    struct cordon_error err = {0};
    *ret = (struct cordon_admin_trial){.output = CORDON_BUF_INIT(16384), .errors = CORDON_BUF_INIT(16384)};
    int r = cordon_settings_trial_begin(order->settings, (const char *const *)order->pairs, &err);
    if (r == 0)
        r = run_here(order, watch, ret, &err);
    if (r < 0)
        tell_error(ret, &err);
    cordon_settings_trial_end();
}

/* Who tried what, and with which settings: without it, a test would leave no trace. */
static int record(const struct cordon_http_request *request, const char *backend,
                  const struct cordon_admin_changes *changes, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    struct cordon_buf names = CORDON_BUF_INIT(4096);
    for (size_t i = 0; i < changes->count; i++) /* what is beyond its size is left out */
        (void)cordon_buf_appendf(&names, "%s%s", i ? ", " : "", changes->rows[i].name);
    const struct cordon_audit_entry entry = {.who = cordon_admin_who(request),
                                             .action = "backend.test",
                                             .subject = backend,
                                             .before = "",
                                             .after = names.size ? names.data : ""};
    int r = cordon_audit_add(doors->store, &entry, err);
    cordon_buf_done(&names);
    return r;
}

/* Are they settings, and do secrets that are not in them stay where they were to go? */
static int check(const struct cordon_settings *settings, char **pairs, struct cordon_error *err)
{
    struct cordon_admin_places before, after;
    cordon_admin_places_read(settings, &before);
    int r = cordon_settings_trial_begin(settings, (const char *const *)pairs, err);
    if (r == 0) {
        cordon_admin_places_read(settings, &after);
        r = cordon_admin_places_check(&before, &after, err);
        cordon_admin_places_done(&after);
    }
    cordon_settings_trial_end();
    cordon_admin_places_done(&before);
    return r;
}

int cordon_admin_trial_order(const struct cordon_http_request *request, const char *backend,
                             const struct cordon_admin_changes *changes, struct cordon_admin_trial_order *ret,
                             struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    *ret = (struct cordon_admin_trial_order){.settings = doors->settings, .cancel_fd = request->fd};
    (void)snprintf(ret->backend, sizeof ret->backend, "%s", backend);
    memcpy(ret->subject, request->subject, sizeof ret->subject); /* the sizes agree */
    int r = cordon_admin_pairs(doors->store, changes, &ret->pairs, err);
    if (r < 0)
        return r;
    r = check(doors->settings, ret->pairs, err);
    if (r == 0)
        r = record(request, ret->backend, changes, err);
    if (r < 0)
        cordon_admin_trial_order_done(ret);
    return r;
}

void cordon_admin_trial_order_done(struct cordon_admin_trial_order *order)
{
    cordon_admin_pairs_free(order->pairs);
    order->pairs = NULL;
}

void cordon_admin_trial_done(struct cordon_admin_trial *trial)
{
    cordon_buf_done(&trial->output);
    cordon_buf_done(&trial->errors);
}

void cordon_admin_trial_write(const struct cordon_admin_trial *trial, struct cordon_json *json)
{
    cordon_json_key(json, "passed");
    cordon_json_bool(json, trial->passed);
    cordon_json_key(json, "message");
    cordon_json_text(json, trial->message);
    cordon_json_key(json, "cause");
    cordon_json_text(json, trial->cause);
    cordon_json_key(json, "exit_code");
    cordon_json_int(json, trial->exit_code);
    cordon_json_key(json, "total_ms");
    cordon_json_ms(json, trial->total_us);
    cordon_json_key(json, "stdout");
    cordon_json_bytes(json, trial->output.data ? trial->output.data : "", trial->output.size);
    cordon_json_key(json, "stderr");
    cordon_json_bytes(json, trial->errors.data ? trial->errors.data : "", trial->errors.size);
}

static int reply(struct cordon_http_request *request, struct cordon_admin_trial_order *order, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(1u << 20);
    struct cordon_json json = {.buf = &body};
    struct cordon_admin_trial trial;
    cordon_admin_trial_run(order, NULL, &trial);
    cordon_json_object_begin(&json);
    cordon_admin_trial_write(&trial, &json);
    cordon_json_object_end(&json);
    cordon_admin_trial_done(&trial);
    cordon_admin_trial_order_done(order);
    return cordon_admin_reply(request, &body, err);
}

/* {"backend", "values"?}: values as for PUT /v1/admin/settings. */
int cordon_admin_trial_post(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_admin_changes changes = {0};
    struct cordon_admin_trial_order order;
    struct cordon_value body, values;
    char backend[64], field[80];
    int r = cordon_admin_body(request, &body, err);
    if (r == 0)
        r = cordon_admin_text(&body, "backend", backend, sizeof backend, err);
    if (r == 0 && cordon_admin_member(&body, "values", &values))
        r = values.kind == CORDON_VALUE_OBJECT
                ? cordon_admin_changes_read(&values, &changes, field, err)
                : cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "values must be an object of names and values");
    if (r == 0)
        r = cordon_admin_trial_order(request, backend, &changes, &order, err);
    cordon_admin_changes_done(&changes);
    if (r < 0)
        return r;
    bool stream = cordon_http_accepts(request, "application/x-ndjson");
    return stream ? cordon_admin_trial_stream(request, &order, err) : reply(request, &order, err);
}
