/* SPDX-License-Identifier: Apache-2.0 */
/* The envelope, errors, and sandboxes as this door tells them. Optional fields are left out, never null. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "core/run.h"
#include "door/createos/createos.h"
#include "door/json_time.h"

void cordon_createos_begin(struct cordon_json *json)
{
    cordon_json_object_begin(json);
    cordon_json_key(json, "status");
    cordon_json_text(json, "success");
    cordon_json_key(json, "data");
}

/* For whoever compares a client's log with ours. */
static void add_request_id(struct cordon_http_request *request)
{
    unsigned char bytes[8] = {0};
    char text[2 * sizeof bytes + 1];
    if (getrandom(bytes, sizeof bytes, GRND_NONBLOCK) != (ssize_t)sizeof bytes)
        return; /* it is only a help */
    for (size_t i = 0; i < sizeof bytes; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", bytes[i]); /* fits */
    cordon_http_reply_header(request, "x-request-id", text);
}

int cordon_createos_reply(struct cordon_http_request *request, struct cordon_json *json, struct cordon_error *err)
{
    cordon_json_object_end(json);
    add_request_id(request);
    int r = cordon_http_reply(request, 200, "application/json", json->buf);
    return r < 0 ? cordon_fail_errno(err, r, "writing the answer to %s", request->match.route->pattern) : 0;
}

/* What policy refuses can't be enforced here: 422. */
static int status_of(const struct cordon_http_request *request, const struct cordon_error *err)
{
    switch (err->kind) {
    case CORDON_ERROR_REFUSED:
        return 422;
    case CORDON_ERROR_GONE:
        return 409;
    default:
        return cordon_http_error_status(request, err);
    }
}

static void write_fail(struct cordon_json *json, const struct cordon_error *err)
{
    cordon_json_key(json, "status");
    cordon_json_text(json, "fail");
    cordon_json_key(json, "data");
    cordon_json_object_begin(json);
    cordon_json_key(json, "code");
    cordon_json_text(json, cordon_error_name(err->kind));
    cordon_json_key(json, "message");
    cordon_json_text(json, err->message);
    cordon_json_object_end(json);
}

int cordon_createos_reply_error(struct cordon_http_request *request, const struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(16384);
    struct cordon_json json = {.buf = &body};
    int status = status_of(request, err);
    add_request_id(request);
    if (err->kind == CORDON_ERROR_QUOTA) {
        char seconds[24];
        cordon_http_reply_header(request, "Retry-After", cordon_log_number(seconds, cordon_guests_retry_after_s(err)));
    }
    cordon_json_object_begin(&json);
    if (status < 500) {
        write_fail(&json, err);
    } else {
        cordon_json_key(&json, "status");
        cordon_json_text(&json, "error");
        cordon_json_key(&json, "message");
        cordon_json_text(&json, err->message);
        cordon_json_key(&json, "code");
        cordon_json_int(&json, status);
    }
    cordon_json_object_end(&json);
    return cordon_http_reply(request, status, "application/json", &body);
}

static void moment(struct cordon_json *json, const char *key, int64_t us)
{
    if (!us)
        return;
    cordon_json_key(json, key);
    cordon_json_time(json, us);
}

static void list(struct cordon_json *json, const char *key, const char *const *items, size_t count)
{
    cordon_json_key(json, key);
    cordon_json_array_begin(json);
    for (size_t i = 0; i < count; i++)
        cordon_json_text(json, items[i]);
    cordon_json_array_end(json);
}

/* failed: it ended by no wish of its owner. */
static const char *status_name(const struct cordon_guest_info *guest)
{
    if (guest->condition == CORDON_GUEST_IS_RUNNING)
        return "running";
    if (guest->condition == CORDON_GUEST_IS_PAUSED)
        return "paused";
    bool wished =
        strcmp(guest->cause, "destroyed") == 0 || strcmp(guest->cause, "ttl") == 0 || strcmp(guest->cause, "idle") == 0;
    return wished ? "destroyed" : "failed";
}

/* Does what the client gave hold, or has somebody changed it by another door? Clients compare it before they use a
 * sandbox again. */
static bool still_holds(const struct cordon_guest_info *guest, const struct cordon_createos_note *note)
{
    struct cordon_createos_egress egress;
    if (cordon_createos_egress_read(&note->egress, &egress, NULL) < 0 || guest->network != egress.on)
        return false;
    size_t count = egress.on && !egress.all ? egress.rules.count : 0;
    bool same = guest->allowed_domain_count == count;
    for (size_t i = 0; same && i < count; i++)
        same = strcmp(guest->allowed_domains[i], egress.rules.items[i]) == 0;
    return same;
}

void cordon_createos_tell_egress(struct cordon_json *json, const struct cordon_guest_info *guest,
                                 const struct cordon_createos_note *note)
{
    static const char *const nothing[] = {CORDON_CREATEOS_DENY_ALL}, *const everything[] = {"*"};
    if (note->egress.count && still_holds(guest, note))
        list(json, "egress", note->egress.items, note->egress.count);
    else if (guest->network && guest->allowed_domain_count)
        list(json, "egress", guest->allowed_domains, guest->allowed_domain_count);
    else
        list(json, "egress", guest->network ? everything : nothing, 1);
}

void cordon_createos_tell_view(struct cordon_json *json, const struct cordon_guest_info *guest,
                               const struct cordon_createos_note *note)
{
    cordon_json_object_begin(json);
    cordon_json_pair_text(json, "id", guest->id);
    cordon_json_pair_text(json, "status", status_name(guest));
    cordon_json_pair_text(json, "ip",
                          "127.0.0.1"); /* it has no other: nothing reaches a guest but through this daemon */
    cordon_json_pair_uint(json, "vcpu", guest->limits.cpu_percent ? (guest->limits.cpu_percent + 99) / 100 : 1);
    cordon_json_pair_uint(json, "mem_mib", guest->limits.memory_bytes >> 20);
    cordon_json_pair_uint(json, "disk_mib", guest->limits.disk_bytes >> 20);
    moment(json, "created_at", guest->created_us);
    cordon_json_key(json, "ingress_enabled");
    cordon_json_bool(json, false);
    if (*guest->name)
        cordon_json_pair_text(json, "name", guest->name);
    moment(json, "running_at", guest->started_us);
    moment(json, "destroyed_at", guest->gone_us);
    cordon_json_pair_text(json, "shape", note->shape);
    cordon_json_pair_text(json, "rootfs", note->rootfs);
    cordon_createos_tell_egress(json, guest, note);
    if (note->envs.count)
        list(json, "envs", note->envs.items, note->envs.count);
    moment(json, "paused_at", guest->condition == CORDON_GUEST_IS_PAUSED ? guest->paused_us : 0);
    moment(json, "last_resumed_at", guest->started_us > guest->created_us ? guest->started_us : 0);
    if (guest->idle_pause_ms)
        cordon_json_pair_uint(json, "auto_pause_after_seconds", guest->idle_pause_ms / 1000);
    if (guest->condition == CORDON_GUEST_IS_GONE)
        cordon_json_pair_text(json, "error", guest->reason);
    cordon_json_pair_text(json, "isolation", cordon_isolation_name(guest->isolation)); /* ours: the truth of it */
    cordon_json_object_end(json);
}

int cordon_createos_find(const struct cordon_http_request *request, bool living, struct cordon_guest_info **ret,
                         struct cordon_error *err)
{
    char id[64];
    struct cordon_guest_info *guest;
    if (cordon_http_param(request, 0, id, sizeof id) < 0)
        return cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND, "the sandbox's id can't be read");
    int r = cordon_guests_info(request->subject, id, &guest, err);
    if (r < 0)
        return r;
    if (guest->door != CORDON_DOOR_CREATEOS)
        r = cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND, "the sandbox %s was not made through this interface", id);
    else if (living && guest->condition == CORDON_GUEST_IS_GONE)
        r = cordon_fail(err, -EBUSY, CORDON_ERROR_CONFLICT, "the sandbox %s has ended: %s", id, guest->reason);
    if (r < 0) {
        cordon_guest_info_free(guest);
        return r;
    }
    *ret = guest;
    return 0;
}

int cordon_createos_reply_view(struct cordon_http_request *request, const char *id, struct cordon_error *err)
{
    cordon_autoforget struct cordon_door_memory memory = {0};
    struct cordon_createos_note note;
    struct cordon_guest_info *guest;
    int r = cordon_guests_info(request->subject, id, &guest, err);
    if (r < 0)
        return r;
    r = cordon_createos_note_read(guest->private_data, &memory, &note, err);
    if (r == 0) {
        struct cordon_buf body = CORDON_BUF_INIT(1u << 20);
        struct cordon_json json = {.buf = &body};
        cordon_createos_begin(&json);
        cordon_createos_tell_view(&json, guest, &note);
        r = cordon_createos_reply(request, &json, err);
    }
    cordon_guest_info_free(guest);
    return r;
}

void cordon_createos_note_write(const struct cordon_createos_note *note, struct cordon_buf *to)
{
    struct cordon_json json = {.buf = to};
    cordon_json_object_begin(&json);
    cordon_json_pair_text(&json, "shape", note->shape);
    cordon_json_pair_text(&json, "rootfs", note->rootfs);
    list(&json, "egress", note->egress.items, note->egress.count);
    list(&json, "envs", note->envs.items, note->envs.count);
    cordon_json_object_end(&json);
}

int cordon_createos_note_read(struct cordon_bytes data, struct cordon_door_memory *memory,
                              struct cordon_createos_note *ret, struct cordon_error *err)
{
    struct cordon_value object;
    *ret = (struct cordon_createos_note){.shape = "", .rootfs = ""};
    if (!data.size) /* of one that is gone */
        return 0;
    int r = cordon_value_parse(data.data, data.size, &object, err);
    if (r >= 0)
        r = cordon_field_text(&object, "shape", memory, &ret->shape, err);
    if (r >= 0)
        r = cordon_field_text(&object, "rootfs", memory, &ret->rootfs, err);
    if (r >= 0)
        r = cordon_field_texts(&object, "egress", memory, &ret->egress, err);
    if (r >= 0)
        r = cordon_field_texts(&object, "envs", memory, &ret->envs, err);
    return r < 0 ? r : 0;
}
