/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts of a guest: made, listed, restarted, interrupted, removed. */
#include <errno.h>

#include "cells/cells.h"
#include "door/guests/guests.h"

static const char *const state_names[] = {"idle", "busy", "ended"};

static void write_context(void *to, const struct cordon_context_info *info)
{
    struct cordon_json *json = to;
    cordon_json_object_begin(json);
    cordon_json_key(json, "id");
    cordon_json_text(json, info->id);
    cordon_json_key(json, "language");
    cordon_json_text(json, info->language);
    cordon_json_key(json, "cwd");
    cordon_json_text(json, info->cwd);
    cordon_json_key(json, "state");
    cordon_json_text(json, state_names[info->state]);
    cordon_json_key(json, "default");
    cordon_json_bool(json, info->is_default);
    cordon_json_key(json, "cells");
    cordon_json_uint(json, info->cells);
    cordon_json_object_end(json);
}

static int reply_context(struct cordon_http_request *request, int status, const struct cordon_context_info *info,
                         struct cordon_error *err)
{
    struct cordon_guest_reply reply;
    cordon_guest_reply_begin(&reply);
    write_context(&reply.json, info);
    return cordon_guest_reply_send(request, status, &reply, err);
}

/* Guest and context of the path. */
static int find(const struct cordon_http_request *request, char guest[CORDON_GUEST_ID], char context[64],
                struct cordon_error *err)
{
    int r = cordon_guest_of(request, guest, err);
    if (r == 0 && cordon_http_param(request, 1, context, 64) < 0)
        r = cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "the context's id in the path is malformed");
    return r;
}

int cordon_guest_contexts_get(struct cordon_http_request *request, struct cordon_error *err)
{
    char guest[CORDON_GUEST_ID];
    struct cordon_guest_reply reply;
    int r = cordon_guest_of(request, guest, err);
    if (r < 0)
        return r;
    cordon_guest_reply_begin(&reply);
    cordon_json_object_begin(&reply.json);
    cordon_json_key(&reply.json, "contexts");
    cordon_json_array_begin(&reply.json);
    r = cordon_cells_list(cordon_guest_viewer(request), guest, write_context, &reply.json, err);
    cordon_json_array_end(&reply.json);
    cordon_json_object_end(&reply.json);
    if (r < 0) {
        cordon_buf_done(&reply.body);
        return r;
    }
    return cordon_guest_reply_send(request, 200, &reply, err);
}

int cordon_guest_context_post(struct cordon_http_request *request, struct cordon_error *err)
{
    char guest[CORDON_GUEST_ID];
    cordon_autoforget struct cordon_door_memory memory = {0};
    const char *language = NULL, *cwd = NULL;
    struct cordon_context_info info;
    struct cordon_value body;
    int r = cordon_guest_of(request, guest, err);
    if (r == 0)
        r = cordon_fields_parse(&request->body, &body, err);
    if (r == 0)
        r = cordon_field_text(&body, "language", &memory, &language, err);
    if (r >= 0)
        r = cordon_field_text(&body, "cwd", &memory, &cwd, err);
    if (r >= 0)
        r = cordon_cells_create(cordon_guest_viewer(request), guest, language, cwd, &info, err);
    return r < 0 ? r : reply_context(request, 201, &info, err);
}

int cordon_guest_context_get(struct cordon_http_request *request, struct cordon_error *err)
{
    char guest[CORDON_GUEST_ID], context[64];
    struct cordon_context_info info;
    int r = find(request, guest, context, err);
    if (r == 0)
        r = cordon_cells_info(cordon_guest_viewer(request), guest, context, &info, err);
    return r < 0 ? r : reply_context(request, 200, &info, err);
}

typedef int act(const char *tenant, const char *guest, const char *id, struct cordon_error *err);

static int act_on(struct cordon_http_request *request, act *call, struct cordon_error *err)
{
    char guest[CORDON_GUEST_ID], context[64];
    int r = find(request, guest, context, err);
    if (r == 0)
        r = call(cordon_guest_viewer(request), guest, context, err);
    return r < 0 ? r : cordon_guest_reply_nothing(request, err);
}

int cordon_guest_context_delete(struct cordon_http_request *request, struct cordon_error *err)
{
    return act_on(request, cordon_cells_remove, err);
}

int cordon_guest_context_restart(struct cordon_http_request *request, struct cordon_error *err)
{
    return act_on(request, cordon_cells_restart, err);
}

int cordon_guest_context_interrupt(struct cordon_http_request *request, struct cordon_error *err)
{
    return act_on(request, cordon_cells_interrupt, err);
}
