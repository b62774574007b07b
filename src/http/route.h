/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes: one table a door. From its rows come dispatch, 404 and 405 with Allow, /openapi.json and the labels of
 * /metrics. Matching is pure; see tests/unit/test_http_route.c.
 */
#ifndef CORDON_HTTP_ROUTE_H
#define CORDON_HTTP_ROUTE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/error.h"

struct cordon_http_request;

/* Answers a request: 0 when a reply was given (http/reply.h), else negative errno and err, which becomes the reply. */
typedef int cordon_http_handler(struct cordon_http_request *request, struct cordon_error *err);

/* OWN: the door's admit decides, since its clients show something else than a key. */
enum cordon_http_scope { CORDON_HTTP_OPEN, CORDON_HTTP_RUN, CORDON_HTTP_ADMIN, CORDON_HTTP_OWN };

#define CORDON_HTTP_BODY_NONE ((size_t)0)
#define CORDON_HTTP_BODY_SETTING ((size_t)-1) /* as much as the server was told */
#define CORDON_HTTP_BODY_INTAKE ((size_t)-2)  /* the door's intake takes it, however much it is */

/* Takes bodies as they come, for routes whose bodies have no bound that memory could hold. Both may block. A failure is
 * the request's answer; what still comes of the body is then thrown away. What begin made belongs into
 * request->finish_context, with a finish that frees it. The route's handler is called when the body is whole. */
struct cordon_http_intake {
    int (*begin)(struct cordon_http_request *request, struct cordon_error *err); /* the header is here, and may pass */
    int (*piece)(struct cordon_http_request *request, const char *data, size_t size, struct cordon_error *err);
};

struct cordon_http_route {
    const char *method;  /* GET answers HEAD too; "*" takes all that no row before it took */
    const char *pattern; /* "/v1/runs"; a segment {name} takes any one segment that is not empty; a last segment "*"
                          * takes all that follows, and the pattern "*" any path */
    cordon_http_handler *handle;
    enum cordon_http_scope scope;
    size_t body_limit;
    const char *doc;             /* one sentence; NULL: the row is not in /openapi.json */
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
    /* May be NULL: the door's paths stand beside those of all others. Else its rows count only for requests that it
     * claims (by host name, header or path), and the first door that claims a request serves it alone. */
    bool (*claims)(const struct cordon_http_request *request);
    /* Lets a request to a row of scope OWN pass: 0, or negative with err. Called before the body is read. */
    int (*admit)(struct cordon_http_request *request, struct cordon_error *err);
    const struct cordon_http_intake *intake; /* for rows with CORDON_HTTP_BODY_INTAKE */
    /* May be NULL: an error is told as the native door has it. Else this replies: 0, or negative. */
    int (*reply_error)(struct cordon_http_request *request, const struct cordon_error *err);
    void (*dismiss)(void *admitted); /* frees request->admitted when the request is over; NULL: admit leaves nothing */
};

#define CORDON_HTTP_PARAMS 4

struct cordon_http_match {
    const struct cordon_http_door *door;   /* whose the answer is, also where it is an error; NULL: nobody's */
    const struct cordon_http_route *route; /* NULL: none */
    size_t index;                          /* of the route, counted through all doors */
    struct {
        const char *data; /* borrowed from the path, still percent-encoded */
        size_t size;
    } params[CORDON_HTTP_PARAMS];
    size_t param_count;
    char allow[64]; /* when route is NULL: the methods that this path knows; "" : the path is unknown */
};

/* Uses the request's method and path, and whatever a door's claims looks at. */
void cordon_http_route_match(const struct cordon_http_door *const *doors, const struct cordon_http_request *request,
                             struct cordon_http_match *ret);
size_t cordon_http_route_count(const struct cordon_http_door *const *doors);

#endif
