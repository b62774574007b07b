/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RAGFlow's admin routes, with its envelope and texts. Its "provider" is our default backend, the fields of a provider
 * are our settings (ragflow_form.c), and what is saved here is what /v1/admin/settings shows. Secrets are never given
 * back: a form that sends the mask back leaves them alone. What no setting stands for is kept (ragflow_extra.c).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "door/admin/ragflow.h"

/* --- the envelope --- */

static void begin(struct cordon_json *json, const char *message)
{
    cordon_json_object_begin(json);
    cordon_json_key(json, "code");
    cordon_json_int(json, 0);
    cordon_json_key(json, "message");
    cordon_json_text(json, message);
    cordon_json_key(json, "data");
}

static int finish(struct cordon_http_request *request, struct cordon_json *json, struct cordon_error *err)
{
    cordon_json_object_end(json);
    return cordon_admin_reply(request, json->buf, err);
}

/* HTTP 400 in all cases, as RAGFlow's page expects; but one who may not is told so, and one who said with If-Match what
 * the change is of. */
static int reply_error(struct cordon_http_request *request, const struct cordon_error *err)
{
    int status = cordon_http_error_status(request, err);
    bool theirs = status != 401 && status != 403 && status != 404 && status != 405 && status != 409;
    struct cordon_buf body = CORDON_BUF_INIT(8192);
    struct cordon_json json = {.buf = &body};
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "code");
    cordon_json_int(&json, theirs && status < 500 ? 400 : status);
    cordon_json_key(&json, "message");
    cordon_json_text(&json, err->message);
    cordon_json_key(&json, "data");
    cordon_json_null(&json);
    cordon_json_object_end(&json);
    (void)cordon_buf_append(&body, "\n", 1); /* sticky, seen by the reply */
    return cordon_http_reply(request, theirs ? 400 : status, "application/json", &body);
}

int cordon_admin_providers_get(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(65536);
    struct cordon_json json = {.buf = &body};
    begin(&json, "Success");
    cordon_ragflow_providers_write(&json);
    return finish(request, &json, err);
}

int cordon_admin_schema_get(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(65536);
    struct cordon_json json = {.buf = &body};
    unsigned provider;
    char id[64];
    if (cordon_http_param(request, 0, id, sizeof id) < 0 || !cordon_ragflow_provider_find(id, &provider))
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "Unknown provider: %s", id);
    begin(&json, "Success");
    cordon_ragflow_schema_write(&json, provider);
    return finish(request, &json, err);
}

static int reply_config(struct cordon_http_request *request, const char *message, const char *id,
                        struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    struct cordon_buf body = CORDON_BUF_INIT(65536);
    struct cordon_json json = {.buf = &body};
    unsigned provider;
    begin(&json, message);
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "provider_type");
    cordon_json_text(&json, id);
    cordon_json_key(&json, "config");
    if (cordon_ragflow_provider_find(id, &provider)) {
        cordon_ragflow_config_write(&json, doors->settings, provider);
    } else { /* a plugin's backend has no form here */
        cordon_json_object_begin(&json);
        cordon_json_object_end(&json);
    }
    cordon_json_object_end(&json);
    return finish(request, &json, err);
}

int cordon_admin_config_get(struct cordon_http_request *request, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    return reply_config(request, "Success",
                        cordon_settings_string(doors->settings, CORDON_DOOR_NATIVE, CORDON_SET_BACKEND), err);
}

static int read_form(struct cordon_http_request *request, struct cordon_ragflow_form *form,
                     struct cordon_admin_changes *changes, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    struct cordon_value body;
    int r = cordon_admin_body(request, &body, err);
    return r < 0 ? r : cordon_ragflow_form_read(doors->settings, &body, form, changes, err);
}

int cordon_admin_config_post(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_admin_changes changes = {0};
    struct cordon_error wrong = {0};
    struct cordon_ragflow_form form;
    int r = read_form(request, &form, &changes, err);
    const char *id = r == 0 ? cordon_ragflow_provider_id(form.provider) : NULL;
    if (r == 0 && form.active)
        r = cordon_admin_changes_add(&changes, "CORDON_BACKEND", id, err);
    if (r == 0 && (r = cordon_admin_changes_apply(request, &changes, &wrong)) < 0)
        r = wrong.kind == CORDON_ERROR_INVALID
                ? cordon_fail(err, r, wrong.kind, "Provider validation failed: %s", wrong.message)
                : cordon_fail(err, r, wrong.kind, "%s", wrong.message);
    cordon_admin_changes_done(&changes);
    return r < 0 ? r : reply_config(request, "Sandbox configuration updated successfully", id, err);
}

static int reply_test(struct cordon_http_request *request, const struct cordon_admin_trial *trial,
                      struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(1u << 20);
    struct cordon_json json = {.buf = &body};
    char seconds[32];
    int n = snprintf(seconds, sizeof seconds, "%.3f", (double)trial->total_us / 1e6); /* fits */
    begin(&json, "Success");
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "success");
    cordon_json_bool(&json, trial->passed);
    cordon_json_key(&json, "message");
    cordon_json_text(&json, trial->message);
    cordon_json_key(&json, "details");
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "exit_code");
    cordon_json_int(&json, trial->exit_code);
    cordon_json_key(&json, "execution_time");
    cordon_json_raw(&json, seconds, (size_t)n);
    cordon_json_key(&json, "stdout");
    cordon_json_bytes(&json, trial->output.data ? trial->output.data : "", trial->output.size);
    cordon_json_key(&json, "stderr");
    cordon_json_bytes(&json, trial->errors.data ? trial->errors.data : "", trial->errors.size);
    cordon_json_object_end(&json);
    cordon_json_object_end(&json);
    return finish(request, &json, err);
}

int cordon_admin_test_post(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_admin_changes changes = {0};
    struct cordon_admin_trial_order order;
    struct cordon_admin_trial trial;
    struct cordon_ragflow_form form;
    int r = read_form(request, &form, &changes, err);
    if (r == 0)
        r = cordon_admin_trial_order(request, cordon_ragflow_provider_id(form.provider), &changes, &order, err);
    cordon_admin_changes_done(&changes);
    if (r < 0)
        return r;
    if (cordon_http_accepts(request, "application/x-ndjson")) /* our page does; RAGFlow's does not */
        return cordon_admin_trial_stream(request, &order, err);
    cordon_admin_trial_run(&order, NULL, &trial);
    cordon_admin_trial_order_done(&order);
    r = reply_test(request, &trial, err);
    cordon_admin_trial_done(&trial);
    return r;
}

static const struct cordon_http_route routes[] = {
    {"GET", "/api/v1/admin/sandbox/providers", cordon_admin_providers_get, CORDON_HTTP_ADMIN, CORDON_HTTP_BODY_NONE,
     "RAGFlow's admin page: the providers, in their order.", NULL, "Envelope", NULL},
    {"GET", "/api/v1/admin/sandbox/providers/{id}/schema", cordon_admin_schema_get, CORDON_HTTP_ADMIN,
     CORDON_HTTP_BODY_NONE, "RAGFlow's admin page: the fields of a provider.", NULL, "Envelope", NULL},
    {"GET", "/api/v1/admin/sandbox/config", cordon_admin_config_get, CORDON_HTTP_ADMIN, CORDON_HTTP_BODY_NONE,
     "RAGFlow's admin page: the chosen provider and its fields; secrets are masked.", NULL, "Envelope", NULL},
    {"POST", "/api/v1/admin/sandbox/config", cordon_admin_config_post, CORDON_HTTP_ADMIN, 1u << 20,
     "RAGFlow's admin page: saves a provider's fields and chooses it, unless set_active is false.", "ProviderConfig",
     "Envelope", NULL},
    {"POST", "/api/v1/admin/sandbox/test", cordon_admin_test_post, CORDON_HTTP_ADMIN, 1u << 20,
     "RAGFlow's admin page: runs the test program with the fields as they are given, unsaved. Or a line an event as it "
     "happens, as for /v1/admin/test.",
     "ProviderConfig", "Envelope", "TrialEvent"},
};

static const struct cordon_http_schema schemas[] = {
    {"Envelope", "{\"type\":\"object\",\"required\":[\"code\",\"message\",\"data\"],\"properties\":{\"code\":{\"type\":"
                 "\"integer\"},\"message\":{\"type\":\"string\"},\"data\":{}}}"},
    {"ProviderConfig", "{\"type\":\"object\",\"required\":[\"provider_type\"],\"properties\":{"
                       "\"provider_type\":{\"type\":\"string\"},\"config\":{\"type\":\"object\"},"
                       "\"set_active\":{\"type\":\"boolean\"}}}"},
};

static bool claims(const struct cordon_http_request *request)
{
    return strncmp(request->path, "/api/v1/admin/sandbox/", 22) == 0;
}

const struct cordon_http_door cordon_door_ragflow_admin = {
    .name = "ragflow-admin",
    .routes = routes,
    .route_count = sizeof routes / sizeof *routes,
    .schemas = schemas,
    .schema_count = sizeof schemas / sizeof *schemas,
    .claims = claims,
    .reply_error = reply_error,
};
