/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "door/admin/admin.h"
#include "door/admin/session.h"

const char *cordon_admin_who(const struct cordon_http_request *request)
{
    if (request->subject[0])
        return request->subject;
    return request->peer_uid >= 0 ? "local" : "link";
}

int cordon_admin_reply(struct cordon_http_request *request, struct cordon_buf *body, struct cordon_error *err)
{
    (void)cordon_buf_append(body, "\n", 1); /* sticky, seen by the reply */
    cordon_http_reply_header(request, "Cache-Control", "no-store");
    int r = cordon_http_reply(request, 200, "application/json", body);
    return r < 0 ? cordon_fail_errno(err, r, "writing the answer to %s", request->match.route->pattern) : 0;
}

int cordon_admin_body(struct cordon_http_request *request, struct cordon_value *ret, struct cordon_error *err)
{
    const char *text = request->body.data ? request->body.data : "";
    if (request->body.size == 0)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "Request body is required");
    int r = cordon_value_parse(text, request->body.size, ret, err);
    if (r == 0 && ret->kind != CORDON_VALUE_OBJECT)
        r = cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "the body must be a JSON object, not %s",
                        cordon_value_kind_name(ret->kind));
    return r;
}

bool cordon_admin_member(const struct cordon_value *object, const char *name, struct cordon_value *ret)
{
    struct cordon_value_walk walk = cordon_value_walk(object);
    struct cordon_value key, value;
    while (cordon_value_next(&walk, &key, &value))
        if (cordon_value_equals(&key, name)) {
            *ret = value;
            return true;
        }
    return false;
}

int cordon_admin_text(const struct cordon_value *object, const char *name, char *to, size_t room,
                      struct cordon_error *err)
{
    struct cordon_value value;
    *to = '\0';
    if (!cordon_admin_member(object, name, &value) || value.kind == CORDON_VALUE_NULL)
        return 0;
    if (value.kind != CORDON_VALUE_STRING || value.size > room)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "%s must be a text of less than %zu bytes", name, room);
    ssize_t n = cordon_value_string(&value, to);
    if (n < 0 || memchr(to, '\0', (size_t)n)) {
        *to = '\0';
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "%s holds what is no text", name);
    }
    to[n] = '\0';
    return 0;
}

int cordon_admin_number(const struct cordon_http_request *request, const char *name, int64_t otherwise, int64_t most,
                        int64_t *ret, struct cordon_error *err)
{
    char text[32], *end;
    ssize_t n = cordon_http_query(request, name, text, sizeof text);
    *ret = otherwise;
    if (n == -ENOENT)
        return 0;
    errno = 0;
    long long value = n > 0 ? strtoll(text, &end, 10) : -1;
    if (n <= 0 || errno || *end || value < 0 || value > most)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "%s must be a whole number from 0 to %lld", name,
                           (long long)most);
    *ret = value;
    return 0;
}
