/* SPDX-License-Identifier: Apache-2.0 */
/* The providers and fields of RAGFlow's admin page (providers.def): their schemas, what is stored of them, and forms
 * that are sent, which are read into changes of settings. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "door/admin/ragflow.h"

enum provider {
#define CORDON_PROVIDER(id, ...) PROVIDER_##id,
#define CORDON_FIELD(...)
#define CORDON_DEPLOYMENT(...)
#include "door/admin/providers.def"
#undef CORDON_PROVIDER
#undef CORDON_FIELD
#undef CORDON_DEPLOYMENT
    PROVIDERS
};

static const struct {
    const char *id, *name, *description, *tags;
} providers[PROVIDERS] = {
#define CORDON_PROVIDER(id, name, title, description, tags) [PROVIDER_##id] = {name, title, description, tags},
#define CORDON_FIELD(...)
#define CORDON_DEPLOYMENT(...)
#include "door/admin/providers.def"
#undef CORDON_PROVIDER
#undef CORDON_FIELD
#undef CORDON_DEPLOYMENT
};

enum type { STRING, INTEGER, BOOLEAN };
static const char *const type_names[] = {"string", "integer", "boolean"};
static const char *const type_words[] = {"a string", "an integer", "a boolean"};

static const struct field {
    unsigned provider;
    const char *name;
    enum type type;
    bool required;
    const char *fallback;
    int64_t min, max;
    const char *flags, *label, *setting;
} fields[] = {
#define CORDON_PROVIDER(...)
#define CORDON_FIELD(provider, ...) {PROVIDER_##provider, __VA_ARGS__},
#define CORDON_DEPLOYMENT(...)
#include "door/admin/providers.def"
#undef CORDON_PROVIDER
#undef CORDON_FIELD
#undef CORDON_DEPLOYMENT
};
#define FIELDS (sizeof fields / sizeof *fields)

/* What RAGFlow shows of self_managed as read-only. */
static const struct {
    const char *name;
    enum type type;
    const char *fallback, *label;
} deployment[] = {
#define CORDON_PROVIDER(...)
#define CORDON_FIELD(...)
#define CORDON_DEPLOYMENT(...) {__VA_ARGS__},
#include "door/admin/providers.def"
#undef CORDON_PROVIDER
#undef CORDON_FIELD
#undef CORDON_DEPLOYMENT
};

static bool has_flag(const struct field *field, char flag)
{
    return strchr(field->flags, flag) != NULL;
}

static bool is_deployment(const struct cordon_value *name)
{
    for (size_t i = 0; i < sizeof deployment / sizeof *deployment; i++)
        if (cordon_value_equals(name, deployment[i].name))
            return true;
    return false;
}

bool cordon_ragflow_provider_find(const char *id, unsigned *ret)
{
    for (unsigned i = 0; i < PROVIDERS; i++)
        if (strcmp(providers[i].id, id) == 0) {
            *ret = i;
            return true;
        }
    return false;
}

const char *cordon_ragflow_provider_id(unsigned provider)
{
    return providers[provider].id;
}

/* --- what is shown --- */

void cordon_ragflow_providers_write(struct cordon_json *json)
{
    cordon_json_array_begin(json);
    for (int i = 0; i < PROVIDERS; i++) {
        char tags[128];
        int n = snprintf(tags, sizeof tags, "[%s]", providers[i].tags); /* fits */
        const struct {
            const char *key, *text;
        } texts[] = {{"id", providers[i].id}, {"name", providers[i].name}, {"description", providers[i].description}};
        cordon_json_object_begin(json);
        for (size_t text = 0; text < sizeof texts / sizeof *texts; text++) {
            cordon_json_key(json, texts[text].key);
            cordon_json_text(json, texts[text].text);
        }
        cordon_json_key(json, "tags");
        cordon_json_raw(json, tags, (size_t)n);
        cordon_json_object_end(json);
    }
    cordon_json_array_end(json);
}

static void write_typed(struct cordon_json *json, enum type type, const char *text)
{
    if (type == STRING)
        cordon_json_text(json, text);
    else
        cordon_json_raw(json, text, strlen(text)); /* numbers and booleans read the same in JSON */
}

static void write_field(struct cordon_json *json, const struct field *field)
{
    cordon_json_key(json, field->name);
    cordon_json_object_begin(json);
    cordon_json_key(json, "type");
    cordon_json_text(json, type_names[field->type]);
    cordon_json_key(json, "required");
    cordon_json_bool(json, field->required);
    cordon_json_key(json, "label");
    cordon_json_text(json, field->label);
    cordon_json_key(json, "default");
    write_typed(json, field->type, field->fallback);
    if (field->min <= field->max && field->type == INTEGER) {
        cordon_json_key(json, "min");
        cordon_json_int(json, field->min);
        cordon_json_key(json, "max");
        cordon_json_int(json, field->max);
    }
    cordon_json_key(json, "secret");
    cordon_json_bool(json, has_flag(field, 'S'));
    if (has_flag(field, 'M')) {
        cordon_json_key(json, "multiline");
        cordon_json_bool(json, true);
    }
    cordon_json_key(json, "scope");
    cordon_json_text(json, "runtime");
    cordon_json_key(json, "setting");
    cordon_json_text(json, field->setting);
    cordon_json_object_end(json);
}

static void write_deployment(struct cordon_json *json)
{
    for (size_t i = 0; i < sizeof deployment / sizeof *deployment; i++) {
        cordon_json_key(json, deployment[i].name);
        cordon_json_object_begin(json);
        cordon_json_key(json, "type");
        cordon_json_text(json, type_names[deployment[i].type]);
        cordon_json_key(json, "required");
        cordon_json_bool(json, false);
        cordon_json_key(json, "label");
        cordon_json_text(json, deployment[i].label);
        cordon_json_key(json, "default");
        write_typed(json, deployment[i].type, deployment[i].fallback);
        cordon_json_key(json, "scope");
        cordon_json_text(json, "deployment");
        cordon_json_key(json, "readonly");
        cordon_json_bool(json, true);
        cordon_json_object_end(json);
    }
}

void cordon_ragflow_schema_write(struct cordon_json *json, unsigned provider)
{
    cordon_json_object_begin(json);
    for (size_t i = 0; i < FIELDS; i++)
        if (fields[i].provider == provider)
            write_field(json, &fields[i]);
    if (provider == PROVIDER_SELF_MANAGED)
        write_deployment(json);
    cordon_json_object_end(json);
}

static bool view_of(const struct cordon_settings *settings, const char *name, struct cordon_setting_view *ret)
{
    for (size_t i = 0; cordon_settings_view(settings, i, ret); i++)
        if (strcmp(ret->name, name) == 0)
            return true;
    return false;
}

void cordon_ragflow_config_write(struct cordon_json *json, const struct cordon_settings *settings, unsigned provider)
{
    struct cordon_setting_view view;
    cordon_json_object_begin(json);
    for (size_t i = 0; i < FIELDS; i++) {
        const struct field *field = &fields[i];
        if (field->provider != provider || !view_of(settings, field->setting, &view))
            continue;
        cordon_json_key(json, field->name);
        if (view.secret)
            cordon_json_text(json, view.set ? CORDON_ADMIN_MASK : "");
        else
            write_typed(json, field->type, view.value);
    }
    cordon_ragflow_extra_write(json, settings, providers[provider].id);
    cordon_json_object_end(json);
}

/* --- a form that was sent --- */

/* RAGFlow's texts for what is wrong with a field. */
static int check_field(const struct field *field, const struct cordon_value *value, struct cordon_error *err)
{
    static const enum cordon_value_kind kinds[] = {CORDON_VALUE_STRING, CORDON_VALUE_NUMBER, CORDON_VALUE_BOOL};
    int64_t number = 0;
    if (value->kind != kinds[field->type] || (field->type == INTEGER && !cordon_value_integer(value, &number)))
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "Field '%s' must be %s", field->name,
                           type_words[field->type]);
    if (field->required && field->type == STRING && value->size == 2)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "Required field '%s' is missing", field->name);
    if (field->type != INTEGER || field->min > field->max)
        return 0;
    if (number < field->min)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "Field '%s' must be >= %lld", field->name,
                           (long long)field->min);
    if (number > field->max)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "Field '%s' must be <= %lld", field->name,
                           (long long)field->max);
    return 0;
}

static int add_field(const struct field *field, const struct cordon_value *value, struct cordon_admin_changes *changes,
                     struct cordon_error *err)
{
    cordon_autofree char *text = calloc(1, value->size + 1);
    if (!text)
        return cordon_fail_errno(err, -ENOMEM, "read the configuration");
    if (value->kind == CORDON_VALUE_STRING) {
        ssize_t n = cordon_value_string(value, text);
        if (n < 0 || memchr(text, '\0', (size_t)n))
            return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "Field '%s' holds what is no text", field->name);
    } else {
        memcpy(text, value->data, value->size);
    }
    int r = cordon_admin_changes_add(changes, field->setting, text, err);
    explicit_bzero(text, value->size);
    return r;
}

static const struct field *find_field(unsigned provider, const struct cordon_value *key)
{
    for (size_t i = 0; i < FIELDS; i++)
        if (fields[i].provider == provider && cordon_value_equals(key, fields[i].name))
            return &fields[i];
    return NULL;
}

/* A secret of any provider has its place or none: it must not be given back in clear because another one was chosen.
 * What the page shows as read-only may come back with the form; it has no effect in RAGFlow either. */
static bool is_known(const char *id, const struct cordon_value *name)
{
    unsigned provider;
    if (cordon_ragflow_provider_find(id, &provider) && find_field(provider, name))
        return true;
    for (size_t i = 0; i < FIELDS; i++)
        if (has_flag(&fields[i], 'S') && cordon_value_equals(name, fields[i].name))
            return true;
    return is_deployment(name);
}

static int check_required(unsigned provider, const struct cordon_value *config, struct cordon_error *err)
{
    struct cordon_value value;
    for (size_t i = 0; i < FIELDS; i++)
        if (fields[i].provider == provider && fields[i].required && !*fields[i].fallback &&
            (!cordon_admin_member(config, fields[i].name, &value) || value.kind == CORDON_VALUE_NULL))
            return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "Required field '%s' is missing", fields[i].name);
    return 0;
}

static int read_config(unsigned provider, const struct cordon_value *config, struct cordon_admin_changes *changes,
                       struct cordon_error *err)
{
    struct cordon_value_walk walk = cordon_value_walk(config);
    struct cordon_value key, value;
    int r = check_required(provider, config, err);
    while (r == 0 && cordon_value_next(&walk, &key, &value)) {
        const struct field *field = find_field(provider, &key);
        if (!field || value.kind == CORDON_VALUE_NULL)
            continue;
        r = check_field(field, &value, err);
        if (r == 0)
            r = add_field(field, &value, changes, err);
    }
    return r;
}

int cordon_ragflow_form_read(const struct cordon_settings *settings, const struct cordon_value *body,
                             struct cordon_ragflow_form *ret, struct cordon_admin_changes *changes,
                             struct cordon_error *err)
{
    static const char nothing[] = "{}";
    struct cordon_value config, flag;
    char id[64];
    int r = cordon_admin_text(body, "provider_type", id, sizeof id, err);
    if (r < 0)
        return r;
    if (!*id)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "provider_type is required");
    if (!cordon_ragflow_provider_find(id, &ret->provider))
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "Unknown provider type: %s", id);
    ret->active =
        !cordon_admin_member(body, "set_active", &flag) || flag.kind != CORDON_VALUE_BOOL || cordon_value_true(&flag);
    if (!cordon_admin_member(body, "config", &config) && cordon_value_parse(nothing, 2, &config, err) < 0)
        return -EINVAL;
    if (config.kind != CORDON_VALUE_OBJECT)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "config must be an object");
    r = read_config(ret->provider, &config, changes, err);
    return r < 0 ? r : cordon_ragflow_extra_add(settings, id, &config, is_known, changes, err);
}
