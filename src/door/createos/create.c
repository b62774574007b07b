/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/sandboxes, and what a sandbox may reach. What can't be held is refused, never stored and echoed. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "door/createos/createos.h"

struct new_sandbox {
    struct cordon_door_memory memory;
    const char *name;
    struct cordon_createos_note note;
    const struct cordon_createos_shape *shape;
    struct cordon_createos_egress egress;
    struct cordon_texts env;
    int64_t disk_mib, idle_s;
};

static bool is_empty(const struct cordon_value *value)
{
    struct cordon_value key, member;
    if (value->kind == CORDON_VALUE_STRING)
        return value->size == 2;
    if (value->kind == CORDON_VALUE_BOOL)
        return !cordon_value_true(value);
    if (value->kind != CORDON_VALUE_ARRAY && value->kind != CORDON_VALUE_OBJECT)
        return false;
    struct cordon_value_walk walk = cordon_value_walk(value);
    return !cordon_value_next(&walk, &key, &member);
}

static int refuse_absent(const struct cordon_value *body, struct cordon_error *err)
{
    static const char *const names[] = {"ssh_pubkeys", "networks", "disks",        "ingress_enabled",
                                        "region",      "host_id",  "node_selector"};
    struct cordon_value value;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (cordon_field(body, names[i], &value) && !is_empty(&value))
            return cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_REFUSED,
                               "%s is not offered by this server (cordon); leave it out", names[i]);
    return 0;
}

static int check_name(const char *name, struct cordon_error *err)
{
    size_t size = strlen(name);
    if (size && size <= CORDON_CREATEOS_NAME_MAX &&
        strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == size)
        return 0;
    return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                       "name has %zu characters: 1 to %u letters, digits, dots, dashes and underscores are needed",
                       size, CORDON_CREATEOS_NAME_MAX);
}

static int read_shape(const struct cordon_settings *settings, const struct cordon_value *body, struct new_sandbox *new,
                      struct cordon_error *err)
{
    int r = cordon_field_text(body, "shape", &new->memory, &new->note.shape, err);
    if (r <= 0)
        return r < 0 ? r
                     : cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "shape is missing; GET /v1/shapes lists them");
    new->shape = cordon_createos_shape_find(settings, new->note.shape);
    if (!new->shape)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "there is no shape \"%.64s\"; GET /v1/shapes lists them",
                           new->note.shape);
    new->disk_mib = cordon_createos_shape_disk_mib(settings, new->shape);
    r = cordon_field_int(body, "disk_mib", 1, INT32_MAX, &new->disk_mib, err);
    if (r > 0 && new->disk_mib > new->shape->memory_mib)
        return cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_REFUSED,
                           "disk_mib is %lld: files count as memory here, and the shape %s has %u MiB",
                           (long long)new->disk_mib, new->shape->id, new->shape->memory_mib);
    return r;
}

/* The names of the variables, for the view; their values stay in the guest. */
static int read_env(const struct cordon_value *body, struct new_sandbox *new, struct cordon_error *err)
{
    struct cordon_pairs pairs = {0};
    int r = cordon_field_env(body, "envs", &new->memory, &new->env, err);
    if (r <= 0)
        return r;
    r = cordon_field_pairs(body, "envs", &new->memory, &pairs, err);
    const char **names = cordon_door_take(&new->memory, (pairs.count + 1) * sizeof *names);
    if (!names)
        return cordon_fail_errno(err, -ENOMEM, "reading envs");
    for (size_t i = 0; i < pairs.count; i++)
        names[i] = pairs.items[i].key;
    new->note.envs = (struct cordon_texts){names, pairs.count};
    return r;
}

static int read_egress(const struct cordon_value *body, struct cordon_door_memory *memory, struct cordon_texts *list,
                       struct cordon_createos_egress *ret, struct cordon_error *err)
{
    int r = cordon_field_texts(body, "egress", memory, list, err);
    return r < 0 ? r : cordon_createos_egress_read(list, ret, err);
}

static int read_new(const struct cordon_settings *settings, const struct cordon_value *body, struct new_sandbox *new,
                    struct cordon_error *err)
{
    new->note.rootfs = CORDON_CREATEOS_ROOTFS;
    int r = refuse_absent(body, err);
    if (r == 0)
        r = read_shape(settings, body, new, err);
    if (r >= 0)
        r = cordon_field_text(body, "rootfs", &new->memory, &new->note.rootfs, err);
    if (r >= 0)
        r = cordon_field_text(body, "name", &new->memory, &new->name, err);
    if (r > 0)
        r = check_name(new->name, err);
    if (r >= 0)
        r = read_env(body, new, err);
    if (r >= 0)
        r = read_egress(body, &new->memory, &new->note.egress, &new->egress, err);
    if (r >= 0)
        r = cordon_field_int(body, "auto_pause_after_seconds", CORDON_CREATEOS_IDLE_MIN_S, CORDON_CREATEOS_IDLE_MAX_S,
                             &new->idle_s, err);
    return r < 0 ? r : 0;
}

/* Who asked for nothing gets what the operator lets everybody have. */
static bool network_of(const struct cordon_settings *settings, const struct cordon_createos_egress *egress)
{
    if (egress->named)
        return egress->on;
    return cordon_settings_bool(settings, CORDON_DOOR_CREATEOS, CORDON_SET_ALLOW_NETWORK);
}

static int make_guest(const struct cordon_http_request *request, const struct new_sandbox *new,
                      struct cordon_bytes private_data, struct cordon_guest_info **ret, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    bool rules = new->egress.named &&new->egress.on && !new->egress.all;
    const struct cordon_guest_create create = {
        .tenant = request->subject,
        .door = CORDON_DOOR_CREATEOS,
        .template_name = strcmp(new->note.rootfs, CORDON_CREATEOS_ROOTFS) == 0 ? NULL : new->note.rootfs,
        .name = new->name,
        .env = new->env.items,
        .env_count = new->env.count,
        .memory_bytes = (uint64_t) new->shape->memory_mib << 20,
        .disk_bytes = (uint64_t) new->disk_mib << 20,
        .cpu_percent = new->shape->vcpu * 100,
        .network = network_of(doors->settings, &new->egress),
        .allowed_domains = rules ? new->egress.rules.items : NULL,
        .allowed_domain_count = rules ? new->egress.rules.count : 0,
        .idle_pause_ms = (uint64_t) new->idle_s * 1000,
        .private_data = private_data,
        .cancel_fd = request->fd,
    };
    return cordon_guests_create(&create, ret, err);
}

static int write_note(const struct cordon_createos_note *note, struct cordon_buf *to, struct cordon_error *err)
{
    cordon_createos_note_write(note, to);
    return to->failed ? cordon_fail(err, -EMSGSIZE, CORDON_ERROR_TOO_LARGE, "egress and envs together are too long")
                      : 0;
}

static int reply_created(struct cordon_http_request *request, const struct new_sandbox *new,
                         const struct cordon_guest_info *guest, uint64_t spawn_us, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(1u << 20);
    struct cordon_json json = {.buf = &body};
    cordon_createos_begin(&json);
    cordon_json_object_begin(&json);
    const struct cordon_pair texts[] = {
        {"id", guest->id},     {"status", "running"}, /* newer clients of the vendor's demand it */
        {"name", guest->name}, {"ip", "127.0.0.1"},   {"shape", new->note.shape}, {"rootfs", new->note.rootfs}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        cordon_json_key(&json, texts[i].key);
        cordon_json_text(&json, texts[i].value);
    }
    const struct {
        const char *key;
        uint64_t value;
    } numbers[] = {{"vcpu", new->shape->vcpu},
                   {"mem_mib", guest->limits.memory_bytes >> 20},
                   {"disk_mib", guest->limits.disk_bytes >> 20},
                   {"spawn_ms", spawn_us / 1000},
                   {"bandwidth_quota_bytes", 0}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        cordon_json_key(&json, numbers[i].key);
        cordon_json_uint(&json, numbers[i].value);
    }
    cordon_createos_tell_egress(&json, guest, &new->note);
    cordon_json_object_end(&json);
    return cordon_createos_reply(request, &json, err);
}

int cordon_createos_create(struct cordon_http_request *request, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    struct new_sandbox new = {0};
    struct cordon_buf note = CORDON_BUF_INIT(CORDON_GUEST_PRIVATE_MAX);
    struct cordon_guest_info *guest = NULL;
    struct cordon_value body;
    uint64_t began_us = cordon_now_us();
    int r = cordon_fields_parse(&request->body, &body, err);
    if (r == 0)
        r = read_new(doors->settings, &body, &new, err);
    if (r == 0)
        r = write_note(&new.note, &note, err);
    if (r == 0)
        r = make_guest(request, &new, (struct cordon_bytes){note.data, note.size}, &guest, err);
    if (r == 0)
        r = reply_created(request, &new, guest, cordon_now_us() - began_us, err);
    cordon_buf_done(&note);
    cordon_guest_info_free(guest);
    cordon_door_forget(&new.memory);
    return r;
}

static int reply_egress(struct cordon_http_request *request, const char *id, struct cordon_error *err)
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
        cordon_json_object_begin(&json);
        cordon_json_key(&json, "id");
        cordon_json_text(&json, id);
        cordon_createos_tell_egress(&json, guest, &note);
        cordon_json_object_end(&json);
        r = cordon_createos_reply(request, &json, err);
    }
    cordon_guest_info_free(guest);
    return r;
}

int cordon_createos_egress_get(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_guest_info *guest;
    int r = cordon_createos_find(request, true, &guest, err);
    if (r < 0)
        return r;
    r = reply_egress(request, guest->id, err);
    cordon_guest_info_free(guest);
    return r;
}

static int change_egress(struct cordon_http_request *request, const struct cordon_guest_info *guest,
                         const struct cordon_texts *list, const struct cordon_createos_egress *egress,
                         struct cordon_error *err)
{
    cordon_autoforget struct cordon_door_memory memory = {0};
    const struct cordon_doors *doors = request->context;
    struct cordon_createos_note note;
    struct cordon_buf data = CORDON_BUF_INIT(CORDON_GUEST_PRIVATE_MAX);
    bool rules = egress->named && egress->on && !egress->all;
    struct cordon_guest_network set = {.on = network_of(doors->settings, egress),
                                       .allowed_domains = rules ? list->items : NULL,
                                       .allowed_domain_count = rules ? list->count : 0};
    int r = cordon_createos_note_read(guest->private_data, &memory, &note, err);
    note.egress = *list;
    if (r == 0)
        r = write_note(&note, &data, err);
    set.private_data = (struct cordon_bytes){data.data, data.size};
    if (r == 0)
        r = cordon_guests_set_network(request->subject, guest->id, &set, err);
    cordon_buf_done(&data);
    if (r < 0 && err->kind == CORDON_ERROR_UNSUPPORTED)
        err->kind = CORDON_ERROR_REFUSED; /* what can't be held is refused, whoever can't hold it */
    return r;
}

int cordon_createos_egress_put(struct cordon_http_request *request, struct cordon_error *err)
{
    cordon_autoforget struct cordon_door_memory memory = {0};
    struct cordon_createos_egress egress;
    struct cordon_texts list = {0};
    struct cordon_guest_info *guest;
    struct cordon_value body;
    int r = cordon_fields_parse(&request->body, &body, err);
    if (r == 0)
        r = read_egress(&body, &memory, &list, &egress, err);
    if (r == 0)
        r = cordon_createos_find(request, true, &guest, err);
    if (r < 0)
        return r;
    r = change_egress(request, guest, &list, &egress, err);
    if (r == 0)
        r = reply_egress(request, guest->id, err);
    cordon_guest_info_free(guest);
    return r;
}
