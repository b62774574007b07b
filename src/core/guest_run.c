/* SPDX-License-Identifier: Apache-2.0 */
/* A program in a kept guest, told in the events of a run: started, output, result, artifacts, outcome. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "core/registry.h"
#include "core/reuse.h"
#include "core/value.h"

#define INLINE_STDIN (64u << 10) /* what a pipe takes; more is written beside the reading */
#define RESULT_MAX (16u << 20)
#define SLICE (64u << 10)

enum phase { RUNNING, COLLECTING, TELLING, OVER };

struct cordon_program {
    char tenant_text[64], guest[CORDON_GUEST_ID];
    const char *tenant;
    struct cordon_live_stream *stream;
    struct cordon_guest_command command;
    bool has_code, started_told, result_told, with_artifacts;
    enum phase phase;
    uint64_t begun_us, started_us;
    uint64_t timeout_ms;
    uint64_t cap[2];
    uint32_t pid;
    struct cordon_bytes input; /* still to be written, by the thread */
    pthread_t writer;
    bool writing;
    struct cordon_buf result;
    struct cordon_artifacts artifacts;
    struct cordon_outcome outcome;
};

/* --- stdin, where it is more than a pipe takes --- */

static void *write_input(void *context)
{
    struct cordon_program *run = context;
    int r = 0;
    for (size_t at = 0; r >= 0 && at < run->input.size; at += SLICE) {
        size_t n = run->input.size - at < SLICE ? run->input.size - at : SLICE;
        r = cordon_guests_exec_write(run->tenant, run->guest, run->pid, NULL, CORDON_TO_STDIN, run->input.data + at, n,
                                     NULL); /* the program may have closed it, or have ended */
    }
    (void)cordon_guests_exec_control(run->tenant, run->guest, run->pid, NULL, CORDON_CONTROL_END, CORDON_TO_STDIN,
                                     NULL); /* as above */
    return NULL;
}

static int give_input(struct cordon_program *run, struct cordon_error *err)
{
    if (run->input.size > INLINE_STDIN) {
        int r = pthread_create(&run->writer, NULL, write_input, run);
        run->writing = r == 0;
        return r ? cordon_fail_errno(err, -r, "a thread for the program's stdin") : 0;
    }
    struct cordon_error why = {0}; /* the program may have closed it already */
    (void)cordon_guests_write(run->stream, CORDON_TO_STDIN, run->input.data, run->input.size, &why);
    (void)cordon_guests_control(run->stream, CORDON_CONTROL_END, CORDON_TO_STDIN, &why);
    return 0;
}

static int give_arguments(struct cordon_program *run, struct cordon_bytes arguments, struct cordon_error *err)
{
    int r = cordon_guests_write(run->stream, CORDON_TO_CHANNEL, arguments.data, arguments.size, err);
    if (r >= 0)
        r = cordon_guests_control(run->stream, CORDON_CONTROL_END, CORDON_TO_CHANNEL, err);
    return r < 0 ? r : 0;
}

/* --- beginning --- */

static int put_files(struct cordon_program *run, const struct cordon_program_request *program, struct cordon_error *err)
{
    int r = 0;
    for (size_t i = 0; i < program->file_count && r == 0; i++)
        r = cordon_guest_put(run->tenant, run->guest, program->files[i].path, program->files[i].mode,
                             program->files[i].content, program->cancel_fd, err);
    if (r == 0 && run->has_code)
        r = cordon_guest_put(run->tenant, run->guest, run->command.path, 0644, program->code, program->cancel_fd, err);
    if (r == 0 && run->with_artifacts)
        r = cordon_artifacts_begin(&run->artifacts, err);
    return r;
}

/* The first event, which tells the program's number; until then what fails is an error and no outcome. */
static int await_start(struct cordon_program *run, struct cordon_error *err)
{
    struct cordon_stream_event event;
    bool ended = false;
    int r = cordon_guests_next(run->stream, -1, &event, &ended, err);
    if (r < 0)
        return r;
    if (r == 0 || event.type != CORDON_STREAM_STARTED)
        return cordon_fail(err, -EPROTO, CORDON_ERROR_INFRASTRUCTURE, "the program was not seen to start");
    run->pid = event.pid;
    run->started_us = cordon_now_us();
    return 0;
}

static int start(struct cordon_program *run, const struct cordon_program_request *program, struct cordon_error *err)
{
    bool has_input = program->stdin_data.size > 0;
    struct cordon_operation operation = {.struct_size = sizeof operation,
                                         .kind = CORDON_OP_EXEC,
                                         .user = program->user,
                                         .argv = run->has_code ? run->command.argv : program->argv,
                                         .argc = run->has_code ? run->command.argc : program->argc,
                                         .env = program->env,
                                         .env_count = program->env_count,
                                         .cwd = program->cwd,
                                         .timeout_ms = program->timeout_ms,
                                         .output_kill_bytes = program->output_kill_bytes,
                                         .stdin_open = has_input,
                                         .channel = run->command.calls_main,
                                         .kill_on_close = true,
                                         .cancel_fd = program->cancel_fd};
    int r = cordon_guests_open(run->tenant, run->guest, &operation, &run->stream, err);
    if (r >= 0)
        r = await_start(run, err);
    if (r >= 0 && run->command.calls_main)
        r = give_arguments(run, program->arguments, err);
    if (r >= 0 && has_input)
        r = give_input(run, err);
    return r < 0 ? r : 0;
}

int cordon_program_open(const struct cordon_program_request *program, struct cordon_program **ret,
                        struct cordon_error *err)
{
    struct cordon_program *run = calloc(1, sizeof *run);
    if (!run)
        return cordon_fail_errno(err, -ENOMEM, "starting a program");
    (void)snprintf(run->tenant_text, sizeof run->tenant_text, "%s", program->tenant);
    (void)snprintf(run->guest, sizeof run->guest, "%s", program->guest);
    run->tenant = program->tenant == cordon_guests_all ? cordon_guests_all : run->tenant_text;
    run->begun_us = cordon_now_us();
    run->timeout_ms = program->timeout_ms;
    run->cap[0] = program->stdout_bytes;
    run->cap[1] = program->stderr_bytes;
    run->input = program->stdin_data;
    run->result = CORDON_BUF_INIT(RESULT_MAX);
    run->has_code = program->language != NULL;
    run->with_artifacts = program->artifacts;
    run->artifacts = (struct cordon_artifacts){
        .tenant = run->tenant,
        .guest = run->guest,
        .files = program->artifact_files ? program->artifact_files : CORDON_REUSE_FILES,
        .bytes = program->artifact_bytes ? program->artifact_bytes : CORDON_REUSE_BYTES,
    };
    run->outcome = (struct cordon_outcome){.struct_size = sizeof run->outcome, .exit_code = -1};
    int r = run->has_code ? cordon_guest_command(program, &run->command, err) : 0;
    if (r == 0)
        r = put_files(run, program, err);
    if (r == 0)
        r = start(run, program, err);
    if (r < 0) {
        cordon_program_close(run);
        return r;
    }
    *ret = run;
    return 0;
}

/* --- the end --- */

static void fill_outcome(struct cordon_program *run, const struct cordon_exec_exit *exit)
{
    struct cordon_outcome *outcome = &run->outcome;
    outcome->cause = exit->cause;
    outcome->signal = exit->signal;
    outcome->exit_code = exit->cause == CORDON_CAUSE_EXITED      ? exit->exit_code
                         : exit->cause == CORDON_CAUSE_SIGNALLED ? 128 + exit->signal
                         : exit->cause == CORDON_CAUSE_MEMORY    ? 137
                                                                 : -1;
    outcome->stdout_bytes = exit->stdout_bytes;
    outcome->stderr_bytes = exit->stderr_bytes;
    (void)snprintf(outcome->message, sizeof outcome->message, "%s", exit->message);
    if (exit->cause == CORDON_CAUSE_TIMEOUT)
        (void)snprintf(outcome->limit_hit, sizeof outcome->limit_hit, "timeout_s");
    else if (exit->cause == CORDON_CAUSE_MEMORY)
        (void)snprintf(outcome->limit_hit, sizeof outcome->limit_hit, "memory_mb");
    else if (exit->cause == CORDON_CAUSE_OUTPUT_LIMIT)
        (void)snprintf(outcome->limit_hit, sizeof outcome->limit_hit, "output_kill_mb");
}

static void fill_failure(struct cordon_program *run, const struct cordon_error *err)
{
    run->outcome.cause = err->code == -ECANCELED || err->kind == CORDON_ERROR_CANCELLED ? CORDON_CAUSE_CANCELLED
                                                                                        : CORDON_CAUSE_INFRASTRUCTURE;
    (void)snprintf(run->outcome.message, sizeof run->outcome.message, "%.250s", err->message);
}

static void tell_accelerator(struct cordon_program *run, const char *name)
{
    const struct cordon_backend *backend;
    if (cordon_registry_find(name, "", &backend, NULL) < 0)
        return;
    const char *accelerator = cordon_registry_capabilities(backend).accelerator;
    (void)snprintf(run->outcome.accelerator, sizeof run->outcome.accelerator, "%s", accelerator ? accelerator : "");
}

static void fill_times(struct cordon_program *run)
{
    uint64_t now = cordon_now_us();
    run->outcome.start_us = run->started_us - run->begun_us;
    run->outcome.run_us = now - run->started_us;
    run->outcome.total_us = now - run->begun_us;
    run->outcome.warm = true;
    struct cordon_guest_info *info = NULL;
    if (cordon_guests_info(run->tenant, run->guest, &info, NULL) >= 0) {
        (void)snprintf(run->outcome.backend, sizeof run->outcome.backend, "%s", info->backend);
        run->outcome.isolation = info->isolation;
        tell_accelerator(run, info->backend);
    }
    cordon_guest_info_free(info);
}

/* The program has ended, however: what it left behind is looked at, unless nobody is there who would want it. */
static void begin_collecting(struct cordon_program *run)
{
    struct cordon_error err = {0};
    fill_times(run);
    cordon_guests_close(run->stream);
    run->stream = NULL;
    run->phase = TELLING;
    if (!run->with_artifacts || run->outcome.cause == CORDON_CAUSE_CANCELLED ||
        run->outcome.cause == CORDON_CAUSE_INFRASTRUCTURE)
        return;
    if (cordon_artifacts_end(&run->artifacts, &err) == 0)
        run->phase = COLLECTING;
    else if (!run->outcome.message[0])
        (void)snprintf(run->outcome.message, sizeof run->outcome.message, "its files could not be listed: %.200s",
                       err.message);
}

static void end_result(struct cordon_program *run)
{
    struct cordon_value value;
    if (!run->command.calls_main || run->outcome.result_error[0])
        return;
    if (!run->result.size)
        (void)snprintf(run->outcome.result_error, sizeof run->outcome.result_error,
                       "the program ended before main() returned"); /* fits */
    else if (cordon_value_parse(run->result.data, run->result.size, &value, NULL) < 0)
        (void)snprintf(run->outcome.result_error, sizeof run->outcome.result_error,
                       "what came as main's result is not JSON"); /* fits */
}

/* --- meanwhile --- */

/* 1 with an event, 0 when it was nothing to tell. */
static int tell_output(struct cordon_program *run, int which, struct cordon_bytes data, struct cordon_event *event)
{
    uint64_t *kept = which ? &run->outcome.stderr_kept : &run->outcome.stdout_kept;
    uint64_t room = run->cap[which] - *kept;
    if (data.size > room)
        data.size = room;
    *kept += data.size;
    *event = (struct cordon_event){.type = which ? CORDON_EVENT_STDERR : CORDON_EVENT_STDOUT, .data = data};
    return data.size > 0;
}

static int pump(struct cordon_program *run, struct cordon_event *event)
{
    struct cordon_stream_event got;
    struct cordon_error err = {0};
    bool ended = false;
    int r = cordon_guests_next(run->stream, -1, &got, &ended, &err);
    if (r < 0 || (r == 0 && ended)) {
        if (r == 0)
            (void)cordon_fail(&err, -EPIPE, CORDON_ERROR_INFRASTRUCTURE, "the program's stream ended before it did");
        fill_failure(run, &err);
        begin_collecting(run);
        return 0;
    }
    if (r == 0)
        return 0;
    if (got.type == CORDON_STREAM_STDOUT || got.type == CORDON_STREAM_STDERR)
        return tell_output(run, got.type == CORDON_STREAM_STDERR, got.data, event);
    if (got.type == CORDON_STREAM_CHANNEL && cordon_buf_append(&run->result, got.data.data, got.data.size) < 0)
        (void)snprintf(run->outcome.result_error, sizeof run->outcome.result_error,
                       "the result is larger than 16 MiB"); /* fits */
    if (got.type == CORDON_STREAM_EXIT) {
        fill_outcome(run, got.exit);
        end_result(run);
        begin_collecting(run);
    }
    return 0;
}

static bool tell_result(struct cordon_program *run, struct cordon_event *event)
{
    if (run->result_told || run->phase == RUNNING || !run->result.size || run->outcome.result_error[0])
        return false;
    run->result_told = true;
    *event = (struct cordon_event){.type = CORDON_EVENT_RESULT, .data = {run->result.data, run->result.size}};
    return true;
}

int cordon_program_next(struct cordon_program *run, struct cordon_event *event)
{
    if (!run->started_told) {
        run->started_told = true;
        *event = (struct cordon_event){.type = CORDON_EVENT_STARTED};
        return 1;
    }
    while (run->phase == RUNNING)
        if (pump(run, event))
            return 1;
    if (tell_result(run, event))
        return 1;
    if (run->phase == COLLECTING && cordon_artifacts_next(&run->artifacts, event)) {
        run->outcome.artifacts_dropped += event->type == CORDON_EVENT_DROPPED;
        return 1;
    }
    if (run->phase == OVER)
        return 0;
    run->phase = OVER;
    *event = (struct cordon_event){.type = CORDON_EVENT_OUTCOME, .outcome = &run->outcome};
    return 1;
}

void cordon_program_close(struct cordon_program *run)
{
    if (!run)
        return;
    cordon_guests_close(run->stream); /* and what it runs is ended: then the writer's end is near, too */
    if (run->writing)
        (void)pthread_join(run->writer, NULL); /* is joinable, and not this one */
    if (run->has_code && run->command.path[0])
        cordon_guest_remove(run->tenant, run->guest, run->command.path);
    cordon_artifacts_done(&run->artifacts);
    cordon_buf_done(&run->result);
    free(run);
}
