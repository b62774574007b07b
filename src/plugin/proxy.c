/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gateway's end of plugins: one struct cordon_backend each that speaks to the plugin's host. A host that died is
 * started again for the next run; one that hangs in a run beyond the run's time is killed, and its other runs end with
 * that as their outcome.
 *
 * A host may die at any moment, also between the moment that a run's socket was put into its queue and the one in which
 * it would have taken it out. So it says TAKEN before the plugin sees a run. What ends before that word has not begun
 * anything: it is given to a new host. What ends after it has one answer: the outcome INFRASTRUCTURE.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/registry.h"
#include "plugin/hosts.h"

#define OPEN_US 60000000u
#define PROBE_US 15000000u
#define GRACE_US 5000000u
#define CANCEL_US 2000000u
#define HOSTS_MAX 4u /* that a run or a probe is given to, one after the other, while they die of other runs */

static struct cordon_plugin plugins[CORDON_PLUGINS_MAX];
static size_t plugin_count;

struct cordon_run {
    struct cordon_plugin *plugin;
    int fd;
    uint32_t generation;
    int cancel_fd;
    uint64_t deadline_us, opened_us;
    size_t event_max;
    struct cordon_buf in;
    size_t used;
    bool cancelled, done;
    bool silent; /* the host's own end, or its garbage: no answer of the plugin's */
    struct cordon_wire_event event;
    struct cordon_error lost; /* how it ended between TAKEN and OPENED */
};

/* --- a run --- */

static int fail_lost(const struct cordon_run *run, struct cordon_error *err)
{
    return cordon_fail(err, -EPIPE, CORDON_ERROR_INFRASTRUCTURE, "the process of the plugin %s died",
                       run->plugin->found.name);
}

/* Waits for the host's words, the client's end, or the end of time. */
static int await(struct cordon_run *run, struct cordon_error *err)
{
    uint64_t now = cordon_now_us();
    struct pollfd fds[] = {{.fd = run->fd, .events = POLLIN},
                           {.fd = run->cancelled ? -1 : run->cancel_fd, .events = POLLRDHUP}};
    int ms = run->deadline_us > now ? (int)((run->deadline_us - now) / 1000) + 1 : 0;
    int r = poll(fds, 2, ms);
    if (r < 0 && errno != EINTR)
        return cordon_fail_errno(err, -errno, "waiting for the plugin %s", run->plugin->found.name);
    if (r > 0 && fds[1].revents) {
        run->cancelled = true;
        run->deadline_us = now + CANCEL_US;
        (void)shutdown(run->fd, SHUT_WR); /* the plugin's cancel_fd */
    }
    if (r > 0 && fds[0].revents)
        return 1;
    if (cordon_now_us() < run->deadline_us)
        return 0;
    cordon_plugin_host_kill(run->plugin, run->generation, "a run did not end by its time");
    return cordon_fail(err, -ETIMEDOUT, CORDON_ERROR_INFRASTRUCTURE,
                       "the plugin %s did not end the run by its time; its process was ended", run->plugin->found.name);
}

static int next_frame(struct cordon_run *run, struct cordon_wire_frame *frame, struct cordon_error *err)
{
    cordon_buf_consume(&run->in, run->used);
    run->used = 0;
    for (;;) {
        int r = cordon_wire_next(&run->in, run->event_max, frame, &run->used);
        if (r > 0)
            return 0;
        if (r < 0)
            return cordon_fail(err, r, CORDON_ERROR_INFRASTRUCTURE, "what the plugin %s says can not be read",
                               run->plugin->found.name);
        r = await(run, err);
        if (r < 0)
            return r;
        char *room = r > 0 ? cordon_buf_reserve(&run->in, 65536) : NULL;
        if (r > 0 && !room)
            return cordon_fail_errno(err, -ENOMEM, "reading what the plugin %s says", run->plugin->found.name);
        ssize_t n = room ? recv(run->fd, room, 65536, MSG_DONTWAIT) : 1;
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return fail_lost(run, err);
        run->in.size += room && n > 0 ? (size_t)n : 0;
    }
}

/* Sends the request; the host may take it in slowly, but not for ever. */
static int send_request(struct cordon_run *run, const struct cordon_request *request, struct cordon_error *err)
{
    struct cordon_buf out = CORDON_BUF_INIT(1u << 30);
    int r = 0;
    cordon_wire_put_request(&out, request);
    if (out.failed)
        r = cordon_fail_errno(err, -ENOMEM, "calling the plugin %s", run->plugin->found.name);
    for (size_t at = 0; r == 0 && at < out.size;) {
        struct pollfd fds[] = {{.fd = run->fd, .events = POLLOUT}, {.fd = run->cancel_fd, .events = POLLRDHUP}};
        uint64_t now = cordon_now_us();
        (void)poll(fds, 2,
                   run->deadline_us > now ? (int)((run->deadline_us - now) / 1000) + 1 : 0); /* told by what follows */
        ssize_t n = send(run->fd, out.data + at, out.size - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        at += n > 0 ? (size_t)n : 0;
        if (fds[1].revents)
            r = cordon_fail(err, -ECANCELED, CORDON_ERROR_CANCELLED, "the run was cancelled: its client left");
        else if (n < 0 && errno != EAGAIN && errno != EINTR)
            r = fail_lost(run, err);
        else if (cordon_now_us() >= run->deadline_us)
            r = cordon_fail(err, -ETIMEDOUT, CORDON_ERROR_UNAVAILABLE, "the plugin %s does not take the run in",
                            run->plugin->found.name);
    }
    cordon_buf_done(&out);
    return r;
}

static void run_close(struct cordon_run *run)
{
    if (!run)
        return;
    cordon_close(&run->fd); /* the host's end: the plugin's run is closed */
    cordon_buf_done(&run->in);
    free(run);
}

static int fail_cancelled(struct cordon_error *err)
{
    return cordon_fail(err, -ECANCELED, CORDON_ERROR_CANCELLED, "the run was cancelled: its client left");
}

/* The next word, which must be the wanted one; a plugin's error is its own. */
static int await_word(struct cordon_run *run, enum cordon_wire_type wanted, struct cordon_error *err)
{
    struct cordon_wire_frame frame;
    int r = next_frame(run, &frame, err);
    if (r < 0 && run->cancelled)
        return fail_cancelled(err);
    if (r == 0 && frame.type == wanted)
        return 0;
    if (r == 0 && frame.type == CORDON_WIRE_ERROR && cordon_wire_get_error(&frame, err) == 0)
        return err->code;
    run->silent = true;
    if (r == 0)
        r = cordon_fail(err, -EBADMSG, CORDON_ERROR_INFRASTRUCTURE, "what the plugin %s says can not be read",
                        run->plugin->found.name);
    return r;
}

/* One host's chance: it takes the run (or, without a request, answers the probe), or dies before. */
static int give_once(struct cordon_run *run, const struct cordon_request *request, struct cordon_error *err)
{
    int r = cordon_plugin_host_call(run->plugin, request ? CORDON_PLUGIN_RUN : CORDON_PLUGIN_PROBE, &run->fd,
                                    &run->generation, err);
    if (r == 0 && request)
        r = send_request(run, request, err);
    return r == 0 ? await_word(run, request ? CORDON_WIRE_TAKEN : CORDON_WIRE_OPENED, err) : r;
}

/* Whatever fails in here has not begun anything. */
static int give(struct cordon_run *run, const struct cordon_request *request, struct cordon_error *err)
{
    int r = give_once(run, request, err);
    for (unsigned hosts = 1; r == -EPIPE && run->fd >= 0 && hosts < HOSTS_MAX; hosts++) {
        if (!cordon_plugin_host_gone(run->plugin, run->generation))
            break;
        cordon_close(&run->fd);
        run->in.size = run->used = 0;
        r = give_once(run, request, err);
    }
    if (r < 0 && err->kind == CORDON_ERROR_INFRASTRUCTURE)
        err->kind = CORDON_ERROR_UNAVAILABLE;
    return r;
}

/* After TAKEN: what the plugin says itself is an error, and its silence is how the run ended. */
static int await_opened(struct cordon_run *run, struct cordon_error *err)
{
    int r = await_word(run, CORDON_WIRE_OPENED, err);
    run->opened_us = cordon_now_us();
    if (r == 0 || !run->silent)
        return r;
    run->lost = *err;
    return 0;
}

static int run_open(struct cordon_plugin *plugin, const struct cordon_request *request, struct cordon_run **ret,
                    struct cordon_error *err)
{
    struct cordon_error own = {0};
    struct cordon_run *run = calloc(1, sizeof *run);
    if (!run)
        return cordon_fail_errno(err, -ENOMEM, "starting a run");
    uint64_t largest = request->limits.artifact_bytes > (20u << 20) ? request->limits.artifact_bytes : 20u << 20;
    run->plugin = plugin;
    run->fd = -1;
    run->cancel_fd = request->cancel_fd;
    run->event_max = (size_t)largest + CORDON_WIRE_SPARE;
    run->in = CORDON_BUF_INIT(run->event_max + 131072);
    run->deadline_us = cordon_now_us() + OPEN_US;
    int r = give(run, request, &own);
    if (r == 0)
        r = await_opened(run, &own);
    run->deadline_us = cordon_now_us() + request->limits.timeout_ms * 1000 + GRACE_US;
    if (r < 0) {
        run_close(run);
        if (err)
            *err = own;
        return r;
    }
    *ret = run;
    return 0;
}

/* What a plugin may not decide: whose run this was, and how well it was isolated. */
static void own_outcome(struct cordon_run *run)
{
    struct cordon_outcome *outcome = &run->event.outcome;
    outcome->struct_size = sizeof *outcome;
    (void)snprintf(outcome->backend, sizeof outcome->backend, "%.31s", run->plugin->found.name);
    if (outcome->isolation > run->plugin->hello.capabilities.isolation)
        outcome->isolation = run->plugin->hello.capabilities.isolation;
}

static int give_lost(struct cordon_run *run, const struct cordon_error *err, struct cordon_event *event)
{
    struct cordon_outcome *outcome = &run->event.outcome;
    *outcome = (struct cordon_outcome){.cause = run->cancelled ? CORDON_CAUSE_CANCELLED : CORDON_CAUSE_INFRASTRUCTURE,
                                       .exit_code = -1,
                                       .isolation = run->plugin->hello.capabilities.isolation,
                                       .run_us = cordon_now_us() - run->opened_us};
    (void)snprintf(outcome->message, sizeof outcome->message, "%.255s",
                   run->cancelled ? "the run was cancelled: its client left" : err->message);
    own_outcome(run);
    run->done = true;
    *event = (struct cordon_event){.type = CORDON_EVENT_OUTCOME, .outcome = outcome};
    return 1;
}

static int run_next(struct cordon_run *run, struct cordon_event *event)
{
    struct cordon_wire_frame frame;
    struct cordon_error err = {0};
    if (run->done)
        return 0;
    if (run->lost.kind != CORDON_ERROR_NONE)
        return give_lost(run, &run->lost, event);
    int r = next_frame(run, &frame, &err);
    if (r == 0 && (frame.type != CORDON_WIRE_EVENT || cordon_wire_get_event(&frame, &run->event) < 0))
        r = cordon_fail(&err, -EBADMSG, CORDON_ERROR_INFRASTRUCTURE, "what the plugin %s says can not be read",
                        run->plugin->found.name);
    if (r < 0)
        return give_lost(run, &err, event);
    if (run->event.event.type == CORDON_EVENT_OUTCOME) {
        own_outcome(run);
        run->done = true;
    }
    *event = run->event.event;
    return 1;
}

static int probe(struct cordon_plugin *plugin, struct cordon_error *err)
{
    struct cordon_run run = {
        .plugin = plugin, .fd = -1, .cancel_fd = -1, .event_max = 65536, .in = CORDON_BUF_INIT(256u << 10)};
    struct cordon_error own = {0};
    run.deadline_us = cordon_now_us() + PROBE_US;
    int r = give(&run, NULL, &own);
    cordon_close(&run.fd);
    cordon_buf_done(&run.in);
    if (r < 0 && err)
        *err = own;
    return r;
}

/* --- the interface has no place for "which plugin": one set of functions each --- */

#define PLUGINS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define FUNCTIONS(n)                                                                                                   \
    static const struct cordon_capabilities *capabilities_##n(void)                                                    \
    {                                                                                                                  \
        return &plugins[n].hello.capabilities;                                                                         \
    }                                                                                                                  \
    static int probe_##n(struct cordon_error *err)                                                                     \
    {                                                                                                                  \
        return probe(&plugins[n], err);                                                                                \
    }                                                                                                                  \
    static int open_##n(const struct cordon_request *request, struct cordon_run **ret, struct cordon_error *err)       \
    {                                                                                                                  \
        return run_open(&plugins[n], request, ret, err);                                                               \
    }
PLUGINS(FUNCTIONS)
#define BACKEND(n)                                                                                                     \
    {.abi_version = CORDON_ABI_VERSION,                                                                                \
     .struct_size = sizeof(struct cordon_backend),                                                                     \
     .capabilities = capabilities_##n,                                                                                 \
     .probe = probe_##n,                                                                                               \
     .run_open = open_##n,                                                                                             \
     .run_next = run_next,                                                                                             \
     .run_close = run_close},
static const struct cordon_backend backends[] = {PLUGINS(BACKEND)};
_Static_assert(sizeof backends / sizeof *backends == CORDON_PLUGINS_MAX, "one set of functions a plugin");

/* --- loading --- */

static void load_one(size_t i)
{
    struct cordon_plugin *plugin = &plugins[i];
    struct cordon_error err = {0};
    pthread_mutex_lock(&plugin->lock);
    int r = cordon_plugin_host_start(plugin, &plugin->hello, &err);
    pthread_mutex_unlock(&plugin->lock);
    plugin->hello.capabilities.languages = plugin->hello.languages; /* the copy's own */
    plugin->hello.capabilities.egress_exceptions = plugin->hello.egress_exceptions;
    plugin->backend = backends[i];
    plugin->backend.name = plugin->found.name;
    if (r == 0)
        r = cordon_registry_add(&plugin->backend, &err);
    if (r < 0)
        cordon_log(CORDON_LOG_WARN, "a plugin is skipped", "name", plugin->found.name, "distribution",
                   plugin->found.distribution, "why", err.message, NULL);
    else
        cordon_log(CORDON_LOG_INFO, "a plugin is loaded", "name", plugin->found.name, "distribution",
                   plugin->found.distribution, NULL);
}

int cordon_plugins_load(const struct cordon_settings *settings, uid_t uid, gid_t gid, struct cordon_error *err)
{
    struct cordon_plugin_found *found = calloc(CORDON_PLUGINS_MAX, sizeof *found);
    if (!found)
        return cordon_fail_errno(err, -ENOMEM, "looking for plugins");
    plugin_count = cordon_plugins_find(settings, found, CORDON_PLUGINS_MAX);
    int r = plugin_count ? cordon_plugin_hosts_begin(uid, gid, found, plugin_count, err) : 0;
    for (size_t i = 0; r == 0 && i < plugin_count; i++) {
        plugins[i] =
            (struct cordon_plugin){.found = found[i], .number = i, .host = -1, .lock = PTHREAD_MUTEX_INITIALIZER};
        load_one(i);
    }
    free(found);
    return r;
}

void cordon_plugins_stop(void)
{
    for (size_t i = 0; i < plugin_count; i++)
        cordon_close(&plugins[i].host);
    cordon_plugin_hosts_end();
}
