/* SPDX-License-Identifier: Apache-2.0 */
/* The command line as the JSON body of POST /v1/runs. Contents that are not UTF-8 travel as base64. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "cli/headers.h"
#include "cli/run_options.h"
#include "core/value.h"

#define FILE_MAX_BYTES (256u << 20) /* what is too much for a run is said by who reads the body */

static int read_fd(int fd, struct cordon_buf *to)
{
    for (;;) {
        char *at = cordon_buf_reserve(to, 65536);
        if (!at)
            return -errno;
        ssize_t n = read(fd, at, 65536);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : 0;
        to->size += (size_t)n;
        to->data[to->size] = '\0';
    }
}

/* The content of a path, or of stdin for "-". */
static int read_path(const char *option, const char *path, struct cordon_buf *to, mode_t *ret_mode,
                     struct cordon_error *err)
{
    bool own = strcmp(path, "-") == 0;
    struct stat found;
    cordon_autoclose int opened = own ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    int fd = own ? STDIN_FILENO : opened;
    int r = fd < 0 || fstat(fd, &found) < 0 ? -errno : 0;
    if (r == 0 && S_ISDIR(found.st_mode))
        r = -EISDIR;
    if (r == 0)
        r = read_fd(fd, to);
    if (r < 0)
        return cordon_fail(err, r, CORDON_ERROR_INVALID, "%s %.200s: %s", option, path,
                           r == -EMSGSIZE ? "larger than 256 MiB" : strerror(-r));
    if (ret_mode)
        *ret_mode = found.st_mode & 0111 ? 0755 : 0644;
    return 0;
}

static void write_content(struct cordon_json *json, const char *key, const char *key_b64,
                          const struct cordon_buf *content)
{
    const char *data = content->data ? content->data : "";
    bool text = cordon_utf8_valid(data, content->size);
    cordon_json_key(json, text ? key : key_b64);
    if (text)
        cordon_json_bytes(json, data, content->size);
    else
        cordon_json_base64(json, data, content->size);
}

static int write_program(const struct cordon_run_options *options, struct cordon_json *json, struct cordon_error *err)
{
    struct cordon_buf code = CORDON_BUF_INIT(FILE_MAX_BYTES);
    int r = options->code ? cordon_buf_appends(&code, options->code)
                          : read_path("program", options->file, &code, NULL, err);
    if (r < 0) {
        cordon_buf_done(&code);
        return r;
    }
    const char *language = options->language;
    if (!language)
        language = cordon_language_guess(options->file, code.data ? code.data : "", code.size);
    bool named = options->file && strcmp(options->file, "-") != 0;
    if (!language && named)
        r = cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                        "program %.200s: neither its name's ending nor a #! line tells its language; give -l",
                        options->file);
    cordon_json_key(json, "language");
    cordon_json_text(json, language ? language : "python");
    write_content(json, "code", "code_b64", &code);
    cordon_buf_done(&code);
    return r;
}

static int write_stdin(const struct cordon_run_options *options, struct cordon_json *json, struct cordon_error *err)
{
    struct cordon_buf content = CORDON_BUF_INIT(FILE_MAX_BYTES);
    if (!options->stdin_file)
        return 0;
    int r = read_path("--stdin", options->stdin_file, &content, NULL, err);
    cordon_json_key(json, "stdin");
    cordon_json_object_begin(json);
    cordon_json_key(json, "b64");
    cordon_json_base64(json, content.data ? content.data : "", content.size);
    cordon_json_object_end(json);
    cordon_buf_done(&content);
    return r;
}

static int write_arguments(const struct cordon_run_options *options, struct cordon_json *json, struct cordon_error *err)
{
    struct cordon_value value;
    if (!options->arguments)
        return 0;
    int r = cordon_value_parse(options->arguments, strlen(options->arguments), &value, err);
    if (r < 0) {
        cordon_error_context(err, "--args");
        return r;
    }
    if (value.kind != CORDON_VALUE_OBJECT)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "--args must be a JSON object, not %s",
                           cordon_value_kind_name(value.kind));
    cordon_json_key(json, "arguments");
    cordon_json_raw(json, value.data, value.size);
    return 0;
}

static int write_env(const struct cordon_run_options *options, struct cordon_json *json, struct cordon_error *err)
{
    if (!options->env.count)
        return 0;
    cordon_json_key(json, "env");
    cordon_json_object_begin(json);
    for (size_t i = 0; i < options->env.count; i++) {
        const char *word = options->env.items[i];
        size_t name = strcspn(word, "=");
        if (!cordon_utf8_valid(word, strlen(word)))
            return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "-e %.*s: the value is not UTF-8", (int)name, word);
        cordon_autofree char *key = strndup(word, name);
        if (!key)
            return cordon_fail_errno(err, -ENOMEM, "reading -e");
        cordon_json_key(json, key);
        cordon_json_text(json, word + name + 1);
    }
    cordon_json_object_end(json);
    return 0;
}

static int write_put(const char *word, struct cordon_json *json, struct cordon_error *err)
{
    struct cordon_buf content = CORDON_BUF_INIT(FILE_MAX_BYTES);
    const char *colon = strrchr(word, ':');
    cordon_autofree char *local = strndup(word, (size_t)(colon - word));
    mode_t mode = 0644;
    if (!local)
        return cordon_fail_errno(err, -ENOMEM, "reading --put");
    int r = read_path("--put", local, &content, &mode, err);
    if (r == 0) {
        cordon_json_object_begin(json);
        cordon_json_key(json, "path");
        cordon_json_text(json, colon + 1);
        write_content(json, "content", "content_b64", &content);
        cordon_json_key(json, "mode");
        cordon_json_text(json, mode == 0755 ? "0755" : "0644");
        cordon_json_object_end(json);
    }
    cordon_buf_done(&content);
    return r;
}

static int write_puts(const struct cordon_run_options *options, struct cordon_json *json, struct cordon_error *err)
{
    int r = 0;
    if (!options->puts.count)
        return 0;
    cordon_json_key(json, "files");
    cordon_json_array_begin(json);
    for (size_t i = 0; r == 0 && i < options->puts.count; i++)
        r = write_put(options->puts.items[i], json, err);
    cordon_json_array_end(json);
    return r;
}

/* As 7 and not 007 or 7., which JSON does not know. */
static void write_number(struct cordon_json *json, const char *key, const char *text)
{
    char digits[40];
    if (!text)
        return;
    (void)snprintf(digits, sizeof digits, "%.15g", strtod(text, NULL)); /* fits; was checked to be a number */
    cordon_json_key(json, key);
    cordon_json_raw(json, digits, strlen(digits));
}

static void write_flag(struct cordon_json *json, const char *key, bool value)
{
    if (!value)
        return;
    cordon_json_key(json, key);
    cordon_json_bool(json, true);
}

static int write_rest(const struct cordon_run_options *options, struct cordon_json *json, struct cordon_error *err)
{
    if (options->backend) {
        cordon_json_key(json, "backend");
        cordon_json_text(json, options->backend);
    }
    if (options->template_name) {
        cordon_json_key(json, "template");
        cordon_json_text(json, options->template_name);
    }
    if (options->policy) {
        cordon_json_key(json, "policy");
        cordon_json_text(json, options->policy);
    }
    write_number(json, "timeout_s", options->timeout_s);
    write_number(json, "memory_mb", options->memory_mb);
    write_flag(json, "artifacts", options->artifacts);
    write_flag(json, "fresh_interpreter", options->fresh);
    return cordon_cli_network_write(options->network, &options->domains, &options->headers, json, err);
}

int cordon_run_options_body(const struct cordon_run_options *options, struct cordon_buf *to, struct cordon_error *err)
{
    struct cordon_json json = {.buf = to};
    cordon_json_object_begin(&json);
    int r = write_program(options, &json, err);
    if (r == 0)
        r = write_arguments(options, &json, err);
    if (r == 0)
        r = write_stdin(options, &json, err);
    if (r == 0)
        r = write_env(options, &json, err);
    if (r == 0)
        r = write_puts(options, &json, err);
    if (r < 0)
        return r;
    r = write_rest(options, &json, err);
    if (r < 0)
        return r;
    cordon_json_object_end(&json);
    return to->failed ? cordon_fail_errno(err, -ENOMEM, "writing the request") : 0;
}
