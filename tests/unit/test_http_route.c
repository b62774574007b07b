/* SPDX-License-Identifier: Apache-2.0 */
/* Matching of routes. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "http/request.h"

static const struct cordon_http_route first_routes[] = {
    {.method = "GET", .pattern = "/"},
    {.method = "POST", .pattern = "/v1/runs"},
    {.method = "GET", .pattern = "/v1/runs/{id}"},
    {.method = "DELETE", .pattern = "/v1/runs/{id}"},
    {.method = "GET", .pattern = "/v1/runs/{id}/files/{name}"},
};
static const struct cordon_http_route second_routes[] = {{.method = "GET", .pattern = "/readyz"},
                                                         {.method = "PUT", .pattern = "/v1/runs/{id}"}};
static const struct cordon_http_door first = {.name = "first", .routes = first_routes, .route_count = 5};
static const struct cordon_http_door second = {.name = "second", .routes = second_routes, .route_count = 2};
static const struct cordon_http_door *const doors[] = {&first, &second, NULL};

static struct cordon_http_match match(const char *method, const char *path)
{
    struct cordon_http_match found;
    struct cordon_http_request request = {.method = method, .path = path};
    cordon_http_route_match(doors, &request, &found);
    return found;
}

static void finds_and_counts_through_all_doors(void **state)
{
    assert_int_equal(cordon_http_route_count(doors), 7);
    assert_ptr_equal(match("GET", "/").route, &first_routes[0]);
    assert_ptr_equal(match("POST", "/v1/runs").route, &first_routes[1]);
    assert_int_equal(match("POST", "/v1/runs").index, 1);
    assert_ptr_equal(match("GET", "/readyz").route, &second_routes[0]);
    assert_int_equal(match("GET", "/readyz").index, 5);
}

static void a_match_allows_nothing_else(void **state)
{
    assert_string_equal(match("DELETE", "/v1/runs/x").allow, ""); /* its GET row stands before it */
    assert_string_equal(match("PUT", "/v1/runs/x").allow, "");
    assert_string_equal(match("POST", "/v1/runs/x").allow, "GET, HEAD, DELETE, PUT");
}

static void head_is_get(void **state)
{
    assert_ptr_equal(match("HEAD", "/readyz").route, &second_routes[0]);
    assert_null(match("HEAD", "/v1/runs").route);
    assert_null(match("get", "/readyz").route); /* methods have case */
}

static void parameters_are_slices_of_the_path(void **state)
{
    struct cordon_http_match found = match("GET", "/v1/runs/ab%2Fc/files/x.txt");
    assert_ptr_equal(found.route, &first_routes[4]);
    assert_int_equal(found.param_count, 2);
    assert_int_equal(found.params[0].size, 6);
    assert_memory_equal(found.params[0].data, "ab%2Fc", 6);
    assert_int_equal(found.params[1].size, 5);
    assert_memory_equal(found.params[1].data, "x.txt", 5);
}

static void what_is_no_route_is_none(void **state)
{
    static const char *const paths[] = {"",
                                        "x",
                                        "//",
                                        "/v1",
                                        "/v1/",
                                        "/v1/runs/",
                                        "//v1//runs",
                                        "/v1/runs/a/",
                                        "/v1/RUNS",
                                        "/v1/runs%00",
                                        "/readyz/",
                                        "/../v1/runs",
                                        "/v1/runs/a/files/",
                                        "/v1/runs/a/files/b/c"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct cordon_http_match found = match("GET", paths[i]);
        assert_null(found.route);
        assert_string_equal(found.allow, "");
        assert_int_equal(found.param_count, 0);
    }
}

static void a_wrong_method_tells_the_right_ones(void **state)
{
    assert_null(match("BREW", "/v1/runs/a").route);
    assert_string_equal(match("BREW", "/v1/runs/a").allow, "GET, HEAD, DELETE, PUT");
    assert_string_equal(match("GET", "/v1/runs").allow, "POST");
}

static const struct cordon_http_route rest_routes[] = {{.method = "GET", .pattern = "/v1/rest/{id}"},
                                                       {.method = "*", .pattern = "/v1/rest/{id}/*"},
                                                       {.method = "PUT", .pattern = "/v1/rest/{id}"}};
static const struct cordon_http_route own_routes[] = {{.method = "GET", .pattern = "/readyz"},
                                                      {.method = "*", .pattern = "*"}};
static const struct cordon_http_route last_routes[] = {{.method = "GET", .pattern = "/last"}};

static bool claims_host(const struct cordon_http_request *request)
{
    return request->client[0] == 'c'; /* stands for a header that a request without a connection can't have */
}

static const struct cordon_http_door rest = {.name = "rest", .routes = rest_routes, .route_count = 3};
static const struct cordon_http_door own = {
    .name = "own", .routes = own_routes, .route_count = 2, .claims = claims_host};
static const struct cordon_http_door last = {.name = "last", .routes = last_routes, .route_count = 1};
static const struct cordon_http_door *const more_doors[] = {&second, &rest, &own, &last, NULL};

static struct cordon_http_match match_more(const char *client, const char *method, const char *path)
{
    struct cordon_http_match found;
    struct cordon_http_request request = {.method = method, .path = path};
    (void)snprintf(request.client, sizeof request.client, "%s", client);
    cordon_http_route_match(more_doors, &request, &found);
    return found;
}

static void a_star_takes_what_is_left(void **state)
{
    assert_ptr_equal(match_more("", "BREW", "/v1/rest/a/b/c").route, &rest_routes[1]);
    assert_ptr_equal(match_more("", "BREW", "/v1/rest/a/").route, &rest_routes[1]);
    assert_int_equal(match_more("", "BREW", "/v1/rest/a/b").param_count, 1);
    assert_ptr_equal(match_more("", "PUT", "/v1/rest/a").route, &rest_routes[2]);
    assert_null(match_more("", "POST", "/v1/rest/a").route);
    assert_ptr_equal(match_more("", "POST", "/v1/rest/a").door, &rest);
    assert_null(match_more("", "GET", "/v1/rest").door);
}

static void who_claims_serves_alone(void **state)
{
    assert_ptr_equal(match_more("", "GET", "/readyz").route, &second_routes[0]);
    assert_ptr_equal(match_more("c", "GET", "/readyz").route, &own_routes[0]);
    assert_ptr_equal(match_more("c", "HEAD", "/v1/rest/a").route, &own_routes[1]);
    assert_int_equal(match_more("c", "PUT", "/").index, 6);
    assert_null(match_more("", "PUT", "/").route);
    assert_int_equal(match_more("", "GET", "/last").index, 7); /* the unasked rows count as well */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_and_counts_through_all_doors),
        cmocka_unit_test(a_match_allows_nothing_else),
        cmocka_unit_test(head_is_get),
        cmocka_unit_test(parameters_are_slices_of_the_path),
        cmocka_unit_test(what_is_no_route_is_none),
        cmocka_unit_test(a_wrong_method_tells_the_right_ones),
        cmocka_unit_test(a_star_takes_what_is_left),
        cmocka_unit_test(who_claims_serves_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
