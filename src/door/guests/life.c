/* SPDX-License-Identifier: Apache-2.0 */
/* A guest's life: made, paused, resumed, given more time, ended. */
#include <errno.h>
#include <string.h>

#include "door/admin/admin.h"
#include "door/guests/guests.h"

#define SECONDS_MAX 31536000.0

struct asked {
    struct cordon_door_memory memory;
    struct cordon_guest_create create;
    struct cordon_pairs metadata;
    struct cordon_texts env;
};

static int read_sizes(const struct cordon_value *body, struct cordon_guest_create *create, struct cordon_error *err)
{
    int64_t memory = 0, disk = 0, inodes = 0, processes = 0, cpu = 0;
    int r = cordon_field_int(body, "memory_mb", 1, INT32_MAX, &memory, err);
    if (r >= 0)
        r = cordon_field_int(body, "disk_mb", 1, INT32_MAX, &disk, err);
    if (r >= 0)
        r = cordon_field_int(body, "disk_inodes", 64, INT32_MAX, &inodes, err);
    if (r >= 0)
        r = cordon_field_int(body, "processes", 4, 32768, &processes, err);
    if (r >= 0)
        r = cordon_field_int(body, "cpu_percent", 1, 100000, &cpu, err);
    create->memory_bytes = (uint64_t)memory << 20;
    create->disk_bytes = (uint64_t)disk << 20;
    create->disk_inodes = (uint32_t)inodes;
    create->pids = (uint32_t)processes;
    create->cpu_percent = (uint32_t)cpu;
    return r;
}

static int read_end(const struct cordon_value *body, struct asked *asked, struct cordon_error *err)
{
    const char *at_end = NULL;
    int r = cordon_guest_seconds(body, "ttl_s", SECONDS_MAX, &asked->create.ttl_ms, err);
    if (r >= 0)
        r = cordon_guest_seconds(body, "idle_pause_s", SECONDS_MAX, &asked->create.idle_pause_ms, err);
    if (r >= 0)
        r = cordon_field_bool(body, "auto_resume", &asked->create.auto_resume, err);
    if (r >= 0)
        r = cordon_field_text(body, "at_end", &asked->memory, &at_end, err);
    if (r > 0 && strcmp(at_end, "pause") == 0)
        asked->create.at_end = CORDON_END_PAUSE;
    else if (r > 0 && strcmp(at_end, "destroy") != 0)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "at_end is \"destroy\" or \"pause\", not \"%.40s\"",
                           at_end);
    return r;
}

/* Unlike the doors of other systems this one refuses what it does not know: nobody may believe to have got it. */
static int refuse_unknown(const struct cordon_value *body, struct cordon_error *err)
{
    static const char *const names[] = {
        "name",        "template",    "backend",   "metadata",        "env",           "memory_mb",
        "disk_mb",     "disk_inodes", "processes", "cpu_percent",     "ttl_s",         "idle_pause_s",
        "auto_resume", "at_end",      "network",   "allowed_domains", "egress_headers"};
    struct cordon_value key, value;
    struct cordon_value_walk walk = cordon_value_walk(body);
    while (cordon_value_next(&walk, &key, &value)) {
        size_t i = 0;
        while (i < sizeof names / sizeof *names && !cordon_value_equals(&key, names[i]))
            i++;
        if (i == sizeof names / sizeof *names)
            return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                               "%.*s is no field of a guest; GET /openapi.json lists them",
                               (int)(key.size < 64 ? key.size : 64), key.data);
    }
    return 0;
}

static int read_asked(const struct cordon_value *body, struct asked *asked, struct cordon_error *err)
{
    struct cordon_guest_create *create = &asked->create;
    struct cordon_guest_network network = {0};
    int r = refuse_unknown(body, err);
    if (r >= 0)
        r = cordon_field_text(body, "name", &asked->memory, &create->name, err);
    if (r >= 0)
        r = cordon_field_text(body, "template", &asked->memory, &create->template_name, err);
    if (r >= 0)
        r = cordon_field_text(body, "backend", &asked->memory, &create->backend, err);
    if (r >= 0)
        r = cordon_field_pairs(body, "metadata", &asked->memory, &asked->metadata, err);
    if (r >= 0)
        r = cordon_field_env(body, "env", &asked->memory, &asked->env, err);
    if (r >= 0)
        r = read_sizes(body, create, err);
    if (r >= 0)
        r = cordon_guest_read_network(body, &asked->memory, &network, err);
    if (r >= 0)
        r = read_end(body, asked, err);
    create->network = network.on;
    create->allowed_domains = network.allowed_domains;
    create->allowed_domain_count = network.allowed_domain_count;
    create->headers = network.headers;
    create->header_count = network.header_count;
    create->metadata = asked->metadata.items;
    create->metadata_count = asked->metadata.count;
    create->env = asked->env.items;
    create->env_count = asked->env.count;
    return r < 0 ? r : 0;
}

static int reply_guest(struct cordon_http_request *request, int status, const struct cordon_guest_info *info,
                       struct cordon_error *err)
{
    struct cordon_guest_reply reply;
    cordon_guest_reply_begin(&reply);
    cordon_guest_write(&reply.json, info);
    return cordon_guest_reply_send(request, status, &reply, err);
}

int cordon_guest_create_post(struct cordon_http_request *request, struct cordon_error *err)
{
    struct asked asked = {
        .create = {.tenant = cordon_guest_tenant(request), .door = CORDON_DOOR_NATIVE, .cancel_fd = request->fd}};
    struct cordon_guest_info *info = NULL;
    struct cordon_value body;
    int r = cordon_fields_parse(&request->body, &body, err);
    if (r == 0)
        r = read_asked(&body, &asked, err);
    if (r == 0)
        r = cordon_guests_create(&asked.create, &info, err);
    if (r >= 0)
        r = reply_guest(request, 201, info, err);
    cordon_guest_info_free(info);
    cordon_door_forget(&asked.memory);
    return r;
}

int cordon_guest_get(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_guest_info *info = NULL;
    int r = cordon_guest_object_of(request, &info, err);
    if (r == 0)
        r = reply_guest(request, 200, info, err);
    cordon_guest_info_free(info);
    return r;
}

/* What a change led to. */
int cordon_guest_reply_now(struct cordon_http_request *request, const char *id, struct cordon_error *err)
{
    struct cordon_guest_info *info = NULL;
    int r = cordon_guests_info(cordon_guest_viewer(request), id, &info, err);
    if (r >= 0)
        r = reply_guest(request, 200, info, err);
    cordon_guest_info_free(info);
    return r;
}

/* What may be left at a service is somebody's to end: that is recorded before it is given up. */
static int forget(struct cordon_http_request *request, const char *id, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    const char *who = request->sees_all ? cordon_admin_who(request) : *request->subject ? request->subject : "local";
    const struct cordon_audit_entry entry = {
        .who = who, .action = "guest.forget", .subject = id, .before = "", .after = ""};
    struct cordon_guest_info *info = NULL;
    int r = cordon_guests_info(cordon_guest_viewer(request), id, &info, err);
    bool gone = r >= 0 && info->condition == CORDON_GUEST_IS_GONE; /* then there is nothing to give up, nor to record */
    cordon_guest_info_free(info);
    if (r >= 0 && !gone)
        r = cordon_audit_add(doors->store, &entry, err);
    if (r >= 0)
        r = cordon_guests_forget(cordon_guest_viewer(request), id, NULL, err);
    return r < 0 ? r : cordon_guest_reply_now(request, id, err);
}

int cordon_guest_delete(struct cordon_http_request *request, struct cordon_error *err)
{
    char id[CORDON_GUEST_ID], asked[8] = "";
    struct cordon_error why = {0};
    ssize_t n = cordon_http_query(request, "forget", asked, sizeof asked);
    bool forgets = n > 0 && strcmp(asked, "true") == 0;
    if (n != -ENOENT && !forgets && strcmp(asked, "false") != 0)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "forget is \"true\" or \"false\"");
    int r = cordon_guest_of(request, id, err);
    if (r == 0 && forgets)
        return forget(request, id, err);
    if (r < 0)
        return r;
    r = cordon_guests_destroy(cordon_guest_viewer(request), id, NULL, &why);
    if (r >= 0)
        return cordon_guest_reply_nothing(request, err);
    *err = why;
    bool stays = why.kind == CORDON_ERROR_UNAVAILABLE || why.kind == CORDON_ERROR_INFRASTRUCTURE;
    return stays && !strstr(why.message, "?forget=true")
               ? cordon_fail(err, r, why.kind, "%.380s; it stays, and DELETE with ?forget=true gives it up",
                             why.message)
               : r;
}

int cordon_guest_pause_post(struct cordon_http_request *request, struct cordon_error *err)
{
    char id[CORDON_GUEST_ID];
    int r = cordon_guest_of(request, id, err);
    if (r == 0)
        r = cordon_guests_pause(cordon_guest_viewer(request), id, NULL, err);
    return r < 0 ? r : cordon_guest_reply_now(request, id, err);
}

int cordon_guest_resume_post(struct cordon_http_request *request, struct cordon_error *err)
{
    char id[CORDON_GUEST_ID];
    uint64_t ttl_ms = CORDON_KEEP;
    struct cordon_value body;
    int r = cordon_guest_of(request, id, err);
    if (r == 0)
        r = cordon_fields_parse(&request->body, &body, err);
    if (r == 0)
        r = cordon_guest_seconds(&body, "ttl_s", SECONDS_MAX, &ttl_ms, err);
    if (r >= 0)
        r = cordon_guests_resume(cordon_guest_viewer(request), id, ttl_ms, NULL, err);
    return r < 0 ? r : cordon_guest_reply_now(request, id, err);
}

int cordon_guest_extend_post(struct cordon_http_request *request, struct cordon_error *err)
{
    char id[CORDON_GUEST_ID];
    uint64_t ttl_ms = 0, idle_ms = 0;
    struct cordon_value body;
    bool later = false;
    int has_ttl = 0, has_idle = 0, r = cordon_guest_of(request, id, err);
    if (r == 0)
        r = cordon_fields_parse(&request->body, &body, err);
    if (r == 0)
        r = has_ttl = cordon_guest_seconds(&body, "ttl_s", SECONDS_MAX, &ttl_ms, err);
    if (r >= 0)
        r = has_idle = cordon_guest_seconds(&body, "idle_pause_s", SECONDS_MAX, &idle_ms, err);
    if (r >= 0)
        r = cordon_field_bool(&body, "only_later", &later, err);
    if (r >= 0 && !has_ttl && !has_idle)
        r = cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "give ttl_s, idle_pause_s or both (0: none)");
    if (r >= 0 && has_ttl)
        r = cordon_guests_extend(cordon_guest_viewer(request), id, ttl_ms, later, err);
    if (r >= 0 && has_idle)
        r = cordon_guests_set_idle_pause(cordon_guest_viewer(request), id, idle_ms, err);
    return r < 0 ? r : cordon_guest_reply_now(request, id, err);
}
