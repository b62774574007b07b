/* SPDX-License-Identifier: Apache-2.0 */
/* cordon guest: exec, ps, cell. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/guest.h"
#include "cli/run_daemon.h"
#include "core/value.h"

#define BODY_MAX (1u << 30)

static int read_input(const char *path, struct cordon_buf *to, struct cordon_error *err)
{
    bool own = strcmp(path, "-") == 0;
    int fd = own ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : 1;
    while (n > 0) {
        char *room = cordon_buf_reserve(to, 65536);
        n = room ? read(fd, room, 65536) : -1;
        to->size += n > 0 ? (size_t)n : 0;
    }
    int r = n < 0 ? -errno : 0;
    cordon_close(&fd);
    return r < 0 ? cordon_fail(err, r, CORDON_ERROR_INVALID, "--stdin %.200s: %s", path, strerror(-r)) : 0;
}

static int write_timeout(struct cordon_json *json, const char *text, struct cordon_error *err)
{
    char *end, digits[32];
    if (!text)
        return 0;
    double value = strtod(text, &end);
    if (end == text || *end || !(value > 0 && value < 1e9))
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "-t \"%.40s\": give a number of seconds above 0", text);
    (void)snprintf(digits, sizeof digits, "%.15g", value); /* fits */
    cordon_json_key(json, "timeout_s");
    cordon_json_raw(json, digits, strlen(digits));
    return 0;
}

static int write_exec(const struct cordon_guest_options *options, struct cordon_buf *to, struct cordon_error *err)
{
    struct cordon_json json = {.buf = to};
    struct cordon_buf input = CORDON_BUF_INIT(BODY_MAX / 2);
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "command");
    cordon_json_array_begin(&json);
    for (int i = 1; i < options->argc; i++)
        cordon_json_text(&json, options->argv[i]);
    cordon_json_array_end(&json);
    cordon_guest_write_pairs(&json, "env", &options->env);
    cordon_guest_write_text(&json, "user", options->user);
    cordon_guest_write_text(&json, "cwd", options->cwd);
    int r = write_timeout(&json, options->timeout_s, err);
    if (r == 0 && options->stdin_file)
        r = read_input(options->stdin_file, &input, err);
    if (r == 0 && options->stdin_file) {
        cordon_json_key(&json, "stdin_b64");
        cordon_json_base64(&json, input.data ? input.data : "", input.size);
    }
    if (options->background) {
        cordon_json_key(&json, "background");
        cordon_json_bool(&json, true);
    }
    cordon_json_object_end(&json);
    cordon_buf_done(&input);
    return r == 0 && to->failed ? cordon_fail_errno(err, -ENOMEM, "writing the request") : r;
}

static int follow(struct cordon_guest_call *call, const char *path, const struct cordon_buf *body,
                  struct cordon_error *err)
{
    struct cordon_run_options shown = {.json = call->options->json};
    struct cordon_run_show show;
    int r = cordon_run_show_open(&shown, &cordon_run_interrupted, &show, err);
    if (r == 0) {
        cordon_autoclose int fd = cordon_guest_connect(call, err);
        r = fd < 0 ? fd : cordon_run_by_daemon(fd, path, body, &show, err);
    }
    if (r == 0 || show.ended)
        cordon_guest_status = cordon_run_show_end(&show, err);
    cordon_run_show_done(&show);
    return show.ended ? 0 : r;
}

int cordon_guest_do_exec(struct cordon_guest_call *call, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(BODY_MAX), path = CORDON_BUF_INIT(8192), reply = CORDON_BUF_INIT(65536);
    int r = cordon_guest_path(&path, call->options->argv[0], "/exec", err);
    if (r == 0)
        r = write_exec(call->options, &body, err);
    if (r == 0 && call->options->background) {
        r = cordon_guest_ask(call, "POST", path.data, &body, &reply, err);
        if (r == 0)
            (void)printf("%.*s", (int)reply.size, reply.data);
    } else if (r == 0) {
        r = follow(call, path.data, &body, err);
    }
    cordon_buf_done(&body);
    cordon_buf_done(&path);
    cordon_buf_done(&reply);
    return r;
}

int cordon_guest_do_ps(struct cordon_guest_call *call, struct cordon_error *err)
{
    struct cordon_buf path = CORDON_BUF_INIT(8192), reply = CORDON_BUF_INIT(64u << 20);
    int r = cordon_guest_path(&path, call->options->argv[0], "/exec", err);
    if (r == 0)
        r = cordon_guest_ask(call, "GET", path.data, NULL, &reply, err);
    if (r == 0)
        (void)printf("%.*s", (int)reply.size, reply.data);
    cordon_buf_done(&path);
    cordon_buf_done(&reply);
    return r;
}

/* --- cell --- */

static int write_cell(const struct cordon_guest_options *options, struct cordon_buf *to, struct cordon_error *err)
{
    struct cordon_json json = {.buf = to};
    cordon_json_object_begin(&json);
    cordon_guest_write_text(&json, "code", options->code);
    cordon_guest_write_text(&json, "language", options->language);
    cordon_guest_write_text(&json, "context", options->context);
    cordon_guest_write_pairs(&json, "env", &options->env);
    int r = write_timeout(&json, options->timeout_s, err);
    cordon_json_object_end(&json);
    return r;
}

/* Decoded; what it has is written as it is, since it is what the program wrote. */
static void print_text(const struct cordon_value *text, FILE *to)
{
    char *decoded = text->kind == CORDON_VALUE_STRING ? malloc(text->size + 1) : NULL;
    ssize_t n = decoded ? cordon_value_string(text, decoded) : -1;
    if (n > 0)
        (void)fwrite(decoded, 1, (size_t)n, to); /* a full stdout is seen at the end */
    free(decoded);
}

static void print_lines(const struct cordon_value *list, FILE *to)
{
    struct cordon_value key, line;
    struct cordon_value_walk walk = cordon_value_walk(list);
    while (cordon_value_next(&walk, &key, &line)) {
        print_text(&line, to);
        (void)fputc('\n', to); /* as above */
    }
}

/* Output, then what was displayed and the value as texts, then the error. Ends with 1 after an error of the cell, 124
 * after a timeout, 125 when the context was lost. */
static int print_cell(const struct cordon_value *answer)
{
    struct cordon_value value, item, key, text;
    if (cordon_value_member(answer, "stdout", &value))
        print_text(&value, stdout);
    if (cordon_value_member(answer, "stderr", &value))
        print_text(&value, stderr);
    if (cordon_value_member(answer, "results", &value) && value.kind == CORDON_VALUE_ARRAY) {
        struct cordon_value_walk walk = cordon_value_walk(&value);
        while (cordon_value_next(&walk, &key, &item)) {
            if (item.kind == CORDON_VALUE_OBJECT && cordon_value_member(&item, "text", &text))
                print_text(&text, stdout);
            (void)putchar('\n');
        }
    }
    bool failed = cordon_value_member(answer, "error", &value) && value.kind == CORDON_VALUE_OBJECT;
    if (failed && cordon_value_member(&value, "traceback", &text) && text.kind == CORDON_VALUE_ARRAY)
        print_lines(&text, stderr);
    if (failed && cordon_value_member(&value, "name", &text) && cordon_value_equals(&text, "ExitStatus") &&
        cordon_value_member(&value, "value", &text)) { /* of bash: there is no traceback to show */
        (void)fputs("cordon: the cell ended with exit status ", stderr);
        print_text(&text, stderr);
        (void)fputc('\n', stderr);
    }
    if (cordon_value_member(answer, "message", &text) && text.size > 2) {
        (void)fputs("cordon: ", stderr);
        print_text(&text, stderr);
        (void)fputc('\n', stderr);
    }
    bool timeout = cordon_value_member(answer, "cause", &text) && cordon_value_equals(&text, "timeout");
    bool lost = cordon_value_member(answer, "context_ended", &text) && cordon_value_true(&text);
    return timeout ? 124 : lost ? CORDON_EXIT_FAILURE : failed;
}

int cordon_guest_do_cell(struct cordon_guest_call *call, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(64u << 20), path = CORDON_BUF_INIT(8192),
                      reply = CORDON_BUF_INIT(256u << 20);
    struct cordon_value answer;
    int r = call->options->code
                ? cordon_guest_path(&path, call->options->argv[0], "/cells", err)
                : cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "give the cell's program with -c CODE");
    if (r == 0)
        r = write_cell(call->options, &body, err);
    if (r == 0)
        r = cordon_guest_ask(call, "POST", path.data, &body, &reply, err);
    if (r == 0 && call->options->json)
        (void)printf("%.*s", (int)reply.size, reply.data);
    if (r == 0)
        r = cordon_value_parse(reply.data, reply.size, &answer, err);
    if (r == 0 && !call->options->json)
        cordon_guest_status = print_cell(&answer);
    cordon_buf_done(&body);
    cordon_buf_done(&path);
    cordon_buf_done(&reply);
    return r;
}
