/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "core/metrics.h"
#include "door/door.h"

static const char *find_key(const struct cordon_http_request *request)
{
    const char *bearer = cordon_http_header(request, "Authorization");
    if (!bearer)
        return cordon_http_header(request, "X-API-Key");
    if (strncasecmp(bearer, "Bearer ", 7) != 0)
        return NULL;
    bearer += 7;
    return bearer + strspn(bearer, " ");
}

bool cordon_door_is_own_user(const struct cordon_http_request *request)
{
    return request->peer_uid == 0 || (request->peer_uid > 0 && (uid_t)request->peer_uid == geteuid());
}

int cordon_door_authorize(struct cordon_http_request *request, enum cordon_http_scope scope, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    if (cordon_door_is_own_user(request))
        return 0;
    struct cordon_key_info info;
    const char *key = find_key(request);
    int r =
        key ? cordon_key_check(doors->store, key, strlen(key), &info, err)
            : cordon_fail(err, -EACCES, CORDON_ERROR_UNAUTHENTICATED,
                          "no key came with the request: send Authorization: Bearer KEY (cordon key create makes one)");
    if (r < 0) {
        cordon_metrics_add(CORDON_METRIC_KEYS_REFUSED, 1);
        cordon_metrics_error(err->kind);
        return r;
    }
    (void)snprintf(request->subject, sizeof request->subject, "%s", info.id); /* fits */
    if (scope == CORDON_HTTP_ADMIN && info.scope != CORDON_KEY_ADMIN)
        return cordon_fail(err, -EPERM, CORDON_ERROR_FORBIDDEN,
                           "the key %s may run code, but this needs a key of scope admin", info.id);
    return 0;
}
