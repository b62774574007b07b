/* SPDX-License-Identifier: Apache-2.0 */
/* E2B's templates: the SDKs' own names, which are the default one, and those that `cordon template` made. They are made
 * and removed there; building over HTTP is absent. */
#include <errno.h>
#include <string.h>

#include "door/e2b/control.h"
#include "door/json_time.h"
#include "door/templates.h"

static const char *const own_names[] = {"base", "code-interpreter-v1"};

bool cordon_e2b_template_is_own(const char *name)
{
    for (size_t i = 0; i < sizeof own_names / sizeof *own_names; i++)
        if (strcmp(own_names[i], name) == 0)
            return true;
    return false;
}

struct telling {
    const struct cordon_doors *doors;
    struct cordon_json *json;
};

static uint64_t setting(const struct telling *to, enum cordon_setting id)
{
    return (uint64_t)cordon_settings_int(to->doors->settings, CORDON_DOOR_E2B, id);
}

/* What a sandbox of it gets, as long as nothing else is asked for. */
static void tell_size(const struct telling *to)
{
    uint64_t percent = setting(to, CORDON_SET_CPU_PERCENT);
    cordon_json_pair_uint(to->json, "cpuCount", percent ? (percent + 99) / 100 : 1);
    cordon_json_pair_uint(to->json, "memoryMB", setting(to, CORDON_SET_GUEST_MEMORY_MB));
    cordon_json_pair_uint(to->json, "diskSizeMB", setting(to, CORDON_SET_GUEST_DISK_MB));
}

static void tell_names(struct cordon_json *json, const char *name)
{
    static const char *const keys[] = {"aliases", "names"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        cordon_json_key(json, keys[i]);
        cordon_json_array_begin(json);
        cordon_json_text(json, name);
        cordon_json_array_end(json);
    }
}

/* header NULL: one of the SDKs' own. */
static void tell(const struct telling *to, const char *name, const struct cordon_template_header *header)
{
    static const unsigned char none[CORDON_TEMPLATE_DIGEST];
    struct cordon_json *json = to->json;
    char build[65];
    int64_t made_us = header ? header->created_s * 1000000 : 0;
    cordon_template_hex(header ? header->digest : none, build);
    cordon_json_object_begin(json);
    cordon_json_pair_text(json, "templateID", name);
    cordon_json_pair_text(json, "buildID", build);
    cordon_json_pair_text(json, "buildStatus", "ready");
    tell_size(to);
    cordon_json_key(json, "public");
    cordon_json_bool(json, false);
    tell_names(json, name);
    cordon_json_key(json, "createdAt");
    cordon_json_time(json, made_us);
    cordon_json_key(json, "updatedAt");
    cordon_json_time(json, made_us);
    cordon_json_pair_text(json, "createdBy", NULL);
    cordon_json_pair_text(json, "lastSpawnedAt", NULL);
    cordon_json_pair_uint(json, "spawnCount", 0);
    cordon_json_pair_uint(json, "buildCount", 1);
    cordon_json_pair_text(json, "envdVersion", CORDON_E2B_ENVD_VERSION);
    cordon_json_object_end(json);
}

static void list_one(void *context, const char *name, const struct cordon_template_header *header,
                     const struct cordon_error *why)
{
    (void)why;
    if (header) /* one that can't be read can't be used: /v1/templates tells the reason */
        tell(context, name, header);
}

int cordon_e2b_templates(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(16u << 20);
    struct cordon_json json = {.buf = &body};
    struct telling to = {.doors = request->context, .json = &json};
    cordon_json_array_begin(&json);
    for (size_t i = 0; i < sizeof own_names / sizeof *own_names; i++)
        tell(&to, own_names[i], NULL);
    int r = cordon_door_templates_each(to.doors, list_one, &to, err);
    cordon_json_array_end(&json);
    if (r == 0)
        return cordon_e2b_reply(request, 200, &body, err);
    cordon_buf_done(&body);
    return r;
}

/* The template that the path names. *made: it has a header, else it is one of the SDKs' own. */
static int find(const struct cordon_http_request *request, char name[CORDON_TEMPLATE_NAME], bool *made,
                struct cordon_template_header *ret, struct cordon_error *err)
{
    if (cordon_http_param(request, 0, name, CORDON_TEMPLATE_NAME) < 0)
        return cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND, "there is no template of such a name");
    *made = !cordon_e2b_template_is_own(name);
    return *made ? cordon_door_template_read(request->context, name, ret, err) : 0;
}

int cordon_e2b_template(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_template_header header;
    struct cordon_buf body = CORDON_BUF_INIT(65536);
    struct cordon_json json = {.buf = &body};
    struct telling to = {.doors = request->context, .json = &json};
    char name[CORDON_TEMPLATE_NAME];
    bool made;
    int r = find(request, name, &made, &header, err);
    if (r < 0)
        return r;
    tell(&to, name, made ? &header : NULL);
    return cordon_e2b_reply(request, 200, &body, err);
}

int cordon_e2b_template_alias(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_template_header header;
    struct cordon_buf body = CORDON_BUF_INIT(4096);
    struct cordon_json json = {.buf = &body};
    char name[CORDON_TEMPLATE_NAME];
    bool made;
    int r = find(request, name, &made, &header, err);
    if (r < 0)
        return r;
    cordon_json_object_begin(&json);
    cordon_json_pair_text(&json, "templateID", name);
    cordon_json_key(&json, "public");
    cordon_json_bool(&json, false);
    cordon_json_object_end(&json);
    return cordon_e2b_reply(request, 200, &body, err);
}
