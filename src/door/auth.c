/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "core/metrics.h"
#include "door/admin/session.h"
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

/* Who it is, by key or by the session of the admin page. */
static int identify(struct cordon_http_request *request, struct cordon_key_info *ret, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    const char *key = find_key(request);
    struct cordon_session session;
    if (key)
        return cordon_key_check(doors->store, key, strlen(key), ret, err);
    if (!cordon_http_header(request, "Cookie"))
        return cordon_fail(
            err, -EACCES, CORDON_ERROR_UNAUTHENTICATED,
            "no key came with the request: send Authorization: Bearer KEY (cordon key create makes one)");
    int r = cordon_session_authorize(doors->store, request, &session, err);
    if (r < 0)
        return r;
    *ret = (struct cordon_key_info){.scope = session.scope};
    (void)snprintf(ret->id, sizeof ret->id, "%s", session.key_id); /* the sizes agree */
    request->sees_all = true; /* sessions are opened for the scopes admin and view only */
    return 0;
}

int cordon_door_authorize(struct cordon_http_request *request, enum cordon_http_scope scope, struct cordon_error *err)
{
    struct cordon_key_info info;
    if (cordon_door_is_own_user(request))
        return 0;
    int r = identify(request, &info, err);
    if (r < 0) {
        cordon_metrics_add(CORDON_METRIC_KEYS_REFUSED, 1);
        cordon_metrics_error(err->kind);
        return r;
    }
    (void)snprintf(request->subject, sizeof request->subject, "%s", info.id); /* fits */
    request->by_admin = info.scope == CORDON_KEY_ADMIN;
    request->looks_only = info.scope == CORDON_KEY_VIEW;
    if (request->looks_only && !cordon_session_only_reads(request))
        return cordon_fail(err, -EPERM, CORDON_ERROR_FORBIDDEN,
                           "the key %s may only look: this needs a key of scope %s", info.id,
                           scope == CORDON_HTTP_ADMIN ? "admin" : "run");
    if (scope == CORDON_HTTP_ADMIN && info.scope == CORDON_KEY_RUN)
        return cordon_fail(err, -EPERM, CORDON_ERROR_FORBIDDEN,
                           "the key %s may run code, but this needs a key of scope admin", info.id);
    return 0;
}
