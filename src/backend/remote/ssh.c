/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `ssh`: a host where a user may log in. Nothing there cleans up after a program, so each command runs below
 * supervise.py, which kills all that it started when it ends, when its time is over, or when the connection is lost.
 * What got away from it (a program can kill its own supervisor) carries the run's mark in its environment, and is
 * looked for at the end.
 *
 * This isolates nothing by itself: what stands between that host and the rest is for the operator to say.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/builtin.h"
#include "backend/remote/assets.h"
#include "backend/remote/remote.h"
#include "backend/remote/ssh_link.h"
#include "base/clock.h"
#include "base/log.h"

#define ONE_DAY_MS 86400000u

struct state {
    struct cordon_ssh_link link;
    bool made; /* there is something of ours on the host */
};

static const struct cordon_remote_service service;

static struct cordon_ssh_patience patience(const struct cordon_run *run)
{
    return (struct cordon_ssh_patience){run->deadline_us, run->cancel_fd};
}

static void put_name(struct cordon_buf *to, const struct cordon_run *run, const char *end)
{
    char name[sizeof run->folder + 16];
    (void)snprintf(name, sizeof name, "%s%s", run->folder, end); /* fits */
    cordon_remote_quote(to, name);
}

static void put_supervisor(struct cordon_buf *to, const struct cordon_run *run)
{
    cordon_remote_quote(to, service.python());
    (void)cordon_buf_appends(to, " -I "); /* sticky */
    put_name(to, run, ".py");
}

static int create(struct cordon_run *run, struct cordon_error *err)
{
    struct state *state = run->state;
    struct cordon_ssh_patience until = patience(run);
    return cordon_ssh_connect(&state->link, &until, err);
}

/* The archive, and before it the supervisor: one command. The folder around all runs may be /tmp of a host with other
 * users: what is made there is this user's alone, and nothing that somebody put in its place is taken for it. */
static int put(struct cordon_run *run, const char *path, struct cordon_bytes content, struct cordon_error *err)
{
    struct state *state = run->state;
    struct cordon_ssh_patience until = patience(run);
    size_t size = (size_t)cordon_asset_supervise_py_size;
    struct cordon_buf text = CORDON_BUF_INIT(4096), both = CORDON_BUF_INIT(size + content.size);
    (void)cordon_buf_appends(&text, "umask 077 && set -C && mkdir -p "); /* sticky, all of these */
    cordon_remote_quote(&text, service.folder());
    (void)cordon_buf_appends(&text, " && mkdir ");
    put_name(&text, run, "");
    (void)cordon_buf_appendf(&text, " && head -c %zu >", size);
    put_name(&text, run, ".py");
    (void)cordon_buf_appends(&text, " && cat >");
    cordon_remote_quote(&text, path);
    (void)cordon_buf_append(&both, cordon_asset_supervise_py, size);
    (void)cordon_buf_append(&both, content.data, content.size);
    state->made = true;
    int r = text.failed || both.failed
                ? cordon_fail_errno(err, -ENOMEM, "SSH: a command")
                : cordon_ssh_run(&state->link, text.data, (struct cordon_bytes){both.data, both.size}, "sending a file",
                                 &until, err);
    cordon_buf_done(&text);
    cordon_buf_done(&both);
    return r;
}

static int exec(struct cordon_run *run, const char *command, uint64_t limit_ms, struct cordon_error *err)
{
    struct state *state = run->state;
    struct cordon_ssh_patience until = patience(run);
    struct cordon_buf text = CORDON_BUF_INIT(1u << 20);
    until.deadline_us = cordon_now_us() + 15000000u; /* to be accepted */
    bool program = run->exec_us && !run->ended;      /* else it is a command of ours */
    uint64_t ms = limit_ms ? limit_ms : ONE_DAY_MS;
    if (program) {
        (void)cordon_buf_appendf(&text, "CORDON_RUN=%s exec ", run->id); /* sticky, all of these */
        put_supervisor(&text, run);
        (void)cordon_buf_appendf(&text, " %llu.%03u ", (unsigned long long)(ms / 1000), (unsigned)(ms % 1000));
        cordon_remote_quote(&text, command);
    } else {
        (void)cordon_buf_appends(&text, command);
    }
    int r = text.failed ? cordon_fail_errno(err, -ENOMEM, "SSH: a command")
                        : cordon_ssh_exec(&state->link, text.data, &until, err);
    cordon_buf_done(&text);
    return r;
}

static int exec_next(struct cordon_run *run, struct cordon_remote_output *ret, struct cordon_error *err)
{
    struct state *state = run->state;
    struct cordon_ssh_patience until = patience(run);
    struct cordon_bytes data;
    bool errors;
    if (!state->link.channel)
        return 0;
    int r = cordon_ssh_read(&state->link, &errors, &data, &until, err);
    if (r > 0)
        *ret =
            (struct cordon_remote_output){.type = errors ? CORDON_REMOTE_STDERR : CORDON_REMOTE_STDOUT, .data = data};
    if (r != 0)
        return r;
    *ret = (struct cordon_remote_output){
        .type = CORDON_REMOTE_EXIT, .exit_code = state->link.exit_status, .signal = state->link.exit_signal};
    return 1;
}

/* The supervisor takes the end of its input for the order to kill. */
static void exec_kill(struct cordon_run *run)
{
    struct state *state = run->state;
    cordon_ssh_eof(&state->link);
}

static int get(struct cordon_run *run, const char *path, struct cordon_error *err)
{
    struct state *state = run->state;
    struct cordon_ssh_patience until = patience(run);
    struct cordon_buf text = CORDON_BUF_INIT(4096);
    (void)cordon_buf_appends(&text, "exec cat "); /* sticky */
    cordon_remote_quote(&text, path);
    int r = text.failed ? cordon_fail_errno(err, -ENOMEM, "SSH: a command")
                        : cordon_ssh_exec(&state->link, text.data, &until, err);
    cordon_buf_done(&text);
    return r;
}

static int get_next(struct cordon_run *run, struct cordon_bytes *ret, struct cordon_error *err)
{
    struct state *state = run->state;
    struct cordon_ssh_patience until = patience(run);
    bool errors;
    int r;
    do
        r = cordon_ssh_read(&state->link, &errors, ret, &until, err);
    while (r > 0 && errors);
    if (r == 0 && state->link.exit_status != 0)
        return cordon_fail(err, -EIO, CORDON_ERROR_INFRASTRUCTURE, "SSH: reading a file ended with status %d",
                           state->link.exit_status);
    return r;
}

/* Kills what still carries the run's mark, and removes all files of the run. */
static void write_cleanup(const struct cordon_run *run, struct cordon_buf *to)
{
    put_supervisor(to, run);
    (void)cordon_buf_appendf(to, " --clean %s; rm -rf ", run->id); /* sticky, all of these */
    put_name(to, run, "");
    (void)cordon_buf_append(to, " ", 1);
    put_name(to, run, ".py");
    (void)cordon_buf_append(to, " ", 1);
    put_name(to, run, ".tar");
}

static void destroy(struct cordon_run *run)
{
    struct state *state = run->state;
    struct cordon_error err = {0};
    struct cordon_ssh_patience until = patience(run);
    struct cordon_buf text = CORDON_BUF_INIT(8192);
    struct cordon_bytes none = {NULL, 0};
    write_cleanup(run, &text);
    int r =
        state->made && !text.failed ? cordon_ssh_run(&state->link, text.data, none, "cleaning up", &until, &err) : 0;
    if (r < 0) { /* the connection may have been lost: a new one is tried once */
        cordon_ssh_disconnect(&state->link);
        r = cordon_ssh_connect(&state->link, &until, &err);
        if (r == 0)
            r = cordon_ssh_run(&state->link, text.data, none, "cleaning up", &until, &err);
    }
    if (r < 0)
        cordon_log(CORDON_LOG_WARN, "a run's files, and what it may have left running, could not be removed", "backend",
                   service.name, "folder", run->folder, "error", err.message, NULL);
    cordon_buf_done(&text);
    cordon_ssh_disconnect(&state->link);
}

/* --- the rest --- */

static enum cordon_isolation isolation(void)
{
    return cordon_remote_isolation(CORDON_SET_SSH_ISOLATION);
}

static const char *folder(void)
{
    return cordon_remote_text(CORDON_SET_SSH_WORK_DIR);
}

static const char *python(void)
{
    return cordon_remote_text(CORDON_SET_SSH_PYTHON_BIN);
}

static const char *node(void)
{
    return cordon_remote_text(CORDON_SET_SSH_NODE_BIN);
}

static int configured(struct cordon_error *err)
{
    static const struct {
        enum cordon_setting id;
        const char *text;
    } needed[] = {{CORDON_SET_SSH_HOST, "SSH host is required"},
                  {CORDON_SET_SSH_USERNAME, "SSH username is required"},
                  {CORDON_SET_SSH_PASSWORD, "Either password or private_key must be provided"},
                  {CORDON_SET_SSH_PYTHON_BIN, "Python binary is required"},
                  {CORDON_SET_SSH_NODE_BIN, "Node.js binary is required"}};
    bool key = *cordon_remote_text(CORDON_SET_SSH_PRIVATE_KEY) || *cordon_remote_text(CORDON_SET_SSH_PRIVATE_KEY_PATH);
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!*cordon_remote_text(needed[i].id) && !(needed[i].id == CORDON_SET_SSH_PASSWORD && key))
            return cordon_remote_unset(&service, needed[i].text, err);
    return 0;
}

static const struct cordon_remote_service service = {
    .name = "ssh",
    .title = "SSH",
    .state_size = sizeof(struct state),
    .isolation = isolation,
    .folder = folder,
    .python = python,
    .node = node,
    .max_output = CORDON_SET_SSH_MAX_OUTPUT_BYTES,
    .max_artifacts = CORDON_SET_SSH_MAX_ARTIFACTS,
    .max_artifact_bytes = CORDON_SET_SSH_MAX_ARTIFACT_BYTES,
    CORDON_REMOTE_FUNCTIONS,
    .exec_kill = exec_kill,
};

static const struct cordon_capabilities *capabilities(void)
{
    struct cordon_capabilities now;
    cordon_remote_capable(&now, isolation());
    bool denies = cordon_remote_true(CORDON_SET_SSH_DENIES_EGRESS);
    now.deny_all_egress = denies;
    now.network = !denies;
    now.streaming = true;
    now.max_timeout_s = (uint32_t)cordon_remote_number(CORDON_SET_SSH_TIMEOUT_S);
    return cordon_remote_capabilities(&now);
}

static int ask(struct cordon_error *err)
{
    struct cordon_ssh_link *link = calloc(1, sizeof *link);
    struct cordon_ssh_patience until = {cordon_now_us() + 30000000u, -1};
    struct cordon_bytes none = {NULL, 0};
    if (!link)
        return cordon_fail_errno(err, -ENOMEM, "connecting to the SSH server");
    int r = cordon_ssh_connect(link, &until, err);
    if (r == 0)
        r = cordon_ssh_run(link, "true", none, "true", &until, err);
    cordon_ssh_disconnect(link);
    free(link);
    return r;
}

CORDON_REMOTE_BACKEND(ssh, &service, ask, .shutdown = NULL);
