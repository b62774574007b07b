/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes: one table a door. From its rows come dispatch, 404 and 405 with Allow, /openapi.json and the labels of
 * /metrics. Matching is pure; see tests/unit/test_http_route.c.
 */
#ifndef CORDON_HTTP_ROUTE_H
#define CORDON_HTTP_ROUTE_H

#include <stddef.h>

#include "base/error.h"

struct cordon_http_request;

/* Answers a request: 0 when a reply was given (http/reply.h), else negative errno and err, which becomes the reply. */
typedef int cordon_http_handler(struct cordon_http_request *request, struct cordon_error *err);

enum cordon_http_scope { CORDON_HTTP_OPEN, CORDON_HTTP_RUN, CORDON_HTTP_ADMIN };

#define CORDON_HTTP_BODY_NONE ((size_t)0)
#define CORDON_HTTP_BODY_SETTING ((size_t)-1) /* as much as the server was told */

struct cordon_http_route {
    const char *method;  /* GET answers HEAD too */
    const char *pattern; /* "/v1/runs"; a segment {name} takes any one segment that is not empty */
    cordon_http_handler *handle;
    enum cordon_http_scope scope;
    size_t body_limit;
    const char *doc;             /* one sentence */
    const char *request_schema;  /* names in the door's schemas; NULL: none */
    const char *response_schema; /* NULL: text */
    const char *stream_schema;   /* of one line, for application/x-ndjson; NULL: no streaming */
};

struct cordon_http_schema {
    const char *name;
    const char *json; /* a JSON Schema object */
};

struct cordon_http_door {
    const char *name;
    const struct cordon_http_route *routes;
    size_t route_count;
    const struct cordon_http_schema *schemas;
    size_t schema_count;
};

#define CORDON_HTTP_PARAMS 4

struct cordon_http_match {
    const struct cordon_http_route *route; /* NULL: none */
    size_t index;                          /* of the route, counted through all doors */
    struct {
        const char *data; /* borrowed from the path, still percent-encoded */
        size_t size;
    } params[CORDON_HTTP_PARAMS];
    size_t param_count;
    char allow[64]; /* when route is NULL: the methods that this path knows; "" : the path is unknown */
};

void cordon_http_route_match(const struct cordon_http_door *const *doors, const char *method, const char *path,
                             struct cordon_http_match *ret);
size_t cordon_http_route_count(const struct cordon_http_door *const *doors);

#endif
