/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of POST /run, and the 422 bodies of what is wrong with it: {"detail":[{type, loc, msg, input, ctx?}…]}, in
 * the words of pydantic. All faults are told, in the order of the fields. `input` is what was found, so it is written
 * out of the checked body value by value.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fd.h"
#include "door/executor_manager.h"

struct faults {
    struct cordon_json json;
    size_t count;
};

static struct faults faults_begin(struct cordon_buf *to)
{
    struct faults faults = {.json = {.buf = to}};
    cordon_json_object_begin(&faults.json);
    cordon_json_key(&faults.json, "detail");
    cordon_json_array_begin(&faults.json);
    return faults;
}

static void faults_end(struct faults *faults)
{
    cordon_json_array_end(&faults->json);
    cordon_json_object_end(&faults->json);
}

/* Up to "msg"; `input`, "ctx" and the end follow. field NULL: it is about the whole body. */
static struct cordon_json *fault_begin(struct faults *faults, const char *type, const char *field, const char *message)
{
    struct cordon_json *json = &faults->json;
    faults->count++;
    cordon_json_object_begin(json);
    cordon_json_pair_text(json, "type", type);
    cordon_json_key(json, "loc");
    cordon_json_array_begin(json);
    cordon_json_text(json, "body");
    if (field)
        cordon_json_text(json, field);
    cordon_json_array_end(json);
    cordon_json_pair_text(json, "msg", message);
    cordon_json_key(json, "input");
    return json;
}

/* A string's content again, without the escapes that JSON does not need. */
static void write_string(struct cordon_json *json, const struct cordon_value *value)
{
    cordon_autofree char *text = malloc(value->size);
    ssize_t size = text ? cordon_value_string(value, text) : -ENOMEM;
    if (size == -ENOMEM)
        json->buf->failed = true;
    else if (size < 0)
        cordon_json_raw(json, value->data, value->size); /* half a surrogate pair can only travel escaped */
    else
        cordon_json_bytes(json, text, (size_t)size);
}

/* A value without the white space between its parts. As deep as the reader allows, which is 64. */
static void write_value(struct cordon_json *json, const struct cordon_value *value)
{
    struct cordon_value key, item;
    bool object = value->kind == CORDON_VALUE_OBJECT;
    if (value->kind == CORDON_VALUE_STRING) {
        write_string(json, value);
        return;
    }
    if (!object && value->kind != CORDON_VALUE_ARRAY) {
        cordon_json_raw(json, value->data, value->size);
        return;
    }
    struct cordon_value_walk walk = cordon_value_walk(value);
    object ? cordon_json_object_begin(json) : cordon_json_array_begin(json);
    while (cordon_value_next(&walk, &key, &item)) {
        if (object) {
            write_string(json, &key);
            (void)cordon_buf_append(json->buf, ":", 1); /* failures stick in buf->failed */
            json->need_comma = false;
        }
        write_value(json, &item);
    }
    object ? cordon_json_object_end(json) : cordon_json_array_end(json);
}

static void fault(struct faults *faults, const char *type, const char *field, const char *message,
                  const struct cordon_value *input)
{
    struct cordon_json *json = fault_begin(faults, type, field, message);
    if (input->size)
        write_value(json, input);
    else
        cordon_json_null(json);
    cordon_json_object_end(json);
}

/* --- the body as JSON --- */

bool cordon_em_is_json(const char *content_type)
{
    if (!content_type || !*content_type)
        return true;
    size_t size = strcspn(content_type, "; \t");
    if (strncasecmp(content_type, "application/", 12) != 0)
        return false;
    if (size == 16 && strncasecmp(content_type + 12, "json", 4) == 0)
        return true;
    return size > 17 && strncasecmp(content_type + size - 5, "+json", 5) == 0;
}

void cordon_em_not_json(const char *body, size_t size, struct cordon_buf *errors)
{
    struct faults faults = faults_begin(errors);
    struct cordon_json *json = fault_begin(&faults, "model_attributes_type", NULL,
                                           "Input should be a valid dictionary or object to extract fields from");
    cordon_json_bytes(json, body, size);
    cordon_json_object_end(json);
    faults_end(&faults);
}

/* The reader's words for a fault, and those of Python's. */
static const char *python_words(const char *why)
{
    static const struct {
        const char *ours, *python;
    } words[] = {
        {"no value where", "Expecting value"},
        {"the end of the text where", "Expecting value"},
        {"the end of the text inside", "Expecting ',' delimiter"},
        {"neither a comma", "Expecting ',' delimiter"},
        {"no string", "Expecting property name enclosed in double quotes"},
        {"no colon", "Expecting ':' delimiter"},
        {"a string without an end", "Unterminated string starting at"},
        {"a control character", "Invalid control character at"},
        {"an unknown escape", "Invalid \\escape"},
        {"\\u without", "Invalid \\uXXXX escape"},
        {"a number without", "Expecting value"},
        {"more text behind", "Extra data"},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strncmp(why, words[i].ours, strlen(words[i].ours)) == 0)
            return words[i].python;
    return why;
}

static void not_parsed(const char *why, size_t at, struct cordon_buf *errors)
{
    struct faults faults = faults_begin(errors);
    struct cordon_json *json = &faults.json;
    cordon_json_object_begin(json);
    cordon_json_pair_text(json, "type", "json_invalid");
    cordon_json_key(json, "loc");
    cordon_json_array_begin(json);
    cordon_json_text(json, "body");
    cordon_json_uint(json, at);
    cordon_json_array_end(json);
    cordon_json_pair_text(json, "msg", "JSON decode error");
    cordon_json_key(json, "input");
    cordon_json_raw(json, "{}", 2);
    cordon_json_key(json, "ctx");
    cordon_json_object_begin(json);
    cordon_json_pair_text(json, "error", python_words(why));
    cordon_json_object_end(json);
    cordon_json_object_end(json);
    faults_end(&faults);
}

bool cordon_em_parse(const char *body, size_t size, struct cordon_value *ret, struct cordon_buf *errors)
{
    const char *why;
    size_t at;
    *ret = (struct cordon_value){0};
    if (!size || cordon_value_check(body, size, ret, &why, &at))
        return true;
    not_parsed(why, at, errors);
    return false;
}

/* --- the fields --- */

static void read_code(const struct cordon_value *value, struct cordon_em_fields *ret, struct faults *faults)
{
    char why[160] = "string argument should contain only ASCII characters", message[256];
    cordon_autofree char *text = NULL;
    if (value->kind != CORDON_VALUE_STRING) {
        fault(faults, "string_type", "code_b64", "Input should be a valid string", value);
        return;
    }
    const char *data = value->data + 1;
    ssize_t size = (ssize_t)value->size - 2;
    if (memchr(data, '\\', (size_t)size)) { /* nobody escapes base64, but it may be */
        text = malloc(value->size);
        size = text ? cordon_value_string(value, text) : -ENOMEM;
        data = text;
    }
    if (size == -ENOMEM)
        faults->json.buf->failed = true;
    ssize_t decoded = size >= 0 ? cordon_em_unbase64(data, (size_t)size, NULL, why) : size;
    ret->code_b64 = *value;
    ret->code_size = decoded >= 0 ? (size_t)decoded : 0;
    if (decoded >= 0)
        return;
    (void)snprintf(message, sizeof message, "Value error, Invalid base64 encoding: %s", why); /* fits */
    struct cordon_json *json = fault_begin(faults, "value_error", "code_b64", message);
    write_value(json, value);
    cordon_json_key(json, "ctx");
    cordon_json_raw(json, "{\"error\":{}}", 12);
    cordon_json_object_end(json);
}

static void read_language(const struct cordon_value *value, struct cordon_em_fields *ret, struct faults *faults)
{
    static const char *const names[][2] = {{"python", "python"}, {"nodejs", "javascript"}};
    for (size_t i = 0; value->kind == CORDON_VALUE_STRING && i < 2; i++) {
        if (cordon_value_equals(value, names[i][0])) {
            ret->language = names[i][1];
            return;
        }
    }
    struct cordon_json *json = fault_begin(faults, "enum", "language", "Input should be 'python' or 'nodejs'");
    write_value(json, value);
    cordon_json_key(json, "ctx");
    cordon_json_object_begin(json);
    cordon_json_pair_text(json, "expected", "'python' or 'nodejs'");
    cordon_json_object_end(json);
    cordon_json_object_end(json);
}

static void read_arguments(const struct cordon_value *value, struct cordon_em_fields *ret, struct faults *faults)
{
    if (value->kind == CORDON_VALUE_OBJECT)
        ret->arguments = (struct cordon_bytes){value->data, value->size};
    else if (value->kind != CORDON_VALUE_NULL)
        fault(faults, "dict_type", "arguments", "Input should be a valid dictionary", value);
}

/* In the order in which faults are told. */
static const struct field {
    const char *name;
    void (*read)(const struct cordon_value *value, struct cordon_em_fields *ret, struct faults *faults);
    bool required;
} fields[] = {
    {"code_b64", read_code, true},
    {"language", read_language, false},
    {"arguments", read_arguments, false},
};
#define FIELDS (sizeof fields / sizeof *fields)

static void read_object(const struct cordon_value *body, struct cordon_em_fields *ret, struct faults *faults)
{
    struct cordon_value found[FIELDS] = {{0}}, key, value;
    struct cordon_value_walk walk = cordon_value_walk(body);
    while (cordon_value_next(&walk, &key, &value))
        for (size_t i = 0; i < FIELDS; i++)
            if (cordon_value_equals(&key, fields[i].name))
                found[i] = value; /* the last one counts; what has another name does not */
    for (size_t i = 0; i < FIELDS; i++) {
        if (found[i].size)
            fields[i].read(&found[i], ret, faults);
        else if (fields[i].required)
            fault(faults, "missing", fields[i].name, "Field required", body);
    }
}

bool cordon_em_read(const struct cordon_value *body, struct cordon_em_fields *ret, struct cordon_buf *errors)
{
    size_t start = errors->size;
    struct faults faults = faults_begin(errors);
    *ret = (struct cordon_em_fields){.language = "python", .arguments = {"{}", 2}};
    if (!body->size || body->kind == CORDON_VALUE_NULL)
        fault(&faults, "missing", NULL, "Field required", &(struct cordon_value){0});
    else if (body->kind != CORDON_VALUE_OBJECT)
        fault(&faults, "model_attributes_type", NULL,
              "Input should be a valid dictionary or object to extract fields from", body);
    else
        read_object(body, ret, &faults);
    faults_end(&faults);
    bool good = !faults.count && !errors->failed;
    if (good)
        errors->size = start;
    return good;
}
