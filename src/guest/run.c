/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole run over one guest. Blocking, one thread a run: run_next does what is due, waits for what can come next, and
 * returns with the first event. Nothing is read ahead of the caller but one buffer, so a slow caller slows the
 * program, by way of credit and the socket. Its time limit is not slowed: the agent keeps it too.
 *
 * Waiting is on the channel, the lease and the client's socket, with one timeout: the soonest of the deadline, the
 * time at which the CPU limit could be used up, and the end of our patience. At a deadline the agent is told to kill
 * and has GRACE_US to send what was still in the pipes; with or without its answer the run is then over, and closing
 * the lease ends the guest.
 */
#include "guest/run.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "core/template.h"
#include "isolate/cgroup.h"

#define READ_SIZE (96u << 10) /* below what malloc takes from the kernel anew each time */
#define IN_MAX (1u << 20)
#define CREDIT_STEP (CORDON_CREDIT_INITIAL / 4)
#define LOST_US 200000       /* for the channel's end after the lease's */
#define WORD_US 3000000      /* for the lease's last word after a machine's channel ended */
#define HANDOVER_US 30000000 /* for files and program to be taken */
#define CHATTER_US 1000000   /* beyond any of these, however much still comes */
#define CPU_CHECK_LEAST_US 2000

/* How long an agent is waited for. A machine's answers by way of a device and a processor that may be emulated. */
static const struct patience {
    uint64_t exit_us;           /* for EXIT after a kill: a deadline is answered within 20 ms */
    uint64_t exit_artifacts_us; /* the same where artifacts are wanted: without EXIT there are none */
    uint64_t collect_us;        /* more than the agent gives its worker (agent/worker.c) */
    uint64_t collect_late_us;   /* the same after a deadline */
} of_process = {15000, 200000, 10000000, 2000000}, of_machine = {1000000, 3000000, 40000000, 10000000};

static enum cordon_guest_kind choose_kind(const struct cordon_request *request)
{
    if (strcmp(request->language, "javascript") == 0)
        return CORDON_GUEST_JAVASCRIPT;
    if (strcmp(request->language, "bash") == 0)
        return CORDON_GUEST_BASH;
    if (request->fresh_interpreter)
        return CORDON_GUEST_PYTHON_FRESH;
    return cordon_imports_data(request->code.data, request->code.size) ? CORDON_GUEST_PYTHON_DATA : CORDON_GUEST_PYTHON;
}

static int check_request(const struct cordon_request *request, struct cordon_error *err)
{
    static const char *const languages[] = {"python", "javascript", "bash"};
    size_t payload = request->code.size + request->arguments.size, i = 0;
    while (i < 3 && strcmp(request->language, languages[i]) != 0)
        i++;
    if (i == 3)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "language '%.40s': python, javascript and bash can be run", request->language);
    for (i = 0; i < request->env_count; i++)
        payload += strlen(request->env[i]) + 8;
    if (payload > CORDON_FRAME_MAX - 4096)
        return cordon_fail(err, -E2BIG, CORDON_ERROR_TOO_LARGE,
                           "code, arguments and environment have %zu bytes together: at most %u can be sent", payload,
                           CORDON_FRAME_MAX - 4096);
    for (i = 0; i < request->file_count; i++) {
        if (strlen(request->files[i].path) > 4095)
            return cordon_fail(err, -ENAMETOOLONG, CORDON_ERROR_INVALID,
                               "the path of file %zu is longer than 4095 bytes", i);
    }
    return 0;
}

/* Of our own making: the backend `none` has the host's. */
static bool has_network(const struct cordon_run *run)
{
    return run->request->network && run->request->egress && !run->backend.unisolated;
}

static int acquire(struct cordon_run *run, struct cordon_error *err)
{
    const struct cordon_limits *limits = &run->request->limits;
    const char *name = run->request->template_name;
    struct cordon_warden_acquire wanted = {
        .version = CORDON_WARDEN_VERSION,
        .kind = choose_kind(run->request),
        .unisolated = run->backend.unisolated,
        .machine = run->backend.machine,
        .network = has_network(run),
        .cpu_percent = limits->cpu_percent,
        .pids = limits->pids,
        .memory_bytes = limits->memory_bytes,
    };
    (void)snprintf(wanted.template_name, sizeof wanted.template_name, "%s",
                   name && !cordon_template_is_default(name) ? name : CORDON_TEMPLATE_DEFAULT); /* checked to fit */
    run->opened_us = cordon_now_us();
    int r = cordon_lease_open(&wanted, run->request->cancel_fd, &run->lease, err);
    if (r == 0 && has_network(run))
        r = cordon_egress_open("", run->lease.network, run->request->egress, &run->egress, err);
    run->granted_us = cordon_now_us();
    return r;
}

int cordon_guest_run_open(const struct cordon_guest_backend *backend, const struct cordon_request *request,
                          struct cordon_run **ret, struct cordon_error *err)
{
    int r = check_request(request, err);
    if (r < 0)
        return r;
    struct cordon_run *run = calloc(1, sizeof *run);
    if (!run)
        return cordon_fail_errno(err, -ENOMEM, "starting a run");
    const struct cordon_guest_caps caps = {
        .stdout_bytes = request->limits.stdout_bytes,
        .stderr_bytes = request->limits.stderr_bytes,
        .artifact_bytes = request->limits.artifact_bytes,
        .artifacts_bytes = request->limits.artifacts_bytes,
        .artifacts = request->limits.artifacts,
    };
    run->backend = *backend;
    run->request = request;
    run->lease = CORDON_LEASE_NONE;
    run->in = CORDON_BUF_INIT(IN_MAX);
    run->egress_log = CORDON_BUF_INIT(CORDON_EGRESS_TEXT_MAX);
    cordon_guest_sender_init(&run->sender, request);
    cordon_guest_reader_init(&run->reader, CORDON_GUEST_EXEC, &caps);
    r = acquire(run, err);
    if (r < 0) {
        cordon_guest_run_close(run);
        return r;
    }
    run->give_up_us = run->granted_us + HANDOVER_US;
    *ret = run;
    return 0;
}

void cordon_guest_run_close(struct cordon_run *run)
{
    if (!run)
        return;
    cordon_lease_close(&run->lease);
    cordon_egress_close(run->egress);
    cordon_buf_done(&run->egress_log);
    cordon_guest_sender_done(&run->sender);
    cordon_guest_reader_done(&run->reader);
    cordon_buf_done(&run->in);
    free(run);
}

/* --- ends --- */

static void lose(struct cordon_run *run, enum cordon_guest_loss loss)
{
    if (run->loss == CORDON_LOSS_NONE)
        run->loss = loss;
    if (!run->ended_us)
        run->ended_us = cordon_now_us();
    run->stage = CORDON_STAGE_OUTCOME;
}

static const struct patience *patience_of(const struct cordon_run *run)
{
    return run->backend.machine ? &of_machine : &of_process;
}

static void cut(struct cordon_run *run, enum cordon_guest_cut why)
{
    const struct patience *patience = patience_of(run);
    uint64_t now = cordon_now_us();
    run->cut = why;
    run->deadline_us = run->cpu_check_us = 0;
    run->give_up_us = now + (run->request->artifacts ? patience->exit_artifacts_us : patience->exit_us);
    if (why == CORDON_CUT_CANCELLED || cordon_guest_sender_kill(&run->sender, SIGKILL) < 0)
        lose(run, CORDON_LOSS_SILENT);
}

/* --- waiting --- */

static uint64_t cpu_used(const struct cordon_run *run)
{
    uint64_t used = run->lease.cpu_usage >= 0 ? cordon_cgroup_read_cpu_us(run->lease.cpu_usage) : 0;
    return used > run->lease.cpu_usage_base ? used - run->lease.cpu_usage_base : 0;
}

/* No program can use up what is left faster than with all its CPUs. */
static void plan_cpu_check(struct cordon_run *run, uint64_t now)
{
    const struct cordon_limits *limits = &run->request->limits;
    uint64_t limit = limits->cpu_ms * 1000, used = cpu_used(run);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t cpus = limits->cpu_percent ? (limits->cpu_percent + 99) / 100 : 1;
    if (online > 0 && cpus > (uint64_t)online)
        cpus = (uint64_t)online;
    if (used >= limit) {
        cut(run, CORDON_CUT_CPU);
        return;
    }
    uint64_t wait = (limit - used) / cpus;
    run->cpu_check_us = now + (wait > CPU_CHECK_LEAST_US ? wait : CPU_CHECK_LEAST_US);
}

static void on_exec_sent(struct cordon_run *run, uint64_t now)
{
    run->exec_us = now;
    run->give_up_us = 0;
    if (run->request->limits.timeout_ms)
        run->deadline_us = now + run->request->limits.timeout_ms * 1000;
    if (run->request->limits.cpu_ms && run->lease.cpu_usage >= 0)
        plan_cpu_check(run, now);
}

static void check_times(struct cordon_run *run)
{
    uint64_t now = cordon_now_us();
    if (run->give_up_us && now >= run->give_up_us + CHATTER_US)
        lose(run, CORDON_LOSS_SILENT); /* it goes on talking, but not of what is waited for */
    if (run->stage == CORDON_STAGE_RUN && run->deadline_us && now >= run->deadline_us)
        cut(run, CORDON_CUT_TIMEOUT);
    if (run->stage == CORDON_STAGE_RUN && run->cpu_check_us && now >= run->cpu_check_us)
        plan_cpu_check(run, now);
}

static void sooner(uint64_t *when, uint64_t other)
{
    if (other && (!*when || other < *when))
        *when = other;
}

static int wait_for_events(struct cordon_run *run, struct pollfd fds[3])
{
    uint64_t when = 0, now = cordon_now_us();
    sooner(&when, run->deadline_us);
    sooner(&when, run->cpu_check_us);
    sooner(&when, run->give_up_us);
    uint64_t wait = when > now ? when - now : 0;
    const struct timespec timeout = {.tv_sec = (time_t)(wait / 1000000), .tv_nsec = (long)(wait % 1000000) * 1000};
    short out = cordon_guest_sender_waits(&run->sender) ? POLLOUT : 0;
    fds[0] = (struct pollfd){.fd = run->channel_ended ? -1 : run->lease.channel, .events = (short)(POLLIN | out)};
    fds[1] = (struct pollfd){.fd = run->lease_ended ? -1 : run->lease.lease, .events = POLLRDHUP};
    fds[2] = (struct pollfd){.fd = run->request->cancel_fd, .events = POLLRDHUP};
    int n = ppoll(fds, 3, when ? &timeout : NULL, NULL);
    return n < 0 ? (errno == EINTR ? 0 : -errno) : n;
}

static void receive(struct cordon_run *run)
{
    cordon_buf_consume(&run->in, run->in_at);
    run->in_at = 0;
    char *to = cordon_buf_reserve(&run->in, READ_SIZE);
    if (!to) {
        lose(run, CORDON_LOSS_MEMORY);
        return;
    }
    ssize_t n = recv(run->lease.channel, to, READ_SIZE, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0) {
        run->in.size += (size_t)n;
    } else if (run->backend.machine && !run->lease_ended) {
        run->channel_ended = true;
        run->give_up_us = cordon_now_us() + WORD_US;
    } else {
        lose(run, CORDON_LOSS_AGENT);
    }
}

static void send_due(struct cordon_run *run)
{
    for (int stream = 0; stream < 2; stream++) {
        if (run->credit_owed[stream] < CREDIT_STEP || run->stage != CORDON_STAGE_RUN)
            continue;
        if (cordon_guest_sender_credit(&run->sender, stream, (uint32_t)run->credit_owed[stream]) < 0)
            lose(run, CORDON_LOSS_MEMORY);
        run->credit_owed[stream] = 0;
    }
    int r = cordon_guest_sender_send(&run->sender, run->lease.channel);
    if (r == -ENOMEM || r == -EMSGSIZE)
        lose(run, CORDON_LOSS_MEMORY);
    /* Any other failure is the channel's end, and what came before it is still to be read. */
    if (run->sender.exec_sent && !run->exec_us)
        on_exec_sent(run, cordon_now_us());
}

/* Does what is due and waits until there is more to take in; or the stage has changed. */
static void wait_for_more(struct cordon_run *run)
{
    struct pollfd fds[3];
    send_due(run);
    check_times(run);
    if (run->stage >= CORDON_STAGE_OUTCOME)
        return;
    if (run->sender.control.size) /* a kill is not to wait for the socket to be found writable */
        (void)cordon_guest_sender_send(&run->sender, run->lease.channel); /* what it says is seen at the next turn */
    int n = wait_for_events(run, fds);
    if (n < 0)
        lose(run, CORDON_LOSS_SILENT);
    else if (n == 0 && run->give_up_us && cordon_now_us() >= run->give_up_us)
        lose(run, run->lease_ended || run->channel_ended ? CORDON_LOSS_AGENT : CORDON_LOSS_SILENT);
    else if (n > 0 && fds[2].revents)
        cut(run, CORDON_CUT_CANCELLED);
    else if (n > 0 && fds[0].revents & (POLLIN | POLLHUP | POLLERR | POLLNVAL))
        receive(run);
    else if (n > 0 && fds[1].revents) {
        run->lease_ended = true;
        run->give_up_us = cordon_now_us() + LOST_US;
        if (run->channel_ended)
            lose(run, CORDON_LOSS_AGENT);
    }
}

/* --- events --- */

static void on_exit_event(struct cordon_run *run)
{
    run->ended_us = cordon_now_us();
    run->deadline_us = run->cpu_check_us = run->give_up_us = 0;
    run->stage = CORDON_STAGE_OUTCOME;
    if (!run->request->artifacts || !run->reader.exit.may_have_artifacts)
        return;
    if (cordon_guest_sender_collect(&run->sender) < 0) {
        lose(run, CORDON_LOSS_MEMORY);
        return;
    }
    run->reader.collecting = true;
    run->stage = CORDON_STAGE_COLLECT;
    run->give_up_us = run->ended_us + (run->cut ? patience_of(run)->collect_late_us : patience_of(run)->collect_us);
    (void)cordon_guest_sender_send(&run->sender, run->lease.channel); /* now; a failure is seen at the next turn */
}

static void on_started(struct cordon_run *run)
{
    /* Putting files was not the program's time. */
    if (run->request->file_count && run->deadline_us)
        run->deadline_us = cordon_now_us() + run->request->limits.timeout_ms * 1000;
}

static int give_output(struct cordon_run *run, const struct cordon_guest_event *from, struct cordon_event *event)
{
    run->credit_owed[from->stream] += from->size;
    event->type = from->stream ? CORDON_EVENT_STDERR : CORDON_EVENT_STDOUT;
    event->data = (struct cordon_bytes){from->data, from->size};
    return 1;
}

static int give_file(struct cordon_run *run, enum cordon_event_type type, struct cordon_event *event)
{
    struct cordon_guest_reader *reader = &run->reader;
    event->type = type;
    event->name = reader->name;
    event->size = reader->size;
    if (type == CORDON_EVENT_ARTIFACT)
        event->data = (struct cordon_bytes){reader->artifact.data, reader->artifact.size};
    else
        event->reason = reader->reason;
    return 1;
}

/* 1: *event is to be given. */
static int take_in(struct cordon_run *run, const struct cordon_guest_event *from, struct cordon_event *event)
{
    switch (from->type) {
    case CORDON_GUEST_STARTED:
        on_started(run);
        event->type = CORDON_EVENT_STARTED;
        return 1;
    case CORDON_GUEST_OUTPUT:
        return give_output(run, from, event);
    case CORDON_GUEST_WINDOW:
        run->sender.stdin_window += from->size;
        if (run->sender.stdin_window > CORDON_STDIN_WINDOW) {
            run->reader.violation = "more stdin was asked for than its window holds";
            lose(run, CORDON_LOSS_VIOLATION);
        }
        return 0;
    case CORDON_GUEST_EXIT:
        on_exit_event(run);
        return 0;
    case CORDON_GUEST_ARTIFACT:
        return give_file(run, CORDON_EVENT_ARTIFACT, event);
    case CORDON_GUEST_DROPPED:
        return give_file(run, CORDON_EVENT_DROPPED, event);
    case CORDON_GUEST_END:
        run->stage = CORDON_STAGE_OUTCOME;
        return 0;
    case CORDON_GUEST_REFUSED:
        lose(run, CORDON_LOSS_REFUSED);
        return 0;
    case CORDON_GUEST_VIOLATION:
        lose(run, CORDON_LOSS_VIOLATION);
        return 0;
    case CORDON_GUEST_MORE:
    case CORDON_GUEST_QUIET:
        break;
    }
    return 0;
}

/* Collecting broke off, or never began: what was returned stays returned, and the rest is told to be missing. */
static int give_missing(struct cordon_run *run, struct cordon_event *event)
{
    static const char *const reasons[] = {
        [CORDON_LOSS_NONE] = "",
        [CORDON_LOSS_AGENT] = "the guest ended while its artifacts were collected",
        [CORDON_LOSS_SILENT] = "the guest's agent did not answer in time",
        [CORDON_LOSS_REFUSED] = "the guest's agent could not collect them",
        [CORDON_LOSS_VIOLATION] = "the guest violated its protocol",
        [CORDON_LOSS_MEMORY] = "the gateway has no memory for them",
    };
    event->type = CORDON_EVENT_DROPPED;
    event->name = "(all others)";
    event->reason = reasons[run->loss];
    run->missing_told = true;
    run->reader.dropped++;
    return 1;
}

static bool has_result(const struct cordon_run *run)
{
    return run->reader.state >= CORDON_GUEST_EXITED && run->reader.exit.how == CORDON_EXIT_EXITED &&
           run->reader.result.size && !*run->reader.result_error && !run->result_given;
}

static int give_result(struct cordon_run *run, struct cordon_event *event)
{
    run->result_given = true;
    event->type = CORDON_EVENT_RESULT;
    event->data = (struct cordon_bytes){run->reader.result.data, run->reader.result.size};
    return 1;
}

static int give_egress(struct cordon_run *run, struct cordon_event *event)
{
    run->egress_told = true;
    if (cordon_egress_read(run->egress, &run->egress_counts, &run->egress_log) < 0)
        return 0;
    event->type = CORDON_EVENT_EGRESS;
    event->data = (struct cordon_bytes){run->egress_log.data, run->egress_log.size};
    return 1;
}

static int give_outcome(struct cordon_run *run, struct cordon_event *event)
{
    cordon_guest_run_judge(run);
    if (run->reader.state < CORDON_GUEST_EXITED)
        cordon_lease_close(&run->lease); /* something may still run; else the guest goes with the run */
    run->stage = CORDON_STAGE_DONE;
    event->type = CORDON_EVENT_OUTCOME;
    event->outcome = &run->outcome;
    return 1;
}

static bool artifacts_miss(const struct cordon_run *run)
{
    bool ran = run->exec_us && run->loss != CORDON_LOSS_REFUSED;
    return run->loss && ran && run->request->artifacts && !run->missing_told && run->cut != CORDON_CUT_CANCELLED;
}

int cordon_guest_run_next(struct cordon_run *run, struct cordon_event *event)
{
    memset(event, 0, sizeof *event);
    while (run->stage < CORDON_STAGE_OUTCOME) {
        size_t used;
        if (has_result(run))
            return give_result(run, event);
        struct cordon_guest_event from =
            cordon_guest_reader_next(&run->reader, run->in.data + run->in_at, run->in.size - run->in_at, &used);
        run->in_at += used;
        if (from.type == CORDON_GUEST_MORE)
            wait_for_more(run);
        else if (take_in(run, &from, event))
            return 1;
    }
    if (run->stage == CORDON_STAGE_DONE)
        return 0;
    if (artifacts_miss(run))
        return give_missing(run, event);
    if (has_result(run))
        return give_result(run, event);
    if (run->egress && !run->egress_told && give_egress(run, event))
        return 1;
    return give_outcome(run, event);
}
