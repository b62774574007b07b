/* SPDX-License-Identifier: Apache-2.0 */
/* What each key may have, and has now. The limits are settings, the same for every key. */
#include <errno.h>
#include <stdlib.h>

#include "core/guests.h"
#include "door/admin/admin.h"

#define MIB (UINT64_C(1) << 20)

/* The keys are listed first: what they have is asked with another lock than the store's held. */
struct keys {
    struct cordon_key_info *list;
    size_t count, room;
};

static int add_key(void *context, const struct cordon_key_info *key)
{
    struct keys *keys = context;
    if (key->revoked_s)
        return 0;
    if (keys->count == keys->room) {
        size_t room = keys->room ? keys->room * 2 : 64;
        struct cordon_key_info *list = reallocarray(keys->list, room, sizeof *list);
        if (!list)
            return -ENOMEM;
        keys->list = list;
        keys->room = room;
    }
    keys->list[keys->count++] = *key;
    return 0;
}

static const struct {
    const char *name;
    enum cordon_setting setting;
} limits[] = {{"runs", CORDON_SET_KEY_RUNS},
              {"guests", CORDON_SET_KEY_GUESTS},
              {"memory_mb", CORDON_SET_KEY_MEMORY_MB},
              {"rate_per_minute", CORDON_SET_KEY_RATE}};

static int64_t limit_of(const struct cordon_settings *settings, enum cordon_setting id)
{
    return cordon_settings_int(settings, CORDON_DOOR_NATIVE, id);
}

static void write_limits(struct cordon_json *json, const struct cordon_settings *settings)
{
    cordon_json_key(json, "limits");
    cordon_json_object_begin(json);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        int64_t most = limit_of(settings, limits[i].setting);
        cordon_json_key(json, limits[i].name);
        if (most)
            cordon_json_int(json, most);
        else
            cordon_json_null(json);
    }
    cordon_json_object_end(json);
}

static void write_use(struct cordon_json *json, const struct cordon_settings *settings,
                      const struct cordon_key_info *key)
{
    struct cordon_quota_use use;
    cordon_quota_read(key->id, &use);
    const struct {
        const char *name, *text;
    } texts[] = {{"id", key->id}, {"name", key->name}, {"scope", cordon_key_scope_name(key->scope)}};
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {{"runs", use.runs}, {"guests", use.guests}, {"memory_mb", use.memory_bytes / MIB}};
    cordon_json_object_begin(json);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        cordon_json_key(json, texts[i].name);
        cordon_json_text(json, texts[i].text);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        cordon_json_key(json, numbers[i].name);
        cordon_json_uint(json, numbers[i].value);
    }
    cordon_json_key(json, "rate_left");
    if (limit_of(settings, CORDON_SET_KEY_RATE))
        cordon_json_uint(json, use.rate_left);
    else
        cordon_json_null(json);
    cordon_json_object_end(json);
}

int cordon_admin_quotas_get(struct cordon_http_request *request, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    struct keys keys = {0};
    int r = cordon_key_list(doors->store, add_key, &keys, err);
    if (r < 0) {
        free(keys.list);
        return r == -ENOMEM ? cordon_fail_errno(err, r, "listing the keys") : r;
    }
    struct cordon_buf body = CORDON_BUF_INIT(16u << 20);
    struct cordon_json json = {.buf = &body};
    cordon_json_object_begin(&json);
    write_limits(&json, doors->settings);
    cordon_json_key(&json, "keys");
    cordon_json_array_begin(&json);
    for (size_t i = 0; i < keys.count; i++)
        write_use(&json, doors->settings, &keys.list[i]);
    cordon_json_array_end(&json);
    cordon_json_object_end(&json);
    free(keys.list);
    return cordon_admin_reply(request, &body, err);
}
