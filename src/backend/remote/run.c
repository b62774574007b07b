/* SPDX-License-Identifier: Apache-2.0 */
/* The course of a run on a service elsewhere: see remote.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "backend/remote/remote.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/secret.h"

#define CREATE_US 60000000u
#define PREPARE_US 60000000u
#define SETUP_MS 30000u
#define GRACE_US 3000000u
#define COLLECT_US 60000000u
#define COLLECT_MS 30000u
#define DESTROY_US 20000000u

static void until(struct cordon_run *run, uint64_t us)
{
    run->deadline_us = cordon_now_us() + us;
}

static void make_id(struct cordon_run *run)
{
    unsigned char bytes[16] = {0};
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) /* never, on kernels that we run on */
        memcpy(bytes, &run->opened_us, sizeof run->opened_us);
    for (size_t i = 0; i < sizeof bytes; i++)
        (void)snprintf(run->id + 2 * i, 3, "%02x", bytes[i]); /* fits */
    (void)snprintf(run->folder, sizeof run->folder, "%.250s/cordon-%s", run->service->folder(), run->id);
}

/* --- before the program begins --- */

/* Runs a command of ours to its end: 0, or UNAVAILABLE with what it printed. */
static int command(struct cordon_run *run, const char *text, uint64_t limit_ms, const char *what,
                   struct cordon_error *err)
{
    struct cordon_remote_output output;
    char said[200] = "";
    size_t size = 0;
    int r = run->service->exec(run, text, limit_ms, err);
    while (r >= 0 && (r = run->service->exec_next(run, &output, err)) > 0 && output.type != CORDON_REMOTE_EXIT) {
        size_t part = output.data.size < sizeof said - 1 - size ? output.data.size : sizeof said - 1 - size;
        memcpy(said + size, output.data.data, part);
        size += part;
        said[size] = '\0';
    }
    if (r < 0)
        return r;
    if (r > 0 && output.exit_code == 0 && !output.signal)
        return 0;
    return cordon_fail(err, -EIO, CORDON_ERROR_UNAVAILABLE, "%s: %s ended with status %d: %s", run->service->title,
                       what, r > 0 ? output.exit_code : -1, said);
}

static int put_archive(struct cordon_run *run, const char *path, struct cordon_error *err)
{
    struct cordon_buf archive = CORDON_BUF_INIT(0);
    int r = cordon_remote_pack(run, &archive, err);
    if (r == 0)
        r = run->service->put(run, path, (struct cordon_bytes){archive.data, archive.size}, err);
    cordon_buf_done(&archive);
    return r;
}

static int unpack(struct cordon_run *run, struct cordon_error *err)
{
    struct cordon_buf text = CORDON_BUF_INIT(8192);
    char path[sizeof run->folder + 8];
    (void)snprintf(path, sizeof path, "%s.tar", run->folder); /* fits */
    until(run, PREPARE_US);
    int r = put_archive(run, path, err);
    if (r < 0)
        return r;
    (void)cordon_buf_appends(&text, "umask 022 && command -v timeout >/dev/null && mkdir -p ");
    cordon_remote_quote(&text, run->folder);
    (void)cordon_buf_appends(&text, " && tar -xPf ");
    cordon_remote_quote(&text, path);
    (void)cordon_buf_appends(&text, " -C ");
    cordon_remote_quote(&text, run->folder);
    (void)cordon_buf_appends(&text, " && rm -f ");
    cordon_remote_quote(&text, path);
    r = text.failed ? cordon_fail_errno(err, -ENOMEM, "starting a run")
                    : command(run, text.data, SETUP_MS, "unpacking the program (sh, timeout and tar are needed)", err);
    cordon_buf_done(&text);
    return r;
}

/* What breaks before the program began means that this backend can't be had now. */
static int unavailable(struct cordon_run *run, int r, struct cordon_error *err)
{
    if (r < 0 && err && err->kind == CORDON_ERROR_INFRASTRUCTURE)
        err->kind = CORDON_ERROR_UNAVAILABLE;
    return r;
}

static int begin(struct cordon_run *run, struct cordon_error *err)
{
    struct cordon_buf text = CORDON_BUF_INIT(1024);
    uint64_t limit_ms = run->request->limits.timeout_ms;
    (void)cordon_buf_appends(&text, "exec sh ");
    cordon_remote_quote(&text, run->folder);
    (void)cordon_buf_appends(&text, "/meta/run.sh");
    run->exec_us = cordon_now_us();
    run->program_deadline_us = limit_ms ? run->exec_us + limit_ms * 1000 : UINT64_MAX;
    run->deadline_us = run->program_deadline_us;
    int r = text.failed ? cordon_fail_errno(err, -ENOMEM, "starting a run")
                        : run->service->exec(run, text.data, limit_ms, err);
    cordon_buf_done(&text);
    return r;
}

static int open_run(struct cordon_run *run, struct cordon_error *err)
{
    struct cordon_error own = {0};
    until(run, CREATE_US);
    int r = run->service->configured(err);
    if (r == 0)
        r = run->service->create(run, &own);
    if (r == 0)
        r = unpack(run, &own);
    r = unavailable(run, r, &own);
    if (r == 0) {
        r = begin(run, &own);
        if (r < 0 && own.kind == CORDON_ERROR_INFRASTRUCTURE) { /* it may have begun: no other backend may be tried */
            (void)snprintf(run->broken, sizeof run->broken, "%.255s", own.message);
            run->timed_out = r == -ETIMEDOUT && cordon_now_us() >= run->program_deadline_us;
            r = 0;
        }
    }
    if (r < 0 && own.kind && err)
        *err = own;
    return r;
}

int cordon_remote_run_open(const struct cordon_remote_service *service, const struct cordon_request *request,
                           struct cordon_run **ret, struct cordon_error *err)
{
    struct cordon_run *run = calloc(1, sizeof *run);
    if (!run)
        return cordon_fail_errno(err, -ENOMEM, "starting a run");
    run->service = service;
    run->request = request;
    run->cancel_fd = request->cancel_fd;
    run->opened_us = cordon_now_us();
    make_id(run);
    run->state = calloc(1, service->state_size ? service->state_size : 1);
    int r = run->state ? open_run(run, err) : cordon_fail_errno(err, -ENOMEM, "starting a run");
    if (r < 0)
        cordon_remote_run_close(run);
    else
        *ret = run;
    return r;
}

/* --- while it runs --- */

static void give_up(struct cordon_run *run, const char *why)
{
    if (!*run->broken)
        (void)snprintf(run->broken, sizeof run->broken, "%.255s", why);
    run->ended_us = cordon_now_us();
    run->stage = CORDON_REMOTE_OUTCOME;
}

static void kill_program(struct cordon_run *run)
{
    int cancel_fd = CORDON_TAKE_FD(run->cancel_fd);
    until(run, run->service->grace_us ? run->service->grace_us : GRACE_US);
    if (run->service->exec_kill)
        run->service->exec_kill(run);
    run->cancel_fd = cancel_fd;
}

static void on_program_exit(struct cordon_run *run, const struct cordon_remote_output *output)
{
    run->ended = true;
    run->ended_us = output->ended_us ? output->ended_us : cordon_now_us();
    run->exit_code = output->exit_code;
    run->signal = output->signal;
    run->timed_out = run->timed_out || output->timed_out || run->ended_us >= run->program_deadline_us;
    bool wanted = run->request->artifacts || run->request->arguments.data;
    run->stage = wanted && !run->killed_for_output ? CORDON_REMOTE_COLLECT : CORDON_REMOTE_OUTCOME;
}

static void on_failure(struct cordon_run *run, int r, const struct cordon_error *err)
{
    if (r == -ETIMEDOUT && !run->timed_out && cordon_now_us() >= run->program_deadline_us) {
        run->timed_out = true;
        kill_program(run); /* what it wrote until now still comes */
        return;
    }
    run->cancelled = r == -ECANCELED;
    give_up(run, err->message);
}

static uint64_t both(const uint64_t pair[2])
{
    return pair[0] + pair[1];
}

/* The backend's own limit on both streams together, and the request's on each. */
static bool too_much(const struct cordon_run *run)
{
    const struct cordon_remote_service *service = run->service;
    uint64_t kill = run->request->limits.output_kill_bytes;
    if (service->max_output >= 0 &&
        both(run->written) > (uint64_t)cordon_remote_number((enum cordon_setting)service->max_output))
        return true;
    return kill && (run->written[0] > kill || run->written[1] > kill);
}

/* 1: an event to give. */
static int on_output(struct cordon_run *run, const struct cordon_remote_output *output, struct cordon_event *event)
{
    bool errors = output->type == CORDON_REMOTE_STDERR;
    const struct cordon_limits *limits = &run->request->limits;
    uint64_t limit = errors ? limits->stderr_bytes : limits->stdout_bytes;
    uint64_t room = limit > run->kept[errors] ? limit - run->kept[errors] : 0;
    size_t size = output->data.size < room ? output->data.size : (size_t)room;
    run->written[errors] += output->data.size;
    run->kept[errors] += size;
    if (!run->killed_for_output && too_much(run)) {
        run->killed_for_output = true;
        kill_program(run);
    }
    *event = (struct cordon_event){.type = errors ? CORDON_EVENT_STDERR : CORDON_EVENT_STDOUT,
                                   .data = {output->data.data, size}};
    return size > 0;
}

static int next_output(struct cordon_run *run, struct cordon_event *event)
{
    struct cordon_remote_output output;
    struct cordon_error err = {0};
    int r = run->service->exec_next(run, &output, &err);
    if (r == 0)
        give_up(run, "the service ended the program's stream without saying how the program ended");
    else if (r < 0)
        on_failure(run, r, &err);
    else if (output.type == CORDON_REMOTE_EXIT)
        on_program_exit(run, &output);
    else
        return on_output(run, &output, event);
    return 0;
}

/* --- after it --- */

static void pack_results(struct cordon_run *run, struct cordon_error *err)
{
    struct cordon_buf text = CORDON_BUF_INIT(4096);
    char path[sizeof run->folder + 16];
    (void)snprintf(path, sizeof path, "%s/left.tar", run->folder); /* fits. Within, which others may not enter */
    until(run, COLLECT_US);
    run->stage = CORDON_REMOTE_OUTCOME;
    (void)cordon_buf_appends(&text, "cd ");
    cordon_remote_quote(&text, run->folder);
    (void)cordon_buf_appends(&text, " && set -- && for f in meta/result meta/result.error");
    (void)cordon_buf_appends(&text, run->request->artifacts ? " work/artifacts" : "");
    (void)cordon_buf_appends(&text, "; do if [ -e \"$f\" ] || [ -L \"$f\" ]; then set -- \"$@\" \"$f\"; fi; done; "
                                    "if [ $# -eq 0 ]; then set -- -T /dev/null; fi; tar --sort=name -cf ");
    cordon_remote_quote(&text, path);
    (void)cordon_buf_appends(&text, " \"$@\"");
    int r = text.failed ? cordon_fail_errno(err, -ENOMEM, "reading what the run left")
                        : command(run, text.data, COLLECT_MS, "packing what the run left", err);
    cordon_buf_done(&text);
    if (r == 0)
        r = run->service->get(run, path, err);
    if (r == 0)
        r = cordon_remote_archive_open(run, err);
    if (r == 0)
        run->stage = CORDON_REMOTE_ARCHIVE;
}

static int next_archived(struct cordon_run *run, struct cordon_event *event, struct cordon_error *err)
{
    int r = cordon_remote_archive_next(run, event, err);
    if (r <= 0)
        run->stage = CORDON_REMOTE_OUTCOME;
    return r;
}

/* What could not be read back is told as one dropped artifact, or as the reason for a missing result. */
static int tell_lost(struct cordon_run *run, int r, const struct cordon_error *err, struct cordon_event *event)
{
    struct cordon_outcome *outcome = &run->outcome;
    if (r == -ECANCELED)
        run->cancelled = true;
    if (run->request->arguments.data && !cordon_remote_archive_result(run))
        (void)snprintf(outcome->result_error, sizeof outcome->result_error, "%.255s", err->message);
    if (!run->request->artifacts || run->cancelled)
        return 0;
    outcome->artifacts_dropped++;
    (void)snprintf(run->broken, sizeof run->broken, "%.255s", err->message); /* keeps the reason */
    *event = (struct cordon_event){.type = CORDON_EVENT_DROPPED, .name = "artifacts", .reason = run->broken};
    return 1;
}

static int collect(struct cordon_run *run, struct cordon_event *event)
{
    struct cordon_error err = {0};
    int r = 0;
    if (run->stage == CORDON_REMOTE_COLLECT) {
        pack_results(run, &err);
        r = err.code;
    }
    if (r == 0)
        r = next_archived(run, event, &err);
    return r < 0 ? tell_lost(run, r, &err, event) : r;
}

/* --- the outcome --- */

static void say(struct cordon_outcome *outcome, enum cordon_cause cause, int exit_code, const char *limit)
{
    outcome->cause = cause;
    outcome->exit_code = exit_code;
    (void)snprintf(outcome->limit_hit, sizeof outcome->limit_hit, "%s", limit);
}

static void judge_output(struct cordon_run *run)
{
    struct cordon_outcome *outcome = &run->outcome;
    int own = run->service->max_output;
    uint64_t limit = own >= 0 ? (uint64_t)cordon_remote_number((enum cordon_setting)own) : 0;
    say(outcome, CORDON_CAUSE_OUTPUT_LIMIT, -1, "output_kill_mb");
    if (limit && both(run->written) > limit)
        (void)snprintf(outcome->message, sizeof outcome->message, "%s execution output exceeded %" PRIu64 " bytes.",
                       run->service->title, limit);
    else
        (void)snprintf(outcome->message, sizeof outcome->message,
                       "the program was ended because it wrote more than %.10g MiB (output_kill_mb)",
                       (double)run->request->limits.output_kill_bytes / (1 << 20));
}

static void judge(struct cordon_run *run)
{
    struct cordon_outcome *outcome = &run->outcome;
    const char *refusal = cordon_remote_archive_refusal(run);
    if (run->cancelled) {
        say(outcome, CORDON_CAUSE_CANCELLED, -1, "");
        (void)snprintf(outcome->message, sizeof outcome->message, "the run was cancelled: its client left");
    } else if (run->killed_for_output) {
        judge_output(run);
    } else if (run->timed_out) {
        say(outcome, CORDON_CAUSE_TIMEOUT, -1, "timeout_s");
        (void)snprintf(outcome->message, sizeof outcome->message,
                       "the program was ended because it ran longer than its time limit of %.10g s (timeout_s)",
                       (double)run->request->limits.timeout_ms / 1000);
    } else if (!run->ended) {
        say(outcome, CORDON_CAUSE_INFRASTRUCTURE, -1, "");
        (void)snprintf(outcome->message, sizeof outcome->message, "%.255s", run->broken);
    } else if (*refusal) {
        say(outcome, CORDON_CAUSE_REFUSED, -1, "");
        (void)snprintf(outcome->message, sizeof outcome->message, "%s", refusal);
    } else if (run->signal) {
        say(outcome, CORDON_CAUSE_SIGNALLED, 128 + run->signal, "");
        outcome->signal = run->signal;
        (void)snprintf(outcome->message, sizeof outcome->message, "the program was ended by signal %d", run->signal);
    } else {
        say(outcome, CORDON_CAUSE_EXITED, run->exit_code, "");
    }
    cordon_secret_mask(outcome->message);
    cordon_secret_mask(outcome->result_error);
}

static void give_outcome(struct cordon_run *run, struct cordon_event *event)
{
    struct cordon_outcome *outcome = &run->outcome;
    uint64_t now = cordon_now_us(), ended = run->ended_us ? run->ended_us : now;
    outcome->struct_size = sizeof *outcome;
    outcome->isolation = run->service->isolation();
    (void)snprintf(outcome->backend, sizeof outcome->backend, "%.31s", run->service->name);
    outcome->start_us = run->exec_us - run->opened_us;
    outcome->run_us = ended - run->exec_us;
    outcome->total_us = now - run->opened_us;
    outcome->stdout_bytes = run->written[0];
    outcome->stderr_bytes = run->written[1];
    outcome->stdout_kept = run->kept[0];
    outcome->stderr_kept = run->kept[1];
    judge(run);
    const char *why = cordon_remote_archive_result_error(run);
    bool no_result = run->request->arguments.data && !cordon_remote_archive_result(run);
    if (no_result && outcome->cause == CORDON_CAUSE_EXITED && !*outcome->result_error)
        (void)snprintf(outcome->result_error, sizeof outcome->result_error, "%s",
                       *why                  ? why
                       : run->exit_code == 0 ? "the program ended before main returned"
                                             : "");
    *event = (struct cordon_event){.type = CORDON_EVENT_OUTCOME, .outcome = outcome};
    run->stage = CORDON_REMOTE_DONE;
}

int cordon_remote_run_next(struct cordon_run *run, struct cordon_event *event)
{
    for (;;) {
        switch (run->stage) {
        case CORDON_REMOTE_STARTED:
            run->stage = *run->broken ? CORDON_REMOTE_OUTCOME : CORDON_REMOTE_OUTPUT;
            *event = (struct cordon_event){.type = CORDON_EVENT_STARTED};
            return 1;
        case CORDON_REMOTE_OUTPUT:
            if (next_output(run, event))
                return 1;
            break;
        case CORDON_REMOTE_COLLECT:
        case CORDON_REMOTE_ARCHIVE:
            if (collect(run, event))
                return 1;
            break;
        case CORDON_REMOTE_OUTCOME:
            give_outcome(run, event);
            return 1;
        case CORDON_REMOTE_DONE:
            return 0;
        }
    }
}

void cordon_remote_run_close(struct cordon_run *run)
{
    if (!run)
        return;
    run->cancel_fd = -1;
    until(run, DESTROY_US);
    if (run->state)
        run->service->destroy(run);
    cordon_remote_archive_close(run);
    free(run->state);
    free(run);
}
