/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CreateOS door: a sandbox control plane in the routes, envelope, statuses and names of CreateOS's interface, for
 * its clients unmodified. Its guests have no time to live of their own, pause when idle if asked to, and are weaker
 * than hardware-virtualized only where CORDON_CREATEOS_MIN_ISOLATION says so.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "door/createos/createos.h"
#include "door/createos/doors.h"

#define LIST_MAX 500u

static int whoami(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_guests_counts counts;
    struct cordon_buf body = CORDON_BUF_INIT(4096);
    struct cordon_json json = {.buf = &body};
    cordon_guests_count(request->subject, &counts);
    cordon_createos_begin(&json);
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "user_id");
    cordon_json_text(&json, *request->subject ? request->subject : "local");
    cordon_json_key(&json, "stats");
    cordon_json_object_begin(&json);
    const struct {
        const char *key;
        size_t value;
    } rows[] = {{"running", counts.running},
                {"paused", counts.paused},
                {"other", 0},
                {"total", counts.running + counts.paused}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cordon_json_key(&json, rows[i].key);
        cordon_json_uint(&json, rows[i].value);
    }
    cordon_json_object_end(&json);
    cordon_json_object_end(&json);
    return cordon_createos_reply(request, &json, err);
}

/* {"data":[…],"pagination":…} around what the caller writes. */
static void begin_list(struct cordon_json *json)
{
    cordon_createos_begin(json);
    cordon_json_object_begin(json);
    cordon_json_key(json, "data");
    cordon_json_array_begin(json);
}

static void end_list(struct cordon_json *json, size_t total, size_t limit, size_t offset, size_t count)
{
    const struct {
        const char *key;
        size_t value;
    } rows[] = {{"total", total}, {"limit", limit}, {"offset", offset}, {"count", count}};
    cordon_json_array_end(json);
    cordon_json_key(json, "pagination");
    cordon_json_object_begin(json);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cordon_json_key(json, rows[i].key);
        cordon_json_uint(json, rows[i].value);
    }
    cordon_json_object_end(json);
    cordon_json_object_end(json);
}

static int shapes(struct cordon_http_request *request, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    const struct cordon_createos_shape *shape;
    struct cordon_buf body = CORDON_BUF_INIT(16384);
    struct cordon_json json = {.buf = &body};
    size_t count = 0;
    begin_list(&json);
    for (; (shape = cordon_createos_shape_at(doors->settings, count)); count++) {
        cordon_json_object_begin(&json);
        cordon_json_key(&json, "id");
        cordon_json_text(&json, shape->id);
        cordon_json_key(&json, "vcpu");
        cordon_json_uint(&json, shape->vcpu);
        cordon_json_key(&json, "mem_mib");
        cordon_json_uint(&json, shape->memory_mib);
        cordon_json_key(&json, "default_disk_mib");
        cordon_json_uint(&json, cordon_createos_shape_disk_mib(doors->settings, shape));
        cordon_json_key(&json, "cpu_quota_pct");
        cordon_json_uint(&json, shape->vcpu * 100);
        cordon_json_object_end(&json);
    }
    end_list(&json, count, LIST_MAX, 0, count);
    return cordon_createos_reply(request, &json, err);
}

static int rootfs(struct cordon_http_request *request, struct cordon_error *err)
{
    static const char answer[] = "{\"rootfs\":[\"" CORDON_CREATEOS_ROOTFS "\"],\"default\":\"" CORDON_CREATEOS_ROOTFS
                                 "\",\"entries\":[{\"id\":\"" CORDON_CREATEOS_ROOTFS
                                 "\",\"name\":\"" CORDON_CREATEOS_ROOTFS "\",\"default\":true}]}";
    struct cordon_buf body = CORDON_BUF_INIT(4096);
    struct cordon_json json = {.buf = &body};
    cordon_createos_begin(&json);
    cordon_json_raw(&json, answer, sizeof answer - 1);
    return cordon_createos_reply(request, &json, err);
}

/* A number of the query, as far as it is one. */
static size_t number(const struct cordon_http_request *request, const char *name, size_t fallback)
{
    char text[16];
    ssize_t n = cordon_http_query(request, name, text, sizeof text);
    return n > 0 && strspn(text, "0123456789") == (size_t)n ? (size_t)strtoull(text, NULL, 10) : fallback;
}

/* False: a state that no sandbox here is ever in, or that is none at all. */
static bool read_status(const struct cordon_http_request *request, struct cordon_guest_query *query)
{
    char text[32];
    if (cordon_http_query(request, "status", text, sizeof text) <= 0)
        return true;
    query->running = strcmp(text, "running") == 0;
    query->paused = strcmp(text, "paused") == 0;
    query->gone = strcmp(text, "destroyed") == 0 || strcmp(text, "failed") == 0;
    return query->running || query->paused || query->gone;
}

static void tell_page(const struct cordon_guest_page *page, struct cordon_json *json)
{
    for (size_t i = 0; i < page->count; i++) {
        cordon_autoforget struct cordon_door_memory memory = {0};
        struct cordon_createos_note note;
        if (cordon_createos_note_read(page->guests[i]->private_data, &memory, &note, NULL) == 0)
            cordon_createos_tell_view(json, page->guests[i], &note);
    }
}

static int list(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_guest_query query = {.tenant = request->subject, .door = CORDON_DOOR_CREATEOS};
    struct cordon_guest_page page = {0};
    struct cordon_buf body = CORDON_BUF_INIT(32u << 20);
    struct cordon_json json = {.buf = &body};
    size_t limit = number(request, "limit", LIST_MAX);
    query.limit = limit < 1 ? 1 : limit > LIST_MAX ? LIST_MAX : limit;
    query.offset = number(request, "offset", 0);
    int r = read_status(request, &query) ? cordon_guests_list(&query, &page, err) : 0;
    if (r < 0)
        return r;
    begin_list(&json);
    tell_page(&page, &json);
    end_list(&json, page.total, query.limit, query.offset, page.count);
    cordon_guest_page_done(&page);
    return cordon_createos_reply(request, &json, err);
}

static int get(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_guest_info *guest;
    int r = cordon_createos_find(request, false, &guest, err);
    if (r < 0)
        return r;
    r = cordon_createos_reply_view(request, guest->id, err);
    cordon_guest_info_free(guest);
    return r;
}

static int patch(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_guest_info *guest;
    struct cordon_value body;
    bool ingress = false, never = false;
    int64_t seconds = 0;
    int r = cordon_fields_parse(&request->body, &body, err);
    if (r >= 0)
        r = cordon_field_bool(&body, "ingress_enabled", &ingress, err);
    if (r >= 0)
        r = cordon_field_bool(&body, "disable_auto_pause", &never, err);
    if (r >= 0)
        r = cordon_field_int(&body, "auto_pause_after_seconds", CORDON_CREATEOS_IDLE_MIN_S, CORDON_CREATEOS_IDLE_MAX_S,
                             &seconds, err);
    if (r >= 0 && ingress)
        r = cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_REFUSED,
                        "ingress_enabled is not offered by this server (cordon)");
    if (r >= 0)
        r = cordon_createos_find(request, true, &guest, err);
    if (r < 0)
        return r;
    if (never || seconds)
        r = cordon_guests_set_idle_pause(request->subject, guest->id, never ? 0 : (uint64_t)seconds * 1000, err);
    if (r >= 0)
        r = cordon_createos_reply_view(request, guest->id, err);
    cordon_guest_info_free(guest);
    return r;
}

static int delete_one(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_guest_info *guest;
    struct cordon_buf body = CORDON_BUF_INIT(4096);
    struct cordon_json json = {.buf = &body};
    int r = cordon_createos_find(request, false, &guest, err);
    if (r < 0)
        return r;
    r = cordon_guests_destroy(request->subject, guest->id, NULL, err);
    if (r == 0) {
        cordon_createos_begin(&json);
        cordon_json_object_begin(&json);
        cordon_json_key(&json, "id");
        cordon_json_text(&json, guest->id);
        cordon_json_key(&json, "status");
        cordon_json_text(&json, "destroyed");
        cordon_json_object_end(&json);
        r = cordon_createos_reply(request, &json, err);
    }
    cordon_guest_info_free(guest);
    return r;
}

/* Pausing what is paused, and resuming what runs, is fine: two workers may want the same at once. */
static int change(struct cordon_http_request *request, bool pause, struct cordon_error *err)
{
    struct cordon_guest_info *guest;
    int r = cordon_createos_find(request, true, &guest, err);
    if (r < 0)
        return r;
    r = pause ? cordon_guests_pause(request->subject, guest->id, NULL, err)
              : cordon_guests_resume(request->subject, guest->id, CORDON_KEEP, NULL, err);
    if (r == 0)
        r = cordon_createos_reply_view(request, guest->id, err);
    cordon_guest_info_free(guest);
    return r;
}

static int pause_one(struct cordon_http_request *request, struct cordon_error *err)
{
    return change(request, true, err);
}

static int resume_one(struct cordon_http_request *request, struct cordon_error *err)
{
    return change(request, false, err);
}

static int metrics(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_guest_info *guest;
    struct cordon_guest_metrics now;
    struct cordon_buf body = CORDON_BUF_INIT(4096);
    struct cordon_json json = {.buf = &body};
    int r = cordon_createos_find(request, true, &guest, err);
    if (r < 0)
        return r;
    r = cordon_guests_metrics(request->subject, guest->id, &now, err);
    cordon_guest_info_free(guest);
    if (r < 0)
        return r;
    const struct {
        const char *key;
        uint64_t value;
    } rows[] = {{"cpu_used_us", now.usage.cpu_us},
                {"mem_used_bytes", now.usage.memory_bytes},
                {"mem_limit_bytes", now.usage.memory_limit_bytes},
                {"disk_used_bytes", now.disk_used},
                {"disk_limit_bytes", now.disk_total},
                {"processes", now.usage.processes}};
    cordon_createos_begin(&json);
    cordon_json_object_begin(&json);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cordon_json_key(&json, rows[i].key);
        cordon_json_uint(&json, rows[i].value);
    }
    cordon_json_object_end(&json);
    return cordon_createos_reply(request, &json, err);
}

static int absent(struct cordon_http_request *request, struct cordon_error *err)
{
    return cordon_fail(err, -ENOSYS, CORDON_ERROR_UNSUPPORTED,
                       "%.16s %.128s is not implemented by this server (cordon; docs/createos.md lists what is)",
                       request->method, request->path);
}

#define SMALL 65536u
#define BIG (4u << 20)
#define ROW(method, pattern, handle, limit, doc)                                                                       \
    {                                                                                                                  \
        method, pattern, handle, CORDON_HTTP_RUN, limit, doc, NULL, NULL, NULL                                         \
    }

/* clang-format off */
static const struct cordon_http_route routes[] = {
    ROW("GET", "/v1/whoami", whoami, 0, "CreateOS: whose key this is, and how many sandboxes it has."),
    {"GET", "/v1/shapes", shapes, CORDON_HTTP_OPEN, 0, "CreateOS: the shapes.", NULL, NULL, NULL},
    {"GET", "/v1/rootfs", rootfs, CORDON_HTTP_OPEN, 0, "CreateOS: the root file systems.", NULL, NULL, NULL},
    ROW("POST", "/v1/sandboxes", cordon_createos_create, BIG, "CreateOS: makes a sandbox."),
    ROW("GET", "/v1/sandboxes", list, 0, "CreateOS: the key's sandboxes."),
    ROW("GET", "/v1/sandboxes/{id}", get, 0, "CreateOS: one sandbox."),
    ROW("PATCH", "/v1/sandboxes/{id}", patch, SMALL, "CreateOS: changes when a sandbox pauses by itself."),
    ROW("DELETE", "/v1/sandboxes/{id}", delete_one, SMALL, "CreateOS: ends a sandbox."),
    ROW("POST", "/v1/sandboxes/{id}/pause", pause_one, SMALL, "CreateOS: freezes a sandbox."),
    ROW("POST", "/v1/sandboxes/{id}/resume", resume_one, SMALL, "CreateOS: thaws a sandbox."),
    ROW("POST", "/v1/sandboxes/{id}/exec", cordon_createos_exec, BIG, "CreateOS: runs a command in a sandbox; frames with ?stream=true."),
    ROW("GET", "/v1/sandboxes/{id}/files", cordon_createos_file_get, 0, "CreateOS: a file's content."),
    ROW("PUT", "/v1/sandboxes/{id}/files", cordon_createos_file_put, CORDON_HTTP_BODY_INTAKE, "CreateOS: writes a file."),
    ROW("GET", "/v1/sandboxes/{id}/egress", cordon_createos_egress_get, 0, "CreateOS: what a sandbox may reach."),
    ROW("PUT", "/v1/sandboxes/{id}/egress", cordon_createos_egress_put, BIG, "CreateOS: replaces what a sandbox may reach, at once."),
    ROW("GET", "/v1/sandboxes/{id}/metrics", metrics, 0, "CreateOS: what a sandbox uses now."),
    {"*", "/v1/sandboxes/{id}/*", absent, CORDON_HTTP_RUN, BIG, NULL, NULL, NULL, NULL},
};
/* clang-format on */

const struct cordon_http_door cordon_door_createos = {
    .name = "createos",
    .routes = routes,
    .route_count = sizeof routes / sizeof *routes,
    .intake = &cordon_createos_file_intake,
    .reply_error = cordon_createos_reply_error,
};
