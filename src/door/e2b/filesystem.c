/* SPDX-License-Identifier: Apache-2.0 */
/* envd's filesystem service. Each path is walked in the guest only, as the named user. */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "door/e2b/envd.h"
#include "door/json_time.h"

#define DEPTH_MAX 64

static const char *type_name(enum cordon_file_type type)
{
    switch (type) {
    case CORDON_FILE_DIRECTORY:
        return "FILE_TYPE_DIRECTORY";
    case CORDON_FILE_LINK:
        return "FILE_TYPE_SYMLINK";
    default:
        return "FILE_TYPE_FILE"; /* devices, sockets, pipes, too: clients drop what has none */
    }
}

static void permissions(const struct cordon_file_entry *entry, char to[11])
{
    static const char bits[] = "rwxrwxrwx";
    to[0] = entry->type == CORDON_FILE_DIRECTORY ? 'd' : entry->type == CORDON_FILE_LINK ? 'l' : '-';
    for (size_t i = 0; i < 9; i++)
        to[i + 1] = entry->mode >> (8 - i) & 1 ? bits[i] : '-';
    to[10] = '\0';
}

static void text(struct cordon_json *json, const char *key, const char *value)
{
    cordon_json_key(json, key);
    cordon_json_text(json, value ? value : "");
}

void cordon_e2b_tell_entry(struct cordon_json *json, const struct cordon_file_entry *entry)
{
    char mode[11], size[24];
    permissions(entry, mode);
    cordon_json_object_begin(json);
    text(json, "name", entry->name);
    text(json, "type", type_name(entry->type));
    text(json, "path", entry->path);
    text(json, "size", cordon_log_number(size, (long long)entry->size)); /* 64-bit numbers are texts there */
    cordon_json_key(json, "mode");
    cordon_json_uint(json, entry->mode);
    text(json, "permissions", mode);
    text(json, "owner", entry->owner);
    text(json, "group", entry->group);
    cordon_json_key(json, "modifiedTime");
    cordon_json_time(json, entry->modified_ns / 1000);
    if (entry->target)
        text(json, "symlinkTarget", entry->target);
    cordon_json_object_end(json);
}

/* A call about one path. */
static int read_call(struct cordon_http_request *request, enum cordon_operation_kind kind, const char *path_name,
                     struct cordon_door_memory *memory, struct cordon_value *message,
                     struct cordon_operation *operation, struct cordon_error *err)
{
    *operation = (struct cordon_operation){.struct_size = sizeof *operation, .kind = kind, .cancel_fd = request->fd};
    int r = cordon_e2b_message(request, message, err);
    if (r == 0)
        r = cordon_e2b_user(request, &operation->user, err);
    return r < 0 ? r : cordon_e2b_path_field(message, path_name, memory, &operation->path, err);
}

static void tell_one(void *context, const struct cordon_file_entry *entry)
{
    struct cordon_json *json = context;
    cordon_json_key(json, "entry");
    cordon_e2b_tell_entry(json, entry);
}

/* Does it, and answers {"entry":…}. */
static int answer_entry(struct cordon_http_request *request, const struct cordon_operation *operation,
                        struct cordon_error *err)
{
    const struct cordon_guest_info *guest = cordon_e2b_visit(request)->guest;
    struct cordon_buf body = CORDON_BUF_INIT(65536);
    struct cordon_json json = {.buf = &body};
    cordon_json_object_begin(&json);
    int r = cordon_guests_file(guest->tenant, guest->id, operation, tell_one, &json, err);
    cordon_json_object_end(&json);
    if (r >= 0)
        return cordon_e2b_answer(request, &body, err);
    cordon_buf_done(&body);
    return r;
}

static int simple(struct cordon_http_request *request, enum cordon_operation_kind kind, struct cordon_error *err)
{
    cordon_autoforget struct cordon_door_memory memory = {0};
    struct cordon_value message;
    struct cordon_operation operation;
    int r = read_call(request, kind, "path", &memory, &message, &operation, err);
    return r < 0 ? r : answer_entry(request, &operation, err);
}

int cordon_e2b_fs_stat(struct cordon_http_request *request, struct cordon_error *err)
{
    return simple(request, CORDON_OP_STAT, err);
}

int cordon_e2b_fs_mkdir(struct cordon_http_request *request, struct cordon_error *err)
{
    return simple(request, CORDON_OP_MKDIR, err);
}

int cordon_e2b_fs_move(struct cordon_http_request *request, struct cordon_error *err)
{
    cordon_autoforget struct cordon_door_memory memory = {0};
    struct cordon_value message;
    struct cordon_operation operation;
    int r = read_call(request, CORDON_OP_MOVE, "source", &memory, &message, &operation, err);
    if (r == 0)
        r = cordon_e2b_path_field(&message, "destination", &memory, &operation.target, err);
    return r < 0 ? r : answer_entry(request, &operation, err);
}

int cordon_e2b_fs_remove(struct cordon_http_request *request, struct cordon_error *err)
{
    cordon_autoforget struct cordon_door_memory memory = {0};
    const struct cordon_guest_info *guest = cordon_e2b_visit(request)->guest;
    struct cordon_value message;
    struct cordon_operation operation;
    int r = read_call(request, CORDON_OP_REMOVE, "path", &memory, &message, &operation, err);
    if (r == 0)
        r = cordon_guests_file(guest->tenant, guest->id, &operation, NULL, NULL, err);
    return r < 0 ? r : cordon_e2b_answer_empty(request, err);
}

static int collect_entries(const struct cordon_guest_info *guest, const struct cordon_operation *operation,
                           struct cordon_json *json, struct cordon_error *err)
{
    struct cordon_live_stream *stream;
    struct cordon_stream_event event;
    bool ended = false;
    int r = cordon_guests_open(guest->tenant, guest->id, operation, &stream, err);
    if (r < 0)
        return r;
    do {
        r = cordon_guests_next(stream, -1, &event, &ended, err);
        if (r > 0 && event.type == CORDON_STREAM_ENTRY)
            cordon_e2b_tell_entry(json, event.entry);
    } while (r >= 0 && !ended && !(r > 0 && event.type == CORDON_STREAM_END));
    cordon_guests_close(stream);
    return r < 0 ? r : 0;
}

int cordon_e2b_fs_list(struct cordon_http_request *request, struct cordon_error *err)
{
    cordon_autoforget struct cordon_door_memory memory = {0};
    struct cordon_value message;
    struct cordon_operation operation;
    int64_t depth = 0;
    int r = read_call(request, CORDON_OP_LIST, "path", &memory, &message, &operation, err);
    if (r == 0)
        r = cordon_field_int(&message, "depth", 0, UINT32_MAX, &depth, err);
    if (r < 0)
        return r;
    operation.depth = (uint32_t)(depth > DEPTH_MAX ? DEPTH_MAX : depth);
    struct cordon_buf body = CORDON_BUF_INIT(32u << 20);
    struct cordon_json json = {.buf = &body};
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "entries");
    cordon_json_array_begin(&json);
    r = collect_entries(cordon_e2b_visit(request)->guest, &operation, &json, err);
    cordon_json_array_end(&json);
    cordon_json_object_end(&json);
    if (r == 0)
        return cordon_e2b_answer(request, &body, err);
    cordon_buf_done(&body);
    return r;
}
