/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent's side of workers. Frames pass through in both directions, whole and checked: towards a worker FILE_*, from
 * it ARTIFACT_* and what it has to tell. A worker ends what it does with COLLECTED; one that ends without (the memory
 * limit took it, say) has failed. While putting, ARTIFACT_DATA carries the identity of a file that was put: it is kept
 * here, so that an unchanged one is not taken for an artifact later.
 *
 * A worker that puts joins the code's control groups, since what it writes is the run's memory. One that collects
 * only reads: it stays in the agent's groups.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/vm.h"
#include "base/clock.h"
#include "base/fd.h"

#define TO_MAX (512u << 10)
#define TO_FULL (128u << 10)
#define FROM_MAX (CORDON_FRAME_DATA_MAX + CORDON_FRAME_HEADER)
#define OPEN_FILES 64
#define COLLECT_US 5000000
#define COLLECT_MACHINE_US 30000000 /* its processor and its port may be emulated */
#define WORKER_FD 3

static int told_by(int fd, int error, const char *stage)
{
    char frame[256], *at = frame + CORDON_FRAME_HEADER;
    char text[128];
    int n = snprintf(text, sizeof text, "starting the file worker: %s: %s", stage, strerror(error));
    struct cordon_buf buf = CORDON_BUF_INIT(sizeof frame - CORDON_FRAME_HEADER);
    (void)cordon_field_put_u32(&buf, CORDON_FIELD_CODE_NUMBER, (uint32_t)error); /* failures stick in buf.failed */
    (void)cordon_field_put(&buf, CORDON_FIELD_REASON, text,
                           (uint32_t)(n < (int)sizeof text ? n : (int)sizeof text - 1));
    if (buf.failed)
        return 1;
    memcpy(at, buf.data, buf.size);
    cordon_frame_header(frame, CORDON_FRAME_ERROR, 0, (uint32_t)buf.size);
    (void)cordon_write_full(fd, frame, CORDON_FRAME_HEADER + buf.size); /* the early end says it too */
    return 1;
}

static struct cordon_agent_wish wish_of(struct cordon_agent *agent, uint16_t id)
{
    struct cordon_agent_exec *exec = cordon_agent_exec_find(agent, id);
    struct cordon_agent_wish wish = {.flat = exec && (exec->flags & CORDON_EXEC_FLAT)};
    struct cordon_field field;
    size_t at = 0;
    while (exec && cordon_field_next(exec->job_sent.data, exec->job_sent.size, &at, &field) == 1) {
        if (field.tag == CORDON_FIELD_CODE)
            wish.code = field;
        else if (field.tag == CORDON_FIELD_SUFFIXES)
            wish.suffixes = field;
    }
    return wish;
}

static int work(struct cordon_agent *agent, int socket, bool collecting, uint16_t exec)
{
    const char *stage = "placing descriptors";
    int listener = -1;
    if (dup2(socket, WORKER_FD) < 0 || dup2(0, 1) < 0 || dup2(0, 2) < 0)
        return 1;
    (void)close(CORDON_AGENT_READY);
    for (int fd = CORDON_AGENT_FILTER + 1; fd < CORDON_AGENT_CGROUPS; fd++)
        (void)close(fd);
    int r = cordon_agent_become_code(agent, !collecting, OPEN_FILES, &listener, &stage);
    if (r < 0)
        return told_by(WORKER_FD, -r, stage);
    if (listener >= 0)
        (void)close(listener); /* a denied call gets ENOSYS then: workers need none */
    (void)close(CORDON_AGENT_FILTER);
    if (collecting) {
        struct cordon_agent_wish wish = wish_of(agent, exec);
        return cordon_agent_collect_files(WORKER_FD, exec, agent->config.workdir, &agent->collect_limits, agent->puts,
                                          agent->put_count, &wish);
    }
    return cordon_agent_put_files(WORKER_FD, agent->config.workdir);
}

static int start_worker(struct cordon_agent *agent, bool collecting, uint16_t exec)
{
    struct cordon_agent_worker *worker = &agent->worker;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    pid_t pid = fork();
    if (pid == 0)
        _exit(work(agent, pair[1], collecting, exec));
    int error = -errno;
    cordon_close(&pair[1]);
    if (pid < 0) {
        cordon_close(&pair[0]);
        return error;
    }
    worker->pid = pid;
    worker->fd = pair[0];
    worker->collecting = collecting;
    worker->failed = worker->told = worker->hung_up = false;
    uint64_t most_us = cordon_vm.on ? COLLECT_MACHINE_US : COLLECT_US;
    worker->until_us = collecting ? cordon_now_us() + most_us : 0;
    worker->to = CORDON_BUF_INIT(TO_MAX);
    worker->from = CORDON_BUF_INIT(FROM_MAX);
    return 0;
}

static void files_failed(struct cordon_agent *agent, int code, const char *path, const char *reason)
{
    if (!agent->files_failed)
        cordon_agent_send_error(agent, 0, code, path, "%s", reason);
    agent->files_failed = true;
}

/* The worker is of no more use, however it got there. */
static void end_worker(struct cordon_agent *agent)
{
    struct cordon_agent_worker *worker = &agent->worker;
    if (worker->pid > 0)
        (void)kill(worker->pid, SIGKILL); /* it may have ended by itself; it is ours until it is reaped */
    cordon_close(&worker->fd);
    cordon_buf_done(&worker->to);
    cordon_buf_done(&worker->from);
    if (worker->told)
        return;
    if (worker->collecting) {
        bool late = worker->until_us && cordon_now_us() >= worker->until_us;
        cordon_agent_send_dropped(agent, agent->collect_exec, "(all others)",
                                  late ? "collecting took longer than 5 seconds" : "the collecting process was killed");
        cordon_agent_send(agent, CORDON_FRAME_COLLECTED, agent->collect_exec, NULL, 0);
    } else {
        files_failed(agent, EIO, NULL,
                     "the process that puts files was killed: they may be larger than the memory limit");
    }
}

static void forward_error(struct cordon_agent *agent, const struct cordon_frame *frame)
{
    struct cordon_field field;
    char reason[256] = "putting a file failed", path[4096] = "";
    uint32_t code = EIO;
    size_t at = 0;
    while (cordon_field_next(frame->payload, frame->length, &at, &field) == 1) {
        if (field.tag == CORDON_FIELD_CODE_NUMBER)
            (void)cordon_field_u32(&field, &code); /* else EIO stays */
        else if (field.tag == CORDON_FIELD_REASON)
            (void)snprintf(reason, sizeof reason, "%.*s", (int)field.length, field.data);
        else if (field.tag == CORDON_FIELD_PATH)
            (void)snprintf(path, sizeof path, "%.*s", (int)field.length, field.data);
    }
    files_failed(agent, (int)code, *path ? path : NULL, reason);
}

static void remember_put(struct cordon_agent *agent, const struct cordon_frame *frame)
{
    struct cordon_agent_put put;
    if (frame->length != sizeof put || agent->put_count >= CORDON_AGENT_PUT_FILES)
        return;
    if (!agent->puts)
        agent->puts = calloc(CORDON_AGENT_PUT_FILES, sizeof put);
    if (!agent->puts)
        return; /* it may then be returned as an artifact, which is no harm */
    memcpy(&put, frame->payload, sizeof put);
    agent->puts[agent->put_count++] = put;
}

static void handle_putting(struct cordon_agent *agent, const struct cordon_frame *frame)
{
    if (frame->type == CORDON_FRAME_ERROR)
        forward_error(agent, frame);
    else if (frame->type == CORDON_FRAME_ARTIFACT_DATA)
        remember_put(agent, frame);
    if (frame->type == CORDON_FRAME_ERROR || frame->type == CORDON_FRAME_COLLECTED)
        agent->worker.told = true;
}

static void handle_collecting(struct cordon_agent *agent, const struct cordon_frame *frame)
{
    if (frame->type == CORDON_FRAME_COLLECTED)
        agent->worker.told = true;
    if (frame->type >= CORDON_FRAME_ARTIFACT_OPEN && frame->type <= CORDON_FRAME_COLLECTED)
        cordon_agent_send(agent, frame->type, agent->collect_exec, frame->payload, frame->length);
}

/* False: what came are no frames, or it has said all it has to say. */
static bool handle_frames(struct cordon_agent *agent)
{
    struct cordon_agent_worker *worker = &agent->worker;
    struct cordon_frame frame;
    int64_t n;
    size_t used = 0;
    while (!worker->told &&
           (n = cordon_frame_parse(worker->from.data + used, worker->from.size - used, 1, &frame)) != 0) {
        if (n < 0)
            return false;
        if (worker->collecting)
            handle_collecting(agent, &frame);
        else
            handle_putting(agent, &frame);
        used += (size_t)n;
    }
    cordon_buf_consume(&worker->from, used);
    return !worker->told;
}

static void on_worker(struct cordon_agent *agent, struct cordon_agent_exec *exec, short events)
{
    (void)exec;
    struct cordon_agent_worker *worker = &agent->worker;
    if (events & POLLOUT && worker->to.size) {
        ssize_t n = send(worker->fd, worker->to.data, worker->to.size, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n > 0)
            cordon_buf_consume(&worker->to, (size_t)n);
        else if (n < 0 && errno != EAGAIN && errno != EINTR)
            cordon_buf_done(&worker->to); /* it ended; what it told is still to be read */
    }
    if (!(events & (POLLIN | POLLHUP | POLLERR)) || !cordon_agent_out_ready(agent))
        return;
    size_t room = FROM_MAX - worker->from.size;
    char *to = cordon_buf_reserve(&worker->from, room);
    if (!to)
        cordon_agent_quit(agent, 1, "no memory for a file worker's frame");
    ssize_t n = recv(worker->fd, to, room, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        worker->from.size += (size_t)n;
    if (n <= 0 || !handle_frames(agent))
        end_worker(agent);
}

void cordon_agent_worker_feed(struct cordon_agent *agent, const struct cordon_frame *frame)
{
    if (agent->files_failed)
        return;
    agent->files_put = true;
    if (agent->worker.fd < 0) {
        int r = start_worker(agent, false, 0);
        if (r < 0) {
            files_failed(agent, -r, NULL, "no process for putting files could be started");
            return;
        }
    }
    if (agent->worker.collecting ||
        cordon_frame_put(&agent->worker.to, frame->type, 0, frame->payload, frame->length) < 0)
        cordon_agent_quit(agent, 1, "the host sends files where none can be taken");
}

bool cordon_agent_worker_full(const struct cordon_agent *agent)
{
    return agent->worker.fd >= 0 && agent->worker.to.size >= TO_FULL;
}

void cordon_agent_worker_hang_up(struct cordon_agent *agent)
{
    agent->worker.hung_up = true;
}

void cordon_agent_worker_watch(struct cordon_agent *agent)
{
    const struct cordon_agent_worker *worker = &agent->worker;
    short events =
        (short)((cordon_agent_out_ready(agent) ? POLLIN : 0) | (worker->fd >= 0 && worker->to.size ? POLLOUT : 0));
    if (worker->fd >= 0 && events)
        cordon_agent_watch(agent, worker->fd, events, on_worker, NULL);
}

static void start_collecting(struct cordon_agent *agent)
{
    if (agent->worker.pid > 0 || (!cordon_agent_alone() && cordon_now_us() < agent->collect_by_us))
        return;
    agent->collect_by_us = 0;
    int r = start_worker(agent, true, agent->collect_exec);
    if (r < 0) {
        char why[128];
        (void)snprintf(why, sizeof why, "no process for collecting could be started: %s", strerror(-r));
        cordon_agent_send_dropped(agent, agent->collect_exec, "(all)", why);
        cordon_agent_send(agent, CORDON_FRAME_COLLECTED, agent->collect_exec, NULL, 0);
    }
}

void cordon_agent_worker_step(struct cordon_agent *agent)
{
    struct cordon_agent_worker *worker = &agent->worker;
    if (worker->fd >= 0 && worker->hung_up && !worker->to.size)
        (void)shutdown(worker->fd, SHUT_WR); /* again and again does no harm */
    if (worker->fd >= 0 && worker->until_us && cordon_now_us() >= worker->until_us)
        end_worker(agent);
    if (worker->fd < 0 && agent->collect_by_us)
        start_collecting(agent);
    if (worker->fd < 0)
        cordon_agent_exec_release(agent);
}
