/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings, as the page shows and changes them. A change is checked as a whole with all that is stored, then
 * written in one transaction with its audit lines, then taken by this process; the next run sees it. Changes take
 * turns, so that what is applied last is what is stored.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "core/run.h"
#include "door/admin/admin.h"

#define VALUES_MAX 512
#define VALUE_MAX 65536

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

/* --- reading --- */

static char *join(struct cordon_buf *text)
{
    char *copy = text->failed ? NULL : strdup(text->data ? text->data : "");
    cordon_buf_wipe(text);
    return copy;
}

static int append_string(struct cordon_buf *to, const struct cordon_value *value)
{
    char *room = cordon_buf_reserve(to, value->size + 1);
    ssize_t n = room ? cordon_value_string(value, room) : -ENOMEM;
    if (n < 0 || memchr(room, '\0', (size_t)n))
        return -EINVAL;
    to->size += (size_t)n;
    to->data[to->size] = '\0';
    return 0;
}

/* A setting's text of a JSON value; NULL: it has none. */
static char *text_of(const struct cordon_value *value)
{
    struct cordon_buf text = CORDON_BUF_INIT(VALUE_MAX);
    struct cordon_value_walk walk;
    struct cordon_value key, item;
    int r = 0;
    switch (value->kind) {
    case CORDON_VALUE_STRING:
        r = append_string(&text, value);
        break;
    case CORDON_VALUE_NUMBER:
    case CORDON_VALUE_BOOL:
        r = cordon_buf_append(&text, value->data, value->size);
        break;
    case CORDON_VALUE_ARRAY:
        walk = cordon_value_walk(value);
        while (r == 0 && cordon_value_next(&walk, &key, &item)) {
            if (text.size)
                r = cordon_buf_appends(&text, ",");
            if (r == 0)
                r = item.kind == CORDON_VALUE_STRING ? append_string(&text, &item) : -EINVAL;
        }
        break;
    default:
        r = -EINVAL;
    }
    text.failed = text.failed || r < 0;
    return join(&text);
}

int cordon_admin_changes_add(struct cordon_admin_changes *changes, const char *name, const char *value,
                             struct cordon_error *err)
{
    const char *native;
    bool secret;
    if (!cordon_settings_row(name, &native, &secret))
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "%.80s is no setting", name);
    if (strcmp(name, native) != 0) /* the other names have units of their own */
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "%.80s is stored as %s", name, native);
    if (secret && value && strcmp(value, CORDON_ADMIN_MASK) == 0)
        return 0;
    if (!changes->rows) {
        changes->rows = calloc(VALUES_MAX, sizeof *changes->rows);
        changes->texts = calloc(VALUES_MAX, sizeof *changes->texts);
    }
    if (!changes->rows || !changes->texts || changes->count == VALUES_MAX)
        return cordon_fail(err, -E2BIG, CORDON_ERROR_TOO_LARGE, "at most %d settings can be changed at once",
                           VALUES_MAX);
    char *copy = value ? strdup(value) : NULL;
    if (value && !copy)
        return cordon_fail_errno(err, -ENOMEM, "change the settings");
    if (copy)
        changes->texts[changes->text_count++] = copy;
    changes->rows[changes->count++] = (struct cordon_setting_change){.name = native, .value = copy, .secret = secret};
    return 0;
}

void cordon_admin_changes_done(struct cordon_admin_changes *changes)
{
    for (size_t i = 0; i < changes->text_count; i++) {
        explicit_bzero(changes->texts[i], strlen(changes->texts[i]));
        free(changes->texts[i]);
    }
    free(changes->texts);
    free(changes->rows);
    *changes = (struct cordon_admin_changes){0};
}

static int read_change(const struct cordon_value *key, const struct cordon_value *value,
                       struct cordon_admin_changes *changes, char field[80], struct cordon_error *err)
{
    ssize_t n = key->size < 80 ? cordon_value_string(key, field) : -EMSGSIZE;
    if (n < 0)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "a name in values is no setting");
    field[n] = '\0';
    if (value->kind == CORDON_VALUE_NULL)
        return cordon_admin_changes_add(changes, field, NULL, err);
    cordon_autofree char *text = text_of(value);
    if (!text)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "%s must be a text, a number, true or false, a list of texts, or null to forget it", field);
    int r = cordon_admin_changes_add(changes, field, text, err);
    explicit_bzero(text, strlen(text));
    return r;
}

int cordon_admin_changes_read(const struct cordon_value *values, struct cordon_admin_changes *ret, char field[80],
                              struct cordon_error *err)
{
    struct cordon_value_walk walk = cordon_value_walk(values);
    struct cordon_value key, value;
    int r = 0;
    while (r == 0 && cordon_value_next(&walk, &key, &value))
        r = read_change(&key, &value, ret, field, err);
    if (r == 0)
        *field = '\0';
    return r;
}

/* --- applying --- */

struct pairs {
    char **list;
    size_t count;
    const struct cordon_admin_changes *changes;
};

static bool is_changed(const struct cordon_admin_changes *changes, const char *name)
{
    for (size_t i = 0; i < changes->count; i++)
        if (strcmp(changes->rows[i].name, name) == 0)
            return true;
    return false;
}

static int add_pair(struct pairs *pairs, const char *name, const char *value)
{
    char **list = reallocarray(pairs->list, pairs->count + 2, sizeof *list);
    if (!list)
        return -ENOMEM;
    pairs->list = list;
    list[pairs->count] = list[pairs->count + 1] = NULL;
    if (name && asprintf(&list[pairs->count], "%s=%s", name, value) < 0) {
        list[pairs->count] = NULL;
        return -ENOMEM;
    }
    pairs->count += name != NULL;
    return 0;
}

static int keep_stored(void *context, const struct cordon_stored_setting *setting)
{
    struct pairs *pairs = context;
    return is_changed(pairs->changes, setting->name) ? 0 : add_pair(pairs, setting->name, setting->value);
}

void cordon_admin_pairs_free(char **pairs)
{
    for (char **p = pairs; p && *p; p++) {
        explicit_bzero(*p, strlen(*p));
        free(*p);
    }
    free(pairs);
}

int cordon_admin_pairs(struct cordon_store *store, const struct cordon_admin_changes *changes, char ***ret,
                       struct cordon_error *err)
{
    struct pairs pairs = {.changes = changes};
    int r = add_pair(&pairs, NULL, NULL);
    if (r == 0)
        r = cordon_stored_settings_list(store, keep_stored, &pairs, err);
    for (size_t i = 0; i < changes->count && r == 0; i++)
        if (changes->rows[i].value)
            r = add_pair(&pairs, changes->rows[i].name, changes->rows[i].value);
    if (r < 0) {
        cordon_admin_pairs_free(pairs.list);
        return r == -ENOMEM ? cordon_fail_errno(err, r, "read the stored settings") : r;
    }
    *ret = pairs.list;
    return 0;
}

/* If-Match: "REVISION", as the settings' ETag was; without it, or with *, a change is made of whatever is there. */
static int read_seen(const struct cordon_http_request *request, int64_t *ret, struct cordon_error *err)
{
    const char *tag = cordon_http_header(request, "If-Match");
    char *end;
    *ret = CORDON_SETTINGS_ANY;
    if (!tag || strcmp(tag, "*") == 0)
        return 0;
    errno = 0;
    long long number = *tag == '"' ? strtoll(tag + 1, &end, 10) : -1;
    if (number < 0 || errno || end == tag + 1 || strcmp(end, "\"") != 0)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "If-Match must be the ETag that GET /v1/admin/settings answered, not %.80s", tag);
    *ret = number;
    return 0;
}

static int apply(const struct cordon_http_request *request, const struct cordon_admin_changes *changes,
                 struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    char **pairs;
    int64_t seen;
    int r = read_seen(request, &seen, err);
    if (r == 0)
        r = cordon_admin_pairs(doors->store, changes, &pairs, err);
    if (r < 0)
        return r;
    r = cordon_settings_trial_begin(doors->settings, (const char *const *)pairs, err);
    cordon_settings_trial_end();
    if (r == 0)
        r = cordon_stored_settings_write(doors->store, changes->rows, changes->count, seen, cordon_admin_who(request),
                                         err);
    if (r == 0)
        r = cordon_settings_store(doors->settings, (const char *const *)pairs, err);
    cordon_admin_pairs_free(pairs);
    if (r == 0)
        cordon_admission_setup(doors->settings);
    return r;
}

int cordon_admin_changes_apply(const struct cordon_http_request *request, const struct cordon_admin_changes *changes,
                               struct cordon_error *err)
{
    pthread_mutex_lock(&turn);
    int r = apply(request, changes, err);
    pthread_mutex_unlock(&turn);
    return r;
}

int cordon_door_load_stored(const struct cordon_doors *doors, struct cordon_error *err)
{
    const struct cordon_admin_changes none = {0};
    char **pairs;
    int r = cordon_admin_pairs(doors->store, &none, &pairs, err);
    if (r == 0) {
        r = cordon_settings_store(doors->settings, (const char *const *)pairs, err);
        cordon_admin_pairs_free(pairs);
    }
    if (r == 0)
        cordon_admission_setup(doors->settings);
    else
        cordon_error_context(err, "stored settings (cordon config unset NAME forgets one)");
    return r;
}

/* --- the routes --- */

struct stored_list {
    struct stored {
        char name[80], by[24];
        int64_t at_s;
    } rows[VALUES_MAX];
    size_t count;
};

static int collect_stored(void *context, const struct cordon_stored_setting *setting)
{
    struct stored_list *list = context;
    if (list->count == VALUES_MAX)
        return 0; /* there are not as many settings */
    struct stored *to = &list->rows[list->count++];
    (void)snprintf(to->name, sizeof to->name, "%s", setting->name);
    (void)snprintf(to->by, sizeof to->by, "%s", setting->changed_by);
    to->at_s = setting->changed_s;
    return 0;
}

static void write_value(struct cordon_json *json, const struct cordon_setting_view *view)
{
    cordon_json_key(json, "value");
    if (view->secret)
        cordon_json_text(json, view->set ? CORDON_ADMIN_MASK : "");
    else
        cordon_json_text(json, view->value);
}

static void write_stored(struct cordon_json *json, const struct cordon_setting_view *view,
                         const struct stored_list *list)
{
    const struct stored *found = NULL;
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->rows[i].name, view->name) == 0)
            found = &list->rows[i];
    cordon_json_key(json, "stored");
    cordon_json_bool(json, found != NULL);
    if (!found)
        return;
    cordon_json_key(json, "overridden");
    cordon_json_bool(json, view->source > CORDON_SOURCE_STORED);
    cordon_json_key(json, "changed_s");
    cordon_json_int(json, found->at_s);
    cordon_json_key(json, "changed_by");
    cordon_json_text(json, found->by);
}

static void write_view(struct cordon_json *json, const struct cordon_setting_view *view, const struct stored_list *list)
{
    static const char *const types[] = {"string", "integer", "boolean", "list"};
    static const char *const sources[] = {"default", "file", "stored", "environment", "flag"};
    const struct {
        const char *key, *text;
    } texts[] = {{"name", view->name},
                 {"type", types[view->type]},
                 {"help", view->help},
                 {"unit", view->unit},
                 {"default", view->secret ? "" : view->fallback},
                 {"source", sources[view->source]},
                 {"set_by", view->alias ? view->alias : view->name},
                 {"scope", view->scope == CORDON_SCOPE_RUNTIME ? "runtime" : "deployment"}};
    cordon_json_object_begin(json);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        cordon_json_key(json, texts[i].key);
        cordon_json_text(json, texts[i].text);
    }
    cordon_json_key(json, "secret");
    cordon_json_bool(json, view->secret);
    if (view->type == CORDON_SETTING_INT) {
        cordon_json_key(json, "min");
        cordon_json_int(json, view->min);
        cordon_json_key(json, "max");
        cordon_json_int(json, view->max);
    }
    write_value(json, view);
    write_stored(json, view, list);
    cordon_json_object_end(json);
}

int cordon_admin_settings_get(struct cordon_http_request *request, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    cordon_autofree struct stored_list *list = calloc(1, sizeof *list);
    struct cordon_buf body = CORDON_BUF_INIT(4u << 20);
    struct cordon_json json = {.buf = &body};
    struct cordon_setting_view view;
    if (!list)
        return cordon_fail_errno(err, -ENOMEM, "list the settings");
    int64_t revision; /* read first: what changes meanwhile is then found to be newer */
    int r = cordon_stored_settings_revision(doors->store, &revision, err);
    if (r == 0)
        r = cordon_stored_settings_list(doors->store, collect_stored, list, err);
    if (r < 0)
        return r;
    char tag[32];
    (void)snprintf(tag, sizeof tag, "\"%lld\"", (long long)revision); /* fits */
    cordon_http_reply_header(request, "ETag", tag);
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "settings");
    cordon_json_array_begin(&json);
    for (size_t i = 0; cordon_settings_view(doors->settings, i, &view); i++)
        write_view(&json, &view, list);
    cordon_json_array_end(&json);
    cordon_json_object_end(&json);
    return cordon_admin_reply(request, &body, err);
}

/* The error with the name of the field that it is about, so that a form can show it there. */
static int reply_field(struct cordon_http_request *request, const char *field, const struct cordon_error *wrong,
                       struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(8192);
    struct cordon_json json = {.buf = &body};
    cordon_json_object_begin(&json);
    cordon_json_error(&json, wrong);
    cordon_json_key(&json, "field");
    cordon_json_text(&json, field);
    cordon_json_object_end(&json);
    (void)cordon_buf_append(&body, "\n", 1); /* sticky, seen by the reply */
    int r = cordon_http_reply(request, cordon_http_error_status(request, wrong), "application/json", &body);
    return r < 0 ? cordon_fail_errno(err, r, "writing the error") : 0;
}

/* Which of the changes an error of the whole begins with. */
static const char *field_of(const struct cordon_admin_changes *changes, const struct cordon_error *wrong)
{
    for (size_t i = 0; i < changes->count; i++) {
        size_t size = strlen(changes->rows[i].name);
        if (strncmp(wrong->message, changes->rows[i].name, size) == 0 && strchr(" :", wrong->message[size]))
            return changes->rows[i].name;
    }
    return NULL;
}

int cordon_admin_settings_put(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_admin_changes changes = {0};
    struct cordon_value body, values;
    struct cordon_error wrong = {0};
    char field[80] = "";
    int r = cordon_admin_body(request, &body, err);
    if (r == 0 && (!cordon_admin_member(&body, "values", &values) || values.kind != CORDON_VALUE_OBJECT))
        r = cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "the body needs an object `values` of names and values");
    if (r < 0)
        return r;
    r = cordon_admin_changes_read(&values, &changes, field, &wrong);
    if (r == 0)
        r = cordon_admin_changes_apply(request, &changes, &wrong);
    const char *about = *field ? field : r < 0 ? field_of(&changes, &wrong) : NULL;
    r = r < 0 ? reply_field(request, about, &wrong, err) : cordon_admin_settings_get(request, err);
    cordon_admin_changes_done(&changes);
    return r;
}
