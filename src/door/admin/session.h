/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions of the admin page. A key of scope admin or view, or a one-time link, is exchanged for a cookie: HttpOnly,
 * SameSite=Strict, 256 random bits, of which only the hash is kept, in this process's memory. What changes anything
 * needs the session's CSRF token as well. A session ends with its key, after CORDON_SESSION_IDLE_S without a request,
 * and after CORDON_SESSION_LIFE_S in any case.
 */
#ifndef CORDON_DOOR_ADMIN_SESSION_H
#define CORDON_DOOR_ADMIN_SESSION_H

#include "http/request.h"
#include "store/store.h"

#define CORDON_SESSION_IDLE_S 3600
#define CORDON_SESSION_LIFE_S 43200
#define CORDON_SESSION_TEXT 65 /* 64 hex digits + NUL */
#define CORDON_SESSION_COOKIE "cordon_session"
#define CORDON_CSRF_HEADER "X-Cordon-CSRF"

struct cordon_session {
    char key_id[17], key_name[64]; /* id "": the one-time link */
    enum cordon_key_scope scope;
    char csrf[CORDON_SESSION_TEXT];
};

/* The oldest one gives way when all places are taken. 0, or -EIO without random bytes. */
int cordon_session_open(const struct cordon_key_info *key, char cookie[CORDON_SESSION_TEXT], struct cordon_session *ret,
                        struct cordon_error *err);
void cordon_session_close(const struct cordon_http_request *request);
/* The session of the request's cookie, if it has one that is alive. */
bool cordon_session_find(struct cordon_store *store, const struct cordon_http_request *request,
                         struct cordon_session *ret);
/* As find; UNAUTHENTICATED without one, FORBIDDEN when the request may change something and has not its CSRF token. */
int cordon_session_authorize(struct cordon_store *store, const struct cordon_http_request *request,
                             struct cordon_session *ret, struct cordon_error *err);

/* GET and HEAD. */
bool cordon_session_only_reads(const struct cordon_http_request *request);

/* Before a login is tried: QUOTA when this client, or all together, failed too often in the last minute. */
int cordon_login_allowed(const struct cordon_http_request *request, struct cordon_error *err);
void cordon_login_failed(const struct cordon_http_request *request);

#endif
