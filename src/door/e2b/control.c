/* SPDX-License-Identifier: Apache-2.0 */
/*
 * E2B's control plane: the routes, and the calls that only pass on to core. Old and new routes share their handlers,
 * since no SDK falls back from one to the other. Errors are {"code","message"}, where code is the status.
 */
#include "door/e2b/control.h"

#include <errno.h>
#include <string.h>

#include "door/e2b/doors.h"

int cordon_e2b_reply(struct cordon_http_request *request, int status, struct cordon_buf *body, struct cordon_error *err)
{
    int r = cordon_http_reply(request, status, "application/json", body);
    return r < 0 ? cordon_fail_errno(err, r, "writing the answer to %s", request->match.route->pattern) : 0;
}

int cordon_e2b_reply_nothing(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(1);
    return cordon_e2b_reply(request, 204, &body, err);
}

int cordon_e2b_control_reply_error(struct cordon_http_request *request, const struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(16384);
    struct cordon_json json = {.buf = &body};
    int status = err->kind == CORDON_ERROR_GONE ? 404 : cordon_http_error_status(request, err);
    if (err->kind == CORDON_ERROR_QUOTA) {
        char seconds[24];
        cordon_http_reply_header(request, "Retry-After", cordon_log_number(seconds, cordon_guests_retry_after_s(err)));
    }
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "code");
    cordon_json_int(&json, status);
    cordon_json_key(&json, "message");
    cordon_json_text(&json, err->message);
    cordon_json_key(&json, "error_code");
    cordon_json_text(&json, cordon_error_name(err->kind));
    cordon_json_object_end(&json);
    return cordon_http_reply(request, status, "application/json", &body);
}

int cordon_e2b_find(const struct cordon_http_request *request, bool living, struct cordon_guest_info **ret,
                    struct cordon_error *err)
{
    char id[128];
    struct cordon_guest_info *guest;
    int r = cordon_http_param(request, 0, id, sizeof id);
    id[strcspn(id, "-")] = '\0'; /* older ids had a client's behind them */
    if (r < 0)
        return cordon_fail(err, r, CORDON_ERROR_NOT_FOUND, "the sandbox's id can't be read");
    r = cordon_guests_info(request->subject, id, &guest, err);
    if (r < 0)
        return r;
    if (guest->door != CORDON_DOOR_E2B)
        r = cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND, "the sandbox %.32s was not made through E2B's interface",
                        id);
    else if (living && guest->condition == CORDON_GUEST_IS_GONE)
        r = cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND, "the sandbox %.32s is gone: %s", id, guest->reason);
    if (r < 0) {
        cordon_guest_info_free(guest);
        return r;
    }
    *ret = guest;
    return 0;
}

int cordon_e2b_check_memory(const struct cordon_value *body, const char *name, struct cordon_error *err)
{
    bool memory = true;
    int r = cordon_field_bool(body, name, &memory, err);
    if (r < 0 || memory)
        return r < 0 ? r : 0;
    return cordon_fail(err, -ENOSYS, CORDON_ERROR_UNSUPPORTED,
                       "%s: false is not implemented by this server: its pause freezes the sandbox with its memory",
                       name);
}

static int get(struct cordon_http_request *request, struct cordon_error *err)
{
    cordon_autoforget struct cordon_door_memory memory = {0};
    struct cordon_guest_info *guest;
    struct cordon_e2b_box box;
    int r = cordon_e2b_find(request, true, &guest, err);
    if (r < 0)
        return r;
    struct cordon_buf body = CORDON_BUF_INIT(1u << 20);
    struct cordon_json json = {.buf = &body};
    r = cordon_e2b_box_read(guest->private_data, &memory, &box, err);
    if (r == 0) {
        cordon_e2b_tell_detail(request, guest, &box, &json);
        r = cordon_e2b_reply(request, 200, &body, err);
    }
    cordon_guest_info_free(guest);
    return r;
}

/* The calls below find the sandbox, do one thing to it, and answer with nothing. */
typedef int one_thing(struct cordon_http_request *request, const struct cordon_value *body,
                      const struct cordon_guest_info *guest, struct cordon_error *err);

static int do_one(struct cordon_http_request *request, one_thing *thing, struct cordon_error *err)
{
    struct cordon_guest_info *guest;
    struct cordon_value body;
    int r = cordon_fields_parse(&request->body, &body, err);
    if (r == 0)
        r = cordon_e2b_find(request, true, &guest, err);
    if (r < 0)
        return r;
    r = thing(request, &body, guest, err);
    cordon_guest_info_free(guest);
    return r < 0 || request->replied ? r : cordon_e2b_reply_nothing(request, err);
}

static int kill_guest(struct cordon_http_request *request, const struct cordon_value *body,
                      const struct cordon_guest_info *guest, struct cordon_error *err)
{
    return cordon_guests_destroy(request->subject, guest->id, NULL, err);
}

static int pause_guest(struct cordon_http_request *request, const struct cordon_value *body,
                       const struct cordon_guest_info *guest, struct cordon_error *err)
{
    bool changed = false;
    int r = cordon_e2b_check_memory(body, "memory", err);
    if (r == 0)
        r = cordon_guests_pause(request->subject, guest->id, &changed, err);
    if (r == 0 && !changed)
        return cordon_fail(err, -EALREADY, CORDON_ERROR_CONFLICT, "the sandbox %s is paused already", guest->id);
    return r;
}

/* A time to live in seconds; one that is over at once is still one. */
static uint64_t ttl_ms(int64_t seconds)
{
    return seconds ? (uint64_t)seconds * 1000 : 1;
}

static int set_timeout(struct cordon_http_request *request, const struct cordon_value *body,
                       const struct cordon_guest_info *guest, struct cordon_error *err)
{
    int64_t seconds;
    int r = cordon_field_int(body, "timeout", 0, CORDON_E2B_TTL_MAX_S, &seconds, err);
    if (r == 0)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "timeout is missing: the seconds from now are needed");
    return r < 0 ? r : cordon_guests_extend(request->subject, guest->id, ttl_ms(seconds), false, err);
}

static int refresh(struct cordon_http_request *request, const struct cordon_value *body,
                   const struct cordon_guest_info *guest, struct cordon_error *err)
{
    int64_t seconds = 0;
    int r = cordon_field_int(body, "duration", 0, 3600, &seconds, err);
    return r < 0 ? r : cordon_guests_extend(request->subject, guest->id, ttl_ms(seconds), true, err);
}

static int reply_newest(struct cordon_http_request *request, int status, const struct cordon_guest_info *guest,
                        struct cordon_error *err)
{
    struct cordon_guest_info *now;
    int r = cordon_guests_info(request->subject, guest->id, &now, err);
    if (r < 0)
        return r;
    r = cordon_e2b_reply_sandbox(request, status, now, err);
    cordon_guest_info_free(now);
    return r;
}

static int connect_guest(struct cordon_http_request *request, const struct cordon_value *body,
                         const struct cordon_guest_info *guest, struct cordon_error *err)
{
    int64_t seconds = 300;
    bool resumed = false;
    int r = cordon_field_int(body, "timeout", 0, CORDON_E2B_TTL_MAX_S, &seconds, err);
    if (r >= 0)
        r = cordon_e2b_check_memory(body, "memory", err);
    if (r == 0)
        r = cordon_guests_resume(request->subject, guest->id, CORDON_KEEP, &resumed, err);
    if (r == 0)
        r = cordon_guests_extend(request->subject, guest->id, ttl_ms(seconds), !resumed, err);
    return r < 0 ? r : reply_newest(request, resumed ? 201 : 200, guest, err);
}

static int resume_guest(struct cordon_http_request *request, const struct cordon_value *body,
                        const struct cordon_guest_info *guest, struct cordon_error *err)
{
    int64_t seconds = 15;
    bool resumed = false;
    int r = cordon_field_int(body, "timeout", 0, CORDON_E2B_TTL_MAX_S, &seconds, err);
    if (r >= 0)
        r = cordon_e2b_check_memory(body, "memory", err);
    if (r == 0)
        r = cordon_guests_resume(request->subject, guest->id, ttl_ms(seconds), &resumed, err);
    if (r == 0 && !resumed)
        return cordon_fail(err, -EALREADY, CORDON_ERROR_CONFLICT, "the sandbox %s is running already", guest->id);
    return r < 0 ? r : reply_newest(request, 201, guest, err);
}

#define ONE(name, thing)                                                                                               \
    static int name(struct cordon_http_request *request, struct cordon_error *err)                                     \
    {                                                                                                                  \
        return do_one(request, thing, err);                                                                            \
    }
ONE(delete_one, kill_guest)
ONE(pause_one, pause_guest)
ONE(timeout_one, set_timeout)
ONE(refresh_one, refresh)
ONE(connect_one, connect_guest)
ONE(resume_one, resume_guest)

#define SMALL 65536u
#define ROW(method, pattern, handle, limit, doc)                                                                       \
    {                                                                                                                  \
        method, pattern, handle, CORDON_HTTP_RUN, limit, doc, NULL, NULL, NULL                                         \
    }
#define ABSENT(method, pattern)                                                                                        \
    {                                                                                                                  \
        method, pattern, cordon_e2b_absent, CORDON_HTTP_RUN, CORDON_HTTP_BODY_SETTING, NULL, NULL, NULL, NULL          \
    }

/* clang-format off */
static const struct cordon_http_route routes[] = {
    ROW("POST", "/v2/sandboxes", cordon_e2b_create, 1u << 20, "E2B: makes a sandbox."),
    ROW("POST", "/sandboxes", cordon_e2b_create_old, 1u << 20, "E2B: makes a sandbox (older SDKs)."),
    ROW("GET", "/v2/sandboxes", cordon_e2b_list, 0, "E2B: the key's sandboxes, in pages."),
    ROW("GET", "/sandboxes", cordon_e2b_list_old, 0, "E2B: the key's running sandboxes."),
    ROW("GET", "/sandboxes/metrics", cordon_e2b_metrics_many, 0, "E2B: the newest metrics of several sandboxes."),
    ROW("GET", "/sandboxes/{id}", get, 0, "E2B: one sandbox, with what holds for it."),
    ROW("DELETE", "/sandboxes/{id}", delete_one, 0, "E2B: ends a sandbox."),
    ROW("POST", "/v2/sandboxes/{id}/connect", connect_one, SMALL, "E2B: resumes a sandbox where it is paused; its end is moved later."),
    ROW("POST", "/sandboxes/{id}/connect", connect_one, SMALL, "E2B: as /v2/sandboxes/{id}/connect."),
    ROW("POST", "/sandboxes/{id}/resume", resume_one, SMALL, "E2B: resumes a paused sandbox."),
    ROW("POST", "/sandboxes/{id}/pause", pause_one, SMALL, "E2B: freezes a sandbox."),
    ROW("POST", "/sandboxes/{id}/timeout", timeout_one, SMALL, "E2B: sets a sandbox's end, in seconds from now."),
    ROW("POST", "/sandboxes/{id}/refreshes", refresh_one, SMALL, "E2B: moves a sandbox's end later."),
    ROW("PUT", "/sandboxes/{id}/network", cordon_e2b_network_put, 1u << 20, "E2B: replaces what a sandbox may reach."),
    ROW("GET", "/sandboxes/{id}/metrics", cordon_e2b_metrics, 0, "E2B: what a sandbox uses now."),
    ROW("GET", "/sandboxes/{id}/logs", cordon_e2b_logs_old, 0, "E2B: what happened to a sandbox."),
    ROW("GET", "/v2/sandboxes/{id}/logs", cordon_e2b_logs, 0, "E2B: what happened to a sandbox, in pages."),
    ABSENT("POST", "/sandboxes/{id}/snapshots"),
    ABSENT("POST", "/sandboxes/{id}/fork"),
    ABSENT("*", "/snapshots"),
    ROW("GET", "/templates", cordon_e2b_templates, 0, "E2B: the templates."),
    ROW("GET", "/v2/templates", cordon_e2b_templates, 0, "E2B: the templates."),
    ROW("GET", "/templates/{id}", cordon_e2b_template, 0, "E2B: one template."),
    ROW("GET", "/templates/aliases/{alias}", cordon_e2b_template_alias, 0, "E2B: whether there is such a template."),
    ABSENT("POST", "/templates"),
    ABSENT("POST", "/v2/templates"),
    ABSENT("*", "/templates/*"),
    ABSENT("*", "/v2/templates/*"),
    ABSENT("*", "/v3/templates"),
    ABSENT("*", "/volumes"),
    ABSENT("*", "/volumes/*"),
    ABSENT("*", "/secrets"),
    ABSENT("*", "/secrets/*"),
    ABSENT("*", "/teams"),
    ABSENT("*", "/teams/*"),
    ABSENT("*", "/sandboxes/{id}/*"),
    ABSENT("*", "/v2/sandboxes/{id}/*"),
};
/* clang-format on */

const struct cordon_http_door cordon_door_e2b = {
    .name = "e2b",
    .routes = routes,
    .route_count = sizeof routes / sizeof *routes,
    .reply_error = cordon_e2b_control_reply_error,
};
