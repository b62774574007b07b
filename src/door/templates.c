/* SPDX-License-Identifier: Apache-2.0 */
#include "door/templates.h"

#include <errno.h>

#include "base/fd.h"

static int open_folder(const struct cordon_doors *doors, struct cordon_error *err)
{
    return cordon_template_folder_open(doors->state, &CORDON_TEMPLATES_FOLDER[1], err);
}

int cordon_door_templates_each(const struct cordon_doors *doors, cordon_template_visit *visit, void *context,
                               struct cordon_error *err)
{
    cordon_autoclose int folder = open_folder(doors, err);
    if (folder == -ENOENT)
        return 0;
    return folder < 0 ? folder : cordon_templates_each(folder, visit, context, err);
}

int cordon_door_template_read(const struct cordon_doors *doors, const char *name, struct cordon_template_header *ret,
                              struct cordon_error *err)
{
    cordon_autoclose int folder = open_folder(doors, err);
    if (folder == -ENOENT)
        return cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND, "there is no template %.80s: none was made yet", name);
    return folder < 0 ? folder : cordon_template_read(folder, name, false, ret, err);
}

static int reply(struct cordon_http_request *request, struct cordon_buf *body, struct cordon_error *err)
{
    (void)cordon_buf_append(body, "\n", 1); /* sticky, seen by the reply */
    int r = cordon_http_reply(request, 200, "application/json", body);
    return r < 0 ? cordon_fail_errno(err, r, "writing the templates") : 0;
}

/* One that can't be read is listed with the reason: what else would tell an operator why a run with it fails? */
static void list_one(void *context, const char *name, const struct cordon_template_header *header,
                     const struct cordon_error *why)
{
    struct cordon_json *json = context;
    if (header) {
        cordon_template_write(name, header, json);
        return;
    }
    cordon_json_object_begin(json);
    cordon_json_key(json, "name");
    cordon_json_text(json, name);
    cordon_json_key(json, "reason");
    cordon_json_text(json, why->message);
    cordon_json_object_end(json);
}

int cordon_native_templates(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(16u << 20);
    struct cordon_json json = {.buf = &body};
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "templates");
    cordon_json_array_begin(&json);
    int r = cordon_door_templates_each(request->context, list_one, &json, err);
    cordon_json_array_end(&json);
    cordon_json_object_end(&json);
    if (r == 0)
        return reply(request, &body, err);
    cordon_buf_done(&body);
    return r;
}

int cordon_native_template(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_template_header header;
    struct cordon_buf body = CORDON_BUF_INIT(1u << 20);
    struct cordon_json json = {.buf = &body};
    char name[CORDON_TEMPLATE_NAME];
    int r = cordon_http_param(request, 0, name, sizeof name);
    if (r < 0)
        return cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND, "there is no template of such a name");
    r = cordon_door_template_read(request->context, name, &header, err);
    if (r < 0)
        return r;
    cordon_template_write(name, &header, &json);
    return reply(request, &body, err);
}
