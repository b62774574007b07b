/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The native JSON body (POST /v1/runs). Here are types and shapes, field by field from one table; bounds are
 * request.c's. A field that is null counts as absent.
 */
#include "core/request.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/egress.h"
#include "core/value.h"

#define MIB (1024ll * 1024)

struct reader {
    const struct cordon_settings *settings;
    struct cordon_run_request *run;
    struct cordon_error *err;
    const char *field; /* being read, for messages */
    uint32_t seen;     /* a bit a field of the table */
    uint32_t given;    /* as seen, without those that are null */
};

static int out_of_memory(struct reader *reader)
{
    return cordon_fail_errno(reader->err, -ENOMEM, "read the request");
}

static int expect(struct reader *reader, const struct cordon_value *value, enum cordon_value_kind kind)
{
    if (value->kind == kind)
        return 0;
    return cordon_fail(reader->err, -EINVAL, CORDON_ERROR_INVALID, "%s must be %s, not %s", reader->field,
                       cordon_value_kind_name(kind), cordon_value_kind_name(value->kind));
}

/* A string's bytes in the request's memory, NUL-terminated behind them. */
static int read_bytes(struct reader *reader, const struct cordon_value *value, struct cordon_bytes *ret)
{
    int r = expect(reader, value, CORDON_VALUE_STRING);
    if (r < 0)
        return r;
    char *text = cordon_run_request_alloc(reader->run, value->size);
    if (!text)
        return out_of_memory(reader);
    ssize_t size = cordon_value_string(value, text);
    if (size < 0)
        return cordon_fail(reader->err, -EINVAL, CORDON_ERROR_INVALID,
                           "%s has half a surrogate pair (\\ud800 to \\udfff) in it, which is no character",
                           reader->field);
    text[size] = '\0'; /* the quotes were two bytes more */
    *ret = (struct cordon_bytes){text, (size_t)size};
    return 0;
}

static int read_text(struct reader *reader, const struct cordon_value *value, const char **ret)
{
    struct cordon_bytes bytes;
    int r = read_bytes(reader, value, &bytes);
    if (r < 0)
        return r;
    if (memchr(bytes.data, '\0', bytes.size))
        return cordon_fail(reader->err, -EINVAL, CORDON_ERROR_INVALID, "%s has a NUL character in it", reader->field);
    *ret = bytes.data;
    return 0;
}

static int read_base64(struct reader *reader, const struct cordon_value *value, struct cordon_bytes *ret)
{
    struct cordon_bytes text;
    int r = read_bytes(reader, value, &text);
    if (r < 0)
        return r;
    struct cordon_buf buf = CORDON_BUF_INIT(text.size);
    r = cordon_buf_unbase64(&buf, text.data, text.size);
    if (r == 0 && buf.size) {
        /* It is shorter than its text, in whose place it goes. */
        char *to = cordon_run_request_alloc(reader->run, buf.size);
        if (to) {
            memcpy(to, buf.data, buf.size);
            text.data = to;
        } else {
            r = -ENOMEM;
        }
    }
    text.size = buf.size;
    cordon_buf_done(&buf);
    if (r == -ENOMEM)
        return out_of_memory(reader);
    if (r < 0)
        return cordon_fail(reader->err, -EINVAL, CORDON_ERROR_INVALID,
                           "%s is not base64 (standard alphabet, with padding, without white space)", reader->field);
    *ret = text;
    return 0;
}

static int read_bool(struct reader *reader, const struct cordon_value *value, bool *ret)
{
    int r = expect(reader, value, CORDON_VALUE_BOOL);
    if (r == 0)
        *ret = cordon_value_true(value);
    return r;
}

static int read_seconds(struct reader *reader, const struct cordon_value *value, uint64_t *ret_ms)
{
    double seconds;
    int r = expect(reader, value, CORDON_VALUE_NUMBER);
    if (r < 0)
        return r;
    if (!cordon_value_number(value, &seconds) || seconds < 0 || seconds > 1e9)
        return cordon_fail(reader->err, -EINVAL, CORDON_ERROR_INVALID, "%s is %.*s, which is no number of seconds",
                           reader->field, value->size < 40 ? (int)value->size : 40, value->data);
    *ret_ms = (uint64_t)ceil(seconds * 1000);
    return 0;
}

static int read_mb(struct reader *reader, const struct cordon_value *value, uint64_t *ret_bytes)
{
    int64_t mb;
    int r = expect(reader, value, CORDON_VALUE_NUMBER);
    if (r < 0)
        return r;
    if (!cordon_value_integer(value, &mb) || mb < 0 || mb > INT64_MAX / MIB)
        return cordon_fail(reader->err, -EINVAL, CORDON_ERROR_INVALID, "%s is %.*s, which is no whole number of MiB",
                           reader->field, value->size < 40 ? (int)value->size : 40, value->data);
    *ret_bytes = (uint64_t)(mb * MIB);
    return 0;
}

static int read_language(struct reader *reader, const struct cordon_value *value)
{
    const char *name;
    int r = read_text(reader, value, &name);
    if (r < 0)
        return r;
    const char *language = cordon_language_find(name);
    reader->run->request.language = language ? language : name; /* the check names what it doesn't know */
    return 0;
}

static int read_code(struct reader *reader, const struct cordon_value *value)
{
    return read_bytes(reader, value, &reader->run->request.code);
}

static int read_code_b64(struct reader *reader, const struct cordon_value *value)
{
    return read_base64(reader, value, &reader->run->request.code);
}

/* Passed on as it was written, so that no number or escape is changed. */
static int read_arguments(struct reader *reader, const struct cordon_value *value)
{
    int r = expect(reader, value, CORDON_VALUE_OBJECT);
    if (r < 0)
        return r;
    char *text = cordon_run_request_alloc(reader->run, value->size);
    if (!text)
        return out_of_memory(reader);
    memcpy(text, value->data, value->size);
    reader->run->request.arguments = (struct cordon_bytes){text, value->size};
    return 0;
}

static int read_stdin(struct reader *reader, const struct cordon_value *value)
{
    struct cordon_value key, content, more;
    if (value->kind == CORDON_VALUE_STRING)
        return read_bytes(reader, value, &reader->run->request.stdin_data);
    if (value->kind == CORDON_VALUE_OBJECT) {
        struct cordon_value_walk walk = cordon_value_walk(value);
        if (cordon_value_next(&walk, &key, &content) && cordon_value_equals(&key, "b64") &&
            !cordon_value_next(&walk, &key, &more))
            return read_base64(reader, &content, &reader->run->request.stdin_data);
    }
    return cordon_fail(reader->err, -EINVAL, CORDON_ERROR_INVALID, "stdin must be a string or {\"b64\": a string}");
}

static size_t count_values(const struct cordon_value *value, size_t most)
{
    struct cordon_value key, item;
    struct cordon_value_walk walk = cordon_value_walk(value);
    size_t count = 0;
    while (count <= most && cordon_value_next(&walk, &key, &item))
        count++;
    return count;
}

/* Room for the values of an array or object, of which there may be `most`. */
static int make_room(struct reader *reader, const struct cordon_value *value, size_t most, size_t item_size, void **ret)
{
    size_t count = count_values(value, most);
    if (count > most)
        return cordon_fail(reader->err, -EINVAL, CORDON_ERROR_INVALID, "%s has more entries than the %zu allowed",
                           reader->field, most);
    *ret = cordon_run_request_alloc(reader->run, (count + 1) * item_size);
    return *ret ? 0 : out_of_memory(reader);
}

static int read_env_pair(struct reader *reader, const struct cordon_value *key, const struct cordon_value *value,
                         const char **ret)
{
    const char *name, *text;
    int r = read_text(reader, key, &name);
    if (r < 0)
        return r;
    if (strchr(name, '='))
        return cordon_fail(reader->err, -EINVAL, CORDON_ERROR_INVALID, "env: \"%.80s\" is no name: it has a = in it",
                           name);
    if (value->kind != CORDON_VALUE_STRING)
        return cordon_fail(reader->err, -EINVAL, CORDON_ERROR_INVALID, "env: %.80s must be a string, not %s", name,
                           cordon_value_kind_name(value->kind));
    r = read_text(reader, value, &text);
    if (r < 0)
        return r;
    size_t size = strlen(name) + strlen(text) + 2;
    char *pair = cordon_run_request_alloc(reader->run, size);
    if (!pair)
        return out_of_memory(reader);
    (void)snprintf(pair, size, "%s=%s", name, text);
    *ret = pair;
    return 0;
}

static int read_env(struct reader *reader, const struct cordon_value *value)
{
    struct cordon_value key, item;
    const char **env;
    void *room = NULL;
    int r = expect(reader, value, CORDON_VALUE_OBJECT);
    if (r == 0)
        r = make_room(reader, value, CORDON_ENV_MAX, sizeof *env, &room);
    if (r < 0)
        return r;
    env = room;
    size_t count = 0;
    struct cordon_value_walk walk = cordon_value_walk(value);
    while (r == 0 && cordon_value_next(&walk, &key, &item))
        r = read_env_pair(reader, &key, &item, &env[count++]);
    reader->run->request.env = env;
    reader->run->request.env_count = count;
    return r;
}

/* "0755" in octal, or the number that it means. */
static int read_mode(struct reader *reader, const struct cordon_value *value, uint32_t *ret)
{
    int64_t mode = -1;
    if (value->kind == CORDON_VALUE_STRING) {
        const char *text;
        int r = read_text(reader, value, &text);
        if (r < 0)
            return r;
        size_t digits = strspn(text, "01234567");
        mode = digits && digits <= 5 && !text[digits] ? strtol(text, NULL, 8) : -1;
    } else if (!cordon_value_integer(value, &mode)) {
        mode = -1;
    }
    if (mode < 0 || mode > 0777)
        return cordon_fail(reader->err, -EINVAL, CORDON_ERROR_INVALID,
                           "files: a mode must be permission bits: a string like \"0755\" or a number up to 511");
    *ret = (uint32_t)mode;
    return 0;
}

enum file_part { FILE_PATH = 1, FILE_CONTENT = 2, FILE_MODE = 4 };

static int read_file_member(struct reader *reader, const struct cordon_value *key, const struct cordon_value *value,
                            struct cordon_file *file, unsigned *parts)
{
    unsigned part = 0;
    int r = 0;
    if (cordon_value_equals(key, "path")) {
        part = FILE_PATH;
        r = read_text(reader, value, &file->path);
    } else if (cordon_value_equals(key, "content")) {
        part = FILE_CONTENT;
        r = read_bytes(reader, value, &file->content);
    } else if (cordon_value_equals(key, "content_b64")) {
        part = FILE_CONTENT;
        r = read_base64(reader, value, &file->content);
    } else if (cordon_value_equals(key, "mode")) {
        part = FILE_MODE;
        r = read_mode(reader, value, &file->mode);
    }
    if (r < 0)
        return r;
    if (!part || (*parts & part))
        return cordon_fail(
            reader->err, -EINVAL, CORDON_ERROR_INVALID,
            "files: a file has path, one of content and content_b64, and perhaps mode, each once; not %.*s",
            key->size < 60 ? (int)key->size : 60, key->data);
    *parts |= part;
    return 0;
}

static int read_file(struct reader *reader, const struct cordon_value *value, struct cordon_file *file)
{
    struct cordon_value key, item;
    unsigned parts = file->path ? FILE_PATH : 0;
    int r = expect(reader, value, CORDON_VALUE_OBJECT);
    if (r < 0)
        return r;
    struct cordon_value_walk walk = cordon_value_walk(value);
    while (r == 0 && cordon_value_next(&walk, &key, &item))
        r = read_file_member(reader, &key, &item, file, &parts);
    if (r < 0)
        return r;
    if ((parts & (FILE_PATH | FILE_CONTENT)) != (FILE_PATH | FILE_CONTENT))
        return cordon_fail(reader->err, -EINVAL, CORDON_ERROR_INVALID,
                           "files: %s%.80s needs path and one of content and content_b64", file->path ? "" : "a file",
                           file->path ? file->path : "");
    return 0;
}

/* An array of {path, content…}, or an object of path: content. */
static int read_files(struct reader *reader, const struct cordon_value *value)
{
    struct cordon_value key, item;
    struct cordon_file *files;
    void *room = NULL;
    bool object = value->kind == CORDON_VALUE_OBJECT;
    int r = object ? 0 : expect(reader, value, CORDON_VALUE_ARRAY);
    if (r == 0)
        r = make_room(reader, value, CORDON_FILES_MAX, sizeof *files, &room);
    if (r < 0)
        return r;
    files = room;
    size_t count = 0;
    struct cordon_value_walk walk = cordon_value_walk(value);
    while (r == 0 && cordon_value_next(&walk, &key, &item)) {
        struct cordon_file *file = &files[count++];
        r = object ? read_text(reader, &key, &file->path) : 0;
        if (r == 0)
            r = object && item.kind == CORDON_VALUE_STRING ? read_bytes(reader, &item, &file->content)
                                                           : read_file(reader, &item, file);
    }
    reader->run->request.files = files;
    reader->run->request.file_count = count;
    return r;
}

static int read_timeout(struct reader *reader, const struct cordon_value *value)
{
    return read_seconds(reader, value, &reader->run->request.limits.timeout_ms);
}

static int read_cpu(struct reader *reader, const struct cordon_value *value)
{
    return read_seconds(reader, value, &reader->run->request.limits.cpu_ms);
}

static int read_memory(struct reader *reader, const struct cordon_value *value)
{
    reader->run->memory_asked = true;
    return read_mb(reader, value, &reader->run->request.limits.memory_bytes);
}

static int read_disk(struct reader *reader, const struct cordon_value *value)
{
    return read_mb(reader, value, &reader->run->request.limits.disk_bytes);
}

static int read_network(struct reader *reader, const struct cordon_value *value)
{
    return read_bool(reader, value, &reader->run->request.network);
}

static int read_artifacts(struct reader *reader, const struct cordon_value *value)
{
    return read_bool(reader, value, &reader->run->request.artifacts);
}

static int read_fresh(struct reader *reader, const struct cordon_value *value)
{
    return read_bool(reader, value, &reader->run->request.fresh_interpreter);
}

static int read_template(struct reader *reader, const struct cordon_value *value)
{
    return read_text(reader, value, &reader->run->request.template_name);
}

static int read_domains(struct reader *reader, const struct cordon_value *value)
{
    struct cordon_value key, item;
    const char **names;
    void *room = NULL;
    int r = expect(reader, value, CORDON_VALUE_ARRAY);
    if (r == 0)
        r = make_room(reader, value, CORDON_DOMAINS_MAX, sizeof *names, &room);
    if (r < 0)
        return r;
    names = room;
    size_t count = 0;
    struct cordon_value_walk walk = cordon_value_walk(value);
    while (r == 0 && cordon_value_next(&walk, &key, &item))
        r = read_text(reader, &item, &names[count++]);
    reader->run->request.allowed_domains = names;
    reader->run->request.allowed_domain_count = count;
    return r;
}

static void *take(void *run, size_t size)
{
    return cordon_run_request_alloc(run, size);
}

static int read_headers(struct reader *reader, const struct cordon_value *value)
{
    return cordon_egress_headers_read(value, reader->field, take, reader->run, &reader->run->headers,
                                      &reader->run->header_count, reader->err);
}

static int read_backend(struct reader *reader, const struct cordon_value *value)
{
    const char *name;
    int r = read_text(reader, value, &name);
    if (r < 0)
        return r;
    if (!*name || strlen(name) >= sizeof reader->run->backend)
        return cordon_fail(reader->err, -EINVAL, CORDON_ERROR_INVALID, "backend must be a name of 1 to %zu bytes",
                           sizeof reader->run->backend - 1);
    (void)snprintf(reader->run->backend, sizeof reader->run->backend, "%s", name);
    return 0;
}

static int refuse_guest(struct reader *reader, const struct cordon_value *value)
{
    return cordon_fail(reader->err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED,
                       "guest is not supported: this daemon keeps no guests between runs; leave it out");
}

/* It counts already (choose_policy). */
static int check_policy(struct reader *reader, const struct cordon_value *value)
{
    int r = expect(reader, value, CORDON_VALUE_STRING);
    if (r < 0 || cordon_value_equals(value, "langflow") || cordon_value_equals(value, "native"))
        return r;
    return cordon_fail(reader->err, -EINVAL, CORDON_ERROR_INVALID, "policy must be native or langflow");
}

static const struct field {
    const char *name;
    int (*read)(struct reader *reader, const struct cordon_value *value);
} fields[] = {
    {"language", read_language},
    {"code", read_code},
    {"code_b64", read_code_b64},
    {"arguments", read_arguments},
    {"stdin", read_stdin},
    {"env", read_env},
    {"files", read_files},
    {"timeout_s", read_timeout},
    {"memory_mb", read_memory},
    {"cpu_s", read_cpu},
    {"disk_mb", read_disk},
    {"network", read_network},
    {"allowed_domains", read_domains},
    {"egress_headers", read_headers},
    {"artifacts", read_artifacts},
    {"backend", read_backend},
    {"template", read_template},
    {"fresh_interpreter", read_fresh},
    {"guest", refuse_guest},
    {"policy", check_policy},
};
enum { FIELD_CODE = 1, FIELD_CODE_B64 = 2, FIELD_COUNT = sizeof fields / sizeof *fields };
_Static_assert(FIELD_COUNT <= 32, "one bit a field");

static int read_member(struct reader *reader, const struct cordon_value *key, const struct cordon_value *value)
{
    size_t i = 0;
    while (i < FIELD_COUNT && !cordon_value_equals(key, fields[i].name))
        i++;
    if (i == FIELD_COUNT)
        return cordon_fail(reader->err, -EINVAL, CORDON_ERROR_INVALID, "%.*s is no field of a run",
                           key->size < 80 ? (int)key->size : 80, key->data);
    if (reader->seen & 1u << i)
        return cordon_fail(reader->err, -EINVAL, CORDON_ERROR_INVALID, "%s is given twice", fields[i].name);
    reader->seen |= 1u << i;
    reader->field = fields[i].name;
    if (value->kind == CORDON_VALUE_NULL)
        return 0;
    reader->given |= 1u << i;
    return fields[i].read(reader, value);
}

/* Whose settings and rules apply: before all other members, whose defaults they are. */
static void choose_policy(struct reader *reader, const struct cordon_value *root)
{
    struct cordon_value key, value;
    struct cordon_value_walk walk = cordon_value_walk(root);
    while (cordon_value_next(&walk, &key, &value))
        if (cordon_value_equals(&key, "policy") && value.kind == CORDON_VALUE_STRING &&
            cordon_value_equals(&value, "langflow"))
            cordon_run_request_init(reader->settings, CORDON_DOOR_LANGFLOW, reader->run);
}

static int read_body(struct reader *reader, const char *body, size_t size)
{
    struct cordon_value root, key, value;
    int r = cordon_value_parse(body, size, &root, reader->err);
    if (r < 0) {
        cordon_error_context(reader->err, "the body");
        return r;
    }
    reader->field = "the body";
    r = expect(reader, &root, CORDON_VALUE_OBJECT);
    if (r < 0)
        return r;
    choose_policy(reader, &root);
    struct cordon_value_walk walk = cordon_value_walk(&root);
    while (r == 0 && cordon_value_next(&walk, &key, &value))
        r = read_member(reader, &key, &value);
    if (r < 0)
        return r;
    unsigned code = reader->given & (1u << FIELD_CODE | 1u << FIELD_CODE_B64);
    if (!reader->run->request.language)
        return cordon_fail(reader->err, -EINVAL, CORDON_ERROR_INVALID,
                           "language is missing: python, javascript or bash");
    if (!code || (code & (code - 1)))
        return cordon_fail(reader->err, -EINVAL, CORDON_ERROR_INVALID, "one of code and code_b64 must be given");
    return 0;
}

int cordon_run_request_parse(const struct cordon_settings *settings, const char *body, size_t size,
                             struct cordon_run_request *ret, struct cordon_error *err)
{
    struct reader reader = {.settings = settings, .run = ret, .err = err};
    cordon_run_request_init(settings, CORDON_DOOR_NATIVE, ret);
    int r = read_body(&reader, body, size);
    if (r == 0)
        r = cordon_run_request_check(settings, ret, err);
    if (r < 0)
        cordon_run_request_done(ret);
    return r;
}
