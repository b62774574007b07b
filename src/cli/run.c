/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cordon run. The command line becomes the JSON body of POST /v1/runs; the daemon of the state folder gets it where one
 * answers, else core reads it in this process and a warden is started for this run. Events go the same way after that.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/builtin.h"
#include "base/fd.h"
#include "cli/cli.h"
#include "cli/daemon.h"
#include "cli/guest.h"
#include "cli/oneshot.h"
#include "cli/run_daemon.h"
#include "cli/run_events.h"
#include "cli/run_show.h"
#include "core/egress.h"
#include "core/registry.h"
#include "egress/authority.h"
#include "supervisor/state.h"

#define BODY_MAX (1u << 30)

/* What ^C shuts down: our side of the connection to the daemon, or the far end of the run's cancel_fd. */
static volatile sig_atomic_t cancel_socket = -1;
volatile sig_atomic_t cordon_run_interrupted;

static void on_interrupt(int number)
{
    int saved = errno;
    cordon_run_interrupted = number;
    if (cancel_socket >= 0)
        (void)shutdown(cancel_socket, SHUT_WR); /* the run then ends as cancelled, which is waited for */
    errno = saved;
    struct sigaction again = {.sa_handler = SIG_DFL};
    (void)sigaction(number, &again, NULL); /* asked twice: at once */
}

/*
 * From now on SIGINT and SIGTERM shut our side of fd, which the other side takes for "cancel"; the second time they end
 * this command. -1: nothing more is to be shut.
 */
static void watch_interrupts(int fd)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    cancel_socket = fd;
    (void)sigaction(SIGINT, &action, NULL); /* can't fail for these */
    (void)sigaction(SIGTERM, &action, NULL);
}

/* Shows the whole lines that the body has by now. *seen: what of it is known to hold no newline. */
static int show_lines(struct cordon_http_reader *http, size_t *seen, struct cordon_event_reader *reader,
                      struct cordon_run_show *show, struct cordon_error *err)
{
    size_t at = 0;
    int r = 0;
    while (r >= 0 && at < http->body.size) {
        struct cordon_event event;
        const char *line = http->body.data + at;
        const char *end = memchr(line + *seen, '\n', http->body.size - at - *seen);
        *seen = end ? 0 : http->body.size - at;
        if (!end)
            break;
        r = cordon_event_read(reader, line, (size_t)(end - line), &event, err);
        if (r > 0 && cordon_run_show_event(show, &event) < 0)
            r = cordon_fail_errno(err, -EIO, "writing the program's output");
        at += (size_t)(end - line) + 1;
    }
    cordon_buf_consume(&http->body, at);
    return r < 0 ? r : 0;
}

static int follow_daemon(int fd, struct cordon_run_show *show, struct cordon_error *err)
{
    struct cordon_http_reader http = CORDON_HTTP_READER_INIT(SIZE_MAX / 2);
    struct cordon_event_reader reader = {.name = NULL};
    size_t seen = 0;
    int more;
    do {
        more = cordon_daemon_read(fd, &http, err);
        if (more >= 0 && http.status == 200 && show_lines(&http, &seen, &reader, show, err) < 0)
            more = -EIO;
    } while (more > 0);
    if (more == 0 && http.status != 200)
        more = cordon_error_read(http.body.data ? http.body.data : "", http.body.size, err);
    if (more == 0 && !show->ended)
        more = cordon_fail(err, -EPIPE, CORDON_ERROR_INFRASTRUCTURE,
                           "the daemon's answer broke off before the run's outcome");
    cordon_event_reader_done(&reader);
    cordon_http_reader_done(&http);
    return more;
}

int cordon_run_by_daemon(int fd, const char *path, const struct cordon_buf *body, struct cordon_run_show *show,
                         struct cordon_error *err)
{
    watch_interrupts(fd);
    int r = cordon_daemon_send(fd, "POST", path, "application/x-ndjson", body, err);
    if (r == 0)
        r = follow_daemon(fd, show, err);
    cancel_socket = -1;
    return r;
}

/* The daemon's settings hold for its runs. What is set beside this command is told to be without effect; what demands
 * how the program is isolated can't be left out silently, and a request has no words for it. */
static int check_environment(const struct cordon_settings *settings, bool backend_named, struct cordon_error *err)
{
    struct cordon_buf names = CORDON_BUF_INIT(1024);
    const char *name, *demand = NULL;
    for (int id = 0; id < CORDON_SET__COUNT; id++) {
        if (id == CORDON_SET_STATE || id == CORDON_SET_LOG_LEVEL || id == CORDON_SET_LOG_JSON ||
            !(name = cordon_settings_environment(settings, (enum cordon_setting)id)))
            continue;
        if (id == CORDON_SET_MIN_ISOLATION || id == CORDON_SET_REQUIRE_LIMITS ||
            (id == CORDON_SET_BACKEND && !backend_named))
            demand = name;
        (void)cordon_buf_appendf(&names, "%s%s", names.size ? ", " : "", name); /* cut on purpose */
    }
    if (names.size && !demand)
        (void)fprintf(stderr, "cordon: note: the daemon runs this by its own settings; set here without effect: %.*s\n",
                      (int)names.size, names.data); /* nobody to tell */
    cordon_buf_done(&names);
    if (!demand)
        return 0;
    return cordon_fail(err, -EPERM, CORDON_ERROR_REFUSED,
                       "the code was refused and not run: %s is set here, but the daemon that would run it goes by its "
                       "own settings; unset it%s, or give the --state of a folder without a daemon",
                       demand, strcmp(demand, "CORDON_BACKEND") == 0 ? " (-b NAME asks the daemon for a backend)" : "");
}

static int follow_live(struct cordon_live *live, struct cordon_run_show *show, struct cordon_error *err)
{
    struct cordon_event event;
    for (;;) {
        int got = cordon_live_next(live, &event, err);
        if (got <= 0)
            return got;
        if (cordon_run_show_event(show, &event) < 0)
            return cordon_fail_errno(err, -EIO, "writing the program's output");
    }
}

static int run_request(const struct cordon_settings *settings, struct cordon_run_request *request,
                       struct cordon_run_show *show, struct cordon_error *err)
{
    int cancel[2];
    struct cordon_live *live = NULL;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, cancel) < 0)
        return cordon_fail_errno(err, -errno, "preparing the run");
    request->request.cancel_fd = cancel[0];
    watch_interrupts(cancel[1]);
    int r = cordon_live_open(settings, request, &live, err);
    if (r == 0)
        r = follow_live(live, show, err);
    cordon_live_close(live);
    cancel_socket = -1;
    cordon_close(&cancel[0]);
    cordon_close(&cancel[1]);
    return r;
}

/* For a run with headers, where no daemon has made it. */
static int make_authority(const struct cordon_settings *settings, struct cordon_error *err)
{
    struct cordon_state state;
    if (!cordon_settings_bool(settings, CORDON_DOOR_NATIVE, CORDON_SET_EGRESS_CA))
        return 0;
    int r = cordon_state_open(settings, &state, err);
    if (r < 0)
        return r;
    r = cordon_authority_make(state.path, err);
    cordon_state_close(&state);
    return r;
}

/* A bad request or an unknown backend is told before a warden is started for it; nothing needs none at all. */
static int run_alone(const struct cordon_settings *settings, char *const *flags, const struct cordon_buf *body,
                     struct cordon_run_show *show, struct cordon_error *err)
{
    struct cordon_run_request request;
    struct cordon_oneshot oneshot = {.peer = -1, .egress = -1};
    const struct cordon_backend *backend;
    cordon_admission_setup(settings);
    int r = cordon_egress_check_settings(settings, err);
    if (r == 0)
        r = cordon_cli_backends_load(settings, err);
    if (r == 0)
        r = cordon_registry_check(settings, err);
    if (r == 0)
        r = cordon_run_request_parse(settings, body->data, body->size, &request, err);
    if (r < 0)
        return r;
    request.by_operator = true;
    r = cordon_run_request_backend(settings, &request, &backend, err);
    bool unisolated = r == 0 && *request.backend && strcmp(backend->name, "none") == 0;
    if (unisolated)
        (void)fputs("cordon: backend none: nothing isolates this program from the host\n", stderr); /* nobody to tell */
    const struct cordon_oneshot_options start = {.unisolated = unisolated, .template_fd = -1, .flags = flags};
    if (r == 0 && request.header_count)
        r = make_authority(settings, err);
    bool here = r == 0 && cordon_backend_needs_warden(backend);
    if (here && !cordon_request_blank(&request.request))
        r = cordon_oneshot_start(&start, &oneshot, err);
    if (r == 0 && oneshot.pid && request.request.network && !unisolated)
        r = cordon_oneshot_egress(&start, &oneshot, err);
    if (r == 0)
        r = run_request(settings, &request, show, err);
    cordon_oneshot_stop(&oneshot);
    cordon_run_request_done(&request);
    cordon_cli_backends_drop();
    return r;
}

static int run(const struct cordon_run_options *options, struct cordon_run_show *show, struct cordon_error *err)
{
    struct cordon_settings *settings = NULL;
    struct cordon_buf body = CORDON_BUF_INIT(BODY_MAX), path = CORDON_BUF_INIT(8192);
    cordon_autofree char *state = NULL;
    const char *flags[] = {NULL, NULL};
    if (options->state && asprintf(&state, "CORDON_STATE=%s", options->state) < 0)
        return cordon_fail_errno(err, -ENOMEM, "reading --state");
    flags[0] = state;
    int r = cordon_cli_settings(NULL, flags, &settings, err);
    if (r == 0)
        r = cordon_run_options_body(options, &body, err);
    if (r == 0 && options->guest)
        r = cordon_guest_path(&path, options->guest, "/runs", err);
    if (r == 0) {
        cordon_autoclose int daemon = cordon_daemon_connect(settings, err);
        if (daemon == -ENOENT)
            r = options->guest ? cordon_fail(err, -ENOENT, CORDON_ERROR_UNAVAILABLE,
                                             "no daemon answers in the state folder, and guests live with one")
                               : run_alone(settings, (char *[]){state, NULL}, &body, show, err);
        else
            r = daemon < 0 ? daemon : check_environment(settings, options->backend, err);
        if (r == 0 && daemon >= 0)
            r = cordon_run_by_daemon(daemon, path.data ? path.data : "/v1/runs", &body, show, err);
    }
    cordon_buf_done(&body);
    cordon_buf_done(&path);
    cordon_settings_free(settings);
    return r;
}

int cordon_cli_run(int argc, char **argv)
{
    struct cordon_run_options options;
    struct cordon_run_show show;
    struct cordon_error err = {0};
    if (cordon_run_options_parse(argc, argv, &options, &err) < 0)
        return cordon_cli_usage("run", "%s", err.message);
    if (options.help)
        return fputs(cordon_run_help, stdout) < 0 ? CORDON_EXIT_FAILURE : 0;
    int r = cordon_run_show_open(&options, &cordon_run_interrupted, &show, &err);
    if (r == 0)
        r = run(&options, &show, &err);
    if (r < 0 && cordon_run_interrupted && !show.ended)
        (void)cordon_fail(&err, -ECANCELED, CORDON_ERROR_CANCELLED, "the run was interrupted (SIG%s)",
                          sigabbrev_np(cordon_run_interrupted)); /* only fills err */
    else if (r == 0 && !show.ended)
        (void)cordon_fail(&err, -EIO, CORDON_ERROR_INFRASTRUCTURE,
                          "the run ended without an outcome"); /* only fills err */
    int status = cordon_run_show_end(&show, &err);
    cordon_run_show_done(&show);
    return status;
}
