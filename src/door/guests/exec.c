/* SPDX-License-Identifier: Apache-2.0 */
/* Programs in a guest: run to their end (as a stream of events, or one answer), started to go on, told of, signalled.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "core/run.h"
#include "door/guests/program.h"

static int read_command(const struct cordon_value *body, struct cordon_guest_asked *asked, struct cordon_error *err)
{
    struct cordon_value value;
    struct cordon_program_request *program = &asked->program;
    if (!cordon_field(body, "command", &value))
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "command must be given: a list of a program and its arguments, or a text for /bin/sh");
    if (value.kind == CORDON_VALUE_STRING) {
        const char **argv = cordon_door_take(&asked->memory, 4 * sizeof *argv);
        if (!argv)
            return cordon_fail_errno(err, -ENOMEM, "reading the request");
        argv[0] = "/bin/sh";
        argv[1] = "-c";
        program->argv = argv;
        program->argc = 3;
        return cordon_field_text(body, "command", &asked->memory, &argv[2], err);
    }
    struct cordon_texts words = {0};
    int r = cordon_field_texts(body, "command", &asked->memory, &words, err);
    if (r >= 0 && !words.count)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "command is an empty list");
    program->argv = words.items;
    program->argc = words.count;
    return r;
}

static int read_exec(const struct cordon_http_request *request, struct cordon_guest_asked *asked, bool *background,
                     const char **tag, struct cordon_error *err)
{
    struct cordon_value body;
    int r = cordon_fields_parse(&request->body, &body, err);
    if (r == 0)
        r = read_command(&body, asked, err);
    if (r >= 0)
        r = cordon_guest_asked_common(request, &body, asked, err);
    if (r >= 0)
        r = cordon_field_bool(&body, "background", background, err);
    if (r >= 0)
        r = cordon_field_text(&body, "tag", &asked->memory, tag, err);
    return r < 0 ? r : 0;
}

/* Starts a program that goes on when we have answered. Its deadline is the guest's to hold. */
static int start_background(struct cordon_http_request *request, const struct cordon_guest_asked *asked,
                            const char *tag, struct cordon_error *err)
{
    const struct cordon_program_request *program = &asked->program;
    struct cordon_operation operation = {.struct_size = sizeof operation,
                                         .kind = CORDON_OP_EXEC,
                                         .user = program->user,
                                         .argv = program->argv,
                                         .argc = program->argc,
                                         .env = program->env,
                                         .env_count = program->env_count,
                                         .cwd = program->cwd,
                                         .timeout_ms = asked->timeout_given ? program->timeout_ms : 0,
                                         .tag = tag,
                                         .cancel_fd = request->fd};
    struct cordon_live_stream *stream = NULL;
    struct cordon_stream_event event = {0};
    bool ended = false;
    int r = cordon_guests_open(program->tenant, program->guest, &operation, &stream, err);
    if (r >= 0)
        r = cordon_guests_next(stream, -1, &event, &ended, err);
    uint32_t pid = r == 1 && event.type == CORDON_STREAM_STARTED ? event.pid : 0;
    cordon_guests_close(stream);
    if (r < 0)
        return r;
    struct cordon_guest_reply reply;
    cordon_guest_reply_begin(&reply);
    cordon_json_object_begin(&reply.json);
    cordon_json_key(&reply.json, "pid");
    cordon_json_uint(&reply.json, pid);
    cordon_json_object_end(&reply.json);
    return cordon_guest_reply_send(request, 201, &reply, err);
}

int cordon_guest_exec_post(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_guest_asked asked = {0};
    bool background = false;
    const char *tag = NULL;
    int r = cordon_guest_of(request, asked.guest, err);
    if (r == 0)
        r = read_exec(request, &asked, &background, &tag, err);
    if (r == 0)
        r = background ? start_background(request, &asked, tag, err) : cordon_guest_asked_run(request, &asked, err);
    cordon_guest_asked_done(&asked);
    return r;
}

void cordon_guest_exit_write(struct cordon_json *json, const struct cordon_exec_exit *exit)
{
    cordon_json_key(json, "cause");
    cordon_json_text(json, cordon_cause_name(exit->cause));
    cordon_json_key(json, "exit_code");
    cordon_json_int(json, exit->exit_code);
    cordon_json_key(json, "signal");
    cordon_json_int(json, exit->signal);
    cordon_json_key(json, "run_ms");
    cordon_json_ms(json, exit->run_us);
}

static void write_exec(void *context, const struct cordon_exec_info *exec)
{
    struct cordon_json *json = context;
    cordon_json_object_begin(json);
    cordon_json_key(json, "pid");
    cordon_json_uint(json, exec->pid);
    cordon_json_key(json, "command");
    cordon_json_array_begin(json);
    for (size_t at = 0; at < exec->command_size;) {
        size_t size = strnlen(exec->command + at, exec->command_size - at);
        cordon_json_bytes(json, exec->command + at, size);
        at += size + 1;
    }
    cordon_json_array_end(json);
    cordon_json_key(json, "cwd");
    cordon_json_text(json, exec->cwd);
    cordon_json_key(json, "user");
    cordon_json_text(json, exec->user);
    cordon_json_key(json, "tag");
    cordon_json_text(json, exec->tag && *exec->tag ? exec->tag : NULL);
    cordon_json_key(json, "running");
    cordon_json_bool(json, exec->running);
    if (!exec->running)
        cordon_guest_exit_write(json, &exec->exit);
    cordon_json_object_end(json);
}

int cordon_guest_execs_get(struct cordon_http_request *request, struct cordon_error *err)
{
    char guest[CORDON_GUEST_ID];
    struct cordon_guest_reply reply;
    int r = cordon_guest_of(request, guest, err);
    if (r < 0)
        return r;
    cordon_guest_reply_begin(&reply);
    cordon_json_object_begin(&reply.json);
    cordon_json_key(&reply.json, "programs");
    cordon_json_array_begin(&reply.json);
    r = cordon_guests_execs(cordon_guest_viewer(request), guest, write_exec, &reply.json, err);
    cordon_json_array_end(&reply.json);
    cordon_json_object_end(&reply.json);
    if (r < 0) {
        cordon_buf_done(&reply.body);
        return r;
    }
    return cordon_guest_reply_send(request, 200, &reply, err);
}

/* "TERM", "SIGTERM" or a number. */
static int signal_number(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } known[] = {{"INT", SIGINT},   {"TERM", SIGTERM}, {"KILL", SIGKILL}, {"HUP", SIGHUP},   {"QUIT", SIGQUIT},
                 {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"STOP", SIGSTOP}, {"CONT", SIGCONT}, {"WINCH", SIGWINCH}};
    if (strncmp(name, "SIG", 3) == 0)
        name += 3;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0)
            return known[i].number;
    return 0;
}

int cordon_guest_pid_of(const struct cordon_http_request *request, uint32_t *ret, struct cordon_error *err)
{
    char text[16];
    unsigned long pid = 0;
    if (cordon_http_param(request, 1, text, sizeof text) < 0 || !(pid = strtoul(text, NULL, 10)) || pid > UINT32_MAX)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "the path names no program by its number (pid)");
    *ret = (uint32_t)pid;
    return 0;
}

int cordon_guest_signal_post(struct cordon_http_request *request, struct cordon_error *err)
{
    char guest[CORDON_GUEST_ID];
    cordon_autoforget struct cordon_door_memory memory = {0};
    const char *name = "TERM";
    struct cordon_value body;
    uint32_t pid = 0;
    int r = cordon_guest_of(request, guest, err);
    if (r == 0)
        r = cordon_guest_pid_of(request, &pid, err);
    if (r == 0)
        r = cordon_fields_parse(&request->body, &body, err);
    if (r == 0)
        r = cordon_field_text(&body, "signal", &memory, &name, err);
    if (r >= 0 && !signal_number(name))
        r = cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                        "signal is INT, TERM, KILL, HUP, QUIT, USR1, USR2, STOP, CONT or WINCH, not \"%.20s\"", name);
    if (r >= 0)
        r = cordon_guests_exec_control(cordon_guest_viewer(request), guest, pid, NULL, CORDON_CONTROL_SIGNAL,
                                       (uint32_t)signal_number(name), err);
    return r < 0 ? r : cordon_guest_reply_nothing(request, err);
}
