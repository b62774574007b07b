/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of the host. It is trusted to keep the protocol; one that does not is left. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/vm.h"
#include "base/clock.h"

#define READ_SIZE (64u << 10)
#define COLLECT_WAIT_US 1000000 /* for what is slow to die */

typedef void on_frame(struct cordon_agent *agent, const struct cordon_frame *frame);

static void on_stdin_data(struct cordon_agent *agent, const struct cordon_frame *frame)
{
    struct cordon_agent_exec *exec = cordon_agent_exec_find(agent, frame->exec);
    if (exec && exec->state != CORDON_AGENT_ENDED && cordon_agent_stdin_add(exec, frame->payload, frame->length) < 0)
        cordon_agent_quit(agent, 1, "the host sends more stdin than its window");
}

static void on_stdin_eof(struct cordon_agent *agent, const struct cordon_frame *frame)
{
    struct cordon_agent_exec *exec = cordon_agent_exec_find(agent, frame->exec);
    if (exec && exec->state != CORDON_AGENT_ENDED)
        cordon_agent_stdin_end(exec);
}

static void on_credit(struct cordon_agent *agent, const struct cordon_frame *frame)
{
    struct cordon_agent_exec *exec = cordon_agent_exec_find(agent, frame->exec);
    unsigned stream = (unsigned char)frame->payload[0];
    if (exec && (stream == 1 || stream == 2))
        exec->stream[stream - 1].credit += cordon_frame_u32(frame, 1);
}

static void on_kill(struct cordon_agent *agent, const struct cordon_frame *frame)
{
    struct cordon_agent_exec *exec = cordon_agent_exec_find(agent, frame->exec);
    uint32_t signal = cordon_frame_u32(frame, 0);
    if (exec && signal > 0 && signal < 65)
        cordon_agent_exec_kill(agent, exec, (int)signal);
}

static void on_collect(struct cordon_agent *agent, const struct cordon_frame *frame)
{
    struct cordon_agent_exec *exec = cordon_agent_exec_find(agent, frame->exec);
    struct cordon_field field;
    size_t at = 0;
    if (!exec || exec->state != CORDON_AGENT_ENDED || agent->collect_exec) {
        cordon_agent_send_error(agent, frame->exec, EINVAL, NULL,
                                "artifacts are collected once, of a program that ended");
        return;
    }
    while (cordon_field_next(frame->payload, frame->length, &at, &field) == 1) {
        if (field.tag == CORDON_FIELD_LIMITS && cordon_exec_limits_parse(&field, &agent->collect_limits) < 0)
            cordon_agent_quit(agent, 1, "the host sends malformed limits");
    }
    agent->collect_exec = frame->exec;
    agent->collect_by_us = cordon_now_us() + COLLECT_WAIT_US;
}

static on_frame *const handlers[] = {
    [CORDON_FRAME_STDIN] = on_stdin_data,
    [CORDON_FRAME_STDIN_EOF] = on_stdin_eof,
    [CORDON_FRAME_CREDIT] = on_credit,
    [CORDON_FRAME_KILL] = on_kill,
    [CORDON_FRAME_FILE_OPEN] = cordon_agent_worker_feed,
    [CORDON_FRAME_FILE_DATA] = cordon_agent_worker_feed,
    [CORDON_FRAME_FILE_CLOSE] = cordon_agent_worker_feed,
    [CORDON_FRAME_COLLECT] = on_collect,
};

/* The job may be large, so it is not copied: its frame's buffer becomes the job, header and all. What follows it in
 * the buffer goes into a new one. */
static void begin_exec(struct cordon_agent *agent, size_t at, const struct cordon_frame *frame)
{
    struct cordon_buf job = CORDON_BUF_INIT(CORDON_FRAME_MAX + CORDON_FRAME_HEADER);
    if (frame->length >= READ_SIZE / 2 && at == 0) {
        struct cordon_buf rest = CORDON_BUF_INIT(agent->in.max);
        size_t whole = CORDON_FRAME_HEADER + (size_t)frame->length;
        if (cordon_buf_append(&rest, agent->in.data + whole, agent->in.size - whole) < 0)
            cordon_agent_quit(agent, 1, "no memory for a job");
        job = agent->in;
        job.size = whole;
        cordon_buf_consume(&job, CORDON_FRAME_HEADER);
        agent->in = rest;
    } else if (cordon_buf_append(&job, frame->payload, frame->length) < 0) {
        cordon_agent_quit(agent, 1, "no memory for a job");
    }
    cordon_agent_exec_begin(agent, frame->exec, &job);
}

/* Handles whole frames; stops where a worker has enough. */
static void handle_frames(struct cordon_agent *agent)
{
    struct cordon_frame frame;
    size_t used = 0;
    while (!cordon_agent_worker_full(agent)) {
        int64_t n = cordon_frame_parse(agent->in.data + used, agent->in.size - used, 0, &frame);
        if (n < 0)
            cordon_agent_quit(agent, 1, "the host sent what is no frame");
        if (n == 0)
            break;
        bool known = frame.type < sizeof handlers / sizeof *handlers && handlers[frame.type];
        if (frame.type != CORDON_FRAME_EXEC && !known)
            cordon_agent_quit(agent, 1, "the host sent a frame for a kept guest");
        if (frame.type != CORDON_FRAME_EXEC) {
            handlers[frame.type](agent, &frame);
            used += (size_t)n;
            continue;
        }
        cordon_buf_consume(&agent->in, used); /* so that the job stands at the front */
        used = 0;
        frame.payload = agent->in.data + CORDON_FRAME_HEADER;
        const char *before = agent->in.data;
        begin_exec(agent, 0, &frame);
        if (agent->in.data == before)
            used = (size_t)n;
    }
    cordon_buf_consume(&agent->in, used);
}

static size_t frame_left(const struct cordon_agent *agent)
{
    if (agent->in.size < CORDON_FRAME_HEADER)
        return 0;
    struct cordon_frame header = {.length = CORDON_FRAME_HEADER, .payload = agent->in.data};
    size_t whole = CORDON_FRAME_HEADER + (size_t)cordon_frame_u32(&header, 4);
    return whole > agent->in.size && whole <= CORDON_FRAME_MAX + CORDON_FRAME_HEADER ? whole - agent->in.size : 0;
}

static void on_channel(struct cordon_agent *agent, struct cordon_agent_exec *exec, short events)
{
    (void)exec;
    if (events & POLLOUT)
        cordon_agent_out_flush(agent);
    if (events & (POLLHUP | POLLERR) && !(events & POLLIN))
        cordon_agent_quit(agent, 0, NULL); /* the host left: the guest is of no more use */
    if (!(events & POLLIN))
        return;
    size_t left = frame_left(agent), room = left > READ_SIZE ? left : READ_SIZE;
    char *to = cordon_buf_reserve(&agent->in, room);
    if (!to)
        cordon_agent_quit(agent, 1, "no memory for a frame of the host");
    ssize_t n = cordon_vm_recv(agent->channel, to, room);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0)
        cordon_agent_quit(agent, 0, NULL);
    agent->in.size += (size_t)n;
    handle_frames(agent);
}

void cordon_agent_watch_channel(struct cordon_agent *agent)
{
    bool full = cordon_agent_worker_full(agent);
    if (!full && agent->in.size) /* frames that waited for the worker */
        handle_frames(agent);
    bool sending = agent->out.start < agent->out.end && !agent->out.lazy_until_us;
    short events = (short)((cordon_agent_worker_full(agent) ? 0 : POLLIN) | (sending ? POLLOUT : 0));
    cordon_agent_watch(agent, agent->channel, events, on_channel, NULL);
}
