/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_show.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/cli.h"

/* A line on stderr. Names come from guests: what could steer a terminal is shown as '?'. */
static void note(const char *fmt, ...) CORDON_PRINTF(1, 2);
static void note(const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap); /* cut on purpose */
    va_end(ap);
    for (char *p = text; *p; p++)
        if ((unsigned char)*p < 32 || *p == 127)
            *p = '?';
    (void)fprintf(stderr, "cordon: %s\n", text); /* nobody to tell */
}

int cordon_run_show_open(const struct cordon_run_options *options, const volatile sig_atomic_t *interrupted,
                         struct cordon_run_show *ret, struct cordon_error *err)
{
    /* The limits that count are those of whoever runs it; here nothing is cut. */
    const struct cordon_limits unlimited = {.stdout_bytes = SIZE_MAX / 2,
                                            .stderr_bytes = SIZE_MAX / 2,
                                            .artifact_bytes = UINT64_MAX / 2,
                                            .artifacts_bytes = UINT64_MAX / 2,
                                            .artifacts = UINT32_MAX};
    *ret = (struct cordon_run_show){.options = options, .interrupted = interrupted, .folder = -1};
    if (options->artifacts) {
        if (mkdir(options->artifacts, 0755) < 0 && errno != EEXIST)
            return cordon_fail(err, -errno, CORDON_ERROR_INVALID, "--artifacts %.200s: %s", options->artifacts,
                               strerror(errno));
        ret->folder = open(options->artifacts, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (ret->folder < 0)
            return cordon_fail(err, -errno, CORDON_ERROR_INVALID, "--artifacts %.200s: %s", options->artifacts,
                               strerror(errno));
    }
    if (options->json && cordon_answer_new(&unlimited, &ret->answer) < 0)
        return cordon_fail_errno(err, -ENOMEM, "collecting the answer");
    return 0;
}

void cordon_run_show_done(struct cordon_run_show *show)
{
    cordon_answer_free(show->answer);
    show->answer = NULL;
    cordon_close(&show->folder);
}

static void show_artifact(struct cordon_run_show *show, const struct cordon_event *event)
{
    struct cordon_error err = {0};
    if (show->folder < 0 ||
        cordon_artifact_write(show->folder, event->name, event->data.data, event->data.size, &err) == 0)
        return;
    note("artifact %s is not written: %s", event->name, err.message);
    show->folder_failed = true;
}

static int show_output(struct cordon_run_show *show, int fd, const struct cordon_bytes *data)
{
    int r = cordon_write_full(fd, data->data, data->size);
    if (r < 0 && !show->output_failed)
        note("%s can't be written: %s", fd == STDOUT_FILENO ? "stdout" : "stderr", strerror(-r));
    show->output_failed = show->output_failed || r < 0;
    return r;
}

static int show_plain(struct cordon_run_show *show, const struct cordon_event *event)
{
    static const struct cordon_bytes newline = {"\n", 1};
    switch (event->type) {
    case CORDON_EVENT_STDOUT:
        return show_output(show, STDOUT_FILENO, &event->data);
    case CORDON_EVENT_STDERR:
        return show_output(show, STDERR_FILENO, &event->data);
    case CORDON_EVENT_RESULT: {
        int r = show_output(show, STDOUT_FILENO, &event->data);
        return r < 0 ? r : show_output(show, STDOUT_FILENO, &newline);
    }
    case CORDON_EVENT_DROPPED:
        note("artifact %s is not returned: %s", event->name, event->reason);
        return 0;
    default:
        return 0;
    }
}

/* Our own outcome is told: that the client left is true for the daemon, but the client is us. */
static void take_outcome(struct cordon_run_show *show, const struct cordon_outcome *outcome)
{
    show->outcome = *outcome;
    show->ended = true;
    if (outcome->cause == CORDON_CAUSE_CANCELLED && *show->interrupted)
        (void)snprintf(show->outcome.message, sizeof show->outcome.message, "the run was interrupted (SIG%s)",
                       sigabbrev_np(*show->interrupted));
}

int cordon_run_show_event(struct cordon_run_show *show, const struct cordon_event *event)
{
    struct cordon_event own = *event;
    if (event->type == CORDON_EVENT_OUTCOME) {
        take_outcome(show, event->outcome);
        own.outcome = &show->outcome;
        event = &own;
    }
    if (event->type == CORDON_EVENT_ARTIFACT)
        show_artifact(show, event);
    return show->answer ? cordon_answer_add(show->answer, event) : show_plain(show, event);
}

static void note_truncated(const char *stream, uint64_t bytes, uint64_t kept)
{
    if (bytes > kept)
        note("%s was cut: %" PRIu64 " of %" PRIu64 " bytes are shown", stream, kept, bytes);
}

static void note_outcome(const struct cordon_outcome *outcome)
{
    bool natural = outcome->cause == CORDON_CAUSE_EXITED || outcome->cause == CORDON_CAUSE_SIGNALLED;
    note_truncated("stdout", outcome->stdout_bytes, outcome->stdout_kept);
    note_truncated("stderr", outcome->stderr_bytes, outcome->stderr_kept);
    /* The interpreter's side has said why on stderr where it ended the program for it. */
    if (*outcome->result_error && (outcome->exit_code == 0 || !outcome->stderr_bytes))
        note("no result: %s", outcome->result_error);
    if (outcome->egress.refused || outcome->egress.names_refused)
        note("refused by the egress rules: %" PRIu64 " connections, %" PRIu64 " names; the first: %s",
             outcome->egress.refused, outcome->egress.names_refused, outcome->egress.first_refused);
    if (*outcome->message)
        note("%s", outcome->message);
    else if (!natural)
        note("the run ended: %s", cordon_cause_name(outcome->cause));
}

static int print_answer(struct cordon_run_show *show, const struct cordon_error *err)
{
    struct cordon_buf text = CORDON_BUF_INIT(SIZE_MAX / 2);
    struct cordon_json json = {.buf = &text};
    if (!show->ended)
        cordon_answer_fail(show->answer, err);
    cordon_answer_write(show->answer, &json);
    return cordon_cli_print(&text);
}

static int exit_status(const struct cordon_run_show *show, const struct cordon_error *err)
{
    bool cancelled = show->ended ? show->outcome.cause == CORDON_CAUSE_CANCELLED : err->kind == CORDON_ERROR_CANCELLED;
    if (cancelled && *show->interrupted)
        return 128 + *show->interrupted;
    return show->ended ? cordon_outcome_exit_status(&show->outcome) : cordon_error_exit(err->kind);
}

int cordon_run_show_end(struct cordon_run_show *show, const struct cordon_error *err)
{
    int status = exit_status(show, err);
    bool own = show->ended && show->outcome.cause == CORDON_CAUSE_EXITED;
    if (show->answer && print_answer(show, err) != 0)
        show->output_failed = true;
    if (!show->ended)
        note("%s", err->message);
    else if (!show->answer)
        note_outcome(&show->outcome);
    if (own && status == 0 && (show->output_failed || show->folder_failed))
        return CORDON_EXIT_FAILURE;
    return status;
}
