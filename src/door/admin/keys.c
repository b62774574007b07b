/* SPDX-License-Identifier: Apache-2.0 */
/* Keys, over HTTP: the same as `cordon key`. */
#include <errno.h>
#include <string.h>

#include "door/admin/admin.h"

static void write_fields(struct cordon_json *json, const struct cordon_key_info *key)
{
    cordon_json_key(json, "id");
    cordon_json_text(json, key->id);
    cordon_json_key(json, "name");
    cordon_json_text(json, key->name);
    cordon_json_key(json, "scope");
    cordon_json_text(json, cordon_key_scope_name(key->scope));
    cordon_json_key(json, "created_s");
    cordon_json_int(json, key->created_s);
    cordon_json_key(json, "revoked_s");
    if (key->revoked_s)
        cordon_json_int(json, key->revoked_s);
    else
        cordon_json_null(json);
}

static int write_key(void *context, const struct cordon_key_info *key)
{
    struct cordon_json *json = context;
    cordon_json_object_begin(json);
    write_fields(json, key);
    cordon_json_object_end(json);
    return 0;
}

int cordon_admin_keys_get(struct cordon_http_request *request, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    struct cordon_buf body = CORDON_BUF_INIT(16u << 20);
    struct cordon_json json = {.buf = &body};
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "keys");
    cordon_json_array_begin(&json);
    int r = cordon_key_list(doors->store, write_key, &json, err);
    cordon_json_array_end(&json);
    cordon_json_object_end(&json);
    if (r == 0)
        return cordon_admin_reply(request, &body, err);
    cordon_buf_done(&body);
    return r;
}

static int audit(struct cordon_http_request *request, const char *action, const char *id, const char *after,
                 struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    const struct cordon_audit_entry entry = {
        .who = cordon_admin_who(request), .action = action, .subject = id, .before = "", .after = after};
    return cordon_audit_add(doors->store, &entry, err);
}

int cordon_admin_keys_post(struct cordon_http_request *request, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    struct cordon_value body;
    struct cordon_key_info info;
    enum cordon_key_scope scope = CORDON_KEY_RUN;
    char name[64], scope_text[16], key[CORDON_KEY_TEXT];
    int r = cordon_admin_body(request, &body, err);
    if (r == 0)
        r = cordon_admin_text(&body, "name", name, sizeof name, err);
    if (r == 0)
        r = cordon_admin_text(&body, "scope", scope_text, sizeof scope_text, err);
    if (r == 0 && *scope_text && !cordon_key_scope_parse(scope_text, &scope))
        r = cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "scope is run, admin or view, not \"%s\"", scope_text);
    if (r == 0)
        r = cordon_key_create(doors->store, *name ? name : "unnamed", scope, key, &info, err);
    if (r < 0)
        return r;
    struct cordon_buf text = CORDON_BUF_INIT(4096);
    struct cordon_json json = {.buf = &text};
    cordon_json_object_begin(&json);
    write_fields(&json, &info);
    cordon_json_key(&json, "key");
    cordon_json_text(&json, key);
    cordon_json_object_end(&json);
    explicit_bzero(key, sizeof key);
    r = audit(request, "key.create", info.id, cordon_key_scope_name(info.scope), err);
    if (r == 0)
        return cordon_admin_reply(request, &text, err);
    cordon_buf_wipe(&text);
    return r;
}

int cordon_admin_keys_delete(struct cordon_http_request *request, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    struct cordon_buf body = CORDON_BUF_INIT(64);
    char id[32];
    if (cordon_http_param(request, 0, id, sizeof id) < 0)
        return cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND, "there is no key of that id");
    int r = cordon_key_revoke(doors->store, id, err);
    if (r == 0)
        r = audit(request, "key.revoke", id, "", err);
    if (r < 0)
        return r;
    (void)cordon_buf_appends(&body, "{}"); /* sticky, seen by the reply */
    return cordon_admin_reply(request, &body, err);
}
