/* SPDX-License-Identifier: Apache-2.0 */
#include "door/e2b/visit.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "door/e2b/envelope.h"
#include "door/e2b/signature.h"
#include "door/e2b/tokens.h"
#include "door/json_time.h"

#define PATH_ROOM 4200u

bool cordon_e2b_visit_address(const struct cordon_http_request *request, struct cordon_e2b_address *ret)
{
    const char *host = cordon_http_header(request, "Host");
    if (host && cordon_e2b_address_host(host, ret))
        return true;
    return cordon_e2b_address_headers(cordon_http_header(request, "E2b-Sandbox-Id"),
                                      cordon_http_header(request, "E2b-Sandbox-Port"), ret);
}

static int unreachable(struct cordon_error *err, const char *why)
{
    return cordon_fail(err, -ENOENT, CORDON_ERROR_GONE, "%s", why);
}

void cordon_e2b_visit_dismiss(void *context)
{
    struct cordon_e2b_visit *visit = context;
    if (!visit)
        return;
    cordon_guest_info_free(visit->guest);
    cordon_door_forget(&visit->memory);
    free(visit);
}

/* Takes the guest. */
static int make_visit(struct cordon_guest_info *guest, uint16_t port, struct cordon_e2b_visit **ret,
                      struct cordon_error *err)
{
    struct cordon_e2b_visit *visit = calloc(1, sizeof *visit);
    if (!visit) {
        cordon_guest_info_free(guest);
        return cordon_fail_errno(err, -ENOMEM, "finding the sandbox");
    }
    visit->guest = guest;
    visit->port = port;
    int r = cordon_e2b_box_read(guest->private_data, &visit->memory, &visit->box, err);
    if (r < 0) {
        cordon_e2b_visit_dismiss(visit);
        return r;
    }
    *ret = visit;
    return 0;
}

static int find_by_id(const struct cordon_e2b_address *address, struct cordon_e2b_visit **ret, struct cordon_error *err)
{
    struct cordon_guest_info *guest;
    if (!address->id[0])
        return unreachable(err, "The sandbox was not found");
    int r = cordon_guests_info(cordon_guests_all, address->id, &guest, err);
    if (r < 0)
        return r;
    if (guest->door == CORDON_DOOR_E2B)
        return make_visit(guest, address->port, ret, err);
    cordon_guest_info_free(guest);
    return unreachable(err, "The sandbox was not found");
}

/* What a signed URL gives. */
struct signed_url {
    char path[PATH_ROOM], user[64], signature[64], expiration[24];
    struct cordon_e2b_signed what;
};

static bool read_signed(const struct cordon_http_request *request, struct signed_url *url)
{
    if (strcmp(request->path, "/files") != 0 ||
        cordon_http_query(request, "signature", url->signature, sizeof url->signature) < 0)
        return false;
    ssize_t path = cordon_http_query(request, "path", url->path, sizeof url->path);
    ssize_t user = cordon_http_query(request, "username", url->user, sizeof url->user);
    ssize_t expiration = cordon_http_query(request, "signature_expiration", url->expiration, sizeof url->expiration);
    url->what = (struct cordon_e2b_signed){url->path, strcmp(request->method, "POST") == 0 ? "write" : "read",
                                           url->user, expiration == -ENOENT ? NULL : url->expiration};
    return (path >= 0 || path == -ENOENT) && (user >= 0 || user == -ENOENT) &&
           (expiration >= 0 || expiration == -ENOENT);
}

static bool signed_for(const struct cordon_e2b_box *box, const struct signed_url *url)
{
    return cordon_e2b_signature_ok(&url->what, box->access_token, url->signature);
}

static bool fits(void *context, const char *token)
{
    const struct signed_url *url = context;
    return cordon_e2b_signature_ok(&url->what, token, url->signature);
}

/* Such a URL names no sandbox: it is the one whose token fits. Tokens are random, so only one does. */
static int find_by_signature(struct signed_url *url, struct cordon_e2b_visit **ret, struct cordon_error *err)
{
    struct cordon_guest_info *guest;
    char id[CORDON_GUEST_ID];
    int r = cordon_e2b_tokens_find(fits, url, id, err);
    if (r < 0)
        return r;
    if (r > 0 && cordon_guests_info(cordon_guests_all, id, &guest, NULL) == 0)
        return make_visit(guest, CORDON_E2B_PORT_ENVD, ret, err);
    return cordon_fail(err, -EACCES, CORDON_ERROR_UNAUTHENTICATED,
                       "the signature is not one that a sandbox here has given for this path, user and operation");
}

static int check_state(const struct cordon_e2b_visit *visit, struct cordon_error *err)
{
    if (visit->guest->condition == CORDON_GUEST_IS_GONE)
        return unreachable(err, visit->guest->reason && *visit->guest->reason ? visit->guest->reason
                                                                              : "The sandbox was not found");
    if (visit->guest->condition == CORDON_GUEST_IS_PAUSED && !visit->guest->auto_resume)
        return unreachable(err, "The sandbox is paused: connect to it, which resumes it");
    return 0;
}

/* Whoever knows the address may pass. */
static bool is_public(const struct cordon_e2b_box *box, enum cordon_e2b_token needed)
{
    return needed == CORDON_E2B_OPEN || !*(needed == CORDON_E2B_TRAFFIC ? box->traffic_token : box->access_token);
}

static bool shows_secret(const struct cordon_http_request *request, const struct cordon_e2b_box *box,
                         enum cordon_e2b_token needed, const struct signed_url *url)
{
    if (needed == CORDON_E2B_TRAFFIC)
        return cordon_e2b_token_ok(box->traffic_token, cordon_http_header(request, "E2B-Traffic-Access-Token"));
    if (needed == CORDON_E2B_ACCESS_OR_SIGNED && url && signed_for(box, url))
        return true;
    return cordon_e2b_token_ok(box->access_token, cordon_http_header(request, "X-Access-Token"));
}

static int check_token(struct cordon_http_request *request, const struct cordon_e2b_visit *visit,
                       enum cordon_e2b_token needed, const struct signed_url *url, struct cordon_error *err)
{
    request->keyless = is_public(&visit->box, needed);
    if (!request->keyless && !shows_secret(request, &visit->box, needed, url))
        return needed == CORDON_E2B_TRAFFIC
                   ? cordon_fail(err, -EPERM, CORDON_ERROR_FORBIDDEN,
                                 "this sandbox's ports are not public: send its E2B-Traffic-Access-Token")
                   : cordon_fail(err, -EACCES, CORDON_ERROR_UNAUTHENTICATED,
                                 "the access token (X-Access-Token) is missing, or not this sandbox's");
    if (url && url->what.expiration &&
        cordon_e2b_signature_expired(url->what.expiration, cordon_time_now_us() / 1000000))
        return cordon_fail(err, -EACCES, CORDON_ERROR_UNAUTHENTICATED, "the signature has expired");
    return 0;
}

int cordon_e2b_visit_enter(struct cordon_http_request *request, enum cordon_e2b_token needed, struct cordon_error *err)
{
    struct cordon_e2b_address address;
    struct cordon_e2b_visit *visit = NULL;
    struct signed_url url, *is_signed = NULL;
    if (needed == CORDON_E2B_ACCESS_OR_SIGNED && read_signed(request, &url))
        is_signed = &url;
    int r;
    if (cordon_e2b_visit_address(request, &address))
        r = find_by_id(&address, &visit, err);
    else if (is_signed)
        r = find_by_signature(is_signed, &visit, err);
    else
        r = unreachable(err, "the request names no sandbox: send E2b-Sandbox-Id, or use its host name");
    if (r == 0)
        r = check_state(visit, err);
    if (r == 0)
        r = check_token(request, visit, needed, is_signed, err);
    if (r < 0) {
        cordon_e2b_visit_dismiss(visit);
        return r;
    }
    request->admitted = visit;
    return 0;
}

void cordon_e2b_cors(struct cordon_http_request *request)
{
    cordon_http_reply_header(request, "Access-Control-Allow-Origin", "*");
    cordon_http_reply_header(request, "Access-Control-Expose-Headers", "*");
}

/* A list of header names, and nothing else that whoever sends the preflight would like to read back. */
static bool is_name_list(const char *text)
{
    for (const char *at = text; *at; at++)
        if (!isalnum((unsigned char)*at) && !strchr("!#$%&'*+-.^_`|~, ", *at))
            return false;
    return *text;
}

int cordon_e2b_preflight(struct cordon_http_request *request, struct cordon_error *err)
{
    const char *wanted = cordon_http_header(request, "Access-Control-Request-Headers");
    struct cordon_buf body = CORDON_BUF_INIT(1);
    cordon_e2b_cors(request);
    cordon_http_reply_header(request, "Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE");
    cordon_http_reply_header(request, "Access-Control-Allow-Headers", wanted && is_name_list(wanted) ? wanted : "*");
    cordon_http_reply_header(request, "Access-Control-Max-Age", "7200");
    int r = cordon_http_reply(request, 204, "text/plain", &body);
    return r < 0 ? cordon_fail_errno(err, r, "writing the answer to a preflight") : 0;
}

static bool is_service(const struct cordon_http_request *request)
{
    return strncmp(request->path, "/process.", 9) == 0 || strncmp(request->path, "/filesystem.", 12) == 0;
}

static bool is_stream(const struct cordon_http_request *request)
{
    const char *type = cordon_http_header(request, "Content-Type");
    return type && strncasecmp(type, "application/connect+json", 24) == 0;
}

static bool is_unreachable(const struct cordon_http_request *request, const struct cordon_error *err)
{
    return err->kind == CORDON_ERROR_GONE || err->kind == CORDON_ERROR_PAUSED ||
           (err->kind == CORDON_ERROR_NOT_FOUND && !request->admitted && request->match.route);
}

static void write_unreachable(const struct cordon_http_request *request, const struct cordon_error *err,
                              struct cordon_json *json)
{
    struct cordon_e2b_address address;
    cordon_json_key(json, "sandboxId");
    cordon_json_text(json, cordon_e2b_visit_address(request, &address) ? address.id : "");
    cordon_json_key(json, "message");
    cordon_json_text(json, err->kind == CORDON_ERROR_NOT_FOUND ? "The sandbox was not found" : err->message);
    cordon_json_key(json, "code");
    cordon_json_int(json, 502);
}

/* The statuses of Connect's codes, where they are not those of our kinds. */
static int connect_status(const struct cordon_http_request *request, const struct cordon_error *err)
{
    static const struct {
        const char *code;
        int status;
    } rows[] = {{"failed_precondition", 400}, {"resource_exhausted", 429}, {"unavailable", 503}};
    const char *code = cordon_error_connect(err->kind);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].code, code) == 0)
            return rows[i].status;
    return cordon_http_error_status(request, err);
}

int cordon_e2b_visit_reply_error(struct cordon_http_request *request, const struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(16384);
    struct cordon_json json = {.buf = &body};
    bool gone = is_unreachable(request, err), service = is_service(request);
    bool full = err->code == -ENOSPC || err->code == -EDQUOT;
    int status = gone                                          ? 502
                 : service                                     ? connect_status(request, err)
                 : full && err->kind == CORDON_ERROR_TOO_LARGE ? 507
                                                               : cordon_http_error_status(request, err);
    request->reply_header.size = 0;
    cordon_e2b_cors(request);
    if (!gone && service && is_stream(request)) {
        cordon_e2b_envelope_last(&body, err);
        return cordon_http_reply(request, 200, "application/connect+json", &body);
    }
    cordon_json_object_begin(&json);
    if (gone) {
        write_unreachable(request, err, &json);
    } else if (service) {
        cordon_e2b_connect_error(&json, err);
    } else {
        cordon_json_key(&json, "code");
        cordon_json_int(&json, status);
        cordon_json_key(&json, "message");
        cordon_json_text(&json, err->message);
    }
    cordon_json_object_end(&json);
    return cordon_http_reply(request, status, "application/json", &body);
}
