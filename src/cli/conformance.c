/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cordon conformance BACKEND: what every backend must do, asked of one through the same interface that core uses. What
 * it does not declare is skipped and said so; what it declares has to be there. For authors of backends and plugins,
 * and for operators with an account at a service (--live). One line a check, as TAP has it.
 */
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/builtin.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "cli/cli.h"
#include "cli/conformance.h"
#include "cli/oneshot.h"
#include "core/registry.h"
#include "core/run.h"

static const char help[] =
    "usage: cordon conformance BACKEND [--live] [--only WORD]\n"
    "\n"
    "Runs the conformance suite against a backend, as the settings describe it, from this process.\n"
    "\n"
    "  --live        also when it is a service elsewhere, where each check makes a sandbox that may cost money\n"
    "  --only WORD   only checks with WORD in their name\n"
    "\n"
    "Exit status 0: all that it declares holds; 1: something does not; 125: it can not run at all.\n";

int cordon_conformance_run(const struct cordon_conformance *self, const struct cordon_conformance_program *program,
                           struct cordon_conformance_result *ret)
{
    struct cordon_run_request request;
    struct cordon_run *run = NULL;
    struct cordon_event event;
    int cancel[2] = {-1, -1};
    *ret = (struct cordon_conformance_result){.out = CORDON_BUF_INIT(16u << 20),
                                              .errors = CORDON_BUF_INIT(16u << 20),
                                              .result = CORDON_BUF_INIT(1u << 20),
                                              .artifacts = CORDON_BUF_INIT(1u << 20),
                                              .dropped = CORDON_BUF_INIT(1u << 20)};
    cordon_run_request_init(self->settings, CORDON_DOOR_NATIVE, &request);
    struct cordon_request *to = &request.request;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, cancel) < 0)
        return -errno;
    to->cancel_fd = cancel[0];
    to->language = program->language ? program->language : "python";
    to->code = (struct cordon_bytes){program->code, strlen(program->code)};
    if (program->arguments)
        to->arguments = (struct cordon_bytes){program->arguments, strlen(program->arguments)};
    if (program->input)
        to->stdin_data = (struct cordon_bytes){program->input, strlen(program->input)};
    to->env = program->env;
    to->env_count = program->env ? 1 : 0;
    to->files = program->file;
    to->file_count = program->file ? 1 : 0;
    to->artifacts = program->artifacts;
    to->limits.timeout_ms = program->timeout_ms ? program->timeout_ms : 20000;
    if (program->stdout_bytes)
        to->limits.stdout_bytes = program->stdout_bytes;
    uint64_t begun = cordon_now_us();
    int r = self->backend->run_open(to, &run, &ret->err);
    while (r >= 0 && self->backend->run_next(run, &event) > 0 && !ret->ended) {
        ret->events++;
        if (event.type == CORDON_EVENT_STARTED)
            ret->started = ret->events == 1;
        else if (event.type == CORDON_EVENT_STDOUT)
            (void)cordon_buf_append(&ret->out, event.data.data, event.data.size); /* sticky, all of these */
        else if (event.type == CORDON_EVENT_STDERR)
            (void)cordon_buf_append(&ret->errors, event.data.data, event.data.size);
        else if (event.type == CORDON_EVENT_RESULT)
            (void)cordon_buf_append(&ret->result, event.data.data, event.data.size);
        else if (event.type == CORDON_EVENT_ARTIFACT)
            (void)cordon_buf_appendf(&ret->artifacts, "%s=%.*s;", event.name, (int)event.data.size, event.data.data);
        else if (event.type == CORDON_EVENT_DROPPED)
            (void)cordon_buf_appendf(&ret->dropped, "%s: %s;", event.name, event.reason);
        else if (event.type == CORDON_EVENT_OUTCOME && event.outcome) {
            ret->ended = true;
            memcpy(&ret->outcome, event.outcome,
                   event.outcome->struct_size < sizeof ret->outcome ? event.outcome->struct_size : sizeof ret->outcome);
        }
        if (program->cancel && ret->out.size) /* it runs: now its client leaves */
            (void)shutdown(cancel[1], SHUT_WR);
    }
    ret->us = cordon_now_us() - begun;
    if (r >= 0)
        self->backend->run_close(run);
    cordon_close(&cancel[0]);
    cordon_close(&cancel[1]);
    cordon_run_request_done(&request);
    return r;
}

void cordon_conformance_result_done(struct cordon_conformance_result *result)
{
    cordon_buf_done(&result->out);
    cordon_buf_done(&result->errors);
    cordon_buf_done(&result->result);
    cordon_buf_done(&result->artifacts);
    cordon_buf_done(&result->dropped);
}

struct options {
    const char *backend, *only;
    bool live, help;
};

static int parse(int argc, char **argv, struct options *to)
{
    static const struct option options[] = {{"live", no_argument, NULL, 'l'},
                                            {"only", required_argument, NULL, 'o'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    optind = 0;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
        if (option == 'h')
            to->help = true;
        else if (option == 'l')
            to->live = true;
        else if (option == 'o')
            to->only = optarg;
        else
            return cordon_cli_bad_option("conformance", argv, option);
    }
    if (to->help)
        return 0;
    if (optind + 1 != argc)
        return cordon_cli_usage("conformance", "one backend is needed");
    to->backend = argv[optind];
    return 0;
}

/* A service elsewhere is only asked when that was said: each check makes a sandbox there. */
static int check_live(const struct options *options, const struct cordon_backend *backend, struct cordon_error *err)
{
    if (options->live || cordon_backend_needs_warden(backend) || !cordon_backend_is_elsewhere(backend))
        return 0;
    return cordon_fail(
        err, -EPERM, CORDON_ERROR_REFUSED,
        "the backend %s is a service elsewhere: the suite makes some 20 sandboxes there, which may cost money; "
        "give --live to do that",
        backend->name);
}

static int run_checks(struct cordon_conformance *self, const char *only)
{
    size_t number = 0;
    for (const struct cordon_conformance_check *check = cordon_conformance_checks; check->name; check++) {
        char why[512] = "";
        if (only && !strstr(check->name, only))
            continue;
        const char *lacks = cordon_conformance_lacks(self, check);
        if (!lacks)
            check->function(self, why, sizeof why);
        bool skipped = lacks || strncmp(why, "skip: ", 6) == 0;
        bool good = skipped || !*why;
        (void)printf("%sok %zu - %s%s%s\n", good ? "" : "not ", ++number, check->name, skipped ? " # SKIP " : "",
                     lacks     ? lacks
                     : skipped ? why + 6
                               : "");
        if (!good)
            (void)printf("# %s\n", why);
        (void)fflush(stdout); /* nobody to tell */
        *(skipped ? &self->skipped : good ? &self->passed : &self->failed) += 1;
    }
    (void)printf("1..%zu\n%zu passed, %zu failed, %zu skipped\n", number, self->passed, self->failed, self->skipped);
    return self->failed ? 1 : 0;
}

static int act(const struct cordon_settings *settings, const struct options *options, int *status,
               struct cordon_error *err)
{
    struct cordon_conformance self = {.settings = settings};
    struct cordon_oneshot oneshot = {.peer = -1};
    int r = cordon_cli_backends_load(settings, err);
    if (r == 0)
        r = cordon_registry_find(options->backend, "the command's argument", &self.backend, err);
    if (r == 0)
        r = check_live(options, self.backend, err);
    if (r == 0 && cordon_backend_needs_warden(self.backend))
        r = cordon_oneshot_start(
            &(struct cordon_oneshot_options){.unisolated = strcmp(self.backend->name, "none") == 0, .template_fd = -1},
            &oneshot, err);
    if (r == 0 && self.backend->probe)
        r = self.backend->probe(err);
    if (r == 0) {
        self.caps = cordon_registry_capabilities(self.backend);
        *status = run_checks(&self, options->only);
    }
    cordon_oneshot_stop(&oneshot);
    cordon_cli_backends_drop();
    return r;
}

int cordon_cli_conformance(int argc, char **argv)
{
    struct options options = {0};
    struct cordon_settings *settings = NULL;
    struct cordon_error err = {0};
    int status = parse(argc, argv, &options);
    if (status || options.help)
        return status ? status : fputs(help, stdout) < 0 ? CORDON_EXIT_FAILURE : 0;
    int r = cordon_cli_settings(NULL, NULL, &settings, &err);
    if (r == 0)
        r = act(settings, &options, &status, &err);
    cordon_settings_free(settings);
    return r < 0 ? cordon_cli_fail(&err) : status;
}
