/* SPDX-License-Identifier: Apache-2.0 */
#include "http/route.h"

#include <stdio.h>
#include <string.h>

#include "http/request.h"

static bool match_segment(const char *pattern, size_t pattern_size, const char *path, size_t path_size,
                          struct cordon_http_match *match)
{
    if (pattern_size && pattern[0] == '{') {
        if (!path_size || match->param_count == CORDON_HTTP_PARAMS)
            return false;
        match->params[match->param_count].data = path;
        match->params[match->param_count++].size = path_size;
        return true;
    }
    return pattern_size == path_size && memcmp(pattern, path, path_size) == 0;
}

static bool match_path(const char *pattern, const char *path, struct cordon_http_match *match)
{
    match->param_count = 0;
    for (;;) {
        if (strcmp(pattern, "*") == 0)
            return true;
        size_t pattern_size = strcspn(pattern, "/");
        size_t path_size = strcspn(path, "/");
        if (!match_segment(pattern, pattern_size, path, path_size, match))
            return false;
        pattern += pattern_size;
        path += path_size;
        if (!*pattern || !*path)
            return *pattern == *path;
        pattern++;
        path++;
    }
}

static bool match_method(const char *route, const char *method)
{
    return strcmp(route, method) == 0 || (strcmp(route, "GET") == 0 && strcmp(method, "HEAD") == 0) ||
           strcmp(route, "*") == 0;
}

static void allow_add(char allow[64], const char *method)
{
    size_t used = strlen(allow);
    const char *head = strcmp(method, "GET") == 0 ? ", HEAD" : "";
    (void)snprintf(allow + used, 64 - used, "%s%s%s", used ? ", " : "", method, head); /* at most 5 methods: fits */
}

/* True when one of its rows takes the request. */
static bool match_door(const struct cordon_http_door *door, const struct cordon_http_request *request, size_t index,
                       struct cordon_http_match *ret)
{
    for (size_t i = 0; i < door->route_count; i++) {
        const struct cordon_http_route *route = &door->routes[i];
        if (!match_path(route->pattern, request->path, ret))
            continue;
        ret->door = door;
        if (match_method(route->method, request->method)) {
            ret->route = route;
            ret->index = index + i;
            ret->allow[0] = '\0'; /* of other methods' rows before it */
            return true;
        }
        allow_add(ret->allow, route->method);
    }
    return false;
}

void cordon_http_route_match(const struct cordon_http_door *const *doors, const struct cordon_http_request *request,
                             struct cordon_http_match *ret)
{
    const struct cordon_http_door *owner = NULL;
    *ret = (struct cordon_http_match){0};
    for (const struct cordon_http_door *const *door = doors; *door && !owner; door++)
        if ((*door)->claims && (*door)->claims(request))
            owner = *door;
    ret->door = owner;
    for (size_t index = 0; *doors; index += (*doors++)->route_count) {
        bool asked = owner ? *doors == owner : !(*doors)->claims;
        if (asked && match_door(*doors, request, index, ret))
            return;
    }
    ret->param_count = 0;
}

size_t cordon_http_route_count(const struct cordon_http_door *const *doors)
{
    size_t count = 0;
    for (; *doors; doors++)
        count += (*doors)->route_count;
    return count;
}
