/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RAGFlow's admin routes, with its envelope and texts. Its "provider" is our default backend, the fields of a provider
 * are our settings (providers.def), and what is saved here is what /v1/admin/settings shows. Secrets are never given
 * back: a form that sends the mask back leaves them alone. What no setting stands for is kept (ragflow_extra.c).
 */
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
    enum provider provider;
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

static bool find_provider(const char *id, enum provider *ret)
{
    for (int i = 0; i < PROVIDERS; i++)
        if (strcmp(providers[i].id, id) == 0) {
            *ret = (enum provider)i;
            return true;
        }
    return false;
}

/* --- the envelope --- */

static void begin(struct cordon_json *json, const char *message)
{
    cordon_json_object_begin(json);
    cordon_json_key(json, "code");
    cordon_json_int(json, 0);
    cordon_json_key(json, "message");
    cordon_json_text(json, message);
    cordon_json_key(json, "data");
}

static int finish(struct cordon_http_request *request, struct cordon_json *json, struct cordon_error *err)
{
    cordon_json_object_end(json);
    return cordon_admin_reply(request, json->buf, err);
}

static int bad(struct cordon_error *err, const char *fmt, const char *name)
{
    /* The callers' formats have one %s. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, fmt, name);
#pragma GCC diagnostic pop
}

/* HTTP 400 in all cases, as RAGFlow's page expects; but one who may not is told so. */
static int reply_error(struct cordon_http_request *request, const struct cordon_error *err)
{
    int status = cordon_http_error_status(request, err);
    bool theirs = status != 401 && status != 403 && status != 404 && status != 405;
    struct cordon_buf body = CORDON_BUF_INIT(8192);
    struct cordon_json json = {.buf = &body};
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "code");
    cordon_json_int(&json, theirs && status < 500 ? 400 : status);
    cordon_json_key(&json, "message");
    cordon_json_text(&json, err->message);
    cordon_json_key(&json, "data");
    cordon_json_null(&json);
    cordon_json_object_end(&json);
    (void)cordon_buf_append(&body, "\n", 1); /* sticky, seen by the reply */
    return cordon_http_reply(request, theirs ? 400 : status, "application/json", &body);
}

/* --- providers and schemas --- */

int cordon_admin_providers_get(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(65536);
    struct cordon_json json = {.buf = &body};
    begin(&json, "Success");
    cordon_json_array_begin(&json);
    for (int i = 0; i < PROVIDERS; i++) {
        char tags[128];
        int n = snprintf(tags, sizeof tags, "[%s]", providers[i].tags); /* fits */
        cordon_json_object_begin(&json);
        cordon_json_key(&json, "id");
        cordon_json_text(&json, providers[i].id);
        cordon_json_key(&json, "name");
        cordon_json_text(&json, providers[i].name);
        cordon_json_key(&json, "description");
        cordon_json_text(&json, providers[i].description);
        cordon_json_key(&json, "tags");
        cordon_json_raw(&json, tags, (size_t)n);
        cordon_json_object_end(&json);
    }
    cordon_json_array_end(&json);
    return finish(request, &json, err);
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

int cordon_admin_schema_get(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(65536);
    struct cordon_json json = {.buf = &body};
    enum provider provider;
    char id[64];
    if (cordon_http_param(request, 0, id, sizeof id) < 0 || !find_provider(id, &provider))
        return bad(err, "Unknown provider: %s", id);
    begin(&json, "Success");
    cordon_json_object_begin(&json);
    for (size_t i = 0; i < FIELDS; i++)
        if (fields[i].provider == provider)
            write_field(&json, &fields[i]);
    if (provider == PROVIDER_SELF_MANAGED)
        write_deployment(&json);
    cordon_json_object_end(&json);
    return finish(request, &json, err);
}

/* --- the configuration --- */

static bool view_of(const struct cordon_settings *settings, const char *name, struct cordon_setting_view *ret)
{
    for (size_t i = 0; cordon_settings_view(settings, i, ret); i++)
        if (strcmp(ret->name, name) == 0)
            return true;
    return false;
}

static void write_config(struct cordon_json *json, const struct cordon_settings *settings, enum provider provider)
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

static int reply_config(struct cordon_http_request *request, const char *message, const char *id,
                        struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    struct cordon_buf body = CORDON_BUF_INIT(65536);
    struct cordon_json json = {.buf = &body};
    enum provider provider;
    begin(&json, message);
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "provider_type");
    cordon_json_text(&json, id);
    cordon_json_key(&json, "config");
    if (find_provider(id, &provider)) {
        write_config(&json, doors->settings, provider);
    } else { /* a plugin's backend has no form here */
        cordon_json_object_begin(&json);
        cordon_json_object_end(&json);
    }
    cordon_json_object_end(&json);
    return finish(request, &json, err);
}

int cordon_admin_config_get(struct cordon_http_request *request, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    return reply_config(request, "Success",
                        cordon_settings_string(doors->settings, CORDON_DOOR_NATIVE, CORDON_SET_BACKEND), err);
}

/* RAGFlow's texts for what is wrong with a field. */
static int check_field(const struct field *field, const struct cordon_value *value, struct cordon_error *err)
{
    static const enum cordon_value_kind kinds[] = {CORDON_VALUE_STRING, CORDON_VALUE_NUMBER, CORDON_VALUE_BOOL};
    int64_t number = 0;
    if (value->kind != kinds[field->type] || (field->type == INTEGER && !cordon_value_integer(value, &number)))
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "Field '%s' must be %s", field->name,
                           type_words[field->type]);
    if (field->required && field->type == STRING && value->size == 2)
        return bad(err, "Required field '%s' is missing", field->name);
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
            return bad(err, "Field '%s' holds what is no text", field->name);
    } else {
        memcpy(text, value->data, value->size);
    }
    int r = cordon_admin_changes_add(changes, field->setting, text, err);
    explicit_bzero(text, value->size);
    return r;
}

static const struct field *find_field(enum provider provider, const struct cordon_value *key)
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
    enum provider provider;
    if (find_provider(id, &provider) && find_field(provider, name))
        return true;
    for (size_t i = 0; i < FIELDS; i++)
        if (has_flag(&fields[i], 'S') && cordon_value_equals(name, fields[i].name))
            return true;
    return is_deployment(name);
}

static int check_required(enum provider provider, const struct cordon_value *config, struct cordon_error *err)
{
    struct cordon_value value;
    for (size_t i = 0; i < FIELDS; i++)
        if (fields[i].provider == provider && fields[i].required && !*fields[i].fallback &&
            (!cordon_admin_member(config, fields[i].name, &value) || value.kind == CORDON_VALUE_NULL))
            return bad(err, "Required field '%s' is missing", fields[i].name);
    return 0;
}

static int read_config(enum provider provider, const struct cordon_value *config, struct cordon_admin_changes *changes,
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

/* What both routes begin with. active: the provider is to be chosen as well. */
static int read_form(struct cordon_http_request *request, enum provider *provider, bool *active,
                     struct cordon_admin_changes *changes, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    struct cordon_value body, config, flag;
    char id[64];
    int r = cordon_admin_body(request, &body, err);
    if (r == 0)
        r = cordon_admin_text(&body, "provider_type", id, sizeof id, err);
    if (r < 0)
        return r;
    if (!*id)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "provider_type is required");
    if (!find_provider(id, provider))
        return bad(err, "Unknown provider type: %s", id);
    *active =
        !cordon_admin_member(&body, "set_active", &flag) || flag.kind != CORDON_VALUE_BOOL || cordon_value_true(&flag);
    if (!cordon_admin_member(&body, "config", &config) || config.kind != CORDON_VALUE_OBJECT)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "config is required and must be an object");
    r = read_config(*provider, &config, changes, err);
    return r < 0 ? r : cordon_ragflow_extra_add(doors->settings, id, &config, is_known, changes, err);
}

int cordon_admin_config_post(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_admin_changes changes = {0};
    struct cordon_error wrong = {0};
    enum provider provider;
    bool active;
    int r = read_form(request, &provider, &active, &changes, err);
    if (r == 0 && active)
        r = cordon_admin_changes_add(&changes, "CORDON_BACKEND", providers[provider].id, err);
    if (r == 0 && (r = cordon_admin_changes_apply(request, &changes, &wrong)) < 0)
        r = wrong.kind == CORDON_ERROR_INVALID ? bad(err, "Provider validation failed: %s", wrong.message)
                                               : cordon_fail(err, r, wrong.kind, "%s", wrong.message);
    cordon_admin_changes_done(&changes);
    return r < 0 ? r : reply_config(request, "Sandbox configuration updated successfully", providers[provider].id, err);
}

static int reply_test(struct cordon_http_request *request, const struct cordon_admin_trial *trial,
                      struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(1u << 20);
    struct cordon_json json = {.buf = &body};
    char seconds[32];
    int n = snprintf(seconds, sizeof seconds, "%.3f", (double)trial->total_us / 1e6); /* fits */
    begin(&json, "Success");
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "success");
    cordon_json_bool(&json, trial->passed);
    cordon_json_key(&json, "message");
    cordon_json_text(&json, trial->message);
    cordon_json_key(&json, "details");
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "exit_code");
    cordon_json_int(&json, trial->exit_code);
    cordon_json_key(&json, "execution_time");
    cordon_json_raw(&json, seconds, (size_t)n);
    cordon_json_key(&json, "stdout");
    cordon_json_bytes(&json, trial->output.data ? trial->output.data : "", trial->output.size);
    cordon_json_key(&json, "stderr");
    cordon_json_bytes(&json, trial->errors.data ? trial->errors.data : "", trial->errors.size);
    cordon_json_object_end(&json);
    cordon_json_object_end(&json);
    return finish(request, &json, err);
}

int cordon_admin_test_post(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_admin_changes changes = {0};
    struct cordon_admin_trial trial;
    enum provider provider;
    bool active;
    int r = read_form(request, &provider, &active, &changes, err);
    if (r == 0)
        r = cordon_admin_trial_run(request, providers[provider].id, &changes, &trial, err);
    if (r == 0) {
        r = reply_test(request, &trial, err);
        cordon_admin_trial_done(&trial);
    }
    cordon_admin_changes_done(&changes);
    return r;
}

static const struct cordon_http_route routes[] = {
    {"GET", "/api/v1/admin/sandbox/providers", cordon_admin_providers_get, CORDON_HTTP_ADMIN, CORDON_HTTP_BODY_NONE,
     "RAGFlow's admin page: the providers, in their order.", NULL, "Envelope", NULL},
    {"GET", "/api/v1/admin/sandbox/providers/{id}/schema", cordon_admin_schema_get, CORDON_HTTP_ADMIN,
     CORDON_HTTP_BODY_NONE, "RAGFlow's admin page: the fields of a provider.", NULL, "Envelope", NULL},
    {"GET", "/api/v1/admin/sandbox/config", cordon_admin_config_get, CORDON_HTTP_ADMIN, CORDON_HTTP_BODY_NONE,
     "RAGFlow's admin page: the chosen provider and its fields; secrets are masked.", NULL, "Envelope", NULL},
    {"POST", "/api/v1/admin/sandbox/config", cordon_admin_config_post, CORDON_HTTP_ADMIN, 1u << 20,
     "RAGFlow's admin page: saves a provider's fields and chooses it, unless set_active is false.", "ProviderConfig",
     "Envelope", NULL},
    {"POST", "/api/v1/admin/sandbox/test", cordon_admin_test_post, CORDON_HTTP_ADMIN, 1u << 20,
     "RAGFlow's admin page: runs the test program with the fields as they are given, unsaved.", "ProviderConfig",
     "Envelope", NULL},
};

static const struct cordon_http_schema schemas[] = {
    {"Envelope", "{\"type\":\"object\",\"required\":[\"code\",\"message\",\"data\"],\"properties\":{\"code\":{\"type\":"
                 "\"integer\"},\"message\":{\"type\":\"string\"},\"data\":{}}}"},
    {"ProviderConfig", "{\"type\":\"object\",\"required\":[\"provider_type\",\"config\"],\"properties\":{"
                       "\"provider_type\":{\"type\":\"string\"},\"config\":{\"type\":\"object\"},"
                       "\"set_active\":{\"type\":\"boolean\"}}}"},
};

static bool claims(const struct cordon_http_request *request)
{
    return strncmp(request->path, "/api/v1/admin/sandbox/", 22) == 0;
}

const struct cordon_http_door cordon_door_ragflow_admin = {
    .name = "ragflow-admin",
    .routes = routes,
    .route_count = sizeof routes / sizeof *routes,
    .schemas = schemas,
    .schema_count = sizeof schemas / sizeof *schemas,
    .claims = claims,
    .reply_error = reply_error,
};
