/* SPDX-License-Identifier: Apache-2.0 */
/* In and out: a key or a one-time link becomes a session. The body must be said to be JSON, which no form of another
 * site can, so that nobody is logged in without knowing. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "door/admin/admin.h"
#include "door/admin/session.h"

static void set_cookie(struct cordon_http_request *request, const char *value, unsigned life_s)
{
    const struct cordon_doors *doors = request->context;
    bool tls = *cordon_settings_string(doors->settings, CORDON_DOOR_NATIVE, CORDON_SET_TLS_CERT);
    char text[256];
    (void)snprintf(text, sizeof text, CORDON_SESSION_COOKIE "=%s; Path=/; HttpOnly; SameSite=Strict; Max-Age=%u%s",
                   value, life_s, tls ? "; Secure" : ""); /* fits */
    cordon_http_reply_header(request, "Set-Cookie", text);
    explicit_bzero(text, sizeof text);
}

static int reply_session(struct cordon_http_request *request, const struct cordon_session *session,
                         struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(4096);
    struct cordon_json json = {.buf = &body};
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "key");
    cordon_json_text(&json, session->key_id[0] ? session->key_id : NULL);
    cordon_json_key(&json, "name");
    cordon_json_text(&json, session->key_id[0] ? session->key_name : "one-time link");
    cordon_json_key(&json, "scope");
    cordon_json_text(&json, cordon_key_scope_name(session->scope));
    cordon_json_key(&json, "csrf");
    cordon_json_text(&json, session->csrf);
    cordon_json_object_end(&json);
    return cordon_admin_reply(request, &body, err);
}

static int check_secret(struct cordon_store *store, const char *key, const char *link, struct cordon_key_info *ret,
                        struct cordon_error *err)
{
    *ret = (struct cordon_key_info){.scope = CORDON_KEY_ADMIN};
    if (*link)
        return cordon_link_use(store, link, strlen(link), err);
    int r = cordon_key_check(store, key, strlen(key), ret, err);
    if (r == 0 && ret->scope == CORDON_KEY_RUN)
        return cordon_fail(err, -EPERM, CORDON_ERROR_FORBIDDEN,
                           "the key %s may only run code: the admin page needs one of scope admin or view", ret->id);
    return r;
}

int cordon_admin_login(struct cordon_http_request *request, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    const char *type = cordon_http_header(request, "Content-Type");
    struct cordon_value body;
    struct cordon_key_info info;
    struct cordon_session session;
    char key[128], link[128], cookie[CORDON_SESSION_TEXT];
    int r = cordon_login_allowed(request, err);
    if (r == 0 && (!type || strncmp(type, "application/json", 16) != 0))
        r = cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "a login's Content-Type is application/json");
    if (r == 0)
        r = cordon_admin_body(request, &body, err);
    if (r == 0)
        r = cordon_admin_text(&body, "key", key, sizeof key, err);
    if (r == 0)
        r = cordon_admin_text(&body, "link", link, sizeof link, err);
    if (r < 0)
        return r;
    r = check_secret(doors->store, key, link, &info, err);
    explicit_bzero(key, sizeof key);
    explicit_bzero(link, sizeof link);
    if (r < 0) {
        cordon_login_failed(request);
        return r;
    }
    r = cordon_session_open(&info, cookie, &session, err);
    if (r < 0)
        return r;
    set_cookie(request, cookie, CORDON_SESSION_LIFE_S);
    explicit_bzero(cookie, sizeof cookie);
    cordon_log(CORDON_LOG_INFO, "logged in", "key", info.id[0] ? info.id : "link", "client", request->client, NULL);
    return reply_session(request, &session, err);
}

int cordon_admin_logout(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(64);
    cordon_session_close(request);
    set_cookie(request, "", 0);
    (void)cordon_buf_appends(&body, "{}"); /* sticky, seen by the reply */
    return cordon_admin_reply(request, &body, err);
}

int cordon_admin_session(struct cordon_http_request *request, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    struct cordon_session session;
    if (!cordon_session_find(doors->store, request, &session))
        return cordon_fail(err, -EACCES, CORDON_ERROR_UNAUTHENTICATED, "there is no session: log in");
    return reply_session(request, &session, err);
}
