/* SPDX-License-Identifier: Apache-2.0 */
#include "http/route.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

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
    return strcmp(route, method) == 0 || (strcmp(route, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

static void allow_add(char allow[64], const char *method)
{
    size_t used = strlen(allow);
    const char *head = strcmp(method, "GET") == 0 ? ", HEAD" : "";
    (void)snprintf(allow + used, 64 - used, "%s%s%s", used ? ", " : "", method, head); /* at most 5 methods: fits */
}

void cordon_http_route_match(const struct cordon_http_door *const *doors, const char *method, const char *path,
                             struct cordon_http_match *ret)
{
    ret->route = NULL;
    ret->param_count = 0;
    ret->allow[0] = '\0';
    size_t index = 0;
    for (; *doors; doors++) {
        for (size_t i = 0; i < (*doors)->route_count; i++, index++) {
            const struct cordon_http_route *route = &(*doors)->routes[i];
            if (!match_path(route->pattern, path, ret))
                continue;
            if (match_method(route->method, method)) {
                ret->route = route;
                ret->index = index;
                ret->allow[0] = '\0'; /* of other methods' rows before it */
                return;
            }
            allow_add(ret->allow, route->method);
        }
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
