/* SPDX-License-Identifier: Apache-2.0 */
#include "http/openapi.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"

#define J(json, key, value) (cordon_json_key(json, key), cordon_json_text(json, value))

static void reference(struct cordon_json *json, const char *media, const char *schema)
{
    char path[128];
    (void)snprintf(path, sizeof path, "#/components/schemas/%s", schema); /* names are ours and short */
    cordon_json_key(json, media);
    cordon_json_object_begin(json);
    cordon_json_key(json, "schema");
    cordon_json_object_begin(json);
    J(json, "$ref", path);
    cordon_json_object_end(json);
    cordon_json_object_end(json);
}

static void content(struct cordon_json *json, const char *schema, const char *stream)
{
    cordon_json_key(json, "content");
    cordon_json_object_begin(json);
    if (schema)
        reference(json, "application/json", schema);
    else
        cordon_json_key(json, "text/plain"), cordon_json_raw(json, "{}", 2);
    if (stream)
        reference(json, "application/x-ndjson", stream);
    cordon_json_object_end(json);
}

/* "runs" + "post" out of POST /v1/runs would clash between doors, so the whole pattern goes in: post_v1_runs. */
static void operation_id(const struct cordon_http_route *route, char to[96])
{
    size_t size = 0;
    for (const char *p = route->method; *p && size < 16; p++)
        to[size++] = (char)tolower((unsigned char)*p);
    for (const char *p = route->pattern; *p && size < 94; p++) {
        if (isalnum((unsigned char)*p))
            to[size++] = *p;
        else if (to[size - 1] != '_')
            to[size++] = '_';
    }
    while (size > 1 && to[size - 1] == '_')
        size--;
    to[size] = '\0';
}

static void parameters(struct cordon_json *json, const char *pattern)
{
    cordon_json_key(json, "parameters");
    cordon_json_array_begin(json);
    for (const char *open = strchr(pattern, '{'); open; open = strchr(open + 1, '{')) {
        cordon_json_object_begin(json);
        cordon_json_key(json, "name");
        cordon_json_bytes(json, open + 1, strcspn(open + 1, "}"));
        J(json, "in", "path");
        cordon_json_key(json, "required");
        cordon_json_bool(json, true);
        cordon_json_key(json, "schema");
        cordon_json_raw(json, "{\"type\":\"string\"}", 17);
        cordon_json_object_end(json);
    }
    cordon_json_array_end(json);
}

static void response(struct cordon_json *json, const char *status, const char *description)
{
    cordon_json_key(json, status);
    cordon_json_object_begin(json);
    J(json, "description", description);
}

static void responses(struct cordon_json *json, const struct cordon_http_route *route)
{
    cordon_json_key(json, "responses");
    cordon_json_object_begin(json);
    response(json, "200", "as described");
    content(json, route->response_schema, route->stream_schema);
    cordon_json_object_end(json);
    response(json, "default", "an error, before anything was started");
    content(json, "Error", NULL);
    cordon_json_object_end(json);
    cordon_json_object_end(json);
}

static void operation(struct cordon_json *json, const struct cordon_http_route *route, const char *door)
{
    char id[96], method[16];
    operation_id(route, id);
    (void)snprintf(method, sizeof method, "%.*s", (int)strcspn(id, "_"), id); /* fits: one of HTTP's methods */
    cordon_json_key(json, method);
    cordon_json_object_begin(json);
    J(json, "operationId", id);
    J(json, "summary", route->doc);
    cordon_json_key(json, "tags");
    cordon_json_array_begin(json);
    cordon_json_text(json, door);
    cordon_json_array_end(json);
    cordon_json_key(json, "security");
    const char *security = route->scope == CORDON_HTTP_OPEN ? "[]" : "[{\"key\":[]},{\"header\":[]}]";
    cordon_json_raw(json, security, strlen(security));
    if (strchr(route->pattern, '{'))
        parameters(json, route->pattern);
    if (route->request_schema) {
        cordon_json_key(json, "requestBody");
        cordon_json_object_begin(json);
        cordon_json_key(json, "required");
        cordon_json_bool(json, true);
        content(json, route->request_schema, NULL);
        cordon_json_object_end(json);
    }
    responses(json, route);
    cordon_json_object_end(json);
}

/* Is this row the first one of its path? All methods of a path stand in one object. */
static bool first_of_path(const struct cordon_http_door *const *doors, const struct cordon_http_route *wanted)
{
    for (; *doors; doors++)
        for (size_t i = 0; i < (*doors)->route_count; i++)
            if ((*doors)->routes[i].doc && strcmp((*doors)->routes[i].pattern, wanted->pattern) == 0)
                return &(*doors)->routes[i] == wanted;
    return true;
}

static void path(struct cordon_json *json, const struct cordon_http_door *const *doors, const char *pattern)
{
    cordon_json_key(json, pattern);
    cordon_json_object_begin(json);
    for (; *doors; doors++)
        for (size_t i = 0; i < (*doors)->route_count; i++)
            if ((*doors)->routes[i].doc && strcmp((*doors)->routes[i].pattern, pattern) == 0)
                operation(json, &(*doors)->routes[i], (*doors)->name);
    cordon_json_object_end(json);
}

static void components(struct cordon_json *json, const struct cordon_http_door *const *doors)
{
    static const char security[] = "{\"key\":{\"type\":\"http\",\"scheme\":\"bearer\"},"
                                   "\"header\":{\"type\":\"apiKey\",\"in\":\"header\",\"name\":\"X-API-Key\"}}";
    static const char error[] =
        "{\"type\":\"object\",\"required\":[\"error\"],\"properties\":{\"error\":{\"type\":\"object\","
        "\"required\":[\"kind\",\"message\"],\"properties\":{\"kind\":{\"type\":\"string\",\"enum\":[";
    cordon_json_key(json, "components");
    cordon_json_object_begin(json);
    cordon_json_key(json, "securitySchemes");
    cordon_json_raw(json, security, sizeof security - 1);
    cordon_json_key(json, "schemas");
    cordon_json_object_begin(json);
    cordon_json_key(json, "Error");
    cordon_json_raw(json, error, sizeof error - 1);
    for (int kind = CORDON_ERROR_NONE + 1; kind < CORDON_ERROR__COUNT; kind++)
        (void)cordon_buf_appendf(json->buf, "%s\"%s\"", kind > 1 ? "," : "", cordon_error_name(kind)); /* sticky */
    (void)cordon_buf_appends(json->buf, "]},\"message\":{\"type\":\"string\"}}}}}");
    for (; *doors; doors++)
        for (size_t i = 0; i < (*doors)->schema_count; i++) {
            const struct cordon_http_schema *schema = &(*doors)->schemas[i];
            cordon_json_key(json, schema->name);
            cordon_json_raw(json, schema->json, strlen(schema->json));
        }
    cordon_json_object_end(json);
    cordon_json_object_end(json);
}

void cordon_http_openapi_write(const struct cordon_http_door *const *doors, const char *version, struct cordon_buf *to)
{
    struct cordon_json json = {.buf = to};
    cordon_json_object_begin(&json);
    J(&json, "openapi", "3.0.3");
    cordon_json_key(&json, "info");
    cordon_json_object_begin(&json);
    J(&json, "title", "Cordon");
    J(&json, "version", version);
    J(&json, "description", "Runs code that nobody has read, isolated, and reports truthfully what became of it.");
    cordon_json_object_end(&json);
    cordon_json_key(&json, "paths");
    cordon_json_object_begin(&json);
    for (const struct cordon_http_door *const *door = doors; *door; door++)
        for (size_t i = 0; i < (*door)->route_count; i++)
            if ((*door)->routes[i].doc && first_of_path(doors, &(*door)->routes[i]))
                path(&json, doors, (*door)->routes[i].pattern);
    cordon_json_object_end(&json);
    components(&json, doors);
    cordon_json_object_end(&json);
}
