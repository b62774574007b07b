/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon tells of itself: /readyz, /metrics, /openapi.json. */
#include "door/status.h"

#include <errno.h>

#include "core/registry.h"
#include "core/run.h"
#include "door/metrics.h"
#include "guest/guest.h"
#include "http/openapi.h"

static int reply(struct cordon_http_request *request, int status, const char *type, struct cordon_buf *body,
                 struct cordon_error *err)
{
    int r = cordon_http_reply(request, status, type, body);
    return r < 0 ? cordon_fail_errno(err, r, "writing the answer to %s", request->match.route->pattern) : 0;
}

static int openapi_get(struct cordon_http_request *request, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    struct cordon_buf body = CORDON_BUF_INIT(4u << 20);
    cordon_http_openapi_write(doors->list, doors->version, &body);
    return reply(request, 200, "application/json", &body, err);
}

/* The default backend's own words, so that readyz and a refused run say the same. */
static int probe_default(const struct cordon_doors *doors, struct cordon_error *err)
{
    const struct cordon_backend *backend;
    const char *name = cordon_settings_string(doors->settings, CORDON_DOOR_NATIVE, CORDON_SET_BACKEND);
    int r = cordon_registry_find(name, "CORDON_BACKEND", &backend, err);
    if (r == 0 && backend->probe)
        r = backend->probe(err);
    return r < 0 ? r : 0;
}

static void write_warden(struct cordon_json *json)
{
    static const struct {
        uint32_t bit;
        const char *name;
    } abilities[] = {{CORDON_ABLE_MEMORY, "memory_limit"},
                     {CORDON_ABLE_PIDS, "pids_limit"},
                     {CORDON_ABLE_CPU, "cpu_limit"},
                     {CORDON_ABLE_AGENT_PROTECTED, "agent_protected"}};
    struct cordon_warden_hello hello;
    cordon_json_key(json, "warden");
    if (cordon_warden_hello(&hello, NULL) < 0) {
        cordon_json_null(json);
        return;
    }
    cordon_json_object_begin(json);
    for (size_t i = 0; i < sizeof abilities / sizeof *abilities; i++) {
        cordon_json_key(json, abilities[i].name);
        cordon_json_bool(json, hello.abilities & abilities[i].bit);
    }
    cordon_json_object_end(json);
}

static void write_admission(struct cordon_json *json)
{
    struct cordon_admission admission;
    cordon_admission_read(&admission);
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {{"running", admission.running},
                {"waiting", admission.waiting},
                {"max_runs", admission.max_runs},
                {"max_waiting", admission.max_waiting}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cordon_json_key(json, rows[i].name);
        cordon_json_uint(json, rows[i].value);
    }
}

bool cordon_door_ready_write(const struct cordon_doors *doors, struct cordon_json *json)
{
    struct cordon_error why = {0};
    bool ready = cordon_key_count(doors->store, &why) >= 0 && probe_default(doors, &why) == 0;
    cordon_json_object_begin(json);
    cordon_json_key(json, "ready");
    cordon_json_bool(json, ready);
    if (!ready)
        cordon_json_error(json, &why);
    cordon_json_key(json, "version");
    cordon_json_text(json, doors->version);
    cordon_json_key(json, "backend");
    cordon_json_text(json, cordon_settings_string(doors->settings, CORDON_DOOR_NATIVE, CORDON_SET_BACKEND));
    write_warden(json);
    write_admission(json);
    cordon_json_object_end(json);
    return ready;
}

static int readyz_get(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(16384);
    struct cordon_json json = {.buf = &body};
    bool ready = cordon_door_ready_write(request->context, &json);
    (void)cordon_buf_append(&body, "\n", 1); /* sticky, seen by the reply */
    return reply(request, ready ? 200 : 503, "application/json", &body, err);
}

static const struct cordon_http_route routes[] = {
    {"GET", "/readyz", readyz_get, CORDON_HTTP_OPEN, CORDON_HTTP_BODY_NONE,
     "Whether a run on the default backend could start now: 200, or 503 with the words that the run would fail with.",
     NULL, "Ready", NULL},
    {"GET", "/metrics", cordon_door_metrics_get, CORDON_HTTP_RUN, CORDON_HTTP_BODY_NONE,
     "Counters in Prometheus' text form.", NULL, NULL, NULL},
    {"GET", "/openapi.json", openapi_get, CORDON_HTTP_OPEN, CORDON_HTTP_BODY_NONE, "This document.", NULL, "OpenApi",
     NULL},
};

static const struct cordon_http_schema schemas[] = {
    {"OpenApi", "{\"type\":\"object\"}"},
    {"Ready", "{\"type\":\"object\",\"required\":[\"ready\",\"version\",\"backend\"],\"properties\":{"
              "\"ready\":{\"type\":\"boolean\"},"
              "\"error\":{\"type\":\"object\",\"properties\":{\"kind\":{\"type\":\"string\"},\"message\":{\"type\":"
              "\"string\"}}},"
              "\"version\":{\"type\":\"string\"},\"backend\":{\"type\":\"string\"},"
              "\"warden\":{\"type\":\"object\",\"nullable\":true,\"additionalProperties\":{\"type\":\"boolean\"}},"
              "\"running\":{\"type\":\"integer\"},\"waiting\":{\"type\":\"integer\"},"
              "\"max_runs\":{\"type\":\"integer\"},\"max_waiting\":{\"type\":\"integer\"}}}"},
};

const struct cordon_http_door cordon_door_status = {
    .name = "status",
    .routes = routes,
    .route_count = sizeof routes / sizeof *routes,
    .schemas = schemas,
    .schema_count = sizeof schemas / sizeof *schemas,
};
