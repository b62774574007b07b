/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "core/run.h"
#include "door/guests/guests.h"
#include "door/json_time.h"

const char *cordon_guest_tenant(const struct cordon_http_request *request)
{
    return request->subject;
}

const char *cordon_guest_viewer(const struct cordon_http_request *request)
{
    bool local = request->peer_uid >= 0 && !request->subject[0];
    if (request->sees_all && request->looks_only)
        return cordon_guests_look;
    return local || request->sees_all ? cordon_guests_all : request->subject;
}

int cordon_guest_object_of(const struct cordon_http_request *request, struct cordon_guest_info **ret,
                           struct cordon_error *err)
{
    char name[CORDON_GUEST_NAME_MAX + 1];
    struct cordon_error why = {0};
    int r = cordon_http_param(request, 0, name, sizeof name);
    if (r < 0)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "the guest's id or name in the path is malformed");
    r = cordon_guests_info(cordon_guest_viewer(request), name, ret, &why);
    /* Names are each tenant's own: for an operator the one without a key comes first. */
    if (r < 0 && why.kind == CORDON_ERROR_NOT_FOUND)
        r = cordon_guests_find(cordon_guest_tenant(request), name, ret, &why);
    if (r < 0 && why.kind == CORDON_ERROR_NOT_FOUND && cordon_guest_viewer(request) != request->subject)
        r = cordon_guests_find(cordon_guests_all, name, ret, &why);
    if (r < 0 && err)
        *err = why;
    return r < 0 ? r : 0;
}

int cordon_guest_of(const struct cordon_http_request *request, char id[CORDON_GUEST_ID], struct cordon_error *err)
{
    struct cordon_guest_info *info = NULL;
    int r = cordon_guest_object_of(request, &info, err);
    if (r == 0)
        memcpy(id, info->id, CORDON_GUEST_ID);
    cordon_guest_info_free(info);
    return r;
}

static void pair(struct cordon_json *json, const char *key, const char *text)
{
    cordon_json_key(json, key);
    cordon_json_text(json, text && *text ? text : NULL);
}

static void time_of(struct cordon_json *json, const char *key, int64_t us)
{
    cordon_json_key(json, key);
    if (us)
        cordon_json_time(json, us);
    else
        cordon_json_null(json);
}

static const char *state_of(const struct cordon_guest_info *info)
{
    return info->condition == CORDON_GUEST_IS_RUNNING  ? "running"
           : info->condition == CORDON_GUEST_IS_PAUSED ? "paused"
                                                       : "gone";
}

void cordon_guest_write_network(struct cordon_json *json, const struct cordon_guest_info *info)
{
    cordon_json_key(json, "network");
    cordon_json_bool(json, info->network);
    cordon_json_key(json, "allowed_domains");
    cordon_json_array_begin(json);
    for (size_t i = 0; i < info->allowed_domain_count; i++)
        cordon_json_text(json, info->allowed_domains[i]);
    cordon_json_array_end(json);
    cordon_json_key(json, "egress_headers");
    cordon_json_uint(json, info->header_count);
}

static void write_end(struct cordon_json *json, const struct cordon_guest_info *info)
{
    time_of(json, "ends_at", info->ends_us);
    pair(json, "at_end", info->at_end == CORDON_END_PAUSE ? "pause" : "destroy");
    cordon_json_pair_uint(json, "idle_pause_s", info->idle_pause_ms / 1000);
    cordon_json_key(json, "auto_resume");
    cordon_json_bool(json, info->auto_resume);
    time_of(json, "gone_at", info->gone_us);
    pair(json, "cause", info->cause);
    pair(json, "reason", info->reason);
    pair(json, "remote_id", info->remote);
}

void cordon_guest_write(struct cordon_json *json, const struct cordon_guest_info *info)
{
    cordon_json_object_begin(json);
    pair(json, "id", info->id);
    pair(json, "name", info->name);
    pair(json, "key", info->tenant);
    pair(json, "state", state_of(info));
    pair(json, "template", info->template_name);
    pair(json, "backend", info->backend);
    pair(json, "isolation", cordon_isolation_name(info->isolation));
    cordon_json_key(json, "metadata");
    cordon_json_object_begin(json);
    for (size_t i = 0; i < info->metadata_count; i++) {
        cordon_json_key(json, info->metadata[i].key);
        cordon_json_text(json, info->metadata[i].value);
    }
    cordon_json_object_end(json);
    cordon_guest_write_network(json, info);
    cordon_json_pair_uint(json, "memory_mb", info->limits.memory_bytes >> 20);
    cordon_json_pair_uint(json, "disk_mb", info->limits.disk_bytes >> 20);
    cordon_json_pair_uint(json, "cpu_percent", info->limits.cpu_percent);
    time_of(json, "created_at", info->created_us);
    time_of(json, "started_at", info->started_us);
    time_of(json, "paused_at", info->paused_us);
    time_of(json, "active_at", info->active_us);
    write_end(json, info);
    cordon_json_object_end(json);
}

int cordon_guest_seconds(const struct cordon_value *object, const char *name, double max_s, uint64_t *ret_ms,
                         struct cordon_error *err)
{
    struct cordon_value value;
    double seconds;
    if (!cordon_field(object, name, &value))
        return 0;
    if (value.kind != CORDON_VALUE_NUMBER || !cordon_value_number(&value, &seconds) || seconds < 0 || seconds > max_s)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "%s must be a number of seconds from 0 to %.0f; it is %.*s", name, max_s,
                           (int)(value.size < 32 ? value.size : 32), value.data);
    *ret_ms = (uint64_t)(seconds * 1000 + .5);
    return 1;
}

void cordon_guest_reply_begin(struct cordon_guest_reply *reply)
{
    *reply = (struct cordon_guest_reply){.body = CORDON_BUF_INIT(256u << 20)};
    reply->json.buf = &reply->body;
}

int cordon_guest_reply_send(struct cordon_http_request *request, int status, struct cordon_guest_reply *reply,
                            struct cordon_error *err)
{
    (void)cordon_buf_append(&reply->body, "\n", 1); /* sticky, seen by the reply */
    int r = cordon_http_reply(request, status, "application/json", &reply->body);
    return r < 0 ? cordon_fail_errno(err, r, "writing the answer") : 0;
}

int cordon_guest_reply_nothing(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(1);
    int r = cordon_http_reply(request, 204, NULL, &body);
    return r < 0 ? cordon_fail_errno(err, r, "writing the answer") : 0;
}
