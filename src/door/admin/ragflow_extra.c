/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields of RAGFlow's forms that no setting stands for. RAGFlow stores whatever a form holds and gives it back, so its
 * page may send what this daemon does not know (a newer field, one of the provider that was chosen before). They are
 * kept, as JSON in one setting, sealed like a secret since nobody knows what they are, and change nothing.
 */
#include <errno.h>
#include <string.h>

#include "door/admin/ragflow.h"

#define SETTING "CORDON_RAGFLOW_EXTRA"
#define KEPT_MAX 16384u /* bytes, of all providers together */
#define NAME_MAX_SIZE 64u

/* What is kept now. False: nothing, or what is no JSON object (the setting may be written by hand). */
static bool kept(const struct cordon_settings *settings, struct cordon_value *ret)
{
    const char *text = cordon_settings_string(settings, CORDON_DOOR_NATIVE, CORDON_SET_RAGFLOW_EXTRA);
    return *text && cordon_value_parse(text, strlen(text), ret, NULL) == 0 && ret->kind == CORDON_VALUE_OBJECT;
}

/* A member as it came. */
static int copy(struct cordon_json *to, const struct cordon_value *key, const struct cordon_value *value,
                struct cordon_error *err)
{
    char name[NAME_MAX_SIZE];
    ssize_t n = key->size < sizeof name ? cordon_value_string(key, name) : -EMSGSIZE;
    if (n < 0 || memchr(name, '\0', (size_t)n))
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "the name of a field of config is longer than %u bytes, or no text", NAME_MAX_SIZE - 3);
    name[n] = '\0';
    cordon_json_key(to, name);
    cordon_json_raw(to, value->data, value->size);
    return 0;
}

static int write_others(struct cordon_json *to, const struct cordon_value *all, const char *provider,
                        struct cordon_error *err)
{
    struct cordon_value_walk walk = cordon_value_walk(all);
    struct cordon_value key, value;
    int r = 0;
    while (r == 0 && cordon_value_next(&walk, &key, &value))
        if (!cordon_value_equals(&key, provider))
            r = copy(to, &key, &value, err);
    return r;
}

static int write_own(struct cordon_json *to, const struct cordon_value *config, const char *provider,
                     cordon_ragflow_is_known *known, struct cordon_error *err)
{
    struct cordon_value_walk walk = cordon_value_walk(config);
    struct cordon_value key, value;
    bool any = false;
    int r = 0;
    while (r == 0 && cordon_value_next(&walk, &key, &value)) {
        if (known(provider, &key))
            continue;
        if (!any) {
            cordon_json_key(to, provider);
            cordon_json_object_begin(to);
        }
        any = true;
        r = copy(to, &key, &value, err);
    }
    if (any)
        cordon_json_object_end(to);
    return r;
}

int cordon_ragflow_extra_add(const struct cordon_settings *settings, const char *provider,
                             const struct cordon_value *config, cordon_ragflow_is_known *known,
                             struct cordon_admin_changes *changes, struct cordon_error *err)
{
    const char *before = cordon_settings_string(settings, CORDON_DOOR_NATIVE, CORDON_SET_RAGFLOW_EXTRA);
    struct cordon_buf text = CORDON_BUF_INIT(KEPT_MAX);
    struct cordon_json json = {.buf = &text};
    struct cordon_value all;
    int r = 0;
    cordon_json_object_begin(&json);
    if (kept(settings, &all))
        r = write_others(&json, &all, provider, err);
    if (r == 0)
        r = write_own(&json, config, provider, known, err);
    cordon_json_object_end(&json);
    if (r == 0 && text.failed)
        r = cordon_fail(err, -E2BIG, CORDON_ERROR_INVALID,
                        "config: fields that this daemon does not know are kept up to %u bytes together", KEPT_MAX);
    const char *after = r < 0 || strcmp(text.data, "{}") == 0 ? NULL : text.data;
    if (r == 0 && strcmp(before, after ? after : "") != 0)
        r = cordon_admin_changes_add(changes, SETTING, after, err);
    cordon_buf_wipe(&text);
    return r;
}

void cordon_ragflow_extra_write(struct cordon_json *json, const struct cordon_settings *settings, const char *provider)
{
    struct cordon_value all, own, key, value;
    if (!kept(settings, &all) || !cordon_admin_member(&all, provider, &own) || own.kind != CORDON_VALUE_OBJECT)
        return;
    struct cordon_value_walk walk = cordon_value_walk(&own);
    while (cordon_value_next(&walk, &key, &value))
        if (copy(json, &key, &value, NULL) < 0)
            return; /* written by hand */
}
