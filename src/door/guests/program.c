/* SPDX-License-Identifier: Apache-2.0 */
#include "door/guests/program.h"

#include <errno.h>
#include <stdlib.h>

#define ANSWER_MAX (512u << 20)

/* A stream of events; it has what the program borrows. */
struct flow {
    struct cordon_program *run;
    struct cordon_event_writer writer;
    struct cordon_buf input;
    bool ended;
};

static int next_line(void *context, struct cordon_buf *out)
{
    struct flow *flow = context;
    struct cordon_event event;
    if (flow->ended || !cordon_program_next(flow->run, &event))
        return 0;
    cordon_event_write(&flow->writer, &event, out);
    flow->ended = event.type == CORDON_EVENT_OUTCOME;
    return !flow->ended;
}

static void close_flow(void *context)
{
    struct flow *flow = context;
    cordon_program_close(flow->run);
    cordon_buf_done(&flow->input);
    free(flow);
}

static const struct cordon_http_stream ndjson = {.next = next_line, .close = close_flow};

static int reply_stream(struct cordon_http_request *request, struct cordon_guest_asked *asked,
                        struct cordon_program *run, struct cordon_error *err)
{
    struct flow *flow = calloc(1, sizeof *flow);
    if (!flow) {
        cordon_program_close(run);
        return cordon_fail_errno(err, -ENOMEM, "starting a program");
    }
    flow->run = run;
    flow->input = asked->input; /* lives as long as the run */
    asked->input = (struct cordon_buf){0};
    return cordon_http_reply_stream(request, "application/x-ndjson", &ndjson, flow);
}

static int reply_whole(struct cordon_http_request *request, struct cordon_guest_asked *asked,
                       struct cordon_program *run, struct cordon_error *err)
{
    struct cordon_answer *answer = NULL;
    struct cordon_event event;
    int r = cordon_answer_new(&asked->limits, &answer);
    while (r == 0 && cordon_program_next(run, &event))
        r = cordon_answer_add(answer, &event);
    cordon_program_close(run);
    if (r == 0) {
        struct cordon_buf body = CORDON_BUF_INIT(ANSWER_MAX);
        struct cordon_json json = {.buf = &body};
        cordon_answer_write(answer, &json);
        (void)cordon_buf_append(&body, "\n", 1); /* sticky, seen by the reply */
        r = cordon_http_reply(request, 200, "application/json", &body);
    }
    cordon_answer_free(answer);
    return r < 0 ? cordon_fail_errno(err, r, "collecting the program's output") : 0;
}

int cordon_guest_asked_run(struct cordon_http_request *request, struct cordon_guest_asked *asked,
                           struct cordon_error *err)
{
    struct cordon_program *run = NULL;
    int r = cordon_program_open(&asked->program, &run, err);
    if (r < 0)
        return r;
    if (cordon_http_accepts(request, "application/x-ndjson"))
        return reply_stream(request, asked, run, err);
    return reply_whole(request, asked, run, err);
}

/* What is kept of output, and the deadline, where the request says nothing of it. */
static void init(const struct cordon_http_request *request, struct cordon_guest_asked *asked)
{
    const struct cordon_doors *doors = request->context;
    struct cordon_run_request usual;
    cordon_run_request_init(doors->settings, CORDON_DOOR_NATIVE, &usual);
    asked->limits = usual.request.limits;
    cordon_run_request_done(&usual);
    asked->input = CORDON_BUF_INIT(1u << 30); /* bounded by the body */
    asked->program = (struct cordon_program_request){
        .struct_size = sizeof asked->program,
        .tenant = cordon_guest_viewer(request),
        .guest = asked->guest,
        .argv = asked->program.argv,
        .argc = asked->program.argc,
        .timeout_ms = asked->limits.timeout_ms,
        .stdout_bytes = asked->limits.stdout_bytes,
        .stderr_bytes = asked->limits.stderr_bytes,
        .output_kill_bytes = asked->limits.output_kill_bytes,
        .cancel_fd = request->fd,
    };
}

static int read_input(const struct cordon_value *body, struct cordon_guest_asked *asked, struct cordon_error *err)
{
    struct cordon_value value;
    if (cordon_field(body, "stdin_b64", &value))
        return cordon_field_bytes(body, "stdin_b64", &asked->input, err);
    if (!cordon_field(body, "stdin", &value))
        return 0;
    char *to = value.kind == CORDON_VALUE_STRING ? cordon_buf_reserve(&asked->input, value.size) : NULL;
    ssize_t n = to ? cordon_value_string(&value, to) : -EINVAL;
    if (n < 0)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "stdin must be text; stdin_b64 takes any bytes");
    asked->input.size += (size_t)n;
    return 1;
}

int cordon_guest_asked_common(const struct cordon_http_request *request, const struct cordon_value *body,
                              struct cordon_guest_asked *asked, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    int64_t most = cordon_settings_int(doors->settings, CORDON_DOOR_NATIVE, CORDON_SET_MAX_TIMEOUT_S);
    init(request, asked);
    struct cordon_program_request *program = &asked->program;
    int r = read_input(body, asked, err);
    if (r >= 0)
        r = cordon_field_env(body, "env", &asked->memory, &asked->env, err);
    if (r >= 0)
        r = cordon_field_text(body, "cwd", &asked->memory, &program->cwd, err);
    if (r >= 0)
        r = cordon_field_text(body, "user", &asked->memory, &program->user, err);
    if (r >= 0)
        r = cordon_guest_seconds(body, "timeout_s", (double)most, &program->timeout_ms, err);
    asked->timeout_given = r > 0;
    program->env = asked->env.items;
    program->env_count = asked->env.count;
    program->stdin_data = (struct cordon_bytes){asked->input.data, asked->input.size};
    return r;
}

void cordon_guest_asked_done(struct cordon_guest_asked *asked)
{
    cordon_door_forget(&asked->memory);
    cordon_buf_done(&asked->input);
    if (asked->has_run)
        cordon_run_request_done(&asked->run);
}
