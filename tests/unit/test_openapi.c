/* SPDX-License-Identifier: Apache-2.0 */
/* The OpenAPI document: JSON, every route in it, every reference there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/value.h"
#include "door/native_schemas.h"
#include "http/openapi.h"

static int answer(struct cordon_http_request *request, struct cordon_error *err)
{
    return 0;
}

static const struct cordon_http_route routes[] = {
    {"POST", "/v1/runs", answer, CORDON_HTTP_RUN, CORDON_HTTP_BODY_SETTING, "Runs \"it\".", "Run", "Answer", "Event"},
    {"GET", "/v1/runs/{id}", answer, CORDON_HTTP_RUN, 0, "One.", NULL, "Answer", NULL},
    {"DELETE", "/v1/runs/{id}", answer, CORDON_HTTP_ADMIN, 0, "Ends one.", NULL, NULL, NULL},
    {"GET", "/open", answer, CORDON_HTTP_OPEN, 0, "For all.", NULL, NULL, NULL},
};
static const struct cordon_http_door door = {.name = "native",
                                             .routes = routes,
                                             .route_count = 4,
                                             .schemas = cordon_native_schemas,
                                             .schema_count = CORDON_NATIVE_SCHEMAS};
static const struct cordon_http_door *const doors[] = {&door, NULL};

static struct cordon_buf text = CORDON_BUF_INIT(1u << 20);

static struct cordon_value member(struct cordon_value object, const char *name)
{
    struct cordon_value key, value;
    assert_int_equal(object.kind, CORDON_VALUE_OBJECT);
    struct cordon_value_walk walk = cordon_value_walk(&object);
    while (cordon_value_next(&walk, &key, &value))
        if (cordon_value_equals(&key, name))
            return value;
    fail_msg("no member %s", name);
    return object;
}

static struct cordon_value document(void)
{
    struct cordon_value root;
    struct cordon_error err = {0};
    if (cordon_value_parse(text.data, text.size, &root, &err) < 0)
        fail_msg("%s", err.message);
    return root;
}

static void it_is_json_with_every_route(void **state)
{
    struct cordon_value paths = member(document(), "paths");
    struct cordon_value post = member(member(paths, "/v1/runs"), "post");
    struct cordon_value content = member(member(member(post, "responses"), "200"), "content");
    assert_true(cordon_value_equals(
        &(struct cordon_value){CORDON_VALUE_STRING, member(post, "operationId").data, member(post, "operationId").size},
        "post_v1_runs"));
    (void)member(content, "application/x-ndjson"); /* fails by itself */
    (void)member(post, "requestBody");
    struct cordon_value one = member(paths, "/v1/runs/{id}");
    (void)member(one, "get");
    struct cordon_value parameters = member(member(one, "delete"), "parameters");
    assert_non_null(memmem(parameters.data, parameters.size, "\"id\"", 4));
}

static void open_routes_need_no_key(void **state)
{
    struct cordon_value paths = member(document(), "paths");
    struct cordon_value security = member(member(member(paths, "/open"), "get"), "security");
    assert_int_equal(security.size, 2);
    security = member(member(member(paths, "/v1/runs"), "post"), "security");
    assert_true(security.size > 2);
}

static void every_reference_is_there(void **state)
{
    static const char start[] = "\"#/components/schemas/";
    struct cordon_value schemas = member(member(document(), "components"), "schemas");
    size_t found = 0;
    for (const char *at = text.data; (at = strstr(at, start)); found++) {
        char name[64];
        at += sizeof start - 1;
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "\""), at);
        (void)member(schemas, name); /* fails by itself */
    }
    assert_true(found > 6);
}

static int write_document(void **state)
{
    cordon_http_openapi_write(doors, "1.2.3", &text);
    return text.failed ? -1 : 0;
}

static int free_document(void **state)
{
    cordon_buf_done(&text);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_json_with_every_route),
        cmocka_unit_test(open_routes_need_no_key),
        cmocka_unit_test(every_reference_is_there),
    };
    return cmocka_run_group_tests(tests, write_document, free_document);
}
