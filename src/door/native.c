/* SPDX-License-Identifier: Apache-2.0 */
/* The native door: /v1/. */
#include <errno.h>

#include "core/registry.h"
#include "core/run.h"
#include "core/value.h"
#include "core/verify.h"
#include "door/createos/doors.h"
#include "door/door.h"
#include "door/e2b/doors.h"
#include "door/native_run.h"
#include "door/native_schemas.h"
#include "door/templates.h"

static void write_list(struct cordon_json *json, const char *key, const char *commas)
{
    cordon_json_key(json, key);
    cordon_json_array_begin(json);
    for (const char *at = commas ? commas : ""; *at; at += *at == ',') {
        size_t size = 0;
        while (at[size] && at[size] != ',')
            size++;
        if (size)
            cordon_json_bytes(json, at, size);
        at += size;
    }
    cordon_json_array_end(json);
}

static void write_capabilities(struct cordon_json *json, const struct cordon_capabilities *caps)
{
    cordon_json_key(json, "capabilities");
    cordon_json_object_begin(json);
    cordon_json_key(json, "isolation");
    cordon_json_text(json, cordon_isolation_name(caps->isolation));
    cordon_json_pair_bool(json, "deny_all_egress", caps->deny_all_egress);
    cordon_json_pair_bool(json, "network", caps->network);
    cordon_json_pair_bool(json, "domain_allowlist", caps->domain_allowlist);
    cordon_json_pair_bool(json, "egress_headers", caps->egress_headers);
    cordon_json_pair_bool(json, "guests", caps->guests);
    cordon_json_pair_bool(json, "files", caps->files);
    cordon_json_pair_bool(json, "artifacts", caps->artifacts);
    cordon_json_pair_bool(json, "streaming", caps->streaming);
    cordon_json_pair_bool(json, "memory_limit", caps->memory_limit);
    cordon_json_pair_bool(json, "pids_limit", caps->pids_limit);
    cordon_json_pair_bool(json, "cpu_limit", caps->cpu_limit);
    cordon_json_pair_bool(json, "agent_protected", caps->agent_protected);
    cordon_json_key(json, "accelerator");
    cordon_json_text(json, caps->accelerator);
    cordon_json_key(json, "max_timeout_s");
    cordon_json_uint(json, caps->max_timeout_s);
    write_list(json, "languages", caps->languages);
    write_list(json, "egress_exceptions", caps->egress_exceptions);
    write_list(json, "egress_ports",
               !caps->network                              ? ""
               : caps->egress_ports && *caps->egress_ports ? caps->egress_ports
                                                           : "any");
    cordon_json_object_end(json);
}

static void write_backend(struct cordon_json *json, const struct cordon_backend *backend)
{
    struct cordon_error err = {0};
    bool able = !backend->probe || backend->probe(&err) == 0;
    cordon_json_object_begin(json);
    cordon_json_key(json, "name");
    cordon_json_text(json, backend->name);
    cordon_json_pair_bool(json, "able", able);
    if (!able) {
        cordon_json_key(json, "reason");
        cordon_json_text(json, err.message);
    }
    write_capabilities(json, backend->capabilities());
    cordon_json_key(json, "verified");
    struct cordon_verification found;
    if (cordon_verified_get(backend->name, &found))
        cordon_verification_write(&found, json);
    else
        cordon_json_null(json);
    cordon_json_object_end(json);
}

void cordon_door_backends_write(struct cordon_json *json)
{
    const struct cordon_backend *backend;
    cordon_json_object_begin(json);
    cordon_json_key(json, "backends");
    cordon_json_array_begin(json);
    for (size_t i = 0; (backend = cordon_registry_at(i)); i++)
        write_backend(json, backend);
    cordon_json_array_end(json);
    cordon_json_object_end(json);
}

static int backends_get(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(1u << 20);
    struct cordon_json json = {.buf = &body};
    cordon_door_backends_write(&json);
    (void)cordon_buf_append(&body, "\n", 1); /* sticky, seen by the reply */
    int r = cordon_http_reply(request, 200, "application/json", &body);
    return r < 0 ? cordon_fail_errno(err, r, "writing the list of backends") : 0;
}

/* {"backend": "local"}; without a body the setting's. Takes half a minute. */
static int verify_post(struct cordon_http_request *request, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    char name[64] = "";
    struct cordon_value root, member;
    const struct cordon_backend *backend;
    struct cordon_verification found;
    struct cordon_buf body = CORDON_BUF_INIT(64u << 10);
    struct cordon_json json = {.buf = &body};
    int r = request->body.size ? cordon_value_parse(request->body.data, request->body.size, &root, err) : 0;
    if (r == 0 && request->body.size && cordon_value_member(&root, "backend", &member))
        cordon_value_copy(&member, name, sizeof name);
    if (r == 0)
        r = cordon_registry_find(
            *name ? name : cordon_settings_string(doors->settings, CORDON_DOOR_NATIVE, CORDON_SET_BACKEND),
            "the request's backend", &backend, err);
    if (r == 0)
        r = cordon_verify(doors->settings, backend, doors->version, &found, err);
    if (r < 0)
        return r;
    cordon_verified_put(&found);
    cordon_verification_write(&found, &json);
    (void)cordon_buf_append(&body, "\n", 1); /* sticky, seen by the reply */
    r = cordon_http_reply(request, 200, "application/json", &body);
    return r < 0 ? cordon_fail_errno(err, r, "writing what was verified") : 0;
}

static const struct cordon_http_route routes[] = {
    {"POST", "/v1/runs", cordon_native_run, CORDON_HTTP_RUN, CORDON_HTTP_BODY_SETTING,
     "Runs a program in a fresh guest: one answer when it ended, or a line an event as it happens. "
     "A program that fails, times out or runs out of memory is a 200 whose outcome says so.",
     "Run", "Answer", "Event"},
    {"GET", "/v1/backends", backends_get, CORDON_HTTP_RUN, CORDON_HTTP_BODY_NONE,
     "The backends, what each can enforce, and whether it can run code now.", NULL, "Backends", NULL},
    {"GET", "/v1/templates", cordon_native_templates, CORDON_HTTP_RUN, CORDON_HTTP_BODY_NONE,
     "The templates that were made (cordon template); one that can not be read has a reason.", NULL, "Templates", NULL},
    {"GET", "/v1/templates/{name}", cordon_native_template, CORDON_HTTP_RUN, CORDON_HTTP_BODY_NONE, "One template.",
     NULL, "Template", NULL},
    {"POST", "/v1/verify", verify_post, CORDON_HTTP_ADMIN, 4096,
     "Measures what a backend enforces, by probe programs in fresh guests, and keeps the result.", "VerifyWanted",
     "Verification", NULL},
};

const struct cordon_http_door cordon_door_native = {
    .name = "native",
    .routes = routes,
    .route_count = sizeof routes / sizeof *routes,
    .schemas = cordon_native_schemas,
    .schema_count = CORDON_NATIVE_SCHEMAS,
};

const struct cordon_http_door *const cordon_door_list[] = {
    /* Those that claim requests come first, and of these the one that claims whatever names a sandbox last. */
    &cordon_door_e2b_envd, &cordon_door_e2b_interpreter, &cordon_door_e2b_port,
    &cordon_door_native,   &cordon_door_guests,          &cordon_door_executor_manager,
    &cordon_door_status,   &cordon_door_admin,           &cordon_door_ragflow_admin,
    &cordon_door_e2b,      &cordon_door_createos,        NULL,
};
